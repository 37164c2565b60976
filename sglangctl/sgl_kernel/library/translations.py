"""What an import's or a launch's failure means: error lines and deaths, as cause and next step."""

from __future__ import annotations

import signal
from dataclasses import dataclass

OK, FAILED, UNKNOWN = "ok", "failed", "unknown"


@dataclass(frozen=True)
class Translation:
    """A line of an import's or launch's failure -> cause, sentence and next step.

    The sentence may name {symbol}, {library}, {built}, {torch} and {cuda}.
    """

    pattern: str
    cause: str
    sentence: str
    next_step: str
    outcome: str = FAILED


ANEW = "deploy again: it reinstalls the kernel"
TRANSLATIONS = (
    Translation(
        r"undefined symbol: (?P<symbol>\S+)",
        "kernel-broken",
        "the kernel was built for {built}, the environment has torch {torch} (it has no {symbol})",
        "install the kernel of this torch, or kernel.source: build",
    ),
    Translation(
        r"libcuda\.so\.1: cannot open",
        "driver-mismatch",
        "there is no NVIDIA driver on this host (libcuda.so.1 is missing)",
        "install the driver, then see that nvidia-smi answers",
    ),
    Translation(
        r"(?P<library>lib(?:nvrtc|cudart|cublas\w*|cusparse|nvJitLink)\.so\.(?P<major>\d+)): "
        r"cannot open",
        "kernel-broken",
        "the kernel is for CUDA {major} ({library} is missing), the environment's torch {torch} "
        "brings CUDA {cuda}",
        "take the kernel for this CUDA, or kernel.source: build",
    ),
    Translation(
        r"(?P<library>\S+\.so[.\d]*): (?:file too short|invalid ELF header|cannot read file data"
        r"|ELF load command .*(?:past end|beyond))|file too short|past end of file",
        "kernel-broken",
        "a library of the kernel is truncated ({library})",
        ANEW,
    ),
    Translation(
        r"version [`'](?P<symbol>GLIBC(?:XX)?_[\d.]+)' not found",
        "kernel-broken",
        "the kernel needs {symbol}, which this host's system libraries are too old for",
        "kernel.source: build, on this host or one with the same distribution",
    ),
    Translation(
        r"(?P<library>\S+\.so[.\d]*): cannot open shared object file",
        "kernel-broken",
        "the kernel needs {library}, which is not on this host",
        "install what brings it (libnuma1 for libnuma.so.1), then deploy again",
    ),
    Translation(
        r"No module named '(?:sgl_kernel)'",
        "kernel-broken",
        "no kernel is installed in the environment",
        ANEW,
    ),
    Translation(
        r"No module named 'torch'", "kernel-broken", "the environment has no torch", "deploy again"
    ),
    Translation(
        r"no kernel image is available",
        "no-kernel-image",
        "the kernel holds no code for this GPU ({gpu}, sm_{sm})",
        "sglangctl kernel inspect installed; then kernel.source: build",
    ),
    Translation(
        r"CUDA driver version is insufficient|unsupported PTX|driver on your system is too old"
        r"|forward compatibility was attempted",
        "driver-mismatch",
        "the NVIDIA driver is too old for CUDA {cuda}",
        "install a newer driver (CUDA 13 needs 580 or later, 12.8 needs 570)",
    ),
    Translation(
        r"out of memory|CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation",
        "gpu-out-of-memory",
        "the GPU has no memory left for a test: another engine holds it",
        "not an error while the old engine runs; check again after the switch",
        UNKNOWN,
    ),
    Translation(
        r"CUDA error|CUDA-capable|cudaError",
        "gpu-fault",
        "CUDA failed on {gpu}",
        "see the evidence, and: dmesg | grep -i -e xid -e nvrm",
    ),
    Translation(
        r"Could not load any common_ops library",
        "kernel-broken",
        "the kernel's loader finds no library that it can load",
        "sglangctl kernel inspect installed names why; deploy again to reinstall it",
    ),
)
SIGNALS = {
    signal.SIGBUS: ("kernel-broken", "a library is truncated (SIGBUS while loading it)", ANEW),
    signal.SIGSEGV: ("kernel-broken", "it crashed (SIGSEGV)", "sglangctl kernel inspect installed"),
    signal.SIGILL: ("kernel-broken", "it uses instructions that this processor lacks", ANEW),
    signal.SIGKILL: ("host-out-of-memory", "it was killed (SIGKILL)", "dmesg | grep -i oom"),
}
