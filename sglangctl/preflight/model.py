"""The model and its drafter, as the engine's user will find them."""

from __future__ import annotations

import os
import pwd
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sglangctl.diagnosis.finding import WARN, Finding
from sglangctl.preflight.catalog import finding, sourced
from sglangctl.proc.as_user import NoAnswer, within
from sglangctl.state.config import EngineConfig
from sglangctl.state.paths import Paths
from sglangctl.util.values import mapping, number
from sglangctl.weights import look as weights
from sglangctl.weights.check import Model

TIMES_S = 30.0
"""For the times of one folder's files."""
STAND_IN = "nobody"
"""Looks in place of a user that this deploy makes only later: both can read what everybody can."""


@dataclass(frozen=True)
class Looked:
    """One folder of the engine: what was found in it, or why it was not looked at."""

    target: weights.Target
    model: Model | None = None
    why: str = ""


def look(engine: EngineConfig, paths: Paths, remember: bool = False) -> list[Looked]:
    """The folders of model and drafter; headers only, nothing of a folder that was found complete
    and has not changed since. `remember`: keep what is found complete."""
    user, looked = reader_of(engine.user), []
    for target in weights.targets(engine):
        try:
            found = weights.model(
                target.folder, user, tokenizer=target.tokenizer, paths=paths, remember=remember
            )
        except (PermissionError, KeyError, NoAnswer) as error:
            why = str(error.args[0]) if error.args else type(error).__name__
            looked.append(Looked(target, why=why))
        else:
            looked.append(Looked(target, found))
    return looked


def judge(engine: EngineConfig, looked: Iterable[Looked]) -> Iterator[Finding]:
    """What is wrong with them."""
    for one in looked:
        if one.model is not None:
            yield from sourced(one.model.findings)
        else:
            yield _unchecked(engine, one.target.folder, one.why)


def _unchecked(engine: EngineConfig, folder: Path, why: str) -> Finding:
    return finding(
        "weights-unchecked",
        WARN,
        f"{folder} was not looked at: {why}",
        f"as root: sglangctl weights --user {engine.user} {folder}",
    )


def changed(engine: EngineConfig, facts: Mapping[str, Any]) -> Iterator[Finding]:
    """Files of the model that changed after the running engine had started: it serves what it read
    then. By the time of the last change to content, name or rights (ctime)."""
    unit = mapping(mapping(mapping(facts.get("engines")).get(engine.name)).get("unit"))
    started = number(unit.get("started"))
    if started is None or unit.get("ActiveState") != "active":
        return
    for target in weights.targets(engine):
        try:
            times = within(TIMES_S, lambda: list(_times(target.folder)))  # noqa: B023 (called at once)
        except NoAnswer as error:
            yield _unchecked(engine, target.folder, str(error))
            continue
        names = sorted(name for name, at in times if at > started)
        if names:
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            yield finding(
                "weights-changed",
                WARN,
                f"{target.folder}/{names[0]}{more} changed after the engine had started",
                f"systemctl restart {engine.unit} serves what is there now",
            )


def _times(folder: Path) -> Iterator[tuple[str, float]]:
    try:
        names = os.listdir(folder)
    except OSError:
        return  # the look at the weights says why
    for name in names:
        try:
            status = os.stat(folder / name)
        except OSError:
            continue  # a link to nothing: the others count all the same
        if not stat.S_ISDIR(status.st_mode):
            yield name, status.st_ctime


def reader_of(user: str) -> str:
    """With whose rights an engine's files are looked at: STAND_IN while its user is not there."""
    try:
        pwd.getpwnam(user)
    except KeyError:
        return STAND_IN
    return user
