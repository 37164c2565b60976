"""Which release is live: the unit's file and the link, moved together; and the unit's start."""

from __future__ import annotations

from pathlib import Path

from sglangctl.state import ownership, release
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
    write_atomic(paths.units / engine.unit, unit_text, 0o644)
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
    there = file.read_bytes() if file.is_file() else None
    unit = find(engine.unit)
    stale = unit is not None and unit["NeedDaemonReload"] == "yes"
    if there != wanted or (file.stat().st_mode & 0o777) != 0o644:
        write_atomic(file, wanted, 0o644)
        stale = True
    if stale:
        reload()


def take_away(engine: EngineConfig, paths: Paths) -> None:
    """No release is live any more: what put_live did where there was none before."""
    for path in (paths.current(engine.name), paths.units / engine.unit):
        path.unlink(missing_ok=True)
        sync_folder(path.parent)


def begin_start(engine: EngineConfig, paths: Paths) -> None:
    """daemon-reload and start, without waiting (the unit is activating until it serves).

    The watch is started anew, with the configuration and the program that are there now; the
    engine is ordered after it.
    """
    watch = watch_unit(engine.name)
    for arguments in (
        ("daemon-reload",),
        ("reset-failed", "--", engine.unit),
        ("restart", "--no-block", "--", watch),
        ("start", "--no-block", "--", engine.unit),
    ):
        # reset-failed of a unit that systemd has not loaded is an error, and means nothing to us.
        _call(*arguments, may_fail=arguments[0] == "reset-failed")


def cancel_start(engine: EngineConfig) -> None:
    """End a start that is queued or at work: who was killed after begin_start leaves one behind,
    and a stop plan sees nothing of it as long as it waits for the watch."""
    unit = find(engine.unit)
    if unit is not None and unit.job:
        stop(engine)


def stop(engine: EngineConfig) -> None:
    """Stop the unit, and wait for it. Failed when systemd does not."""
    _call("stop", "--", engine.unit, timeout_s=engine.limits.stop_units_s)


def enable_resume() -> None:
    """From now on a boot looks for an interrupted switch first. Failed without that unit: the
    deploy that ships this program ships it too."""
    _call("enable", "--quiet", "--", RESUME)


def enable(engine: EngineConfig) -> None:
    """From now on the engine and its watch start at boot, and before them what looks for an
    interrupted switch."""
    _call("enable", "--quiet", "--", watch_unit(engine.name), engine.unit, RESUME)


def disable_unproven(engine: EngineConfig, to: str, paths: Paths) -> bool:
    """A boot starts what ran before a switch or nothing, and not its release `to`, unless that
    is known to be good: the unit may be enabled from the release before it. True if it was that."""
    current, good = (
        release.link_target(engine.name, link, paths) for link in ("current", "known-good")
    )
    unproven = current == to != good
    if unproven:
        _call("disable", "--quiet", "--", engine.unit)
    return unproven


def restarts(engine: EngineConfig, paths: Paths, allowed: bool) -> None:
    """Whether systemd starts the engine again when it ends. A drop-in in /run: after a reboot it
    is gone. Takes effect with the next daemon-reload."""
    path = _no_restarts(engine, paths)
    if not allowed:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, NO_RESTARTS, 0o644)
    elif path.exists():
        path.unlink()
        if not any(path.parent.iterdir()):
            path.parent.rmdir()


def reload() -> None:
    """daemon-reload. Failed when systemd does not."""
    _call("daemon-reload")


def _no_restarts(engine: EngineConfig, paths: Paths) -> Path:
    return paths.root / "run/systemd/system" / f"{engine.unit}.d" / SWITCH_DROP_IN


def _call(*arguments: str, may_fail: bool = False, timeout_s: float = 60) -> None:
    result = systemctl.call(*arguments, timeout_s=timeout_s)
    if not result.ok and not may_fail:
        raise Failed(f"systemctl {' '.join(arguments)} failed: {result.stderr.strip()}")
