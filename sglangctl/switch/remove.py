"""Remove an engine: never weights, never files of others, and of what engines share only what no
other engine needs."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Collection, Iterator
from functools import partial
from pathlib import Path

from sglangctl.proc import command
from sglangctl.state import ownership, release, slots
from sglangctl.state.config import ConfigError, load_engine, read_document
from sglangctl.state.files import write_atomic
from sglangctl.state.lock import locked
from sglangctl.state.paths import NAME, Paths
from sglangctl.switch.step import Say, Step, quiet
from sglangctl.switch.stop import stop, stop_by_name
from sglangctl.systemd import systemctl
from sglangctl.systemd.unit import find
from sglangctl.systemd.unit_names import RESUME, watch_unit
from sglangctl.util import lazy_re
from sglangctl.util.errors import Failed
from sglangctl.util.terminal import escaped

RM_S = 3600.0
"""A limit for what hangs, not for what is large."""
VENV = lazy_re.compile(r"[0-9a-f]{16}")
"""How our venvs are named: by a digest of their pins."""


def remove(name: str, paths: Paths, say: Say) -> None:
    """Remove engine `name`. Raises Failed when it cannot be stopped, or when its unit is
    somebody else's (then everything stays)."""
    refuse_unit_of_others(name, paths)
    with locked(paths, name, f"removal of {name}"):
        if paths.engine_json(name).exists():
            stop(load_engine(name, paths), paths, say)
        else:
            stop_by_name(name, paths, say)
        before = ran_before(name, paths)
        for step in steps(name, paths):
            step.do(say)
    for text in before:
        say(text)
    say(f"{name} is removed")


def refuse_unit_of_others(name: str, paths: Paths) -> None:
    """Failed where the unit is somebody else's."""
    for unit in slots.files(name, paths):
        if unit != slots.alias(name, paths) and ownership.written_by_others(unit):
            raise Failed(f"{unit} was not made by sglang-provision: nothing was removed")


def steps(
    name: str, paths: Paths, beside: Collection[str] = (), used: Collection[str] = ()
) -> Iterator[Step]:
    """What a removal does after the stop, in its order: a plan reads the lines, a removal does them.

    Lazy: a removal does each step before the next one is looked for.

    + beside, used: for a plan: the engines and venvs that a deploy makes before it removes this one
    """
    last = not (beside or other_engines(name, paths))
    # Its configuration goes last: as long as that is there, the next call goes on from here.
    unused = release.unused_venvs(paths, without=name)
    yield from (deletion(venv) for venv in unused if str(venv) not in used)
    yield from map(deletion, slots.files(name, paths))
    yield quiet(lambda: systemctl.call("daemon-reload"))
    for path in (
        paths.engine_log(name).parent,
        paths.cache(name),
        paths.root / f"etc/tmpfiles.d/sglang-{name}.conf",
        paths.root / f"etc/logrotate.d/sglang-{name}",
        paths.engine_state(name),
    ):
        yield deletion(path)
    if last:
        yield from shared_steps(paths)
    else:
        yield quiet(lambda: forget(name, paths))
    yield deletion(paths.engine_json(name))
    if last:
        yield quiet(lambda: remove_empty(paths.engines, paths.host_json.parent))
        # This program goes last: what it has not imported by then it cannot import any more.
        yield from map(deletion, ownership.programs(paths))
        yield quiet(lambda: remove_empty(paths.programs))


