"""What is kept of the engine that a switch replaces, and what is not asked for it."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sglangctl.engine import canaries, former
from sglangctl.engine.load import Load, Speed
from sglangctl.free.model import Plan, UnitStep
from sglangctl.proc.sockets import Listener
from sglangctl.state.config import Acceptance, EngineConfig
from sglangctl.state.paths import Paths
from sglangctl.switch import measuring
from sglangctl.switch.ended import Cancelled
from tests.support.engine_config import ENGINE
from tests.support.http_engine import Engine, serving
from tests.support.language_model import Model

TO = "b" * 64
LOAD = Load(1.0, (), None)


@pytest.fixture
def config(tmp_path: Path, paths: Paths, monkeypatch: pytest.MonkeyPatch) -> EngineConfig:
    folder = tmp_path / "models" / "kimi"
    folder.mkdir(parents=True)
    file = folder / "model.safetensors"
    file.write_bytes(b"x")
    os.utime(file, (1e9, 1e9))
    paths.engine_state("kimi").mkdir(parents=True)
    monkeypatch.setattr(measuring, "measure", lambda *_: replace(LOAD, fault="not in this test"))
    wanted = Acceptance(concurrency=2, tokens=4, limit_s=1.0)
    return replace(ENGINE, model=str(folder), acceptance=wanted)


@contextmanager
def old(path: Path | str, native: bool = True, **more: Any) -> Iterator[Engine]:
    """An engine in this process, which a plan would stop."""
    info = {"model_path": str(path), "is_generation": True} if native else None
    with serving(Engine(model="kimi", model_info=info, answers=Model().answer, **more)) as engine:
        yield engine


def plan(*units: str) -> Plan:
    steps = [
        UnitStep(one, "replaced", "", "active", "", True, (os.getpid(),), (), "", "")
        for one in units
    ]
    return Plan("kimi", "declared", True, None, tuple(steps))


def taken(config: EngineConfig, paths: Paths, *units: str) -> tuple[former.Former | None, str]:
    said: list[str] = []
    measuring.take(config, plan(*(units or ("old.service",))), TO, paths, said.append)
    return former.read("kimi", paths), "\n".join(said)


def test_an_engine_with_the_same_files_is_asked(config: EngineConfig, paths: Paths) -> None:
    with old(config.model) as engine:
        found, said = taken(config, paths)
    assert found is not None and (found.to, found.who) == (TO, "old.service")
    assert found.same_weights is True and len(found.answers) == 6
    assert found.answers[0].logprobs
    assert "serves meanwhile" in said and "for at most 2 s" in said
    assert paths.former("kimi").stat().st_mode & 0o777 == 0o600
    assert "/server_info" in engine.paths()


def test_links_are_seen_through(config: EngineConfig, paths: Paths, tmp_path: Path) -> None:
    link = tmp_path / "snapshot"
    link.mkdir()
    (link / "model.safetensors").symlink_to(Path(config.model) / "model.safetensors")
    with old(link):
        found, _ = taken(config, paths)
    assert found is not None and found.same_weights is True


def test_other_weights_under_the_same_name_are_no_measure_of_speed(
    config: EngineConfig, paths: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "model.safetensors").write_bytes(b"y")
    measured: list[object] = []
    monkeypatch.setattr(measuring, "measure", lambda *given: measured.append(given) or LOAD)
    with old(other):
        found, _ = taken(config, paths)
    assert found is not None and found.same_weights is False and found.answers
    assert str(other) in found.weights and not measured


def test_files_that_changed_since_it_was_started_are_not_known_to_be_the_same(
    config: EngineConfig, paths: Paths
) -> None:
    later = time.time() + 10
    os.utime(Path(config.model) / "model.safetensors", (later, later))
    with old(config.model):
        found, _ = taken(config, paths)
    assert found is not None and found.same_weights is None and "have changed" in found.weights


def test_another_model_is_not_asked(config: EngineConfig, paths: Paths, tmp_path: Path) -> None:
    with old(tmp_path / "gone") as engine:
        engine.model = "llama"
        found, said = taken(config, paths)
    assert found is None and "no speed and no answers" in said
    assert "/generate" not in engine.paths()


def test_a_vllm_says_what_it_serves_as_root(config: EngineConfig, paths: Paths) -> None:
    with old("", native=False) as engine:
        engine.model = config.model  # `vllm serve FOLDER`: the name is the folder
        found, _ = taken(config, paths)
    assert found is not None and found.same_weights is True
    assert "/generate" not in engine.paths() and "/v1/completions" in engine.paths()


def test_who_wants_a_key_that_is_not_ours_is_left_alone(config: EngineConfig, paths: Paths) -> None:
    with old(config.model, api_key="theirs") as engine:
        found, said = taken(config, paths)
    assert found is None and "wants a key" in said
    assert not any("Authorization" in headers for _, _, headers in engine.requests)


def test_our_own_engine_gets_its_key(config: EngineConfig, paths: Paths) -> None:
    release = paths.releases("kimi") / ("a" * 64)
    release.mkdir(parents=True)
    (release / "engine.yaml").write_text('api-key: "sk-ours"\n')
    os.symlink(f"releases/{release.name}", paths.current("kimi"))
    with old(config.model, api_key="sk-ours") as engine:
        document = {"v": 1, "name": "kimi", "unit": "sglang-kimi.service", "user": "sglang"}
        document.update(port=engine.port, listen="127.0.0.1", model="/m", served_name="kimi")
        paths.engine_json("kimi").write_text(json.dumps(document))
        found, said = taken(config, paths, "sglang-kimi.service")
    assert found is not None and found.answers and "sk-ours" not in said
    assert "sk-ours" not in paths.former("kimi").read_text()


@pytest.mark.parametrize("data", [b"\xff\xfe", b"api-key: " + b"[" * 100_000])
def test_a_damaged_release_of_our_own_engine_stops_no_switch(
    config: EngineConfig, paths: Paths, data: bytes
) -> None:
    release = paths.releases("kimi") / ("a" * 64)
    release.mkdir(parents=True)
    (release / "engine.yaml").write_bytes(data)
    os.symlink(f"releases/{release.name}", paths.current("kimi"))
    with old(config.model) as engine:
        document = {"v": 1, "name": "kimi", "unit": "sglang-kimi.service", "user": "sglang"}
        document.update(port=engine.port, listen="127.0.0.1", model="/m", served_name="kimi")
        paths.engine_json("kimi").write_text(json.dumps(document))
        found, said = taken(config, paths, "sglang-kimi.service")
    assert found is None and "is not measured" in said


def test_the_likely_ports_are_asked_first_and_each_once(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An engine's other ports speak no HTTP: each keeps us waiting."""
    listening = [Listener("0.0.0.0", port, 1) for port in (500, 8000, 30000, 500, 41000)]
    monkeypatch.setattr(measuring.sockets, "listeners", lambda: listening)
    monkeypatch.setattr(measuring.sockets, "owners", lambda port, pids: [7] * (port != 30000))
    found = list(measuring._endpoints((7,), None, paths))
    assert [where.port for where, _ in found] == [8000, 500, 41000]
    assert found[0][0].host == "127.0.0.1"


