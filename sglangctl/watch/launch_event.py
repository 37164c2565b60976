"""The `launch` event: what was started, as far as a replay years later needs to know."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from sglangctl.diagnosis.outcomes import SERVED
from sglangctl.masking.masker import Masker, read_env
from sglangctl.masking.names import MASK, is_secret_name
from sglangctl.masking.text import mask_argv
from sglangctl.proc import procfs
from sglangctl.startup.summary import Summary
from sglangctl.state import journal, starts
from sglangctl.state.config import EngineConfig
from sglangctl.state.paths import Paths
from sglangctl.util.values import mapping

LOOK_S = 2.0
"""For the size of the weights: a network file system may hang."""
WEIGHTS = (".safetensors", ".bin", ".gguf")


def fields(
    config: EngineConfig, paths: Paths, pid: int, run_id: str, launched: float, masker: Masker
) -> dict[str, Any]:
    """The fields of the event. `launched`: of the main process, on time.monotonic()."""
    wall = time.time() - (time.monotonic() - launched)
    found: dict[str, Any] = {
        "v": journal.VERSION,
        "time": datetime.fromtimestamp(wall, timezone.utc).isoformat(timespec="milliseconds"),
        "boot_id": procfs.boot_token(),
        "invocation_id": run_id,
        "engine": "sglang",
        "name": config.name,
        "version": config.version,
        "argv": [masker.mask(word) for word in mask_argv(procfs.cmdline(pid))],
        "env": environment(paths.current(config.name), masker),
        "gpus": config.gpus,
        "port": config.port,
        "model": config.model,
        "served_name": config.served_name,
        "tensor_parallel": config.tensor_parallel,
        "min_accept_length": config.readiness.min_accept_length,
    }
    if config.drafter is not None:
        found["drafter"] = {"path": config.drafter.path, "algorithm": config.drafter.algorithm}
    weights = weights_bytes(config)
    if weights:
        found["weights_bytes"] = weights
    history = last_good_phases(config.name, paths, shape(found))
    if history:
        found["history"] = history
    return found


def environment(release: Path, masker: Masker) -> dict[str, str]:
    """The variables of the live release; what may not be read or does not exist is left out."""
    merged: dict[str, str] = {}
    for name in ("nccl.env", "engine.env"):
        try:
            merged.update(read_env(release / name))
        except OSError:
            continue
    return {
        key: MASK if is_secret_name(key) else masker.mask(value) for key, value in merged.items()
    }


def weights_bytes(config: EngineConfig) -> dict[str, int]:
    """Bytes of the weight files of target and drafter, as far as they are on this host."""
    folders = {"target": config.model}
    if config.drafter is not None and config.drafter.path:
        folders["drafter"] = config.drafter.path
    sizes: dict[str, int] = {}

    def look() -> None:
        for key, folder in folders.items():
            size = _size(folder)
            if size:
                sizes[key] = size

    thread = threading.Thread(target=look, name="weights", daemon=True)
    thread.start()
    thread.join(LOOK_S)
    return dict(sizes)


def _size(folder: str) -> int:
    total = 0
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.endswith(WEIGHTS):
                    total += entry.stat().st_size
    except OSError:
        return 0
    return total


def shape(launch: Mapping[str, Any]) -> tuple[Any, ...]:
    """What makes starts of one engine comparable: a drafter captures graphs of its own."""
    drafter = mapping(launch.get("drafter"))
    return (launch.get("model"), launch.get("tensor_parallel"), drafter.get("algorithm"))


def last_good_phases(name: str, paths: Paths, wanted: tuple[Any, ...]) -> dict[str, float]:
    """Seconds of each phase of the last start of that shape that came up; empty without one."""
    try:
        found = starts.names(paths.starts(name))
    except OSError:
        return {}
    for start in reversed(found[-5:]):
        file = paths.starts(name) / start / starts.JOURNAL
        if shape(launch_of(file)) == wanted and (phases := phase_seconds(file)):
            return phases
    return {}


def launch_of(file: Path) -> journal.Event:
    """A journal's first event; empty where there is none to read."""
    try:
        return next(journal.read(file), {})
    except OSError:
        return {}


def phase_seconds(file: Path) -> dict[str, float]:
    """Seconds of each phase until it served, from a journal's verdicts; empty if it never did."""
    summary = Summary()
    try:
        for event in starts.verdicts(file):
            summary.feed(event)
            if event.get("outcome") in SERVED:
                return {name: round(taken, 1) for name, taken in summary.durations().items()}
    except OSError:
        return {}
    return {}
