"""Operations that bring what was compiled elsewhere, and keep what was compiled here.

Neither fails a host: without them an engine only starts more slowly.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyinfra.api import FunctionCommand, Host, State
from pyinfra.context import host, state

from roles.compiled import store
from roles.inventory.model import EngineSpec
from roles.inventory.render import venv_path
from roles.remote import program, shape
from roles.remote.failing import HostFailed, checked, internal_error, say
from roles.remote.interrupt import Interrupted, interruptible
from roles.remote.link import LinkLost
from roles.remote.operation import Commands, operation, read, show
from roles.remote.shape import WrongShape
from roles.remote.snapshot import JSON
from roles.report.result import FALLBACKS, keep, known
from roles.sgl_kernel.kernel_host import KernelHost
from sglangctl.startup.render import duration

HOST_FOLDER = "/var/cache/sglangctl/compiled"
ASK_S, WORK_S = 120.0, 1000.0
WARMING = ("allocating", "capturing", "binding", "warming")
"""Phases in which an engine compiles."""
NO_MATTER = frozenset(
    ["log-level", "log-level-http", "log-requests", "log-requests-level", "enable-metrics"]
)
"""Flags that decide nothing that is compiled. One more in the key costs a hit, never a fault."""


@dataclass(frozen=True)
class Before:
    """What was found before the start."""

    key: str
    files: int
    """That were compiled on this host before."""
    taken: store.Entry | None = None


BEFORE: dict[tuple[str, str], Before] = {}
"""(host, engine), of this run."""


@operation(is_idempotent=False)
def brought(
    engine: EngineSpec, starts: Callable[[JSON], bool], request: JSON, sudo: bool = False
) -> Commands:
    """
    Bring what another host has compiled for the same key, before an engine's first start here.

    + engine: the engine's spec
    + starts: from the probe's document to whether this run starts the engine
    + request: what the probe is asked for
    + sudo: whether commands need it on this host
    """
    if not starts(read(request)):
        host.noop(f"{engine.name} is not started")
        return
    show([f"compile caches of {engine.name}: decided when its packages are there"])

    def run(state: State, host: Host) -> None:
        attempt(host, engine, lambda: bring(KernelHost(state, host, sudo), engine))

    yield FunctionCommand(checked(run), (), {})


@operation(is_idempotent=False)
def harvested(
    engine: EngineSpec, starts: Callable[[JSON], bool], request: JSON, sudo: bool = False
) -> Commands:
    """
    Keep what a proven engine has compiled, for other hosts, and say what was saved.

    + engine: the engine's spec
    + starts: from the probe's document to whether this run starts the engine
    + request: what the probe is asked for
    + sudo: whether commands need it on this host
    """
    known_now = (host.name, engine.name) in BEFORE
    if not (known_now if state.is_executing else starts(read(request))):
        host.noop(f"{engine.name} was not started, or its compile caches are not known")
        return

    def run(state: State, host: Host) -> None:
        attempt(host, engine, lambda: harvest(KernelHost(state, host, sudo), engine))

    yield FunctionCommand(checked(run), (), {})


def attempt(target: Host, engine: EngineSpec, do: Callable[[], str]) -> None:
    """Do it and say what came of it; a failure is said, and fails nothing."""
    try:
        with interruptible():
            said, colour = do(), None
    except (HostFailed, LinkLost, WrongShape, OSError, ValueError) as error:
        said, colour = f"not shared: {error}; it compiles for itself", "yellow"
    except Interrupted:
        raise HostFailed("interrupted: deploy again") from None
    except Exception as error:  # nothing of this fails a deploy, not even a fault of ours
        said, colour = internal_error(error), "yellow"
    line = f"compile caches of {engine.name}: {said}"
    keep(target, f"compile caches of {engine.name}", [line])
    say(target, line, fg=colour)


def bring(remote: KernelHost, engine: EngineSpec) -> str:
    """Ask for the key, and bring the fleet's archive to a host that has compiled nothing."""
    found = ask(remote, engine, ASK_S, "look")
    place = (remote.host.name, engine.name)
    BEFORE[place] = before = Before(str(found["key"]), int(found["files"]))
    if before.files:
        return f"{before.files} files were compiled on this host before"
    entry = store.find(folder_of(engine), before.key)
    if entry is None:
        return f"nothing was compiled for {before.key} yet: it compiles here"
    incoming = f"{HOST_FOLDER}/{entry.key}"
    remote.step("compile caches", ["mkdir", "-p", "--", incoming], 60)
    remote.send(entry.archive, f"{incoming}/{store.ARCHIVE}")
    digest = str(entry.provenance["sha256"])
    ask(remote, engine, WORK_S, "adopt", entry.key, digest)
    BEFORE[place] = Before(entry.key, 0, entry)
    return f"{amount(entry.provenance)} taken over from {entry.provenance.get('host')}"


