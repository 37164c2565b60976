"""Log lines that name a cause, each with an example and where it was seen.

A bare word is never a signature: a healthy log holds about 150 "Traceback" and "Ignore import
error" lines. Order matters: the first match counts. `needle` is a literal that is looked for
first, so that the regular expression runs on few lines; EXCEPTION signatures count only for
the last line of a traceback.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

ANY = "any"
EXCEPTION = "exception"

H200 = "SGLang 0.5.16 on 2 x H200"
CPU = "SGLang 0.5.23 on a CPU"
SOURCE = "SGLang 0.5.23, source"
REPORT = "public report"
TORCH = "PyTorch"


@dataclass(frozen=True)
class Signature:
    """One line that names a cause."""

    cause: str
    needle: str
    example: str
    """A line that it matches (a test says so)."""
    seen: str
    pattern: str = ""
    where: str = ANY
    effect: bool = False
    """True: the line tells of a consequence (a peer is gone), so that any other cause goes first."""
    regex: re.Pattern[str] | None = field(init=False, default=None, compare=False)

    def __post_init__(self) -> None:
        if self.pattern:
            object.__setattr__(self, "regex", re.compile(self.pattern))

    def matches(self, line: str, exception: bool) -> bool:
        """Whether `line` is this signature's; exception: it ends a traceback."""
        if self.needle not in line or (self.where == EXCEPTION and not exception):
            return False
        return self.regex is None or self.regex.search(line) is not None


# An interpreter's class name before a message: "torch.AcceleratorError: CUDA error: ...".
_REFUSED = (
    r"^[\w.]*(?:ValueError|AssertionError|NotImplementedError|RuntimeError|ValidationError|"
    r"KeyError|TypeError)\b.*(?:divisible|not a multiple|not supported|unsupported|Unsupported|"
    r"only support|does not support|incompatible|not compatible|must be|should be|requires|"
    r"is required|cannot be used|can not be used|[Cc]lass validation error)"
)

