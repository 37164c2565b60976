"""The engine that a switch replaces, measured and asked just before it is stopped, where it serves the
same model: the watch holds the new engine against it. It serves meanwhile, and nothing of it is fatal.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Callable

from sglangctl.engine import accepted, canaries, former, kinds, readiness_facts
from sglangctl.engine.former import Former
from sglangctl.engine.http import Endpoint, ask, endpoint, reachable
from sglangctl.engine.load import Load, measure
from sglangctl.free.model import Plan
from sglangctl.proc import as_user, procfs, sockets
from sglangctl.state.config import Acceptance, EngineConfig, readable
from sglangctl.state.paths import Paths, linked
from sglangctl.switch.ended import Ended
from sglangctl.util import os_errors
from sglangctl.util.errors import Unusable
from sglangctl.util.values import mappings, printable, text
from sglangctl.weights.page_cache import WEIGHTS

Say = Callable[[str], None]
ASK_S = 5.0
"""For a question that needs no generation."""
FIND_S = 15.0
"""For finding out which ports answer as an engine: ranks listen on dozens that never answer."""
LOOK_S = 10.0
"""For the weights' folders."""
LIKELY = (8000, 30000)
"""The ports of vLLM and SGLang, where nobody chooses others."""


@dataclass(frozen=True)
class Serving:
    """An engine that is about to be stopped."""

    who: str
    pid: int
    where: Endpoint
    model: str
    """The name that requests have to say."""
    names: tuple[str, ...]
    path: str | None
    """Of its weights; None where it does not tell."""
    native: bool
    """An SGLang: it has /generate."""
    logprobs: bool
    """It may be asked for them."""


def take(engine: EngineConfig, plan: Plan, to: str, paths: Paths, say: Say) -> None:
    """Keep what serves before release `to` of `engine`, where acceptance wants it. Never fails: an
    engine that cannot be measured is only said to be. Ended, where the switch is told to end
    meanwhile."""
    wanted = engine.acceptance
    if not (plan.units_to_stop or plan.containers_to_stop or plan.processes_to_end):
        return  # nothing serves, and what a switch that was cut has kept is still true
    try:
        former.forget(engine.name, paths)
        if wanted is None or not wanted.replaced or _known(engine, to, paths):
            return
        for one in serving(engine, plan, paths, say):
            found = _look(one, engine, wanted, to, say)
            if found is not None:
                former.keep(found, engine.name, paths)
                return
        say(
            "nothing that serves the same model is replaced: no speed and no answers to compare with"
        )
    except Ended:
        raise
    except Exception as error:  # also a fault of our own: this is no step of the switch
        say(f"what is replaced is not measured: {os_errors.describe(error)}")


def _known(engine: EngineConfig, to: str, paths: Paths) -> bool:
    """A release that has served here before is not measured anew: a rollback does not wait."""
    links = [linked(engine.name, link, paths) for link in ("known-good", "previous")]
    return to in links or accepted.last(engine, paths, to) is not None


def _look(
    one: Serving, engine: EngineConfig, wanted: Acceptance, to: str, say: Say
) -> Former | None:
    """What is kept of it; None where it serves another model."""
    same, words = _same_weights(one, engine)
    if same is not True and engine.served_name not in one.names:
        return None
    say(
        f"{one.who} serves the same model: it is measured and asked, for at most "
        f"{2 * wanted.limit_s:g} s, and serves meanwhile"
    )
    kind = kinds.of(one.where, ASK_S)
    if kind.vectors:
        say(f"{one.who} makes no text ({kind.name}): it is not measured")
        return None
    native, logprobs = one.native, one.logprobs
    answers, fault = canaries.record(one.where, one.model, native, logprobs, wanted.limit_s)
    if fault is not None:
        say(f"not all answers of {one.who} could be kept: {fault}")
    load: Load | None = None
    if same is not False and answers:
        load = measure(one.where, one.model, wanted, kind)
        if kind is kinds.CHATTING and "chat template" in (load.fault or ""):
            kind = kinds.COMPLETION
            load = measure(one.where, one.model, wanted, kind)
    fault = _unmeasured(load)
    if fault is not None:
        say(f"{one.who} could not be measured: {fault}")
        load = None
    kept = load.as_dict() if load is not None else None
    for line in accepted.described(kept or {}):
        say(f"{one.who}: {line}")
    when = datetime.now(timezone.utc).isoformat(timespec="seconds")
    return Former(to, when, one.who, same, words, kind.name, kept, answers)


