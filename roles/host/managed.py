"""The wanted files and folders, and how a host's differ from them. Pure."""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from sglangctl.state.files import masked_text

LONGEST = 1000
"""Lines of a diff: what is there now is what the host says."""


@dataclass(frozen=True)
class ManagedFile:
    """A whole file that we write. `content` may hold secrets: never print it, print `masked`."""

    path: str
    content: bytes = field(repr=False)
    mode: str = "0644"
    owner: str = "root"
    group: str = "root"

    @cached_property
    def sha256(self) -> str:
        return hashlib.sha256(self.content).hexdigest()

    @property
    def masked(self) -> str:
        """The text with the values of secret names taken out, as the probe does it."""
        return masked_text(self.content) or ""


@dataclass(frozen=True)
class ManagedDirectory:
    path: str
    mode: str = "0755"
    owner: str = "root"
    group: str = "root"


Managed = ManagedFile | ManagedDirectory


@dataclass(frozen=True)
class Change:
    """One path that is not as it should be: why, and the lines of a diff."""

    item: Managed
    why: str
    diff: tuple[str, ...] = ()
    unreadable: bool = False
    """It could not be read: `why` is the reason. It must not be overwritten."""


def changes(wanted: Sequence[Managed], facts: Mapping[str, Any]) -> list[Change]:
    """What differs, in the order of `wanted`; `facts` is the probe's {path: description}."""
    found = (change(item, facts.get(item.path) or {"kind": "absent"}) for item in wanted)
    return [one for one in found if one is not None]


def change(item: Managed, fact: Mapping[str, Any]) -> Change | None:
    """The difference for one path, None when it is as it should be."""
    kind = fact["kind"]
    if kind == "unknown":
        return Change(item, str(fact.get("reason")), unreadable=True)
    if isinstance(item, ManagedDirectory):
        if kind == "link" and fact.get("to_directory"):
            # Moved to a larger disk by whoever owns the host: rights there are theirs.
            return None
        if kind != "directory":
            return Change(item, "new" if kind == "absent" else f"is a {kind}")
    elif kind == "absent":
        return Change(item, "new", text_diff(item.path, "", item.masked))
    elif kind != "file":
        return Change(item, f"is a {kind}", text_diff(item.path, "", item.masked))
    elif fact["sha256"] != item.sha256:
        return Change(item, "changed", text_diff(item.path, fact.get("text"), item.masked))
    wrong = wrong_rights(item, fact)
    return Change(item, wrong) if wrong else None


def wrong_rights(item: Managed, fact: Mapping[str, Any]) -> str:
    """What differs in mode, owner and group of a path that is there; empty where nothing does."""
    return ", ".join(
        f"{name} {fact[name]} -> {getattr(item, name)}"
        for name in ("mode", "owner", "group")
        if fact[name] != getattr(item, name)
    )


def text_diff(path: str, old: str | None, new: str) -> tuple[str, ...]:
    """A unified diff of two masked texts; says so where nothing visible differs."""
    if old is None:
        return (f"(what {path} holds now is not text)",)
    lines = list(
        difflib.unified_diff(old.splitlines(), new.splitlines(), f"{path} (now)", path, lineterm="")
    )
    if len(lines) > LONGEST:
        lines[LONGEST:] = [f"(and {len(lines) - LONGEST} more lines)"]
    return tuple(lines) or (f"(in {path} only a secret's value differs: it is not shown)",)


def rights_only(change: Change) -> bool:
    """Whether nothing but mode, owner or group differs."""
    return not change.unreadable and not change.diff and "->" in change.why
