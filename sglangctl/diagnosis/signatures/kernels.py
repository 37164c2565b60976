"""The kernels, the driver and the GPUs."""

from __future__ import annotations

from sglangctl.diagnosis.signatures.base import (
    CPU,
    EXCEPTION,
    H200,
    REPORT,
    SOURCE,
    TORCH,
    Signature,
)

SIGNATURES = (
    # The kernel's .so.
    Signature(
        "kernel-broken",
        "Could not load any common_ops library",
        "[sgl_kernel] CRITICAL: Could not load any common_ops library!",
        H200,
    ),
    Signature(
        "driver-mismatch",
        "libcuda.so.1: cannot open",
        "ImportError: libcuda.so.1: cannot open shared object file: No such file or directory",
        CPU,
        where=EXCEPTION,
    ),
    Signature(
        "kernel-broken",
        "undefined symbol",
        "ImportError: /opt/engine/site/sgl_kernel/sm100/common_ops.abi3.so: undefined symbol: "
        "_ZN3c104cuda9SetDeviceEab",
        REPORT,
        where=EXCEPTION,
    ),
    Signature(
        "kernel-broken",
        "cannot open shared object file",
        "ImportError: libnvrtc.so.12: cannot open shared object file: No such file or directory",
        REPORT,
        r"ImportError: lib(?:nvrtc|cublas|cublasLt|cudart|torch|c10)\w*\.so",
        EXCEPTION,
    ),
    Signature(
        "kernel-broken",
        "sgl_kernel",
        "ModuleNotFoundError: No module named 'sgl_kernel'",
        CPU,
        r"(?:ModuleNotFoundError|ImportError): .*sgl_kernel",
        EXCEPTION,
    ),
    Signature(
        "kernel-broken",
        ".so",
        "ImportError: /opt/engine/site/flash_ops.abi3.so: file too short",
        "glibc",
        r"ImportError: .*\.so(?:\.\d+)*: (?:file too short|invalid ELF header)",
        EXCEPTION,
    ),
    Signature(
        "kernel-broken",
        "inimum required version",
        "Exception: sglang-kernel is installed with version 0.4.5, which is less than the "
        "minimum required version 0.4.9.",
        SOURCE,
        r"(?:sgl-kernel|sglang-kernel)\b.*minimum required version",
    ),
    Signature(
        "no-kernel-image",
        "no kernel image is available",
        "RuntimeError: CUDA error: no kernel image is available for execution on the device",
        REPORT,
    ),
    Signature(
        "no-kernel-image",
        "is not defined for option 'gpu-name'",
        "ptxas fatal   : Value 'sm_120a' is not defined for option 'gpu-name'",
        REPORT,
    ),
    Signature(
        "no-kernel-image",
        "for current compute capability",
        "NotImplementedError: No implemented fp8_blockwise_scaled_grouped_mm for current compute "
        "capability",
        "sglang-kernel 0.4.10, strings of the wheel",
    ),
    # The driver and the GPUs.
    Signature(
        "too-few-gpus",
        "invalid device ordinal",
        "torch.AcceleratorError: CUDA error: invalid device ordinal",
        H200,
    ),
    Signature(
        "too-few-gpus",
        "No CUDA GPUs are available",
        "RuntimeError: No CUDA GPUs are available",
        TORCH,
        where=EXCEPTION,
    ),
    Signature(
        "too-few-gpus",
        "No accelerator (",
        "RuntimeError: No accelerator (CUDA, XPU, HPU, NPU, MUSA, MPS) or platform plugin is "
        "available.",
        SOURCE,
    ),
    Signature(
        "driver-mismatch",
        "NVIDIA driver on your system",
        "RuntimeError: The NVIDIA driver on your system is too old (found version 12040).",
        TORCH,
        r"too old|Found no NVIDIA driver",
        EXCEPTION,
    ),
    Signature(
        "driver-mismatch",
        "CUDA driver version is insufficient",
        "RuntimeError: CUDA error: CUDA driver version is insufficient for CUDA runtime version",
        TORCH,
    ),
    Signature(
        "driver-mismatch",
        "Driver/library version mismatch",
        "pynvml.NVMLError_LibRmVersionMismatch: Driver/library version mismatch",
        "NVML",
    ),
    Signature(
        "driver-mismatch",
        "forward compatibility was attempted",
        "Error 804: forward compatibility was attempted on non supported HW",
        "CUDA",
    ),
    Signature(
        "driver-mismatch",
        "unsupported display driver / cuda driver combination",
        "RuntimeError: Error 803: system has unsupported display driver / cuda driver combination",
        "CUDA",
    ),
    Signature(
        "driver-mismatch",
        "active drivers ([])",
        "RuntimeError: 0 active drivers ([]). There should only be one.",
        f"{CPU} (Triton without a GPU)",
        where=EXCEPTION,
    ),
    Signature(
        "gpu-fault",
        "CUDA error: ",
        "torch.AcceleratorError: CUDA error: an illegal memory access was encountered",
        TORCH,
        r"CUDA error: (?:an illegal memory access|unspecified launch failure|uncorrectable ECC|"
        r"misaligned address|an illegal instruction|device-side assert|hardware stack error|"
        r"uncorrectable NVLink|unknown error|GPU is lost)",
    ),
    Signature(
        "gpu-fault",
        "Xid (",
        "NVRM: Xid (PCI:0000:41:00): 79, pid=812, GPU has fallen off the bus.",
        "NVIDIA driver",
    ),
)
