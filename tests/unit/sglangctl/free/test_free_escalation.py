"""The escalation on real processes of this machine, with files as devices and no systemd."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from sglangctl import cli, free
from sglangctl.free import leftovers, settling
from sglangctl.free.segments import Segment
from sglangctl.gpu import gpus
from sglangctl.proc import executable, open_files, pidfds
from sglangctl.state import lock
from sglangctl.state.config import HostConfig, Limits
from sglangctl.state.paths import Paths
from sglangctl.systemd import systemctl
from sglangctl.util import heartbeat
from tests.support.clock import Clock
from tests.support.engine_config import ENGINE
from tests.support.holding import devices, holding
from tests.support.tools import leave_out
from tests.support.waiting import until

LIMITS = Limits(term_s=0.6, kill_s=3.0, devices_s=2.0, respawn_s=0.2)
KIMI = replace(ENGINE, limits=LIMITS)

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="freeing needs root")


@pytest.fixture
def prefix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(open_files, "DEVICES", devices(tmp_path))
    monkeypatch.setattr(gpus, "read", lambda: gpus.Reading(None, None, "no driver in this test"))
    monkeypatch.setattr(systemctl, "booted", lambda: False)
    monkeypatch.setenv("SGLANGCTL_ROOT", str(tmp_path / "root"))
    return open_files.DEVICES


class Journal:
    """Collects what is said and what is written."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.events: list[dict[str, Any]] = []

    def emit(self, kind: str, **facts: Any) -> None:
        self.events.append(json.loads(json.dumps({"kind": kind, **facts})))

    def signals(self) -> list[tuple[int, str]]:
        return [(e["pid"], e["signal"]) for e in self.events if e["kind"] == "signal"]


def run(policy: str = "engines", **change: Any) -> tuple[free.FreeResult, Journal]:
    journal = Journal()
    plan = free.plan(replace(KIMI, **change), HostConfig(), [], policy=policy)
    return free.execute(plan, journal.lines.append, journal.emit), journal


def test_an_engine_that_ends_at_sigterm(prefix: str) -> None:
    with holding(prefix, "0", ["VLLM::Worker"]) as child:
        result, journal = run()
        assert result.ok and result.verdict == "free"
        assert child.wait(1) == -signal.SIGTERM
        assert journal.signals() == [(child.pid, "SIGTERM")]
        assert [(one.pid, one.how, one.title) for one in result.ended] == [
            (child.pid, "SIGTERM", "VLLM::Worker")
        ]
        assert journal.lines[0] == f"SIGTERM to {child.pid}"
        assert "all GPUs of kimi: free (1 process ended" in journal.lines[-1]
        (held,) = [event for event in journal.events if event["kind"] == "holder"]
        assert (held["pid"], held["class"], held["gpus"]) == (child.pid, "engine", [0])


def test_one_that_ignores_sigterm_is_killed_after_its_limit(prefix: str) -> None:
    with holding(prefix, "0", ["sglang::scheduler"], ignore_term=True) as child:
        began = time.monotonic()
        result, journal = run()
        assert result.ok
        assert child.wait(1) == -signal.SIGKILL
        assert journal.signals() == [(child.pid, "SIGTERM"), (child.pid, "SIGKILL")]
        assert time.monotonic() - began >= LIMITS.term_s
        assert [one.how for one in result.ended] == ["SIGKILL"]


@pytest.mark.slow
def test_a_wait_for_processes_and_for_gpus_is_not_silent(
    prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heartbeat, "BEAT_S", 0.1)
    began = time.monotonic()

    def read() -> gpus.Reading:
        used = 76000 if time.monotonic() - began < LIMITS.term_s + 0.5 else 3
        gpu = gpus.Gpu(0, "u", "n", "b", "12.0", used, 97887, 0, 30.0, "580", minor=0)
        return gpus.Reading((gpu,), "nvml")

    monkeypatch.setattr(gpus, "read", read)
    with holding(prefix, "0", ["sglang::scheduler"], ignore_term=True):
        result, journal = run()
    assert result.ok
    waits = [line for line in journal.lines if line.startswith("waiting for ")]
    assert "waiting for 1 process to end: 0 s of at most 1 s" in waits
    assert any(line.startswith("waiting for all GPUs of kimi to become free: ") for line in waits)
    assert all(line.endswith((" of at most 1 s", " of at most 2 s")) for line in waits)


