"""Holding a GPU: the device nodes open, and what the fake nvidia-smi is to show of it.

A real driver knows each process's memory. Here a holder says it in an anonymous file (memfd
`fake-nvidia`) that nvidia-smi finds through /proc/PID/fd: it needs no writable folder, works
in every sandbox, and is gone with the process.
"""

from __future__ import annotations

import json
import os

MEMFD = "fake-nvidia"
SIZE = 2048


class Devices:
    """The open device nodes of this process: `folder`/nvidia<N>, and the control nodes."""

    def __init__(self, gpus: list[int], folder: str = "/dev") -> None:
        self.gpus = gpus
        self._open = []
        for name in ["nvidiactl", "nvidia-uvm"]:
            path = os.path.join(folder, name)
            if os.path.exists(path):
                self._open.append(os.open(path, os.O_RDWR | os.O_CLOEXEC))
        for gpu in gpus:
            self._open.append(os.open(node(gpu, folder), os.O_RDWR | os.O_CLOEXEC))
        self._report = -1

    def report(self, memory_mib: float, utilization_pct: int = 0) -> None:
        """Say that this process has `memory_mib` on each of its GPUs, and keeps them busy."""
        if self._report < 0:
            self._report = os.memfd_create(MEMFD, os.MFD_CLOEXEC)
        entry = {"memory_mib": int(memory_mib), "utilization_pct": utilization_pct}
        text = json.dumps({str(gpu): entry for gpu in self.gpus})
        # One write of one size: a reader never sees half a document.
        os.pwrite(self._report, text.encode().ljust(SIZE), 0)


def node(gpu: int, folder: str = "/dev") -> str:
    """The device node of a GPU."""
    return os.path.join(folder, f"nvidia{gpu}")


def present(folder: str = "/dev") -> list[int]:
    """Indices of the GPUs whose device node is there."""
    names = os.listdir(folder) if os.path.isdir(folder) else []
    return sorted(int(name[6:]) for name in names if name[:6] == "nvidia" and name[6:].isdigit())
