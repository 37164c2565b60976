"""Stop an engine, end what is left of it, and keep it down."""

from __future__ import annotations

import signal
from dataclasses import replace

from sglangctl import free
from sglangctl.free import text
from sglangctl.proc import pidfds
from sglangctl.state import lock, release
from sglangctl.state.config import EngineConfig, load_engines, load_host
from sglangctl.state.paths import Paths
from sglangctl.switch.journal import now
from sglangctl.switch.transaction import Say
from sglangctl.systemd import systemctl
from sglangctl.systemd.unit_names import engine_unit, watch_unit
from sglangctl.util.errors import Failed
from sglangctl.util.heartbeat import heartbeat


def end_switch(name: str, paths: Paths, say: Say, limit_s: float = 60.0) -> None:
    """End a switch of this engine that is under way, and have it start nothing again: whoever stops
    an engine wants it down. Another engine's is left alone: the lock then says who runs it."""
    held = lock.holder(paths)
    if held is None or held.engine != name or not held.what.startswith("switch of "):
        return
    target = pidfds.Target(pidfds.Identity(held.pid, held.start, 0))
    try:
        say(f"ending the {held.what} (pid {held.pid})")
        target.send(signal.SIGUSR1)
        pidfds.wait_gone([target], limit_s)
    finally:
        target.close()


def stop(engine: EngineConfig, paths: Paths, say: Say) -> None:
    """Raises Failed when something of the engine is still there."""
    siblings = [other for other in load_engines(paths) if other.name != engine.name]
    # `replaces` is about taking over; who only stops must not end another engine's unit.
    alone = replace(engine, replaces=())
    plan = free.plan(alone, load_host(paths), siblings, policy="declared", stop=True)
    if plan.blind:
        raise Failed(text.refusal_sentence(plan), status=3)
    # Others on the same GPUs are not in the way of a stop: then the units alone are stopped.
    freed = None if plan.refused else free.execute(plan, say)
    stop_by_name(engine.name, say, engine.limits.stop_units_s)
    state = release.read_state(engine.name, paths)
    if state is not None:
        stopped = replace(state, phase="stopped", time=now(), config=None)
        release.write_state(engine.name, stopped, paths)
    if freed is not None and not freed.ok:
        raise Failed(freed.sentence, status=freed.status)
    say(f"{engine.unit} is stopped and disabled")


def stop_by_name(name: str, say: Say, limit_s: float = 130.0) -> None:
    """Stop and disable the two units of an engine, of which nothing else need be known."""
    unit, watch = engine_unit(name), watch_unit(name)
    # The engine first: the watch writes down how it ended.
    for arguments in (
        ("stop", "--", unit),
        ("stop", "--", watch),
        ("disable", "--quiet", "--", unit, watch),
    ):
        with heartbeat(say, f"systemctl {' '.join(arguments)}", limit_s):
            result = systemctl.call(*arguments, timeout_s=limit_s)
        if not result.ok and "not loaded" not in result.stderr and "not exist" not in result.stderr:
            raise Failed(f"systemctl {' '.join(arguments)} failed: {result.stderr.strip()}")
    # A stop by SIGKILL (SGLang's own way of ending) leaves the unit failed: this end was wanted.
    systemctl.call("reset-failed", "--", unit, watch)
