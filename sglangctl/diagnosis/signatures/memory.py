"""Memory, disks and files: what the host ran out of."""

from __future__ import annotations

from sglangctl.diagnosis.signatures.base import EXCEPTION, H200, REPORT, SOURCE, TORCH, Signature

SIGNATURES = (
    Signature(
        "gpu-out-of-memory",
        "CUDA out of memory",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
        TORCH,
    ),
    Signature(
        "gpu-out-of-memory",
        "CUDA error: out of memory",
        "torch.AcceleratorError: CUDA error: out of memory",
        TORCH,
    ),
    Signature(
        "gpu-out-of-memory",
        "CUBLAS_STATUS_ALLOC_FAILED",
        "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        TORCH,
    ),
    Signature(
        "gpu-out-of-memory",
        "--mem-fraction-static",
        "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.",
        f"{SOURCE}; {H200}",
        # Not the advice that goes with every failed graph capture ("set ... to a smaller value").
        r"[Nn]ot enough memory|(?:[Ii]ncrease|[Rr]aise) --mem-fraction-static",
        EXCEPTION,
    ),
    Signature(
        "gpu-out-of-memory",
        "leave no GPU memory for the KV cache",
        "RuntimeError: Loaded weights leave no GPU memory for the KV cache",
        SOURCE,
    ),
    Signature(
        "gpu-out-of-memory",
        "memory capacity is unbalanced",
        "ValueError: The memory capacity is unbalanced. Some GPUs may be occupied by other "
        "processes.",
        SOURCE,
        where=EXCEPTION,
    ),
    Signature(
        "host-out-of-memory",
        "DefaultCPUAllocator",
        "RuntimeError: [enforce fail at alloc_cpu.cpp:117] DefaultCPUAllocator: can't allocate "
        "memory: you tried to allocate 8589934592 bytes.",
        TORCH,
    ),
    Signature(
        "host-out-of-memory",
        "Cannot allocate memory",
        "OSError: [Errno 12] Cannot allocate memory",
        "Python",
        where=EXCEPTION,
    ),
    Signature("host-out-of-memory", "MemoryError", "MemoryError", "Python", r"^MemoryError\b"),
    Signature(
        "shared-memory",
        "/dev/shm",
        "OSError: [Errno 28] No space left on device: '/dev/shm/sgl_shm_mm_0'",
        REPORT,
        r"No space left on device|Error while (?:creating|attaching to) shared memory segment",
    ),
    Signature(
        "shared-memory",
        "shared memory",
        "RuntimeError: unable to allocate shared memory(shm) for file </torch_812_0>: Success (0)",
        TORCH,
        r"unable to (?:open|allocate|mmap|resize).*shared memory|insufficient shared memory",
    ),
    Signature(
        "disk-full",
        "No space left on device",
        "OSError: [Errno 28] No space left on device",
        "Python",
    ),
    Signature(
        "disk-full",
        "Disk quota exceeded",
        "OSError: [Errno 122] Disk quota exceeded",
        "Python",
        where=EXCEPTION,
    ),
    Signature(
        "too-many-files",
        "Too many open files",
        "OSError: [Errno 24] Too many open files: '/models/m/model-00001-of-00064.safetensors'",
        "Python",
        r"\[Errno 2[34]\]|Error|Exception",
    ),
    Signature(
        "cache-not-writable",
        "cache",
        "PermissionError: [Errno 13] Permission denied: '/home/sglang/.cache/flashinfer'",
        H200,
        r"(?:PermissionError|OSError): \[Errno (?:13|30)\].*cache",
        EXCEPTION,
    ),
)
