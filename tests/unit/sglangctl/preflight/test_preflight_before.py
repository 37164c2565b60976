"""The gate `before`: from a host's facts and a model's folder to findings."""

from __future__ import annotations

import ast
import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sglangctl import cli
from sglangctl.diagnosis.finding import Finding
from sglangctl.preflight import before, combinations, text
from sglangctl.preflight.catalog import CHECKS, GATES, OF_THE_MODEL
from sglangctl.state.config import EngineConfig, Preflight
from sglangctl.state.paths import Paths
from sglangctl.systemd.unit_names import engine_unit
from tests.support.engine_config import ENGINE
from tests.support.holding import passable
from tests.support.safetensors_files import shards

ROOM = Path(before.__file__).parent
PROJECT = Path(__file__).resolve().parents[4]


@pytest.fixture
def engine(tmp_path: Path) -> EngineConfig:
    shards(tmp_path / "model")
    return replace(ENGINE, model=str(tmp_path / "model"), user="root")


def judged(engine: EngineConfig, root: Path, **facts: Any) -> dict[str, Finding]:
    """Finding's id -> finding, of a host with these facts."""
    found = before.findings(engine, {"gpus": [{}], **facts}, Paths(root))
    return {one.id: one for one in found}


def listening(pid: int, unit: str | None, port: int = 8000) -> dict[str, Any]:
    owner = {"pid": pid, "name": "sshd", "user": "root", "unit": unit}
    return {"listening": [{"address": "0.0.0.0", "port": port, "owners": [owner]}]}


def test_a_healthy_host_has_nothing_but_info(engine: EngineConfig, tmp_path: Path) -> None:
    found = judged(engine, tmp_path, **listening(46, "ssh.service", 22))
    assert [one for one in found.values() if one.level != "info"] == []


def test_all_that_is_in_the_way_is_told_at_once(engine: EngineConfig, tmp_path: Path) -> None:
    (tmp_path / "model/model-00002-of-00003.safetensors").unlink()
    unit = Paths(tmp_path).units / engine.unit
    unit.parent.mkdir(parents=True)
    unit.write_text("[Unit]\nDescription=somebody else's\n")
    plans = {"kimi": {"refused": [{}], "lines": ["refused", "  who"]}}
    many = replace(engine, tensor_parallel=4)
    found = judged(many, tmp_path, plans=plans, **listening(46, "ssh.service"))
    failed = {id: one.seen for id, one in found.items() if one.level == "fail"}
    assert "model-00002-of-00003.safetensors is missing" in failed["weights-missing"]
    assert "was not made by sglang-provision" in failed["unit-foreign"]
    assert failed["gpus-held"] == "refused\n  who"
    assert failed["gpu-count"] == "the engine asks for tensor_parallel 4 GPUs and the host has 1"
    assert failed["port-taken"] == "port 8000 is held by sshd (pid 46, ssh.service)"
    assert len(failed) == 5
    assert all(one.source for one in found.values())


@pytest.mark.parametrize(
    "plan",
    [
        {"units_to_stop": [{"pids": [46]}]},
        {"containers_to_stop": [{"pids": [46]}]},
        {"processes_to_end": [{"pid": 46}]},
    ],
)
def test_whoever_ends_with_the_switch_has_no_port(
    plan: dict[str, Any], engine: EngineConfig, tmp_path: Path
) -> None:
    facts = listening(46, None)
    assert "port-taken" in judged(engine, tmp_path, **facts)
    assert "port-taken" not in judged(engine, tmp_path, plans={"kimi": plan}, **facts)


def test_our_own_and_a_replaced_unit_end_with_the_switch(
    engine: EngineConfig, tmp_path: Path
) -> None:
    takes_over = replace(engine, replaces=("vllm.service",))
    for unit in (engine_unit("kimi"), "vllm.service"):
        assert "port-taken" not in judged(takes_over, tmp_path, **listening(46, unit))


