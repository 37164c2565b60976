from __future__ import annotations

import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from roles.remote import program
from sglangctl import cli, free
from sglangctl.free.model import Plan, UnitStep
from sglangctl.gpu import gpus
from sglangctl.probe import document as probe
from sglangctl.probe import machine
from sglangctl.proc import as_user, membership, open_files, sockets
from sglangctl.proc.membership import Membership
from sglangctl.state import release
from sglangctl.state.journal import Writer
from sglangctl.state.paths import Paths
from sglangctl.systemd import systemctl
from tests.hosts.say import ROOT
from tests.support.engine_config import ENGINE
from tests.support.holding import devices, holding
from tests.support.waiting import until

KIMI = {**asdict(ENGINE), "replaces": ["vllm-kimi.service"]}


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "root"
    folder.mkdir()
    monkeypatch.setattr(open_files, "DEVICES", devices(tmp_path))
    monkeypatch.setattr(gpus, "read", lambda: gpus.Reading(None, None, "no driver in this test"))
    monkeypatch.setattr(systemctl, "booted", lambda: False)
    return folder


def look(root: Path, **request: object) -> probe.Probe:
    return probe.probe(probe.parse_request(json.dumps(request)), Paths(root))


def test_every_part_is_there_or_has_a_reason(root: Path) -> None:
    found = look(root)
    document = probe.as_json(found)
    assert document["v"] == 1
    for name in ("os", "kernel", "python", "memory", "cgroup", "cpus", "listening", "nvcc"):
        assert document[name] is not None or found.reasons[name]
    assert found.gpus is None
    assert found.reasons["gpus"] == "no driver in this test"
    assert found.reasons["systemd"] == "systemd is not the init of this machine"
    assert "program" in found.reasons
    assert found.python == {
        "path": sys.executable,
        "version": ".".join(map(str, sys.version_info[:3])),
    }
    assert found.memory and 0 < found.memory["available_mib"] <= found.memory["total_mib"]
    json.dumps(document)


