"""The engine that a switch replaces, as it was just before it was stopped: how fast it answered, and
what. `former.json` of an engine, by the switch for the watch of the new start."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from sglangctl.engine.canaries import Answer
from sglangctl.state.config import VERSION, EngineConfig
from sglangctl.state.files import write_atomic
from sglangctl.state.paths import Paths, linked
from sglangctl.util import plain_files
from sglangctl.util.values import json_object, mapping, mappings, text


@dataclass(frozen=True)
class Former:
    """What served before release `to`, at `time`."""

    to: str
    time: str
    who: str
    """Its unit, container or process, in words."""
    same_weights: bool | None
    """None: it cannot be told."""
    weights: str
    """The same in words, where they are not known to be the same."""
    kind: str
    """kinds.Kind.name of the load's requests."""
    load: dict[str, Any] | None = None
    """Load.as_dict; None: not measured."""
    answers: tuple[Answer, ...] = ()


def keep(found: Former, name: str, paths: Paths) -> None:
    """Write it; OSError where that is not possible. For root alone: it has texts of the model's."""
    data = json.dumps({"v": VERSION, "former": asdict(found)}, indent=1).encode()
    write_atomic(paths.former(name), data + b"\n", 0o600)


def forget(name: str, paths: Paths) -> None:
    paths.former(name).unlink(missing_ok=True)


def read(name: str, paths: Paths) -> Former | None:
    """What is kept; None where there is nothing that can be read."""
    try:
        document = json_object(plain_files.read_bytes(paths.former(name)))
    except OSError:
        return None
    found = mapping(document.get("former"))
    to, time, who = (text(found.get(key)) for key in ("to", "time", "who"))
    if document.get("v") != VERSION or not to or not time or not who:
        return None
    same = found.get("same_weights")
    answers = [Answer.read(one) for one in mappings(found.get("answers"))]
    return Former(
        to,
        time,
        who,
        same if isinstance(same, bool) else None,
        text(found.get("weights")) or "",
        text(found.get("kind")) or "",
        mapping(found.get("load")) or None,
        tuple(one for one in answers if one is not None),
    )


def of(config: EngineConfig, paths: Paths) -> Former | None:
    """What the live release (or the wanted one that a fallback serves for) has replaced."""
    found, live = read(config.name, paths), linked(config.name, "current", paths)
    if found is None or live is None:
        return None
    instead = {one.release: one.instead_of for one in config.fallbacks}
    return found if found.to in (live, instead.get(live)) else None
