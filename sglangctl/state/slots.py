"""Which unit an engine is on this host: its own, or one of its two slots.

An engine begins as one unit, `sglang-NAME.service`. A switch that starts the new release beside the one
that serves needs a second: a process cannot move to another unit. So it starts in a slot, and when
it takes over, the engine's name becomes an alias of that slot.

The alias is not in /etc/systemd/system: `systemctl disable` of a slot deletes every link to it there.

The name must never become the alias of a slot that runs while systemd still has a unit of that name, were
it only because another unit refers to it. At a daemon-reload systemd may put the state of that unit (dead)
over the slot's, and aborts when the slot's process ends (seen with 252; where it is fixed, the state is
dropped: https://github.com/systemd/systemd/issues/38817). So an engine moves to its first slot while it
does not run; between two slots the alias has no state of its own.
"""

from __future__ import annotations

import os
from pathlib import Path

from sglangctl.state import ownership
from sglangctl.state.files import link_atomic, sync_folder
from sglangctl.state.paths import Paths, checked_name
from sglangctl.systemd import systemctl
from sglangctl.systemd.unit_names import engine_unit, slots


def live_unit(name: str, paths: Paths) -> str:
    """The unit that the engine `name` is now."""
    own = engine_unit(checked_name(name))
    if os.path.lexists(paths.units / own):
        return own  # systemd takes it before the alias
    return os.path.basename(os.readlink(alias(name, paths))) if is_alias(name, paths) else own


def free_slot(name: str, paths: Paths) -> str:
    """The slot that the engine is not in."""
    first, second = slots(name)
    return second if live_unit(name, paths) == first else first


def put(name: str, unit: str, paths: Paths) -> None:
    """Make `unit`, whose file is there, the unit of the engine; our files of the others go.

    Survives a power cut: at each moment the name means one of the two. Takes effect with the next
    daemon-reload.
    """
    link = alias(name, paths)
    if unit in slots(name):
        link.parent.mkdir(parents=True, exist_ok=True)
        link_atomic(link, str(paths.units / unit))
    elif is_alias(name, paths):
        _unlink(link)
    for other in _others(name, unit, paths):
        _unlink(paths.units / other)


def move(name: str, unit: str, paths: Paths) -> None:
    """The slot `unit`, whose file is there, takes the place of the unit of the engine's own name, also in
    every target. The engine does not run."""
    own = engine_unit(name)
    for target in paths.units.glob("*.wants"):
        if os.path.lexists(target / own):
            link_atomic(target / unit, str(paths.units / unit))
    put(name, unit, paths)
    disable_others(name, unit, paths)


def has_own_unit(name: str) -> bool:
    """Whether systemd has the engine's name as a unit of its own, and not as an alias; True also where
    systemd does not answer. Asks about what it has loaded, and loads nothing."""
    own = engine_unit(checked_name(name))
    found = systemctl.call("list-units", "--all", "--full", "--plain", "--no-legend", "--", own)
    return not found.ok or own in found.stdout.split()


def disable_others(name: str, unit: str, paths: Paths) -> None:
    """Take the engine's other units out of every target. Not by systemctl: it would follow the alias
    to `unit`."""
    for other in _others(name, unit, paths):
        for target in paths.units.glob("*.wants"):
            _unlink(target / other)


def take_away(name: str, paths: Paths) -> None:
    """The engine has no unit any more: our files of its units go, and the alias."""
    if is_alias(name, paths):
        _unlink(alias(name, paths))
    for unit in _others(name, None, paths):
        _unlink(paths.units / unit)


def _others(name: str, unit: str | None, paths: Paths) -> list[str]:
    """The engine's units beside `unit`, without what somebody else wrote under such a name."""
    return [
        one
        for one in (engine_unit(name), *slots(name))
        if one != unit and not ownership.written_by_others(paths.units / one)
    ]


def files(name: str, paths: Paths) -> list[Path]:
    """Every file and link of the engine's units. The alias first: without it a slot is nobody's."""
    found = [paths.units / one for one in (engine_unit(name), *slots(name))]
    return [*([alias(name, paths)] if is_alias(name, paths) else []), *found]


def is_alias(name: str, paths: Paths) -> bool:
    """Whether the alias is there, and ours."""
    try:
        return os.path.basename(os.readlink(alias(name, paths))) in slots(name)
    except OSError:
        return False


def alias(name: str, paths: Paths) -> Path:
    return paths.aliases / engine_unit(name)


def _unlink(path: Path) -> None:
    if os.path.lexists(path):
        path.unlink()
        sync_folder(path.parent)
