"""The newest kept result of `sglangctl collective`, as far as a profile is chosen by it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sglangctl.gpu import gpus, topology
from sglangctl.state import collectives, release
from sglangctl.state.paths import Paths
from sglangctl.util import lazy_re
from sglangctl.util.errors import Failed
from sglangctl.util.values import mapping, mappings

NCCL = lazy_re.compile(r"nvidia_nccl_cu[0-9]{2}-([0-9.]{1,20}(?:post[0-9]{1,4})?)\.dist-info")


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
        "differs": collectives.differences(
            entry, driver, nccl_of(name, paths), topology.read(mine)
        ),
    }


def nccl_of(name: str, paths: Paths) -> str | None:
    """The version of NCCL's package in the live release's environment; None where it has none of its
    own (the system's packages)."""
    live = release.link_target(name, "current", paths)
    try:
        venv = release.venv(name, live or "", paths)
        folders = sorted(
            Path(venv or "").glob("lib/python3*/site-packages/nvidia_nccl_cu*.dist-info")
        )
    except (Failed, OSError, ValueError):
        return None
    found = [NCCL.fullmatch(folder.name) for folder in folders]
    return next((match[1] for match in found if match), None)


def _arm(one: Mapping[str, Any]) -> dict[str, Any]:
    last = mapping((mappings(one.get("worlds")) or [{}])[-1])
    return {
        **{key: one.get(key) for key in ("name", "environment", "outcome")},
        "times": [
            [size.get("bytes"), size.get("median_s")] for size in mappings(last.get("sizes"))
        ],
    }
