"""What one run of pytest over all folders (`make test`) asks of them."""

from __future__ import annotations

from collections import Counter

from tests.hosts.say import ROOT


def test_names_of_test_files_are_unique_over_all_folders() -> None:
    # Folders without __init__.py: two files of one name would be one module.
    names = Counter(path.name for path in (ROOT / "tests").rglob("test_*.py"))
    assert [name for name, count in names.items() if count > 1] == []