def test_gpus_are_counted_where_they_are_known(engine: EngineConfig, tmp_path: Path) -> None:
    four = replace(engine, tensor_parallel=4)
    assert "gpu-count" not in judged(four, tmp_path, gpus=[{}] * 4)
    unknown = judged(four, tmp_path, gpus=None, reasons={"gpus": "no driver"})
    assert "gpu-count" not in unknown
    assert unknown["gpus-unknown"].level == "info" and "no driver" in unknown["gpus-unknown"].seen
    on_cpu = replace(four, preflight=Preflight(device="cpu"))
    (only,) = judged(on_cpu, tmp_path, gpus=None).values()
    assert (only.level, only.id) == ("info", "gpus-unknown") and "cpu" in only.seen
    chosen = replace(engine, gpus=(0, 9))
    found = judged(chosen, tmp_path, gpus=[{"index": 0}, {"index": 1}])
    assert "names 9" in found["gpu-count"].seen


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: another user's rights")
def test_a_user_who_is_made_by_this_deploy_reads_what_everybody_can(
    engine: EngineConfig, tmp_path: Path
) -> None:
    with passable() as place:
        shards(place / "model")
        new = replace(engine, user="not-there-yet", model=str(place / "model"))
        assert judged(new, tmp_path) == {}
        (place / "model/model-00002-of-00003.safetensors").chmod(0o600)
        found = judged(new, tmp_path)
    assert found["weights-unreadable"].level == "fail"
    assert "mode 0600" in found["weights-unreadable"].seen


def test_what_is_ignored_is_shown_and_stops_nothing(engine: EngineConfig, tmp_path: Path) -> None:
    (tmp_path / "model/tokenizer.json").unlink()
    assert judged(engine, tmp_path)["tokenizer-missing"].level == "fail"
    lax = replace(engine, preflight=Preflight(ignore=("tokenizer-missing",)))
    found = judged(lax, tmp_path)["tokenizer-missing"]
    assert found.level == "info" and "ignored" in found.seen


def test_a_look_writes_nothing(engine: EngineConfig, tmp_path: Path) -> None:
    judged(engine, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model"]


def test_the_command(
    engine: EngineConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setenv("SGLANGCTL_ROOT", str(tmp_path / "root"))
    spec = tmp_path / "e.json"
    document = {"v": 1, **TINY, "model": engine.model, "preflight": {"device": "cpu"}}
    spec.write_text(json.dumps(document))
    assert cli.main(["preflight", "--spec", str(spec), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["v"] == 1
    assert printed["preflight"] == [{"engine": "tiny", "gate": "before", "fails": False}]
    (tmp_path / "model/config.json").unlink()
    assert cli.main(["preflight", "--spec", str(spec)]) == 1
    lines = capsys.readouterr().out
    assert "tiny: would fail" in lines
    assert "fail model-config: config.json is missing" in lines
    spec.write_text("{")
    assert cli.main(["preflight", "--spec", str(spec)]) == 2
    assert "is not JSON" in capsys.readouterr().err


TINY = {
    **{"name": "tiny", "unit": "sglang-tiny.service", "user": "root", "port": 1},
    **{"listen": "127.0.0.1", "served_name": "tiny"},
}


def test_a_sentence_has_what_is_needed_and_what_to_do() -> None:
    assert text.sentence(Finding("x", "fail", "a is 1", "raise it", "2")) == (
        "a is 1; needed: 2: raise it"
    )
    assert text.sentence(Finding("x", "fail", "a is 1")) == "a is 1"


def test_files_that_changed_after_the_start_are_named(engine: EngineConfig, tmp_path: Path) -> None:
    for number in range(12):  # in no order: one of them comes before a file that changed
        (tmp_path / f"model/link-{number}").symlink_to("nothing")
    for started, active, said in (
        (1.0, "active", True),
        (1.0, "failed", False),
        (9e9, "active", False),
    ):
        unit = {"started": started, "ActiveState": active}
        found = judged(engine, tmp_path, engines={"kimi": {"unit": unit}})
        assert ("weights-changed" in found) == said
    changed = judged(
        engine, tmp_path, engines={"kimi": {"unit": {"started": 1.0, "ActiveState": "active"}}}
    )
    assert "config.json and" in changed["weights-changed"].seen


def ids() -> Iterator[str]:
    """The first argument of each call that makes a finding, in the rooms that judge."""
    for folder in (ROOM, ROOM.parent / "weights", PROJECT / "roles/stages"):
        for file in folder.glob("*.py"):
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if not isinstance(node, ast.Call) or not node.args:
                    continue
                name = getattr(node.func, "id", "")
                if name in ("finding", "Finding") and isinstance(node.args[0], ast.Constant):
                    yield str(node.args[0].value)


def test_every_finding_is_in_the_catalogue_and_nothing_else() -> None:
    assert {*ids(), *(rule.id for rule in combinations.RULES)} == set(CHECKS)
    assert all(check.gate in GATES and check.looks_at and check.source for check in CHECKS.values())
    assert set(CHECKS) > OF_THE_MODEL > {"weights-missing"}
