"""Put a staged release live: stop what it replaces, free the GPUs, move the links, start.

One transaction on the host. With --detach it runs as the transient unit
sglangctl-switch.service, whose name is the host's lock: a lost connection changes nothing for it.
--follow TICKET prints its steps from byte --offset on, and last "@ OFFSET STATUS" (- while it
runs): both may be called again after a lost link. Exit status: 0 started, 1 failed, 3 somebody else
holds the GPUs and may not be ended (nothing was changed).
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import re
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Callable

from sglangctl import foreign, free, ours, release, systemd
from sglangctl.config import ConfigError, EngineConfig, load_engine, load_engines, load_host
from sglangctl.files import link_atomic, write_atomic
from sglangctl.journal import Writer
from sglangctl.paths import Paths
from sglangctl.release import ReleaseError, State
from sglangctl.terminal import harmless

UNIT = "sglangctl-switch.service"
LOCK = "run/sglangctl-switch.lock"
TICKET = re.compile(r"[0-9A-Za-z-]{1,80}")
UNIT_GONE_S = 5.0
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
    action.add_argument("--follow", metavar="TICKET", help="print the steps of a detached switch")
    parser.add_argument("--policy", choices=free.POLICIES, default="declared")
    parser.add_argument("--reason", default="", help="why, for the record")
    parser.add_argument("--detach", metavar="TICKET", help=f"run as {UNIT}, under this name")
    parser.add_argument("--offset", type=int, default=0, help="of --follow: bytes already seen")
    parser.add_argument("--wait", type=float, default=0.0, help="of --follow: seconds for news")


def run(args: argparse.Namespace) -> int:
    paths = Paths()
    try:
        engine = load_engine(args.name, paths)
        if args.commit:
            commit(engine, args.commit, paths)
            return 0
        if args.follow:
            print("\n".join(followed(engine, args.follow, args.offset, args.wait, paths)))
            return 0
        to, policy, reason = args.to, args.policy, args.reason
        if args.resume:
            state = interrupted(engine, paths)
            to, policy, reason = state.to, state.policy, state.reason or ""
        if args.detach:
            start_detached(engine, args.detach, to, policy, reason, paths)
            return 0
        with recorded(engine, paths) as record, locked(paths):
            switch(engine, to, policy, reason, paths, record)
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
    if ours.foreign_unit(paths.units / engine.unit):
        raise SwitchError(
            f"nothing was changed. {paths.units / engine.unit} was not made by sglang-provision: "
            "name the engine otherwise, or move that file away"
        )
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
        policy=policy,
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
    for venv in release.unused_venvs(paths):
        shutil.rmtree(venv)


def interrupted(engine: EngineConfig, paths: Paths) -> State:
    """The switch that did not come to its end."""
    state = release.read_state(engine.name, paths)
    if state is None or state.phase != "switching" or state.to is None:
        raise SwitchError(f"no switch of {engine.name} was interrupted: there is nothing to resume")
    return state


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
        line = harmless(line)
        self.emit("step", name="switch", text=line)
        print(line, flush=True)

    def end(self, status: int, text: str) -> None:
        """The last event: what a follower takes for this command's exit status."""
        self.emit("step", name="end", status=status, text=text)
        self._writer.close()


@contextmanager
def recorded(engine: EngineConfig, paths: Paths) -> Iterator[Record]:
    """Keep a journal of this switch, its end included, whatever the end is."""
    ticket = os.environ.get("SGLANGCTL_SWITCH") or f"{now()}-{os.getpid()}"
    journal = journal_of(engine, ticket, paths)
    journal.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    for old in sorted(journal.parent.glob("*.jsonl"))[:-KEPT]:
        old.unlink()
    record = Record(journal)
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
    except Exception as error:
        # Who follows sees the journal only: a defect of ours is named there too.
        text = f"internal error: {error!r}; please report it, with: sglangctl bundle {engine.name}"
        raise
    finally:
        record.end(status, text)


def start_detached(
    engine: EngineConfig, ticket: str, to: str, policy: str, reason: str, paths: Paths
) -> None:
    """Start the transient unit under a ticket, the name of its journal; harmless when it is called
    twice with the same one (the answer to the first may have been lost)."""
    if not systemd.booted():
        raise SwitchError("this machine is not run by systemd: engines need it")
    if not TICKET.fullmatch(ticket):
        raise SwitchError(f"{ticket!r} is not a ticket")
    journal = journal_of(engine, ticket, paths)
    if journal.exists():
        return
    journal.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    journal.touch(mode=0o600)
    argv = [
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
    deadline = time.monotonic() + UNIT_GONE_S
    while True:
        result = systemd.run(argv)
        if result.ok:
            return
        # Of a switch that has just ended, the unit stays for a moment.
        if "already" not in result.stderr or time.monotonic() > deadline:
            break
        time.sleep(0.2)
    journal.unlink()
    raise SwitchError(
        f"another switch is running on this host (systemctl status {UNIT}): wait, deploy again"
        if "already" in result.stderr
        else f"systemd-run failed: {result.stderr.strip()}"
    )


def followed(
    engine: EngineConfig, ticket: str, offset: int, wait_s: float, paths: Paths
) -> list[str]:
    """New steps of a switch as lines, then "@ OFFSET STATUS"; waits for them up to `wait_s`."""
    if not TICKET.fullmatch(ticket):
        raise SwitchError(f"{ticket!r} is not a ticket")
    journal = journal_of(engine, ticket, paths)
    deadline = time.monotonic() + wait_s
    while True:
        active = unit_active()
        steps, offset = steps_from(journal, offset)
        lines = [str(step.get("text")) for step in steps if step.get("name") == "switch"]
        end = next((step for step in steps if step.get("name") == "end"), None)
        if end is not None:
            if end.get("status") != 0:
                lines.append(str(end.get("text")))
            return [*lines, f"@ {offset} {end.get('status', 1)}"]
        if not active and not steps:
            lines = [
                f"the switch ended without a word (killed?): journalctl -u {UNIT}; "
                f"then: sglangctl switch {engine.name} --resume"
            ]
            return [*lines, f"@ {offset} 1"]
        if lines or time.monotonic() >= deadline:
            return [*lines, f"@ {offset} -"]
        time.sleep(0.2)


def journal_of(engine: EngineConfig, ticket: str, paths: Paths) -> Path:
    return paths.engine_state(engine.name) / "switches" / f"{ticket}.jsonl"


def unit_active() -> bool:
    """Whether the transient unit runs, or is about to."""
    shown = systemd.show(UNIT, "ActiveState", "Job") or {}
    return shown.get("ActiveState") in ("active", "activating", "deactivating") or shown.get(
        "Job", "0"
    ) not in ("", "0")


def program() -> list[str]:
    """How to start this very program again: by the digest's own path, not through the link."""
    origin = os.path.realpath(sys.argv[0])
    if origin.endswith(".pyz"):
        return [sys.executable, "-I", "-S", origin]
    return [sys.executable, "-m", "sglangctl"]


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