@pytest.mark.parametrize(
    "info,asked",
    [
        ({"speculative_algorithm": "EAGLE3", "version": "0.5.9"}, False),
        ({"speculative_algorithm": "EAGLE3", "version": "0.5.23"}, True),
        ({"speculative_algorithm": None, "version": "0.4.9"}, True),
        ({}, False),
    ],
)
def test_what_could_crash_of_it_is_asked_for_no_logprobs(
    config: EngineConfig, paths: Paths, info: dict[str, Any], asked: bool
) -> None:
    with old(config.model, info=info) as engine:
        found, _ = taken(config, paths)
    sent = [document for path, document, _ in engine.requests if path == "/generate"]
    assert sent and all(one is not None and one["return_logprob"] is asked for one in sent)
    assert found is not None and bool(found.answers[0].logprobs) is asked


@pytest.mark.parametrize("link", ["known-good", "previous"])
def test_a_release_that_has_served_before_waits_for_nothing(
    config: EngineConfig, paths: Paths, link: str
) -> None:
    """A rollback by hand, away from an engine that is bad."""
    os.symlink(f"releases/{TO}", paths.engine_state("kimi") / link)
    with old(config.model) as engine:
        found, _ = taken(config, paths)
    assert found is None and engine.requests == []


@pytest.mark.parametrize("acceptance", [None, Acceptance(replaced=False)])
def test_nothing_is_asked_where_it_is_not_wanted_and_nothing_old_is_kept(
    config: EngineConfig, paths: Paths, acceptance: Acceptance | None
) -> None:
    former.keep(former.Former(TO, "t", "old", True, "", "chat"), "kimi", paths)
    with old(config.model) as engine:
        found, _ = taken(replace(config, acceptance=acceptance), paths)
    assert found is None and engine.requests == []


