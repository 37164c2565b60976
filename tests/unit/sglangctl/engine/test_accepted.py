"""A measured load beside the last accepted one: slower, as fast, or too noisy to tell."""

from __future__ import annotations

import errno
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sglangctl.engine import accepted
from sglangctl.engine.accepted import compare
from sglangctl.engine.canaries import Agreement, Answer
from sglangctl.engine.former import Former
from sglangctl.engine.http import Endpoint
from sglangctl.engine.kinds import CHATTING
from sglangctl.engine.load import Load, Speed, gaps_of, measure, paces_of, quantile, spread
from sglangctl.state.config import Acceptance, EngineConfig
from sglangctl.state.paths import Paths
from sglangctl.watch.follow_run import acceptance
from tests.support.engine_config import ENGINE
from tests.support.http_engine import Engine, serving

WORDS = [f" word{number}" for number in range(12)]
WANTED = Acceptance(concurrency=3, tokens=12, limit_s=8.0)


def speed(gap_s: float, first_s: float = 0.2, noise: float = 0.01, concurrency: int = 1) -> Speed:
    firsts, gaps = (first_s,) * 3, (gap_s,) * 5
    return Speed(concurrency, 9, 1 / gap_s, *firsts, *gaps, noise, noise)


def against(*speeds: Speed) -> dict[str, Any]:
    """As a file keeps it."""
    return dict(json.loads(json.dumps(Load(9.0, speeds).as_dict())))


def test_slower_by_more_than_the_tolerance_is_worse_with_the_numbers() -> None:
    found = compare(Load(9.0, (speed(0.0125),)), against(speed(0.010)), 0.1)
    line = found.worse[0]
    assert "12.5 ms" in line and "10.0 ms" in line and "20 % slower" in line


@pytest.mark.parametrize("gap_s", [0.008, 0.010, 0.0109])
def test_within_the_tolerance_is_as_fast(gap_s: float) -> None:
    found = compare(Load(9.0, (speed(gap_s),)), against(speed(0.010)), 0.1)
    assert (found.worse, found.unsure) == ((), ())


def test_noise_as_large_as_the_difference_is_said_and_is_no_alarm() -> None:
    found = compare(Load(9.0, (speed(0.0125, noise=0.2),)), against(speed(0.010)), 0.1)
    assert found.worse == () and len(found.unsure) == 2


def test_first_tokens_count_where_the_difference_is_felt() -> None:
    near = compare(Load(9.0, (speed(0.01, first_s=0.06),)), against(speed(0.01, 0.02)), 0.1)
    far = compare(Load(9.0, (speed(0.01, first_s=0.9),)), against(speed(0.01, 0.4)), 0.1)
    assert near.worse == () and "first token" in far.worse[0]


def test_a_busy_host_moves_the_median_and_is_no_alarm() -> None:
    """Seen with two test runs beside the engine: the median's own error says so."""
    busy = replace(speed(0.01), pace_p50_s=0.0125, gap_p95_s=0.06, noise_p50=0.15)
    found = compare(Load(9.0, (busy,)), against(speed(0.01)), 0.1)
    assert found.worse == () and "median" in found.unsure[0]


def test_nothing_to_compare_with_is_not_worse() -> None:
    for other in (None, {}, {"speeds": [3, {"concurrency": "x"}, {}]}):
        assert compare(Load(9.0, (speed(1.0),)), other, 0.1).worse == ()


def test_the_median_is_not_moved_by_one_pause() -> None:
    assert quantile([0.01] * 20 + [5.0], 0.5) == 0.01
    assert spread([0.01, 0.0101, 0.0099, 5.0]) is not None
    assert spread([0.01, 0.01]) is None and quantile([], 0.5) is None


