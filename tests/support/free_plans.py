"""Plans of a freeing, from made-up situations."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sglangctl.free import planning
from sglangctl.free.model import Plan, Situation
from sglangctl.gpu import gpus
from sglangctl.holders.survey import Holder
from sglangctl.state.config import EngineConfig, HostConfig
from sglangctl.systemd.containers import Container
from sglangctl.systemd.unit import Unit
from tests.support.engine_config import ENGINE

KIMI = replace(ENGINE, gpus=(0, 1), replaces=("vllm-kimi.service",))
QWEN = replace(ENGINE, name="qwen", unit="sglang-qwen.service", gpus=(2, 3))


def holder(pid: int, class_: str, uses: tuple[int, ...] = (0,), **facts: Any) -> Holder:
    values: dict[str, Any] = {
        "pid": pid,
        "gpus": uses,
        "uses": uses,
        "class_": class_,
        "reason": f"made up as {class_}",
        "unit": facts.get("system_unit"),
        "container": None,
        "container_name": None,
        "container_engine": None,
        "uid": 1000,
        "user": "bob",
        "title": f"title of {pid}",
        "command": (f"title of {pid}",),
        "memory_mib": {},
        "state": "S",
        "started": "2026-11-29T17:00:00Z",
        "start": pid,
        "inode": pid,
        "ppid": 1,
        "session": pid,
        "system_unit": None,
        **facts,
    }
    return Holder(**values)


def unit(name: str, **properties: str) -> Unit:
    values = {"Id": name, "LoadState": "loaded", "ActiveState": "active", "Restart": "no"}
    return Unit(name, {**values, "UnitFileState": "enabled", **properties})


VLLM = unit("vllm-kimi.service")
GONE = unit("vllm-kimi.service", LoadState="not-found", ActiveState="inactive", UnitFileState="")


def plan(
    *holders: Holder,
    policy: str = "declared",
    stop: bool = False,
    units: tuple[Unit, ...] = (GONE,),
    engine: EngineConfig = KIMI,
    host: HostConfig | None = None,
    containers: dict[str, Container] | None = None,
    members: dict[str, tuple[int, ...]] | None = None,
    **facts: Any,
) -> Plan:
    inside = members or {
        one.name: tuple(item.pid for item in holders if item.system_unit == one.name)
        for one in units
    }
    situation = Situation(
        engine=engine,
        host=host or HostConfig(),
        siblings=(QWEN,),
        holders=holders,
        reading=facts.pop("reading", gpus.Reading((), "nvml")),
        units={one.name: one for one in units},
        members={name: pids for name, pids in inside.items() if pids},
        containers=containers or {},
        **facts,
    )
    return planning.make(situation, policy, stop)