def shared_steps(paths: Paths) -> Iterator[Step]:
    """What all engines of a host share, but for what others put into the same folders."""
    for user in ownership.users(paths):
        yield Step(partial(list, [f"remove user {user}"]), partial(remove_user, user, paths))
    yield quiet(lambda: shutil.rmtree(paths.users, ignore_errors=True))
    yield quiet(lambda: systemctl.call("disable", "--quiet", "--", RESUME))
    for unit in (paths.units / watch_unit(), paths.units / RESUME):
        if not ownership.written_by_others(unit):
            yield deletion(unit)
    yield deletion(paths.host_json)
    yield deletion(paths.kernel_cache.parent)
    for venv in sorted(paths.venvs.iterdir()) if paths.venvs.is_dir() else ():
        if VENV.fullmatch(venv.name):  # one that was never finished
            yield deletion(venv)
    yield quiet(lambda: systemctl.call("daemon-reload"))
    yield quiet(
        lambda: remove_empty(
            paths.state,
            paths.root / "var/log/sglang",
            paths.root / "var/cache/sglang",
            paths.venvs,
            paths.venvs.parent,
        )
    )


def deletion(path: Path) -> Step:
    """Delete one of our paths, whatever it is; a link is deleted, not followed. A folder with weights
    in it stays."""

    def lines() -> list[str]:
        stays = weights_stay(path)
        return [stays] if stays else [f"remove {path}"] if os.path.lexists(path) else []

    def do(say: Say) -> None:
        stays = weights_stay(path)
        if stays or not os.path.lexists(path):
            if stays:
                say(stays)
            return
        if path.is_dir() and not path.is_symlink():
            remove_tree(path)
        else:
            path.unlink()
        say(f"removed {path}")

    return Step(lines, do)


def weights_stay(path: Path) -> str | None:
    """Why a path is not deleted; None where it has no weights."""
    found = ownership.weights_in(path)
    if found is None:
        return None
    return escaped(f"{path} stays: there are weights in it ({found})")


def other_engines(name: str, paths: Paths) -> list[str]:
    """All other engines of the host: configured ones, and those of which only a release is staged."""
    configured = {path.stem for path in paths.engines.glob("*.json")}
    prepared = {path.name for path in paths.state.iterdir()} if paths.state.is_dir() else set()
    return sorted(
        other for other in configured | prepared if other != name and NAME.fullmatch(other)
    )


def remove_user(user: str, paths: Paths, say: Say) -> None:
    """Delete a user that a deploy created."""
    result = command.run(["userdel", "--", user])
    if not result.ok:
        raise Failed(f"userdel {user} failed: {result.stderr.strip()}")
    (paths.users / user).unlink()
    say(f"removed user {user}")


def ran_before(name: str, paths: Paths) -> list[str]:
    """How to bring back what ran before us."""
    state = release.read_state(name, paths)
    return [
        f"{one['unit']} ran before it ({one['active_state']}, {one['unit_file_state']}): "
        f"systemctl enable --now {one['unit']}"
        for one in (state.foreign if state else ())
        if find(str(one["unit"])) is not None  # another deploy may have removed it since
    ]


def forget(name: str, paths: Paths) -> None:
    """Take the engine out of host.json. ConfigError where that file is broken."""
    if not paths.host_json.exists():
        return
    document = read_document(paths.host_json)
    engines = document.get("engines")
    if not isinstance(engines, list):
        raise ConfigError(f"{paths.host_json}: engines is not a list; deploy again")
    document["engines"] = [other for other in engines if other != name]
    write_atomic(paths.host_json, json.dumps(document, indent=2).encode() + b"\n", 0o600)


def remove_tree(folder: Path) -> None:
    """By rm(1), which no folder is too deep for, and which leaves what is mounted below alone."""
    argv = ["rm", "-rf", "--one-file-system", "--", str(folder)]
    result = command.run(argv, RM_S)
    if not result.ok or os.path.lexists(folder):
        said = (result.stderr.strip().splitlines() or ["rm gave no reason"])[0]
        raise Failed(
            escaped(f"{folder} cannot be removed: {said}; correct that, then run it again")
        )


def remove_empty(*folders: Path) -> None:
    """Delete the folders in which nothing is left."""
    for folder in folders:
        if folder.is_dir() and not folder.is_symlink() and not any(folder.iterdir()):
            folder.rmdir()
