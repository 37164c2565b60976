"""YAML reader: duplicate keys are errors, `yes` and `off` stay text, every place has its line number.

Only true and false are booleans (YAML 1.2): with YAML 1.1's rule `NCCL_DEBUG: off` or a
served name `no` would become False, and 12:30 a number.
"""

from __future__ import annotations

import codecs
import math
import re
from collections.abc import Hashable
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Any, cast

import yaml

from roles.inventory.errors import InventoryError, Path, Problem, shown
from roles.inventory.written import written

DEPTH = 40
"""Levels of nesting that are read; the schema needs fewer than ten."""
NODES = 50_000
"""Nodes that are read, an alias each time that it is used: PyYAML takes some 0.1 ms for one."""
LARGEST_INT = 2**63 - 1
LARGEST = 1024 * 1024
"""Bytes of a file that is read."""


@dataclass(frozen=True)
class Document:
    """A file's content, and the line (from 1) of every place in it."""

    file: str
    content: dict[str, Any]
    lines: dict[Path, int] = field(default_factory=dict)

    def line(self, where: Path) -> int | None:
        """The line of a place, or of the nearest place above it."""
        for end in range(len(where), -1, -1):
            if where[:end] in self.lines:
                return self.lines[where[:end]]
        return None


class _Loader(yaml.SafeLoader):
    """SafeLoader's construction of scalars with YAML 1.2's core words; a flood ends early."""

    composed = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> Any:
        self.composed += 1
        if self.composed > NODES:
            line = cast("Any", self).peek_event().start_mark.line + 1
            raise wrong(self.name, line, (), f"more than {NODES} values", "several smaller files")
        return super().compose_node(parent, index)


_Loader.yaml_implicit_resolvers = {}
for _tag, _pattern, _first in (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("int", r"[-+]?(?:0|[1-9][0-9]*)|0x[0-9a-fA-F]+", "-+0123456789"),
    ("float", r"[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?", "-+.0123456789"),
    ("float", r"[-+]?[0-9]+[eE][-+]?[0-9]+", "-+0123456789"),
    ("float", r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)", "-+."),
    ("merge", r"<<", "<"),
):
    _Loader.add_implicit_resolver(
        f"tag:yaml.org,2002:{_tag}", re.compile(rf"(?:{_pattern})\Z"), list(_first)
    )


def wrong(
    name: str, line: int | None, where: Path, found: str, allowed: str, meant: str | None = None
) -> InventoryError:
    """A file that cannot be used, in the form of every other mistake."""
    return InventoryError(str(Problem(name, line, where, found, allowed, meant)))


def read(path: FilePath) -> Document:
    """Read one YAML file; InventoryError when it cannot be read or is not a mapping."""
    name = str(path)
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST + 1)
    except FileNotFoundError:
        raise InventoryError(f"{name} does not exist") from None
    except OSError as error:
        raise InventoryError(f"{name} cannot be read: {error.strerror}") from None
    if len(data) > LARGEST:
        limit = f"at most {LARGEST // 1024} KiB: use several files"
        raise wrong(name, None, (), "a larger file", limit)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        found, encoding = f"byte {error.start}, which is not UTF-8", "LATIN1"
        if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            found, encoding = "text in UTF-16", "UTF-16"
        allowed = f"UTF-8 (iconv -f {encoding} -t UTF-8 FILE > NEW writes it)"
        raise wrong(name, line, (), found, allowed) from None
    return parse(text, name)


_YAML = "YAML"
_MAPPING = "a mapping with the keys engines and hosts"


