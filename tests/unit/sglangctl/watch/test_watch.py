from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from sglangctl.engine.run import Run
from sglangctl.proc import procfs
from sglangctl.state import journal, starts
from sglangctl.state.config import load_engine
from sglangctl.state.paths import Paths
from sglangctl.watch import start_folder
from sglangctl.watch.service import Watch
from tests.support import waiting
from tests.support.engine_host import log_of, write_config
from tests.support.tiny_engine import running

TINY = (sys.executable, "-m", "tests.support.tiny_engine")


@pytest.fixture
def root(root: Path) -> Path:
    release = root / "var/lib/sglangctl/tiny/current"
    release.mkdir(parents=True)
    (release / "engine.yaml").write_text('api-key: "sk-planted"\n')
    (release / "nccl.env").write_text('NCCL_PROTO="LL"\nHF_TOKEN="hf_planted"\n')
    return root


@contextmanager
def watching(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-m", "sglangctl", "watch", "tiny", *arguments],
        stderr=subprocess.PIPE,
        text=True,
    ) as watch:
        try:
            yield watch
        finally:
            # Its engine is a session of its own and survives it, as it should; not this test, though.
            engines = children(watch.pid)
            watch.kill()
            for engine in engines:
                with suppress(ProcessLookupError):
                    os.killpg(engine, signal.SIGKILL)


def children(pid: int) -> list[int]:
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []


def file_of(root: Path) -> Path:
    return root / "var/lib/sglangctl/tiny/starts/latest/journal.jsonl"


def events(root: Path, kind: str | None = None) -> list[dict[str, Any]]:
    try:
        return [event for event in journal.read(file_of(root)) if kind in (None, event["kind"])]
    except FileNotFoundError:
        return []


def until(root: Path, outcome: str, seconds: float = 30.0) -> dict[str, Any]:
    """The first verdict with this outcome."""

    def found() -> dict[str, Any] | None:
        verdicts = events(root, "verdict")
        return next((event for event in verdicts if event["outcome"] == outcome), None)

    return waiting.until(found, seconds, every_s=0.1)  # type: ignore[return-value]


def seen(root: Path, kind: str, words: str = "") -> dict[str, Any]:
    """The first event of this kind with these words in it."""

    def found() -> dict[str, Any] | None:
        return next((one for one in events(root, kind) if words in one.get("data", "")), None)

    return waiting.until(found, every_s=0.1)  # type: ignore[return-value]


def child_of(group: int, title: str) -> int:
    for pid in procfs.pids():
        found = procfs.stat(pid)
        if found and found.pgid == group and procfs.cmdline(pid) == [title]:
            return pid
    raise AssertionError(f"no {title}")


def test_a_good_start_is_ready_and_no_secret_is_kept(root: Path, port: int) -> None:
    with watching("--", *TINY, "--port", str(port), "--load-s", "0.5") as watch:
        ready = until(root, "ready")
        assert ready["phase"] == "serving"
        watch.terminate()
        assert watch.wait(15) == 0
    kinds = [event["kind"] for event in events(root)]
    assert kinds[0] == "launch"
    for kind in ("log", "process", "socket", "http", "generate"):
        assert kind in kinds
    assert kinds.index("exit") > kinds.index("generate")
    assert events(root, "exit")[0]["returncode"] == 0
    assert events(root, "verdict")[-1]["cause"] == "killed"  # ended from outside, and said so
    times = [event["t"] for event in events(root)]
    assert times == sorted(times)
    launch = events(root, "launch")[0]
    assert launch["v"] == 1 and launch["served_name"] == "tiny" and launch["port"] == port
    assert launch["env"] == {"NCCL_PROTO": "LL", "HF_TOKEN": "***"}
    socket = [event for event in events(root, "socket") if event.get("ours")]
    assert socket and socket[-1]["port"] == port
    generate = events(root, "generate")[0]
    assert generate["text_ok"] is True and generate["tokens"] == 5 and generate["ttft_s"] >= 0
    text = file_of(root).read_text()
    assert "planted" not in text and "***" in text  # it was in the log: 'api_key': 'sk-planted'


