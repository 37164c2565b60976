"""Our items in the lists of a prometheus.yml that is somebody else's: every line of theirs stays. Pure.

A text is changed, not a document: comments, order and what a newer Prometheus knows are kept.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

BEGIN = "# sglang-provision begins: deploys/monitoring.py overwrites these lines"
END = "# sglang-provision ends"


class CannotInsert(Exception):
    """The text cannot be changed safely; the message is a clause that says why."""


def with_items(text: str, items: Mapping[str, Sequence[Any]]) -> str:
    """The text with `items` (key at the top -> what its list begins with) between marks, and without
    what was between marks before. CannotInsert where another line would change its meaning."""
    theirs = without_ours(text)
    root, before = parsed(theirs)
    lines = theirs.splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    places = {key.value: (key, value) for key, value in root.value} if root else {}
    added: list[tuple[int, str]] = []
    for key, new in items.items():
        if key not in places:
            added.append((len(lines), marked("", f"{key}:\n{listed('  ', new)}")))
            continue
        at, value = places[key]
        if isinstance(value, yaml.SequenceNode) and not value.flow_style:
            indent = " " * value.start_mark.column
            added.append((value.start_mark.line, marked(indent, listed(indent, new))))
        elif isinstance(value, yaml.ScalarNode) and not value.value and before[key] is None:
            added.append((at.end_mark.line + 1, marked("  ", listed("  ", new))))
        else:
            raise CannotInsert(f"its {key} is no list with an item a line")
    for line, block in sorted(added, key=lambda one: -one[0]):
        lines.insert(line, block)
    result = "".join(lines)
    wanted = {key: [*new, *(before.get(key) or [])] for key, new in items.items()}
    try:
        _, after = parsed(result)
    except CannotInsert:
        after = {}
    if after != {**before, **wanted}:
        raise CannotInsert("it is written in a way in which a line more changes others")
    return result


def without_ours(text: str) -> str:
    """The text without what is between marks."""
    kept: list[str] = []
    inside = False
    for line in text.splitlines(keepends=True):
        mark = line.strip()
        if mark in (BEGIN, END):
            if inside == (mark == BEGIN):
                raise CannotInsert("it has one of our two marks without the other")
            inside = not inside
        elif not inside:
            kept.append(line)
    if inside:
        raise CannotInsert("it has one of our two marks without the other")
    return "".join(kept)


def parsed(text: str) -> tuple[yaml.MappingNode | None, dict[str, Any]]:
    """The node at the top and its content; CannotInsert for what is no mapping."""
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        content = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        # Without its text, which quotes lines: a password may be among them.
        reason = getattr(error, "problem", None) or type(error).__name__
        raise CannotInsert(f"it is not YAML ({reason})") from None
    if root is None:
        return None, {}
    if not isinstance(root, yaml.MappingNode) or root.flow_style or not isinstance(content, dict):
        raise CannotInsert("it is no mapping with a key a line")
    return root, content


def listed(indent: str, items: Sequence[Any]) -> str:
    text = yaml.safe_dump(list(items), sort_keys=False, default_flow_style=False, width=200)
    return textwrap.indent(text, indent)


def marked(indent: str, text: str) -> str:
    return f"{indent}{BEGIN}\n{text}{indent}{END}\n"
