"""Log lines that name a cause, each with an example and where it was seen.

A bare word is never a signature: a healthy log holds about 150 "Traceback" and "Ignore import
error" lines. Order matters: the first match counts. `needle` is a literal that is looked for
first, so that the regular expression runs on few lines; EXCEPTION signatures count only for
the last line of a traceback.
"""

from __future__ import annotations

from sglangctl.diagnosis.signatures import flags, kernels, memory, model, ranks, refusals
from sglangctl.diagnosis.signatures.base import ANY, EXCEPTION, Signature

__all__ = ["ANY", "EXCEPTION", "SIGNATURES", "Signature", "find"]

SIGNATURES = (
    *flags.SIGNATURES,
    *kernels.SIGNATURES,
    *memory.SIGNATURES,
    *model.SIGNATURES,
    *ranks.SIGNATURES,
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