def test_a_stopped_process_ends_at_sigterm_too(prefix: str) -> None:
    with holding(prefix, "0", ["VLLM::EngineCore"]) as child:
        child.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, child.pid, os.WSTOPPED)
        result, _ = run()
        assert result.ok
        assert child.wait(1) == -signal.SIGTERM


def test_refusal_changes_nothing(prefix: str) -> None:
    with (
        holding(prefix, "0", ["VLLM::Worker"]) as engine,
        holding(prefix, "0", ["grep", "sglang.launch_server", "-"], "grep") as foreign,
    ):
        result, journal = run(policy="engines")
        assert (result.status, result.verdict) == (3, "refused")
        assert str(foreign.pid) in result.sentence and "--policy all" in result.sentence
        assert journal.signals() == []
        assert engine.poll() is None and foreign.poll() is None
        result, _ = run(policy="declared")
        assert result.status == 3
        assert engine.poll() is None
        result, _ = run(policy="all")
        assert result.ok
        assert engine.wait(1) == foreign.wait(1) == -signal.SIGTERM


def test_protected_and_other_gpus_are_left_alone(
    prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executable, "SYSTEM", (f"{tmp_path}/",))
    shutil.copy("/bin/cat", tmp_path / "Xorg")
    with (
        holding(prefix, "0", ["/usr/lib/xorg/Xorg"], str(tmp_path / "Xorg")) as desktop,
        holding(prefix, "1", ["VLLM::Worker"]) as other,
    ):
        result, journal = run(policy="all", gpus=(0,))
        assert result.ok
        assert journal.signals() == []
        assert desktop.poll() is None and other.poll() is None


RESPAWNER = """
import subprocess, sys
while True:
    device = open(sys.argv[1])
    subprocess.run(["VLLM::Worker"], executable="/bin/cat",
                   stdin=sys.stdin, pass_fds=[device.fileno()])
    device.close()
"""


def test_one_that_is_started_again_is_named_with_its_parent(prefix: str, tmp_path: Path) -> None:
    script = tmp_path / "keep-alive.py"
    script.write_text(RESPAWNER)
    parent = subprocess.Popen(
        [sys.executable, script.name, prefix + "1"], stdin=subprocess.PIPE, cwd=tmp_path
    )
    try:
        wanted = replace(KIMI, gpus=(1,))
        until(lambda: len(free.plan(wanted, HostConfig(), []).refused) >= 2)
        # The parent has the device open as well; protect it, to look at the child alone.
        comm = Path(f"/proc/{parent.pid}/comm").read_text().strip()
        plan = free.plan(wanted, HostConfig(protected=(comm,)), [], policy="engines")
        result = free.execute(plan, lambda line: None)
        assert (result.status, result.verdict) == (1, "respawned")
        assert "VLLM::Worker is back as" in result.sentence
        assert f"its parent {parent.pid}" in result.sentence
        assert "keep-alive.py" in result.sentence
    finally:
        parent.kill()
        parent.wait()
        assert parent.stdin
        parent.stdin.close()


def test_memory_that_nobody_holds_needs_a_person(prefix: str, monkeypatch) -> None:
    gpu = gpus.Gpu(0, "u", "n", "b", "12.0", 76000, 97887, 0, 30.0, "580", minor=0)
    monkeypatch.setattr(gpus, "read", lambda: gpus.Reading((gpu,), "nvml"))
    monkeypatch.setattr(settling, "time", clock := Clock())
    with holding(prefix, "0", ["VLLM::Worker"]):
        result, _ = run()
    assert (result.status, result.verdict) == (1, "memory-without-holder")
    assert "GPU 0 has 76000 MiB in use and no process" in result.sentence
    assert LIMITS.devices_s <= clock.now < LIMITS.devices_s + 1


