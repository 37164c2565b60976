"""The failures, as the real engine words them, and where they strike.

`LAUNCHER`: raised while the arguments are resolved: a traceback, exit status 1, no children.
`SCHEDULER`: raised in a rank; it tells its parent (SIGQUIT), which kills all and itself (-9).
`SIGNALS`: the process simply dies of (or is stopped by) a signal.
Wordings: of recorded starts of 0.5.16 and 0.5.23 where there is one, else of public reports.
"""

from __future__ import annotations

import signal

Frame = tuple[str, int, str]


class LauncherError(Exception):
    """Ends the launcher with a traceback through `frames` and exit status 1."""

    def __init__(self, text: str, *frames: Frame) -> None:
        super().__init__(text)
        self.frames = frames


class RankError(Exception):
    """Ends a rank with `Scheduler hit an exception`."""


OUT_OF_MEMORY = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.75 GiB. GPU 0 has a total "
    "capacity of 94.97 GiB of which 512.44 MiB is free. Including non-PyTorch memory, this "
    "process has 94.40 GiB memory in use."
)
NO_COMMON_OPS = """ImportError: 
[sgl_kernel] CRITICAL: Could not load any common_ops library!

Attempted locations:
1. Architecture-specific pattern: {site}/sgl_kernel/sm100/common_ops.* - found files: {found}
2. Fallback pattern: {site}/sgl_kernel/common_ops.* - found files: []
3. Standard Python import: common_ops - failed

GPU Info:
- Compute capability: 120
- Expected variant: SM120 (precise math for compatibility)
- CUDA version: 13.0

Please ensure sgl_kernel is properly installed with:
pip install --upgrade sglang-kernel

Error details from previous import attempts:
- {detail}
- ModuleNotFoundError: No module named 'common_ops'
"""
LAUNCHER = {
    "kernel-broken": ("[]", "ModuleNotFoundError: No module named 'common_ops'"),
    "kernel-abi": (
        "['common_ops.abi3.so']",
        "ImportError: common_ops.abi3.so: undefined symbol: _ZN3c104cuda29c10_cuda_check",
    ),
    "kernel-cuda": (
        "['common_ops.abi3.so']",
        "ImportError: libnvrtc.so.12: cannot open shared object file: No such file or directory",
    ),
    "kernel-no-driver": (
        "['common_ops.abi3.so']",
        "ImportError: libcuda.so.1: cannot open shared object file: No such file or directory",
    ),
    "driver-mismatch": "RuntimeError: Unexpected error from cudaGetDeviceCount(). Did you run some "
    "cuda functions before calling NumCudaDevices() that might have already set an error? Error "
    "803: system has unsupported display driver / cuda driver combination",
    "driver-too-old": "RuntimeError: The NVIDIA driver on your system is too old (found version "
    "12040). Please update your GPU driver by downloading and installing a new version.",
    "unsupported-configuration": "ValueError: TRTLLM MLA backend is only supported on Blackwell "
    "GPUs (SM100). Please use a different backend.",
}
SCHEDULER = {
    # name: (phase in which it strikes, exception)
    "nccl-error": (
        "connecting",
        "RuntimeError: NCCL error: unhandled system error (run with NCCL_DEBUG=INFO for details)",
    ),
    "nccl-no-interface": (
        "connecting",
        "RuntimeError: NCCL error: invalid usage (run with NCCL_DEBUG=WARN for details)",
    ),
    "gpu-memory-unbalanced": (
        "connecting",
        "RuntimeError: The memory capacity is unbalanced. Some GPUs may be occupied by other "
        "processes. pre_model_load_memory=12.67, local_gpu_memory=93.21, local_gpu_memory * "
        "0.9=83.89",
    ),
    "gpu-out-of-memory": ("loading", OUT_OF_MEMORY),
    "gpu-out-of-memory-kv": (
        "allocating",
        "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. Current "
        "value: mem_fraction_static=0.85",
    ),
    "gpu-out-of-memory-weights": (
        "allocating",
        "ValueError: Loaded weights leave no GPU memory for the KV cache under "
        "--mem-fraction-static=0.85. Raise --mem-fraction-static above 0.931 (minimum viable = "
        "1 - available/pre = 0.9304).",
    ),
    "gpu-out-of-memory-capture": (
        "capturing",
        "Exception: Capture cuda graph failed: " + OUT_OF_MEMORY.partition(": ")[2],
    ),
    "drafter-mismatch": (
        "loading",
        "AssertionError: Attempted to load weight (torch.Size([4096])) into parameter "
        "(torch.Size([2048]))",
    ),
    "no-kernel-image": (
        "capturing",
        "torch.AcceleratorError: CUDA error: no kernel image is available for execution on the "
        "device",
    ),
    "gpu-fault": (
        "capturing",
        "torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered",
    ),
    "disk-full": ("capturing", "OSError: [Errno 28] No space left on device"),
    "too-many-files": ("connecting", "OSError: [Errno 24] Too many open files"),
    "shared-memory": (
        "connecting",
        "RuntimeError: NCCL error: unhandled system error (run with NCCL_DEBUG=INFO for details), "
        "Error while creating shared memory segment /dev/shm/nccl-x7Jq2a (size 9637888), "
        "error: No space left on device (28)",
    ),
    "cpu-ranks": (
        "connecting",
        "AssertionError: SGLANG_CPU_OMP_THREADS_BIND is not set, in this case, the total number "
        "of ranks (dp_size * tp_size * pp_size = {ranks}) should be smaller than or equal to "
        "number of numa node on the machine 1.",
    ),
    "too-few-gpus": (
        "connecting",
        "torch.AcceleratorError: CUDA error: invalid device ordinal\n"
        "GPU device may be out of range, do you have enough GPUs?",
    ),
    "unsupported-model": (
        "loading",
        "ValueError: Cannot find model module. '{detail}' is not a registered model in the "
        "Transformers library (only relevant if the model is meant to be in Transformers) and "
        "'AutoModel' is not present in the model config's 'auto_map' (relevant if the model is "
        "custom).",
    ),
    "unsupported-model-impl": (
        "loading",
        "ValueError: BloomForCausalLM has no SGlang implementation and the Transformers "
        "implementation is not compatible with SGLang.",
    ),
    "weights-corrupt": (
        "loading",
        "safetensors._safetensors_rust.SafetensorError: Error while deserializing header: {detail}",
    ),
    "weights-missing": ("loading", "RuntimeError: {detail}"),
    "weights-unreadable": (
        "loading",
        "FileNotFoundError: No such file or directory: {detail}",
    ),
    "unknown": ("loading", "RuntimeError: the moon is in the wrong house (0x2a)"),
}
SIGNALS = {
    # name: (phase, signal, None for the launcher or the rank)
    "kernel-sigbus": ("importing", signal.SIGBUS, "launcher"),
    "weights-sigbus": ("loading", signal.SIGBUS, "rank"),
    "shared-memory-sigbus": ("capturing", signal.SIGBUS, "rank"),
    "host-out-of-memory": ("loading", signal.SIGKILL, "rank"),
    "rank-died": ("loading", signal.SIGKILL, "rank"),
    "rank-stopped": ("loading", signal.SIGSTOP, "rank"),
    "nccl-abort": ("connecting", signal.SIGABRT, "rank"),
}
OTHERS = ["hang", "warmup-failed", "watchdog", "nccl-timeout"]
ALL = sorted([*LAUNCHER, *SCHEDULER, *SIGNALS, *OTHERS])


def launcher_text(name: str, site: str) -> str:
    """The exception of a launcher fault."""
    entry = LAUNCHER[name]
    if isinstance(entry, str):
        return entry
    return NO_COMMON_OPS.format(site=site, found=entry[0], detail=entry[1])
