"""The names that an SGLang release knows, read from its wheels without running them.

pip download --no-deps sglang==0.5.23 sglang==0.5.16 (one after the other), then
python -m docs.engine_names sglang-0.5.23-*.whl sglang-0.5.16-*.whl

writes roles/inventory/flag_names.py and variable_names.py. The first wheel is the release whose names
are known; of the others only what it no longer has is kept.
"""

from __future__ import annotations

import ast
import re
import sys
import textwrap
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOMS = Path(__file__).resolve().parents[1] / "roles" / "inventory"
PARSERS = re.compile(r"sglang/srt/(?:server_args|arg_groups/fields/\w+|arg_groups/choices)\.py")
VARIABLE = re.compile(r"""["'](SGLANG_[A-Z0-9_]+)["']""")
ELSEWHERE = re.compile(r"sglang/(?:multimodal_gen|test|benchmark)/")
"""Parts of the package that no server of a language model imports."""
KINDS = {
    "SWITCHES": "true or false",
    "OFF_FORMS": "Switches that have a --no- form.",
    "WHOLE": "A whole number.",
    "SIZES": "A whole number; 64k and 1Mi are numbers, too.",
    "NUMBERS": "Any number.",
    "LISTS": "One value or several.",
    "JSON": "A mapping or a list, as JSON.",
    "TEXTS": "One value.",
}


@dataclass
class Names:
    """What one wheel knows."""

    version: str
    kinds: dict[str, str] = field(default_factory=dict)
    """Flag -> one of KINDS."""
    choices: dict[str, tuple[str, ...]] = field(default_factory=dict)
    variables: set[str] = field(default_factory=set)
    """Without SGLANG_."""


def names_of(wheel: Path) -> Names:
    """Read a wheel. ValueError: it has no flags where this looks for them."""
    version = wheel.name.split("-")[1]
    found = Names(version)
    lists: dict[str, Any] = {}
    with zipfile.ZipFile(wheel) as archive:
        files = sorted(name for name in archive.namelist() if name.endswith(".py"))
        texts = {name: archive.read(name).decode("utf-8", "replace") for name in files}
    for name in filter(PARSERS.fullmatch, files):  # arg_groups/choices.py is the first of them
        tree = ast.parse(texts[name])
        lists.update(_lists(tree))
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                _fields(node, found, lists)
            elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "add_argument":
                _argument(node, found)
    for name, text in texts.items():
        if not ELSEWHERE.match(name):
            found.variables |= {match[7:] for match in VARIABLE.findall(text)}
    found.variables |= set(_declared(ast.parse(texts.get("sglang/srt/environ.py", ""))))
    if not found.kinds:
        raise ValueError(f"{wheel}: no flags were found")
    return found


def _literal(node: ast.expr | None) -> Any:
    try:
        return None if node is None else ast.literal_eval(node)
    except ValueError:
        return None