def _unmeasured(load: Load | None) -> str | None:
    """Why a load says nothing about speed; None where it does, or there is none."""
    if load is None:
        return None
    if load.fault is not None or not load.speeds:
        return load.fault or "no answer came in time"
    streamed = any(speed.pace_p50_s is not None for speed in load.speeds)
    return None if streamed else "its answers came in one piece"


def serving(engine: EngineConfig, plan: Plan, paths: Paths, say: Say) -> Iterator[Serving]:
    """What of all that is about to be stopped answers as an engine."""
    ours = {one.unit: one for one in readable(paths)[1]}
    left = FIND_S
    for who, pids in _stopped(plan):
        config = ours.get(who)
        for where, pid in _endpoints(pids, config, paths):
            if left <= 0:
                say(f"{who} listens on ports that do not answer: the rest of them is not asked")
                return
            answer = ask(where, "/v1/models", min(ASK_S, left))
            left -= answer.seconds
            names = readiness_facts.served_models(answer, where.mask)
            if answer.status == 401:
                say(f"{who} wants a key at port {where.port}: it is not measured")
            if not names:
                continue
            yield _asked(who, pid, where, names, mappings(answer.object().get("data")))


def _asked(
    who: str, pid: int, where: Endpoint, names: tuple[str, ...], listed: Sequence[dict[str, Any]]
) -> Serving:
    info: dict[str, Any] = {}
    for one in kinds.INFO_PATHS:
        info = info or ask(where, one, ASK_S).object()
    native = "model_path" in info
    path = text(info.get("model_path")) or text((listed or [{}])[0].get("root"))
    logprobs = True
    if native:
        server = ask(where, "/server_info", ASK_S).object()
        server = server or ask(where, "/get_server_info", ASK_S).object()
        # What does not say how it decodes is not asked.
        speculates = bool(server.get("speculative_algorithm", not server))
        logprobs = canaries.safe(speculates, text(server.get("version")))
    return Serving(who, pid, where, names[0], names, path, native, logprobs)


def _stopped(plan: Plan) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Everything that is stopped, in words, and its processes."""
    for step in plan.units_to_stop:
        yield step.unit, step.pids
    for box in plan.containers_to_stop:
        yield f"container {box.name}", box.pids
    for holder in plan.processes_to_end:
        yield f"pid {holder.pid}", (holder.pid,)


def _endpoints(
    pids: tuple[int, ...], config: EngineConfig | None, paths: Paths
) -> Iterator[tuple[Endpoint, int]]:
    """Where these processes listen, and which of them does. Of our own engine with its key."""
    at = {one.port: one for one in sockets.listeners()}
    # An engine has many ports, and what is no HTTP server keeps us waiting: the likely ones first.
    for port in sorted(at, key=lambda port: (port not in LIKELY, port)):
        owners = sockets.owners(port, pids) if pids else []
        if not owners:
            continue
        if config is None:
            yield Endpoint(reachable(at[port].address), port), owners[0]
        elif config.port == port:
            yield endpoint(config, paths, lambda: pids), owners[0]


def _same_weights(one: Serving, engine: EngineConfig) -> tuple[bool | None, str]:
    """Whether its weights are the files that the new engine reads, unchanged since it read them, and
    the words for it where they are not known to be."""
    if one.path is None:
        return (
            None,
            "whether its weights are the same cannot be told: it does not say what it serves",
        )
    theirs, age = printable(one.path), procfs.age_s(one.pid)
    if not os.path.isabs(one.path):
        return None, f"whether its weights are the same cannot be told: it serves {theirs}"
    inside = Path(f"/proc/{one.pid}/root{one.path}")

    def look() -> list[Any]:  # as lists: what a process of its own returns is JSON
        return [weight_files(Path(engine.model)), weight_files(inside)]

    words = f"whether its weights are the same cannot be told: {theirs} before, {engine.model} now"
    try:
        (mine, newest), (other, _) = as_user.within(LOOK_S, look)
    except Unusable as error:
        return None, f"{words} ({error})"
    if not mine or not other:
        return None, words
    if mine != other:
        return False, f"its weights are others: {theirs} before, {engine.model} now"
    if age is None or newest > time.time() - age:
        return None, f"files in {engine.model} have changed since {one.who} was started"
    return True, ""


def weight_files(folder: Path) -> tuple[list[list[int]], float]:
    """[device, inode] of each weight file in a folder, sorted, and when the newest was changed (Unix
    seconds). Links and mounts are seen through."""
    found, newest = [], 0.0
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.endswith(WEIGHTS) and entry.is_file():
                    status = entry.stat()
                    found.append([status.st_dev, status.st_ino])
                    newest = max(newest, status.st_mtime)
    except (OSError, ValueError):  # a path with a NUL byte, say: it is the engine's own word
        return [], 0.0
    return sorted(found), newest