def test_a_wedged_gpu_is_said_after_three_seconds_not_after_a_minute(prefix: str, monkeypatch):
    gpu = gpus.Gpu(0, "u", "n", "b", "12.0", 900, 97887, 100, 110.0, "580", (), 600.0, 0)
    monkeypatch.setattr(gpus, "read", lambda: gpus.Reading((gpu,), "nvml"))
    monkeypatch.setattr(settling, "time", clock := Clock())
    result, _ = run(limits=replace(LIMITS, devices_s=60.0))
    assert (result.status, result.verdict) == (1, "wedged")
    assert "killing more processes cannot help" in result.sentence
    assert 3 <= clock.now < 5


def test_memory_that_comes_free_late_is_waited_for(prefix: str, monkeypatch) -> None:
    monkeypatch.setattr(settling, "time", clock := Clock())

    def read() -> gpus.Reading:
        used = 76000 if clock.now < 1.0 else 3
        gpu = gpus.Gpu(0, "u", "n", "b", "12.0", used, 97887, 0, 30.0, "580", minor=0)
        return gpus.Reading((gpu,), "nvml")

    monkeypatch.setattr(gpus, "read", read)
    # Its own process is not listed, so that the plan cannot tell whose memory it is.
    with holding(prefix, "0", ["VLLM::Worker"]):
        result, _ = run()
    assert result.ok
    assert 1.0 <= clock.now < 2


def test_another_process_with_the_same_pid_is_not_touched(prefix: str) -> None:
    with holding(prefix, "0", ["VLLM::Worker"]) as child:
        plan = free.plan(KIMI, HostConfig(), [], policy="engines")
        (item,) = plan.processes_to_end
        for changed in (replace(item, start=item.start - 1), replace(item, inode=item.inode + 1)):
            journal = Journal()
            result = free.execute(
                replace(plan, processes_to_end=(changed,), limits=replace(LIMITS, devices_s=0.2)),
                journal.lines.append,
                journal.emit,
            )
            assert journal.signals() == []
            assert child.poll() is None
            assert not result.ok  # it still uses the GPU


def test_a_frozen_process_is_recognised_and_a_foreign_frozen_group_left_frozen(prefix: str) -> None:
    from sglangctl.proc import freezer

    folder = Path("/sys/fs/cgroup/freezer")
    if not (folder / "cgroup.procs").exists() or not os.access(folder, os.W_OK):
        pytest.skip("no cgroup v1 freezer: a machine with cgroup v2 alone has none")
    group = folder / f"sglangctl-test-{os.getpid()}"
    group.mkdir()
    try:
        with holding(prefix, "0", ["VLLM::A"]) as first, holding(prefix, "", ["B"]) as second:
            try:
                for child in (first, second):
                    (group / "cgroup.procs").write_text(str(child.pid))
                (group / "freezer.state").write_text("FROZEN")
                assert freezer.frozen(first.pid)
                # The second one was not killed: thawing would let it go on.
                assert not freezer.thaw(first.pid, {first.pid})
                assert freezer.frozen(first.pid)
            finally:
                (group / "freezer.state").write_text("THAWED")
        with holding(prefix, "0", ["VLLM::A"]) as alone:
            (group / "cgroup.procs").write_text(str(alone.pid))
            (group / "freezer.state").write_text("FROZEN")
            result, journal = run()
            assert result.ok
            assert any("thawed the frozen cgroup" in line for line in journal.lines)
            assert alone.wait(1) in (-signal.SIGKILL, -signal.SIGTERM)
    finally:
        # A cgroup goes once the kernel has buried its last process.
        until(lambda: not (group / "cgroup.procs").read_text())
        group.rmdir()


SHM = """
import mmap, os, sys
from pathlib import Path
path = "/dev/shm/" + sys.argv[2]
with open(path, "w+b") as file:
    file.truncate(4096)
    area = mmap.mmap(file.fileno(), 4096)
device = open(sys.argv[1])
print("ready", flush=True)
sys.stdin.read()
"""


