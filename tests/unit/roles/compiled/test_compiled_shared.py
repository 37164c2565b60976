"""What was compiled, on the controller: kept once, brought where it fits, and what is said of it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from roles.compiled import operations, store
from roles.compiled.operations import BEFORE, Before
from roles.remote.failing import HostFailed
from roles.remote.link import Answer
from roles.remote.shape import WrongShape
from roles.report.result import FALLBACKS, LISTS, RESULTS, Result
from tests.support.inventory_case import engine

KEY, OTHER = "a" * 24, "b" * 24
CONTENT = b"compiled"
DIGEST = hashlib.sha256(CONTENT).hexdigest()
PROVENANCE = {
    **{"v": 1, "key": KEY, "inputs": {}, "sha256": DIGEST, "files": 3, "bytes": 2_000_000},
    **{"host": "first", "warming_s": 60.0},
}


class Remote:
    """A host that says and takes what a KernelHost does."""

    def __init__(self, name: str = "other") -> None:
        self.host = type("Host", (), {"name": name})()
        self.sent: list[str] = []

    def send(self, source: Path, path: str) -> None:
        assert source.read_bytes() == CONTENT
        self.sent.append(path)

    def fetch(self, path: str, target: Path) -> None:
        target.write_bytes(CONTENT)

    def step(self, title: str, argv: list[str], limit_s: float) -> None:
        self.sent.append(argv[-1])


@pytest.fixture
def remote() -> Remote:
    for kept in (BEFORE, RESULTS, FALLBACKS, LISTS):
        kept.clear()
    return Remote()


def spec_of(tmp_path: Path) -> Any:
    spec = engine("compile_cache: {share: true}")
    return replace(spec, kernel=replace(spec.kernel, cache=str(tmp_path)))


def answers(monkeypatch: pytest.MonkeyPatch, **said: Any) -> list[str]:
    asked: list[str] = []

    def ask(remote: Any, spec: Any, wait_s: float, *words: str) -> Any:
        asked.append(words[0])
        return said[words[0]]

    monkeypatch.setattr(operations, "ask", ask)
    return asked


def ready(host: str, **phases: float) -> None:
    RESULTS[host] = {"e": Result("e", "ready", 0, phases=phases)}


def test_it_is_not_shared_unless_asked_for() -> None:
    assert not engine().compile_cache.share
    assert engine("compile_cache: {share: true}").compile_cache.share


def test_the_store_takes_what_is_whole_once(tmp_path: Path) -> None:
    folder = str(tmp_path / "kept")
    with pytest.raises(ValueError, match="sha256"):
        store.add(folder, KEY, PROVENANCE, lambda to: (to.write_bytes(b"cut"), None)[1])
    assert list(Path(folder).iterdir()) == []
    made = store.add(folder, KEY, PROVENANCE, lambda to: (to.write_bytes(CONTENT), None)[1])
    assert store.find(folder, KEY) == made
    assert store.find(folder, OTHER) is None
    assert store.find(folder, "../kept") is None
    made.archive.write_bytes(b"damaged")
    assert store.find(folder, KEY) is None


def test_the_first_host_keeps_and_the_second_takes_over(
    tmp_path: Path, remote: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec, first = spec_of(tmp_path), Remote("first")
    look = {"key": KEY, "files": 0}
    asked = answers(monkeypatch, look=look, pack=PROVENANCE, adopt={})
    operations.bring(first, spec)  # type: ignore[arg-type]
    assert asked == ["look"]
    ready("first", loading=30.0, capturing=50.0, warming=10.0)
    said = operations.harvest(first, spec)  # type: ignore[arg-type]
    assert "compiled here in this start" in said
    assert first.sent == [f"{operations.HOST_FOLDER}/{KEY}/compiled.tar"]
    said = operations.bring(remote, spec)  # type: ignore[arg-type]
    assert "taken over from first" in said
    assert asked == ["look", "pack", "look", "adopt"]
    ready("other", loading=99.0, capturing=8.0, warming=2.0)
    said = operations.harvest(remote, spec)  # type: ignore[arg-type]
    assert "10 s" in said and "1 min 00 s" in said and "50 s less" in said


def test_a_host_that_has_compiled_is_left_alone(
    tmp_path: Path, remote: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = spec_of(tmp_path)
    folder = operations.folder_of(spec)
    store.add(folder, KEY, PROVENANCE, lambda to: (to.write_bytes(CONTENT), None)[1])
    asked = answers(monkeypatch, look={"key": KEY, "files": 7})
    operations.bring(remote, spec)  # type: ignore[arg-type]
    assert asked == ["look"]
    assert remote.sent == []


def test_what_cannot_be_taken_over_was_compiled_in_this_start(
    tmp_path: Path, remote: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = spec_of(tmp_path)
    folder = operations.folder_of(spec)
    store.add(folder, KEY, PROVENANCE, lambda to: (to.write_bytes(CONTENT), None)[1])
    answers(monkeypatch, look={"key": KEY, "files": 0})
    with pytest.raises(KeyError):  # stands for any failure of `adopt`
        operations.bring(remote, spec)  # type: ignore[arg-type]
    ready("other", capturing=50.0)
    said = operations.harvest(remote, spec)  # type: ignore[arg-type]
    assert said.startswith("compiled here in this start; the fleet has those of first")


def test_an_archive_that_does_not_arrive_is_not_left_on_the_host(
    tmp_path: Path, remote: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = spec_of(tmp_path)
    answers(monkeypatch, look={"key": KEY, "files": 0}, pack={**PROVENANCE, "sha256": "0" * 64})
    operations.bring(remote, spec)  # type: ignore[arg-type]
    ready("other", capturing=8.0)
    with pytest.raises(ValueError, match="sha256"):
        operations.harvest(remote, spec)  # type: ignore[arg-type]
    assert remote.sent == [f"{operations.HOST_FOLDER}/{KEY}/compiled.tar"]


def test_time_is_only_measured_where_nothing_was_compiled_before(
    tmp_path: Path, remote: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = spec_of(tmp_path)
    answers(monkeypatch, look={"key": KEY, "files": 7}, pack=PROVENANCE)
    operations.bring(remote, spec)  # type: ignore[arg-type]
    ready("other", capturing=8.0)
    operations.harvest(remote, spec)  # type: ignore[arg-type]
    entry = store.find(operations.folder_of(spec), KEY)
    assert entry is not None
    assert entry.provenance["warming_s"] is None
    assert "not measured" in operations.compared(entry, 8.0)


@pytest.mark.parametrize("outcome", ["degraded", "failed", None])
def test_only_what_a_ready_engine_compiled_is_kept(
    tmp_path: Path, remote: Remote, monkeypatch: pytest.MonkeyPatch, outcome: str | None
) -> None:
    spec = spec_of(tmp_path)
    asked = answers(monkeypatch)
    BEFORE["other", "e"] = Before(KEY, 0)
    RESULTS["other"] = {"e": Result("e", outcome, 0)}
    operations.harvest(remote, spec)  # type: ignore[arg-type]
    assert asked == []


def test_a_failure_is_said_and_fails_nothing(
    remote: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr(operations, "say", lambda host, line, fg=None: said.append(line))
    for error in (HostFailed("no room there"), OSError(28, "No space left"), KeyError("ours")):

        def fails(error: Exception = error) -> str:
            raise error

        operations.attempt(remote.host, engine(), fails)  # type: ignore[arg-type]
    assert len(said) == 3
    assert "no room there" in said[0]
    assert LISTS["other"]["compile caches of e"] == said[2:]


class Answering(Remote):
    """Its sglangctl says this."""

    def __init__(self, said: Any) -> None:
        super().__init__()
        self.said = json.dumps(said)

    def link(self) -> Any:
        answer = Answer(True, [self.said], [])
        return type("Link", (), {"run": lambda self, *argv, **more: answer})()


GOOD = {"v": 1, "key": KEY, "files": 3, "bytes": 9, "sha256": DIGEST, "inputs": {"torch": None}}


@pytest.mark.parametrize(
    "wrong",
    [{"key": "../../etc"}, {"key": f"{KEY}\n"}, {"files": "3"}, {"sha256": "x"}, {"v": 2}],
)
def test_an_answer_of_another_shape_is_refused(wrong: Any) -> None:
    good: Any = Answering(GOOD)
    assert operations.ask(good, engine(), 1.0, "look") == GOOD
    bad: Any = Answering({**GOOD, **wrong})
    with pytest.raises(WrongShape):
        operations.ask(bad, engine(), 1.0, "look")


def test_an_engine_on_the_cpu_has_no_gpus_in_its_key() -> None:
    asked = [engine(more) for more in ("", "gpus: [1]", "flags: {device: cpu}")]
    assert [operations.request_of(one)["gpus"] for one in asked] == [None, [1], []]


def test_no_secret_is_in_what_the_host_is_asked(tmp_path: Path) -> None:
    spec = engine("api_key: {env: K}", K="sk-planted-0123456789")
    assert "planted" not in json.dumps(operations.request_of(spec))
    quiet = engine("flags: {log-level: debug}")
    other = engine("flags: {disable-radix-cache: true}")
    plain = operations.request_of(engine())["flags"]
    assert plain == operations.request_of(quiet)["flags"]
    assert plain != operations.request_of(other)["flags"]
