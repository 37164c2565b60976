#!/usr/bin/python3
"""A stand-in for nvidia-smi that answers from who holds /dev/nvidia<N> open.

/etc/fake-nvidia.json (or the file in FAKE_NVIDIA_CONFIG) says what the machine has; every key
has a default, see DEFAULTS and README.md. Memory and utilization of a process come from its
memfd `fake-nvidia` (shared/devices.py) or from `run`/<pid>.json, {gpu index: MiB}. As with the
real one, a process that holds a device open but has no memory on it is not listed.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Iterator
from datetime import datetime
from typing import Any

CONFIG = "/etc/fake-nvidia.json"
DEFAULTS: dict[str, Any] = {
    "gpus": 1,
    "name": "NVIDIA RTX PRO 6000 Blackwell Workstation Edition",
    "compute_capability": "12.0",
    "memory_total_mib": 97887,
    "driver": "580.95.05",
    "cuda": "13.0",
    "devices": "/dev",
    "run": "/run/fake-nvidia",
    "idle_power_w": 30.0,
    "busy_power_w": 400.0,
    # Per GPU index: memory_mib with no holder, utilization_pct, power_w, name, ...
    "override": {},
    # null, "driver" (not loaded), "mismatch" (library and module differ)
    "fail": None,
    # Seconds before any answer: a driver that is wedged hangs its callers.
    "delay_s": 0,
}
NO_DRIVER = (
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. "
    "Make sure that the latest NVIDIA driver is installed and running.\n"
)
MISMATCH = "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: {}\n"


def load() -> dict[str, Any]:
    """The configuration over the defaults."""
    path = os.environ.get("FAKE_NVIDIA_CONFIG", CONFIG)
    config = dict(DEFAULTS)
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            config.update(json.load(file))
    return config


def holders(config: dict[str, Any]) -> dict[int, dict[int, dict[str, Any]]]:
    """pid -> GPU index -> {memory_mib, utilization_pct}, for all who hold a device open."""
    prefix = os.path.join(config["devices"], "nvidia")
    pattern = re.compile(re.escape(prefix) + r"(\d+)$")
    found: dict[int, dict[int, dict[str, Any]]] = {}
    for pid in (int(name) for name in os.listdir("/proc") if name.isdigit()):
        said: dict[str, Any] = {}
        for link, path in links(pid):
            match = pattern.match(path)
            if match:
                found.setdefault(pid, {}).setdefault(int(match[1]), {})
            elif path.startswith("/memfd:fake-nvidia"):
                said = read_json(link)
        if pid in found:
            said = said or read_json(os.path.join(config["run"], f"{pid}.json"))
            for gpu in found[pid]:
                entry = said.get(str(gpu), {})
                found[pid][gpu] = entry if isinstance(entry, dict) else {"memory_mib": entry}
    return found


def links(pid: int) -> Iterator[tuple[str, str]]:
    """(link, target) of /proc/PID/fd; a process that is gone or not ours has none."""
    folder = f"/proc/{pid}/fd"
    try:
        names = os.listdir(folder)
    except OSError:
        return
    for name in names:
        link = os.path.join(folder, name)
        try:
            yield link, os.readlink(link)
        except OSError:
            continue


def read_json(path: str) -> dict[str, Any]:
    try:
        with open(path, "rb") as file:
            document = json.loads(file.read())
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


class Gpu:
    """One GPU, and who has memory on it."""

    def __init__(self, config: dict[str, Any], index: int, held: dict[int, Any]) -> None:
        override = config["override"].get(str(index), {})
        self.index = index
        self.processes = {
            pid: int(gpus[index]["memory_mib"])
            for pid, gpus in sorted(held.items())
            if gpus.get(index, {}).get("memory_mib")
        }
        busy = [gpus[index].get("utilization_pct", 0) for gpus in held.values() if index in gpus]
        self.total = override.get("memory_total_mib", config["memory_total_mib"])
        used = sum(self.processes.values()) + override.get("memory_mib", 0)
        self.used = min(used, self.total)
        self.utilization = override.get("utilization_pct", max(busy, default=0))
        power = config["busy_power_w"] if max(busy, default=0) else config["idle_power_w"]
        self.power = override.get("power_w", power)
        self.uuid = override.get("uuid", f"GPU-5ca1ab1e-0000-4000-8000-{index:012x}")
        self.name = override.get("name", config["name"])
        self.bus_id = override.get("bus_id", f"00000000:{index + 1:02X}:00.0")
        self.capability = override.get("compute_capability", config["compute_capability"])
        self.driver = config["driver"]

    def field(self, name: str) -> tuple[str, str] | None:
        """(value, unit) of a --query-gpu field; None for an unknown one."""
        return {
            "index": (str(self.index), ""),
            "uuid": (self.uuid, ""),
            "gpu_uuid": (self.uuid, ""),
            "name": (self.name, ""),
            "gpu_name": (self.name, ""),
            "gpu_bus_id": (self.bus_id, ""),
            "pci.bus_id": (self.bus_id, ""),
            "compute_cap": (self.capability, ""),
            "driver_version": (self.driver, ""),
            "memory.used": (str(self.used), " MiB"),
            "memory.total": (str(self.total), " MiB"),
            "memory.free": (str(self.total - self.used), " MiB"),
            "utilization.gpu": (str(self.utilization), " %"),
            "power.draw": (f"{self.power:.2f}", " W"),
            "power.limit": ("600.00", " W"),
            "temperature.gpu": ("34", ""),
            "persistence_mode": ("Enabled", ""),
            "compute_mode": ("Default", ""),
            "mig.mode.current": ("[N/A]", ""),
            "pstate": ("P0" if self.utilization else "P8", ""),
            "count": ("", ""),
        }.get(name)


def process_field(gpu: Gpu, pid: int, memory: int, name: str) -> tuple[str, str] | None:
    """(value, unit) of a --query-compute-apps field; None for an unknown one."""
    return {
        "pid": (str(pid), ""),
        "used_memory": (str(memory), " MiB"),
        "used_gpu_memory": (str(memory), " MiB"),
        "process_name": (executable(pid), ""),
        "name": (executable(pid), ""),
    }.get(name) or gpu.field(name)


def executable(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read().split(b"\0")[0].decode("utf-8", "backslashreplace")
    except OSError:
        return "[Not Found]"


def table(rows: list[list[tuple[str, str] | None]], names: list[str], flags: list[str]) -> int:
    """Print CSV as nvidia-smi does."""
    if "noheader" not in flags:
        units = {"memory": " [MiB]", "used_m": " [MiB]", "utiliz": " [%]", "power.": " [W]"}
        nounits = "nounits" in flags
        print(", ".join(n + (units.get(n[:6], "") if nounits else "") for n in names))
    for row in rows:
        cells = [cell for cell in row if cell is not None]
        print(", ".join(v if "nounits" in flags else v + unit for v, unit in cells))
    return 0


def query(gpus: list[Gpu], fields: str, kind: str, flags: list[str]) -> int:
    """--query-gpu and --query-compute-apps."""
    names = [name.strip() for name in fields.split(",")]
    rows = []
    for gpu in gpus:
        if kind == "gpu":
            rows.append([gpu.field(name) for name in names])
        else:
            for pid, memory in gpu.processes.items():
                rows.append([process_field(gpu, pid, memory, name) for name in names])
    known = gpus[0] if gpus else None
    for name in names:
        cell = known and (known.field(name) if kind == "gpu" else process_field(known, 0, 0, name))
        if known and cell is None:
            print(f'Field "{name}" is not a valid field to query.\n')
            return 2
    for row, gpu in zip(rows, gpus):
        if kind == "gpu":
            row[:] = [(str(len(gpus)), "") if n == "count" else gpu.field(n) for n in names]
    return table(rows, names, flags)


def plain(config: dict[str, Any], gpus: list[Gpu]) -> int:
    """The table that a bare `nvidia-smi` prints, reduced to what people read in it."""
    print(datetime.now().strftime("%a %b %d %H:%M:%S %Y"))
    line = "+" + "-" * 89 + "+"
    driver, cuda = config["driver"], config["cuda"]
    head = f"NVIDIA-SMI {driver}    Driver Version: {driver}    CUDA Version: {cuda}"
    print(f"{line}\n| {head:<87} |\n{line}")
    for gpu in gpus:
        usage = f"{gpu.power:4.0f}W /  600W | {gpu.used:>6}MiB / {gpu.total:>6}MiB"
        print(f"| {gpu.index:>3}  {gpu.name[:34]:<34} {usage} | {gpu.utilization:>4}% Default |")
    print(f"{line}\n| Processes:{'GPU Memory':>76} |")
    for gpu in gpus:
        for pid, memory in gpu.processes.items():
            print(f"| {gpu.index:>4} {pid:>10}  C  {executable(pid)[:50]:<50} {memory:>8}MiB |")
    if not any(gpu.processes for gpu in gpus):
        print(f"|  {'No running processes found':<86} |")
    print(line)
    return 0


def details(config: dict[str, Any], gpus: list[Gpu]) -> int:
    """`nvidia-smi -q`, its sections that a support bundle is read for."""
    print("\n==============NVSMI LOG==============\n")
    print(f"Timestamp                                 : {datetime.now():%a %b %d %H:%M:%S %Y}")
    print(f"Driver Version                            : {config['driver']}")
    print(f"CUDA Version                              : {config['cuda']}\n")
    print(f"Attached GPUs                             : {len(gpus)}")
    for gpu in gpus:
        rows = [
            f"GPU {gpu.bus_id}",
            f"    Product Name                          : {gpu.name}",
            f"    GPU UUID                              : {gpu.uuid}",
            "    FB Memory Usage",
            f"        Total                             : {gpu.total} MiB",
            f"        Used                              : {gpu.used} MiB",
            f"        Free                              : {gpu.total - gpu.used} MiB",
            "    Utilization",
            f"        Gpu                               : {gpu.utilization} %",
            "    GPU Power Readings",
            f"        Average Power Draw                : {gpu.power:.2f} W",
        ]
        rows.append(
            "    Processes" + ("" if gpu.processes else "                             : None")
        )
        for pid, memory in gpu.processes.items():
            rows.append(f"        Process ID                        : {pid}")
            rows.append("            Type                          : C")
            rows.append(f"            Name                          : {executable(pid)}")
            rows.append(f"            Used GPU Memory               : {memory} MiB")
        print("\n".join(rows))
    return 0


def main(argv: list[str]) -> int:
    config = load()
    time.sleep(config["delay_s"])
    if config["fail"] == "driver":
        sys.stdout.write(NO_DRIVER)
        return 9
    if config["fail"] == "mismatch":
        sys.stdout.write(MISMATCH.format(config["driver"].rpartition(".")[0]))
        return 18
    held = holders(config)
    gpus = [Gpu(config, index, held) for index in range(config["gpus"])]
    options: dict[str, str] = {}
    words = list(argv)
    while words:
        word = words.pop(0)
        name, equals, value = word.partition("=")
        if name in ("-i", "--id") and not equals:
            value = words.pop(0) if words else ""
        options[name] = value
    chosen = options.get("-i", options.get("--id"))
    if chosen is not None:
        wanted = set(chosen.split(","))
        gpus = [gpu for gpu in gpus if wanted & {str(gpu.index), gpu.uuid, gpu.bus_id}]
        if not gpus:
            print("No devices were found")
            return 6
    flags = options.get("--format", "").split(",")
    if "--query-gpu" in options:
        return query(gpus, options["--query-gpu"], "gpu", flags)
    if "--query-compute-apps" in options:
        return query(gpus, options["--query-compute-apps"], "apps", flags)
    if "-L" in options:
        for gpu in gpus:
            print(f"GPU {gpu.index}: {gpu.name} (UUID: {gpu.uuid})")
        return 0
    if "-q" in options:
        return details(config, gpus)
    unknown = [name for name in options if name not in ("-i", "--id")]
    if unknown:
        print(f"Invalid combination of input arguments: {unknown[0]}. Run 'nvidia-smi -h'.")
        return 2
    return plain(config, gpus)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