SIGNATURES = (
    # The port: found only after the whole load.
    Signature(
        "port-taken",
        "error while attempting to bind on address",
        "ERROR:    [Errno 98] error while attempting to bind on address ('0.0.0.0', 30000): "
        "address already in use",
        f"{CPU}, {H200}",
    ),
    Signature(
        "port-taken",
        "EADDRINUSE",
        "RuntimeError: The server socket has failed to listen on any local network address. "
        "port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use",
        TORCH,
    ),
    Signature(
        "port-taken",
        "ddress already in use",
        "OSError: [Errno 98] Address already in use",
        "Python",
        r"\[Errno 98\]|zmq\.error\.ZMQError",
    ),
    Signature(
        "port-taken",
        "is not available in",
        "ValueError: port at 30233 is not available in 30 seconds.",
        SOURCE,
        r"\bport\b.* is not available in \d+ seconds",
    ),
    # Flags, found by argparse before anything else.
    Signature(
        "unknown-flag",
        "error: unrecognized arguments",
        "sglang serve: error: unrecognized arguments: --no-such-flag",
        f"{CPU}, {H200}",
        r": error: unrecognized arguments: ",
    ),
    Signature(
        "unknown-flag",
        "error: ambiguous option",
        "launch_server.py: error: ambiguous option: --cuda-graph-max-bs could match "
        "--cuda-graph-max-bs-decode, --cuda-graph-max-bs-prefill",
        SOURCE,
    ),
    Signature(
        "unknown-flag",
        "Unsupported config option",
        "ValueError: Unsupported config option for key 'disable-cuda-graph'",
        CPU,
    ),
    Signature(
        "unsupported-configuration",
        ": error: argument ",
        "launch_server.py: error: argument --attention-backend: invalid choice: 'fa9'",
        SOURCE,
        r": error: argument \S+.*: (?:invalid|expected|not allowed|ignored explicit)",
    ),
    Signature(
        "unsupported-configuration",
        ": error: the following arguments are required",
        "launch_server.py: error: the following arguments are required: --model-path",
        SOURCE,
    ),
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
    # Memory.
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
    # The model's own code, its files, its tokenizer.
    Signature(
        "trust-remote-code",
        "contains custom code which must be executed",
        "ValueError: The repository /models/m contains custom code which must be executed to "
        "correctly load the model.",
        H200,
    ),
    Signature(
        "trust-remote-code",
        "Please pass the argument `trust_remote_code=True`",
        "Please pass the argument `trust_remote_code=True` to allow custom code to be run.",
        H200,
    ),
    Signature(
        "tokenizer-missing",
        "okenizer",
        "OSError: Can't load tokenizer for '/models/m'.",
        "Transformers",
        r"(?:Can't load|[Cc]ouldn't (?:load|instantiate)|[Cc]annot (?:load|instantiate)|"
        r"Failed to load|[Uu]nable to load).*[Tt]okenizer|"
        r"[Tt]okenizer(?: class)? \S+ does not exist|"
        r"does not appear to have a file named tokenizer",
        EXCEPTION,
    ),
    Signature(
        "unsupported-model",
        "does not recognize this architecture",
        "ValueError: The checkpoint you are trying to load has model type `nonesuch` but "
        "Transformers does not recognize this architecture.",
        "Transformers",
    ),
    Signature(
        "unsupported-model",
        "rchitectures",
        "ValueError: Model architectures ['NoSuchForCausalLM'] are not supported for now.",
        f"{H200}; {SOURCE}",
        r"[Aa]rchitectures? .*(?:not supported|no SGLang|failed to be inspected)",
        EXCEPTION,
    ),
    Signature(
        "unsupported-model",
        "implementation and the Transformers",
        "ValueError: NoSuchForCausalLM has no SGlang implementation and the Transformers "
        "implementation is not compatible with SGLang.",
        SOURCE,
        r"has no SG[Ll]ang implementation",
    ),
    Signature(
        "unsupported-model",
        "Cannot find model module",
        "ValueError: Cannot find model module. 'NoSuchForCausalLM' is not a registered model in "
        "the Transformers library (only relevant if the model is meant to be in Transformers)",
        SOURCE,
    ),
    Signature(
        "weights-missing",
        "missing from",
        "RuntimeError: model.safetensors.index.json references 1 shard file(s) missing from "
        "/models/m",
        CPU,
        r"references \d+ shard file\(s\) missing from",
    ),
    Signature(
        "weights-missing",
        "Cannot find any model weights",
        "RuntimeError: Cannot find any model weights with `/models/m`",
        SOURCE,
    ),
    Signature(
        "weights-missing",
        ".safetensors",
        "FileNotFoundError: No such file or directory: /models/m/model-00003-of-00006.safetensors",
        CPU,
        r"FileNotFoundError|No such file or directory",
        EXCEPTION,
    ),
    Signature(
        "weights-corrupt",
        "SafetensorError",
        "safetensors._safetensors_rust.SafetensorError: Error while deserializing header: "
        "incomplete metadata, file not fully covered",
        f"{CPU}, {H200}",
    ),
    Signature(
        "weights-corrupt",
        "PytorchStreamReader failed",
        "RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central "
        "directory",
        TORCH,
    ),
    Signature(
        "weights-corrupt",
        "UnpicklingError",
        "_pickle.UnpicklingError: pickle data was truncated",
        TORCH,
    ),
    Signature(
        "drafter-mismatch",
        "does not implement",
        "ValueError: Model LlamaForCausalLM does not implement set_eagle3_layers_to_capture",
        SOURCE,
        r"eagle3",
    ),
    Signature(
        "drafter-mismatch",
        "but the draft vocab",
        "target to share one vocab, but the draft vocab (32000) != target vocab (163840).",
        SOURCE,
    ),
    Signature(
        "weights-corrupt",
        "Attempted to load weight",
        "AssertionError: Attempted to load weight (torch.Size([1024, 2048])) into parameter "
        "(torch.Size([1024, 4096]))",
        H200,
    ),
    Signature(
        "model-not-found",
        "Repo id must be in the form",
        "OSError: Repo id must be in the form 'repo_name' or 'namespace/repo_name': '/models/none'",
        f"{CPU}, {H200}",
    ),
    Signature(
        "model-not-found",
        "We couldn't connect to",
        "OSError: We couldn't connect to 'https://huggingface.co' to load the files, and couldn't "
        "find them in the cached files.",
        CPU,
        where=EXCEPTION,
    ),
    Signature(
        "model-not-found",
        "LocalEntryNotFoundError",
        "huggingface_hub.errors.LocalEntryNotFoundError: Cannot find the requested files in the "
        "disk cache and outgoing traffic has been disabled.",
        CPU,
        where=EXCEPTION,
    ),
    Signature(
        "model-not-found",
        "is not a valid model identifier",
        "OSError: kimi is not a local folder and is not a valid model identifier listed on "
        "'https://huggingface.co/models'",
        "Transformers",
    ),
    Signature(
        "model-not-found",
        "config.json",
        "OSError: /models/m does not appear to have a file named config.json.",
        "Transformers",
        r"(?:does not appear to have a file named |No such file or directory: .*/|"
        r"Permission denied: .*/|`model_type` key in its )config\.json",
        EXCEPTION,
    ),
    Signature(
        "model-not-found",
        "RepoError",
        "huggingface_hub.errors.GatedRepoError: 401 Client Error.",
        "huggingface_hub",
        where=EXCEPTION,
    ),
    Signature(
        "model-not-found",
        "RepositoryNotFoundError",
        "huggingface_hub.errors.RepositoryNotFoundError: 404 Client Error.",
        "huggingface_hub",
        where=EXCEPTION,
    ),
    # Ranks and NCCL. What one rank says when a peer is gone is an effect.
    Signature(
        "rank-died",
        "ncclRemoteError",
        "torch.distributed.DistBackendError: NCCL error in: NCCLUtils.cpp:77, remote process "
        "exited or there was a network error, ncclRemoteError",
        TORCH,
        effect=True,
    ),
    Signature(
        "rank-died",
        "onnection ",
        "RuntimeError: [gloo/transport/tcp/pair.cc:538] Read error [127.0.0.1]:48528: Connection "
        "reset by peer",
        H200,
        r"(?:Error|Exception)\b.*(?:gloo|recvBytes|TCPStore|SocketImpl|Broken pipe).*|"
        r"Connection (?:closed|reset) by peer",
        EXCEPTION,
        True,
    ),
    Signature(
        "nccl-timeout",
        "ollective operation timeout",
        "[rank0]:[E1129 ProcessGroupNCCL.cpp:629] [Rank 0] Watchdog caught collective operation "
        "timeout: WorkNCCL(SeqNum=1) ran for 600032 milliseconds before timing out.",
        TORCH,
    ),
    Signature(
        "nccl-timeout",
        "imed out",
        "torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 1/2 "
        "clients joined.",
        TORCH,
        r"Dist(?:Store|Network|Backend)Error: .*[Tt]imed out|"
        r"(?:gloo|TCPStore|c10d).*[Tt]imed out",
        EXCEPTION,
    ),
    Signature(
        "nccl-error",
        "no socket interface found",
        "vm:2531:2531 [0] bootstrap.cc:106 NCCL WARN Bootstrap : no socket interface found",
        H200,
    ),
    Signature(
        "nccl-error",
        "NCCL error",
        "RuntimeError: NCCL error: invalid usage (run with NCCL_DEBUG=WARN for details)",
        H200,
        where=EXCEPTION,
    ),
    Signature(
        "nccl-error",
        "nccl",
        "torch.distributed.DistBackendError: ncclUnhandledCudaError: Call to CUDA function failed.",
        TORCH,
        r"nccl(?:UnhandledCuda|System|Internal|InvalidArgument|InvalidUsage)(?:Error)?\b",
        EXCEPTION,
    ),
    # The engine's own verdicts.
    Signature(
        "watchdog",
        "watchdog timeout",
        "Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)",
        SOURCE,
        r"atchdog timeout \((?!.*soft=True)",
    ),
    Signature(
        "warmup-failed",
        "Initialization failed. warmup error",
        "Initialization failed. warmup error: Traceback (most recent call last):",
        CPU,
        effect=True,
    ),
    # What is left of exceptions in which the engine refuses.
    Signature(
        "unsupported-configuration",
        "is not a valid JSON file",
        "OSError: It looks like the config file at '/models/m/config.json' is not a valid JSON file.",
        "Transformers 5.19",
        where=EXCEPTION,
    ),
    Signature(
        "unsupported-configuration",
        "alidation error for",
        "huggingface_hub.errors.StrictDataclassFieldValidationError: Validation error for field "
        "'hidden_size':",
        "Transformers 5.19",
        r"^[\w.]*ValidationError: ",
        EXCEPTION,
    ),
    Signature(
        "unsupported-configuration",
        "SGLANG_CPU_OMP_THREADS_BIND is not set",
        "AssertionError: SGLANG_CPU_OMP_THREADS_BIND is not set, in this case, the total number of "
        "ranks (dp_size * tp_size * pp_size = 2) should be smaller than or equal to number of "
        "numa node on the machine 1.",
        CPU,
    ),
    Signature(
        "unsupported-configuration",
        "Could not find nvcc",
        "RuntimeError: Could not find nvcc. Please set CUDA_HOME",
        SOURCE,
        where=EXCEPTION,
    ),
    Signature(
        "unsupported-configuration",
        "Error",
        "ValueError: The hidden size (2048) is not a multiple of the number of attention heads "
        "(15).",
        H200,
        _REFUSED,
        EXCEPTION,
    ),
)

# A line without any of these is no signature's: one pass of plain substring searches.
TRIGGERS = (
    "rror",
    "xception",
    "atal",
    "NCCL",
    "Xid",
    "atchdog",
    "memory",
    "common_ops",
    "unrecognized",
    "warmup",
    "trust_remote_code",
    "SGLANG_CPU_OMP",
    "no kernel image",
    "current compute capability",
    "draft vocab",
    "inimum required version",
)


def find(line: str, exception: bool = False) -> Signature | None:
    """The first signature that `line` matches; exception: the line ends a traceback."""
    if not any(trigger in line for trigger in TRIGGERS):
        return None
    if "Ignore import error" in line:
        return None
    for signature in SIGNATURES:
        if signature.matches(line, exception):
            return signature
    return None
