"""Compilers among the engine's processes: kernels are compiled at run time, while it serves too.

A compiler counts only while it uses processor time: an Inductor worker waits for hours between
two kernels. What Triton compiles inside of a scheduler cannot be told from a scheduler that spins.
"""

from __future__ import annotations

from functools import lru_cache

from sglangctl.util import lazy_re

_BUILDERS = ("ninja", "nvcc", "cicc", "ptxas", "fatbinary", "cudafe++", "nvlink")
_TOOLS = frozenset((*_BUILDERS, "cc1", "cc1plus", "gcc", "g++", "cc", "c++", "clang", "ld", "as"))
_ALSO = ("clang++", "collect2", "lto1", "ld.lld", "lld", "ld.bfd", "ld.gold", "nvdisasm")
_COMPILERS = _TOOLS | frozenset(_ALSO)
_VERSION = lazy_re.compile(r"-\d[\d.]*$")
_WORKERS = (
    ("_inductor/compile_worker", "Inductor worker"),
    ("_inductor.compile_worker", "Inductor worker"),
    ("_inductor/autotune_process", "Inductor autotuning"),
    ("triton/runtime/compile", "Triton worker"),
)
_STEP_S = 0.05
"""Processor time by which a compiler must have got on to count."""


@lru_cache(maxsize=4096)
def compiler(name: str) -> str:
    """What compiles, of a process's title or command line; empty for anything else."""
    tool = name.split(" ", 1)[0].rpartition("/")[2]
    if tool not in _COMPILERS:
        tool = _VERSION.sub("", tool).rpartition("-linux-gnu-")[2]
    if tool in _COMPILERS:
        return tool
    return next((said for mark, said in _WORKERS if mark in name), "")


class Compilers:
    """Which compilers got on between the last two looks."""

    def __init__(self) -> None:
        self.working: tuple[str, ...] = ()
        """What began or got on since the look before, each once."""
        self._spent: dict[int, float] = {}
        self._now: dict[int, tuple[str, float]] = {}

    def see(self, pid: int, name: str, cpu_s: float) -> None:
        """A live process of this look and its processor time."""
        tool = compiler(name)
        if tool:
            self._now[pid] = (tool, cpu_s)

    def end(self) -> None:
        """The look is over."""
        before = self._spent
        self.working = tuple(
            sorted(
                {
                    tool
                    for pid, (tool, spent) in self._now.items()
                    if spent >= before.get(pid, -1.0) + _STEP_S
                }
            )
        )
        self._spent = {pid: spent for pid, (_, spent) in self._now.items()}
        self._now = {}
