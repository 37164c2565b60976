"""Put a staged release live: stop what it replaces, free the GPUs, move the links, start.

One transaction on the host, under the host's lock, and all that the running engine and its watch
read is written inside of it: --config hands over what goes to /etc/sglangctl/engines (- is standard
input). With --detach it runs as the transient unit sglangctl-switch.service: a lost connection
changes nothing for it. --follow TICKET prints its steps from byte --offset on, and last
"@ OFFSET STATUS" (- while it runs): both may be called again after a lost link. --seen is the
`time` of the state.json that the caller decided by (- for none): if it is another one now, nothing
is changed. Exit status: 0 started, 1 failed, 2 no such engine or no readable configuration, 3 refused:
somebody else holds the GPUs and may not be ended, or systemd does not answer (in both nothing was changed).
"""

from __future__ import annotations

import argparse
import shutil
import sys
from typing import Callable

from sglangctl import free
from sglangctl.state import ownership, release
from sglangctl.state.config import ConfigError, EngineConfig, load_engine, load_engines, load_host
from sglangctl.state.files import link_atomic, write_atomic
from sglangctl.state.lock import Busy, locked
from sglangctl.state.paths import Paths
from sglangctl.state.release import ReleaseError, State
from sglangctl.state.switch_error import SwitchError
from sglangctl.switch import foreign
from sglangctl.switch import unit as switch_unit
from sglangctl.switch.configure import engine_of, put_config, read_config
from sglangctl.switch.journal import Record, followed, journal_of, now, recorded
from sglangctl.systemd import systemctl
from sglangctl.util import os_errors

Say = Callable[[str], None]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", help="the engine's name")
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--to", metavar="DIGEST", help="the staged release to put live")
    action.add_argument("--commit", metavar="DIGEST", help="this release is known to be good")
    action.add_argument(
        "--resume", action="store_true", help="finish a switch that was interrupted"
    )
    action.add_argument("--follow", metavar="TICKET", help="print the steps of a detached switch")
    parser.add_argument("--config", metavar="FILE", help="of --to: the engine's configuration")
    parser.add_argument("--seen", metavar="TIME", help="of --to: what the caller decided by")
    parser.add_argument("--policy", choices=free.POLICIES, default="declared")
    parser.add_argument("--reason", default="", help="why, for the record")
    parser.add_argument(
        "--detach", metavar="TICKET", help=f"run as {switch_unit.UNIT}, under this name"
    )
    parser.add_argument("--offset", type=int, default=0, help="of --follow: bytes already seen")
    parser.add_argument("--wait", type=float, default=0.0, help="of --follow: seconds for news")


def run(args: argparse.Namespace) -> int:
    paths = Paths()
    try:
        paths.engine_state(args.name)
        if args.commit:
            commit(args.name, args.commit, paths)
        elif args.follow:
            print("\n".join(followed(args.name, args.follow, args.offset, args.wait, paths)))
        elif args.resume:
            with recorded(args.name, paths) as record:
                resume(args.name, paths, record)
        else:
            config = None if args.config is None else read_config(args.config)
            if args.detach:
                detach(args, config, paths)
            else:
                with recorded(args.name, paths) as record:
                    begin(args, config, paths, record)
    except SwitchError as error:
        print(f"sglangctl switch: {error}", file=sys.stderr)
        return error.status
    except (Busy, ConfigError, ReleaseError, OSError, ValueError) as error:
        print(f"sglangctl switch: {os_errors.words(error)}", file=sys.stderr)
        return 2 if isinstance(error, ConfigError) else 1
    return 0


def detach(args: argparse.Namespace, config: str | None, paths: Paths) -> None:
    """The same command in the transient unit."""
    arguments = [args.name, f"--to={args.to}", f"--policy={args.policy}", f"--reason={args.reason}"]
    if args.seen is not None:
        arguments.append(f"--seen={args.seen}")
    journal = journal_of(args.name, args.detach, paths)
    switch_unit.start(args.detach, journal, config, arguments, paths)


def begin(args: argparse.Namespace, config: str | None, paths: Paths, record: Record) -> None:
    """A switch as it was asked for."""
    with locked(paths, args.name, title(args.name, args.to)):
        if args.seen is not None:
            release.check_unchanged(args.name, args.seen, paths)
        engine = load_engine(args.name, paths) if config is None else engine_of(args.name, config)
        switch(engine, args.to, args.policy, args.reason, paths, record, config)


def resume(name: str, paths: Paths, record: Record) -> None:
    """Finish the switch that did not come to its end, with the configuration it was to have."""
    with locked(paths, name, f"switch of {name} (--resume)"):
        state = release.read_state(name, paths)
        if state is None or state.phase != "switching" or state.to is None:
            raise SwitchError(f"no switch of {name} was interrupted: there is nothing to resume")
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
    """The transaction. Raises SwitchError; before the first thing it ends, nothing has changed.

    `config`: the text of engines/NAME.json that goes live with the release; None: it stays.
    """
    say = record.say
    if ownership.foreign_unit(paths.units / engine.unit):
        raise SwitchError(
            f"nothing was changed. {paths.units / engine.unit} was not made by sglang-provision: "
            "name the engine otherwise, or move that file away"
        )
    release.check_whole(engine.name, to, paths)
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
        raise SwitchError(freed.sentence, status=freed.status)

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
    watch = f"sglang-watch@{engine.name}.service"
    for arguments in (
        ("daemon-reload",),
        ("enable", "--quiet", "--", watch, engine.unit),
        ("reset-failed", "--", engine.unit),
        ("restart", "--no-block", "--", watch),
        ("start", "--no-block", "--", engine.unit),
    ):
        result = systemctl.systemctl(*arguments, timeout_s=60)
        # reset-failed of a unit that systemd has not loaded is an error, and means nothing to us.
        if not result.ok and arguments[0] != "reset-failed":
            raise SwitchError(
                f"systemctl {' '.join(arguments)} failed: {result.stderr.strip()}; "
                f"then: sglangctl switch {engine.name} --resume"
            )


def commit(name: str, digest: str, paths: Paths) -> None:
    """`digest` served: remember it as known-good, and let go of releases that nothing names."""
    if release.link_target(name, "current", paths) != digest:
        raise SwitchError(f"{digest} is not the live release of {name}: deploy again")
    link_atomic(paths.engine_state(name) / "known-good", f"releases/{digest}")
    # What is younger may be another deploy's, which comes to its switch only now.
    before = release.staged_at(name, digest, paths)
    release.prune(name, paths, before)
    for venv in release.unused_venvs(paths, before=before):
        shutil.rmtree(venv)
