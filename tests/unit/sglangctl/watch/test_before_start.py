"""The look before each start: what stops one, what does not, and what is said afterwards."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sglangctl import cli
from sglangctl.commands import weights as command
from sglangctl.state.config import EngineConfig, Preflight
from sglangctl.state.paths import Paths
from sglangctl.systemd.unit import Unit
from sglangctl.watch import before_start as start
from sglangctl.weights import check, look, remembered
from tests.support.engine_config import ENGINE
from tests.support.safetensors_files import shards

CONFIG = {
    **{"v": 1, "name": "kimi", "unit": "sglang-kimi.service", "user": "root", "port": 1},
    **{"listen": "127.0.0.1", "served_name": "kimi"},
}


@pytest.fixture
def paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Paths:
    shards(tmp_path / "model")
    monkeypatch.setenv("SGLANGCTL_ROOT", str(tmp_path))
    made = Paths(tmp_path)
    made.engines.mkdir(parents=True)
    document = {**CONFIG, "model": str(tmp_path / "model")}
    made.engine_json("kimi").write_text(json.dumps(document))
    return made


@pytest.fixture
def engine(tmp_path: Path) -> EngineConfig:
    return replace(ENGINE, user="root", model=str(tmp_path / "model"))


def broken(engine: EngineConfig) -> Path:
    path = Path(engine.model) / "model-00002-of-00003.safetensors"
    path.write_bytes(path.read_bytes()[:40])
    return path


def asked() -> int:
    return cli.main(["weights", "--engine", "kimi", "--start"])


def test_a_complete_model_starts_in_silence(
    paths: Paths, capsys: pytest.CaptureFixture[str]
) -> None:
    assert asked() == 0
    assert capsys.readouterr() == ("", "")


def test_a_broken_one_does_not(
    paths: Paths, engine: EngineConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    path = broken(engine)
    assert asked() == 1
    assert f"sglangctl weights: {path}: it is truncated" in capsys.readouterr().err
    ignoring = {**CONFIG, "model": engine.model, "preflight": {"ignore": ["weights-corrupt"]}}
    paths.engine_json("kimi").write_text(json.dumps(ignoring))
    assert asked() == 0


@pytest.mark.parametrize("text", ["{", '{"v": 1}', json.dumps({**CONFIG, "user": "nobody-here"})])
def test_what_could_not_be_checked_starts(
    paths: Paths, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    paths.engine_json("kimi").write_text(text)
    assert asked() == 0
    assert "not checked: " in capsys.readouterr().err


@pytest.fixture
def taken(paths: Paths, engine: EngineConfig) -> Iterator[socket.socket]:
    """Somebody else listens on the engine's port."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        document = {**CONFIG, "model": engine.model, "port": server.getsockname()[1]}
        document["limits"] = {"port_held_s": 0.3}
        paths.engine_json("kimi").write_text(json.dumps(document))
        yield server


def test_a_port_that_is_taken_ends_the_start_before_the_load(
    taken: socket.socket, capsys: pytest.CaptureFixture[str]
) -> None:
    port = taken.getsockname()[1]
    assert asked() == 1
    said = capsys.readouterr().err
    assert f"port {port} is held by " in said and f"(pid {os.getpid()}, " in said


def test_at_its_gate_the_engine_before_has_the_port(
    taken: socket.socket, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["weights", "--engine", "kimi", "--start", "--at-gate"]) == 0
    assert capsys.readouterr() == ("", "")


def test_a_port_that_is_let_go_of_in_time_is_free(taken: socket.socket) -> None:
    threading.Timer(0.05, taken.close).start()
    assert asked() == 0


def test_a_start_that_a_taken_port_stopped_is_explained(
    taken: socket.socket, paths: Paths, engine: EngineConfig
) -> None:
    port = taken.getsockname()[1]
    mine = replace(engine, port=port, listen="127.0.0.1")
    found = start.why(mine, Unit("sglang-kimi.service", BEFORE_MAIN), paths)
    assert found is not None and f"port {port} is held by " in found.sentence
    assert "systemctl reset-failed sglang-kimi.service" in found.next_step
    ignoring = replace(mine, preflight=Preflight(ignore=("port-taken",)))
    assert start.port_taken(ignoring) is None
    other = replace(mine, listen="127.0.0.2")
    plain = start.why(other, Unit("sglang-kimi.service", BEFORE_MAIN), paths)
    assert plain is not None and "before it had a main process" in plain.sentence


def test_a_fault_of_our_own_does_not_keep_an_engine_from_its_start(
    paths: Paths, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(*_: object) -> None:
        raise ZeroDivisionError("ours")

    monkeypatch.setattr(command, "faults", fails)
    assert asked() == 0
    assert "not checked: ours" in capsys.readouterr().err


def test_it_is_of_an_engine(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["weights", "/models", "--start"]) == 2
    assert "--engine" in capsys.readouterr().err


def test_what_a_deploy_remembered_is_not_read_again(
    paths: Paths, engine: EngineConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(engine.model)
    look.model(folder, "root", paths=paths)
    file = remembered.file_of(folder, "root", paths)
    # The engine's own user reads it before each start, and nobody else; root alone writes it.
    assert file.stat().st_mode & 0o777 == 0o640
    monkeypatch.setattr(check, "_check_safetensors", lambda *_: pytest.fail("read again"))
    assert asked() == 0


BEFORE_MAIN = {
    "Result": "exit-code",
    "ExecMainPID": "0",
    "ExecMainCode": "0",
    "ExecMainStatus": "0",
    "ExecMainExitTimestampMonotonic": "0",
}


def test_a_start_that_it_stopped_is_explained(paths: Paths, engine: EngineConfig) -> None:
    unit = Unit("sglang-kimi.service", BEFORE_MAIN)
    plain = start.why(engine, unit, paths)
    assert plain is not None and "before it had a main process" in plain.sentence
    path = broken(engine)
    found = start.why(engine, unit, paths)
    assert found is not None
    assert "its model is not complete" in found.sentence and str(path) in found.sentence
    # Given up by systemd after three tries, a start alone is refused.
    again = "systemctl reset-failed sglang-kimi.service && systemctl start sglang-kimi.service"
    assert again in found.next_step
    # Its program ran: that is another story.
    ran = Unit(
        "sglang-kimi.service",
        {**BEFORE_MAIN, "ExecMainPID": "7", "ExecMainCode": "1", "ExecMainStatus": "3"}
        | {"ExecMainExitTimestampMonotonic": "9"},
    )
    other = start.why(engine, ran, paths)
    assert other is not None and "exit status 3" in other.sentence
    well = Unit("sglang-kimi.service", {**BEFORE_MAIN, "Result": "success"})
    assert start.why(engine, well, paths) is None
    nobody = replace(engine, user="nobody-here")
    assert start.why(nobody, unit, paths) == plain
    lax = replace(engine, preflight=Preflight(ignore=("weights-corrupt",)))
    assert start.why(lax, unit, paths) == plain
