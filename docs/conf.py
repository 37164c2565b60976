"""Sphinx's settings for `make docs`: the repository is the source, README.md the first page.

So a relative link means the same on the site as in a checkout, and a dead one is a warning.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

project = "sglang-provision"
project_copyright = "the authors of sglang-provision"

extensions = ["myst_parser"]
root_doc = "README"
include_patterns = ["*.md", "docs/*.md", "tests/*/README.md", "tests/hosts/standins/README.md"]
exclude_patterns = [".*", "build"]
nitpicky = True
# Links such as page.md#a-heading, by the names that GitHub gives to headings.
myst_heading_anchors = 3

html_theme = "furo"
html_title = "sglang-provision"
html_static_path = ["_static"]
html_extra_path = ["_extra"]
html_css_files = ["tables.css"]
html_copy_source = False
html_show_sphinx = False

USE = (
    "walkthrough inventory hosts preflight nccl day-two operations monitoring switch readiness troubleshooting "
    "freeing-gpus kernel hardening"
)
DEVELOP = (
    "docs/architecture CONTRIBUTING SECURITY CHANGELOG tests/hosts/README "
    "tests/hosts/standins/README tests/traces/README tests/reports/README tests/gpu/README"
)


def add_contents(_app: Any, name: str, source: list[str]) -> None:
    """Give README.md the site's table of contents, which GitHub would show as text."""
    if name != root_doc:
        return
    use = [f"docs/{page}" for page in USE.split()]
    develop = DEVELOP.split()
    pages = (f"docs/{page.stem}" for page in sorted(Path(__file__).parent.glob("*.md")))
    use += [page for page in pages if page not in [*use, *develop]]
    for caption, names in (("Use it", use), ("Develop it", develop)):
        entries = "\n".join(names)
        source[0] += f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{entries}\n```\n"


def setup(app: Any) -> None:
    app.connect("source-read", add_contents)