def test_settings_of_pip_are_read_where_an_environment_is_to_be_made(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    assert look(root).pip_sources is None
    found = look(root, venvs={str(tmp_path / "none"): sys.executable})
    assert "no-index" in (found.pip_sources or ())


def test_a_mount_that_hangs_is_told_of_alone(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def disk(path: str) -> dict[str, str]:
        if path == "/dead":
            signal.pause()
        return {"nearest": path}

    asked: list[float] = []

    def within(limit_s: float, question: Callable[[], Any]) -> Any:
        asked.append(limit_s)
        return as_user.within(0.2, question)

    monkeypatch.setattr(machine, "disk", disk)
    monkeypatch.setattr(probe, "within", within)
    good = {path: {"nearest": path} for path in ("/a", "/b")}
    assert look(root, paths=["/a", "/b"]).disks == good
    assert len(asked) == 1  # one process for all
    found = look(root, paths=["/a", "/dead", "/b"])
    assert found.disks == {**good, "/dead": None}
    assert "no answer within" in found.reasons["disks /dead"]


def test_a_probe_imports_no_more_than_it_uses() -> None:
    """Each of these takes 10 ms, on every host and in every run."""
    parts = ("probe.document", "preflight.before", "free.gather", "switch.cutover_facts")
    script = f"import sys, {', '.join(f'sglangctl.{one}' for one in parts)}; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-S", "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert {"email.parser", "logging", "concurrent.futures"} & set(done.stdout.split()) == set()


def test_files_disks_and_users(root: Path) -> None:
    text = b"NCCL_PROTO=LL\nAPI_KEY=hunter2hunter2\n"
    file = root / "nccl.env"
    file.write_bytes(text)
    digest = hashlib.sha256(text).hexdigest()
    found = look(
        root,
        files={str(file): "0" * 64, str(root): None, "/nonexistent/x": "1" * 64},
        paths=[str(root / "not/yet/made"), "/"],
        users=["root", "nobody-of-that-name"],
    )
    assert found.files[str(file)]["sha256"] == digest
    assert found.files[str(file)]["text"] == "NCCL_PROTO=LL\nAPI_KEY=***\n"
    assert found.files[str(root)]["kind"] == "directory"
    assert found.files["/nonexistent/x"] == {"kind": "absent"}
    disk = found.disks[str(root / "not/yet/made")]
    assert (disk["exists"], disk["nearest"]) == (False, str(root))
    assert disk["free_mib"] > 0
    assert found.disks["/"]["exists"] is True
    assert found.users["root"]["uid"] == 0
    assert found.users["nobody-of-that-name"] is None


def test_distributions_of_a_venv_without_starting_it(root: Path) -> None:
    site = root / "venv/lib/python3.11/site-packages"
    for name in ("sglang-0.5.23.dist-info", "sglang_kernel-0.4.10.dist-info", "nonsense"):
        (site / name).mkdir(parents=True)
    found = look(
        root, dists={str(root / "venv"): ["SGLang", "sglang.kernel", "torch"], "/no/venv": ["x"]}
    )
    assert found.dists[str(root / "venv")] == {
        "SGLang": "0.5.23",
        "sglang.kernel": "0.4.10",
        "torch": None,
    }
    assert found.dists["/no/venv"] is None
    assert found.reasons["dists /no/venv"] == "no such venv"


def test_an_engine_that_is_only_in_the_request(root: Path) -> None:
    """A first dry run on a bare host: nothing is written there yet."""
    prefix = open_files.DEVICES
    with holding(prefix, "1", ["VLLM::Worker"]) as child, holding(prefix, "", ["no holder"]):
        found = look(root, engine_configs=[KIMI], host_config={"v": 1, "protected": ["other"]})
    (held,) = found.holders or []
    assert (held["pid"], held["gpus"], held["class"]) == (child.pid, (1,), "engine")
    assert held["classes"] == {"kimi": {"class": "engine", "reason": held["reason"]}}
    assert found.engines is not None
    kimi = found.engines["kimi"]
    assert kimi["releases"] == {
        "current": None,
        "previous": None,
        "known_good": None,
        "staged": [],
    }
    assert (kimi["unit"], kimi["state"], kimi["last"]) == (None, None, None)
    assert found.reasons["units"] == "systemd is not the init of this machine"


def test_holders_that_are_left_out_are_counted(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "MOST_HOLDERS", 1)
    prefix = open_files.DEVICES
    with holding(prefix, "0", ["one"]):
        found = look(root)
        assert len(found.holders or []) == 1 and "holders" not in found.reasons
        with holding(prefix, "1", ["two"]):
            found = look(root)
    assert len(found.holders or []) == 1 and "2 processes" in found.reasons["holders"]


def test_releases_state_and_last_verdict_of_an_engine(root: Path) -> None:
    paths = Paths(root)
    paths.engines.mkdir(parents=True)
    paths.engine_json("kimi").write_text(json.dumps(KIMI))
    state = paths.engine_state("kimi")
    for digest in ("a" * 64, "b" * 64):
        (paths.releases("kimi") / digest).mkdir(parents=True)
        (paths.releases("kimi") / digest).chmod(release.FOLDER_MODE)
        for file, mode in release.FILES.items():
            (paths.releases("kimi") / digest / file).touch()
            (paths.releases("kimi") / digest / file).chmod(mode)
    (state / "current").symlink_to("releases/" + "b" * 64)
    secret = {"unit": "vllm.service", "sources": {"/etc/vllm.service": "Environment=KEY=hunter2"}}
    paths.state_json("kimi").write_text(
        json.dumps({"v": 1, "phase": "live", "to": "b" * 64, "foreign": [secret]})
    )
    start = paths.starts("kimi") / "20261129T180000Z-abc"
    start.mkdir(parents=True)
    writer = Writer(start / "journal.jsonl")
    writer.write(1.0, "verdict", outcome="serving", phase="serving", cause=None, evidence=[])
    writer.write(2.0, "verdict", outcome="ready", phase="serving", cause=None, evidence=["x"])
    writer.write(3.0, "log", data='{"kind":"verdict","outcome":"failed"}')
    writer.close()
    paths.program_link.parent.mkdir(parents=True)
    paths.program_link.symlink_to("/usr/local/lib/sglangctl/0123456789abcdef.pyz")

    found = look(root)
    assert found.program == "0123456789abcdef"
    kimi = (found.engines or {})["kimi"]
    assert kimi["releases"]["current"] == "b" * 64
    assert kimi["releases"]["staged"] == ["a" * 64, "b" * 64]
    assert kimi["state"]["phase"] == "live"
    assert kimi["state"]["foreign"] == ["vllm.service"]
    assert "hunter2" not in json.dumps(probe.as_json(found))
    assert (kimi["last"]["outcome"], kimi["last"]["t"]) == ("ready", 2.0)


def test_a_broken_configuration_is_a_reason_not_a_failure(root: Path) -> None:
    folder = root / "etc/sglangctl/engines"
    folder.mkdir(parents=True)
    (folder / "kimi.json").write_text("{")
    found = look(root, engine_configs=[KIMI], engines=["kimi", "other"], plan="other")
    assert "kimi.json" in found.reasons["configuration"]
    assert list(found.engines or {}) == ["kimi"]
    assert found.reasons["engines other"] == "not configured on this host"
    assert found.reasons["plans other"] == "not configured on this host"


def test_as_whom_an_engine_runs_now_is_what_the_host_says(root: Path) -> None:
    """Not what is asked for; and one file that is broken hides no other's."""
    folder = root / "etc/sglangctl/engines"
    folder.mkdir(parents=True)
    document = {name: KIMI[name] for name in ("name", "unit", "port", "listen", "model")}
    document |= {"v": 1, "served_name": "kimi", "user": "sglang"}
    (folder / "kimi.json").write_text(json.dumps(document))
    (folder / "broken.json").write_text("{")
    new = {**KIMI, "name": "new", "unit": "sglang-new.service"}
    found = look(root, engine_configs=[{**KIMI, "user": "sglang-kimi"}, new])
    assert found.engines is not None
    assert {name: one["user"] for name, one in found.engines.items()} == {
        "kimi": "sglang",
        "new": None,
    }
    assert "broken.json" in found.reasons["configuration"]


def test_listening_ports_have_their_owners(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A user's own unit, called after one that the engine replaces: it hid that the port is taken.
    theirs = Membership("vllm.service", "user@1000.service", None, None)
    monkeypatch.setattr(membership, "of", lambda *_: theirs)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        os.set_inheritable(server.fileno(), True)
        child = subprocess.Popen(
            ["my\x1bserver"],
            executable="/bin/cat",
            stdin=subprocess.PIPE,
            pass_fds=[server.fileno()],
        )
    try:
        (entry,) = [item for item in look(root).listening or [] if item["port"] == port]
        assert entry["address"] == "127.0.0.1"
        assert [owner["pid"] for owner in entry["owners"]] == [child.pid]
        assert entry["owners"][0]["user"] == "root"
        assert entry["owners"][0]["unit"] == "user@1000.service"
    finally:
        child.kill()
        child.wait()
        assert child.stdin
        child.stdin.close()


def test_a_user_who_listens_100_000_times_does_not_fill_the_answer(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was 23 MB, which the controller refuses: no deploy of the host went on."""
    many = [sockets.Listener(f"127.0.{n >> 8}.{n & 255}", 70, n) for n in range(5000)]
    ours = sockets.Listener("0.0.0.0", KIMI["port"], 9999)
    monkeypatch.setattr(sockets, "listeners", lambda *_, **__: [*many, ours])
    found = look(root, engine_configs=[KIMI])
    assert found.listening and len(found.listening) == 1000
    assert {"address": "0.0.0.0", "port": KIMI["port"], "owners": []} in found.listening
    assert "not complete: 5001" in found.reasons["listening"]
    monkeypatch.setattr(sockets, "listeners", lambda *_, **__: [*many[:999], ours])
    found = look(root, engine_configs=[KIMI])
    assert len(found.listening or []) == 1000 and "listening" not in found.reasons


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "not JSON"),
        ("[]", "not an object"),
        ('{"fiels": {}}', "unknown key 'fiels'"),
        ('{"files": []}', "'files' has the wrong type"),
        ('{"engine_configs": [1]}', "not an object"),
        ('{"engine_configs": [{"name": "x"}]}', "missing"),
        ('{"host_config": {"color": 1}}', "unknown keys color"),
    ],
)
def test_a_request_that_cannot_be_understood(text: str, said: str, capsys) -> None:
    assert cli.main(["probe", "--request", text]) == 2
    assert said in capsys.readouterr().err


def test_cgroup_versions(tmp_path: Path) -> None:
    assert machine.cgroup_version(str(tmp_path)) is None
    (tmp_path / "memory").mkdir()
    assert machine.cgroup_version(str(tmp_path)) == "v1"
    (tmp_path / "unified").mkdir()
    (tmp_path / "unified/cgroup.controllers").touch()
    assert machine.cgroup_version(str(tmp_path)) == "hybrid"
    (tmp_path / "cgroup.controllers").touch()
    assert machine.cgroup_version(str(tmp_path)) == "v2"


def test_the_same_program_from_standard_input_writes_nothing(tmp_path: Path) -> None:
    """As on a host without it: the loader on standard input, arguments after the dash."""
    request = json.dumps({"engine_configs": [KIMI], "users": ["root"], "plan": ["kimi"]})
    done = subprocess.run(
        [sys.executable, "-I", "-", "probe", "--request", request],
        input=program.loader(),
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "HOME": str(tmp_path), "TMPDIR": str(tmp_path)},
    )
    assert done.stderr == ""
    assert done.returncode == 0
    document = json.loads(done.stdout)
    assert document["v"] == 1
    assert list(document["engines"]) == ["kimi"]
    assert document["users"]["root"]["uid"] == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.getuid() != 0, reason="reads /proc/PID/syscall")
@pytest.mark.parametrize("how", ["deleted", "replaced"])
def test_an_upgrade_while_it_runs_does_not_break_its_next_import(tmp_path: Path, how: str) -> None:
    installed, link = tmp_path / "1.pyz", tmp_path / "sglangctl"
    installed.write_bytes(program.archive())
    link.symlink_to(installed)
    running = subprocess.Popen(
        [sys.executable, "-I", "-S", str(link), "probe", "--request", "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    # Most of it is imported only once the request has been read: wait for read(0, ...).
    syscall = Path(f"/proc/{running.pid}/syscall")
    until(lambda: syscall.read_text().split()[:2] == ["0", "0x0"])
    if how == "deleted":
        installed.unlink()
    else:
        link.unlink()
        link.write_bytes(b"#!/bin/sh\necho another version\n")
    said, complaint = running.communicate('{"users": ["root"], "plan": []}', timeout=60)
    assert complaint == ""
    assert running.returncode == 0
    assert json.loads(said)["users"]["root"]["uid"] == 0


def test_a_file_system_that_counts_no_inodes_is_not_out_of_them(tmp_path: Path) -> None:
    """btrfs says 0 of 0, as /proc does."""
    assert machine.disk("/proc")["free_inodes"] is None
    assert machine.disk(str(tmp_path))["free_inodes"] > 0


def test_the_gate_is_looked_for_in_the_venv_of_the_release_that_is_planned(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of every engine, also of one whose kernel nobody looks after (`device: cpu`)."""
    unit = KIMI["unit"]
    step = UnitStep(unit, "ours", "itself", "active", "enabled", False, (7,), (), "no", "")
    made = Plan("kimi", "declared", True, (0,), units_to_stop=(step,))
    monkeypatch.setattr(free, "plan", lambda *_, **__: made)
    (root / "v/bin").mkdir(parents=True)
    asked = {"engine_configs": [KIMI], "plan": ["kimi"]}
    without = look(root, **asked, environments={"kimi": "/v"}).plans["kimi"]["cutover"]
    assert without["kind"] == "plain" and "has no gate" in without["reason"]
    unknown = look(root, **asked, environments={"kimi": "/other"}).plans["kimi"]["cutover"]
    assert "has no gate" not in unknown["reason"]
