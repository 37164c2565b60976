"""What a stop or a removal of an engine would do now: for a plan. Read-only."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Callable

from sglangctl.state.config import EngineConfig, HostConfig
from sglangctl.state.paths import Paths, checked_name
from sglangctl.state.slots import live_unit
from sglangctl.switch import remove, stop
from sglangctl.switch.step import Step, lines
from sglangctl.util.errors import Failed


def unconfigured(wanted: Mapping[str, Iterable[str]], paths: Paths) -> dict[str, EngineConfig]:
    """Configurations for engines of which only the name is known: enough to plan their stop.

    Unusable for what is not an engine's name.
    """
    return {
        name: EngineConfig(
            name=checked_name(name),
            unit=live_unit(name, paths),
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
    stops: dict[str, Any],
    removals: dict[str, Any],
    wanted: Mapping[str, Iterable[str]],
    host: HostConfig,
    configured: Mapping[str, EngineConfig],
    paths: Paths,
    beside: Collection[str] = (),
    used: Collection[str] = (),
) -> None:
    """Add to `stops` and `removals` what is `wanted`: {"stop": names, "remove": names}. A removal
    begins with a stop. `beside`, `used`: engines and venvs that are there by then."""
    for name in [name for names in wanted.values() for name in names]:
        stops[name] = answer(lambda: stop_steps(name, host, configured, paths))  # noqa: B023 (called at once)
    for name in wanted.get("remove", ()):
        removals[name] = removal(name, paths, beside, used)


def stop_steps(
    name: str, host: HostConfig, configured: Mapping[str, EngineConfig], paths: Paths
) -> Iterator[Step]:
    if name not in configured:
        return iter(stop.unconfigured_steps(checked_name(name), paths))
    others = [other for key, other in configured.items() if key != name]
    return stop.steps(configured[name], host, others, paths)


def removal(
    name: str, paths: Paths, beside: Collection[str] = (), used: Collection[str] = ()
) -> dict[str, Any]:
    """Of `sglangctl remove`, after the stop: what it would delete, and what stays."""

    def steps() -> Iterator[Step]:
        remove.refuse_unit_of_others(checked_name(name), paths)
        return remove.steps(name, paths, beside, used)

    return answer(steps)


def answer(steps: Callable[[], Iterable[Step]]) -> dict[str, Any]:
    """`lines`: what would be done, nothing where nothing is to do; `refused`: why nothing would be
    done, None where it would."""
    try:
        return {"lines": lines(steps()), "refused": None}
    except Failed as error:
        return {"lines": [], "refused": str(error)}
