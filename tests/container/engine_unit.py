"""One engine as a systemd unit in a container host, put there by hand: the files of a release as
roles.inventory renders them, the watch's unit, sglangctl, and a venv with the stand-in engine.

For tests of what runs on the host; the deploy has tests of its own.
"""

from __future__ import annotations

import base64
import io
import json
import tarfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from roles.inventory import render
from roles.inventory.load import load_inventory
from roles.remote import program
from sglangctl.state import journal
from sglangctl.state.release import FILES
from tests.hosts.host import Host
from tests.hosts.standins.install import install_into

Event = dict[str, Any]
VENV = "/opt/sglang/venvs/standin"
USER = "sglang"
"""Made here, not by a deploy; so it is named in the inventory."""
STANDIN_ENV = "/etc/standins/sglang.env"


def put(host: Host, files: dict[str, tuple[int, bytes]]) -> None:
    """Write files (path -> mode, content) on a host."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for path, (mode, content) in files.items():
            entry = tarfile.TarInfo(path.lstrip("/"))
            entry.size, entry.mode, entry.mtime = len(content), mode, int(time.time())
            archive.addfile(entry, io.BytesIO(content))
    text = base64.b64encode(buffer.getvalue()).decode()
    host.exec("sh", "-c", "base64 -d | tar -xzf - -C / --no-same-owner", input=text)


def prepare(host: Host) -> None:
    """Once a host: stand-ins, the engine's venv and user, sglangctl."""
    install_into(host, gpus=2)
    host.exec("sh", "-c", f"id {USER} >/dev/null 2>&1 || useradd --system --user-group {USER}")
    host.exec("python3", "-m", "venv", VENV)
    host.exec(
        f"{VENV}/bin/pip", "install", "--quiet", "--no-index",
        "--find-links", "/opt/standins/wheels", "sglang==0.5.23",
    )  # fmt: skip
    put(host, {program.path(): (0o755, program.archive())})
    host.exec("ln", "-sfn", program.path(), program.LINK)


