"""The controller's one reader of what is followed on a host, against the host's own answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from roles.remote import follow
from roles.remote.failing import HostFailed
from roles.remote.follow import CannotFollow, parse
from roles.remote.link import Answer, Link
from sglangctl.state import follow as host_follow
from sglangctl.state import journal


def ended(event: journal.Event) -> int | None:
    return event.get("status") if event.get("name") == "end" else None


@dataclass
class Task:
    """A task on a host and the link to it; `then`: what happens before each question."""

    file: Path
    runs: bool = True
    then: list[Callable[[], object]] = field(default_factory=list)
    asked: list[int] = field(default_factory=list)

    def write(self, **fields: Any) -> None:
        writer = journal.Writer(self.file)
        writer.write(0, "step", **fields)
        writer.close()

    def end(self, status: int) -> None:
        self.write(name="end", status=status)
        self.runs = False

    def run(self, *argv: str, wait_s: float) -> Answer:
        del wait_s
        offset = int(next(word for word in argv if word.startswith("--from="))[7:])
        self.asked.append(offset)
        if self.then:
            self.then.pop(0)()
        answer = host_follow.look_at_task("t", self.file, offset, lambda: self.runs, ended)
        return Answer(True, [*(one.decode() for one in answer.lines), answer.position], [])

    def follow(self) -> tuple[str, list[Any]]:
        seen: list[Any] = []
        status = follow.task(
            cast("Link", self), ["x"], lambda event: seen.append(event.get("text"))
        )
        return status, seen


@pytest.fixture
def task(tmp_path: Path) -> Task:
    return Task(tmp_path / "journal.jsonl")


def test_each_event_once_and_its_exit_status(task: Task) -> None:
    task.then = [
        lambda: None,  # nothing is there yet
        lambda: task.write(name="switch", text="one"),
        lambda: (task.write(name="switch", text="two"), task.end(3)),
    ]
    assert task.follow() == ("3", ["one", "two", None])
    assert task.asked == [0, 0, task.asked[2]] and task.asked[2] > 0


def test_a_line_that_is_being_written_comes_whole_later(task: Task) -> None:
    def half() -> None:
        with open(task.file, "a") as file:
            file.write('{"t": 1, "kind": "step", "te')

    def other_half() -> None:
        with open(task.file, "a") as file:
            file.write('xt": "whole"}\n')
        task.end(0)

    task.then = [half, other_half]
    assert task.follow() == ("0", ["whole", None])


def test_a_task_that_was_killed_ends_too(task: Task) -> None:
    def killed() -> None:
        task.write(name="switch", text="half of it")
        task.runs = False

    task.then = [killed]
    assert task.follow() == ("gone", ["half of it"])


def test_an_end_after_it_was_seen_to_run_is_no_loss(task: Task) -> None:
    """The end is written between the look at the unit and the look at its journal."""

    def runs() -> bool:
        task.end(0)
        return True

    answer = host_follow.look_at_task("t", task.file, 0, runs, ended)
    assert answer.status == "0" and len(answer.lines) == 1
    # The same question again, as after an answer that was lost, has the same answer.
    assert host_follow.look_at_task("t", task.file, 0, lambda: False, ended) == answer
    # And who asks behind the end is told of the end, not of a killed task.
    again = host_follow.look_at_task("t", task.file, answer.offset, lambda: False, ended)
    assert (again.lines, again.status) == ([], "0")


def test_a_journal_that_began_anew_is_read_from_its_beginning(task: Task) -> None:
    task.write(name="switch", text="of the second run")
    answer = host_follow.look_at_task("t", task.file, 4711, lambda: True, ended)
    assert len(answer.lines) == 1 and answer.offset == task.file.stat().st_size


def test_one_answer_is_bounded(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_follow, "MAX_BYTES", 200)
    for number in range(20):
        task.write(name="switch", text=str(number))
    task.end(0)
    answer = host_follow.look_at_task("t", task.file, 0, lambda: False, ended)
    assert 0 < len(answer.lines) < 20 and answer.status == "-"
    assert task.follow() == ("0", [*(str(number) for number in range(20)), None])


def test_a_host_that_does_not_answer_as_it_should_fails(task: Task) -> None:
    class Other(Task):
        def run(self, *argv: str, wait_s: float) -> Answer:
            return Answer(*self.says)

    other = Other(task.file)
    other.says = (True, ["@ 5 -"], [])  # type: ignore[attr-defined]
    with pytest.raises(HostFailed, match="deploy again"):
        other.follow()
    other.says = (False, [], ["no such engine"])  # type: ignore[attr-defined]
    with pytest.raises(HostFailed, match="no such engine"):
        other.follow()


@pytest.mark.parametrize(
    "lines",
    [
        [],
        ["{}"],
        ["@ 1-a x ready"],
        ["@ 1-a ² ready"],
        ["@ 1-a 5"],
        ["x 1-a 5 -"],
        ['{"t": 0, "kind": "log"}', "cut of"],
        ["= {", "@ 1-a 5 -"],
    ],
)
def test_an_answer_that_is_none(lines: list[str]) -> None:
    with pytest.raises(CannotFollow):
        parse(lines)


def test_a_cut_line_is_left_out() -> None:
    reply = parse(['{"t": 1, "kind": "log"}', '{"t": 2, "ki', "= null", "@ 1-a 77 pending"])
    assert [event["t"] for event in reply.events] == [1]
    assert (reply.unit, reply.source, reply.offset) == (None, "1-a", 77)
