"""The newest kept result of `sglangctl collective`, as far as a profile is chosen by it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sglangctl.gpu import gpus, topology
from sglangctl.state import collectives
from sglangctl.state.paths import Paths
from sglangctl.util.values import mapping, mappings


def brief(name: str, paths: Paths) -> dict[str, Any] | None:
    """{entry: {time, ranks, driver, nccl, arms: [{name, environment, outcome, times}]}, differs}:
    `times` are [bytes, seconds] of the largest world, `differs` what of the host is another since
    then. None where nothing is kept."""
    entry = collectives.newest(name, paths)
    if entry is None:
        return None
    key = mapping(entry.get("key"))
    then = [one.get("index") for one in mappings(mapping(key.get("topology")).get("gpus"))]
    mine = [gpu for gpu in gpus.read().gpus or () if gpu.index in then]
    driver = next((gpu.driver for gpu in mine), None)
    return {
        "entry": {
            "time": entry.get("time"),
            "ranks": entry.get("ranks"),
            "driver": key.get("driver"),
            "nccl": key.get("nccl"),
            "arms": [_arm(one) for one in mappings(entry.get("arms"))],
        },
        "differs": collectives.differences(entry, driver, topology.read(mine)),
    }


def _arm(one: Mapping[str, Any]) -> dict[str, Any]:
    last = mapping((mappings(one.get("worlds")) or [{}])[-1])
    return {
        **{key: one.get(key) for key in ("name", "environment", "outcome")},
        "times": [
            [size.get("bytes"), size.get("median_s")] for size in mappings(last.get("sizes"))
        ],
    }
