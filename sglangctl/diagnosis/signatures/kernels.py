"""The kernels: broken, without code for this GPU, or not able to run on it."""

from __future__ import annotations

from sglangctl.diagnosis.signatures.base import (
    CPU,
    CUDA,
    EXCEPTION,
    FLASHINFER,
    H200,
    REPORT,
    SOURCE,
    TORCH,
    TRITON,
    Signature,
)

_OURS = r"(?:sgl_kernel|common_ops|flash_ops|flashmla_ops|spatial_ops|infllm_ops)"

SIGNATURES = (
    # The kernel's .so.
    Signature(
        "kernel-broken",
        "Could not load any common_ops library",
        "[sgl_kernel] CRITICAL: Could not load any common_ops library!",
        H200,
    ),
    Signature(
        "kernel-broken",
        "undefined symbol",
        "ImportError: /opt/engine/site/sgl_kernel/sm100/common_ops.abi3.so: undefined symbol: "
        "_ZN3c104cuda9SetDeviceEab",
        REPORT,
        rf"{_OURS}.{{0,300}}undefined symbol",
        EXCEPTION,
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
        r"^(?:ModuleNotFoundError|ImportError): (?!.*GLIBC).*sgl_kernel",
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
    # No code for this GPU.
    Signature(
        "no-kernel-image",
        "no kernel image is available",
        "RuntimeError: CUDA error: no kernel image is available for execution on the device",
        REPORT,
    ),
    Signature(
        "no-kernel-image",
        "device kernel image is invalid",
        "RuntimeError: Triton Error [CUDA]: device kernel image is invalid",
        CUDA,
    ),
    Signature(
        "no-kernel-image",
        "for current compute capability",
        "NotImplementedError: No implemented fp8_blockwise_scaled_grouped_mm for current compute "
        "capability",
        "sglang-kernel 0.4.10, strings of the wheel",
    ),
    # A kernel that the flags chose, and that does not run here.
    Signature(
        "backend-unsupported",
        "out of resource",
        "triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 131072, "
        "Hardware limit: 101376. Reducing block sizes or `num_stages` may help.",
        TRITON,
        r"out of resources?: (?:shared memory|threads|tensor memory|registers)",
    ),
    Signature(
        "backend-unsupported",
        "nsupported arch",
        "tvm.error.InternalError: Error in function 'TllmGenFmhaRunner' at fmhaRunner.cuh:37: "
        "Unsupported architecture",
        FLASHINFER,
        r"[Uu]nsupported arch(?:itecture)?\b(?!.*For[A-Z])",
        EXCEPTION,
    ),
    Signature(
        "backend-unsupported",
        "ailed to",
        "RuntimeError: Failed to initialize cutlass FP4 gemm on sm120. Error: Error Internal",
        FLASHINFER,
        r"[Ff]ailed to (?:initialize|run|implement)\b.{0,60}(?:[Gg][Ee][Mm][Mm]|cutlass|CUTLASS)|"
        r"(?:[Gg][Ee][Mm][Mm]|cutlass|CUTLASS)\b.{0,60}[Ff]ailed to (?:initialize|run|implement)|"
        r"[Gg][Ee][Mm][Mm] [Rr]unner.{0,80}[Ff]ailed",
        EXCEPTION,
    ),
    Signature(
        "backend-unsupported",
        "Error ",
        "RuntimeError: Error Internal",
        "CUTLASS: its status, from an NVFP4 kernel",
        r"^RuntimeError: (?:.{0,120}[:\]] )?Error (?:Internal|Not Supported|Arch Mismatch|"
        r"Misaligned Operand|Invalid Problem|Invalid Layout|Workspace Null)\b",
        EXCEPTION,
    ),
    Signature(
        "backend-unsupported",
        "Arch conditional MMA",
        "ERROR : Arch conditional MMA instruction used without targeting appropriate compute "
        "capability. Aborting.",
        "CUTLASS",
    ),
    Signature(
        "backend-unsupported",
        "LLVM ERROR",
        "LLVM ERROR: Cannot select: intrinsic %llvm.nvvm.tcgen05.wait.ld",
        TRITON,
        r"LLVM ERROR: Cannot select",
    ),
    Signature(
        "backend-unsupported",
        "too many resources requested for launch",
        "RuntimeError: CUDA error: too many resources requested for launch",
        CUDA,
    ),
    Signature(
        "backend-unsupported",
        "_STATUS_",
        "RuntimeError: cuDNN error: CUDNN_STATUS_NOT_SUPPORTED",
        TORCH,
        r"CU(?:DNN|BLAS)_STATUS_(?:NOT_SUPPORTED|ARCH_MISMATCH)",
        EXCEPTION,
    ),
    Signature(
        "backend-unsupported",
        "No valid execution plans",
        "cudnn._compiled_module.cudnnGraphNotSupportedError: No valid execution plans built.",
        "cuDNN",
        where=EXCEPTION,
    ),
)
