"""What was found out on the GPUs before, as one finding."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sglangctl.preflight.collective import judge, look
from sglangctl.report import status
from sglangctl.state import collectives
from sglangctl.state.config import Preflight
from sglangctl.state.paths import Paths
from tests.support.engine_config import ENGINE

TWO = replace(ENGINE, tensor_parallel=2)
CARDS = [{"uuid": "GPU-0", "driver": "580"}, {"uuid": "GPU-1", "driver": "580"}]


def entry(configured: str = "right", without: str = "right") -> dict[str, Any]:
    gpus = [{"uuid": "GPU-0"}, {"uuid": "GPU-1"}]
    return {
        "time": "2026-11-30T15:00:00Z",
        "key": {"driver": "580", "nccl": "2.28.9", "topology": {"gpus": gpus, "links": []}},
        "arms": [
            {"environment": {}, "outcome": configured, "sentence": "2 ranks: so"},
            {
                "environment": {"NCCL_P2P_DISABLE": "1"},
                "outcome": without,
                "sentence": "2 ranks: x",
            },
        ],
    }


@pytest.mark.parametrize(
    ("configured", "peer_to_peer", "level"),
    [
        ("right", True, "info"),
        ("hung", True, "warn"),
        ("wrong", True, "warn"),
        ("hung", False, "info"),
    ],
)
def test_the_arm_that_treats_peer_to_peer_as_the_engine_does(
    configured: str, peer_to_peer: bool, level: str
) -> None:
    engine = replace(TWO, preflight=Preflight(peer_to_peer=peer_to_peer))
    (found,) = judge(engine, entry(configured), CARDS)
    assert (found.id, found.level) == ("collective", level)
    assert "on 2026-11-30T15:00:00Z (driver 580, nccl 2.28.9): 2 ranks" in found.seen
    assert ("nccl.profile safe" in found.fix) is (level == "warn") and "since" not in found.seen


def test_who_is_without_peer_to_peer_is_not_told_to_do_without() -> None:
    engine = replace(TWO, preflight=Preflight(peer_to_peer=False))
    (found,) = judge(engine, entry("hung", "hung"), CARDS)
    assert found.level == "warn" and "dmesg" in found.fix and "safe" not in found.fix


@pytest.mark.parametrize(
    "known", [[], [CARDS[0]], [{**CARDS[0], "driver": "590"}, CARDS[1]], [{"uuid": 1}, CARDS[1]]]
)
def test_a_host_that_changed_is_told_of(known: list[dict[str, Any]]) -> None:
    (found,) = judge(TWO, entry(), known)
    assert "since then the driver or a GPU is another one" in found.seen


def test_it_costs_nothing_where_nothing_is_kept(paths: Paths) -> None:
    assert list(look(TWO, {}, paths)) == []
    collectives.store(TWO.name, entry(), paths)
    assert list(look(replace(TWO, tensor_parallel=1), {}, paths)) == []
    assert len(list(look(TWO, {"gpus": CARDS}, paths))) == 1
    told = status.collective(TWO.name, paths)
    assert told is not None and told.startswith("right on 2026-11-30T15:00:00Z")
    assert status.collective("other", paths) is None
    for odd in ({}, {"arms": 1}, {"arms": [{"environment": 1}], "key": []}):
        collectives.store(TWO.name, odd, paths)
        list(look(TWO, {"gpus": None}, paths))
        status.collective(TWO.name, paths)


@pytest.fixture
def paths(tmp_path: Any) -> Paths:
    return Paths(tmp_path)