@pytest.mark.slow
def test_every_request_has_a_beginning_of_its_own_and_all_its_tokens() -> None:
    with serving(Engine(words=WORDS, token_delay_s=0.005)) as engine:
        load = measure(Endpoint("127.0.0.1", engine.port), "tiny", WANTED)
        asked = [document for path, document, _ in engine.requests if document]
    assert load.fault is None
    assert [one.concurrency for one in load.speeds] == [1, 3]
    begins = [document["messages"][0]["content"][:40] for document in asked]
    assert len(set(begins)) == len(begins)
    assert all(document["ignore_eos"] is True for document in asked)
    assert engine.most_in_flight == 3
    one = load.speeds[0]
    assert one.gap_p50_s is not None and 0.005 <= one.gap_p50_s < 0.1
    assert one.tokens_per_s is not None and 10 < one.tokens_per_s < 200


@pytest.mark.slow
def test_a_slow_engine_is_measured_within_the_limit() -> None:
    with serving(Engine(words=WORDS, token_delay_s=0.1)) as engine:
        wanted = replace(WANTED, limit_s=4.0)
        load = measure(Endpoint("127.0.0.1", engine.port), "tiny", wanted)
    assert load.seconds < 7 and load.speeds and load.speeds[0].gap_p50_s is not None


def test_a_load_that_is_refused_is_a_fault_and_kept_nowhere(config: EngineConfig) -> None:
    paths = Paths()
    with serving(Engine(refuses=lambda document: "no")) as engine:
        found = accepted.judge(config, WANTED, paths, Endpoint("127.0.0.1", engine.port))
    assert found.load.fault is not None and not found.kept
    assert accepted.entries(config.name, paths) == []


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> EngineConfig:
    monkeypatch.setenv("SGLANGCTL_ROOT", str(tmp_path))
    release = tmp_path / "var/lib/sglangctl/kimi/releases/abc"
    release.mkdir(parents=True)
    os.symlink("releases/abc", release.parent.parent / "current")
    return replace(ENGINE, served_name="tiny")


@pytest.mark.parametrize(
    "make",
    [
        Path.mkdir,
        os.mkfifo,
        lambda path: path.symlink_to(path),
        lambda path: path.write_bytes(b"[" * accepted.MOST_BYTES),
        lambda path: path.write_bytes(b'{"v": 1, "accepted": 3}'),
        lambda path: os.truncate(path, 1 << 40) if path.touch() is None else None,
    ],
    ids=["folder", "fifo", "loop", "deep", "type", "huge"],
)
def test_what_is_no_file_of_ours_counts_as_none(config: EngineConfig, make: Any) -> None:
    make(Paths().accepted(config.name))
    assert accepted.entries(config.name, Paths()) == []
    assert accepted.history(config.name, Paths()) == []


@pytest.mark.slow
def test_the_first_is_kept_a_slower_one_is_not(config: EngineConfig) -> None:
    paths, quick = Paths(), replace(WANTED, limit_s=3.0)
    with serving(Engine(words=WORDS, token_delay_s=0.005)) as engine:
        where = Endpoint("127.0.0.1", engine.port)
        first = accepted.judge(config, quick, paths, where)
        assert first.kept and first.against is None
        assert accepted.last(config, paths, "abc") is not None
        engine.token_delay_s = 0.03
        second = accepted.judge(config, quick, paths, where)
    assert second.comparison.worse and not second.kept
    event = json.loads(json.dumps(second.event(quick)))
    assert event["compared_with"] and event["worse"] and event["fail"] is False
    assert len(accepted.entries(config.name, paths)) == 1


OLD = Former("abc", "2026-11-30T10:00:00+00:00", "vllm.service", True, "", "chat")
SAID = (Answer("The capital of France is", " Paris", (1,), (-0.1,)),)


def judged(
    config: EngineConfig,
    before: Former,
    monkeypatch: pytest.MonkeyPatch,
    pace_s: float = 0.01,
    nats: float = 0.01,
) -> accepted.Judged:
    monkeypatch.setattr(accepted, "measure", lambda *_: Load(1.0, (speed(pace_s),)))
    found = Agreement(6, 5, nats, 0.0, 0.0)
    monkeypatch.setattr(accepted.canaries, "compare", lambda *_: found)
    where = Endpoint("127.0.0.1", 9)
    return accepted.judge(config, WANTED, Paths(), where, before=before)


