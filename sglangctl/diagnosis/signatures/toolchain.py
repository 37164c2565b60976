"""Kernels that cannot be compiled at run time: a tool, a header or the right version is missing."""

from __future__ import annotations

from sglangctl.diagnosis.signatures.base import (
    COMPILER,
    EXCEPTION,
    FLASHINFER,
    PYTHON,
    REPORT,
    SOURCE,
    TORCH,
    TRITON,
    Signature,
)

_TOOLS = r"(?:ninja|nvcc|cicc|ptxas|fatbinary|cuobjdump|nvdisasm|gcc|g\+\+|cc|c\+\+|clang|clang\+\+|ld|as|cmake|make)"

SIGNATURES = (
    # A compiler that the kernel killed is no compiler's fault.
    Signature(
        "host-out-of-memory",
        "ied due to signal 9",
        "nvcc error   : 'cicc' died due to signal 9 (Kill signal)",
        COMPILER,
        hint=True,
    ),
    Signature(
        "host-out-of-memory",
        "Killed signal terminated program",
        "g++: fatal error: Killed signal terminated program cc1plus",
        COMPILER,
        hint=True,
    ),
    # A tool is missing.
    Signature(
        "jit-toolchain",
        "'",
        "FileNotFoundError: [Errno 2] No such file or directory: 'ninja'",
        f"{PYTHON}; SGLang 0.5.16 on 2 x H200",
        r"^(?:FileNotFoundError|PermissionError|NotADirectoryError): \[Errno \d+\] [^']{1,60}: "
        rf"'(?:[^']{{0,200}}/)?{_TOOLS}(?:-[\d.]+)?'",
        EXCEPTION,
    ),
    Signature(
        "jit-toolchain",
        "not found",
        "/bin/sh: 1: /usr/local/cuda/bin/nvcc: not found",
        "sh, bash",
        rf"\bsh: (?:\d+: |line \d+: )?(?:\S*/)?{_TOOLS}(?:-[\d.]+)?: (?:command )?not found",
        hint=True,
    ),
    Signature(
        "jit-toolchain",
        "inja",
        "RuntimeError: Ninja is required to load C++ extensions (pip install ninja to get it)",
        TORCH,
        r"\b[Nn]inja (?:is required|is not installed|not found)",
        EXCEPTION,
    ),
    Signature(
        "jit-toolchain",
        "nvcc",
        "RuntimeError: Could not find nvcc. Please set CUDA_HOME",
        SOURCE,
        r"[Cc](?:ould|an)(?:not| not) (?:find|locate|run|execute)\b.{0,40}\bnvcc|"
        r"\bnvcc\b.{0,40}(?:not found|not in PATH|is not installed|not available)",
        EXCEPTION,
    ),
    Signature(
        "jit-toolchain",
        "CUDA_HOME",
        "OSError: CUDA_HOME environment variable is not set. Please set it to your CUDA install root.",
        TORCH,
        r"CUDA_HOME.{0,60}(?:not set|unset|not found|invalid|does not exist|is None)|"
        r"(?:[Ff]ind|[Ll]ocate|[Ss]et|[Ss]pecify).{0,60}CUDA_HOME",
        EXCEPTION,
    ),
    Signature(
        "jit-toolchain",
        "compiler",
        "RuntimeError: Failed to find C compiler. Please specify via CC environment variable or set "
        "triton.knobs.build.impl.",
        TRITON,
        r"(?:[Ff]ailed to find|[Cc]ould not find|[Cc]annot find|[Nn]o working|[Nn]o suitable) "
        r"(?:an? )?(?:working |host )?C(?:\+\+|/C\+\+|UDA)? ?compiler",
        EXCEPTION,
    ),
    # A header or a library is missing.
    Signature(
        "jit-toolchain",
        "No such file or directory",
        "/tmp/tmps1rkq3y3/main.c:5:10: fatal error: Python.h: No such file or directory",
        COMPILER,
        r"fatal error: [\w./+-]+: No such file or directory",
        hint=True,
    ),
    Signature(
        "jit-toolchain",
        "open source file",
        'x.cuh(19): catastrophic error: cannot open source file "cuda_fp8.h"',
        COMPILER,
        r"(?:cannot|could not) open source file",
        hint=True,
    ),
    Signature(
        "jit-toolchain",
        "file not found",
        "/tmp/a.cc:1:10: fatal error: 'cuda.h' file not found",
        COMPILER,
        r"error: '[^']{1,200}' file not found",
        hint=True,
    ),
    Signature(
        "jit-toolchain",
        "cannot find -l",
        "/usr/bin/ld: cannot find -lcudart: No such file or directory",
        COMPILER,
        hint=True,
    ),
    # A tool is too old for this GPU, or for another tool.
    Signature(
        "jit-toolchain",
        "nsupported gpu architecture",
        "nvcc fatal   : Unsupported gpu architecture 'compute_120a'",
        COMPILER,
        hint=True,
    ),
    Signature(
        "jit-toolchain",
        "is not defined for option 'gpu-name'",
        "ptxas fatal   : Value 'sm_120a' is not defined for option 'gpu-name'",
        REPORT,
        hint=True,
    ),
    Signature(
        "jit-toolchain",
        "ptxas",
        "ptxas /tmp/tmp1.ptx, line 5; fatal   : Unsupported .version 8.7; current version is '8.4'",
        COMPILER,
        r"ptxas.{0,300}(?:fatal|error) +: ",
        hint=True,
    ),
    Signature(
        "jit-toolchain",
        "nvcc fatal",
        "nvcc fatal   : Unknown option '--static-global-template-stub=false'",
        COMPILER,
        hint=True,
    ),
    Signature(
        "jit-toolchain",
        "unsupported GNU version",
        "#error -- unsupported GNU version! gcc versions later than 13 are not supported!",
        COMPILER,
        hint=True,
    ),
    Signature(
        "jit-toolchain",
        "mismatches the version that was used to compile",
        "RuntimeError: The detected CUDA version (11.8) mismatches the version that was used to "
        "compile PyTorch (12.8). Please make sure to use the same CUDA versions.",
        TORCH,
    ),
    Signature(
        "jit-toolchain",
        "sm75",
        "RuntimeError: FlashInfer requires GPUs with sm75 or higher",
        f"{FLASHINFER}: the toolkit is too old, and no architecture is left",
        r"requires GPUs with sm75 or higher",
        EXCEPTION,
    ),
    Signature(
        "jit-toolchain",
        "No supported CUDA architectures found",
        "RuntimeError: No supported CUDA architectures found for major versions [12].",
        FLASHINFER,
        where=EXCEPTION,
    ),
    Signature(
        "jit-toolchain",
        "CUDA",
        "RuntimeError: SM 12.x requires CUDA >= 12.9.",
        FLASHINFER,
        r"(?:(?:SM|sm_?) ?\d[\w.]*|[Cc]ompilation|JIT|[Kk]ernels?\b.{0,60}) (?:requires?|needs?) "
        r"(?:at least )?(?:the )?(?:CUDA|NVCC|nvcc)(?: [Tt]oolkit)?(?: version)?[ >=]+\d",
        EXCEPTION,
    ),
    Signature(
        "jit-toolchain",
        "version",
        "AssertionError: NVCC version should be >= 12.3, got 12.1",
        REPORT,
        r"\b(?:NVCC|nvcc|ninja|gcc|GCC|g\+\+|ptxas) (?:compiler )?version (?:should|must|needs|is too|"
        r"\S+ is (?:too|not supported|less|lower|older))",
        EXCEPTION,
    ),
    Signature(
        "jit-toolchain",
        "nvrtc: error",
        "nvrtc: error: invalid value for --gpu-architecture (-arch)",
        "NVRTC",
        hint=True,
    ),
    # The compiler's own words, then those of who called it.
    Signature(
        "jit-toolchain",
        "): error",
        "activation.cuh(81): error: expected a type, got 'ActivationKind::kSiLU'",
        COMPILER,
        r"^\S{1,300}\(\d+\): error(?: #\d[\w-]*)?: ",
        hint=True,
    ),
    Signature(
        "jit-toolchain",
        "error: ",
        "/tmp/x/cuda_utils.c:12:5: error: unknown type name 'CUtensorMap'",
        COMPILER,
        r"^\S{1,300}:\d+:\d+: (?:fatal )?error: ",
        hint=True,
    ),
    Signature(
        "jit-toolchain",
        "undefined reference to",
        "main.o: undefined reference to `cuTensorMapEncodeTiled'",
        COMPILER,
        hint=True,
    ),
    Signature(
        "jit-toolchain",
        "inja",
        "RuntimeError: Ninja build failed. Ninja output:",
        f"{FLASHINFER}; tvm-ffi",
        r"[Nn]inja (?:build failed|exited with status)|^ninja: build stopped|"
        r"CalledProcessError: Command '\['(?:[^']*/)?ninja'",
        EXCEPTION,
        vague=True,
    ),
    Signature(
        "jit-toolchain",
        "Error building extension",
        "RuntimeError: Error building extension 'batch_prefill_with_kv_cache_head_dim_qk_128'",
        TORCH,
        where=EXCEPTION,
        vague=True,
    ),
    Signature(
        "jit-toolchain",
        "detected in the compilation of",
        '1 error detected in the compilation of "cuda.cu".',
        COMPILER,
        vague=True,
        hint=True,
    ),
    Signature(
        "jit-toolchain",
        "CalledProcessError: Command",
        "subprocess.CalledProcessError: Command '['/usr/bin/gcc', '/tmp/tmps1rkq3y3/main.c', '-O3']' "
        "returned non-zero exit status 1.",
        PYTHON,
        rf"CalledProcessError: Command '\[?'?(?:[^' ]{{0,200}}/)?{_TOOLS}(?:-[\d.]+)?[' ]",
        EXCEPTION,
        vague=True,
    ),
    Signature(
        "jit-toolchain",
        "ompil",
        "torch._inductor.exc.InductorError: CppCompileError: C++ compile error",
        TORCH,
        r"\b(?:Cpp|CUDA|Cuda)CompileError\b|\bNVCC [Cc]ompilation failed|[Nn]vcc compilation failed|"
        r"\bNVRTC (?:compile|compilation) (?:error|failed)|NVRTC_ERROR_COMPILATION|"
        r"JIT compilation failed|[Ff]ailed to (?:JIT[- ])?compile (?:the )?(?:\S+ )?(?:CUDA )?"
        r"(?:kernel|module|extension)",
        EXCEPTION,
        vague=True,
    ),
    Signature(
        "jit-toolchain",
        "Internal Triton PTX codegen error",
        "triton.runtime.errors.PTXASError: PTXAS error: Internal Triton PTX codegen error",
        TRITON,
        where=EXCEPTION,
        vague=True,
    ),
)
