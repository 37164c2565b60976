"""The few NVML calls that we need, through ctypes (nothing to install on the host).

Signatures and structures: NVIDIA's nvml.h. A call that this driver does not know, or a value that
this GPU does not have, is None. The library is opened once per process and stays open.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

LIBRARY = "libnvidia-ml.so.1"
INSUFFICIENT_SIZE = 7
NOT_AVAILABLE = 2**64 - 1
"""NVML_VALUE_NOT_AVAILABLE: the driver cannot tell a process's memory (WDDM, some MIG modes)."""
MIB = 2**20
PROCESS_CALLS = ("ComputeRunningProcesses", "GraphicsRunningProcesses")


class NvmlError(Exception):
    """NVML cannot be used; the text is one sentence."""


class Memory(ctypes.Structure):
    """nvmlMemory_v2_t: here `used` leaves out what the driver reserves, as nvidia-smi does."""

    _fields_ = (
        ("version", ctypes.c_uint),
        ("total", ctypes.c_ulonglong),
        ("reserved", ctypes.c_ulonglong),
        ("free", ctypes.c_ulonglong),
        ("used", ctypes.c_ulonglong),
    )


class MemoryV1(ctypes.Structure):
    """nvmlMemory_t, for drivers before R510."""

    _fields_ = (
        ("total", ctypes.c_ulonglong),
        ("free", ctypes.c_ulonglong),
        ("used", ctypes.c_ulonglong),
    )


class Utilization(ctypes.Structure):
    """nvmlUtilization_t, in percent."""

    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


class Pci(ctypes.Structure):
    """nvmlPciInfo_t."""

    _fields_ = (
        ("bus_id_legacy", ctypes.c_char * 16),
        ("domain", ctypes.c_uint),
        ("bus", ctypes.c_uint),
        ("device", ctypes.c_uint),
        ("pci_device_id", ctypes.c_uint),
        ("pci_subsystem_id", ctypes.c_uint),
        ("bus_id", ctypes.c_char * 32),
    )


