"""The gate `before`: from the probe's document and the weights to findings, all at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sglangctl.diagnosis.finding import FAIL, Finding
from sglangctl.preflight import (
    collective,
    combinations,
    configs,
    drafter,
    files,
    fit,
    gpus,
    host,
    model,
    network,
)
from sglangctl.preflight.catalog import finding, without_ignored
from sglangctl.state import ownership
from sglangctl.state.config import EngineConfig
from sglangctl.state.paths import Paths
from sglangctl.util.values import mapping


def findings(engine: EngineConfig, facts: Mapping[str, Any], paths: Paths) -> list[Finding]:
    """Everything that can be told of `engine` before anything is touched.

    `facts`: the probe's document, with a plan of this engine. Beside it, the weights' headers, NVML,
    sysfs, the kernel's log and apt's settings are read.
    """
    looked = model.look(engine, paths)
    sizes = [one.model.bytes if one.model else 0 for one in looked]
    config, *others = [configs.of(one.model) for one in looked]
    plan = mapping(mapping(facts.get("plans")).get(engine.name))
    found = [
        *_unit(engine, paths),
        *model.judge(engine, looked),
        *files.look(engine, model.reader_of(engine.user)),
        *model.changed(engine, facts),
        *drafter.look(engine, config, others[0] if others else {}),
        *_holders(plan),
        *gpus.look(engine, facts),
        *collective.look(engine, facts, paths),
        *combinations.look(engine, config, gpus.chosen(engine, facts)),
        *fit.look(
            engine,
            sizes,
            config,
            gpus.chosen(engine, facts),
            None if plan.get("refused") else fit.leaving(plan),
            others[0] if others else {},
        ),
        *network.look(engine, facts),
        *host.look(engine, facts, paths, sum(sizes)),
    ]
    return without_ignored(found, engine.preflight.ignore)


def _unit(engine: EngineConfig, paths: Paths) -> Iterator[Finding]:
    path = paths.units / engine.unit
    if ownership.written_by_others(path):
        yield finding(
            "unit-foreign",
            FAIL,
            f"{path} was not made by sglang-provision",
            "give the engine another name, or move that file away",
        )


def _holders(plan: Mapping[str, Any]) -> Iterator[Finding]:
    if plan.get("refused"):
        lines = plan.get("lines") or ["the GPUs are used by processes that may not be ended"]
        yield finding("gpus-held", FAIL, "\n".join(lines))
