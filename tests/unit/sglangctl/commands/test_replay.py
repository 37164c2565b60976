"""`sglangctl replay`: its lines, its exit status, and what it does with bad files."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from sglangctl import cli
from tests.support.startup_events import (
    MAIN,
    TP0,
    UVICORN,
    exit_,
    generate,
    http,
    launch,
    log,
    processes,
)

FIELDS = ["t", "phase", "outcome", "cause", "progress", "eta_s", "evidence"]


def replay(tmp_path: Path, capsys: pytest.CaptureFixture[str], *events: Any) -> tuple[int, Any]:
    file = tmp_path / "journal.jsonl"
    file.write_text("\n".join(json.dumps(event) for event in events) + "\n", encoding="utf-8")
    code = cli.main(["replay", str(file)])
    return code, [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_a_line_at_the_first_event_and_at_every_change(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, lines = replay(
        tmp_path,
        capsys,
        launch(0.5),
        http(1, None),
        log(5, "Init parallel begin."),
        {"t": 6, "kind": "injected", "what": "not seen"},
        log(7, "Init parallel ends. elapsed=2 s"),
        log(8, UVICORN),
        http(10, 200),
        generate(11),
    )
    assert code == 0
    assert [list(line) for line in lines] == [FIELDS] * 5
    assert [(line["t"], line["phase"], line["outcome"]) for line in lines] == [
        (0.5, "launching", "pending"),
        (5, "connecting", "pending"),
        (8, "warming", "pending"),
        (10, "serving", "serving"),
        (11, "serving", "ready"),
    ]


@pytest.mark.parametrize(
    ("last", "code"),
    [
        ([], 1),
        ([http(10, 200)], 0),
        ([http(10, 200), generate(11)], 0),
        ([http(10, 200), exit_(12, -9)], 1),
        ([exit_(12, 1)], 1),
    ],
)
def test_exit_status(
    last: list[Any], code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert replay(tmp_path, capsys, launch(), log(8, UVICORN), *last)[0] == code


def test_a_verdict_that_was_due_after_the_last_event(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    looks = (processes(4, MAIN, TP0), processes(5, MAIN, TP0))
    code, lines = replay(tmp_path, capsys, launch(), *looks, processes(6, MAIN))
    assert code == 1
    assert (lines[-1]["t"], lines[-1]["outcome"], lines[-1]["cause"]) == (6, "failed", "rank-died")


def test_a_file_that_cannot_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["replay", str(tmp_path / "none")]) == 2
    assert cli.main(["replay", str(tmp_path)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "none does not exist" in captured.err and "is a folder" in captured.err
    (tmp_path / "text").write_text("no journal\n")
    assert cli.main(["replay", str(tmp_path / "text")]) == 2
    assert "not a journal" in capsys.readouterr().err


def test_a_cut_and_binary_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "journal.jsonl"
    whole = json.dumps(log(8, UVICORN))
    file.write_bytes(
        json.dumps(launch()).encode() + b"\n\xff\xfe\x00\n[1]\n" + whole.encode() + b"\n" + b'{"t"'
    )
    assert cli.main(["replay", str(file)]) == 1
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["phase"] == "warming"


def test_standard_input(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Stdin:
        buffer = io.BytesIO(json.dumps(launch()).encode() + b"\n")

    monkeypatch.setattr("sys.stdin", Stdin())
    assert cli.main(["replay", "-"]) == 1
    assert json.loads(capsys.readouterr().out)["outcome"] == "pending"


def test_output_is_ascii_whatever_the_log_holds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _ = replay(
        tmp_path, capsys, launch(), log(5, "x.py: error: unrecognized arguments: \u202e")
    )
    assert code == 1
    file = tmp_path / "journal.jsonl"
    cli.main(["replay", str(file)])
    assert capsys.readouterr().out.isascii()


def test_time_passes_only_by_what_a_watcher_sees(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    unseen = {"t": 90000, "kind": "injected", "what": "SIGKILL"}
    _, lines = replay(tmp_path, capsys, launch(), log(5, "Init parallel begin."), unseen)
    assert [line["outcome"] for line in lines] == ["pending", "pending"]
