"""Log lines that name a cause, each with an example and where it was seen.

A bare word is never a signature: a healthy log holds about 150 "Traceback" and "Ignore import
error" lines. Order matters: the first match counts. `needle` is a literal that is looked for
first, so that the regular expression runs on few lines; EXCEPTION signatures count only for
the last line of a traceback.
"""

from __future__ import annotations

from sglangctl.diagnosis.signatures import (
    environment,
    flags,
    gpus,
    kernels,
    memory,
    model,
    ranks,
    refusals,
    toolchain,
)
from sglangctl.diagnosis.signatures.base import ANY, EXCEPTION, Signature

__all__ = ["ANY", "EXCEPTION", "SIGNATURES", "Signature", "find"]

SIGNATURES = (
    *flags.SIGNATURES,
    *gpus.SIGNATURES,
    *toolchain.SIGNATURES,
    *kernels.SIGNATURES,
    *memory.SIGNATURES,
    *model.SIGNATURES,
    *ranks.SIGNATURES,
    *environment.SIGNATURES,
    *refusals.SIGNATURES,
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
    "RLIMIT_NPROC",
    "Arch conditional",
    "LLVM ERROR",
    "Resource temporarily unavailable",
    "ystem not yet",
    "ied due to signal",
    "annot find",
    "not found",
    "undefined reference",
    "unsupported",
    "nvalid argument",
    "out of range",
    "bad_alloc",
    "NVIDIA driver",
    "NVIDIA-SMI",
    "device handle",
    "the bus",
    "is lost",
    "finish loading",
    "out of resource",
    "hread",
    "fork: ",
    "open source file",
    "CUDA unknown",
    "not bind on any",
)
# What an engine says and goes on.
NOISE = (
    "Ignore import error",
    "To silence this warning",
    "is deprecated",
    "DeprecationWarning",
    "FutureWarning",
    "Remainder of file ignored",
)


def find(line: str, exception: bool = False) -> Signature | None:
    """The first signature that `line` matches; exception: the line ends a traceback."""
    if not any(trigger in line for trigger in TRIGGERS):
        return None
    if any(noise in line for noise in NOISE):
        return None
    for signature in SIGNATURES:
        if signature.matches(line, exception):
            return signature
    return None
