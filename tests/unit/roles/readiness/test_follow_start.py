"""Following a start: against the real journal command, with a clock that tests move."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from roles.readiness import follow
from roles.readiness.subject import Subject
from roles.remote.follow import Reply, parse
from sglangctl.state import follow as host_follow
from sglangctl.state.config import Limits
from sglangctl.state.paths import Paths
from tests.support.watched import Watched

UP = {
    "active": "activating",
    "sub": "start-post",
    "job": True,
    "watch": "active",
    "result": "success",
}
DOWN = {**UP, "active": "failed", "sub": "failed", "job": False, "result": "exit-code"}


class Host:
    """The host's end of the long poll (the real one), its unit's state, and a clock.

    `then` maps the clock's seconds to what happens there; each poll lets a second pass, or as
    long as it waits where there is nothing to tell.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.now = 0.0
        self.unit: dict[str, Any] | None = dict(UP)
        self.then: dict[float, Callable[[], object]] = {}
        self.said: list[str] = []
        self.polls = 0
        self.start_known = True
        self.watch: Watched | None = None

    def writer(self, start: str = "1-a", limits: Limits | None = None) -> Watched:
        folder = Paths(self.root).starts("kimi") / start
        folder.mkdir(parents=True)
        self.watch = Watched(folder / "journal.jsonl", limits)
        return self.watch

    def ask(self, start: str | None, offset: int, wait_s: float) -> Reply:
        self.polls += 1
        assert self.polls < 2000, "it never ends"
        for at in sorted(self.then):
            if at <= self.now:
                self.then.pop(at)()
        if self.watch is not None and (self.unit is None or self.unit["watch"] == "active"):
            self.watch.tick(self.now)
        answer = host_follow.look_at_start("kimi", start, offset, Paths(self.root))
        down = self.unit and self.unit["active"] == "failed" and not self.unit["job"]
        self.now += 0.1 if answer.lines or down else wait_s
        lines = [line.decode() for line in answer.lines]
        return parse([*lines, "= " + json.dumps(self.unit), answer.position])

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def follow(self, limits: Limits = Limits()) -> follow.FollowResult:  # noqa: B008 (frozen)
        subject = Subject("kimi", "sglang-kimi.service", "kimi-k2.5", 8000, limits)
        follower = follow.Follower(subject, self.ask, self.say, lambda: self.now, self.sleep)
        return follower.run()

    def say(self, line: str) -> None:
        self.said.append(f"{self.now:g}: {line}")


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def launch(writer: Watched) -> None:
    writer.write(0, "launch", v=1, engine="sglang", port=30000)


def serve(writer: Watched, t: float, proved: bool = True) -> None:
    writer.write(t, "socket", port=30000, owner_pid=7, ours=True)
    writer.write(t, "log", data="INFO:     Uvicorn running on http://0.0.0.0:30000\n")
    writer.write(t + 1, "http", path="/health", status=200, error=None, seconds=0.1)
    if proved:
        writer.write(t + 2, "generate", status=200, seconds=0.9, text_ok=True)


def test_until_it_serves(host: Host) -> None:
    writer = host.writer()
    launch(writer)
    host.then[20] = lambda: serve(writer, 20)
    followed = host.follow()
    assert followed.reason == "served" and followed.start == "1-a"
    assert followed.summary.served_after() == pytest.approx(21, abs=1)
    assert any("serving" in line for line in host.said)


@pytest.mark.parametrize("watch", ["active", "failed"])
def test_the_watch_has_its_time_to_prove_it(host: Host, watch: str) -> None:
    assert host.unit is not None
    host.unit["watch"] = watch
    writer = host.writer()
    launch(writer)
    host.then[10] = lambda: serve(writer, 10, proved=False)
    followed = host.follow()
    assert followed.reason == "served" and followed.summary.view is not None
    assert followed.summary.view.outcome == "serving"
    assert 30 <= host.now < 45 if watch == "active" else host.now < 20


@pytest.mark.parametrize("watch", ["active", "failed"])
def test_an_engine_that_warms_is_waited_for_while_its_watch_lives(host: Host, watch: str) -> None:
    assert host.unit is not None
    host.unit["watch"] = watch
    writer = host.writer()
    launch(writer)

    def warm() -> None:
        serve(writer, 10, proved=False)
        writer.write(12, "warm", path="the same prompt again", number=1, of=7)
        # Without this its watch would call it silent.
        for t in range(15, 140, 4):
            host.then[t] = lambda t=t: writer.write(
                t, "http", path="/health", status=200, error=None, seconds=0.1
            )

    host.then[10] = warm
    host.then[140] = lambda: writer.write(
        140, "generate", status=200, seconds=0.9, text_ok=True, warm={"paths": []}
    )
    assert host.follow().reason == "served"
    assert host.now >= 140 if watch == "active" else host.now < 30
    shown = [line for line in host.said if "warming" in line and "the same prompt again" in line]
    assert shown or watch == "failed"


def test_a_line_at_least_every_ten_seconds(host: Host) -> None:
    writer = host.writer()
    launch(writer)
    for second in range(1, 60):
        gpus = [{"index": 0, "memory_used_mib": 512 * second, "memory_total_mib": 97887}]
        host.then[float(second)] = lambda t=second, gpus=gpus: writer.write(t, "gpu", gpus=gpus)
    host.then[60] = lambda: serve(writer, 60)
    host.follow()
    times = [float(line.partition(":")[0]) for line in host.said]
    assert all(later - earlier <= 11 for earlier, later in zip([0.0, *times], times, strict=False))
    assert sum("GiB" in line for line in host.said) >= 4
    assert len(host.said) < 30


