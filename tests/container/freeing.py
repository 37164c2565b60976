"""A host for the tests of holders and free: stand-ins, fake GPUs, sglangctl, an inventory."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from roles.remote import program
from tests.hosts.host import Host
from tests.hosts.standins.install import install_into, unpack

HOLD = "/opt/test/hold.py"
CLEAN = "/opt/test/clean.py"
KILL_HOLDERS = b"""\
import os
for pid in filter(str.isdigit, os.listdir("/proc")):
    try:
        links = [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")]
        if any(link.startswith("/dev/nvidia") for link in links):
            os.kill(int(pid), 9)
    except OSError:
        pass
"""
KIMI: dict[str, Any] = {
    "v": 1,
    "name": "kimi",
    "unit": "sglang-kimi.service",
    "user": "sglang",
    "port": 8000,
    "listen": "127.0.0.1",
    "model": "/models/tiny",
    "served_name": "kimi",
    "gpus": "all",
    "replaces": ["vllm-kimi.service"],
    "limits": {
        "stop_units_s": 3.0,
        "term_s": 1.0,
        "kill_s": 3.0,
        "devices_s": 3.0,
        "respawn_s": 3.0,
    },
}
UNIT = """\
[Service]
User={user}
ExecStart={command}
{more}
[Install]
WantedBy=multi-user.target
"""


class Freeing:
    """The host, with short words for what these tests do all the time."""

    def __init__(self, host: Host) -> None:
        self.host = host

    @classmethod
    def prepare(cls, host: Host) -> Freeing:
        """Install everything, once a host."""
        install_into(host, gpus=2)
        host.copy_in(Path(__file__).with_name("hold.py"), HOLD)
        host.copy_in(KILL_HOLDERS, CLEAN)
        for user in ("bob", "sglang"):
            host.exec("useradd", "--system", user, check=False)
        made = cls(host)
        made.install(program.archive(), program.path())
        made.configure()
        return made

    def install(self, archive: bytes, path: str) -> None:
        """A version of sglangctl, and the link to it, as the host role does it."""
        self.host.copy_in(archive, path, mode=0o755)
        self.sh(f"ln -sfn {path} {program.LINK}.new && mv -T {program.LINK}.new {program.LINK}")

    def configure(self, host: dict[str, Any] | None = None, **kimi: Any) -> None:
        """Write the inventory's part on the host: kimi, and qwen on GPU 1."""
        qwen = {**KIMI, "name": "qwen", "unit": "sglang-qwen.service", "replaces": [], "gpus": [1]}
        qwen["port"] = 8001
        limits = {**KIMI["limits"], **kimi.pop("limits", {})}
        files = {
            "host.json": {"v": 1, "engines": ["kimi", "qwen"], **(host or {})},
            "engines/kimi.json": {**KIMI, **kimi, "limits": limits},
            "engines/qwen.json": qwen,
        }
        unpack(
            self.host,
            {
                f"/etc/sglangctl/{path}": (0o644, json.dumps(document).encode())
                for path, document in files.items()
            },
        )

    def sh(self, script: str, check: bool = True) -> str:
        return self.host.exec("sh", "-c", script, check=check).stdout

    def ctl(self, *arguments: str, status: int | None = 0) -> str:
        """Run sglangctl; its output. Another exit status than `status` is a failure."""
        done = self.host.exec("sglangctl", *arguments, check=False)
        assert status is None or done.returncode == status, (
            f"sglangctl {' '.join(arguments)}: {done.returncode}\n{done.stdout}{done.stderr}"
        )
        return done.stdout + done.stderr

    def holders(self, *arguments: str) -> dict[int, dict[str, Any]]:
        document = json.loads(self.ctl("holders", "--json", *arguments))
        assert document["v"] == 1
        return {item["pid"]: item for item in document["holders"]}

    def free(self, *arguments: str, status: int = 0) -> dict[str, Any]:
        """`sglangctl free kimi --json`; the result."""
        text = self.ctl("free", "kimi", "--json", *arguments, status=status)
        result = json.loads(text)["free"]["result"]
        assert isinstance(result, dict)
        assert result["status"] == status
        return result

    def hold(self, *argv: str, gpus: tuple[int, ...] = (0,), **more: Any) -> int:
        """Start a holder by hand; its pid once it is what it shall be."""
        wanted = {"argv": [*argv, "900"], "gpus": gpus, **more}
        pid = int(self.host.exec("python3", HOLD, json.dumps(wanted)).stdout)
        title = Path(wanted.get("exe", "/bin/sleep")).name
        deadline = time.monotonic() + 10
        while self.sh(f"cat /proc/{pid}/comm", check=False).strip() != title:
            assert time.monotonic() < deadline, f"{argv} did not start"
            time.sleep(0.02)
        return pid

    def desktop(self, **more: Any) -> int:
        """A holder that runs a desktop's program, and does not only say so."""
        self.sh("cp -n /bin/sleep /usr/bin/Xorg")
        return self.hold("Xorg", exe="/usr/bin/Xorg", **more)

    def unit(self, name: str, command: str, user: str = "root", more: str = "") -> None:
        """Write a unit file."""
        text = UNIT.format(command=command, user=user, more=more)
        self.host.copy_in(text.encode(), f"/etc/systemd/system/{name}")
        self.sh("systemctl daemon-reload")

    def show(self, unit: str, name: str) -> str:
        return self.sh(f"systemctl show --value --property={name} {unit}").strip()

    def alive(self, pid: int) -> bool:
        state = self.sh(f"sed 's/.*) //' /proc/{pid}/stat", check=False).split()
        return bool(state) and state[0] != "Z"

    def pids(self, unit: str) -> list[int]:
        """The processes in a unit's cgroup."""
        text = self.sh(
            f"cat /sys/fs/cgroup/systemd/system.slice/{unit}/cgroup.procs"
            f" /sys/fs/cgroup/unified/system.slice/{unit}/cgroup.procs"
            f" /sys/fs/cgroup/system.slice/{unit}/cgroup.procs 2>/dev/null",
            check=False,
        )
        return sorted({int(line) for line in text.split()})

    def start_vllm(self, drop_in: str = "", **settings: Any) -> list[int]:
        """Start the vLLM stand-in as vllm-kimi.service; its processes once it serves."""
        from tests.hosts.standins.install import vllm_settings

        values = {"GPUS": 2, "VLLM_STANDIN_START_S": 0.3, "VLLM_STANDIN_STOP_S": 0.5, **settings}
        self.host.copy_in(vllm_settings(**values).encode(), "/etc/default/vllm-kimi")
        folder = "/etc/systemd/system/vllm-kimi.service.d"
        self.host.copy_in(f"[Service]\n{drop_in}\n".encode(), f"{folder}/test.conf")
        self.sh("systemctl daemon-reload && systemctl enable --quiet --now vllm-kimi.service")
        deadline = time.monotonic() + 20
        while not self.sh("ss -Hltn sport = :8000 || true").strip():
            assert time.monotonic() < deadline, self.sh("journalctl -u vllm-kimi -n 20 --no-pager")
            time.sleep(0.05)
        return self.pids("vllm-kimi.service")

    def clean(self) -> None:
        """End whatever a test left on this host, by its devices and units."""
        self.sh(
            "units='vllm-kimi.service sglang-kimi.service sglang-qwen.service other.service"
            " other.timer'; systemctl stop --no-block $units 2>/dev/null;"
            "systemctl kill -s KILL $units 2>/dev/null; systemctl stop $units 2>/dev/null;"
            "for unit in $units; do systemctl disable --quiet $unit 2>/dev/null; done;"
            "systemctl reset-failed 2>/dev/null; rm -f /etc/systemd/system/other.*;"
            f"python3 {CLEAN}; rm -rf /etc/systemd/system/vllm-kimi.service.d;"
            "systemctl daemon-reload",
            check=False,
        )
        self.configure()
