"""Kernels that cannot be compiled at run time: a tool, a header or the right version is missing."""

from __future__ import annotations

from sglangctl.diagnosis.signatures.base import (
    COMPILER,
    FLASHINFER,
    PYTHON,
    REPORT,
    SOURCE,
    TORCH,
    TRITON,
    Signature,
    caused,
    printed,
    raised,
)

_TOOLS = r"(?:ninja|nvcc|cicc|ptxas|fatbinary|cuobjdump|nvdisasm|gcc|g\+\+|cc|c\+\+|clang|clang\+\+|ld|as|cmake|make)"

# A compiler that the kernel killed is no compiler's fault.
SIGNATURES = caused(
    "host-out-of-memory",
    printed(
        "ied due to signal 9",
        "nvcc error   : 'cicc' died due to signal 9 (Kill signal)",
        COMPILER,
    ),
    printed(
        "Killed signal terminated program",
        "g++: fatal error: Killed signal terminated program cc1plus",
        COMPILER,
    ),
)
# A tool is missing.
SIGNATURES += caused(
    "jit-toolchain",
    raised(
        "'",
        "FileNotFoundError: [Errno 2] No such file or directory: 'ninja'",
        f"{PYTHON}; SGLang 0.5.16 on 2 x H200",
        r"^(?:FileNotFoundError|PermissionError|NotADirectoryError): \[Errno \d+\] [^']{1,60}: "
        rf"'(?:[^']{{0,200}}/)?{_TOOLS}(?:-[\d.]+)?'",
    ),
    printed(
        "not found",
        "/bin/sh: 1: /usr/local/cuda/bin/nvcc: not found",
        "sh, bash",
        rf"\bsh: (?:\d+: |line \d+: )?(?:\S*/)?{_TOOLS}(?:-[\d.]+)?: (?:command )?not found",
    ),
    raised(
        "inja",
        "RuntimeError: Ninja is required to load C++ extensions (pip install ninja to get it)",
        TORCH,
        r"\b[Nn]inja (?:is required|is not installed|not found)",
    ),
    raised(
        "nvcc",
        "RuntimeError: Could not find nvcc. Please set CUDA_HOME",
        SOURCE,
        r"[Cc](?:ould|an)(?:not| not) (?:find|locate|run|execute)\b.{0,40}\bnvcc|"
        r"\bnvcc\b.{0,40}(?:not found|not in PATH|is not installed|not available)",
    ),
    raised(
        "CUDA_HOME",
        "OSError: CUDA_HOME environment variable is not set. Please set it to your CUDA install root.",
        TORCH,
        r"CUDA_HOME.{0,60}(?:not set|unset|not found|invalid|does not exist|is None)|"
        r"(?:[Ff]ind|[Ll]ocate|[Ss]et|[Ss]pecify).{0,60}CUDA_HOME",
    ),
    raised(
        "compiler",
        "RuntimeError: Failed to find C compiler. Please specify via CC environment variable or set "
        "triton.knobs.build.impl.",
        TRITON,
        r"(?:[Ff]ailed to find|[Cc]ould not find|[Cc]annot find|[Nn]o working|[Nn]o suitable) "
        r"(?:an? )?(?:working |host )?C(?:\+\+|/C\+\+|UDA)? ?compiler",
    ),
    # A header or a library is missing.
    printed(
        "No such file or directory",
        "/tmp/tmps1rkq3y3/main.c:5:10: fatal error: Python.h: No such file or directory",
        COMPILER,
        r"fatal error: [\w./+-]+: No such file or directory",
    ),
    printed(
        "open source file",
        'x.cuh(19): catastrophic error: cannot open source file "cuda_fp8.h"',
        COMPILER,
        r"(?:cannot|could not) open source file",
    ),
    printed(
        "file not found",
        "/tmp/a.cc:1:10: fatal error: 'cuda.h' file not found",
        COMPILER,
        r"error: '[^']{1,200}' file not found",
    ),
    printed(
        "cannot find -l",
        "/usr/bin/ld: cannot find -lcudart: No such file or directory",
        COMPILER,
    ),
    # A tool is too old for this GPU, or for another tool.
    printed(
        "nsupported gpu architecture",
        "nvcc fatal   : Unsupported gpu architecture 'compute_120a'",
        COMPILER,
    ),
    printed(
        "is not defined for option 'gpu-name'",
        "ptxas fatal   : Value 'sm_120a' is not defined for option 'gpu-name'",
        REPORT,
    ),
    printed(
        "ptxas",
        "ptxas /tmp/tmp1.ptx, line 5; fatal   : Unsupported .version 8.7; current version is '8.4'",
        COMPILER,
        r"ptxas.{0,300}(?:fatal|error) +: ",
    ),
    printed(
        "nvcc fatal",
        "nvcc fatal   : Unknown option '--static-global-template-stub=false'",
        COMPILER,
    ),
    printed(
        "unsupported GNU version",
        "#error -- unsupported GNU version! gcc versions later than 13 are not supported!",
        COMPILER,
    ),
    Signature(
        "mismatches the version that was used to compile",
        "RuntimeError: The detected CUDA version (11.8) mismatches the version that was used to "
        "compile PyTorch (12.8). Please make sure to use the same CUDA versions.",
        TORCH,
    ),
    raised(
        "sm75",
        "RuntimeError: FlashInfer requires GPUs with sm75 or higher",
        f"{FLASHINFER}: the toolkit is too old, and no architecture is left",
        r"requires GPUs with sm75 or higher",
    ),
    raised(
        "No supported CUDA architectures found",
        "RuntimeError: No supported CUDA architectures found for major versions [12].",
        FLASHINFER,
    ),
    raised(
        "CUDA",
        "RuntimeError: SM 12.x requires CUDA >= 12.9.",
        FLASHINFER,
        r"(?:(?:SM|sm_?) ?\d[\w.]*|[Cc]ompilation|JIT|[Kk]ernels?\b.{0,60}) (?:requires?|needs?) "
        r"(?:at least )?(?:the )?(?:CUDA|NVCC|nvcc)(?: [Tt]oolkit)?(?: version)?[ >=]+\d",
    ),
    raised(
        "version",
        "AssertionError: NVCC version should be >= 12.3, got 12.1",
        REPORT,
        r"\b(?:NVCC|nvcc|ninja|gcc|GCC|g\+\+|ptxas) (?:compiler )?version (?:should|must|needs|is too|"
        r"\S+ is (?:too|not supported|less|lower|older))",
    ),
    printed("nvrtc: error", "nvrtc: error: invalid value for --gpu-architecture (-arch)", "NVRTC"),
    # The compiler's own words, then those of who called it.
    printed(
        "): error",
        "activation.cuh(81): error: expected a type, got 'ActivationKind::kSiLU'",
        COMPILER,
        r"^\S{1,300}\(\d+\): error(?: #\d[\w-]*)?: ",
    ),
    printed(
        "error: ",
        "/tmp/x/cuda_utils.c:12:5: error: unknown type name 'CUtensorMap'",
        COMPILER,
        r"^\S{1,300}:\d+:\d+: (?:fatal )?error: ",
    ),
    printed(
        "undefined reference to",
        "main.o: undefined reference to `cuTensorMapEncodeTiled'",
        COMPILER,
    ),
    raised(
        "inja",
        "RuntimeError: Ninja build failed. Ninja output:",
        f"{FLASHINFER}; tvm-ffi",
        r"[Nn]inja (?:build failed|exited with status)|^ninja: build stopped|"
        r"CalledProcessError: Command '\['(?:[^']*/)?ninja'",
        vague=True,
    ),
    raised(
        "Error building extension",
        "RuntimeError: Error building extension 'batch_prefill_with_kv_cache_head_dim_qk_128'",
        TORCH,
        vague=True,
    ),
    printed(
        "detected in the compilation of",
        '1 error detected in the compilation of "cuda.cu".',
        COMPILER,
        vague=True,
    ),
    raised(
        "CalledProcessError: Command",
        "subprocess.CalledProcessError: Command '['/usr/bin/gcc', '/tmp/tmps1rkq3y3/main.c', '-O3']' "
        "returned non-zero exit status 1.",
        PYTHON,
        rf"CalledProcessError: Command '\[?'?(?:[^' ]{{0,200}}/)?{_TOOLS}(?:-[\d.]+)?[' ]",
        vague=True,
    ),
    raised(
        "ompil",
        "torch._inductor.exc.InductorError: CppCompileError: C++ compile error",
        TORCH,
        r"\b(?:Cpp|CUDA|Cuda)CompileError\b|\bNVCC [Cc]ompilation failed|[Nn]vcc compilation failed|"
        r"\bNVRTC (?:compile|compilation) (?:error|failed)|NVRTC_ERROR_COMPILATION|"
        r"JIT compilation failed|[Ff]ailed to (?:JIT[- ])?compile (?:the )?(?:\S+ )?(?:CUDA )?"
        r"(?:kernel|module|extension)",
        vague=True,
    ),
    raised(
        "Internal Triton PTX codegen error",
        "triton.runtime.errors.PTXASError: PTXAS error: Internal Triton PTX codegen error",
        TRITON,
        vague=True,
    ),
)
