"""The kernels: broken, without code for this GPU, or not able to run on it."""

from __future__ import annotations

from sglangctl.diagnosis.signatures.base import (
    CPU,
    CUDA,
    FLASHINFER,
    H200,
    REPORT,
    SOURCE,
    TORCH,
    TRITON,
    Signature,
    caused,
    raised,
)

_OURS = r"(?:sgl_kernel|common_ops|flash_ops|flashmla_ops|spatial_ops|infllm_ops)"

# The kernel's .so.
SIGNATURES = caused(
    "kernel-broken",
    Signature(
        "Could not load any common_ops library",
        "[sgl_kernel] CRITICAL: Could not load any common_ops library!",
        H200,
    ),
    raised(
        "undefined symbol",
        "ImportError: /opt/engine/site/sgl_kernel/sm100/common_ops.abi3.so: undefined symbol: "
        "_ZN3c104cuda9SetDeviceEab",
        REPORT,
        rf"{_OURS}.{{0,300}}undefined symbol",
    ),
    raised(
        "cannot open shared object file",
        "ImportError: libnvrtc.so.12: cannot open shared object file: No such file or directory",
        REPORT,
        r"ImportError: lib(?:nvrtc|cublas|cublasLt|cudart|torch|c10)\w*\.so",
    ),
    raised(
        "sgl_kernel",
        "ModuleNotFoundError: No module named 'sgl_kernel'",
        CPU,
        r"^(?:ModuleNotFoundError|ImportError): (?!.*GLIBC).*sgl_kernel",
    ),
    raised(
        ".so",
        "ImportError: /opt/engine/site/flash_ops.abi3.so: file too short",
        "glibc",
        r"ImportError: .*\.so(?:\.\d+)*: (?:file too short|invalid ELF header)",
    ),
    Signature(
        "inimum required version",
        "Exception: sglang-kernel is installed with version 0.4.5, which is less than the "
        "minimum required version 0.4.9.",
        SOURCE,
        r"(?:sgl-kernel|sglang-kernel)\b.*minimum required version",
    ),
)
# No code for this GPU.
SIGNATURES += caused(
    "no-kernel-image",
    Signature(
        "no kernel image is available",
        "RuntimeError: CUDA error: no kernel image is available for execution on the device",
        REPORT,
    ),
    Signature(
        "device kernel image is invalid",
        "RuntimeError: Triton Error [CUDA]: device kernel image is invalid",
        CUDA,
    ),
    Signature(
        "for current compute capability",
        "NotImplementedError: No implemented fp8_blockwise_scaled_grouped_mm for current compute "
        "capability",
        "sglang-kernel 0.4.10, strings of the wheel",
    ),
)
# A kernel that the flags chose, and that does not run here.
SIGNATURES += caused(
    "backend-unsupported",
    Signature(
        "out of resource",
        "triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 131072, "
        "Hardware limit: 101376. Reducing block sizes or `num_stages` may help.",
        TRITON,
        r"out of resources?: (?:shared memory|threads|tensor memory|registers)",
    ),
    raised(
        "nsupported arch",
        "tvm.error.InternalError: Error in function 'TllmGenFmhaRunner' at fmhaRunner.cuh:37: "
        "Unsupported architecture",
        FLASHINFER,
        r"[Uu]nsupported arch(?:itecture)?\b(?!.*For[A-Z])",
    ),
    raised(
        "ailed to",
        "RuntimeError: Failed to initialize cutlass FP4 gemm on sm120. Error: Error Internal",
        FLASHINFER,
        r"[Ff]ailed to (?:initialize|run|implement)\b.{0,60}(?:[Gg][Ee][Mm][Mm]|cutlass|CUTLASS)|"
        r"(?:[Gg][Ee][Mm][Mm]|cutlass|CUTLASS)\b.{0,60}[Ff]ailed to (?:initialize|run|implement)|"
        r"[Gg][Ee][Mm][Mm] [Rr]unner.{0,80}[Ff]ailed",
    ),
    raised(
        "Error ",
        "RuntimeError: Error Internal",
        "CUTLASS: its status, from an NVFP4 kernel",
        r"^RuntimeError: (?:.{0,120}[:\]] )?Error (?:Internal|Not Supported|Arch Mismatch|"
        r"Misaligned Operand|Invalid Problem|Invalid Layout|Workspace Null)\b",
    ),
    Signature(
        "Arch conditional MMA",
        "ERROR : Arch conditional MMA instruction used without targeting appropriate compute "
        "capability. Aborting.",
        "CUTLASS",
    ),
    Signature(
        "LLVM ERROR",
        "LLVM ERROR: Cannot select: intrinsic %llvm.nvvm.tcgen05.wait.ld",
        TRITON,
        r"LLVM ERROR: Cannot select",
    ),
    Signature(
        "too many resources requested for launch",
        "RuntimeError: CUDA error: too many resources requested for launch",
        CUDA,
    ),
    raised(
        "_STATUS_",
        "RuntimeError: cuDNN error: CUDNN_STATUS_NOT_SUPPORTED",
        TORCH,
        r"CU(?:DNN|BLAS)_STATUS_(?:NOT_SUPPORTED|ARCH_MISMATCH)",
    ),
    raised(
        "No valid execution plans",
        "cudnn._compiled_module.cudnnGraphNotSupportedError: No valid execution plans built.",
        "cuDNN",
    ),
)
