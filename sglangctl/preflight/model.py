"""The model and its drafter, as the engine's user will find them."""

from __future__ import annotations

import pwd
from collections.abc import Iterator

from sglangctl.diagnosis.finding import WARN, Finding
from sglangctl.preflight.catalog import finding, sourced
from sglangctl.proc.as_user import NoAnswer
from sglangctl.state.config import EngineConfig
from sglangctl.state.paths import Paths
from sglangctl.weights import look as weights

STAND_IN = "nobody"
"""Looks in place of a user that this deploy makes only later: both can read what everybody can."""


def look(engine: EngineConfig, paths: Paths) -> Iterator[Finding]:
    """What is wrong with the folders of model and drafter; headers only, nothing of a folder that
    was found complete and has not changed since."""
    user = looking(engine)
    for target in weights.targets(engine):
        try:
            found = weights.model(
                target.folder, user, tokenizer=target.tokenizer, paths=paths, remember=False
            )
        except (PermissionError, KeyError, NoAnswer) as error:
            why = str(error.args[0]) if error.args else type(error).__name__
            yield finding(
                "weights-unchecked",
                WARN,
                f"{target.folder} was not looked at: {why}",
                f"as root: sglangctl weights --user {engine.user} {target.folder}",
            )
        else:
            yield from sourced(found.findings)


def looking(engine: EngineConfig) -> str:
    """The user who looks: the engine's own, where there is one yet."""
    return engine.user if _is_there(engine.user) else STAND_IN


def _is_there(user: str) -> bool:
    try:
        pwd.getpwnam(user)
    except KeyError:
        return False
    return True
