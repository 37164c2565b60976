from __future__ import annotations

import json
import os
import re
import resource
import shutil
import socket
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from sglangctl import cli
from sglangctl.gpu import gpus
from sglangctl.holders import survey
from sglangctl.proc import executable, open_files
from sglangctl.state.config import HostConfig
from tests.support.engine_config import ENGINE
from tests.support.holding import devices, holding

CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")


@pytest.fixture
def prefix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Two devices, no driver, and an inventory that is empty."""
    monkeypatch.setattr(open_files, "DEVICES", devices(tmp_path))
    monkeypatch.setattr(gpus, "read", lambda: gpus.Reading(None, None, "no driver in this test"))
    monkeypatch.setenv("SGLANGCTL_ROOT", str(tmp_path / "root"))
    return open_files.DEVICES


def find(host: HostConfig | None = None) -> list[survey.Holder]:
    return survey.find(ENGINE, host or HostConfig(), [])


def test_a_holder_with_all_that_is_asked_of_it(prefix: str) -> None:
    with holding(prefix, "0,1", ["VLLM::Worker_TP0"]) as child:
        (found,) = find()
        assert (found.pid, found.gpus) == (child.pid, (0, 1))
        assert (found.class_, found.user, found.uid) == ("engine", "root", os.getuid())
        assert found.title == "VLLM::Worker_TP0"
        assert found.command == ("VLLM::Worker_TP0",)
        assert found.memory_mib == {}
        assert found.ppid == os.getpid()
        assert found.session == os.getsid(0)
        assert re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ", found.started)
        document = found.to_json()
        assert document["class"] == "engine"
        assert "class_" not in document
    assert find() == []


def test_memory_of_the_driver_is_added_and_the_device_number_translated(
    prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with holding(prefix, "0", ["a"]) as first, holding(prefix, "", ["b"]) as second:
        gpu = gpus.Gpu(7, "u", "n", "b", "12.0", 1, 2, 3, 4.0, "d", minor=0)
        other = gpus.Gpu(
            8, "u", "n", "b", "12.0", 1, 2, 3, 4.0, "d", ((second.pid, 512), (first.pid, None))
        )
        monkeypatch.setattr(gpus, "read", lambda: gpus.Reading((gpu, other), "nvml"))
        by_pid = {item.pid: item for item in find()}
        assert by_pid[first.pid].gpus == (7, 8)
        assert by_pid[first.pid].memory_mib == {8: None}
        # Memory on it and no device open: seen all the same.
        assert by_pid[second.pid].gpus == (8,)
        assert by_pid[second.pid].memory_mib == {8: 512}


@pytest.mark.parametrize(
    ("opened", "memory", "used"),
    [
        # As counted on two H200s (driver 580): a process with a context on GPU 0, GPU 1 hidden ...
        ({0: 23, 1: 3}, [0], {0}),
        ({0: 3, 1: 7}, [], {1}),  # ... with GPU 1 visible and no context
        ({0: 7, 1: 7}, [], {0, 1}),  # ... with both visible
        ({0: 23, 1: 7, 2: 3}, [0], {0, 1}),
        ({0: 3}, [], {0}),
        ({0: 1, 1: 1}, [1], {0, 1}),
        ({}, [2], {2}),
        ({}, [], set()),
    ],
)
def test_open_is_not_used(opened: dict[int, int], memory: list[int], used: set[int]) -> None:
    assert open_files.used(opened, memory) == used


def test_grep_for_an_engine_is_foreign(prefix: str) -> None:
    with holding(prefix, "0", ["grep", "sglang.launch_server", "-"], "grep"):
        (found,) = find()
        assert found.class_ == "foreign"


def node(path: Path, major: int, minor: int) -> None:
    os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(major, minor))


def opened(path: Path) -> dict[int, int]:
    """What this file is to the scan when a process has it open (without a driver: O_PATH)."""
    descriptor = os.open(path, os.O_PATH)
    child = subprocess.Popen(["cat"], stdin=subprocess.PIPE, pass_fds=[descriptor])
    os.close(descriptor)
    try:
        found = open_files.scan(pids=[child.pid]).found
        return dict(found[child.pid].devices) if found else {}
    finally:
        child.communicate()


def test_a_gpu_is_a_device_of_this_host_and_never_a_path_alone(prefix: str, tmp_path: Path) -> None:
    """In a mount namespace of their own users have any file at /dev/nvidia0."""
    (tmp_path / "nvidiactl").touch()
    assert opened(tmp_path / "nvidiactl") == {}
    (tmp_path / "nvidia7").touch()
    assert opened(tmp_path / "nvidia7") == {}
    assert opened(tmp_path / "nvidia1") == {1: 1}
    # The driver's major number: its minor number decides, and the path may be gone.
    node(tmp_path / "nvidia5", 195, 3)
    assert opened(tmp_path / "nvidia5") == {3: 1}


def test_a_node_of_another_device_at_a_gpu_s_path_is_none(
    prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    node(theirs / "nvidia0", 1, 5)
    look = os.readlink

    def readlink(path: str) -> str:
        """As seen of a process in whose mount namespace `theirs` lies at `tmp_path`."""
        return str(look(path)).replace(f"{theirs}/", f"{tmp_path}/")

    monkeypatch.setattr(os, "readlink", readlink)
    assert opened(theirs / "nvidia0") == {}


def test_who_is_who_by_its_file_and_not_by_its_name(
    prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    system = tmp_path / "usr"
    system.mkdir()
    monkeypatch.setattr(executable, "SYSTEM", (f"{system}/",))
    for name in ("Xorg", "nvidia-smi"):
        shutil.copy("/bin/cat", system / name)
    with holding(prefix, "0", ["Xorg"], str(system / "Xorg")):
        assert find()[0].class_ == "protected"
        os.unlink(system / "Xorg")
        assert find()[0].class_ == "protected", "an update replaces what runs"
    with holding(prefix, "0", ["/usr/lib/xorg/Xorg"]):
        (found,) = find()
        assert (found.class_, "calls itself Xorg" in found.reason) == ("foreign", True)
    os.chmod(system / "nvidia-smi", 0o777)
    with holding(prefix, "0", ["nvidia-smi"], str(system / "nvidia-smi")):
        assert find()[0].class_ == "foreign", "anybody could have written it"
    os.chmod(system / "nvidia-smi", 0o755)
    with holding(prefix, "0", ["nvidia-smi"], str(system / "nvidia-smi")) as child:
        assert executable.of_the_system(child.pid, 1000) == f"{system}/nvidia-smi"
        os.unlink(system / "nvidia-smi")
        assert executable.of_the_system(child.pid, 1000) is None
        shutil.copy("/bin/cat", system / "nvidia-smi")
        assert executable.of_the_system(child.pid, 1000) is None, "a user's mount may say so"


def test_root_s_observer_that_is_a_python_script(
    prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    system = tmp_path / "usr"
    system.mkdir()
    monkeypatch.setattr(executable, "SYSTEM", (f"{system}/",))
    shutil.copy("/bin/cat", system / "python3")
    script = system / "nvitop"
    script.write_text("#!/usr/bin/python3\n")
    # cat copies the script, then waits for its standard input.
    with holding(prefix, "0", ["python3", str(script), "-"], str(system / "python3")):
        (found,) = find()
        assert (found.class_, "nvitop" in found.reason) == ("protected", True)
        script.chmod(0o777)
        assert find()[0].class_ == "foreign", "anybody could have written it"
        script.chmod(0o755)
        monkeypatch.setattr(survey.procfs, "uid", lambda pid: 1000)
        monkeypatch.setattr(executable, "of_the_system", lambda pid, uid: "/usr/bin/python3")
        assert find()[0].class_ == "foreign", "a user writes what they want into argv"


def test_a_zombie_holds_nothing(prefix: str) -> None:
    with holding(prefix, "0", ["x"]) as child:
        os.kill(child.pid, 9)
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # dead, not yet collected
        assert find() == []


def test_whoever_listens_on_a_wanted_port_is_surveyed_too(prefix: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        os.set_inheritable(server.fileno(), True)
        child = subprocess.Popen(
            ["VLLM::APIServer_0"],
            executable="/bin/cat",
            stdin=subprocess.PIPE,
            pass_fds=[server.fileno()],
        )
    try:
        facts = survey.survey([port]).facts
        assert [(item.process.pid, item.ports, item.gpus) for item in facts] == [
            (child.pid, (port,), ())
        ]
        assert find() == []  # a port is no GPU
    finally:
        child.kill()
        child.wait()
        assert child.stdin
        child.stdin.close()


HOSTILE = "VLLM::\x1b]0;owned\x07\x1b[31m\nroot   1  $(touch /tmp/pwned) `id` ‮gnp \x9b2J\r\t;rm"


def test_hostile_names_are_shown_harmlessly(prefix: str, capsys) -> None:
    with holding(prefix, "0", [HOSTILE]):
        assert cli.main(["holders"]) == 0
        shown = capsys.readouterr().out
        assert not CONTROL.search(shown.replace("\n", ""))
        assert "\u202e" not in shown
        # One line for the holder and one for its reason: a name cannot forge a row.
        assert [line for line in shown.splitlines() if line.startswith("root")] == []
        assert "$(touch /tmp/pwned)" in shown
        assert cli.main(["holders", "--json"]) == 0
        text = capsys.readouterr().out
        assert not CONTROL.search(text.rstrip("\n"))
        (found,) = json.loads(text)["holders"]
        assert found["command"] == [HOSTILE]
        assert found["class"] == "engine"


def test_a_command_line_of_100_kb(prefix: str, capsys) -> None:
    long = "x" * 100_000
    with holding(prefix, "0", ["VLLM::" + long]):
        assert cli.main(["holders"]) == 0
        shown = capsys.readouterr().out
        assert max(map(len, shown.splitlines())) <= 160
        assert cli.main(["holders", "--json"]) == 0
        (found,) = json.loads(capsys.readouterr().out)["holders"]
        assert found["command"] == ["VLLM::" + long]
        assert len(found["reason"]) < 200


def test_secrets_of_other_programs_are_not_repeated(prefix: str, tmp_path: Path, capsys) -> None:
    module = tmp_path / "sglang"
    module.mkdir()
    (module / "launch_server.py").write_text("import sys; sys.stdin.read()")
    argv = [sys.executable, "-m", "sglang.launch_server", "--api-key", "hunter2hunter2"]
    argv += ["--hf-token=tok3ntok3n", "HF_TOKEN=abcdabcd", "--max-tokens", "17"]
    old = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = str(tmp_path)
    try:
        context = holding(prefix, "0", argv, sys.executable)
        with context:
            for arguments in (["holders"], ["holders", "--json"]):
                assert cli.main(arguments) == 0
                shown = capsys.readouterr().out
                assert "hunter2" not in shown
                assert "tok3n" not in shown
                assert "abcdabcd" not in shown
            assert '"--max-tokens", "17"' in shown
            assert find()[0].class_ == "engine"
    finally:
        del os.environ["PYTHONPATH"]
        if old is not None:
            os.environ["PYTHONPATH"] = old


def test_the_table_says_why_and_what_is_missing(prefix: str, capsys) -> None:
    with holding(prefix, "0", ["VLLM::Worker"]), holding(prefix, "1", ["other"]):
        assert cli.main(["holders"]) == 0
        shown = capsys.readouterr().out
        assert "GPU statistics unavailable: no driver in this test" in shown
        assert "engine: vLLM, by its title VLLM::Worker" in shown
        assert cli.main(["holders", "--gpu", "1"]) == 0
        shown = capsys.readouterr().out
        assert "VLLM" not in shown
        assert "foreign" in shown
    assert cli.main(["holders", "--json", "--gpu", "5"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "v": 1,
        "holders": [],
        "gpus": None,
        "reason": "no driver in this test",
    }


def test_an_engine_that_is_not_there_and_a_broken_inventory(prefix: str, capsys, tmp_path) -> None:
    assert cli.main(["holders", "--engine", "no\x1bne"]) == 2
    assert "no engine is configured on this host" in capsys.readouterr().err
    (tmp_path / "root/etc/sglangctl/engines").mkdir(parents=True)
    (tmp_path / "root/etc/sglangctl/engines/kimi.json").write_text("{")
    assert cli.main(["holders", "--engine", "no\x1bne"]) == 2
    said = capsys.readouterr()
    assert "kimi.json is not JSON" in said.err and said.out == ""
    folder = tmp_path / "root/etc/sglangctl"
    (folder / "host.json").write_text("{")
    assert cli.main(["holders"]) == 2
    said = capsys.readouterr()
    assert "host.json" in said.err and "kimi.json" in said.err
    assert said.out  # who holds the GPUs is shown all the same


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to become someone else")
def test_without_root_it_counts_what_it_could_not_see(prefix: str, monkeypatch, capsys) -> None:
    child = os.fork()
    if child == 0:
        os.setresuid(65534, 65534, 65534)
        os._exit(0 if open_files.scan().unreadable > 0 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert open_files.scan().unreadable == 0
    monkeypatch.setattr(
        survey, "survey", lambda: survey.Survey((), gpus.Reading((), "nvml"), unreadable=3)
    )
    assert cli.main(["holders"]) == 0
    assert capsys.readouterr().err == (
        "3 processes of other users could not be looked at: run it as root\n"
    )


@pytest.mark.parametrize("others", [0, 5000])
def test_a_process_with_very_many_files_open_costs_others_nothing(
    prefix: str, capsys, monkeypatch: pytest.MonkeyPatch, others: int
) -> None:
    """It is looked at last and for a while; that something may be missing is said."""
    program = (
        "import os, sys; kept = [os.open('/dev/null', 0) for _ in range(int(sys.argv[1]))];"
        f"mine = os.open({prefix + '1'!r}, 0); print(flush=True); sys.stdin.read()"
    )
    with (
        holding(prefix, "0", ["small"]) as small,
        subprocess.Popen(
            [sys.executable, "-c", program, str(others)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (9000, 9000)),
        ) as large,
    ):
        assert large.stdout is not None
        large.stdout.readline()
        pids = [large.pid, small.pid]
        seen = open_files.scan(pids=pids, limit_s=-1.0)
        assert seen.found[small.pid].devices == {0: 1}
        assert seen.unfinished == ((large.pid,) if others else ())
        seen = open_files.scan(pids=pids, limit_s=60.0)
        assert seen.found[large.pid].devices == {1: 1} and not seen.unfinished
        order: list[str] = []
        listed = os.scandir

        def scandir(folder: str) -> object:
            order.append(folder.split("/")[-2])
            return listed(folder)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(open_files.os, "scandir", scandir)
            open_files.scan(pids=pids, limit_s=60.0)
        assert order == [str(large.pid), str(small.pid), *([str(large.pid)] if others else [])]
        look = open_files.scan
        monkeypatch.setattr(open_files, "scan", lambda inodes=(): look(inodes, pids, -1.0))
        assert cli.main(["holders"]) == 0
        assert ("not complete: process" in capsys.readouterr().err) == bool(others)
        large.communicate()


def test_one_gpu_is_shown_alone_and_must_be_there(
    prefix: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # The holders of the others were left out, and the others said "0 holders".
    empty = gpus.Gpu(0, "u", "x", "b", None, None, None, None, None, None)
    two = (replace(empty, minor=0), replace(empty, index=1, minor=1))
    monkeypatch.setattr(gpus, "read", lambda: gpus.Reading(two, "nvml"))
    with holding(prefix, "1", ["a"]):
        assert cli.main(["holders", "--gpu", "0"]) == 0
        text = capsys.readouterr().out
        assert "GPU 1" not in text and "no process holds GPU 0" in text
        assert cli.main(["holders", "--gpu", "1"]) == 0
        assert "GPU 1 x, 1 holder" in capsys.readouterr().out
    assert cli.main(["holders", "--gpu", "7"]) == 2
    assert "no GPU 7; it has: 0, 1" in capsys.readouterr().err
