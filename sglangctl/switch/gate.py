"""An engine at its gate: started in its slot beside the one that serves, and let in when that is down.

It runs with the files of its own release, logs to a file of its own, and is not restarted. Nothing
that the serving engine or its watch reads is touched before it is let in.
"""

from __future__ import annotations

import os
import shutil
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Callable

from sglangctl.diagnosis.outcomes import GIVEN_UP, ORDER
from sglangctl.engine import port_owner
from sglangctl.engine import run as runs
from sglangctl.engine.http import Endpoint, ask, reachable
from sglangctl.startup.render import duration
from sglangctl.state import slots
from sglangctl.state.config import EngineConfig
from sglangctl.state.files import write_atomic
from sglangctl.state.paths import Paths
from sglangctl.switch import live
from sglangctl.switch.outcome import BEGUN_S, Outcome, of_verdict
from sglangctl.systemd import unit_run
from sglangctl.systemd.unit import find
from sglangctl.systemd.unit_names import slots as slots_of
from sglangctl.util.errors import Failed
from sglangctl.util.heartbeat import BEAT_S
from sglangctl.util.values import mapping, text, whole
from sglangctl.watch.follow_run import Follow
from sglangctl.watch.logtail import Logtail

GATING = "gating"
"""The step in state.json: what serves has not been touched."""
LOOK_S = 0.1
ASK_S = 5.0
"""For the gate's own server, on this host."""
FROM_RELEASE = ("EnvironmentFile=", "ExecStart=")
"""Lines of the unit that name files of the live release."""
FLAG = "--gated-launch-port"


@dataclass(frozen=True)
class Gate:
    """`unit`: the slot of the new engine; `before`: that of the one before it; `port`: where the new one
    waits to be let in, 0 when that is over."""

    unit: str
    before: str
    port: int

    @property
    def waits(self) -> bool:
        """It has not been let in, as far as the switch got."""
        return self.port != 0

    def document(self) -> dict[str, Any]:
        """For state.json."""
        return asdict(self)

    @classmethod
    def of(cls, document: Any) -> Gate | None:
        """From state.json; None for a switch without one."""
        found = mapping(document)
        unit, before, port = text(found.get("unit")), text(found.get("before")), found.get("port")
        return cls(unit, before, whole(port) or 0) if unit and before else None


@dataclass(frozen=True)
class _Staged(Paths):
    """The host's paths as they are once a release is live."""

    digest: str = ""

    def current(self, name: str) -> Path:
        return self.releases(name) / self.digest

    def engine_log(self, name: str) -> Path:
        return gate_log(name, self)


def made(engine: EngineConfig, paths: Paths) -> Gate:
    """A gate for the next start of this engine, at a port that is free now. An engine that is in no slot
    yet does not run, and moves to the first one."""
    first, second = slots_of(engine.name)
    before, unit = (second, first) if engine.unit == second else (first, second)
    return Gate(unit, before, free_port(engine.listen))


