"""The GPUs, their driver, and the way from one to another."""

from __future__ import annotations

from sglangctl.diagnosis.signatures.base import (
    CPU,
    CUDA,
    H200,
    NVML,
    REPORT,
    SOURCE,
    TORCH,
    Signature,
    caused,
    raised,
)

# NVSwitch systems without their fabric manager.
SIGNATURES = caused(
    "fabric-manager",
    Signature(
        "ystem not yet initialized",
        "RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 802: system not yet "
        "initialized",
        CUDA,
    ),
    raised("_SYSTEM_NOT_READY", "CUDA driver error: CUDA_ERROR_SYSTEM_NOT_READY", CUDA),
)
# From one GPU to another.
SIGNATURES += caused(
    "peer-access",
    Signature(
        "peer ",
        "Failed: Cuda error custom_all_reduce.cuh:307 'peer access is not supported between these "
        "two devices'",
        REPORT,
        r"peer access is (?:not supported|already|not enabled)|peer mapping resources exhausted|"
        r"peer-to-peer .{0,60}not (?:supported|possible|available)",
    ),
    raised(
        "PeerAccess",
        "RuntimeError: CUDART error: cudaErrorPeerAccessUnsupported",
        CUDA,
        r"cudaErrorPeerAccess|cudaDeviceEnablePeerAccess.{0,80}(?:fail|error)",
    ),
    Signature(
        "all_reduce",
        "Failed: Cuda error /workspace/csrc/custom_all_reduce.cuh:164 'invalid argument'",
        REPORT,
        r"[Cc][Uu][Dd][Aa] error.{0,200}all_reduce\.\w+:\d+ '",
    ),
    raised(
        "cudaIpc",
        "RuntimeError: cudaIpcOpenMemHandle failed: invalid device context",
        CUDA,
        r"cudaIpc\w{1,30}\b.{0,60}(?:fail|error|invalid|not supported)",
    ),
    raised(
        "mapping of buffer object failed",
        "RuntimeError: CUDART error: mapping of buffer object failed",
        CUDA,
    ),
)
# The GPU is there and may not be used.
SIGNATURES += caused(
    "gpu-unavailable",
    Signature(
        "busy or unavailable",
        "torch.AcceleratorError: CUDA error: CUDA-capable device(s) is/are busy or unavailable",
        CUDA,
    ),
    raised(
        "_DEVICE_UNAVAILABLE",
        "RuntimeError: CUDA driver error: CUDA_ERROR_DEVICE_UNAVAILABLE",
        CUDA,
    ),
    raised(
        "invalid literal for int()",
        "ValueError: invalid literal for int() with base 10: 'MIG-7a1b2c3d-0000-5000-8000-000000000000'",
        REPORT,
        r"'(?:MIG|GPU)-[0-9A-Fa-f]",
    ),
    Signature(
        "OS call failed or operation not supported",
        "RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 304: OS call failed or "
        "operation not supported on this OS",
        CUDA,
    ),
    raised(
        "NVMLError_NoPermission",
        "pynvml.NVMLError_NoPermission: Insufficient Permissions",
        NVML,
    ),
)
# Fewer GPUs than asked for.
SIGNATURES += caused(
    "too-few-gpus",
    Signature(
        "invalid device ordinal",
        "torch.AcceleratorError: CUDA error: invalid device ordinal",
        H200,
    ),
    raised(
        "No CUDA GPUs are available",
        "RuntimeError: No CUDA GPUs are available",
        TORCH,
        vague=True,
    ),
    Signature(
        "No accelerator (",
        "RuntimeError: No accelerator (CUDA, XPU, HPU, NPU, MUSA, MPS) or platform plugin is "
        "available.",
        SOURCE,
        vague=True,
    ),
    Signature(
        "no CUDA-capable device is detected",
        "RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 100: no CUDA-capable device "
        "is detected",
        CUDA,
        vague=True,
    ),
)
# The driver.
SIGNATURES += caused(
    "driver-mismatch",
    raised(
        ".so.1: cannot open",
        "ImportError: libcuda.so.1: cannot open shared object file: No such file or directory",
        CPU,
        r"lib(?:cuda|nvidia-ml)\.so\.1: cannot open",
    ),
    raised(
        "NVIDIA driver on your system",
        "RuntimeError: The NVIDIA driver on your system is too old (found version 12040).",
        TORCH,
        r"too old|Found no NVIDIA driver",
    ),
    Signature(
        "CUDA unknown error",
        "RuntimeError: CUDA unknown error - this may be due to an incorrectly set up environment",
        TORCH,
    ),
    Signature(
        "rror 999",
        "RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 999: unknown error",
        CUDA,
        r"\b[Ee]rror 999\b",
    ),
    Signature(
        "CUDA driver initialization failed",
        "RuntimeError: CUDA driver initialization failed, you might not have a CUDA gpu.",
        TORCH,
    ),
    Signature(
        "CUDA driver version is insufficient",
        "RuntimeError: CUDA error: CUDA driver version is insufficient for CUDA runtime version",
        TORCH,
    ),
    raised(
        "nsufficient",
        "RuntimeError: CUDA error: cudaErrorInsufficientDriver",
        CUDA,
        r"cudaErrorInsufficientDriver|Error Insufficient Driver",
    ),
    Signature(
        "unsupported toolchain",
        "RuntimeError: CUDA error: the provided PTX was compiled with an unsupported toolchain.",
        CUDA,
    ),
    raised(
        "CUDA_ERROR_",
        "RuntimeError: CUDA driver error: CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
        CUDA,
        r"CUDA_ERROR_(?:UNSUPPORTED_PTX_VERSION|SYSTEM_DRIVER_MISMATCH|STUB_LIBRARY|NOT_INITIALIZED)|"
        r"CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE",
    ),
    Signature(
        "Driver/library version mismatch",
        "pynvml.NVMLError_LibRmVersionMismatch: Driver/library version mismatch",
        NVML,
    ),
    raised(
        "NVML",
        "pynvml.NVMLError_Unknown: Unknown Error",
        NVML,
        r"NVMLError_(?:Unknown|DriverNotLoaded|LibraryNotFound|Uninitialized|FunctionNotFound)\b|"
        r"initialize NVML: (?:Unknown Error|Driver Not Loaded)|NVML: Unknown Error",
    ),
    Signature(
        "couldn't communicate with the NVIDIA driver",
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.",
        "nvidia-smi",
    ),
    Signature(
        "forward compatibility was attempted",
        "Error 804: forward compatibility was attempted on non supported HW",
        CUDA,
    ),
    Signature(
        "unsupported display driver / cuda driver combination",
        "RuntimeError: Error 803: system has unsupported display driver / cuda driver combination",
        CUDA,
    ),
    raised(
        "active drivers ([])",
        "RuntimeError: 0 active drivers ([]). There should only be one.",
        f"{CPU} (Triton without a GPU)",
    ),
)
# A GPU reports a fault.
SIGNATURES += caused(
    "gpu-fault",
    Signature(
        "CUDA",
        "torch.AcceleratorError: CUDA error: an illegal memory access was encountered",
        TORCH,
        r"(?:CUDA error|Triton Error \[CUDA\]|Cuda failure(?: \d+)?|CUDA driver error): '?"
        r"(?:an illegal memory access|unspecified launch failure|uncorrectable ECC|"
        r"misaligned address|an illegal instruction|device-side assert|hardware stack error|"
        r"uncorrectable NVLink|unknown error|GPU is lost|the launch timed out|invalid program counter)",
    ),
    Signature(
        "Cuda failure",
        "gpu1:812:900 [0] enqueue.cc:1500 NCCL WARN Cuda failure 700 'an illegal memory access was "
        "encountered'",
        "NCCL",
        r"Cuda failure(?: \d+)? '(?:an illegal|unspecified launch|uncorrectable|misaligned|GPU is lost)",
    ),
    Signature(
        "lost",
        "pynvml.NVMLError_GpuIsLost: GPU is lost",
        NVML,
        r"NVMLError_GpuIsLost|\bGPU is lost\b",
    ),
    Signature(
        "fallen off the bus",
        "Unable to determine the device handle for GPU0: GPU has fallen off the bus",
        "NVIDIA driver",
        r"^(?!.*Xid )",
    ),
    Signature(
        "Unable to determine the device handle",
        "Unable to determine the device handle for GPU0000:41:00.0: Unknown Error",
        "nvidia-smi",
    ),
    Signature(
        "Xid (",
        "NVRM: Xid (PCI:0000:41:00): 79, pid=812, GPU has fallen off the bus.",
        "NVIDIA driver",
    ),
)