def test_a_failure_ends_it(host: Host) -> None:
    writer = host.writer()
    launch(writer)
    host.then[5] = lambda: writer.write(5, "exit", returncode=1)
    followed = host.follow()
    assert followed.reason == "verdict" and followed.summary.view is not None
    assert followed.summary.view.outcome == "failed"
    assert host.now < 12


def test_a_unit_that_is_down_without_a_verdict(host: Host) -> None:
    launch(host.writer())

    def stopped() -> None:
        host.unit = dict(DOWN)

    host.then[10] = stopped
    followed = host.follow()
    assert followed.reason == "down" and followed.unit["result"] == "exit-code"


def test_the_last_word_of_the_journal_may_come_after_the_units_end(host: Host) -> None:
    writer = host.writer()
    launch(writer)

    def stopped() -> None:
        host.unit = dict(DOWN)

    host.then[10] = stopped
    host.then[11.5] = lambda: writer.write(11, "exit", returncode=2)
    followed = host.follow()
    assert followed.reason == "verdict" and followed.summary.view is not None
    assert followed.summary.view.outcome == "failed"


def test_a_queued_start_is_not_down(host: Host) -> None:
    host.unit = {**DOWN, "active": "inactive", "job": True}

    def started() -> None:
        host.unit = dict(UP)
        writer = host.writer()
        launch(writer)
        serve(writer, 1)

    host.then[8] = started
    assert host.follow().reason == "served"


def test_without_a_watch_the_unit_is_waited_for(host: Host) -> None:
    host.unit = {**UP, "watch": "failed"}

    def active() -> None:
        host.unit = {**UP, "watch": "failed", "active": "active", "job": False}

    host.then[40] = active
    followed = host.follow()
    assert followed.reason == "blind" and host.now > 40
    assert sum("no journal of this start (its watch is failed)" in line for line in host.said) == 1
    assert any("sglang-kimi.service is activating/start-post" in line for line in host.said)


def test_a_watch_that_dies_on_the_way(host: Host) -> None:
    launch(host.writer())

    def dead() -> None:
        assert host.unit is not None
        host.unit["watch"] = "failed"

    def active() -> None:
        assert host.unit is not None
        host.unit["active"] = "active"

    host.then[10], host.then[60] = dead, active
    assert host.follow().reason == "blind"
    assert 60 < host.now < 80


def test_a_stall_is_told_and_is_no_end(host: Host) -> None:
    writer = host.writer()
    launch(writer)
    process = {"pid": 8, "name": "sglang::scheduler_TP0", "state": "S", "cpu_s": 1.0}
    for second in range(10, 700, 10):
        host.then[float(second)] = lambda t=second: writer.write(t, "process", processes=[process])
    host.then[700] = lambda: serve(writer, 700)
    followed = host.follow()
    assert followed.reason == "served"
    assert any("stalled" in line for line in host.said)


def test_the_watch_says_that_the_time_is_over(host: Host) -> None:
    launch(host.writer(limits=Limits(start_s=100)))
    host.follow(Limits(start_s=100))
    assert 100 <= host.now < 115
    assert "deadline" in host.said[-1]


def test_a_rank_that_stays_stopped_is_a_verdict(host: Host) -> None:
    writer = host.writer()
    launch(writer)
    processes = [
        {"pid": 7, "name": "python -m sglang.launch_server", "state": "S", "cpu_s": 1.0},
        {"pid": 8, "name": "sglang::scheduler_TP0", "state": "T", "cpu_s": 1.0},
    ]
    for second in range(10, 200, 5):
        host.then[float(second)] = lambda t=second: writer.write(t, "process", processes=processes)
    followed = host.follow()
    assert followed.reason == "verdict" and followed.summary.view is not None
    assert followed.summary.view.cause == "rank-stopped"
    assert host.now < 120
    assert any("rank-stopped" in line for line in host.said)


def test_a_rank_that_goes_on_is_not(host: Host) -> None:
    writer = host.writer()
    launch(writer)

    def rank(t: float, state: str) -> None:
        process = {"pid": 8, "name": "sglang::scheduler_TP0", "state": state, "cpu_s": t}
        writer.write(t, "process", processes=[process])

    for second in range(10, 200, 5):
        state = "T" if second % 30 == 10 else "S"
        host.then[float(second)] = lambda t=float(second), state=state: rank(t, state)
    host.then[200] = lambda: serve(writer, 200)
    assert host.follow().reason == "served"


def test_a_second_start_is_followed(host: Host) -> None:
    launch(host.writer("1-a"))

    def again() -> None:
        writer = host.writer("2-b")
        launch(writer)
        serve(writer, 3)

    host.then[10] = again
    followed = host.follow()
    assert followed.reason == "served" and followed.start == "2-b"
    assert followed.summary.served_after() is not None and followed.summary.served_after() < 6
    assert any("started again by systemd: 2-b" in line for line in host.said)


def test_without_systemd_the_journal_is_enough(host: Host) -> None:
    host.unit = None
    writer = host.writer()
    launch(writer)
    host.then[30] = lambda: serve(writer, 30)
    assert host.follow().reason == "served"


def test_it_ends_though_nobody_says_so(host: Host) -> None:
    host.unit = {**UP, "watch": "failed"}
    assert host.follow(Limits(start_s=100)).reason == "late"
    assert 200 < host.now < 260
