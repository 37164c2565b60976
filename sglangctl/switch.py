"""Put a staged release live: stop what it replaces, free the GPUs, move the links, start.

One transaction on the host. With --detach it runs as the transient unit
sglangctl-switch.service, whose name is the host's lock, and this command only follows it: a lost
connection changes nothing for the switch. Exit status: 0 started, 1 failed, 3 somebody else holds
the GPUs and may not be ended (nothing was changed).
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Callable

from sglangctl import foreign, free, release, systemd
from sglangctl.config import ConfigError, EngineConfig, load_engine, load_engines, load_host
from sglangctl.files import link_atomic, write_atomic
from sglangctl.journal import Writer
from sglangctl.paths import Paths
from sglangctl.release import ReleaseError, State

UNIT = "sglangctl-switch.service"
LOCK = "run/sglangctl-switch.lock"
KEPT = 20
"""Journals of switches that are kept, an engine."""
Say = Callable[[str], None]


class SwitchError(Exception):
    """The switch did not come to its end; the text names cause and next step, `status` the exit."""

    def __init__(self, text: str, status: int = 1) -> None:
        super().__init__(text)
        self.status = status


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", help="the engine's name")
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--to", metavar="DIGEST", help="the staged release to put live")
    action.add_argument("--commit", metavar="DIGEST", help="this release is known to be good")
    action.add_argument(
        "--resume", action="store_true", help="finish a switch that was interrupted"
    )
    parser.add_argument("--policy", choices=free.POLICIES, default="declared")
    parser.add_argument("--reason", default="", help="why, for the record")
    parser.add_argument("--detach", action="store_true", help=f"run as {UNIT} and follow it")


def run(args: argparse.Namespace) -> int:
    paths = Paths()
    try:
        engine = load_engine(args.name, paths)
        if args.commit:
            commit(engine, args.commit, paths)
            return 0
        to = args.to or interrupted(engine, paths)
        if args.detach:
            return follow(engine, start_detached(engine, to, args.policy, args.reason), paths)
        with recorded(engine, paths) as record, locked(paths):
            switch(engine, to, args.policy, args.reason, paths, record)
    except SwitchError as error:
        print(f"sglangctl switch: {error}", file=sys.stderr)
        return error.status
    except (ConfigError, ReleaseError, OSError) as error:
        print(f"sglangctl switch: {error}", file=sys.stderr)
        return 1
    return 0


def switch(
    engine: EngineConfig, to: str, policy: str, reason: str, paths: Paths, record: Record
) -> None:
    """The transaction. Raises SwitchError; before the first thing it ends, nothing has changed."""
    say = record.say
    release.manifest(engine.name, to, paths)
    before = release.link_target(engine.name, "current", paths)
    siblings = [other for other in load_engines(paths) if other.name != engine.name]
    plan = free.plan(engine, load_host(paths), siblings, policy=policy, stop=True)
    if plan.refused:
        raise SwitchError("nothing was changed. " + "\n".join(plan.as_lines()), status=3)

    found = [one for unit in engine.replaces if (one := foreign.record(unit)) is not None]
    known = release.read_state(engine.name, paths)
    # A second switch after the first one stopped a unit must not forget what that unit was.
    running = {one.unit for one in found if one.active_state in ("active", "activating")}
    kept = [one for one in known.foreign if one["unit"] not in running] if known else []
    fresh = [
        foreign.as_document(one)
        for one in found
        if one.unit not in {other["unit"] for other in kept}
    ]
    state = State(
        phase="switching",
        to=to,
        came_from=before,
        time=now(),
        reason=reason or None,
        foreign=tuple(kept + fresh),
    )
    release.write_state(engine.name, state, paths)
    for one in found:
        say(
            f"recorded {one.unit}: {one.active_state}, {one.unit_file_state or 'no file'}"
            + (f", ports {', '.join(map(str, one.ports))}" if one.ports else "")
            + (f", serves {', '.join(one.models)}" if one.models else "")
        )

    freed = free.execute(plan, say, record.emit)
    if not freed.ok:
        raise SwitchError(freed.sentence, status=freed.status)

    put_live(engine, to, before, paths)
    say(f"release {to[:12]} is live" + (f" (before: {before[:12]})" if before else ""))
    start(engine, paths)
    release.write_state(engine.name, State(**{**state.__dict__, "phase": "live"}), paths)
    say(f"started {engine.unit}")


def put_live(engine: EngineConfig, to: str, before: str | None, paths: Paths) -> None:
    """The two moves: the unit as a real file, then the link. Both survive a power cut."""
    unit_text = (paths.releases(engine.name) / to / "sglang.service").read_bytes()
    write_atomic(paths.units / engine.unit, unit_text, 0o644)
    if before and before != to:
        link_atomic(paths.engine_state(engine.name) / "previous", f"releases/{before}")
    link_atomic(paths.current(engine.name), f"releases/{to}")


def start(engine: EngineConfig, paths: Paths) -> None:
    """daemon-reload, enable, start without waiting (the unit is activating until it serves)."""
    watch = f"sglang-watch@{engine.name}.service"
    for arguments in (
        ("daemon-reload",),
        ("enable", "--quiet", "--", watch, engine.unit),
        ("reset-failed", "--", engine.unit),
        ("start", "--no-block", "--", watch),
        ("start", "--no-block", "--", engine.unit),
    ):
        result = systemd.systemctl(*arguments, timeout_s=60)
        # reset-failed of a unit that systemd has not loaded is an error, and means nothing to us.
        if not result.ok and arguments[0] != "reset-failed":
            raise SwitchError(
                f"systemctl {' '.join(arguments)} failed: {result.stderr.strip()}; "
                f"then: sglangctl switch {engine.name} --resume"
            )


def commit(engine: EngineConfig, digest: str, paths: Paths) -> None:
    """`digest` served: remember it as known-good, and let go of releases that nothing names."""
    if release.link_target(engine.name, "current", paths) != digest:
        raise SwitchError(f"{digest} is not the live release of {engine.name}: deploy again")
    link_atomic(paths.engine_state(engine.name) / "known-good", f"releases/{digest}")
    release.prune(engine.name, paths)


def interrupted(engine: EngineConfig, paths: Paths) -> str:
    """The release of a switch that did not come to its end."""
    state = release.read_state(engine.name, paths)
    if state is None or state.phase != "switching" or state.to is None:
        raise SwitchError(f"no switch of {engine.name} was interrupted: there is nothing to resume")
    return state.to


@contextmanager
def locked(paths: Paths) -> Iterator[None]:
    """One switch at a time on a host, however it was started."""
    lock = paths.root / LOCK
    with open(lock, "w", encoding="ascii") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SwitchError(
                "another switch is running on this host: wait for it, then deploy again "
                f"(systemctl status {UNIT})"
            ) from None
        yield


class Record:
    """The switch's own journal: what is said goes to the terminal too."""

    def __init__(self, path: Path) -> None:
        self._writer = Writer(path, mode=0o600)
        self._began = time.monotonic()

    def emit(self, kind: str, **fields: Any) -> None:
        """Write one event."""
        self._writer.write(time.monotonic() - self._began, kind, **fields)

    def say(self, line: str) -> None:
        self.emit("step", name="switch", text=line)
        print(line, flush=True)

    def end(self, status: int, text: str) -> None:
        """The last event: what a follower takes for this command's exit status."""
        self.emit("step", name="end", status=status, text=text)
        self._writer.close()