def test_a_switch_that_was_cut_keeps_what_it_had(config: EngineConfig, paths: Paths) -> None:
    """Resumed: what it replaces is down by now."""
    kept = former.Former(TO, "t", "old", True, "", "chat")
    former.keep(kept, "kimi", paths)
    measuring.take(config, Plan("kimi", "declared", True, None), TO, paths, print)
    assert former.read("kimi", paths) == kept


def test_a_folder_that_cannot_be_written_stops_no_switch(
    config: EngineConfig, paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device", "former.json")

    monkeypatch.setattr(former, "write_atomic", full)
    with old(config.model):
        found, said = taken(config, paths)
    assert found is None and "not measured" in said and "full" in said


def test_told_to_end_meanwhile_it_ends(
    config: EngineConfig, paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    def told(*_: object) -> None:
        raise Cancelled("the switch was told to end")

    monkeypatch.setattr(canaries, "record", told)
    with old(config.model), pytest.raises(Cancelled):
        taken(config, paths)


def test_ports_that_never_answer_take_no_minutes(
    config: EngineConfig, paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ranks listen on dozens of them, for each other."""
    monkeypatch.setattr(measuring, "ASK_S", 0.05)
    monkeypatch.setattr(measuring, "FIND_S", 0.2)
    with ExitStack() as stack:
        silent = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(40)]
        found, said = taken(config, paths)
        asked = 0
        for one in silent:
            one.settimeout(0)
            with suppress(BlockingIOError):
                one.accept()[0].close()
                asked += 1
    assert found is None and "ports that do not answer" in said
    assert 4 <= asked <= 5


def test_one_that_hangs_is_said_and_nothing_more(
    config: EngineConfig, paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    with old(config.model) as engine:
        engine.answers = lambda path, asked: (503, {"error": "Service unavailable"})
        found, said = taken(config, paths)
    assert found is not None and not found.answers and found.load is None
    assert "503" in said


@pytest.mark.parametrize(
    "path", ["/models/\0tiny", "/models/\ud800", "/" + "x" * 5000, "/" + "../" * 2000, "\x1b[2J"]
)
def test_a_path_that_is_none_is_said_and_nothing_more(
    config: EngineConfig, paths: Paths, path: str
) -> None:
    with old(path):
        found, said = taken(config, paths)
    assert found is not None and found.same_weights is None and "cannot be told" in found.weights
    assert found.answers and "\x1b" not in found.weights + said


def test_a_folder_that_never_answers_leaves_the_answers(
    config: EngineConfig, paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a dead NFS server."""
    monkeypatch.setattr(measuring, "LOOK_S", 0.1)
    monkeypatch.setattr(measuring, "weight_files", lambda _: time.sleep(60))
    with old(config.model):
        found, _ = taken(config, paths)
    assert found is not None and found.answers and "may hang" in found.weights


@pytest.mark.parametrize("pace_s", [0.01, None])
def test_a_load_without_pieces_says_nothing_about_speed(
    config: EngineConfig, paths: Paths, monkeypatch: pytest.MonkeyPatch, pace_s: float | None
) -> None:
    """Of an engine, or a proxy, that does not stream."""
    gaps = (pace_s,) * 5
    speed = Speed(1, 9, 50.0, 0.1, 0.1, 0.1, *gaps, None, None)
    monkeypatch.setattr(measuring, "measure", lambda *_: replace(LOAD, speeds=(speed,)))
    with old(config.model):
        found, said = taken(config, paths)
    assert found is not None and (found.load is None) is (pace_s is None)
    assert ("in one piece" in said) is (pace_s is None)
    assert ("50.0 tokens/s" in said) is (pace_s is not None)


@pytest.mark.parametrize("live,same", [(TO, True), ("c" * 64, False), (None, False)])
def test_what_was_kept_is_for_its_release(
    config: EngineConfig, paths: Paths, live: str | None, same: bool
) -> None:
    former.keep(former.Former(TO, "t", "old", True, "", "chat"), "kimi", paths)
    if live:
        os.symlink(f"releases/{live}", paths.current("kimi"))
    assert (former.of(config, paths) is not None) is same


@pytest.mark.parametrize("data", [b"", b"[]", b'{"v": 2}', b'{"v": 1, "former": {"to": 3}}'])
def test_a_broken_file_is_nothing(paths: Paths, data: bytes) -> None:
    paths.engine_state("kimi").mkdir(parents=True)
    paths.former("kimi").write_bytes(data)
    assert former.read("kimi", paths) is None