def test_shared_memory_of_the_dead_is_removed_and_others_is_not(
    prefix: str, tmp_path: Path
) -> None:
    package = tmp_path / "sglang"
    package.mkdir()
    (package / "launch_server.py").write_text(SHM)
    names = [f"sglangctl-test-{os.getpid()}-{letter}" for letter in "ab"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    children = []
    other = Path("/dev/shm") / f"sglangctl-test-{os.getpid()}-other"
    other.write_bytes(b"x")
    try:
        for number, name in enumerate(names):
            argv = [sys.executable, "-m", "sglang.launch_server", f"{prefix}{number}", name]
            child = subprocess.Popen(
                argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
            )
            children.append(child)
            assert child.stdout and child.stdout.readline() == b"ready\n"
        # The second one maps the first one's segment as well, and lives on.
        result, _ = run(gpus=(0,))
        assert result.ok
        (left,) = result.leftovers
        assert (left.kind, left.what, left.removed) == ("shm", f"/dev/shm/{names[0]}", True)
        assert not Path(left.what).exists()
        assert Path("/dev/shm", names[1]).exists()
        assert other.exists()
    finally:
        for child in children:
            child.kill()
            child.wait()
            for stream in (child.stdin, child.stdout):
                assert stream
                stream.close()
        other.unlink()
        for name in names:
            Path("/dev/shm", name).unlink(missing_ok=True)


def test_a_segment_that_someone_else_maps_stays(tmp_path: Path) -> None:
    segment = Path("/dev/shm") / f"sglangctl-test-{os.getpid()}"
    segment.write_bytes(b"x")
    status = segment.stat()
    theirs = Segment(segment.name, status.st_dev, status.st_ino)
    belongings = leftovers.Belongings(segments={theirs})
    try:
        with open(segment):
            (left,) = leftovers.remove(belongings)
            assert not left.removed and f"in use by {os.getpid()}" in left.reason
        # Another file by the same name is not theirs.
        other = leftovers.Belongings(segments={replace(theirs, inode=theirs.inode + 1)})
        assert leftovers.remove(other) == []
        (left,) = leftovers.remove(belongings)
        assert left.removed and not segment.exists()
    finally:
        segment.unlink(missing_ok=True)


def test_jit_locks_only_when_nobody_holds_them_and_of_that_user(tmp_path: Path) -> None:
    cache = tmp_path / "home/.cache/flashinfer/0.6/120a/cached_ops"
    for name in ("stale", "held", "foreign"):
        (cache / name).mkdir(parents=True)
        (cache / name / "lock").touch()
    (cache / "stale/kernel.lock").touch()  # of flock: not judged here
    os.chown(cache / "foreign/lock", 65534, 65534)
    caches = leftovers.caches_of({"HOME": str(tmp_path / "home")})
    assert caches == [str(tmp_path / "home/.cache/flashinfer")]
    belongings = leftovers.Belongings(caches={(cache, 0) for cache in caches})
    with open(cache / "held/lock"):
        found = {Path(item.what).parent.name: item for item in leftovers.remove(belongings)}
        assert (cache / "held/lock").exists() and not (cache / "stale/lock").exists()
    assert {name: item.removed for name, item in found.items()} == {
        "stale": True,
        "held": False,
        "foreign": False,
    }
    # The cache that another user's process named: root's lock in it is none of theirs.
    (cache / "stale/lock").touch()
    others = leftovers.Belongings(caches={(caches[0], 1000)})
    assert not any(item.removed for item in leftovers.remove(others))
    assert any(item.removed for item in leftovers.remove(belongings))
    assert not (cache / "stale/lock").exists()
    assert (cache / "foreign/lock").exists()
    assert (cache / "stale/kernel.lock").exists()


@pytest.fixture
def configured(prefix: str, tmp_path: Path) -> Path:
    folder = tmp_path / "root/etc/sglangctl/engines"
    folder.mkdir(parents=True)
    (folder / "kimi.json").write_text(json.dumps(asdict(KIMI)))
    return tmp_path / "root"


def test_the_command_dry_run_refusal_and_success(prefix: str, configured: Path, capsys) -> None:
    with holding(prefix, "0", ["VLLM::Worker"]) as child:
        assert cli.main(["free", "kimi", "--dry-run"]) == 3
        shown = capsys.readouterr().out
        assert "allowed by: on the host: sglangctl free kimi --policy engines" in shown
        assert "nothing to go back to" in shown
        assert cli.main(["free", "kimi", "--dry-run", "--policy", "engines", "--json"]) == 0
        document = json.loads(capsys.readouterr().out)
        assert document["v"] == 1
        assert document["free"]["result"] is None
        assert [one["pid"] for one in document["free"]["plan"]["processes_to_end"]] == [child.pid]
        assert not (configured / "var").exists()  # a dry run writes nothing
        with lock.locked(Paths(configured), "kimi", "switch of kimi to release 0123456789ab"):
            assert cli.main(["free", "kimi", "--policy", "engines"]) == 1
        assert "a switch of kimi to release 0123456789ab runs" in capsys.readouterr().err
        assert child.poll() is None
        assert cli.main(["free", "kimi"]) == 3
        assert child.poll() is None
        assert "nothing was changed" in capsys.readouterr().err
        assert cli.main(["free", "kimi", "--policy", "engines", "--json"]) == 0
        result = json.loads(capsys.readouterr().out)["free"]["result"]
        assert [one["pid"] for one in result["ended"]] == [child.pid]
        assert child.wait(1) == -signal.SIGTERM
    journals = sorted((configured / "var/lib/sglangctl/kimi/frees").iterdir())
    events = [json.loads(line) for file in journals for line in file.read_text().splitlines()]
    assert {event["kind"] for event in events} >= {"holder", "signal", "step"}
    assert events[-1]["verdict"] == "free"
    assert cli.main(["free", "other"]) == 2
    assert "there is no engine other on this host" in capsys.readouterr().err


def test_without_root_it_says_so_and_does_nothing(prefix: str) -> None:
    with holding(prefix, "0", ["VLLM::Worker"]) as child:
        plan = free.plan(KIMI, HostConfig(), [], policy="engines")
        pid = os.fork()
        if pid == 0:
            os.setresuid(65534, 65534, 65534)
            result = free.execute(plan, lambda line: None)
            os._exit(7 if result.status == 1 and "needs root" in result.sentence else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
        assert child.poll() is None


@pytest.mark.slow
def test_two_hundred_rounds_of_pid_reuse_kill_no_innocent() -> None:
    """In a pid namespace of its own: the holder exits while it is being freed, and its pid is
    taken by somebody else."""
    script = Path(__file__).parents[3] / "support/pid_reuse.py"
    command = ["unshare", "--pid", "--fork", "--mount-proc", sys.executable, str(script), "200"]
    if subprocess.run([*command[:4], "true"], capture_output=True).returncode:
        leave_out("cannot make a pid namespace here")
    environment = {**os.environ, "PYTHONPATH": str(Path(free.__file__).parents[2])}
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, env=environment)
    assert done.returncode == 0, done.stderr
    counted = json.loads(done.stdout)
    assert counted["rounds"] == 200
    assert counted["innocents_killed"] == 0
    # The race was really run: the pid was reused nearly always, and often before the signal.
    assert counted["reused"] >= 190
    assert counted["signalled_too_late"] >= 50
    assert counted["ended_by_us"] >= 50


def test_a_pidfd_is_of_the_process_that_was_compared() -> None:
    child = subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE)
    identity = pidfds.identify(child.pid)
    assert identity is not None and pidfds.same(identity)
    target = pidfds.Target(identity)
    child.kill()
    child.wait()
    assert target.gone() and target.send(signal.SIGKILL) is None
    assert not pidfds.same(identity)
    target.close()
    assert pidfds.Target(identity).gone()
    assert child.stdin
    child.stdin.close()
