"""What is written, what is only folded, and that a replay of the file sees what the fold saw."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sglangctl.startup.fold import Startup
from sglangctl.state import journal
from sglangctl.state.config import Limits
from sglangctl.watch import recorder as recording
from sglangctl.watch.recorder import LOG_ROOM, Recorder

PROCESSES = [{"pid": 1, "name": "python -m sglang.launch_server", "state": "S", "cpu_s": 1.0}]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "journal.jsonl"


def recorder(file: Path) -> Recorder:
    made = Recorder(Startup(Limits()), journal.Writer(file))
    made.record(0.0, "launch", engine="sglang", port=8000)
    return made


def serving(file: Path) -> Recorder:
    made = recorder(file)
    made.record(9.0, "socket", port=8000, owner_pid=1, ours=True)
    made.record(11.0, "http", path="/health", status=200, error=None, seconds=1.0)
    assert made.outcome == "serving"
    return made


def written(file: Path, kind: str) -> list[dict[str, Any]]:
    return [event for event in journal.read(file) if event["kind"] == kind]


def good(made: Recorder, t: float) -> None:
    made.record(t, "http", path="/health", status=200, error=None, seconds=1.0)
    made.record(t + 0.1, "process", processes=PROCESSES)


def test_while_it_starts_everything_is_written(file: Path) -> None:
    made = recorder(file)
    for t in range(1, 31):
        made.record(t, "process", processes=PROCESSES)
        made.record(t + 0.5, "log", data=f"line {t}\n")
    assert len(written(file, "process")) == 30
    assert len(written(file, "log")) == 30


def test_a_start_of_an_hour_does_not_fill_the_disk(file: Path) -> None:
    made = recorder(file)
    for t in range(1, 3600):
        made.record(t, "process", processes=PROCESSES)
    assert 1200 + 2400 / 5 - 5 <= len(written(file, "process")) <= 1200 + 2400 / 5 + 5


def test_while_it_serves_one_line_a_minute(file: Path) -> None:
    made = serving(file)
    for t in range(12, 612, 4):
        good(made, t)
    assert 9 <= len(written(file, "http")) <= 12
    assert 9 <= len(written(file, "process")) <= 12


def test_the_memory_of_an_engine_that_has_just_come_up_is_written(file: Path) -> None:
    """A quick start's only sample was of its first second: 0.0 of 95.6 GiB, for a minute."""
    made = recorder(file)
    made.record(1.0, "gpu", gpus=[{"index": 0, "memory_used_mib": 0}])
    made.record(9.0, "socket", port=8000, owner_pid=1, ours=True)
    made.record(9.5, "log", data="The server is fired up and ready to roll!\n")
    assert made.outcome == "serving"
    for t in (12.0, 17.0, 22.0):
        made.record(t, "gpu", gpus=[{"index": 0, "memory_used_mib": 80_000}])
    assert [event["t"] for event in written(file, "gpu")] == [1.0, 12.0]


def test_a_changed_answer_is_always_written(file: Path) -> None:
    made = recorder(file)
    made.record(1.0, "http", path="/health", status=None, error="ConnectionRefusedError", seconds=0)
    made.record(9.0, "socket", port=8000, owner_pid=1, ours=True)
    made.record(9.5, "log", data="The server is fired up and ready to roll!\n")
    assert made.outcome == "serving"
    made.record(11.0, "http", path="/health", status=200, error=None, seconds=1.0)
    assert [event["status"] for event in written(file, "http")] == [None, 200]


def test_before_a_failed_probe_the_last_good_one_is_written(file: Path) -> None:
    made = serving(file)
    for t in range(12, 52, 4):
        good(made, t)
    made.record(76.0, "http", True, path="/health", status=None, error="TimeoutError", seconds=25.0)
    kept = [(event["t"], event["status"]) for event in written(file, "http")]
    assert kept == [(11.0, 200), (48.0, 200), (76.0, None)]
    # After an alarm everything is written for a while.
    for t in range(78, 90):
        made.record(t, "process", processes=PROCESSES)
    assert len(written(file, "process")) >= 12