def test_slower_than_the_engine_before_it_is_worse(
    config: EngineConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = replace(OLD, load=against(speed(0.01)))
    found = judged(config, before, monkeypatch, pace_s=0.0125)
    event = found.event(WANTED)
    assert "12.5 ms" in event["worse"][0] and "10.0 ms" in event["worse"][0]
    assert "the engine before it had" in event["worse"][0] and not found.kept
    assert event["before"]["who"] == "vllm.service" and event["before"]["speeds"]


def test_as_fast_as_the_engine_before_it_is_kept(
    config: EngineConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = replace(OLD, load=against(speed(0.01)), answers=SAID)
    found = judged(config, before, monkeypatch)
    assert found.kept and found.event(WANTED)["worse"] == []
    assert "5 of 6 answers begin as before" in found.event(WANTED)["answers"]["said"]


def test_another_way_of_asking_is_not_compared(
    config: EngineConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = replace(OLD, load=against(speed(0.001)), kind="completion")
    assert judged(config, before, monkeypatch).comparison.worse == ()


def test_other_answers_with_the_same_weights_are_worse_and_kept_nowhere(
    config: EngineConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = judged(config, replace(OLD, answers=SAID), monkeypatch, nats=1.9)
    assert "vllm.service" in found.event(WANTED)["worse"][0]
    assert "1.90 nats" in found.event(WANTED)["worse"][0]
    assert not found.kept and accepted.entries(config.name, Paths()) == []


@pytest.mark.parametrize("same", [False, None])
def test_other_weights_answer_otherwise_which_is_said_and_no_alarm(
    config: EngineConfig, monkeypatch: pytest.MonkeyPatch, same: bool | None
) -> None:
    before = replace(OLD, answers=SAID, same_weights=same, weights="its weights are others: /a")
    found = judged(config, before, monkeypatch, nats=1.9)
    said = found.event(WANTED)["answers"]["said"]
    assert found.kept and found.event(WANTED)["worse"] == []
    assert "1.900 nats a token" in said and "its weights are others" in said


def test_what_was_measured_is_shown_before_it_was_in_a_file() -> None:
    """`bench` showed nothing of it: speeds were no list yet."""
    (line,) = accepted.described(Load(9.0, (speed(0.01),)).as_dict())
    assert "100.0 tokens/s" in line and "10.0" in line


def test_another_model_or_release_is_not_compared(config: EngineConfig) -> None:
    paths = Paths()
    accepted.store(config, Load(1.0, (speed(0.01),)), paths)
    assert accepted.last(replace(config, model="/models/other"), paths) is None
    assert accepted.last(config, paths, "def") is None
    assert accepted.last(config, paths) is not None


@pytest.mark.slow
def test_a_load_that_cannot_be_kept_is_measured_and_says_why(
    config: EngineConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The watch's proof was lost with it: an engine that serves was never ready."""
    paths, quick = Paths(), replace(WANTED, limit_s=2.0)

    def full(path: Path, *_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr(accepted, "write_atomic", full)
    told: list[str] = []
    with serving(Engine(words=WORDS, token_delay_s=0.005)) as engine:
        where = Endpoint("127.0.0.1", engine.port)
        event = acceptance(replace(config, acceptance=quick), paths, where, told.append, CHATTING)
    assert event is not None and event["speeds"] and not event["worse"] and not event["kept"]
    assert "not kept" in told[0] and "full" in told[0]


@pytest.mark.parametrize("data", [b"", b"[]", b"{", b'{"v": 9, "accepted": []}', b'{"v": 1}'])
def test_a_broken_file_is_no_measurement(config: EngineConfig, data: bytes) -> None:
    paths = Paths()
    paths.accepted(config.name).write_bytes(data)
    assert accepted.entries(config.name, paths) == []


def test_pieces_in_one_read_have_no_gap() -> None:
    from sglangctl.engine.generate import Generation

    answer = Generation(200, None, 1.0, times=(0.1, 0.1, 0.3))
    assert paces_of((0.0, 0.01, 0.01, 0.03)) == [pytest.approx(0.01)]
    assert paces_of((0.5,)) == [] and len(paces_of(tuple(range(20)))) == 12
    assert gaps_of(answer) == [pytest.approx(0.2)]
