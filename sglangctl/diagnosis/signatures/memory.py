"""Memory, disks and files: what the host ran out of."""

from __future__ import annotations

from sglangctl.diagnosis.signatures.base import (
    H200,
    REPORT,
    SOURCE,
    TORCH,
    Signature,
    caused,
    raised,
)

# Where the model lies, not a cache of ours: a hub's cache holds weights too.
SIGNATURES = caused(
    "weights-unreadable",
    raised(
        "ermission denied",
        "PermissionError: [Errno 13] Permission denied: '/models/m/model-00001-of-00006.safetensors'",
        "Python, safetensors",
        r"ermission denied.{0,400}\.(?:safetensors|safetensors\.index\.json|bin|pt|pth|gguf)\b|"
        r"\.(?:safetensors|bin|pt|pth|gguf)\b.{0,60}[Pp]ermission denied|"
        r"SafetensorError.*[Pp]ermission denied",
    ),
    raised(
        "Errno",
        "OSError: [Errno 116] Stale file handle: '/models/m/model-00002-of-00006.safetensors'",
        "Python, on a network file system",
        r"\[Errno (?:1|5|13|116|121)\].{0,400}\.(?:safetensors|safetensors\.index\.json|gguf)\b",
    ),
)
# A --max-total-tokens of 1 and its like.
SIGNATURES += caused(
    "cache-too-small",
    raised(
        "Memory pool size is too small",
        "AssertionError: Memory pool size is too small",
        SOURCE,
    ),
    raised("max_running_request is zero", "AssertionError: max_running_request is zero", SOURCE),
)
SIGNATURES += caused(
    "gpu-out-of-memory",
    Signature(
        "CUDA out of memory",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
        TORCH,
    ),
    Signature(
        "CUDA error: out of memory",
        "torch.AcceleratorError: CUDA error: out of memory",
        TORCH,
    ),
    Signature(
        "out of memory",
        "RuntimeError: Triton Error [CUDA]: out of memory",
        f"Triton; {TORCH}; NCCL",
        r"(?:\[CUDA\]: |cudaMalloc failed: |Cuda failure(?: \d+)? '|CUDA error 2: |"
        r"CUDART error: |cuMem\w+ failed.{0,40})out of memory",
    ),
    raised(
        "CUDA_ERROR_OUT_OF_MEMORY",
        "RuntimeError: CUDA driver error: CUDA_ERROR_OUT_OF_MEMORY",
        "CUDA",
    ),
    Signature(
        "CUBLAS_STATUS_ALLOC_FAILED",
        "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        TORCH,
    ),
    raised(
        "--mem-fraction-static",
        "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.",
        f"{SOURCE}; {H200}",
        # Not the advice that goes with every failed graph capture ("set ... to a smaller value").
        r"[Nn]ot enough memory|(?:[Ii]ncrease|[Rr]aise) --mem-fraction-static",
    ),
    Signature(
        "leave no GPU memory for the KV cache",
        "RuntimeError: Loaded weights leave no GPU memory for the KV cache",
        SOURCE,
    ),
    raised(
        "memory capacity is unbalanced",
        "ValueError: The memory capacity is unbalanced. Some GPUs may be occupied by other "
        "processes.",
        SOURCE,
    ),
)
SIGNATURES += caused(
    "host-out-of-memory",
    Signature(
        "DefaultCPUAllocator",
        "RuntimeError: [enforce fail at alloc_cpu.cpp:117] DefaultCPUAllocator: can't allocate "
        "memory: you tried to allocate 8589934592 bytes.",
        TORCH,
    ),
    raised("Cannot allocate memory", "OSError: [Errno 12] Cannot allocate memory", "Python"),
    Signature(
        "MemoryError",
        "MemoryError",
        "Python, NumPy",
        r"^(?:[\w.]+\.)?_?(?:Array)?MemoryError\b",
    ),
    raised(
        "ost memory",
        "ValueError: Not enough host memory available. Requesting 40.00 GB but only have 4.87 GB free. "
        "Please reduce the size of the hierarchical cache.",
        SOURCE,
        r"[Nn]ot enough host memory|[Ii]nsufficient host memory|[Hh]ost memory.{0,60}exhausted",
    ),
    Signature(
        "std::bad_alloc",
        "terminate called after throwing an instance of 'std::bad_alloc'",
        "C++",
    ),
)
SIGNATURES += caused(
    "shared-memory",
    Signature(
        "/dev/shm",
        "OSError: [Errno 28] No space left on device: '/dev/shm/sgl_shm_mm_0'",
        REPORT,
        # Attaching fails where the other rank is gone, however much room there is.
        r"No space left on device|Error while creating shared memory segment|[Nn]ot enough space",
    ),
    Signature(
        "shared memory",
        "RuntimeError: unable to allocate shared memory(shm) for file </torch_812_0>: Success (0)",
        TORCH,
        r"unable to (?:open|allocate|mmap|resize).*shared memory|insufficient shared memory|"
        r"out of shared memory|shared memory \(shm\).{0,80}(?:exhausted|full)",
    ),
)
# The limit of processes and threads.
SIGNATURES += caused(
    "too-many-tasks",
    raised(
        "start new thread",
        "RuntimeError: can't start new thread",
        "Python",
        r"can(?:'|no)t start new thread",
    ),
    Signature(
        "hread",
        "OpenBLAS blas_thread_init: pthread_create failed for thread 50 of 64: Resource temporarily "
        "unavailable",
        "OpenBLAS, libgomp",
        r"pthread_create.{0,80}(?:failed|Resource temporarily unavailable)|"
        r"[Tt]hread creation failed|(?:unable|failed) to create (?:a )?(?:new )?(?:native |worker )?thread",
    ),
    Signature(
        "OMP: Error #34",
        "OMP: Error #34: System unable to allocate necessary resources for OMP thread",
        "OpenMP",
    ),
    Signature(
        "Resource temporarily unavailable",
        "bash: fork: retry: Resource temporarily unavailable",
        "bash, C++",
        r"\bfork: |^ *what\(\): +Resource temporarily unavailable",
    ),
    Signature(
        "RLIMIT_NPROC",
        "OpenBLAS blas_thread_init: RLIMIT_NPROC 4096 current, 513046 max",
        "OpenBLAS",
        r"RLIMIT_NPROC \d",
    ),
)
SIGNATURES += caused(
    "disk-full",
    Signature("No space left on device", "OSError: [Errno 28] No space left on device", "Python"),
    raised("Disk quota exceeded", "OSError: [Errno 122] Disk quota exceeded", "Python"),
)
SIGNATURES += caused(
    "too-many-files",
    Signature(
        "Too many open files",
        "OSError: [Errno 24] Too many open files: '/models/m/model-00001-of-00064.safetensors'",
        "Python",
        r"\[Errno 2[34]\]|Error|Exception",
    ),
)
SIGNATURES += caused(
    "cache-not-writable",
    raised(
        "cache",
        "PermissionError: [Errno 13] Permission denied: '/home/sglang/.cache/flashinfer'",
        H200,
        r"(?:PermissionError|OSError): \[Errno (?:13|30|37|38|95|116)\].*cache",
    ),
    raised(
        "cache directory permissions",
        "OSError: PermissionError at /var/cache/hub when downloading m. Check cache directory "
        "permissions.",
        "Transformers",
    ),
)
