"""The link to a host breaks while its engine starts: noticed, made again, nothing lost.

Plain hosts with a journal that is written by hand: no engine is needed for this.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from roles.remote import program
from tests.container.conftest import HostFactory
from tests.hosts.host import Host
from tests.support.waiting import until

pytestmark = [pytest.mark.container, pytest.mark.timeout(420)]

CHECKOUT = Path(__file__).parents[2]
HERE = Path(__file__).parent / "follow"
SECONDS = 45
NOTICED_S = 20.0
UNIT = "[Service]\nType=exec\nExecStart=/bin/sleep infinity\n"
WATCH = "[Service]\nType=exec\nExecStart=/usr/bin/python3 /opt/journal_writer.py {seconds}\n"
CONFIG = {
    **{"v": 1, "name": "demo", "unit": "sglang-demo.service", "user": "root", "port": 30000},
    **{"listen": "127.0.0.1", "model": "/models/demo", "served_name": "demo-model"},
}


def prepared(host: Host, seconds: int = SECONDS) -> Host:
    host.copy_in(program.archive(), program.path(), mode=0o755)
    host.exec("ln", "-sfn", program.path(), program.LINK)
    host.copy_in(json.dumps(CONFIG).encode(), "/etc/sglangctl/engines/demo.json")
    host.copy_in(HERE / "journal_writer.py", "/opt/journal_writer.py")
    host.copy_in(UNIT.encode(), "/etc/systemd/system/sglang-demo.service")
    watch = WATCH.format(seconds=seconds)
    host.copy_in(watch.encode(), "/etc/systemd/system/sglang-watch@.service")
    host.exec("systemctl", "daemon-reload")
    return host


class Run:
    """One pyinfra run over some hosts; lines come with the seconds at which they were printed."""

    def __init__(self, folder: Path, hosts: dict[str, Host], **environment: str) -> None:
        entries = [
            (
                host.ip,
                {
                    # One of them as on a cloud image: a user with sudo.
                    "ssh_user": "debian" if name == "steady" else "root",
                    "needs_sudo": name == "steady",
                    "ssh_key": str(host.ssh_key),
                    "ssh_known_hosts_file": str(host.known_hosts),
                },
            )
            for name, host in hosts.items()
        ]
        folder.mkdir(exist_ok=True)
        (folder / "inventory.py").write_text(f"hosts = {entries!r}\n")
        self.folder = folder
        self.lines: list[tuple[float, str]] = []
        self.began = time.monotonic()
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "pyinfra", str(folder / "inventory.py")),
                *(str(HERE / "deploy.py"), "-y"),
            ],
            cwd=CHECKOUT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            env={
                **os.environ,
                "TEST_FOLDER": str(folder),
                "SGLANG_REPORTS": str(folder / "reports"),
                "PYTHONPATH": str(CHECKOUT),
                **environment,
            },
        )
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append((time.monotonic() - self.began, line.rstrip()))

    def elapsed(self) -> float:
        return time.monotonic() - self.began

    def wait_for(self, host: Host, text: str, timeout_s: float = 60.0) -> float:
        """When the host's line with `text` was printed."""
        end = time.monotonic() + timeout_s
        while time.monotonic() < end:
            for when, line in list(self.lines):
                if f"[{host.ip}]" in line and text in line:
                    return when
            if self.process.poll() is not None and not self.reader.is_alive():
                break
            time.sleep(0.05)
        raise AssertionError(f"no line {text!r} of {host.name} in:\n{self.text()}")

    def end(self, timeout_s: float = 180.0) -> int:
        try:
            status = self.process.wait(timeout_s)
        finally:
            self.process.kill()
        self.reader.join(10)
        return status

    def text(self) -> str:
        return "\n".join(f"{when:7.2f} {line}" for when, line in self.lines)

    def arrived(self, host: Host) -> list[str]:
        document = json.loads((self.folder / f"{host.ip}.json").read_text())
        assert document["word"] == "served"
        return list(document["arrived"])

    def report(self) -> dict[str, dict[str, object]]:
        (file,) = (self.folder / "reports").glob("*/report.json")
        document = json.loads(file.read_text())
        assert document["v"] == 1
        return {host["host"]: host for host in document["report"]}


def start(*hosts: Host) -> None:
    for host in hosts:
        host.exec("systemctl", "start", "sglang-demo.service", "sglang-watch@demo.service")


def complete(host: Host) -> list[str]:
    """What the journal holds, as `arrived` writes it down."""
    text = host.exec("sh", "-c", "cat /var/lib/sglangctl/demo/starts/*/journal.jsonl").stdout
    events = [json.loads(line) for line in text.splitlines()]
    return [f"{event['kind']} {event.get('data', '')}".strip() for event in events]


def kill_sshd_session(host: Host) -> None:
    """The processes that serve our connections, not the listener."""
    host.exec("pkill", "-KILL", "-f", "^sshd: root")


def silence(host: Host) -> Callable[[], object]:
    """Packets of ssh vanish both ways; returns what lets them through again."""
    rules = (("INPUT", "--dport"), ("OUTPUT", "--sport"))
    for chain, port in rules:
        host.exec("iptables", "-I", chain, "-p", "tcp", port, "22", "-j", "DROP")
    return lambda: [
        host.exec("iptables", "-D", chain, "-p", "tcp", port, "22", "-j", "DROP")
        for chain, port in rules
    ]


def docker(*argv: str) -> None:
    """Tried again where it fails: on a busy machine the freezer gives up before all have stopped."""
    command = ["docker", *argv]  # what it complains of is in the test's output
    until(lambda: subprocess.run(command, stdout=subprocess.DEVNULL, timeout=60).returncode == 0)


