"""Imports run downwards in the rooms that docs/architecture.md lists, and nowhere else."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/architecture.md"
PACKAGES = ("sglangctl", "roles")
TOP = "cli.py"
"""In the list, for the modules that lie in the package's own folder."""
APART = ("commands",)
"""Rooms whose modules do not import one another."""


def rooms_of(package: str, page: str) -> dict[str, int]:
    """Room -> layer, from the ground up, of the table below `## Rooms of PACKAGE`."""
    section = page.partition(f"## Rooms of {package}\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (\d+) \| `([\w.]+)` \| \S.*\|$", section, re.M)
    assert rows, f"{PAGE} has no table of the rooms of {package}"
    return {room: int(layer) for layer, room in rows}


def modules(package: Path) -> dict[str, Path]:
    """Dotted name -> file, of a package and all below it."""
    found = {}
    for file in sorted(package.rglob("*.py")):
        parts = file.relative_to(package.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return found


def imports(name: str, file: Path, known: dict[str, Path]) -> Iterator[tuple[str, int]]:
    """(module, line) for each import of one of `known`, wherever in the file it stands."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name in known:
                    yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                here = name.split(".") if file.name == "__init__.py" else name.split(".")[:-1]
                base = ".".join([*here[: len(here) - node.level + 1], *filter(None, [base])])
            for alias in node.names:
                target = f"{base}.{alias.name}"
                if target not in known:
                    target = base
                if target in known:
                    yield target, node.lineno


def room_of(module: str) -> str | None:
    """None for the package itself (its version): the ground that everything stands on."""
    parts = module.split(".")
    if len(parts) == 1:
        return None
    return parts[1]


def faults(package: Path, level: dict[str, int]) -> list[str]:
    """Everything in the package that is not as the list says, one sentence each."""
    level = dict(level)
    known = modules(package)
    rooms = {}
    found = []
    for name, file in known.items():
        room = room_of(name)
        if room is not None and file.parent == package:
            room = TOP
        if room is not None and room not in level:
            found.append(f"{name} is in the room {room}, which is not in the list")
            level[room] = max(level.values()) + 1
        rooms[name] = room
    found += [
        f"the room {room} is in the list and has no module"
        for room in level
        if room not in rooms.values()
    ]
    edges: dict[str, set[str]] = {name: set() for name in known}
    for name, file in known.items():
        for target, line in imports(name, file, known):
            upper, lower = rooms[name], rooms[target]
            place = f"{file.relative_to(package.parent)}:{line}"
            if lower is None or target == name:
                continue
            if upper is None:
                found.append(f"{place}: the package itself imports {target}")
            elif upper == lower:
                edges[name].add(target)
                if upper in APART:
                    found.append(f"{place}: modules of {upper} do not import one another: {target}")
            elif level[lower] >= level[upper]:
                way = "of its own layer" if level[lower] == level[upper] else "above it"
                found.append(f"{place}: the room {upper} imports {target}, {way}")
    found += [f"a circle: {' -> '.join(circle)}" for circle in circles(edges)]
    return found


def circles(edges: dict[str, set[str]]) -> list[list[str]]:
    """One way round for each set of modules that import one another, the first module first."""

    def way(start: str, end: str) -> list[str] | None:
        seen, ways = {start}, [[start]]
        for path in ways:
            for target in sorted(edges[path[-1]]):
                if target == end:
                    return [*path, end]
                if target not in seen:
                    seen.add(target)
                    ways.append([*path, target])
        return None

    found: list[list[str]] = []
    for name in sorted(edges):
        if any(name in circle for circle in found):
            continue
        path = way(name, name)
        if path is not None:
            found.append(path)
    return found


@pytest.mark.parametrize("package", PACKAGES)
def test_each_room_has_its_tests_in_a_folder_of_its_name(package: str) -> None:
    rooms = set(rooms_of(package, PAGE.read_text(encoding="utf-8"))) - {TOP}
    folder = ROOT / "tests/unit" / package
    assert {file.parent.name for file in folder.glob("*/test_*.py")} == rooms


@pytest.mark.parametrize("package", PACKAGES)
def test_imports_run_downwards(package: str) -> None:
    found = faults(ROOT / package, rooms_of(package, PAGE.read_text(encoding="utf-8")))
    assert not found, "\n" + "\n".join(found)


@pytest.mark.parametrize(
    ("file", "text", "fault"),
    [
        (
            "low/a.py",
            "import toy.commands.b",
            "low/a.py:1: the room low imports toy.commands.b, above it",
        ),
        (
            "low/a.py",
            "def f():\n    from toy.commands import b",
            "low/a.py:2: the room low imports",
        ),
        ("low/a.py", "from ..commands import b", "low/a.py:1: the room low imports toy.commands.b"),
        ("low/a.py", "from toy import beside", "imports toy.beside, of its own layer"),
        ("low/a.py", "from toy.beside import Name", "imports toy.beside, of its own layer"),
        (
            "commands/c.py",
            "from toy.commands import b",
            "modules of commands do not import one another",
        ),
        ("attic/a.py", "", "toy.attic.a is in the room attic, which is not in the list"),
        ("__init__.py", "import toy.low.a", "the package itself imports toy.low.a"),
        (
            "low/a.py",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from toy.low.d import D",
            "a circle: toy.low.a -> toy.low.d -> toy.low.a",
        ),
        ("main.py", "import toy.commands.b", None),
        ("low/a.py", "from toy import __version__", None),
    ],
)
def test_what_is_not_as_the_list_says_is_found(
    tmp_path: Path, file: str, text: str, fault: str | None
) -> None:
    package = tmp_path / "toy"
    files = {
        **{"__init__.py": "", "main.py": "import toy.commands.b", "low/__init__.py": ""},
        **{"low/a.py": "", "low/d.py": "from toy.low import a", "beside/__init__.py": ""},
        **{"commands/__init__.py": "", "commands/b.py": "import toy.low.a"},
        file: text,
    }
    for name, content in files.items():
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text(content)
    page = """# Toy
## Rooms of toy
| Layer | Room | Rule |
| --- | --- | --- |
| 3 | `cli.py` | The top. |
| 2 | `commands` | Each for itself. |
| 1 | `low` | The ground. |
| 1 | `beside` | The ground, too. |
"""
    found = faults(package, rooms_of("toy", page))
    if fault is None:
        assert found == []
    else:
        assert any(fault in one for one in found), found