def _lists(tree: ast.Module) -> dict[str, Any]:
    """NAME = [...] at a module's top."""
    return {
        target.id: _literal(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def _fields(node: ast.ClassDef, found: Names, lists: dict[str, Any]) -> None:
    """`name: A[TYPE, "help" or Arg(...)]`: one flag each."""
    for item in node.body:
        if not (isinstance(item, ast.AnnAssign) and isinstance(item.annotation, ast.Subscript)):
            continue
        inside = item.annotation.slice
        if getattr(item.annotation.value, "id", "") != "A" or not isinstance(inside, ast.Tuple):
            continue
        given: dict[str, ast.expr] = {}
        for part in inside.elts[1:]:
            if isinstance(part, ast.Call) and getattr(part.func, "id", "") == "Arg":
                given = {keyword.arg: keyword.value for keyword in part.keywords if keyword.arg}
        if _literal(given.get("no_cli")):
            continue
        assert isinstance(item.target, ast.Name)
        first = _literal(given.get("cli_name")) or item.target.id.replace("_", "-")
        kind = _kind(ast.unparse(inside.elts[0]), given)
        choices = _choices(inside.elts[0], given.get("choices"), lists)
        for name in (first, *(_literal(given.get("aliases")) or ())):
            found.kinds[name.lstrip("-")] = kind
            if choices and kind != "LISTS":
                found.choices[name.lstrip("-")] = choices


def _kind(type_: str, given: dict[str, ast.expr]) -> str:
    if "BooleanOptional" in ast.unparse(given["action"]) if "action" in given else False:
        return "OFF_FORMS"
    plain = re.sub(r"^Optional\[(.*)\]$", r"\1", type_)
    parser = ast.unparse(given["type_parser"]) if "type_parser" in given else ""
    if parser == "human_readable_int":
        return "SIZES"
    if parser.startswith("json"):
        return "JSON"
    if "nargs" in given or "action" in given or (plain.startswith("List[") and not parser):
        return "LISTS"
    kinds = {"bool": "SWITCHES", "int": "WHOLE", "float": "NUMBERS"}
    return "TEXTS" if parser else kinds.get(plain, "TEXTS")


def _choices(
    type_: ast.expr, given: ast.expr | None, lists: dict[str, Any]
) -> tuple[str, ...] | None:
    value = lists.get(given.id) if isinstance(given, ast.Name) else _literal(given)
    if given is None:
        inner = re.search(r"Literal(\[.*?\])", ast.unparse(type_))
        value = ast.literal_eval(inner[1]) if inner else None
    return tuple(map(str, value)) if value else None


def _argument(node: ast.Call, found: Names) -> None:
    """`parser.add_argument("--name", ...)`."""
    action = next((ast.unparse(word.value) for word in node.keywords if word.arg == "action"), "")
    nargs = any(word.arg == "nargs" for word in node.keywords)
    kind = "LISTS" if nargs else "TEXTS"
    if "store_true" in action or "StoreTrue" in action:
        kind = "SWITCHES"
    for name in map(_literal, node.args):
        if isinstance(name, str) and name.startswith("--"):
            found.kinds.setdefault(name[2:], kind)


def _declared(tree: ast.Module) -> Iterator[str]:
    """The fields of the class Envs."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and node.name == "Envs":
            for item in node.body:
                targets = item.targets if isinstance(item, ast.Assign) else ()
                for name in (one.id for one in targets if isinstance(one, ast.Name)):
                    if name.startswith("SGLANG_"):
                        yield name[7:]


def _names(name: str, names: Iterable[str], doc: str) -> str:
    text = textwrap.fill(" ".join(sorted(names)), 96, break_on_hyphens=False)
    return f'\n{name} = names("""\n{text}\n""")\n"""{doc}"""\n'


HEAD = '''"""{title}

Written by python -m docs.engine_names from the wheel{s} of {versions}: do not edit.
"""

from __future__ import annotations

from roles.inventory.names import names

VERSION = "{version}"
'''


def _head(title: str, wheels: list[Names]) -> str:
    versions = " and ".join(wheel.version for wheel in wheels)
    plural = "s" if len(wheels) > 1 else ""
    return HEAD.format(title=title, s=plural, versions=versions, version=wheels[0].version)


def flag_module(wheels: list[Names]) -> str:
    """roles/inventory/flag_names.py."""
    now, old = wheels[0], wheels[1:]
    text = _head("SGLang's flags, without --, by the values that they take.", wheels)
    for kind, doc in KINDS.items():
        text += _names(kind, (name for name, its in now.kinds.items() if its == kind), doc)
    gone = {name for wheel in old for name in wheel.kinds} - set(now.kinds)
    text += _names("GONE", gone, "Flags of older releases that VERSION no longer has.")
    lines = [f"{name}: {' '.join(values)}" for name, values in sorted(now.choices.items())]
    wrapped = "\n".join(
        textwrap.fill(line, 96, subsequent_indent="  ", break_on_hyphens=False) for line in lines
    )
    return text + (
        f'\n_CHOICES = """\n{wrapped}\n"""\n\nCHOICES = {{\n'
        "    name: tuple(values.split())\n    for name, _, values in (\n"
        '        line.partition(":") for line in _CHOICES.replace("\\n  ", " ").strip().split("\\n")\n'
        '    )\n}\n"""Flag -> the only values that it takes."""\n\n'
        "FLAGS = (\n    SWITCHES\n    | OFF_FORMS\n    | WHOLE\n    | SIZES\n    | NUMBERS\n    | LISTS\n"
        '    | JSON\n    | TEXTS\n    | {f"no-{name}" for name in OFF_FORMS}\n)\n'
        '"""All of them, --no- forms included."""\n'
    )


def variable_module(wheels: list[Names]) -> str:
    """roles/inventory/variable_names.py."""
    now, old = wheels[0], wheels[1:]
    text = _head(
        "The environment variables that SGLang reads, without their prefix SGLANG_.", wheels
    )
    text += _names("NAMES", now.variables, "Those that VERSION reads.")
    gone = {name for wheel in old for name in wheel.variables} - now.variables
    return text + _names("GONE", gone, "Those that only an older release reads.")


def main(arguments: list[str]) -> int:
    """Write the two modules; returns the exit status."""
    if not arguments:
        print(__doc__, file=sys.stderr)
        return 2
    wheels = [names_of(Path(argument)) for argument in arguments]
    (ROOMS / "flag_names.py").write_text(flag_module(wheels), encoding="utf-8")
    (ROOMS / "variable_names.py").write_text(variable_module(wheels), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
