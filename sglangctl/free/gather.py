"""Collects from the host all facts that a plan needs."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from sglangctl.free import unowned
from sglangctl.free.model import Situation
from sglangctl.holders import classes, survey
from sglangctl.proc import membership, pidfds, procfs
from sglangctl.state.config import EngineConfig, HostConfig
from sglangctl.systemd import containers, systemctl
from sglangctl.systemd.unit import Unit, show

LOOKS, PAUSE_S = 5, 1.0
"""For memory that is nobody's: what a process had comes free some seconds after its end."""


def situation(
    engine: EngineConfig,
    host: HostConfig,
    siblings: Sequence[EngineConfig],
    waiting: str | None = None,
) -> Situation:
    """One look, or some more while memory is nobody's; raises nothing for what the host has or
    lacks."""
    targets = None if isinstance(engine.gpus, str) else engine.gpus
    found = look(engine, host, siblings, waiting)
    for _ in range(LOOKS - 1):
        limit = engine.limits.memory_free_mib
        if not unowned.memory(found.reading, found.holders, targets, limit):
            break
        time.sleep(PAUSE_S)
        found = look(engine, host, siblings, waiting)
    return found


def look(
    engine: EngineConfig,
    host: HostConfig,
    siblings: Sequence[EngineConfig],
    waiting: str | None = None,
) -> Situation:
    """One look."""
    asked = [engine.unit, *engine.replaces]
    shown = show(asked)
    unseen = list(asked) if shown is None and systemctl.booted() else []
    context = survey.context_for(engine, host, siblings, shown or {}, waiting)
    members = members_of(shown or {})
    related = {pid for pids in members.values() for pid in pids} | set(orphans(context.replaced))
    looked = survey.survey([engine.port], sorted(related))
    found = looked.holders(context)
    if shown is not None:
        # Of who else is there: whether a unit would bring it back.
        others = {
            item.system_unit
            for item in found
            if item.uses and item.system_unit and item.system_unit not in members
        }
        answer = show(sorted(others))
        more = answer or {}
        unseen += sorted(others) if answer is None else []
        shown = {**shown, **more}
        members = {**members, **members_of(more)}
    wanted = {item.container: item.container_engine for item in found if item.container}
    return Situation(
        engine=engine,
        host=host,
        siblings=tuple(siblings),
        holders=tuple(found),
        reading=looked.reading,
        units=shown,
        unseen=tuple(unseen),
        members=members,
        containers=containers.inspect(wanted) if wanted else {},
        unreadable=looked.unreadable,
        unfinished=looked.unfinished,
        pidfds=pidfds.supported(),
        on_the_host=membership.on_the_host(),
        waiting=waiting,
    )


def members_of(shown: Mapping[str, Unit]) -> dict[str, tuple[int, ...]]:
    """Unit -> the processes of its cgroup, where there are any."""
    found = {unit.name: tuple(sorted(unit.pids())) for unit in shown.values() if unit.exists}
    return {name: pids for name, pids in found.items() if pids}


def orphans(replaced: Sequence[classes.Replaced]) -> list[int]:
    """Processes in the session of a replaced unit's main process, wherever they are now.

    Only candidates: `classify` decides by title, user and age as well.
    """
    sessions = {unit.main_pid for unit in replaced if unit.main_pid > 0}
    if not sessions:
        return []
    found = []
    for pid in procfs.pids():
        process = procfs.stat(pid)
        if process is not None and process.session in sessions:
            found.append(pid)
    return found