def harvest(remote: KernelHost, engine: EngineSpec) -> str:
    """Fetch what was compiled where the fleet has nothing for its key; what is said of this start."""
    name = remote.host.name
    before, result = BEFORE[name, engine.name], known(remote.host, engine.name)
    if result is None or result.outcome != "ready" or FALLBACKS.get(name, {}).get(engine.name):
        return "not kept: only those of an engine that is ready, and is no fallback, are"
    phases = [result.phases[one] for one in WARMING if one in result.phases]
    warming_s = round(sum(phases), 1) if phases else None
    if before.taken is not None:
        return f"taken over{compared(before.taken, warming_s)}"
    folder = folder_of(engine)
    where = "compiled here in this start" if before.files == 0 else "compiled here before"
    if (there := store.find(folder, before.key)) is not None:
        return f"{where}; the fleet has those of {there.provenance.get('host')}"
    found = ask(remote, engine, WORK_S, "pack")
    cold_s = warming_s if before.files == 0 else None
    provenance = {
        **{field: found[field] for field in ("v", "key", "inputs", "sha256", "files", "bytes")},
        "host": name,
        "time": int(time.time()),
        "warming_s": cold_s,
    }
    path = f"{HOST_FOLDER}/{found['key']}/{store.ARCHIVE}"
    try:
        entry = store.add(folder, str(found["key"]), provenance, lambda to: remote.fetch(path, to))
    finally:
        remote.step("compile caches", ["rm", "-f", "--", path], 60)
    took = "" if cold_s is None else f"; {duration(cold_s)} from the weights to ready"
    return f"{amount(entry.provenance)} {where}, kept for other hosts{took}"


def compared(entry: store.Entry, warming_s: float | None) -> str:
    """What was measured, of both starts."""
    cold_s, other = entry.provenance.get("warming_s"), entry.provenance.get("host")
    if warming_s is None or not isinstance(cold_s, (int, float)):
        return f" from {other}; what that saved was not measured"
    saved = cold_s - warming_s
    said = f"{duration(abs(saved))} {'less' if saved >= 0 else 'more'}"
    return (
        f" from {other}: {duration(warming_s)} from the weights to ready, {duration(cold_s)} there, "
        f"where they were compiled: {said}"
    )


def amount(provenance: Any) -> str:
    return f"{provenance['files']} files ({provenance['bytes'] / 1e6:.1f} MB)"


def ask(remote: KernelHost, engine: EngineSpec, wait_s: float, *words: str) -> JSON:
    """The document of `sglangctl compiled`; HostFailed with what it said instead."""
    answer = remote.link().run(
        *program.argv("compiled", *words), wait_s=wait_s, stdin=json.dumps(request_of(engine))
    )
    answer.needed(f"sglangctl compiled {words[0]} failed")
    return shape.check(shape.parsed("\n".join(answer.lines)), shape.COMPILED)


def folder_of(engine: EngineSpec) -> str:
    return f"{engine.kernel.cache}/compiled"


def request_of(engine: EngineSpec) -> JSON:
    """What the host is asked about; no secret is in it."""
    decides = {
        "tensor_parallel": engine.tensor_parallel,
        "drafter": repr(engine.drafter),
        "flags": {name: one for name, one in engine.flags.items() if name not in NO_MATTER},
        "environment": dict(engine.environment),
    }
    said = json.dumps(decides, sort_keys=True, default=str)
    return {
        "engine": engine.name,
        "user": engine.user,
        "venv": venv_path(engine),
        "model": engine.model.path,
        "drafter": engine.drafter.path if engine.drafter else None,
        "gpus": gpus_of(engine),
        "flags": hashlib.sha256(said.encode()).hexdigest(),
    }


def gpus_of(engine: EngineSpec) -> list[int] | None:
    """The GPUs' indices; None: all; empty for an engine on the CPU."""
    if engine.flags.get("device") == "cpu":
        return []
    return None if engine.gpus == "all" else list(engine.gpus)
