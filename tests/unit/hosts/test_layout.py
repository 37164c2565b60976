"""What one run of pytest over all folders (`make test`) asks of them."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

from tests.hosts.say import ROOT

SCENARIOS = {("test_readiness_real", "test_readiness_matrix")}
"""The real engine goes through the stand-in's own cases: that is what these tests are."""


def test_names_of_test_files_are_unique_over_all_folders() -> None:
    # Folders without __init__.py: two files of one name would be one module.
    names = Counter(path.name for path in (ROOT / "tests").rglob("test_*.py"))
    assert [name for name, count in names.items() if count > 1] == []


def imported(path: Path) -> set[str]:
    """The last names of the modules that a file may import, inside functions too."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names.update(item.name.rpartition(".")[2] for item in node.names)
        elif isinstance(node, ast.ImportFrom):
            names.update(item.name for item in node.names)
            names.add((node.module or "").rpartition(".")[2])
    return names


def test_no_test_module_imports_another() -> None:
    """What several of them need is in tests/support."""
    paths = list((ROOT / "tests").rglob("test_*.py"))
    modules = {path.stem for path in paths}
    found = {(path.stem, name) for path in paths for name in imported(path) & modules}
    assert found == SCENARIOS