class EngineUnit:
    """`sglang-NAME.service` on a prepared host."""

    kind = "standin"
    venv = VENV
    model = "/models/tiny"
    flags: Mapping[str, Any] = {"device": "cpu"}
    limits: Mapping[str, float] = {}
    patience = 1.0
    """How much longer than the stand-in this engine takes for everything."""

    def __init__(self, host: Host, folder: Path, name: str = "tiny", port: int = 8000) -> None:
        self.host, self.folder, self.name, self.port = host, folder, name, port
        self.unit = f"sglang-{name}.service"
        self.state = f"/var/lib/sglangctl/{name}"
        self.log = f"/var/log/sglang/{name}/engine.log"

    def configure(
        self,
        flags: dict[str, Any] | None = None,
        limits: dict[str, float] | None = None,
        standin: dict[str, Any] | None = None,
        unit_lines: str = "",
        raw_flags: str = "",
        **engine: Any,
    ) -> None:
        """Put a release of this description live; nothing is started.

        `raw_flags`: lines for engine.yaml that the inventory would refuse.
        """
        description: dict[str, Any] = {
            "model": {"path": self.model, "served_name": "tiny"},
            "port": self.port,
            "user": USER,
            "flags": {**self.flags, **(flags or {})},
            **engine,
        }
        readiness = {**description.get("readiness", {})}
        readiness["limits"] = {**readiness.get("limits", {}), **self.limits, **(limits or {})}
        description["readiness"] = readiness
        inventory = {
            "engines": {self.name: description},
            "hosts": {"h": {"engines": {self.name: {}}}},
        }
        path = self.folder / "inventory.yml"
        path.write_text(yaml.safe_dump(inventory))
        loaded = load_inventory(path)
        entry = loaded.hosts[0]
        spec = entry.spec.engines[0]
        release = render.render(spec, venv=self.venv)
        folder = f"{self.state}/releases/{release.digest}"
        files = {
            f"{folder}/{name}": (FILES[name], content) for name, content in release.files.items()
        }
        mode, content = files[f"{folder}/engine.yaml"]
        files[f"{folder}/engine.yaml"] = (mode, content + raw_flags.encode())
        files[f"/etc/systemd/system/{self.unit}"] = (0o644, release.files["sglang.service"])
        files["/etc/systemd/system/sglang-watch@.service"] = (
            0o644,
            render.unit_of_ours("sglang-watch@.service", program.path()),
        )
        files[f"/etc/tmpfiles.d/sglang-{self.name}.conf"] = (0o644, render.tmpfiles(spec))
        files[f"/etc/sglangctl/engines/{self.name}.json"] = (0o644, render.engine_json(spec))
        dropin = f"/etc/systemd/system/{self.unit}.d/test.conf"
        files[dropin] = (0o644, unit_lines.encode())
        settings = "".join(f"STANDIN_{key}={value}\n" for key, value in (standin or {}).items())
        files[STANDIN_ENV] = (0o644, settings.encode())
        put(self.host, files)
        script = (
            f"systemd-tmpfiles --create /etc/tmpfiles.d/sglang-{self.name}.conf && "
            f"chgrp {USER} {folder}/engine.yaml {folder}/engine.env && "
            f"ln -sfn releases/{release.digest} {self.state}/current && "
            f"rm -rf {self.state}/starts/* && : > {self.log} && chgrp {USER} {self.log} && "
            "systemctl daemon-reload"
        )
        self.host.exec("sh", "-c", script)

    def start(self) -> None:
        self.host.exec("systemctl", "start", "--no-block", self.unit)

    def stop(self) -> None:
        """Stop engine and watch, and forget failures and starts."""
        self.host.exec("systemctl", "stop", self.unit, f"sglang-watch@{self.name}", timeout=180)
        self.host.exec("systemctl", "reset-failed", check=False)

    def events(self, start: str = "latest") -> list[Event]:
        """The journal of a start; empty when there is none."""
        done = self.host.exec("cat", f"{self.state}/starts/{start}/journal.jsonl", check=False)
        return list(journal.events(done.stdout.splitlines()))

    def starts(self) -> list[str]:
        done = self.host.exec("ls", f"{self.state}/starts", check=False)
        return sorted(name for name in done.stdout.split() if name != "latest")

    def verdicts(self) -> list[Event]:
        return [event for event in self.events() if event["kind"] == "verdict"]

    def until(self, outcome: str, seconds: float = 60.0) -> Event:
        """The first verdict with this outcome; an error with what was said instead."""
        said: list[Any] = []

        def found() -> Event | None:
            verdicts = self.verdicts()
            said[:] = [(item["t"], item["phase"], item["outcome"]) for item in verdicts]
            return next((item for item in verdicts if item["outcome"] == outcome), None)

        event = poll(found, seconds * self.patience)
        assert event is not None, f"no {outcome}: {said}\n{self.tail()}"
        return event

    def until_phase(self, phase: str, seconds: float = 60.0) -> None:
        assert poll(
            lambda: any(item["phase"] == phase for item in self.verdicts()),
            seconds * self.patience,
        ), self.tail()

    def pid(self, title: str) -> int:
        """The process with this title in the last look at them."""
        for event in reversed(self.events()):
            for process in event.get("processes", []):
                if process["name"].startswith(title):
                    return int(process["pid"])
        raise AssertionError(f"no process {title}")

    def signal(self, name: str, title: str) -> float:
        """Send a signal to the process with this title; returns the journal's t of that moment."""
        pid = self.pid(title)
        self.host.exec("kill", f"-{name}", str(pid))
        return self.now()

    def main_pid(self) -> int:
        return int(self.show("MainPID"))

    def now(self) -> float:
        """Seconds since the launch, as the journal counts them."""
        script = (
            "import time,subprocess;"
            f"u=subprocess.run(['systemctl','show','-pExecMainStartTimestampMonotonic','--value',"
            f"'{self.unit}'],capture_output=True,text=True).stdout;"
            "print(time.monotonic()-int(u)/1e6)"
        )
        return float(self.host.exec("python3", "-c", script).stdout)

    def show(self, name: str) -> str:
        done = self.host.exec("systemctl", "show", f"--property={name}", "--value", self.unit)
        return done.stdout.strip()

    def processes(self) -> list[str]:
        """What runs as the engine's user."""
        done = self.host.exec("ps", "-u", USER, "-o", "pid=,stat=,args=", check=False)
        return [line for line in done.stdout.splitlines() if line.strip()]

    def tail(self) -> str:
        done = self.host.exec("sh", "-c", f"tail -c 3000 {self.log}", check=False)
        return done.stdout

    def dump(self) -> str:
        """The journal as text, for a recorded trace."""
        return "".join(json.dumps(event) + "\n" for event in self.events())


def lent(unit: EngineUnit) -> Iterator[EngineUnit]:
    """For a fixture: the unit for one test, then stopped with nothing left of it."""
    yield unit
    unit.stop()
    assert poll(lambda: not unit.processes(), 20), unit.processes()


def poll(condition: Callable[[], Any], seconds: float, step_s: float = 0.4) -> Any:
    """The condition's first true value, or its last value after `seconds`."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value or time.monotonic() >= end:
            return value
        time.sleep(step_s)
