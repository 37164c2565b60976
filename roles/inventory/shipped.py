"""Where the files are that are not Python: templates, schema, examples, deploys.

In a checkout they are its top-level folders. In an installed package they are in roles/data, where
the wheel puts them (pyproject.toml).
"""

from __future__ import annotations

from pathlib import Path

_DATA = Path(__file__).resolve().parents[1] / "data"
INSTALLED = _DATA.is_dir()
SHIPPED = _DATA if INSTALLED else Path(__file__).resolve().parents[2]
"""The folder that holds inventory.py, config.py, deploys, inventory and templates."""
SCHEMA = SHIPPED / "inventory" / "schema.json"
TEMPLATES = SHIPPED / "templates"
EXAMPLES = ("minimal.example.yml", "kimi-8x-rtx-pro-6000.example.yml")
"""In inventory/: one engine on one host; eight GPUs and a drafter, taking over from vLLM."""