def test_a_replay_of_the_file_reaches_the_same_verdict_at_the_same_time(file: Path) -> None:
    made = serving(file)
    for t in range(12, 300, 4):
        good(made, t)
        made.record(t + 0.2, "log", data="[2026-01-01 00:00:00] Decode batch, #running-req: 0\n")
    made.record(
        324.0, "http", True, path="/health", status=None, error="TimeoutError", seconds=25.0
    )
    for t in range(325, 345):
        made.record(t, "process", processes=PROCESSES)
    live = [e["t"] for e in written(file, "verdict") if e["outcome"] == "unresponsive"]
    again = Startup(Limits())
    replayed = [
        event["t"] for event in journal.read(file) if again.feed(event).outcome == "unresponsive"
    ]
    assert live and replayed
    assert abs(replayed[0] - live[0]) <= 1.0


def test_lines_of_an_engine_at_work_are_left_out_and_others_are_not(file: Path) -> None:
    made = serving(file)
    made.record(11.5, "log", data="[2026-01-01 00:00:00] Decode batch, #running-req: 1\n")
    before = len(written(file, "log"))
    data = (
        "[2026-01-01 00:00:00] Prefill batch, #new-seq: 1\n"
        "[2026-01-01 00:00:00] something else\n"
        '[2026-01-01 00:00:00] INFO:     1.2.3.4:5 - "POST /v1/chat/completions HTTP/1.1" 200 OK\n'
        '[2026-01-01 00:00:00] INFO:     1.2.3.4:5 - "POST /v1/chat/completions HTTP/1.1" 500 Oh\n'
    )
    made.record(12.0, "log", data=data)
    text = "".join(event["data"] for event in written(file, "log")[before:])
    assert "something else" in text and "500 Oh" in text
    assert "Prefill" not in text and "200 OK" not in text


def test_a_log_that_runs_away_is_cut_and_that_is_said(file: Path) -> None:
    made = recorder(file)
    line = "x" * 65535 + "\n"
    for number in range(400):
        made.record(1.0 + number / 1000, "log", data=line)
    assert file.stat().st_size < LOG_ROOM * 1.2
    made.record(200.0, "log", data="the end\n")
    last = written(file, "log")[-1]
    assert last["data"] == "the end\n"
    assert last["skipped_bytes"] > 5_000_000


def test_an_engine_with_thousands_of_children_does_not_fill_the_disk(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of them comes and goes, so that every look is alarming; the verdicts still come."""
    monkeypatch.setattr(recording, "ROOM", 1 << 20)
    monkeypatch.setattr(recording, "SMALL_ROOM", 1 << 16)
    made = serving(file)
    for t in range(20, 620):
        listed = [dict(PROCESSES[0], pid=t * 1000 + n) for n in range(300)]
        made.record(float(t), "process", alarming=True, processes=listed)
        made.record(t + 0.5, "log", data="x" * 3000 + "\n")
    assert file.stat().st_size < (1 << 20) + 600 * recording.REFILL + (1 << 16)
    for t in range(620, 700):
        made.record(float(t), "http", path="/health", status=None, error="x", seconds=1.0)
    assert written(file, "verdict")[-1]["outcome"] == "unresponsive"
    made.record(701.0, "exit", returncode=-9)
    assert written(file, "exit") and written(file, "verdict")[-1]["outcome"] == "failed"
    assert sum(event.get("skipped_events", 0) for event in journal.read(file)) > 500


def test_a_verdict_without_room_is_written_when_there_is_some(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    made = Recorder(
        Startup(Limits()), journal.Writer(file), changed=lambda said: told.append(said.outcome)
    )
    made.record(0.0, "launch", engine="sglang", port=8000)
    monkeypatch.setattr(recording, "ROOM", -recording.SMALL_ROOM - 9999)
    made.record(9.0, "socket", port=8000, owner_pid=1, ours=True)
    made.record(11.0, "http", path="/health", status=200, error=None, seconds=1.0)
    assert made.outcome == "serving" and not written(file, "socket")
    assert (written(file, "verdict") or [{"outcome": ""}])[-1]["outcome"] != "serving"
    monkeypatch.setattr(recording, "ROOM", 1 << 20)
    good(made, 20.0)
    assert written(file, "verdict")[-1]["outcome"] == "serving"
    assert told.count("serving") == 1


def test_nowhere_to_write(tmp_path: Path) -> None:
    made = Recorder(Startup(Limits()))
    made.record(0.0, "launch", engine="sglang", port=8000)
    made.record(1.0, "exit", returncode=1)
    assert made.outcome == "failed"
    assert list(tmp_path.iterdir()) == []
