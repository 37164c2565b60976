"""Which release is live: the unit's file and the link, moved together; and the unit's start."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from sglangctl.state import ownership, release, slots
from sglangctl.state.config import EngineConfig
from sglangctl.state.files import link_atomic, sync_folder, write_atomic
from sglangctl.state.paths import Paths
from sglangctl.systemd import systemctl
from sglangctl.systemd.unit import find
from sglangctl.systemd.unit_names import RESUME, SWITCH_DROP_IN, watch_unit
from sglangctl.util.errors import Failed

NO_RESTARTS = b"""\
# By sglangctl, while a switch is under way: one failure is enough to go back.
[Service]
Restart=no
"""


def put_live(engine: EngineConfig, to: str, before: str | None, paths: Paths) -> None:
    """The two moves: the unit as a real file, then the link. Both survive a power cut.

    `before`: the release that `previous` names from now on; None leaves that link alone.
    """
    unit_text = (paths.releases(engine.name) / to / "sglang.service").read_bytes()
    if not _is(paths.units / engine.unit, unit_text):
        # Going back must not fail on what it need not write: /etc may be read-only or full.
        write_atomic(paths.units / engine.unit, unit_text, 0o644)
    slots.put(engine.name, engine.unit, paths)
    if before and before != to:
        link_atomic(paths.engine_state(engine.name) / "previous", f"releases/{before}")
    link_atomic(paths.current(engine.name), f"releases/{to}")


def put_unit(engine: EngineConfig, digest: str, paths: Paths) -> None:
    """The unit's file as the release has it, and read by systemd; the engine runs on. Failed where
    the file is somebody else's."""
    file = paths.units / engine.unit
    wanted = (paths.releases(engine.name) / digest / "sglang.service").read_bytes()
    if ownership.written_by_others(file):
        raise Failed(f"{file} was not made by sglang-provision: move that file away")
    unit = find(engine.unit)
    stale = unit is not None and unit["NeedDaemonReload"] == "yes"
    if not _is(file, wanted):
        write_atomic(file, wanted, 0o644)
        stale = True
    if stale:
        reload()


def _is(file: Path, content: bytes) -> bool:
    """Whether a unit's file is there as it should be: a real file of ours, its mode and content."""
    if file.is_symlink() or not file.is_file():
        return False
    found = file.stat()
    ours = found.st_uid == os.geteuid() and found.st_mode & 0o777 == 0o644
    return ours and file.read_bytes() == content


def move_to_slot(engine: EngineConfig, slot: str, digest: str, paths: Paths) -> EngineConfig:
    """The engine, which does not run, in `slot` from now on, with the unit of release `digest`. Failed
    where it runs all the same: see state/slots.py."""
    for one in (engine.unit, slot):
        unit = find(one)
        if unit is not None and not unit.down:
            raise Failed(f"{one} is {unit.active}, and cannot be moved to a slot: deploy again")
    text = (paths.releases(engine.name) / digest / "sglang.service").read_bytes()
    write_atomic(paths.units / slot, text, 0o644)
    slots.move(engine.name, slot, paths)
    reload()
    return replace(engine, unit=slot)


def take_away(engine: EngineConfig, paths: Paths) -> None:
    """No release is live any more: what put_live did where there was none before."""
    current = paths.current(engine.name)
    if os.path.lexists(current):
        current.unlink()
        sync_folder(current.parent)
    slots.take_away(engine.name, paths)


def begin_start(engine: EngineConfig) -> None:
    """Start without waiting (the unit is activating until it serves); systemd has read its file.

    The watch is started anew, with the configuration and the program that are there now: not before
    they are. The engine is ordered after it.
    """
    _reset_failed(engine.unit)
    watch_anew(engine)
    _call("start", "--no-block", "--", engine.unit)


def start(unit: str) -> None:
    """daemon-reload and start of a unit alone, without waiting."""
    reload()
    _reset_failed(unit)
    _call("start", "--no-block", "--", unit)


def watch_anew(engine: EngineConfig) -> None:
    """Restart the watch, without waiting."""
    _call("restart", "--no-block", "--", watch_unit(engine.name))


def _reset_failed(unit: str) -> None:
    # Of a unit that systemd has not loaded it is an error, and means nothing to us.
    _call("reset-failed", "--", unit, may_fail=True)


def cancel_start(engine: EngineConfig) -> None:
    """End a start that is queued or at work: who was killed after begin_start leaves one behind,
    and a stop plan sees nothing of it as long as it waits for the watch."""
    unit = find(engine.unit)
    if unit is not None and unit.job:
        stop(engine)


def stop(engine: EngineConfig) -> None:
    """Stop the unit, and wait for it. Failed when systemd does not."""
    _call("stop", "--", engine.unit, timeout_s=engine.limits.stop_units_s)


def end(engine: EngineConfig) -> None:
    """The same for an engine that serves nobody and has nothing to finish, if its unit exists."""
    if find(engine.unit) is None:
        return
    _call("kill", "--signal=SIGKILL", "--", engine.unit, may_fail=True)
    stop(engine)
    _reset_failed(engine.unit)


def enable_resume() -> None:
    """From now on a boot looks for an interrupted switch first. Failed without that unit: the
    deploy that ships this program ships it too."""
    _call("enable", "--quiet", "--", RESUME)


def enable(engine: EngineConfig, paths: Paths) -> None:
    """From now on the engine and its watch start at boot, as the unit that it is now alone, and before
    them what looks for an interrupted switch."""
    _call("enable", "--quiet", "--", watch_unit(engine.name), engine.unit, RESUME)
    slots.disable_others(engine.name, engine.unit, paths)


def disable_unproven(engine: EngineConfig, to: str, paths: Paths) -> bool:
    """A boot starts what ran before a switch or nothing, and not its release `to`, unless that
    is known to be good: the unit may be enabled from the release before it. True if it was that."""
    current, good = (
        release.link_target(engine.name, link, paths) for link in ("current", "known-good")
    )
    unproven = current == to != good
    if unproven:
        _call("disable", "--quiet", "--", engine.unit)
        slots.disable_others(engine.name, engine.unit, paths)
    return unproven


def restarts(engine: EngineConfig, paths: Paths, allowed: bool) -> None:
    """Whether systemd starts the engine again when it ends. Takes effect with the next
    daemon-reload."""
    if allowed:
        remove_switch_drop_in(engine.unit, paths)
    else:
        put_switch_drop_in(engine.unit, NO_RESTARTS, paths)


def put_switch_drop_in(unit: str, settings: bytes, paths: Paths) -> None:
    """Settings of a unit while a switch is under way. In /run: after a reboot they are gone."""
    path = _switch_drop_in(unit, paths)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, settings, 0o644)


def remove_switch_drop_in(unit: str, paths: Paths) -> None:
    path = _switch_drop_in(unit, paths)
    if path.exists():
        path.unlink()
        if not any(path.parent.iterdir()):
            path.parent.rmdir()


def reload() -> None:
    """daemon-reload. Failed when systemd does not."""
    _call("daemon-reload")


def _switch_drop_in(unit: str, paths: Paths) -> Path:
    return paths.root / "run/systemd/system" / f"{unit}.d" / SWITCH_DROP_IN


def _call(*arguments: str, may_fail: bool = False, timeout_s: float = 60) -> None:
    result = systemctl.call(*arguments, timeout_s=timeout_s)
    if not result.ok and not may_fail:
        raise Failed(f"systemctl {' '.join(arguments)} failed: {result.stderr.strip()}")
