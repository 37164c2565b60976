"""What a stop or a removal of an engine would do now: for a plan. Read-only."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from sglangctl.state import ownership, release
from sglangctl.state.config import EngineConfig, HostConfig
from sglangctl.state.paths import Paths, checked_name
from sglangctl.switch.remove import VENV, other_engines
from sglangctl.systemd.unit_names import RESUME, engine_unit, watch_unit
from sglangctl.util.errors import Failed
from sglangctl.util.terminal import harmless


def unconfigured(wanted: Mapping[str, Iterable[str]]) -> dict[str, EngineConfig]:
    """Configurations for engines of which only the name is known: enough to plan their stop.

    Unusable for what is not an engine's name.
    """
    return {
        name: EngineConfig(
            name=checked_name(name),
            unit=engine_unit(name),
            user="",
            port=0,
            listen="",
            model="",
            served_name=name,
        )
        for names in wanted.values()
        for name in names
    }


def look(
    plans: dict[str, Any],
    removals: dict[str, Any],
    wanted: Mapping[str, Iterable[str]],
    host: HostConfig,
    configured: Mapping[str, EngineConfig],
    paths: Paths,
) -> None:
    """Add to `plans` and `removals` what is `wanted`: {"stop": names, "remove": names}."""
    for names in wanted.values():
        for name in names:
            if name in configured and name not in plans:
                others = [other for key, other in configured.items() if key != name]
                plans[name] = stop_plan(configured[name], host, others)
    for name in wanted.get("remove", ()):
        removals[name] = removal(name, paths)


def stop_plan(
    engine: EngineConfig, host: HostConfig, siblings: Sequence[EngineConfig]
) -> dict[str, Any]:
    """The plan of `sglangctl stop`, see there for why it does not look at `replaces`."""
    from sglangctl import free

    alone = replace(engine, replaces=())
    plan = free.plan(alone, host, siblings, policy="declared", stop=True)
    return free.plan_document(plan)


def removal(name: str, paths: Paths) -> dict[str, Any]:
    """`lines`: what `sglangctl remove` would delete, and what stays; `refused`: why nothing would
    be done, None where something would."""
    unit = paths.units / engine_unit(checked_name(name))
    if ownership.foreign_unit(unit):
        return {"lines": [], "refused": f"{unit} was not made by sglang-provision"}
    try:
        return {"lines": list(_lines(name, paths)), "refused": None}
    except Failed as error:
        return {"lines": [], "refused": str(error)}


def _lines(name: str, paths: Paths) -> Iterator[str]:
    last = not other_engines(name, paths)
    for path in _paths(name, paths, last):
        if not (path.is_symlink() or path.exists()):
            continue
        weights = ownership.weights_in(path)
        if weights is not None:
            yield harmless(f"stays: {path}: there are weights in it ({weights})")
        else:
            yield f"remove {path}"
    if not last:
        return
    for user in ownership.users(paths):
        yield f"remove user {user}"


def _paths(name: str, paths: Paths, last: bool) -> list[Path]:
    """In remove.py's order; `last`: no other engine needs what they share."""
    found = [
        *release.unused_venvs(paths, without=name),
        paths.units / engine_unit(name),
        paths.engine_log(name).parent,
        paths.root / "var/cache/sglang" / name,
        paths.root / f"etc/tmpfiles.d/sglang-{name}.conf",
        paths.root / f"etc/logrotate.d/sglang-{name}",
        paths.engine_state(name),
        paths.engine_json(name),
    ]
    if last:
        shared = (paths.units / watch_unit(), paths.units / RESUME)
        found += [unit for unit in shared if not ownership.foreign_unit(unit)]
        found += [paths.host_json, paths.kernel_cache.parent]
        folders = sorted(paths.venvs.iterdir()) if paths.venvs.is_dir() else []
        found += [one for one in folders if VENV.fullmatch(one.name)]
        found += ownership.programs(paths)
    return list(dict.fromkeys(found))
