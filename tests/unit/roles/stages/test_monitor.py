"""deploys/monitoring.py: which operations a host gets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyinfra.api import State
from pyinfra.api.state import StateStage

from roles.entry.hosts import pyinfra_hosts
from roles.monitoring import files, operations
from roles.monitoring.targets import Monitoring, Target
from roles.stages.existing import ExistingHost
from roles.stages.monitoring import NONE, monitor
from tests.support.on_this_machine import deploying

FLEET = Monitoring("g", (Target("127.0.0.1:8000", "g", "chat"),), (), (), ())
HERE = ["packages", "node_exporter", "Prometheus", "Grafana", "who answers"]


@pytest.fixture
def state(monkeypatch: pytest.MonkeyPatch) -> Iterator[State]:
    facts = {"programs": {}, "files": {}}
    monkeypatch.setattr(operations, "read", lambda request: facts)
    with deploying() as made:
        made.set_stage(StateStage.Prepare)
        yield made


def names(state: State) -> list[str]:
    found = [name for one in state.get_op_order() for name in state.get_op_meta(one).names]
    return [name.rpartition(" | ")[2] for name in found]


@pytest.mark.parametrize(("here", "expected"), [(True, HERE), (False, HERE[:2])])
def test_prometheus_is_on_one_host_and_the_exporter_on_all(
    state: State, here: bool, expected: list[str]
) -> None:
    existing = ExistingHost("monitoring", ("chat",), monitoring=FLEET, here=here)
    monitor(existing)
    assert names(state) == expected
    assert existing.request["programs"] == [
        operations.EXPORTER,
        *([operations.PROMETHEUS] if here else []),
    ]
    assert (files.MAIN in existing.request.get("files", {})) == here


def test_without_monitoring_in_the_inventory_nothing_is_set_up(
    state: State, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "pyinfra")
    monitor(ExistingHost("monitoring", ("chat",)))
    assert names(state) == [] and NONE in caplog.text


def test_each_host_knows_its_name_in_the_inventory_and_what_prometheus_asks(tmp_path: Path) -> None:
    file = tmp_path / "hosts.yml"
    text = "hosts: {a: {engines: {e: {model: {path: /m}}}}, p: {engines: {}}}\n"
    file.write_text(f"{text}monitoring: {{prometheus: p}}\n")
    found = dict(pyinfra_hosts(file))
    for name, data in found.items():
        assert data["sglang_name"] == name
        assert data["sglang_monitoring"].prometheus == "p"
        assert [one.host for one in data["sglang_monitoring"].nodes] == ["a", "p"]
