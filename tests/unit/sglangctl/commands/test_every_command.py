"""Every command, on a host where something is wrong: one sentence with the next step, its exit
status, and never a traceback or a bare `[Errno n]`."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from sglangctl import cli
from sglangctl.commands import status
from sglangctl.state import journal, release
from sglangctl.state.paths import Paths
from sglangctl.util.errors import Failed, Unusable

ROOT = Path(__file__).resolve().parents[4]
TINY: dict[str, Any] = {
    **{"v": 1, "name": "tiny", "unit": "sglang-tiny.service", "user": "root", "port": 30000},
    **{"listen": "127.0.0.1", "model": "/m", "served_name": "tiny"},
}
START = "20250101T000000.000Z-aa"
ENGINE = "ENGINE"
COMMANDS: dict[str, list[list[str]]] = {
    "status": [[ENGINE], [ENGINE, "--json"]],
    "logs": [[ENGINE]],
    "journal": [
        [ENGINE],
        [ENGINE, "--list"],
        [ENGINE, "--start", "99"],
        [ENGINE, "--from", "0", "--unit"],
    ],
    "holders": [["--engine", ENGINE]],
    "free": [[ENGINE], [ENGINE, "--dry-run", "--json"]],
    "stop": [[ENGINE]],
    "metrics": [],  # of all engines; of a host without one it has nothing to say
    "bench": [[ENGINE], [ENGINE, "--json"]],
    "verify": [[ENGINE], [ENGINE, "--json"]],
    "bundle": [[ENGINE, "-o", "b.tar.gz"]],
    "kernel": [["inspect", "installed", "--engine", ENGINE], ["check", "--engine", ENGINE]],
    "watch": [[ENGINE], [ENGINE, "--pid", "4194300"], [ENGINE, "--", "/nonexistent/program"]],
    "wait": [[ENGINE], [ENGINE, "--pid", "4194300"]],
    "switch": [[ENGINE, "--to", "0" * 64], [ENGINE, "--resume"]],
    "rollback": [[ENGINE], [ENGINE, "0123456789ab"]],
    "resume": [],  # of every engine that exists
    "remove": [],  # of an engine that does not exist it has nothing to do
    "configure": [],
    "stage": [],  # both read standard input
    "replay": [],
    "probe": [],
    "prune-programs": [],
    "confine": [],
    "fill": [],  # of an environment
    "compiled": [],  # reads standard input
    "weights": [["--engine", ENGINE]],
    "collective": [[ENGINE], [ENGINE, "--json"], [ENGINE, "--show"]],
    "preflight": [[ENGINE], [ENGINE, "--json"]],
}
CASES = [(name, words) for name, cases in COMMANDS.items() for words in cases]
WITHOUT_CONFIG = {"logs", "journal", "bundle", "kernel"}
"""What is there of an engine can be looked at while its configuration is broken."""


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Paths:
    root = tmp_path / "root"
    monkeypatch.setenv("SGLANGCTL_ROOT", str(root))
    monkeypatch.chdir(tmp_path)
    paths = Paths(root)
    paths.engines.mkdir(parents=True)
    (root / "run").mkdir()
    paths.engine_json("tiny").write_text(json.dumps(TINY))
    return paths


def said(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str]:
    """Exit status and all that was said; it never raises."""
    code = cli.main(argv)
    captured = capsys.readouterr()
    text = captured.out + captured.err
    for word in ("Errno", "Traceback", "internal error"):
        assert word not in text, text
    return code, text


def test_all_commands_are_here() -> None:
    assert set(COMMANDS) == {command.name for command in cli.COMMANDS}


@pytest.mark.parametrize(("name", "words"), CASES)
@pytest.mark.parametrize("engine", ["nope", "../x"])
def test_an_engine_that_is_not_there(
    host: Paths, capsys: pytest.CaptureFixture[str], name: str, words: list[str], engine: str
) -> None:
    before = set(host.root.parent.rglob("*"))
    code, text = said(capsys, name, *(engine if word == ENGINE else word for word in words))
    assert code == 2 and engine in text, text
    assert "tiny" in text or engine == "../x", "the name that was perhaps meant"
    assert set(host.root.parent.rglob("*")) == before, "nothing is made for a name that is none"


@pytest.mark.parametrize(("name", "words"), CASES)
@pytest.mark.parametrize("what", ["nothing", "cut", "binary", "a list", "kinds", "another"])
def test_a_configuration_that_cannot_be_used(
    host: Paths, capsys: pytest.CaptureFixture[str], name: str, words: list[str], what: str
) -> None:
    file = host.engine_json("tiny")
    if what == "nothing":
        shutil.rmtree(host.root / "etc")
    elif what == "binary":
        file.write_bytes(b"\xff\xfe{")
    else:
        texts = {
            "cut": '{"v": 1,',
            "a list": "[" * 5000,
            "kinds": json.dumps({**TINY, "unit": [], "limits": {"start_s": "an hour"}}),
            "another": json.dumps({**TINY, "name": "../x"}),
        }
        file.write_text(texts[what])
    code, text = said(capsys, name, *("tiny" if word == ENGINE else word for word in words))
    expected = 1 if "--resume" in words and what != "nothing" else 2
    if what != "nothing" and (name == "bundle" or "--list" in words):
        expected = 0  # what is there of it
    assert code == expected, text
    assert text.strip() or expected == 0
    if name not in WITHOUT_CONFIG and "--resume" not in words and what != "nothing":
        assert "tiny.json" in text and "deploy again" in text, text


def test_one_broken_engine_does_not_hide_the_others(
    host: Paths, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sglangctl.report.status.with_watch", lambda name, unit: None)
    host.engine_json("broken").write_text("{")
    code, text = said(capsys, "status")
    assert code == 2 and "broken.json is not JSON" in text and "unknown" in text.split("tiny", 1)[1]


@pytest.mark.parametrize("words", [["holders"], ["free", "tiny", "--dry-run"], ["metrics"]])
def test_a_pipe_in_the_place_of_a_document_is_not_waited_for(
    host: Paths, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    os.mkfifo(host.host_json)
    host.state_json("tiny").parent.mkdir(parents=True)
    os.mkfifo(host.state_json("tiny"))
    code, text = said(capsys, *words)
    assert code == 2 and "host.json" in text, text
    with pytest.raises(Failed, match="no plain file"):
        release.read_state("tiny", host)


@pytest.mark.parametrize("key", release.LISTS)
def test_a_list_of_state_json_with_something_else_in_it(host: Paths, key: str) -> None:
    host.state_json("tiny").parent.mkdir(parents=True)
    host.state_json("tiny").write_text(json.dumps({"v": 1, "phase": "live", key: [5]}))
    with pytest.raises(Failed, match=f"{key} is of another kind, or an entry .*deploy again"):
        release.read_state("tiny", host)


def test_a_start_that_is_not_there(host: Paths, capsys: pytest.CaptureFixture[str]) -> None:
    (host.starts("tiny") / START).mkdir(parents=True)
    (host.starts("tiny") / START / "journal.jsonl").write_text('{"t": 0, "kind": "launch"}\n')
    assert said(capsys, "journal", "tiny", "--start", START)[0] == 0
    code, text = said(capsys, "journal", "tiny", "--start", "99")
    assert code == 2 and "has no start 99: sglangctl journal tiny --list" in text


def test_what_no_command_has_thought_of(
    host: Paths, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status, "look", lambda engine, paths: 1 // 0)
    assert cli.main(["status"]) == 2
    text = capsys.readouterr().err
    assert text.startswith("sglangctl status: internal error: ZeroDivisionError: ")
    assert "test_every_command.py:" in text and text.count("\n") == 1
    monkeypatch.setenv(cli.TRACEBACK, "1")
    with pytest.raises(ZeroDivisionError):
        cli.main(["status"])


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (Failed("no room: do this"), 1, "sglangctl stop: no room: do this\n"),
        (Unusable("no such thing"), 2, "sglangctl stop: no such thing\n"),
        (Failed("refused", status=3), 3, "sglangctl stop: refused\n"),
        (Failed("first\n  next: \x1b[2Jmore"), 1, "stop: first\n  next: \\x1b[2Jmore\n"),
        (OSError(errno.EIO, "x", "/f"), 1, "sglangctl stop: /f: the disk does not answer"),
    ],
)
def test_what_a_command_raises_is_said_once_with_its_status(
    host: Paths,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    code: int,
    words: str,
) -> None:
    def fail(name: str, paths: Paths) -> None:
        raise error

    monkeypatch.setattr("sglangctl.commands.stop.load_engine", fail)
    assert cli.main(["stop", "tiny"]) == code
    captured = capsys.readouterr()
    assert captured.err.count("sglangctl stop") == 1 and words in captured.err
    assert captured.out == ""


def program(
    host: Paths, *argv: str, stdout: Any = subprocess.PIPE, nobody: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """sglangctl as a process; `nobody`: as a user without rights, from a copy that it can read."""
    become = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"] if nobody else []
    return subprocess.run(
        [*become, sys.executable, "-m", "sglangctl", *argv],
        cwd=nobody or ROOT,
        env={**os.environ, "SGLANGCTL_ROOT": str(host.root)},
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize("argv", [["status"], ["help"], ["probe"], ["journal", "tiny"]])
def test_output_that_has_no_room(host: Paths, argv: list[str]) -> None:
    (host.starts("tiny") / START).mkdir(parents=True)
    (host.starts("tiny") / START / "journal.jsonl").write_text('{"t": 0, "kind": "launch"}\n' * 99)
    with open("/dev/full", "w") as full:
        done = program(host, *argv, stdout=full)
    assert done.returncode == 2, done.stderr
    assert "a disk is full" in done.stderr and done.stderr.count("\n") == 1, done.stderr


needs_root = pytest.mark.skipif(
    os.getuid() != 0 or shutil.which("setpriv") is None, reason="needs root, to become someone else"
)


@pytest.mark.slow
@needs_root
@pytest.mark.parametrize("closed", ["etc/sglangctl", "var"])
def test_a_user_without_rights(request: pytest.FixtureRequest, closed: str) -> None:
    # Not below pytest's own folder, which it keeps closed to others.
    folder = Path(tempfile.mkdtemp(prefix="sglangctl-"))
    request.addfinalizer(lambda: shutil.rmtree(folder))
    folder.chmod(0o777)
    host = Paths(folder / "root")
    host.engines.mkdir(parents=True)
    host.engine_json("tiny").write_text(json.dumps(TINY))
    (host.starts("tiny") / START).mkdir(parents=True)
    shutil.copytree(ROOT / "sglangctl", folder / "sglangctl")
    (host.root / closed).chmod(0o700)
    for argv in (
        *(["status"], ["status", "tiny"], ["logs", "tiny"], ["journal", "tiny"], ["free", "tiny"]),
        *(["bundle", "tiny"], ["watch", "tiny", "--pid", "1"], ["verify", "tiny"], ["holders"]),
        *(["probe"], ["kernel", "check", "--engine", "tiny"]),
    ):
        done = program(host, *argv, nobody=folder)
        text = done.stdout + done.stderr
        for word in ("Errno", "Traceback", "internal error"):
            assert word not in text, (argv, text)
        reads = {"etc/sglangctl": ("status", "watch", "free"), "var": ("logs", "journal", "bundle")}
        if argv[0] in reads[closed]:
            assert done.returncode == 2 and "run it with sudo" in text, (argv, text)


class FullDisk:
    """os.write that has room again after a while, and cuts the first line short."""

    def __init__(self) -> None:
        self.full = False
        self.cut = False
        self.write = os.write

    def __call__(self, descriptor: int, data: bytes) -> int:
        if not self.full:
            return self.write(descriptor, data)
        if not self.cut:
            self.cut = True
            return self.write(descriptor, data[:10])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_journal_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The watch goes on judging, says so once, and its file can be read afterwards."""
    from sglangctl.startup.fold import Startup
    from sglangctl.watch.recorder import Recorder

    disk = FullDisk()
    monkeypatch.setattr(journal.os, "write", disk)
    lost: list[OSError] = []
    recorder = Recorder(Startup(), journal.Writer(tmp_path / "j"), lost=lost.append)
    recorder.record(0, "launch", port=30000)
    disk.full = True
    recorder.record(5, "log", data="[2026-11-29 15:37:30] Init parallel begin.\n")
    recorder.record(6, "log", data="[2026-11-29 15:37:30] Load weight begin. avail mem=9 GB\n")
    assert recorder.assessment is not None and recorder.assessment.phase == "loading"
    assert len(lost) == 1
    disk.full = False
    recorder.record(7, "log", data="[2026-11-29 15:37:31] something\n")
    recorder.tick(8)
    events = list(journal.read(tmp_path / "j"))
    assert [event["kind"] for event in events][-2:] == ["log", "verdict"]
    assert events[-1]["phase"] == "loading"
