"""Failures that people published get the cause that a good operator would name, and so do their kin."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from sglangctl.startup.assessment import Assessment
from sglangctl.startup.fold import Startup
from sglangctl.state import journal
from tests.support.startup_events import exit_, feed, launch, log, raw

HERE = Path(__file__).parent
with (HERE / "expected.tsv").open(encoding="utf-8") as table:
    CASES = list(csv.DictReader(table, delimiter="\t"))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["case"])
def test_a_published_failure(case: dict[str, str]) -> None:
    startup = Startup()
    for event in journal.read(HERE / f"{case['case']}.jsonl"):
        startup.feed(event)
    said = startup.tick(startup.now + 2)
    assert said.outcome == case["outcome"]
    assert said.cause in case["causes"].split("|"), said.evidence


def crashed(*lines: str, frames: str = "", before: str = "", code: int = -9) -> Assessment:
    """A rank that ends with an exception; `before`: what stood in the log already."""
    startup = Startup()
    feed(startup, launch(), log(20, "Load weight begin. avail mem=93.00 GB", "TP0"))
    if before:
        feed(startup, raw(29, before + "\n"))
    text = "Scheduler hit an exception: Traceback (most recent call last):"
    stack = f'  File "{frames or "scheduler.py"}\n    scheduler = Scheduler(\n'
    event = log(30, text, "TP0")
    feed(startup, {**event, "data": event["data"] + stack + "\n".join(lines) + "\n\n"})
    feed(
        startup,
        log(31, "Received sigquit from a child process. It usually means the child failed."),
    )
    return feed(startup, exit_(33, code))


def printed(text: str, code: int = 1) -> Assessment:
    """A start that prints this and ends."""
    startup = Startup()
    return feed(startup, launch(), raw(5, text + "\n"), exit_(6, code))


NINJA = "RuntimeError: Ninja build failed. Ninja output:"
BUILD = "subprocess.CalledProcessError: Command '['/usr/bin/gcc', 'main.c']' returned non-zero exit status 1."
RAISED = [
    # jit-toolchain: a tool, a header, a version, the compiler's own words
    (
        ("FileNotFoundError: [Errno 2] No such file or directory: '/usr/local/cuda/bin/nvcc'",),
        "jit-toolchain",
    ),
    (("FileNotFoundError: [Errno 2] No such file or directory: 'g++'",), "jit-toolchain"),
    (
        ("FileNotFoundError: [Errno 2] No such file or directory: 'x86_64-linux-gnu-gcc-13'",),
        "unknown",
    ),
    (("OSError: CUDA_HOME environment variable is not set.",), "jit-toolchain"),
    (
        ("RuntimeError: Failed to find C compiler. Please specify via CC environment variable.",),
        "jit-toolchain",
    ),
    (
        (
            "torch._inductor.exc.InductorError: InvalidCxxCompiler: No working C++ compiler found in ('g++',)",
        ),
        "jit-toolchain",
    ),
    (
        (
            NINJA,
            "/bin/sh: 1: /usr/local/cuda/bin/nvcc: not found",
            "ninja: build stopped: subcommand failed.",
        ),
        "jit-toolchain",
    ),
    ((NINJA, "nvcc fatal   : Unsupported gpu architecture 'compute_120f'"), "jit-toolchain"),
    (
        (NINJA, 'x.cuh(5): catastrophic error: cannot open source file "cub/cub.cuh"'),
        "jit-toolchain",
    ),
    (
        (
            NINJA,
            "/usr/bin/ld: cannot find -lcuda: No such file or directory",
            "collect2: error: ld returned 1 exit status",
        ),
        "jit-toolchain",
    ),
    ((NINJA, "nvcc error   : 'cicc' died due to signal 9 (Kill signal)"), "host-out-of-memory"),
    ((NINJA, "OSError: [Errno 28] No space left on device"), "disk-full"),
    (
        (
            "triton.runtime.errors.PTXASError: PTXAS error: Internal Triton PTX codegen error",
            "`ptxas` stderr:",
            "ptxas fatal   : Value 'sm_120a' is not defined for option 'gpu-name'",
        ),
        "jit-toolchain",
    ),
    (
        (
            "RuntimeError: The detected CUDA version (11.8) mismatches the version that was used to compile PyTorch (12.8).",
        ),
        "jit-toolchain",
    ),
    (("AssertionError: NVCC version should be at least 12.9",), "jit-toolchain"),
    # environment-broken
    (("ModuleNotFoundError: No module named 'IPython'",), "environment-broken"),
    (
        (
            "ImportError: cannot import name 'is_flash_attn_greater' from 'transformers.utils' (/opt/v/x.py)",
        ),
        "environment-broken",
    ),
    (
        (
            "Exception: flashinfer_python is installed with version 0.6.1, which is less than the minimum required version 0.6.14.",
        ),
        "environment-broken",
    ),
    (
        (
            "ImportError: /lib/x86_64-linux-gnu/libstdc++.so.6: version `GLIBCXX_3.4.32' not found (required by x.so)",
        ),
        "environment-broken",
    ),
    (
        ("ImportError: /opt/v/flash_attn_2_cuda.so: undefined symbol: _ZN3c105ErrorC2E",),
        "environment-broken",
    ),
    (("AssertionError: Torch not compiled with CUDA enabled",), "environment-broken"),
    (("RuntimeError: operator torchvision::nms does not exist",), "environment-broken"),
    (("AttributeError: module 'torch' has no attribute 'float4_e2m1fn_x2'",), "environment-broken"),
    # backend-unsupported
    (
        (
            "triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 147456, Hardware limit: 101376.",
        ),
        "backend-unsupported",
    ),
    (
        (
            "RuntimeError: [FP4 gemm Runner] Failed to run cutlass FP4 gemm on sm120. Error: Error Internal",
        ),
        "backend-unsupported",
    ),
    (("RuntimeError: Error Not Supported",), "backend-unsupported"),
    (("RuntimeError: CUDA error: too many resources requested for launch",), "backend-unsupported"),
    # the GPU, its driver and its peers
    (("RuntimeError: CUDA error: system not yet initialized",), "fabric-manager"),
    (
        (
            "ValueError: invalid literal for int() with base 10: 'MIG-7a1b2c3d-0000-5000-8000-000000000000'",
        ),
        "gpu-unavailable",
    ),
    (("pynvml.NVMLError_Unknown: Unknown Error",), "driver-mismatch"),
    (("pynvml.NVMLError_DriverNotLoaded: Driver Not Loaded",), "driver-mismatch"),
    (("pynvml.NVMLError_GpuIsLost: GPU is lost",), "gpu-fault"),
    (("RuntimeError: Triton Error [CUDA]: an illegal memory access was encountered",), "gpu-fault"),
    (
        ("RuntimeError: CUDA error: the provided PTX was compiled with an unsupported toolchain.",),
        "driver-mismatch",
    ),
    (
        ("RuntimeError: CUDART error: peer access is not supported between these two devices",),
        "peer-access",
    ),
    # limits and files
    (("RuntimeError: can't start new thread",), "too-many-tasks"),
    (
        (
            "PermissionError: [Errno 13] Permission denied: '/var/cache/hub/models--m/snapshots/a/model-00001-of-00002.safetensors'",
        ),
        "weights-unreadable",
    ),
    (
        ("PermissionError: [Errno 13] Permission denied: '/models/m/config.json'",),
        "weights-unreadable",
    ),
    (
        ("safetensors_rust.SafetensorError: Error while opening: Permission denied (os error 13)",),
        "weights-unreadable",
    ),
    (
        (
            "PermissionError: [Errno 13] Permission denied: '/var/cache/sglang/x/.cache/flashinfer/0.7/cached_ops'",
        ),
        "cache-not-writable",
    ),
    (
        ("numpy.core._exceptions._ArrayMemoryError: Unable to allocate 40.0 GiB for an array",),
        "host-out-of-memory",
    ),
    # what existing causes missed
    (
        (
            "ValueError: rpc_port at 31200 is not available in 30 seconds. rpc_port is used by a process already.",
        ),
        "port-taken",
    ),
    (("ValueError: port at 30233 is not available in 30 seconds.",), "port-taken"),
    (
        ("AttributeError: 'LlamaForCausalLM' object has no attribute 'set_embed_and_head'",),
        "drafter-mismatch",
    ),
    (("KeyError: 'hot_token_id'",), "drafter-mismatch"),
    (
        (
            "ValueError: Converting from SentencePiece and Tiktoken failed, if a converter is available",
        ),
        "tokenizer-missing",
    ),
    (
        (
            "torch.distributed.DistBackendError: NCCL error in: NCCLUtils.cpp:77, unhandled cuda error",
            "ncclUnhandledCudaError: Call to CUDA function failed.",
            "Last error:",
            "Cuda failure 2 'out of memory'",
        ),
        "gpu-out-of-memory",
    ),
    (
        (
            "torch.distributed.DistBackendError: NCCL error in: NCCLUtils.cpp:77, unhandled system error",
            "Last error:",
            "Error while creating shared memory segment /dev/shm/nccl-a (size 9637888), error: No space left on device (28)",
        ),
        "shared-memory",
    ),
    # none of ours
    (("KeyError: 'x'",), "unknown"),
    (("RuntimeError: something else",), "unknown"),
    (("FileNotFoundError: [Errno 2] No such file or directory: 'prompts.json'",), "unknown"),
    (("RuntimeError: Model architectures are fine here",), "unknown"),
]


@pytest.mark.parametrize(("lines", "cause"), RAISED, ids=lambda value: str(value)[:60])
def test_an_exception(lines: tuple[str, ...], cause: str) -> None:
    said = crashed(*lines)
    assert said.cause == cause, said.evidence


FRAMES = [
    ('deep_gemm/__init__.py", line 90, in _find_cuda_home', "AssertionError", "jit-toolchain"),
    (
        'flashinfer/jit/cpp_ext.py", line 168, in run_ninja',
        "OSError: [Errno 122] Disk quota exceeded",
        "disk-full",
    ),
    (
        'filelock/_unix.py", line 50, in _acquire',
        "OSError: [Errno 37] No locks available",
        "cache-not-writable",
    ),
    (
        'lib/python3.12/subprocess.py", line 1800, in _fork_exec(',
        "BlockingIOError: [Errno 11] Resource temporarily unavailable",
        "too-many-tasks",
    ),
    (
        'multiprocessing/shared_memory.py", line 104, in __init__',
        "OSError: [Errno 28] No space left on device",
        "shared-memory",
    ),
    (
        'multiprocessing/shared_memory.py", line 104, in __init__',
        "FileExistsError: [Errno 17] File exists: '/sgl_shm_mm_0'",
        "shared-memory",
    ),
    (
        'custom_all_reduce.py", line 212, in register_graph_buffers',
        "RuntimeError: CUDA error: invalid argument",
        "peer-access",
    ),
    (
        'transformers/auto/configuration_auto.py", line 9, CONFIG_MAPPING[x]',
        "KeyError: 'kimi_k3'",
        "unsupported-model",
    ),
    (
        'sglang/srt/layers/quantization/awq.py", line 9, in create_weights',
        "KeyError: 'packed_modules_mapping'",
        "unsupported-configuration",
    ),
    (
        'sglang/srt/layers/quantization/awq.py", line 9, in create_weights',
        "torch.OutOfMemoryError: CUDA out of memory.",
        "gpu-out-of-memory",
    ),
]


@pytest.mark.parametrize(("frames", "line", "cause"), FRAMES)
def test_what_was_being_done_tells_what_an_exception_means(
    frames: str, line: str, cause: str
) -> None:
    said = crashed(line, frames=frames)
    assert said.cause == cause, said.evidence


PRINTED = [
    (
        "OpenBLAS blas_thread_init: pthread_create failed for thread 50 of 64: Resource temporarily unavailable",
        -6,
        "too-many-tasks",
    ),
    ("libgomp: Thread creation failed: Resource temporarily unavailable", 1, "too-many-tasks"),
    (
        "terminate called after throwing an instance of 'std::bad_alloc'\n  what():  std::bad_alloc",
        -6,
        "host-out-of-memory",
    ),
    (
        "libnuma: Warning: node argument 1 is out of range\n<1> is invalid",
        1,
        "unsupported-configuration",
    ),
    (
        "launch_server.py: error: argument --mem-fraction-static: must lie between 0 and 1",
        2,
        "unsupported-configuration",
    ),
    (
        "sglang serve: error: argument --tp-size/--tp: invalid int value: 'two'",
        2,
        "unsupported-configuration",
    ),
    (
        "usage: x\nlaunch_server.py: error: one of the arguments --model-path --config is required",
        2,
        "unsupported-configuration",
    ),
    ("launch_server.py: error: unrecognized arguments: --no-such", 2, "unknown-flag"),
    ("LLVM ERROR: Cannot select: intrinsic %llvm.nvvm.tcgen05.wait.ld", -6, "backend-unsupported"),
]


@pytest.mark.parametrize(("text", "code", "cause"), PRINTED)
def test_a_line_without_a_traceback(text: str, code: int, cause: str) -> None:
    said = printed(text, code)
    assert said.cause == cause, said.evidence


def test_argparse_s_own_line_is_the_text() -> None:
    line = "launch_server.py: error: argument --mem-fraction-static: must lie between 0 and 1"
    assert printed(f"usage: launch_server.py [-h]\n{line}", 2).evidence[0] == f"log: {line}"


@pytest.mark.parametrize(
    ("lines", "deciding"),
    [
        (
            (
                NINJA,
                "[1/2] nvcc -c x.cu",
                "nvcc fatal   : Unsupported gpu architecture 'compute_120a'",
            ),
            "nvcc fatal",
        ),
        ((NINJA, "[1/2] nvcc -c x.cu", "/bin/sh: 1: nvcc: not found"), "nvcc: not found"),
        (
            ("RuntimeError: Worker failed. Output:", "step 1", "the frobnicator was not found"),
            "frobnicator",
        ),
    ],
)
def test_the_deciding_line_is_shown_and_not_only_the_first(
    lines: tuple[str, ...], deciding: str
) -> None:
    assert any(deciding in line for line in crashed(*lines).evidence)


def test_a_compiler_s_words_before_the_exception_are_shown() -> None:
    said = crashed(BUILD, before="main.c:5:10: fatal error: Python.h: No such file or directory")
    assert said.cause == "jit-toolchain"
    assert "Python.h" in said.evidence[0]


def test_a_compile_that_failed_and_was_gone_around_is_not_the_cause() -> None:
    """The engine took another kernel, and ends for a reason that we do not know."""
    said = crashed("KeyError: 'x'", before="a.cu:1:5: error: unknown type name 'CUtensorMap'")
    assert said.cause == "unknown"


PTH = """Error processing line 1 of /opt/v/lib/python3.12/site-packages/nvidia_cutlass_dsl_packages.pth:

  Traceback (most recent call last):
    File "<frozen site>", line 201, in addpackage
    File "<string>", line 1, in <module>
  ModuleNotFoundError: No module named 'nvidia_cutlass_dsl'

Remainder of file ignored"""


def test_python_s_report_of_a_pth_file_is_no_evidence() -> None:
    said = printed(f"{PTH}\n{PTH}\nx.py:1: DeprecationWarning: No module named 'x' is deprecated")
    assert said.cause == "unknown"
    assert not any("Remainder" in line or "nvidia_cutlass" in line for line in said.evidence)


def test_a_warning_that_says_why_explains_a_vague_end() -> None:
    said = crashed(
        "RuntimeError: No CUDA GPUs are available",
        before="x.py:182: UserWarning: CUDA initialization: Unexpected error from "
        "cudaGetDeviceCount(). Error 802: system not yet initialized (Triggered internally)",
    )
    assert said.cause == "fabric-manager"
