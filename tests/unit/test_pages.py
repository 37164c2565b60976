"""What the pages of this repository promise: tables, links and paths that are true."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from docs import tables
from sglangctl import cli
from sglangctl.startup.fold import _KINDS

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *ROOT.glob("tests/**/README.md")]
)
LINK = re.compile(r"(?<!!)\[[^\]\[]*\]\(([^()\s]+)\)")
CODE = re.compile(r"`([^`\n]+)`")
OURS = re.compile(
    r"(?:benchmarks|deploys|docs|inventory|roles|sglangctl|templates|tests)/[\w./@-]*"
)
ABSENT = {"inventory/hosts.yml", "inventory/kimi.yml"}
"""Files that a user writes."""
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def prose(page: Path) -> str:
    return FENCE.sub("", page.read_text(encoding="utf-8"))


def anchors(page: Path) -> set[str]:
    """The names that GitHub gives to a page's headings."""
    titles = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    plain = (re.sub(r"[^\w\- ]", "", title.lower()) for title in titles)
    return {title.replace(" ", "-") for title in plain}


def dead_links(page: Path) -> Iterator[str]:
    """Links of a page into this repository that lead nowhere."""
    for target in LINK.findall(prose(page)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists() or (anchor and anchor not in anchors(file)):
            yield target


def wrong_paths(page: Path) -> Iterator[str]:
    """Paths of this repository, written as code, that are not in it. A changelog may have old ones."""
    if page.name == "CHANGELOG.md":
        return
    for words in CODE.findall(prose(page)):
        for word in words.split():
            if re.search(r"\bNAME\b", word) or word in ABSENT:
                continue
            if OURS.fullmatch(word) and not (ROOT / word).exists():
                yield word


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_and_paths_of_a_page_lead_somewhere(page: Path) -> None:
    assert [*dead_links(page), *wrong_paths(page)] == []


def test_a_dead_link_and_a_wrong_path_are_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# One: two\n[a](#one-two) [b](page.md#three) [c](other.md) [d](https://example.com)\n"
        "`roles/no.py` and `roles/inventory/`\n```\n[e](fenced.md)\n```\n"
    )
    assert list(dead_links(page)) == ["page.md#three", "other.md"]
    assert list(wrong_paths(page)) == ["roles/no.py"]


def test_the_tables_are_current() -> None:
    assert not tables.stale(), "run: python -m docs.tables --write"


def test_each_table_is_on_one_page() -> None:
    pages = "".join(page.read_text(encoding="utf-8") for page in tables.DOCS.glob("*.md"))
    shown = [found["name"] for found in tables.MARKED.finditer(pages)]
    assert sorted(shown) == sorted(tables.TABLES)


def test_a_stale_page_is_found(tmp_path: Path) -> None:
    marker = "table phases: python -m docs.tables --write"
    page = tmp_path / "page.md"
    page.write_text(f"before\n<!-- {marker} -->\nstale row\n<!-- end of table phases -->\nafter\n")
    (wanted,) = tables.stale(tmp_path).values()
    assert "| `loading` |" in wanted
    assert "stale row" not in wanted
    page.write_text(wanted)
    assert tables.stale(tmp_path) == {}


def test_a_table_that_does_not_exist_is_an_error() -> None:
    marker = "table nothing: python -m docs.tables --write"
    with pytest.raises(ValueError, match="nothing"):
        tables.updated(f"<!-- {marker} -->\n<!-- end of table nothing -->")


def test_a_cell_cannot_end_early() -> None:
    assert tables.table(("a",), [("x | y\nz",)]).splitlines()[-1] == "| x \\| y z |"


def test_the_operations_page_has_every_command() -> None:
    text = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(?:sglangctl )?([a-z-]+)\b", text))
    assert {command.name for command in cli.COMMANDS} <= named


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 170


def test_the_changelog_is_short_and_has_each_entry_once() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    entries = [" ".join(entry.split()) for entry in re.findall(r"^- (.*(?:\n  .*)*)", text, re.M)]
    assert [entry for entry in entries if len(entry) > 240] == []
    assert len(set(entries)) == len(entries)
    assert text.index("## Unreleased") < text.index("## 0.1.0")


def test_the_journal_s_table_has_every_kind_and_every_field_of_a_process() -> None:
    page = (ROOT / "docs/readiness.md").read_text()
    rows = dict(re.findall(r"^\| `(\w+)` \| (.+) \|$", page, re.MULTILINE))
    assert {*_KINDS, "verdict"} <= rows.keys()
    assert not {"pid", "ppid", "start", "exit_code"} - set(re.findall(r"`(\w+)`", rows["process"]))


def test_no_friction_above_low_is_left() -> None:
    """Of the operator's day: what was above is among what was put right, and was tried again."""
    log = json.loads((ROOT / "docs/evidence/friction.json").read_text(encoding="utf-8"))
    assert {one["severity"] for one in log["friction"]} == {"low"}
    assert all(one["now"] for one in log["put_right"]) and log["tried_again"]["commit"]
