"""The readiness role and the operator's commands against a stand-in engine and the real watch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.container.engine_unit import EngineUnit, poll
from tests.hosts.host import Host

pytestmark = [pytest.mark.container, pytest.mark.timeout(300)]

CHECKOUT = Path(__file__).parents[2]
DEPLOY = Path(__file__).parent / "follow" / "serving.py"
KEY = "planted-key-in-the-open"


@dataclass
class Done:
    status: int
    text: str
    report: dict[str, Any]

    @property
    def engine(self) -> dict[str, Any]:
        (found,) = self.report["engines"]
        return dict(found)


def follow(host: Host, folder: Path, **environment: str) -> Done:
    data = {
        "ssh_user": "root",
        "ssh_key": str(host.ssh_key),
        "ssh_known_hosts_file": str(host.known_hosts),
    }
    (folder / "inventory.py").write_text(f"hosts = [({host.ip!r}, {data!r})]\n")
    done = subprocess.run(
        [*(sys.executable, "-m", "pyinfra", str(folder / "inventory.py")), str(DEPLOY), "-y"],
        cwd=CHECKOUT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=200,
        env={
            **os.environ,
            "PYTHONPATH": str(CHECKOUT),
            "SGLANG_REPORTS": str(folder / "reports"),
            **environment,
        },
    )
    text = done.stdout + done.stderr
    files = sorted((folder / "reports").glob("*/report.json"))
    assert files, text
    (report,) = json.loads(files[-1].read_text())["report"]
    return Done(done.returncode, text, report)


def sglangctl(host: Host, *argv: str) -> subprocess.CompletedProcess[str]:
    return host.exec("sglangctl", *argv, check=False)


def test_a_good_start_and_what_the_operator_sees(
    host: Host, engine: EngineUnit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEST_KEY", KEY)
    engine.configure(standin={"START_S": 4}, api_key={"env": "TEST_KEY"}, listen="0.0.0.0")
    engine.start()
    done = follow(host, tmp_path)
    assert done.status == 0, done.text
    assert "tiny: ready since " in done.text and "tokens/s, first token after" in done.text
    assert done.engine["outcome"] == "ready"
    assert 1 < done.engine["served_after_s"] < 60
    assert {"importing", "loading"} <= set(done.engine["phases"])
    assert sum(done.engine["phases"].values()) == pytest.approx(
        done.engine["served_after_s"], abs=1
    )

    shown = sglangctl(host, "status")
    assert shown.returncode == 0, shown.stdout
    assert shown.stdout.splitlines()[1].startswith("tiny    ready  ")
    (one,) = json.loads(sglangctl(host, "status", "tiny", "--json").stdout)["status"]
    assert one["active"] == "active" and one["watch"] == "active"
    (note,) = one["notes"]  # the drop-in of these tests
    assert note.startswith(f"drop-ins change {engine.unit}: ")
    log = sglangctl(host, "logs", "tiny", "-n", "1000").stdout
    assert "server_args=" in log and KEY not in log and "***" in log
    assert host.exec("grep", "-c", KEY, engine.log).stdout.strip() != "0"
    events = sglangctl(host, "journal", "tiny").stdout.splitlines()
    assert json.loads(events[0])["kind"] == "launch" and KEY not in "".join(events)

    bundle = sglangctl(host, "bundle", "tiny", "-o", "/tmp/b.tar.gz")
    assert bundle.returncode == 0, bundle.stderr
    subprocess.run(["docker", "cp", f"{host.name}:/tmp/b.tar.gz", str(tmp_path)], check=True)
    with tarfile.open(tmp_path / "b.tar.gz") as archive:
        files = {
            member.name.partition("/")[2]: archive.extractfile(member).read().decode()  # type: ignore[union-attr]
            for member in archive.getmembers()
        }
    assert not [name for name, text in files.items() if KEY in text]
    assert {"status.json", "engine.log", "units.txt", "processes.txt", "nvidia-smi-q.txt"} <= set(
        files
    ), files["MANIFEST.json"]
    assert "sglang::scheduler" in files["processes.txt"]
    assert "sglang==0.5.23" in files["versions.json"]
    assert json.loads(files["status.json"])["status"][0]["outcome"] == "ready"

    again = follow(host, tmp_path, TEST_PROVED="1")
    assert again.status == 0 and again.engine["outcome"] == "ready", again.text


def test_clients_reach_it_or_not(host: Host, engine: EngineUnit, tmp_path: Path) -> None:
    engine.configure(standin={"START_S": 1}, listen="127.0.0.1")
    engine.start()
    done = follow(host, tmp_path, TEST_REACHABLE_AT=f"http://{host.ip}:{engine.port}")
    assert done.status == 1 and "cannot be reached from here" in done.text
    assert done.engine["outcome"] == "ready" and done.engine["reachable"] is False


def test_a_rank_that_dies_while_loading(host: Host, engine: EngineUnit, tmp_path: Path) -> None:
    engine.configure(standin={"LOADING_S": 30}, unit_lines="[Service]\nRestart=no\n")
    engine.start()
    killer = subprocess.Popen(
        [
            *("docker", "exec", host.name, "sh", "-c"),
            # Seen by the watch as what it is first: it looks once a second.
            "until pgrep -f '^sglang::scheduler'; do sleep 0.2; done; sleep 4;"
            " pkill -KILL -f '^sglang::scheduler'",
        ]
    )
    done = follow(host, tmp_path)
    killer.wait(30)
    assert done.status == 1, done.text
    assert done.engine["outcome"] == "failed" and done.engine["cause"] == "rank-died", done.text
    assert "next step: " in done.text and "sglangctl bundle tiny" in done.text
    shown = sglangctl(host, "status", "tiny")
    assert shown.returncode == 1 and "rank-died: " in shown.stdout, shown.stdout


def test_without_a_watch(host: Host, engine: EngineUnit, tmp_path: Path) -> None:
    engine.configure(standin={"START_S": 2})
    host.exec("systemctl", "mask", "--runtime", "sglang-watch@tiny.service")
    try:
        engine.start()
        done = follow(host, tmp_path)
    finally:
        host.exec("systemctl", "unmask", "--runtime", "sglang-watch@tiny.service")
    assert done.status == 0, done.text
    assert "no journal of this start" in done.text
    assert done.engine["outcome"] == "ready" and done.engine["phases"] == {}
    assert sglangctl(host, "status", "tiny").returncode == 2


def test_a_local_user_on_the_engine_s_port_never_gets_the_api_key(
    host: Host, engine: EngineUnit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """He listens while the engine loads, is asked by the watch, by verify and by a deploy, and says
    back what he got as his models."""
    monkeypatch.setenv("TEST_KEY", KEY)
    engine.limits = {**engine.limits, "port_held_s": 300}  # else the start is given up
    engine.configure(standin={"LOADING_S": 60}, api_key={"env": "TEST_KEY"}, listen="0.0.0.0")
    host.exec("sh", "-c", "id bob 2>/dev/null || useradd --system bob")
    host.copy_in(CHECKOUT / "tests/support/stranger.py", "/opt/stranger.py")
    record = "/tmp/of-bob"
    engine.start()
    engine.until_phase("loading")  # before that a taken port ends the start
    host.exec(
        *("systemd-run", "--quiet", "--unit=stranger", "--uid=bob", "--"),
        *("python3", "/opt/stranger.py", "0.0.0.0", str(engine.port), record),
    )
    try:
        assert poll(lambda: not host.exec("test", "-s", record, check=False).returncode, 30)
        said = [sglangctl(host, "verify", "tiny", *more) for more in ((), ("--json",))]
        done = follow(host, tmp_path, TEST_PROVED="1")
        asked = host.exec("cat", record).stdout
        journal = sglangctl(host, "journal", "tiny").stdout
    finally:
        host.exec("systemctl", "stop", "stranger", check=False)
    assert asked.count("GET /health") > 4 and "GET /v1/models" in asked
    assert [one.returncode for one in said] == [1, 1]
    assert "belongs to another process" in said[0].stdout
    assert done.status == 1 and "belongs to another process" in done.text
    shown = [one.stdout + one.stderr for one in said]
    for text in (asked, journal, *shown, done.text, json.dumps(done.report)):
        assert KEY not in text