def free_port(listen: str) -> int:
    """A port at which nobody listens, chosen at random by the kernel. Failed for an address that is
    none of this host."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            listen or "127.0.0.1", 0, type=socket.SOCK_STREAM
        )[0]
        with socket.socket(family, kind, protocol) as found:
            found.bind(address)
            return int(found.getsockname()[1])
    except OSError as error:
        raise Failed(f"no port can be had at {listen}: {error.strerror}") from None


def gate_log(name: str, paths: Paths) -> Path:
    """What an engine writes until it is let in."""
    return Paths.engine_log(paths, name).with_name("gate.log")


def begin(engine: EngineConfig, gate: Gate, to: str, paths: Paths) -> None:
    """Start release `to` in the slot. Failed where systemd does not."""
    folder = paths.releases(engine.name) / to
    unit = (folder / "sglang.service").read_text(encoding="utf-8")
    log = gate_log(engine.name, paths)
    log.unlink(missing_ok=True)
    write_atomic(paths.units / gate.unit, unit.encode(), 0o644)
    settings = drop_in(unit, f"{paths.current(engine.name)}/", f"{folder}/", log, gate.port)
    live.put_switch_drop_in(gate.unit, settings.encode(), paths)
    live.start(gate.unit)


def drop_in(unit: str, current: str, release: str, log: Path, port: int) -> str:
    """What is different while it waits. `current` and `release`: paths that end in a slash."""
    service = unit.partition("\n[Service]\n")[2].partition("\n[")[0]
    lines = ["# By sglangctl, while a switch is under way.", "[Service]", "Restart=no"]
    for key in FROM_RELEASE:
        lines.append(key)
        found = [one for one in service.split("\n") if one.startswith(key)]
        end = f" {FLAG} {port}" if key == "ExecStart=" else ""
        lines += [one.replace(current, release) + end for one in found]
    # The engine before has the port.
    lines.append("ExecStartPre=")
    before = [one for one in service.split("\n") if one.startswith("ExecStartPre=")]
    lines += [one + (" --at-gate" if one.endswith(" --start") else "") for one in before]
    lines += [f"StandardOutput=append:{log}", f"StandardError=append:{log}"]
    return "\n".join(lines) + "\n"


def wait(
    engine: EngineConfig, gate: Gate, to: str, paths: Paths, say: Callable[[str], None]
) -> Outcome | None:
    """Follow the start until it waits at its gate; the outcome of one that does not get there.

    Writes the journal of this start, which the watch goes on with. `engine`: in its slot.
    """
    began = time.monotonic()
    unit, run = find(gate.unit), runs.of_unit(gate.unit)
    while run is None:
        if time.monotonic() - began > BEGUN_S or (unit is not None and unit.down):
            return Outcome(
                "down", f"{gate.unit} cannot be started: journalctl -u {gate.unit} -n 20"
            )
        time.sleep(LOOK_S)
        unit, run = find(gate.unit), runs.of_unit(gate.unit)
    staged = _Staged(paths.root, to)
    tail = Logtail(staged.engine_log(engine.name), 0)
    told = began
    with _following(Follow(engine, staged, run, tail, True, at_gate=True)) as follow:

        def over() -> bool:
            nonlocal told
            if time.monotonic() - told >= BEAT_S:
                told = time.monotonic()
                say(f"{engine.name}: {follow.phase}, for {duration(told - began)}")
            return (
                follow.outcome in GIVEN_UP
                or ORDER[follow.phase] > ORDER["gated"]
                or (follow.phase == "gated" and waits(engine, gate, run.pids()))
            )

        follow.until(over)
        if follow.gone():
            follow.finish(unit_run.exit_of(gate.unit, run.id, run.main_pid))
        phase, verdict, file = follow.phase, follow.verdict, follow.file
    if follow.outcome in GIVEN_UP:
        return of_verdict(engine, verdict, file.parent.name)
    if phase != "gated":
        return Outcome("down", "somebody else let it in at its gate", verdict, file.parent.name)
    return None


@contextmanager
def _following(follow: Follow) -> Iterator[Follow]:
    try:
        yield follow
    finally:
        follow.close()


def waits(engine: EngineConfig, gate: Gate, pids: list[int]) -> bool:
    """Whether it answers at its gate, and nobody else does."""
    owner = port_owner.find(gate.port, engine.listen, pids)
    if owner is None or owner.ours is not True:
        return False
    return ask(_address(engine, gate), "/health", ASK_S).status == 200


def let_in(engine: EngineConfig, gate: Gate) -> None:
    """It goes on: it takes memory and serves. Failed where it does not hear."""
    answer = ask(_address(engine, gate), "/gate/activate", ASK_S, {})
    if answer.status != 200:
        raise Failed(
            f"{engine.name} does not answer at its gate ({answer.status or answer.error}): "
            f"see {gate.unit}: sglangctl status {engine.name}"
        )


def _address(engine: EngineConfig, gate: Gate) -> Endpoint:
    return Endpoint(reachable(engine.listen), gate.port)


def take_log(name: str, paths: Paths) -> None:
    """The log of the start becomes the engine's; what was that is kept beside it."""
    log, waiting = paths.engine_log(name), gate_log(name, paths)
    if not waiting.exists():
        return
    if log.exists():
        os.replace(log, _old(log))
    os.replace(waiting, log)


def keep_old_log(name: str, paths: Paths) -> None:
    """What `take_log` has put beside goes where logrotate puts an old log. Not in the dark time: it may
    have to be copied."""
    log = paths.engine_log(name)
    old, rotated = _old(log), log.with_name(log.name + ".1")
    if not old.exists():
        return
    if rotated.exists():
        with open(old, "rb") as source, open(rotated, "ab") as target:
            shutil.copyfileobj(source, target, 1 << 20)
        old.unlink()
    else:
        os.replace(old, rotated)


def _old(log: Path) -> Path:
    return log.with_name(log.name + ".old")


def close(engine: EngineConfig, gate: Gate, paths: Paths) -> None:
    """The slot's files go, where it has not taken over; it does not run any more."""
    live.remove_switch_drop_in(gate.unit, paths)
    if slots.live_unit(engine.name, paths) != gate.unit:
        (paths.units / gate.unit).unlink(missing_ok=True)
    live.reload()
    keep_old_log(engine.name, paths)


def in_slot(engine: EngineConfig, gate: Gate) -> EngineConfig:
    return replace(engine, unit=gate.unit)


def in_old(engine: EngineConfig, gate: Gate) -> EngineConfig:
    return replace(engine, unit=gate.before)
