"""Which profile an engine gets from what its host says, and how often the host is asked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from roles.engine import profiles
from roles.inventory.model import EngineSpec, HostSpec
from roles.remote import shape
from roles.report import result
from roles.stages import desired
from sglangctl.collective import answers, arms
from sglangctl.collective.arms import effective
from sglangctl.gpu import gpus
from sglangctl.probe.document import as_json, probe
from sglangctl.state import collectives
from sglangctl.state.config import Preflight
from sglangctl.state.paths import Paths
from sglangctl.systemd.confined import Ended
from tests.support.inventory_case import engine as engine_of

HUNG = {
    "entry": {
        "ranks": 2,
        "time": "T",
        "arms": [
            {"environment": effective({}, Preflight()), "outcome": "hung"},
            {"environment": effective({"NCCL_P2P_DISABLE": "1"}, Preflight()), "outcome": "right"},
        ],
    }
}


@pytest.fixture
def auto() -> EngineSpec:
    return engine_of("nccl: {profile: auto}\ntensor_parallel: 2")


def test_only_hosts_with_auto_are_asked(auto: EngineSpec) -> None:
    plain = engine_of("nccl: {profile: latency}")
    assert profiles.request([plain]) == {} and profiles.lines([plain], {}) == []
    assert "collectives" not in desired.make(HostSpec("h", (plain,))).request
    assert desired.make(HostSpec("h", (auto,))).request["collectives"] == ["e"]
    renamed = engine_of("nccl: {profile: auto}\nwas: old")
    assert profiles.request([renamed]) == {"collectives": ["e", "old"]}


def test_an_engine_with_a_new_name_has_what_the_old_one_proved() -> None:
    renamed = engine_of("nccl: {profile: auto}\nwas: old\ntensor_parallel: 2")
    assert profiles.chosen(renamed, {"collectives": {"e": None, "old": HUNG}}).profile == "safe"
    assert profiles.chosen(renamed, {"collectives": {"e": None, "old": None}}).profile == "none"


@pytest.mark.parametrize(("known", "profile", "asked"), [(HUNG, "safe", 2), (None, "none", 1)])
def test_the_host_is_asked_once_more_only_where_another_profile_is_proven(
    auto: EngineSpec,
    monkeypatch: pytest.MonkeyPatch,
    known: Any,
    profile: str,
    asked: int,
) -> None:
    requests: list[Any] = []
    said: list[str] = []

    def snapshot(request: dict[str, Any]) -> dict[str, Any]:
        requests.append(request["engine_configs"][0]["preflight"]["peer_to_peer"])
        return {"engines": {}, "collectives": {"e": known}}

    target = type("Host", (), {"name": "h"})()
    state = type("State", (), {"inventory": type("I", (), {"get_host": lambda _, name: target})()})
    data = type(
        "Data", (), {"get": lambda _, key: HostSpec("h", (auto,)) if "sglang" in key else None}
    )
    host = type("Host", (), {"data": data(), "name": "h"})
    monkeypatch.setattr(result, "LISTS", {})
    for name, value in (
        ("snapshot", snapshot),
        ("read_again", lambda: None),
        ("host_is_fit", lambda facts, deploy: True),
        ("inventory_is_right", lambda deploy, need: True),
        ("host", host),
        ("state", state()),
        ("say", lambda _, text: said.append(text)),
    ):
        monkeypatch.setattr(desired, name, value)
    made = desired.desired_host("sglang")
    assert made is not None and made.engines[0].spec.nccl.profile == profile
    assert len(requests) == asked and requests[-1] is (profile == "none")
    (line,) = said
    assert line.startswith(f"e: nccl.profile auto: {profile}: ")
    assert result.LISTS["h"] == {"nccl.profile": [line]}


def test_what_a_host_kept_comes_through_its_probe(
    auto: EngineSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A result as the host program keeps it, over its probe and the check of its shape."""
    monkeypatch.setattr(gpus, "read", lambda: gpus.Reading((), "nvml"))
    paths = Paths(tmp_path)
    said = [{"step": "torch", "torch": "2"}]
    said.append({"step": "world", "arm": "configured", "world": 2, "outcome": "hung", "text": "x"})
    sizes = [[size, 1e-5] for size in arms.SIZES]
    right = {"step": "world", "arm": "no-p2p", "world": 2, "outcome": "right", "sizes": sizes}
    lines = "".join(json.dumps(one) + "\n" for one in (*said, right)).encode()
    found = answers.judge(Ended(0, lines), arms.arms({}, {}, Preflight()), (2,))
    key = {"driver": "580", "nccl": "2.28.9", "topology": {"gpus": [{"uuid": "U"}], "links": []}}
    collectives.store("e", {"time": "T", "ranks": 2, "key": key, **found.to_json()}, paths)
    document = as_json(probe(profiles.request([auto]), paths))
    facts = shape.check(json.loads(json.dumps(document)), shape.PROBE)
    chosen = profiles.chosen(auto, facts)
    assert chosen.profile == "safe"
    assert (
        "(T, driver 580, nccl 2.28.9); since then: driver 580, now unknown, other GPUs"
        in chosen.why
    )