def test_a_key_on_the_command_line_is_not_kept_either(root: Path, port: int) -> None:
    with watching("--", *TINY, "--port", str(port), "--api-key", "sk-on-argv-0123") as watch:
        until(root, "serving")
        watch.terminate()
        watch.wait(15)
    text = file_of(root).read_text()
    assert "sk-on-argv" not in text
    assert events(root, "launch")[0]["argv"][-2:] == ["--api-key", "***"]


def test_a_key_on_the_command_line_is_known_before_proc_shows_it(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Right after exec, and when the command has ended, /proc/PID/cmdline is empty."""
    monkeypatch.setattr(procfs, "cmdline", lambda pid: [])
    paths = Paths(root)
    program = "import sys; print('I was given', sys.argv[2])"
    argv = [sys.executable, "-c", program, "--api-key", "sk-on-argv-0123"]
    watch = Watch(load_engine("tiny", paths), paths, log_of(root))
    assert watch.command(argv) == 0
    text = file_of(root).read_text()
    assert "I was given ***" in text and "sk-on-argv" not in text


def test_who_may_read_it(root: Path, port: int) -> None:
    with watching("--", *TINY, "--port", str(port)):
        until(root, "serving")
        file = file_of(root)
        assert stat.S_IMODE(file.stat().st_mode) == 0o640
        assert stat.S_IMODE(file.parent.resolve().stat().st_mode) == 0o750
        assert stat.S_IMODE(file.parent.parent.stat().st_mode) == 0o750
        name = os.readlink(file.parent)
        assert starts.names(file.parent.parent) == [name]


def test_a_failed_start_has_its_cause_and_the_command_s_status(root: Path, port: int) -> None:
    line = "RuntimeError: model.safetensors.index.json references 1 shard file(s) missing from /m"
    with watching("--", *TINY, "--port", str(port), "--fail", line) as watch:
        assert watch.wait(20) == 1
    verdict = events(root, "verdict")[-1]
    assert (verdict["outcome"], verdict["cause"]) == ("failed", "weights-missing")
    exit_event = events(root, "exit")[0]
    assert exit_event["returncode"] == 1
    assert verdict["t"] - exit_event["t"] <= 2.0


@pytest.mark.parametrize(
    "title",
    ["sglang::scheduler_TP1", pytest.param("sglang::detokenizer", marks=pytest.mark.slow)],
)
def test_a_killed_child_is_failed_within_two_seconds(root: Path, port: int, title: str) -> None:
    log = log_of(root)
    with running(port, "--ranks", "2", log=log) as engine, watching("--pid", str(engine.pid)) as w:
        until(root, "ready")
        os.kill(child_of(engine.pid, title), signal.SIGKILL)
        killed = time.monotonic()
        engine.wait(20)
        assert w.wait(20) == 1
        assert time.monotonic() - killed < 15
    shown = next(
        event["t"]
        for event in events(root)
        if (event["kind"] == "log" and "crashed with exit code" in event["data"])
        or event["kind"] == "exit"
    )
    failed = until(root, "failed", 1)
    assert -3.0 <= failed["t"] - shown <= 2.0
    assert failed["cause"] == "rank-died"


@pytest.mark.slow
def test_a_stopped_rank_is_named_and_comes_back(root: Path, port: int) -> None:
    log = log_of(root)
    with running(port, "--ranks", "2", log=log) as engine, watching("--pid", str(engine.pid)):
        until(root, "ready")
        pid = child_of(engine.pid, "sglang::scheduler_TP1")
        os.kill(pid, signal.SIGSTOP)
        verdict = until(root, "unresponsive")
        assert verdict["cause"] == "rank-stopped"
        assert any("sglang::scheduler_TP1" in line for line in verdict["evidence"])
        seen = next(
            event["t"]
            for event in events(root, "process")
            if any(entry["state"] == "T" for entry in event["processes"])
        )
        assert verdict["t"] - seen <= 5.0
        os.kill(pid, signal.SIGCONT)
        waiting.until(lambda: events(root, "verdict")[-1]["outcome"] in ("ready", "serving"))


@pytest.mark.slow
def test_a_hang_that_no_process_shows(root: Path, port: int) -> None:
    log = log_of(root)
    with running(port, log=log) as engine, watching("--pid", str(engine.pid)):
        ready = until(root, "ready")
        os.kill(engine.pid, signal.SIGUSR1)
        verdict = until(root, "unresponsive")
        last_good = max(event["t"] for event in events(root, "http") if event["status"] == 200)
        # Limits here: 3 s idle, 2 s for a probe, 0.5 s between probes; five times that at most.
        assert 2.0 <= verdict["t"] - last_good <= 15.0
        assert verdict["t"] > ready["t"]


@pytest.mark.slow
def test_a_watch_that_is_killed_goes_on_where_it_was(root: Path, port: int) -> None:
    log = log_of(root)
    with running(port, "--load-s", "1.5", log=log) as engine:
        with watching("--pid", str(engine.pid)):
            seen(root, "log")
        with watching("--pid", str(engine.pid)):
            until(root, "ready")
            seen(root, "log", "ready to roll")
            folder = file_of(root).parent.parent
            assert len(starts.names(folder)) == 1
    whole = "".join(event["data"] for event in events(root, "log"))
    assert whole.count("Load weight begin") == 1
    assert whole.count("Uvicorn running on") == 1
    assert len(events(root, "launch")) == 1


@pytest.mark.slow
def test_two_watches_of_one_engine(root: Path, port: int) -> None:
    with running(port) as engine, watching("--pid", str(engine.pid)):
        until(root, "serving")
        with watching("--pid", str(engine.pid)) as second:
            assert second.wait(15) == 2
            assert second.stderr is not None
            assert "another watch" in second.stderr.read()


@pytest.mark.slow
def test_what_ready_asks_may_change_while_it_serves(root: Path, port: int) -> None:
    """A deploy with another `expect` restarts nothing: the watch proves by what is asked now."""

    def asked(expect: str) -> None:
        write_config(root, port, readiness={"expect": expect})
        file = root / "etc/sglangctl/engines/tiny.json"
        os.utime(file, (time.time() - 20 - len(expect), time.time() - 20 - len(expect)))

    def waited_for(outcome: str) -> dict[str, Any]:
        waiting.until(lambda: events(root, "verdict")[-1]["outcome"] == outcome, every_s=0.1)
        return events(root, "verdict")[-1]

    with running(port, log=log_of(root)) as engine, watching("--pid", str(engine.pid)):
        until(root, "ready")
        asked("a word that no answer has")
        said = waited_for("serving")
        assert any("does not contain 'a word that" in line for line in said["evidence"])
        asked("Paris")
        waited_for("ready")
    proofs = events(root, "generate")
    assert [event["text_ok"] for event in proofs] == [True, False, True]
    assert len({event["asked"] for event in proofs}) == 3


@pytest.mark.slow
def test_log_missing_unreadable_or_strange_does_not_matter(root: Path, port: int) -> None:
    log = log_of(root)
    os.mkfifo(log)  # opening it would block for ever
    with running(port) as engine, watching("--pid", str(engine.pid)):
        assert until(root, "ready")["outcome"] == "ready"
        log.unlink()
        with open(log, "wb") as file:
            file.write(b"\xff\xfe\0" * 30_000 + b"\n" + b"x" * 700_000 + b"\nlater\n")
        seen(root, "log", "later")


@pytest.mark.slow
def test_while_it_serves_only_changes_are_written(root: Path, port: int) -> None:
    write_config(root, port, limits={"sample_s": 0.1, "probe_serving_s": 0.2})
    log = log_of(root)
    with running(port, log=log) as engine, watching("--pid", str(engine.pid)):
        until(root, "ready")
        time.sleep(0.5)  # the last changes of its start
        before = len(events(root))
        with open(log, "a") as file:
            for number in range(2000):
                file.write(f"[2026-01-01 00:00:00] Decode batch, #running-req: 1, n: {number}\n")
                file.write(
                    '[2026-01-01 00:00:00] INFO: 1.2.3.4:5 - "GET /health HTTP/1.1" 200 OK\n'
                )
        time.sleep(0.8)  # six looks at its processes and four questions, and none of them is news
        calm = events(root)[before:]
        assert len(calm) <= 3, [event["kind"] for event in calm]
        with open(log, "a") as file:
            file.write("[2026-01-01 00:00:00] something new\n")
        seen(root, "log", "something new")


@pytest.mark.slow
def test_an_engine_without_a_file_needs_port_and_model(root: Path, port: int) -> None:
    (root / "etc/sglangctl/engines/tiny.json").unlink()
    with watching("--", *TINY, "--port", str(port)) as watch:
        assert watch.wait(10) == 2
    with watching("--port", str(port), "--model", "tiny", "--", *TINY, "--port", str(port)):
        assert until(root, "ready")


def test_cannot_watch(root: Path) -> None:
    with watching("--pid", "4194300") as watch:
        assert watch.wait(10) == 2
    with watching("--", "/does/not/exist") as watch:
        assert watch.wait(10) == 2
        assert watch.stderr is not None
        assert "cannot be started" in watch.stderr.read()


def test_twenty_starts_or_64_mib_are_kept(root: Path) -> None:
    folder = root / "var/lib/sglangctl/tiny/starts"
    for number in range(25):
        start = folder / f"20250101T0000{number:02d}.000Z-{number:032x}"
        start.mkdir(parents=True)
        (start / "journal.jsonl").write_text("{}\n")
    from sglangctl.state.config import load_engine
    from sglangctl.state.paths import Paths

    def opened(number: int) -> list[str]:
        run = Run(f"{number:032x}", os.getpid(), time.monotonic())
        _, writer, resumed = start_folder.open_start(load_engine("tiny"), Paths(), run)
        writer.close()
        assert not resumed
        return starts.names(folder)

    names = opened(100)
    assert len(names) == 20
    assert names[-1].endswith(f"{100:032x}") and os.readlink(folder / "latest") == names[-1]
    assert names[0].startswith("20250101T000006")
    with open(folder / names[-2] / "journal.jsonl", "wb") as file:
        file.truncate(63 << 20)
    with open(folder / names[-3] / "journal.jsonl", "wb") as file:
        file.truncate(2 << 20)
    assert len(opened(101)) == 3  # the new one, the one before, and the one of 63 MiB


@pytest.mark.slow
@pytest.mark.parametrize(
    "piece", ['{"choices": 5}', '{"usage": {"completion_tokens": 1%s}}' % ("0" * 400)]
)
def test_an_odd_answer_is_a_fault_and_the_watch_goes_on(root: Path, port: int, piece: str) -> None:
    with watching("--", *TINY, "--port", str(port), "--piece", piece) as watch:
        assert seen(root, "generate")["text_ok"] is False
        until(root, "serving")
        watch.terminate()
        assert watch.wait(15) == 0


def broken_watch(defect: str, *arguments: str) -> list[str]:
    """A watch with a defect, planted by a line of Python."""
    lines = [
        "import sys",
        "from sglangctl.engine import http as http_probe; from sglangctl.watch import collect, follow_run",
        "from sglangctl.cli import main",
        "def broken(*words, **more): raise TypeError('planted')",
        defect,
        f"sys.exit(main(['watch', 'tiny', *{arguments!r}]))",
    ]
    return [sys.executable, "-c", "\n".join(lines)]


def test_a_defect_in_a_question_does_not_end_the_watch(root: Path, port: int) -> None:
    with running(port, log=log_of(root)) as engine:
        planted = "collect.gather = collect.gpus.read = broken"
        command = broken_watch(planted, "--pid", str(engine.pid))
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as watch:
            try:
                said = seen(root, "generate")
                assert (said["status"], said["text_ok"]) == (None, False)
                assert "TypeError: planted" in said["fault"]
                with open(log_of(root), "a") as log:
                    log.write("said after the defect\n")
                seen(root, "log", "said after the defect")
            finally:
                watch.kill()
            assert "continues after an internal error: TypeError: planted" in watch.communicate()[1]


def test_a_watch_that_cannot_go_on_ends_the_command_that_it_started(root: Path, port: int) -> None:
    command = broken_watch(
        "follow_run.Follow.until = broken", "--", *TINY, "--port", str(port), "--load-s", "60"
    )
    done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert done.returncode == 2 and "planted" in done.stderr
    left = [pid for pid in procfs.pids() if str(port) in procfs.cmdline(pid)]
    assert not left


def test_which_runs_are_later_ones(root: Path, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mark in the log ends a dead engine's words only if such a run of its unit began since."""
    from sglangctl.state.config import load_engine
    from sglangctl.state.paths import Paths
    from sglangctl.systemd import unit_run
    from sglangctl.watch.follow_run import Follow
    from sglangctl.watch.logtail import Logtail

    ids = [character * 32 for character in "abcd"]
    monkeypatch.setattr(unit_run, "invocation", lambda name: ids[3])
    config, paths = load_engine("tiny"), Paths()
    tails = []
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
        for number, run_id in enumerate(ids[:3]):
            run = Run(run_id, process.pid, time.monotonic() + number, folder=root)
            tails.append(Logtail(log_of(root)))
            Follow(config, paths, run, tails[-1], False).close()
    later = tails[1]._later
    assert later is not None and later() == {ids[2], ids[3]}
    monkeypatch.setattr(unit_run, "invocation", lambda name: ids[1])
    assert later() == {ids[2]}


def test_a_configuration_of_before_the_clock_was_put_back_is_read(
    root: Path, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sglangctl.state.config import load_engine
    from sglangctl.state.paths import Paths
    from sglangctl.watch import follow_run
    from sglangctl.watch.logtail import Logtail

    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
        run = Run("a" * 32, process.pid, time.monotonic(), folder=root)
        follow = follow_run.Follow(load_engine("tiny"), Paths(), run, Logtail(log_of(root)), False)
        anew: list[str] = []
        monkeypatch.setattr(
            follow._collection, "ask_anew", lambda readiness: anew.append(readiness.expect)
        )
        file = root / "etc/sglangctl/engines/tiny.json"
        for word, seconds in (("just now", -1), ("future", 86400), ("calm", -60)):
            write_config(root, port, readiness={"expect": word})
            os.utime(file, (time.time() + seconds, time.time() + seconds))
            follow._prove_anew()
        follow.close()
    assert anew == ["future", "calm"]


def test_cudas_pipes_of_ended_processes_go_at_the_beginning_and_at_the_end_of_a_run(
    root: Path, port: int, tmp_path: Path
) -> None:
    from sglangctl.state.config import load_engine
    from sglangctl.state.paths import Paths
    from sglangctl.watch.follow_run import Follow
    from sglangctl.watch.logtail import Logtail

    def killed() -> Path:
        child = subprocess.Popen(["true"])
        child.wait()
        os.mkfifo(cache / f"corepipe.cuda.h.{child.pid}")
        return cache / f"corepipe.cuda.h.{child.pid}"

    cache = tmp_path / "cache"
    cache.mkdir()
    before = killed()
    release = Paths().current("tiny")
    release.mkdir(parents=True, exist_ok=True)
    (release / "engine.env").write_text(f'HOME="{cache}"\n')
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:  # not there yet
        theirs = Run("b" * 32, process.pid, time.monotonic())
        Follow(load_engine("tiny"), Paths(), theirs, Logtail(log_of(root)), False).close()
        assert before.exists()  # no unit of ours
        run = Run("a" * 32, process.pid, time.monotonic(), folder=root)
        follow = Follow(load_engine("tiny"), Paths(), run, Logtail(log_of(root)), False)
        assert not before.exists()
        during = killed()
    follow.finish(0)
    follow.close()
    assert not during.exists()


@pytest.mark.slow
def test_status_goes_to_systemd(root: Path, port: int, tmp_path: Path) -> None:
    import socket

    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as inbox:
        inbox.bind(str(tmp_path / "notify"))
        inbox.settimeout(20)
        os.environ["NOTIFY_SOCKET"] = str(tmp_path / "notify")
        try:
            with running(port) as engine, watching("--pid", str(engine.pid)):
                said = ""
                while "ready" not in said:
                    said = inbox.recv(4096).decode()
        finally:
            del os.environ["NOTIFY_SOCKET"]
    assert said == "STATUS=tiny: ready, phase serving"


def test_journal_is_json_lines(root: Path, port: int) -> None:
    with watching("--", *TINY, "--port", str(port), "--fail", "x") as watch:
        watch.wait(20)
    for line in file_of(root).read_bytes().splitlines():
        assert isinstance(json.loads(line), dict)
