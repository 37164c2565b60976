"""The history of a start: of the last one that came up and was of the same shape."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sglangctl.state.paths import Paths
from sglangctl.watch.launch_event import last_good_phases, shape

PLAIN: dict[str, Any] = {"model": "/m", "tensor_parallel": 2}
DRAFTED = {**PLAIN, "drafter": {"path": "/d", "algorithm": "EAGLE3"}}


def start(paths: Paths, number: int, launch: dict[str, Any], took: float, outcome: str) -> None:
    folder = paths.starts("e") / f"20261130T0{number}0000Z-{number:032x}"
    folder.mkdir(parents=True)
    said = {"phase": "serving", "cause": None, "phases": {"importing": took, "serving": 1.0}}
    events = [
        {"t": 0.1, "kind": "launch", "v": 1, **launch},
        {"t": 0.2, "kind": "verdict", "phase": "importing", "outcome": "pending"},
        {"t": took, "kind": "verdict", "outcome": outcome, **said},
    ]
    (folder / "journal.jsonl").write_text("".join(json.dumps(one) + "\n" for one in events))


@pytest.mark.parametrize(
    ("wanted", "took"),
    [(PLAIN, 10.0), (DRAFTED, 20.0), ({**PLAIN, "tensor_parallel": 4}, None)],
)
def test_only_starts_of_the_same_shape(tmp_path: Path, wanted: Any, took: float | None) -> None:
    paths = Paths(tmp_path)
    start(paths, 1, PLAIN, 10.0, "ready")
    start(paths, 2, DRAFTED, 20.0, "degraded")
    start(paths, 3, PLAIN, 99.0, "failed")
    start(paths, 4, {**PLAIN, "drafter": "no mapping", "tensor_parallel": 8}, 5.0, "ready")
    found = last_good_phases("e", paths, shape(wanted))
    assert found.get("importing") == took, found
