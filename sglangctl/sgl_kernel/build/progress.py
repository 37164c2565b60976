"""A build's output, read line by line: how far it is, and why it failed. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from sglangctl.util import lazy_re
from sglangctl.util.terminal import without_ansi

NINJA = lazy_re.compile(r"^\s*\[(\d{1,9})/(\d{1,9})\]\s")
KILLED = lazy_re.compile(
    r"died due to signal 9|Killed signal terminated program|fatal error: Killed"
    r"|(?:exit (?:code|status)|code[=:])\s*137\b|^\s*Killed\s*$|:\s+\d+ Killed\b"
    r"|virtual memory exhausted|std::bad_alloc|Cannot allocate memory"
    r"|out of memory allocating \d+ bytes"
)


@dataclass(frozen=True)
class Progress:
    """`done` of `total` ninja steps; `eta_s` from the pace so far (None: too early)."""

    done: int
    total: int
    eta_s: float | None


@dataclass(frozen=True)
class Fault:
    """Why a build failed: one sentence, what to do, the line that shows it."""

    sentence: str
    next_step: str
    line: str
    memory: bool = False
    """True: a compiler was killed for lack of memory."""


FAULTS = (
    (
        r"Compatibility with CMake < 3\.5 has been removed",
        "a third-party project asks for a CMake below 3.5, which CMake 4 refuses",
        "build with CMAKE_POLICY_VERSION_MINIMUM=3.5 in the environment (sglangctl sets it; "
        "something has unset it)",
    ),
    (
        r"No space left on device",
        "the disk is full",
        "free space under /var/cache/sglangctl (a build takes up to 20 GiB), then deploy again: it "
        "continues where it stopped",
    ),
    (
        r"No CMAKE_CUDA_COMPILER could be found|Failed to find nvcc|Could not find nvcc",
        "there is no CUDA compiler (nvcc)",
        "install the CUDA toolkit of torch's CUDA version, or name another build_host",
    ),
    (
        r"Unsupported gpu architecture '(\w+)'",
        "this nvcc does not know the architecture {0}",
        "SM120 needs CUDA 12.8 or later, SM121 12.9: install a newer toolkit",
    ),
    (
        r"unsupported GNU version",
        "the C++ compiler is newer than this nvcc supports",
        "install the g++ that the toolkit supports and name it: kernel.cmake_args: "
        "[-DCMAKE_CUDA_HOST_COMPILER=g++-13]",
    ),
    (
        r"NUMA|numa\.h: No such file",
        "libnuma's headers are missing",
        "apt-get install libnuma-dev",
    ),
    (
        r"infiniband/verbs\.h: No such file|IBVerbs",
        "libibverbs' headers are missing",
        "apt-get install libibverbs-dev",
    ),
    (
        r"Python\.h: No such file|Development\.(?:Module|SABIModule)",
        "Python's headers are missing",
        "apt-get install python3-dev (of the engine's Python version)",
    ),
    (
        r"CMake ([\d.]+) or higher is required",
        "the source needs CMake {0} or later",
        "let the build get CMake from PyPI: check the build's environment in its log",
    ),
    (
        r"Could not resolve host|Failed to clone repository|Failed to connect|download .* failed"
        r"|Failed to download|status_code: [1-9]",
        "third-party sources could not be fetched",
        "give the build host network access to github.com, a mirror (kernel.cmake_args: "
        "[-DGITHUB_ARTIFACTORY=host]) or folders (-DFETCHCONTENT_SOURCE_DIR_<NAME>=...)",
    ),
    (
        r"No module named 'torch'",
        "the build's environment has no torch",
        "check the build's environment in its log",
    ),
    (
        r"patch does not apply|patch failed",
        "a patch does not fit this commit",
        "rebase the patch on kernel.git.commit, or drop it from kernel.patches",
    ),
    (
        r"No matching distribution found for (\S+)|Could not find a version that satisfies the "
        r"requirement (\S+)",
        "pip cannot get {0}",
        "check the host's network access to its package index (install.pip_arguments)",
    ),
    (
        r"command 'g\+\+' failed|No CMAKE_CXX_COMPILER could be found",
        "there is no C++ compiler",
        "apt-get install build-essential",
    ),
)
TABLE = tuple((lazy_re.compile(pattern), sentence, step) for pattern, sentence, step in FAULTS)
# "Killed" may be all that there is, so memory is looked for first, on every line.
ERROR = lazy_re.compile(r"\berror\b[: ]|\bFAILED\b|CMake Error|fatal", re.IGNORECASE)


class Meter:
    """Feed it lines; `progress` is the last known."""

    def __init__(self) -> None:
        self.progress: Progress | None = None
        self._start: tuple[float, int] | None = None

    def feed(self, line: str, now: float) -> Progress | None:
        """The new progress when this line tells one. `now` in seconds, any origin."""
        match = NINJA.match(without_ansi(line))
        if not match:
            return None
        done, total = int(match.group(1)), int(match.group(2))
        if self._start is None or (self.progress and done < self.progress.done):
            # A new run of ninja (fewer jobs): its count starts again, and so does the pace.
            self._start = (now, done)
        began, first = self._start
        steps = done - first
        eta = (now - began) / steps * (total - done) if steps >= 3 and total > done else None
        self.progress = Progress(done, total, eta if total > done else 0.0)
        return self.progress


def explain(lines: Iterable[str], returncode: int) -> Fault:
    """Why a build with this output failed. A killed compiler comes first: what it drags along
    (ninja's and pip's own errors) is not the cause."""
    clean = [without_ansi(line).strip() for line in lines]
    killed = next((line for line in clean if KILLED.search(line)), None)
    if killed or returncode in (-9, 137):
        return Fault(
            "a compiler was killed for lack of memory",
            "fewer jobs",
            (killed or f"exit status {returncode}")[:400],
            memory=True,
        )
    for pattern, sentence, step in TABLE:
        for line in clean:
            match = pattern.search(line)
            if match:
                named = [group for group in match.groups() if group]
                return Fault(sentence.format(*named or [""]), step, line[:400])
    first = next((line for line in clean if ERROR.search(line)), clean[-1] if clean else "")
    return Fault(
        f"the build failed: {first[:300] or f'exit status {returncode}'}",
        "read its log, named above",
        first[:400],
    )
