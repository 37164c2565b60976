"""Packages of the venv, and libraries of the host, that are missing or do not fit together."""

from __future__ import annotations

from sglangctl.diagnosis.signatures.base import (
    FLASHINFER,
    PYTHON,
    REPORT,
    SOURCE,
    TORCH,
    TRANSFORMERS,
    Signature,
    caused,
    raised,
)

SIGNATURES = caused(
    "environment-broken",
    raised(
        "No module named",
        "ModuleNotFoundError: No module named 'gguf'",
        "SGLang 0.5.16 on 2 x H200",
        # Code that a model brings is copied there; what is missing then is that code.
        r"^(?:ModuleNotFoundError|ImportError): No module named '?(?!transformers_modules)",
    ),
    raised(
        "cannot import name",
        "ImportError: cannot import name 'LlamaFlashAttention2' from "
        "'transformers.models.llama.modeling_llama'",
        REPORT,
        r"^ImportError: cannot import name ",
    ),
    raised(
        "does not match",
        "RuntimeError: flashinfer-cubin version (0.6.13) does not match flashinfer version (0.6.14).",
        FLASHINFER,
        r"version \(?[\w.+]+\)? does not match .{0,60}version",
    ),
    raised(
        "inimum required version",
        "Exception: flashinfer_python is installed with version 0.6.1, which is less than the "
        "minimum required version 0.6.14.",
        SOURCE,
    ),
    raised(
        "is not installed",
        "ImportError: Package flash_attn is not installed",
        REPORT,
        r"(?:[Pp]ackage|[Ll]ibrary|[Mm]odule|[Pp]lease install).{0,120}is not installed|"
        r"is not installed.{0,120}[Pp]lease install",
    ),
    raised(
        "required for a normal functioning",
        "ImportError: tokenizers>=0.21,<0.22 is required for a normal functioning of this module, but "
        "found tokenizers==0.19.1.",
        TRANSFORMERS,
    ),
    raised(
        "PackageNotFoundError",
        "importlib.metadata.PackageNotFoundError: No package metadata was found for xgrammar",
        PYTHON,
    ),
    raised(
        "DistributionNotFound",
        "pkg_resources.DistributionNotFound: The 'outlines' distribution was not found",
        PYTHON,
    ),
    raised(
        "pip install",
        "ImportError: This modeling file requires the following packages that were not found in your "
        "environment: einops. Run `pip install einops`",
        TRANSFORMERS,
        r"^(?:ImportError|ModuleNotFoundError|ValueError|RuntimeError|AssertionError|Exception): .*"
        r"pip3? install",
    ),
    raised(
        "not found in your environment",
        "ImportError: LlamaTokenizer requires the SentencePiece library but it was not found in your "
        "environment.",
        TRANSFORMERS,
    ),
    raised(
        "Failed to import",
        "RuntimeError: Failed to import transformers.models.llama because of the following error",
        TRANSFORMERS,
        r"Failed to import [\w.]+ because of the following error",
    ),
    raised("not compiled with CUDA", "AssertionError: Torch not compiled with CUDA enabled", TORCH),
    raised(
        "does not exist",
        "RuntimeError: operator torchvision::nms does not exist",
        TORCH,
        r"operator \w+::\w+ does not exist",
    ),
    Signature(
        "different CUDA major versions",
        "RuntimeError: Detected that PyTorch and TorchAudio were compiled with different CUDA major "
        "versions.",
        TORCH,
    ),
    raised(
        "has no attribute",
        "AttributeError: module 'triton.language' has no attribute 'constexpr_function'",
        PYTHON,
        r"^AttributeError: (?:partially initialized )?module '[\w.]+' has no attribute ",
    ),
    raised(
        "numpy",
        "ValueError: numpy.dtype size changed, may indicate binary incompatibility.",
        "NumPy",
        r"numpy\.\w+ size changed|numpy\.core\.multiarray failed to import|"
        r"compiled using NumPy 1\.x cannot",
    ),
    # Libraries of the host, and those that wheels bring.
    Signature(
        "' not found (required by",
        "ImportError: /lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.32' not found (required by "
        "/opt/v/lib/python3.10/site-packages/sgl_kernel/common_ops.abi3.so)",
        "glibc",
        r"version `(?:GLIBC|GLIBCXX|CXXABI|GCC|GOMP|OMP)_",
    ),
    raised(
        "undefined symbol",
        "ImportError: /opt/v/lib/python3.12/site-packages/torch/lib/libtorch_cuda.so: undefined "
        "symbol: ncclCommWindowRegister",
        REPORT,
    ),
    raised(
        "cannot open shared object file",
        "ImportError: libmpi.so.40: cannot open shared object file: No such file or directory",
        "glibc",
        r"^(?:ImportError|OSError): \S{1,300}\.so[\w.]{0,40}: cannot open shared object file: No such file",
    ),
    raised(
        "static TLS block",
        "ImportError: libgomp-804f19d4.so.1.0.0: cannot allocate memory in static TLS block",
        "glibc",
    ),
)