@pytest.fixture
def stopped_at_the_end() -> Iterator[list[Run]]:
    runs: list[Run] = []
    yield runs
    for run in runs:
        run.process.kill()
        run.process.wait()


def test_links_break_and_nothing_is_lost_or_repeated(
    host_factory: HostFactory, tmp_path: Path, stopped_at_the_end: list[Run]
) -> None:
    names = ("steady", "killed", "silent", "frozen")
    hosts = {name: prepared(host_factory(name)) for name in names}
    start(*hosts.values())
    run = Run(tmp_path, hosts)
    stopped_at_the_end.append(run)
    for host in hosts.values():
        run.wait_for(host, "demo")

    cut: dict[str, float] = {"killed": run.elapsed()}
    kill_sshd_session(hosts["killed"])
    cut["silent"] = run.elapsed()
    heard_again = silence(hosts["silent"])
    cut["frozen"] = run.elapsed()
    docker("pause", hosts["frozen"].name)
    try:
        noticed = {name: run.wait_for(hosts[name], "link lost", 40) for name in cut}
    finally:
        docker("unpause", hosts["frozen"].name)
        heard_again()
    assert run.end() == 0, run.text()

    for name, host in hosts.items():
        assert run.arrived(host) == complete(host), name
        assert sum(line.startswith("log line") for line in complete(host)) == 10 * SECONDS
    print({name: f"noticed after {at - cut[name]:.1f} s" for name, at in noticed.items()})
    for name, at in noticed.items():
        assert 0 <= at - cut[name] <= NOTICED_S, (name, at - cut[name], run.text())
        run.wait_for(hosts[name], "link is back")
    assert not any("link lost" in line for _, line in run.lines if hosts["steady"].ip in line)
    steady = [when for when, line in run.lines if f"[{hosts['steady'].ip}]" in line]
    assert max(b - a for a, b in zip(steady, steady[1:], strict=False)) < 15, run.text()


def test_a_link_that_dies_under_a_long_command(
    host_factory: HostFactory, tmp_path: Path, stopped_at_the_end: list[Run]
) -> None:
    host = host_factory("slow")
    run = Run(tmp_path, {"slow": host}, TEST_SLOW="1")
    stopped_at_the_end.append(run)
    run.wait_for(host, "a long command")
    time.sleep(2)
    cut = run.elapsed()
    heard_again = silence(host)
    noticed = run.wait_for(host, "link lost", 60)
    heard_again()
    assert noticed - cut <= NOTICED_S, run.text()
    assert run.end() == 0, run.text()
    assert json.loads((tmp_path / f"{host.ip}.json").read_text()) == ["done"]


def test_a_host_that_stays_away_fails_alone(
    host_factory: HostFactory, tmp_path: Path, stopped_at_the_end: list[Run]
) -> None:
    hosts = {name: prepared(host_factory(name), seconds=20) for name in ("steady", "gone")}
    start(*hosts.values())
    run = Run(tmp_path, hosts, TEST_GIVE_UP_S="5")
    stopped_at_the_end.append(run)
    run.wait_for(hosts["gone"], "demo")
    silence(hosts["gone"])
    run.wait_for(hosts["gone"], "link lost", 40)
    said = run.wait_for(hosts["gone"], "the host cannot be reached for", 60)
    assert said < run.elapsed() + 1
    assert run.end() == 1, run.text()
    assert run.arrived(hosts["steady"]) == complete(hosts["steady"])
    report = run.report()
    assert report[hosts["steady"].ip]["outcome"] == "ok"
    gone = report[hosts["gone"].ip]
    assert gone["outcome"] == "failed"
    assert re.search("cannot be reached.*the work continues there", str(gone["messages"]))


def test_ctrl_c_leaves_the_work_running(
    host_factory: HostFactory, tmp_path: Path, stopped_at_the_end: list[Run]
) -> None:
    hosts = {name: prepared(host_factory(name)) for name in ("one", "two")}
    start(*hosts.values())
    run = Run(tmp_path, hosts)
    stopped_at_the_end.append(run)
    for host in hosts.values():
        run.wait_for(host, "demo")
    before = len(complete(hosts["one"]))
    run.process.send_signal(signal.SIGINT)
    pressed = run.elapsed()
    assert run.end(15) == 1, run.text()
    assert run.elapsed() - pressed < 10
    for host in hosts.values():
        run.wait_for(host, "interrupted: the work continues on the host")
        host.exec("systemctl", "is-active", "sglang-demo.service", "sglang-watch@demo.service")
        assert "interrupted" in str(run.report()[host.ip]["messages"])
    assert len(complete(hosts["one"])) > before


def test_a_start_is_followed_through_the_docker_connector(
    host_factory: HostFactory, tmp_path: Path, stopped_at_the_end: list[Run]
) -> None:
    host = prepared(host_factory("docker"), seconds=6)
    start(host)
    (tmp_path / "inventory.py").write_text(f"hosts = ['@docker/{host.name}']\n")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pyinfra", str(tmp_path / "inventory.py")),
            *(str(HERE / "deploy.py"), "-y"),
        ],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        timeout=90,
        env={
            **os.environ,
            "TEST_FOLDER": str(tmp_path),
            "SGLANG_REPORTS": str(tmp_path / "reports"),
            "PYTHONPATH": str(CHECKOUT),
        },
    )
    assert done.returncode == 0, done.stderr
    document = json.loads((tmp_path / f"{host.name}.json").read_text())
    assert document["word"] == "served" and document["arrived"] == complete(host)
