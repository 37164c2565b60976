"""The host side of sglang-provision: standard library only, Python >= 3.9."""

from __future__ import annotations

__version__ = "0.1.0"