class Process(ctypes.Structure):
    """nvmlProcessInfo_v2_t, the answer of the _v2 and _v3 calls."""

    _fields_ = (
        ("pid", ctypes.c_uint),
        ("used", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    )


class ProcessV1(ctypes.Structure):
    """nvmlProcessInfo_v1_t, the answer of the calls without a suffix."""

    _fields_ = (("pid", ctypes.c_uint), ("used", ctypes.c_ulonglong))


class Nvml:
    """An initialised NVML; NvmlError says why there is none."""

    def __init__(self, library: str = LIBRARY) -> None:
        try:
            self._library = ctypes.CDLL(library)
        except OSError:
            raise NvmlError(f"{library} is not installed: no NVIDIA driver") from None
        self._library.nvmlErrorString.restype = ctypes.c_char_p
        code = self._call("Init_v2")
        if code is None:
            raise NvmlError(f"{library} has no nvmlInit_v2: not NVIDIA's library")
        if code:
            raise NvmlError(f"NVML does not start: {self.explain(code)}")

    def explain(self, code: int) -> str:
        """NVML's own words for an error, and the next step where there is a known one."""
        text = (self._library.nvmlErrorString(code) or b"?").decode(errors="replace")
        steps = {
            9: "load the kernel module: modprobe nvidia",
            15: "the GPU fell off the bus: see dmesg for Xid 79, and reboot",
            18: "the driver was upgraded under a loaded kernel module: reboot",
        }
        return f"{text} (error {code})" + (f"; {steps[code]}" if code in steps else "")

    def driver(self) -> str | None:
        return self._text("SystemGetDriverVersion")

    def count(self) -> int:
        """How many GPUs; NvmlError when even that cannot be told."""
        number = ctypes.c_uint()
        code = self._call("DeviceGetCount_v2", ctypes.byref(number))
        if code != 0:
            raise NvmlError(f"NVML cannot count the GPUs: {self.explain(code or 0)}")
        return number.value

    def handle(self, index: int) -> ctypes.c_void_p:
        """The handle of one GPU; NvmlError when it is lost."""
        handle = ctypes.c_void_p()
        code = self._call("DeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(handle))
        if code != 0:
            raise NvmlError(self.explain(code or 0))
        return handle

    def text(self, handle: ctypes.c_void_p, name: str) -> str | None:
        """A string of the GPU: `Name`, `UUID`."""
        return self._text(f"DeviceGet{name}", handle)

    def number(self, handle: ctypes.c_void_p, name: str) -> int | None:
        """A number of the GPU: `MinorNumber`, `CurrPcieLinkWidth`; `PowerUsage`,
        `EnforcedPowerLimit` and `PowerManagementDefaultLimit` in mW."""
        value = ctypes.c_uint()
        code = self._call(f"DeviceGet{name}", handle, ctypes.byref(value))
        return value.value if code == 0 else None

    def numbers(self, handle: ctypes.c_void_p, name: str, count: int) -> tuple[int, ...] | None:
        """`count` numbers of one call: `EccMode` and `MigMode` (2: now, after a reset),
        `RemappedRows` (4: correctable, uncorrectable, pending, failed)."""
        values = [ctypes.c_uint() for _ in range(count)]
        code = self._call(f"DeviceGet{name}", handle, *map(ctypes.byref, values))
        return tuple(value.value for value in values) if code == 0 else None

    def between(
        self, one: ctypes.c_void_p, other: ctypes.c_void_p, name: str, *which: int
    ) -> int | None:
        """A number of two GPUs: `TopologyCommonAncestor`, or `P2PStatus` of one kind of access."""
        value = ctypes.c_int()
        code = self._call(f"DeviceGet{name}", one, other, *which, ctypes.byref(value))
        return value.value if code == 0 else None

    def bus_id(self, handle: ctypes.c_void_p) -> str | None:
        pci = Pci()
        if self._call("DeviceGetPciInfo_v3", handle, ctypes.byref(pci)) != 0:
            return None
        return bytes(pci.bus_id).decode(errors="replace")

    def compute_capability(self, handle: ctypes.c_void_p) -> str | None:
        major, minor = ctypes.c_int(), ctypes.c_int()
        code = self._call(
            "DeviceGetCudaComputeCapability", handle, ctypes.byref(major), ctypes.byref(minor)
        )
        return f"{major.value}.{minor.value}" if code == 0 else None

    def memory(self, handle: ctypes.c_void_p) -> tuple[int, int] | None:
        """(used, total) in MiB."""
        memory = Memory(version=ctypes.sizeof(Memory) | 2 << 24)
        if self._call("DeviceGetMemoryInfo_v2", handle, ctypes.byref(memory)) == 0:
            return memory.used // MIB, (memory.total) // MIB
        first = MemoryV1()
        if self._call("DeviceGetMemoryInfo", handle, ctypes.byref(first)) == 0:
            return first.used // MIB, first.total // MIB
        return None

    def utilization(self, handle: ctypes.c_void_p) -> int | None:
        rates = Utilization()
        code = self._call("DeviceGetUtilizationRates", handle, ctypes.byref(rates))
        return int(rates.gpu) if code == 0 else None

    def processes(self, handle: ctypes.c_void_p) -> dict[int, int | None]:
        """pid -> MiB (None: the driver cannot tell) of everything that has a context there."""
        found: dict[int, int | None] = {}
        for name in PROCESS_CALLS:
            for suffix, kind in (("_v3", Process), ("_v2", Process), ("", ProcessV1)):
                rows = self._processes(f"DeviceGet{name}{suffix}", handle, kind)
                if rows is None:
                    continue
                for row in rows:
                    used = None if row.used == NOT_AVAILABLE else int(row.used) // MIB
                    known = found.get(row.pid)  # a process may have both kinds of context
                    found[row.pid] = used if known is None else max(known, used or 0)
                break
        return found

    def _processes(self, name: str, handle: ctypes.c_void_p, kind: type[Any]) -> list[Any] | None:
        room = 64
        for _ in range(4):  # the number may grow between two calls
            count, rows = ctypes.c_uint(room), (kind * room)()
            code = self._call(name, handle, ctypes.byref(count), rows)
            if code == 0:
                return list(rows[: count.value])
            if code != INSUFFICIENT_SIZE:
                return None
            room = count.value + 64
        return None

    def _text(self, name: str, *arguments: Any) -> str | None:
        buffer = ctypes.create_string_buffer(128)
        code = self._call(name, *arguments, buffer, ctypes.c_uint(len(buffer)))
        return buffer.value.decode(errors="replace") if code == 0 else None

    def _call(self, name: str, *arguments: Any) -> int | None:
        """The status of one call, None when this driver's library does not have it."""
        function: Callable[..., int] | None = getattr(self._library, f"nvml{name}", None)
        return None if function is None else function(*arguments)
