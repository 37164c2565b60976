"""The check of one folder with the rights of the engine's user, remembered while nothing changes."""

from __future__ import annotations

import pwd
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Callable

from sglangctl.diagnosis.finding import Finding
from sglangctl.proc import as_user
from sglangctl.state.config import EngineConfig
from sglangctl.state.paths import Paths
from sglangctl.util.errors import Unusable
from sglangctl.util.values import mapping, mappings, text
from sglangctl.weights import hashes, remembered
from sglangctl.weights.check import Model, check
from sglangctl.weights.hashes import Progress

LIMIT_S = 120.0
"""For one folder: 64 headers from a cold disk take 2 s, from NFS half a minute."""


def model(
    folder: Path,
    user: str,
    *,
    tokenizer: bool = True,
    paths: Paths | None = None,
    remember: bool = True,
) -> Model:
    """The model in `folder` as `user` sees it; KeyError (no such user), as_user.NoAnswer (a dead
    server: nothing of the folder is looked at without a time limit).

    Only a complete model is remembered, and only by root, whose file it is. `remember` False
    writes nothing, and reads what was remembered.
    """
    paths = paths or Paths()
    file = remembered.file_of(folder, user, paths)
    memory = remembered.load(file)
    now = as_user.within(LIMIT_S, lambda: _identities(folder))
    kept = mapping(memory.get("model"))
    same = bool(now) and memory.get("files") == now and memory.get("tokenizer") == tokenizer
    if same and "config" in kept:  # which an older version did not keep
        return _from_json(kept, str(folder))
    # Before the fork: that user may not be able to read this Python's modules (a Python of root's own).
    import_module("concurrent.futures.thread")
    found = _from_json(
        mapping(
            as_user.ask(user, lambda: asdict(check(folder, tokenizer=tokenizer)), LIMIT_S),
        ),
        str(folder),
    )
    if remember and found.complete and now:
        _keep(file, {"files": now, "tokenizer": tokenizer, "model": asdict(found)}, user)
    return found


def _identities(folder: Path) -> dict[str, list[int]]:
    try:
        return remembered.identities(folder)
    except OSError:
        return {}


def _keep(file: Path, memory: dict[str, Any], user: str | None = None) -> None:
    """`user`: reads it too, before each start of an engine."""
    gid = pwd.getpwnam(user).pw_gid if user else None
    try:
        remembered.save(file, memory, gid)
    except OSError:
        return  # Not root, or no room: nothing is lost but the time of the next look.


def _from_json(document: dict[str, Any], path: str) -> Model:
    return Model(
        path,
        int(document.get("files") or 0),
        int(document.get("bytes") or 0),
        int(document.get("tensors") or 0),
        text(document.get("config")) or "",
        [Finding.from_json(one) for one in mappings(document.get("findings"))],
    )


@dataclass(frozen=True)
class Target:
    """One folder that an engine reads."""

    folder: Path
    tokenizer: bool = True
    """False: a drafter, which takes the target's."""


def targets(engine: EngineConfig) -> list[Target]:
    """The folders of an engine's model and drafter."""
    found = [Target(Path(engine.model))]
    if engine.drafter is not None and engine.drafter.path:
        found.append(Target(Path(engine.drafter.path), tokenizer=False))
    return found


def sha256(folder: Path, listed: str | None, tell: Callable[[Progress], None]) -> list[Finding]:
    """Every byte of the folder's files against `listed` (a list's text), else against what is
    known of their source; Unusable when neither names a file.

    Goes on where an earlier run was ended: what was read is remembered, as far as root runs it.
    """
    wanted = hashes.from_list(listed) if listed is not None else hashes.from_source(folder)
    if not wanted:
        raise Unusable(
            f"nothing says which sha256 the files in {folder} should have: "
            "name a list (as sha256sum prints it) after --sha256"
        )
    file = remembered.file_of(folder, "sha256", Paths())
    known = mapping(remembered.load(file).get("known"))
    return hashes.verify(folder, wanted, known, tell, lambda: _keep(file, {"known": known}))
