"""Put the stand-ins on a container host."""

from __future__ import annotations

import base64
import io
import json
import tarfile
import tempfile
from pathlib import Path
from typing import Any, Protocol

from tests.hosts.standins import model, wheel

HERE = Path(__file__).resolve().parent
OLD = "0.5.9+standin"
TMPFILES = "d /run/fake-nvidia 1777 root root -\n"


class Runs(Protocol):
    """What is needed of a host: run a command with text on its standard input."""

    def exec(self, *argv: str, input: str | None = None) -> Any: ...


def install_into(host: Runs, gpus: int = 2, **nvidia: Any) -> None:
    """Give `host` everything; safe to repeat.

    + gpus: how many GPUs the fake nvidia-smi has (the device nodes are the host's business)
    + nvidia: more keys of /etc/fake-nvidia.json

    After it: /usr/bin/nvidia-smi, /opt/vllm, /etc/systemd/system/vllm-kimi.service (not
    enabled; user vllm; settings in /etc/default/vllm-kimi), /opt/standins/wheels with SGLang
    0.5.23, 0.5.24 (with a gate) and 0.5.9, /models/tiny and /models/tiny-eagle3.
    """
    with tempfile.TemporaryDirectory() as folder:
        unpack(host, tree(Path(folder), {"gpus": gpus, **nvidia}))
    host.exec("sh", "-c", "id vllm >/dev/null 2>&1 || useradd --system --user-group vllm")
    host.exec("ln", "-sfn", "/usr/bin/python3", "/opt/vllm/bin/python")
    host.exec("systemd-tmpfiles", "--create", "/etc/tmpfiles.d/fake-nvidia.conf")
    host.exec("systemctl", "daemon-reload")


def configure_nvidia(host: Runs, **keys: Any) -> None:
    """Replace /etc/fake-nvidia.json, to change what nvidia-smi says from now on."""
    host.exec("tee", "/etc/fake-nvidia.json", input=json.dumps(keys))


def vllm_settings(**values: Any) -> str:
    """/etc/default/vllm-kimi: MODEL, SERVED_NAME, PORT, GPUS, MORE, and VLLM_STANDIN_*."""
    settings = {"MODEL": "/models/tiny", "SERVED_NAME": "kimi", "PORT": 8000, "GPUS": 1}
    return "".join(f"{key}={value}\n" for key, value in {**settings, **values}.items())


def tree(folder: Path, nvidia: dict[str, Any]) -> dict[str, tuple[int, bytes]]:
    """Path on the host -> (mode, content)."""
    model.make(folder / "models/tiny")
    model.drafter(folder / "models/tiny-eagle3")
    wheel.build(folder / "opt/standins/wheels")
    wheel.build(folder / "opt/standins/wheels", OLD)
    wheel.build(folder / "opt/standins/wheels", wheel.GATED)
    files = {
        f"/{path.relative_to(folder)}": (0o644, path.read_bytes())
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
    for path in sorted((HERE / "shared").glob("*.py")):
        files[f"/opt/vllm/lib/shared/{path.name}"] = (0o644, path.read_bytes())
    files["/opt/vllm/bin/vllm"] = (0o755, (HERE / "vllm/vllm_standin.py").read_bytes())
    unit = (HERE / "vllm/vllm-kimi.service").read_bytes()
    files["/etc/systemd/system/vllm-kimi.service"] = (0o644, unit)
    files["/etc/default/vllm-kimi"] = (0o644, vllm_settings().encode())
    files["/usr/bin/nvidia-smi"] = (0o755, (HERE / "nvidia_smi.py").read_bytes())
    files["/etc/fake-nvidia.json"] = (0o644, json.dumps(nvidia).encode())
    files["/etc/tmpfiles.d/fake-nvidia.conf"] = (0o644, TMPFILES.encode())
    return files


def unpack(host: Runs, files: dict[str, tuple[int, bytes]]) -> None:
    """Write files on the host through one tar."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for path, (mode, content) in files.items():
            entry = tarfile.TarInfo(path.lstrip("/"))
            entry.size = len(content)
            entry.mode = mode
            archive.addfile(entry, io.BytesIO(content))
    text = base64.b64encode(buffer.getvalue()).decode()
    host.exec("sh", "-c", "base64 -d | tar -xzf - -C / --no-same-owner", input=text)
