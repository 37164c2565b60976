"""One log line that names a cause."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import partial

ANY = "any"
EXCEPTION = "exception"

H200 = "SGLang 0.5.16 on 2 x H200"
CPU = "SGLang 0.5.23 on a CPU"
SOURCE = "SGLang 0.5.23, source"
REPORT = "public report"
TORCH = "PyTorch"
CUDA = "CUDA"
NVML = "NVML"
FLASHINFER = "FlashInfer"
TRITON = "Triton"
COMPILER = "gcc, nvcc"
PYTHON = "Python"
TRANSFORMERS = "Transformers"


@dataclass(frozen=True)
class Signature:
    """One line that names a cause."""

    needle: str
    example: str
    """A line that it matches (a test says so)."""
    seen: str
    pattern: str = ""
    where: str = ANY
    effect: bool = False
    """True: the line tells of a consequence (a peer is gone), so that any other cause goes first."""
    vague: bool = False
    """True: it says that something failed, not why: a line that says why goes first."""
    hint: bool = False
    """True: an engine may say this and go on (a compiler's error before it takes another kernel):
    outside of the fatal exception it counts only beside a vague one, or where there is none."""
    cause: str = ""
    """`caused` says it."""

    def matches(self, line: str, exception: bool) -> bool:
        """Whether `line` is this signature's; exception: it ends a traceback."""
        if self.needle not in line or (self.where == EXCEPTION and not exception):
            return False
        # Compiled when a line has the needle, and kept by `re`: most never are.
        return not self.pattern or re.search(self.pattern, line) is not None


raised = partial(Signature, where=EXCEPTION)
printed = partial(Signature, hint=True)


def caused(cause: str, *signatures: Signature) -> tuple[Signature, ...]:
    """The signatures of one cause."""
    return tuple(replace(one, cause=cause) for one in signatures)
