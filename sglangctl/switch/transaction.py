"""The switch: stop what a release replaces, free the GPUs, move the links, start.

Under the host's lock, and all that the running engine and its watch read is written inside of it.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import Callable

from sglangctl import free
from sglangctl.state import ownership, release
from sglangctl.state.config import EngineConfig, load_engine, load_engines, load_host
from sglangctl.state.files import link_atomic, write_atomic
from sglangctl.state.lock import locked
from sglangctl.state.paths import Paths
from sglangctl.state.release import State
from sglangctl.switch import foreign
from sglangctl.switch import unit as switch_unit
from sglangctl.switch.configure import engine_of, put_config
from sglangctl.switch.journal import Record, journal_of, now
from sglangctl.systemd import systemctl
from sglangctl.systemd.unit_names import watch_unit
from sglangctl.util.errors import Failed

Say = Callable[[str], None]


@dataclass(frozen=True)
class Wanted:
    """A switch as it is asked for."""

    name: str
    to: str
    policy: str = "declared"
    reason: str = ""
    seen: str | None = None
    """`time` of the state.json that the caller decided by, `-` for none; None: not compared."""
    config: str | None = None
    """The text of engines/NAME.json that goes live with the release; None: it stays."""


def detach(wanted: Wanted, ticket: str, paths: Paths) -> None:
    """`sglangctl switch` in the transient unit."""
    arguments = [wanted.name, f"--to={wanted.to}", f"--policy={wanted.policy}"]
    arguments.append(f"--reason={wanted.reason}")
    if wanted.seen is not None:
        arguments.append(f"--seen={wanted.seen}")
    journal = journal_of(wanted.name, ticket, paths)
    switch_unit.start(ticket, journal, wanted.config, arguments, paths)


def begin(wanted: Wanted, paths: Paths, record: Record) -> None:
    """Carry out a switch, under the host's lock."""
    name, config = wanted.name, wanted.config
    with locked(paths, name, title(name, wanted.to)):
        if wanted.seen is not None:
            release.check_unchanged(name, wanted.seen, paths)
        engine = load_engine(name, paths) if config is None else engine_of(name, config)
        switch(engine, wanted.to, wanted.policy, wanted.reason, paths, record, config)


def resume(name: str, paths: Paths, record: Record) -> None:
    """Finish the switch that did not come to its end, with the configuration it was to have."""
    with locked(paths, name, f"switch of {name} (--resume)"):
        state = release.read_state(name, paths)
        if state is None or state.phase != "switching" or state.to is None:
            raise Failed(f"no switch of {name} was interrupted: there is nothing to resume")
        config = state.config
        engine = load_engine(name, paths) if config is None else engine_of(name, config)
        switch(engine, state.to, state.policy, state.reason or "", paths, record, config)


def title(name: str, to: str) -> str:
    return f"switch of {name} to release {to[:12]}"


def switch(
    engine: EngineConfig,
    to: str,
    policy: str,
    reason: str,
    paths: Paths,
    record: Record,
    config: str | None = None,
) -> None:
    """The transaction. Raises Failed; before the first thing it ends, nothing has changed.

    `config`: the text of engines/NAME.json that goes live with the release; None: it stays.
    """
    say = record.say
    if ownership.foreign_unit(paths.units / engine.unit):
        raise Failed(
            f"nothing was changed. {paths.units / engine.unit} was not made by sglang-provision: "
            "name the engine otherwise, or move that file away"
        )
    release.check_whole(engine.name, to, paths)
    before = release.link_target(engine.name, "current", paths)
    siblings = [other for other in load_engines(paths) if other.name != engine.name]
    plan = free.plan(engine, load_host(paths), siblings, policy=policy, stop=True)
    if plan.refused:
        raise Failed("nothing was changed. " + "\n".join(free.plan_lines(plan)), status=3)

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
        config=config,
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
        raise Failed(freed.sentence, status=freed.status)

    if config is not None:
        put_config(engine.name, config, paths)
    put_live(engine, to, before, paths)
    say(f"release {to[:12]} is live" + (f" (before: {before[:12]})" if before else ""))
    start(engine, paths)
    release.write_state(
        engine.name, State(**{**state.__dict__, "phase": "live", "config": None}), paths
    )
    say(f"started {engine.unit}")


def put_live(engine: EngineConfig, to: str, before: str | None, paths: Paths) -> None:
    """The two moves: the unit as a real file, then the link. Both survive a power cut."""
    unit_text = (paths.releases(engine.name) / to / "sglang.service").read_bytes()
    write_atomic(paths.units / engine.unit, unit_text, 0o644)
    if before and before != to:
        link_atomic(paths.engine_state(engine.name) / "previous", f"releases/{before}")
    link_atomic(paths.current(engine.name), f"releases/{to}")


def start(engine: EngineConfig, paths: Paths) -> None:
    """daemon-reload, enable, start without waiting (the unit is activating until it serves).

    The watch is started anew, with the configuration and the program that are there now; the
    engine is ordered after it.
    """
    watch = watch_unit(engine.name)
    for arguments in (
        ("daemon-reload",),
        ("enable", "--quiet", "--", watch, engine.unit),
        ("reset-failed", "--", engine.unit),
        ("restart", "--no-block", "--", watch),
        ("start", "--no-block", "--", engine.unit),
    ):
        result = systemctl.call(*arguments, timeout_s=60)
        # reset-failed of a unit that systemd has not loaded is an error, and means nothing to us.
        if not result.ok and arguments[0] != "reset-failed":
            raise Failed(
                f"systemctl {' '.join(arguments)} failed: {result.stderr.strip()}; "
                f"then: sglangctl switch {engine.name} --resume"
            )


def commit(name: str, digest: str, paths: Paths) -> None:
    """`digest` served: remember it as known-good, and let go of releases that nothing names."""
    if release.link_target(name, "current", paths) != digest:
        raise Failed(f"{digest} is not the live release of {name}: deploy again")
    link_atomic(paths.engine_state(name) / "known-good", f"releases/{digest}")
    # What is younger may be another deploy's, which comes to its switch only now.
    before = release.staged_at(name, digest, paths)
    release.prune(name, paths, before)
    for venv in release.unused_venvs(paths, before=before):
        shutil.rmtree(venv)
