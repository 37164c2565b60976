"""What the probe says of a kept result."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sglangctl.gpu import gpus
from sglangctl.probe import collectives as probed
from sglangctl.probe.document import probe
from sglangctl.state import collectives
from sglangctl.state.paths import Paths
from sglangctl.state.release import FILES


@pytest.fixture
def paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Paths:
    monkeypatch.setattr(gpus, "read", lambda: gpus.Reading((), "nvml"))
    return Paths(tmp_path)


def test_only_who_asks_pays(paths: Paths) -> None:
    collectives.store("chat", {"time": "T", "key": {}}, paths)
    assert probe({}, paths).collectives == {}
    found = probe({"collectives": ["chat", "other"]}, paths)
    assert found.collectives["chat"]["entry"]["time"] == "T"
    assert found.collectives["other"] is None
    assert found.reasons["collectives other"] == "nothing is kept"


def test_the_times_are_those_of_the_largest_world(paths: Paths) -> None:
    sizes = [{"bytes": 4, "median_s": 0.5, "busbw_gbps": 1.0}]
    arm = {"name": "a", "outcome": "right", "environment": {}, "sentence": "x"}
    arm["worlds"] = [{"sizes": []}, {"sizes": sizes}]
    collectives.store("chat", {"key": {}, "arms": [arm, {}, 1]}, paths)
    brief = probed.brief("chat", paths)
    assert brief is not None
    assert [one["times"] for one in brief["entry"]["arms"]] == [[[4, 0.5]], []]


@pytest.mark.parametrize(
    ("folder", "version"),
    [
        ("nvidia_nccl_cu13-2.28.9.dist-info", "2.28.9"),
        ("nvidia_nccl_cu12-2.27.3.post1.dist-info", "2.27.3.post1"),
        ("nvidia_nccl_cu13-\x1b[31m.dist-info", None),
        ("numpy-2.0.dist-info", None),
    ],
)
def test_nccl_of_the_live_environment(paths: Paths, folder: str, version: str | None) -> None:
    assert probed.nccl_of("chat", paths) is None
    release = paths.releases("chat") / "0123456789ab"
    release.mkdir(parents=True)
    for name in FILES:
        (release / name).write_text(json.dumps({"venv": str(paths.root / "venv")}))
    paths.current("chat").symlink_to(release)
    (paths.root / "venv/lib/python3.11/site-packages" / folder).mkdir(parents=True)
    assert probed.nccl_of("chat", paths) == version