def parse(text: str, name: str) -> Document:
    """Parse YAML text; InventoryError names the line of what is wrong."""
    try:
        loader = _Loader(text)
    except yaml.reader.ReaderError as error:
        line = text[: error.position].count("\n") + 1
        found = f"the character U+{error.character:04X}, which YAML does not have"
        raise wrong(name, line, (), found, _YAML) from None
    try:
        loader.name = name
        node = loader.get_single_node()
        reader = _Reader(loader, name)
        content = None if node is None else reader.value(node, ())
    except yaml.MarkedYAMLError as error:
        # The error's own text would quote the line, and the line may hold a secret.
        mark = error.problem_mark or error.context_mark
        reason = error.problem or error.context
        place = mark.line + 1 if mark else None
        raise wrong(name, place, (), f"what is not YAML ({reason})", _YAML) from None
    except RecursionError:
        raise wrong(name, None, (), "lists or mappings that are nested too deep", _YAML) from None
    finally:
        loader.dispose()
    if not isinstance(content, dict):
        found = "an empty file" if content is None else "no mapping"
        raise wrong(name, 1, (), found, _MAPPING)
    return Document(name, content, reader.lines)


class _Reader:
    """Turns nodes into values; keeps lines, refuses duplicates, loops and floods."""

    def __init__(self, loader: _Loader, name: str) -> None:
        self.loader = loader
        self.name = name
        self.lines: dict[Path, int] = {}
        self.count = 0

    def value(self, node: yaml.Node, where: Path) -> Any:
        self.count += 1
        if len(where) > DEPTH or self.count > NODES:
            raise self.error(
                node, where, "what is too deep or too large", "no alias of itself, smaller files"
            )
        self.lines[where] = node.start_mark.line + 1
        if isinstance(node, yaml.MappingNode):
            return self.mapping(node, where)
        if isinstance(node, yaml.SequenceNode):
            return [self.value(item, (*where, index)) for index, item in enumerate(node.value)]
        try:
            value = self.loader.construct_object(node)
        except (ValueError, LookupError, AttributeError, ArithmeticError):
            # What PyYAML's constructors raise for !!bool "x", !!int "", !!timestamp "x".
            kind = node.tag.rpartition(":")[2]
            raise self.error(
                node, where, f"a value that is no {shown(kind)}", "a value that fits its tag"
            ) from None
        if isinstance(value, str):
            return _joined(value)
        if isinstance(value, float) and not math.isfinite(value):
            raise self.error(node, where, "a number that is not finite", "a finite number")
        if isinstance(value, int) and abs(value) > LARGEST_INT:
            # Python refuses to print one of thousands of digits, in whatever sentence it stands.
            raise self.error(node, where, "a longer number", "one that fits into 64 bits")
        if not (value is None or isinstance(value, (int, float))):
            raise self.error(node, where, f"a tag ({shown(node.tag)})", "values without tags")
        if isinstance(value, (int, float)):
            return written(value, node.value)
        return value

    def mapping(self, node: yaml.MappingNode, where: Path) -> dict[str, Any]:
        merged: dict[str, Any] = {}
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                merged = {**self.merge(value_node, where), **merged}
                continue
            key = self.key(key_node, where)
            place = (*where, key)
            if key in result:
                raise self.error(key_node, place, "a duplicate key", "each key once")
            result[key] = self.value(value_node, place)
            self.lines[place] = key_node.start_mark.line + 1
        return {**merged, **result}

    def merge(self, node: yaml.Node, where: Path) -> dict[str, Any]:
        """`<<: *base`, or a list of them, the first of which wins."""
        nodes = node.value if isinstance(node, yaml.SequenceNode) else [node]
        merged: dict[str, Any] = {}
        for item in nodes:
            value = self.value(item, where)
            if not isinstance(value, dict):
                raise self.error(item, where, f"<< with {shown(value)}", "mappings after <<")
            merged = {**value, **merged}
        return merged

    def key(self, node: yaml.Node, where: Path) -> str:
        """A key as text: 8000 and true as keys are the words that were written."""
        if not isinstance(node, yaml.ScalarNode):
            raise self.error(node, where, "a key that is a list or a mapping", "words as keys")
        key: Hashable = node.value
        return str(key)

    def error(self, node: yaml.Node, where: Path, found: str, allowed: str) -> InventoryError:
        return wrong(self.name, node.start_mark.line + 1, where, found, allowed)


def _joined(text: str) -> str:
    """Surrogate pairs as the characters that they stand for: JSON writes an emoji as two.

    A lone one stays, and is found as a mistake where it stands.
    """
    if not any("\ud800" <= letter <= "\udfff" for letter in text):
        return text
    try:
        return text.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        return text