@contextmanager
def recorded(engine: EngineConfig, paths: Paths) -> Iterator[Record]:
    """Keep a journal of this switch, its end included, whatever the end is."""
    folder = paths.engine_state(engine.name) / "switches"
    folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    for old in sorted(folder.glob("*.jsonl"))[: -KEPT + 1]:
        old.unlink()
    ticket = os.environ.get("SGLANGCTL_SWITCH") or f"{now()}-{os.getpid()}"
    record = Record(folder / f"{ticket}.jsonl")
    status, text = 1, "interrupted"
    try:
        yield record
        status, text = 0, "done"
    except SwitchError as error:
        status, text = error.status, str(error)
        raise
    except (ConfigError, ReleaseError, OSError) as error:
        text = str(error)
        raise
    finally:
        record.end(status, text)


def start_detached(engine: EngineConfig, to: str, policy: str, reason: str) -> str:
    """Start the transient unit; returns its ticket, the name of its journal."""
    if not systemd.booted():
        raise SwitchError("this machine is not run by systemd: engines need it")
    ticket = f"{now()}-{os.getpid()}"
    result = systemd.run(
        [
            "systemd-run",
            f"--unit={UNIT}",
            "--collect",
            "--quiet",
            "--no-block",
            "--property=Type=exec",
            f"--setenv=SGLANGCTL_SWITCH={ticket}",
            *program(),
            "switch",
            engine.name,
            f"--to={to}",
            f"--policy={policy}",
            f"--reason={reason}",
        ]
    )
    if not result.ok:
        busy = "already" in result.stderr
        raise SwitchError(
            f"another switch is running on this host (systemctl status {UNIT}): wait, deploy again"
            if busy
            else f"systemd-run failed: {result.stderr.strip()}"
        )
    return ticket


def program() -> list[str]:
    """How to start this very program again: by the digest's own path, not through the link."""
    origin = os.path.realpath(sys.argv[0])
    if origin.endswith(".pyz"):
        return [sys.executable, "-I", "-S", origin]
    return [sys.executable, "-m", "sglangctl"]


def follow(engine: EngineConfig, ticket: str, paths: Paths) -> int:
    """Print the steps of a running switch until it ends; its exit status."""
    journal = paths.engine_state(engine.name) / "switches" / f"{ticket}.jsonl"
    offset, seen_running = 0, time.monotonic()
    while True:
        steps, offset = steps_from(journal, offset)
        for step in steps:
            if step.get("name") == "end":
                if step.get("status") != 0:
                    print(f"sglangctl switch: {step.get('text')}", file=sys.stderr)
                return int(step.get("status", 1))
            if step.get("name") == "switch":
                print(step.get("text"), flush=True)
        shown = systemd.show(UNIT, "ActiveState") or {}
        if shown.get("ActiveState") in ("active", "activating", "deactivating"):
            seen_running = time.monotonic()
        elif not steps and time.monotonic() - seen_running > 5:
            raise SwitchError(
                f"the switch ended without a word (killed?): journalctl -u {UNIT}; "
                f"then: sglangctl switch {engine.name} --resume"
            )
        time.sleep(0.2)


def steps_from(journal: Path, offset: int) -> tuple[list[dict[str, Any]], int]:
    """The complete lines from byte `offset` on, and the offset after them."""
    try:
        with open(journal, "rb") as file:
            file.seek(offset)
            data = file.read()
    except FileNotFoundError:
        return [], offset
    whole = data[: data.rfind(b"\n") + 1]
    return [json.loads(line) for line in whole.splitlines()], offset + len(whole)


def now() -> str:
    """UTC, as a file name: 20261129T174500Z."""
    return time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
