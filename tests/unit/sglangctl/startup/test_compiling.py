"""Kernels that are compiled while it serves: work, as long as a compiler gets on."""

from __future__ import annotations

from typing import Any

import pytest

from sglangctl.startup.compilers import compiler
from sglangctl.startup.fold import Startup
from tests.support.startup_events import (
    DETOKENIZER,
    MAIN,
    TP0,
    feed,
    http,
    process,
    processes,
    serving,
    timeout,
)

EVERYONE = (MAIN, TP0, DETOKENIZER)
CICC = "/usr/local/cuda/bin/../nvvm/bin/cicc --c++17 --host-stub-linkage-explicit"


@pytest.mark.parametrize(
    ("name", "tool"),
    [
        (CICC, "cicc"),
        ("/opt/torch/lib/triton/backends/nvidia/bin/ptxas -lineinfo -v", "ptxas"),
        ("ninja -v -j 4", "ninja"),
        ("x86_64-linux-gnu-g++-13 -c main.cpp", "g++"),
        ("clang-18 -cc1", "clang"),
        ("python3 ...kages/torch/_inductor/compile_worker/__main__.py", "Inductor worker"),
        ("sglang::scheduler_TP0", ""),
        ("/bin/sh -c /usr/local/cuda/bin/nvcc -c x.cu", ""),
        ("python -m nvcc_exporter", ""),
        ("", ""),
    ],
)
def test_what_compiles(name: str, tool: str) -> None:
    assert compiler(name) == tool


def compiling(startup: Startup, begin: int, end: int, step_s: float, name: str = CICC) -> list[Any]:
    """A compiler that uses `step_s` of each second, while /health fails every 20 s."""
    said = []
    for t in range(begin, end):
        worker = process(50, name, "R", cpu_s=(t - begin) * step_s)
        said.append(feed(startup, processes(t, *EVERYONE, worker)))
        if (t - begin) % 20 == 19:
            said.append(feed(startup, timeout(t + 0.5)))
    return said


@pytest.mark.parametrize("name", [CICC, "python ...torch/_inductor/compile_worker/__main__.py"])
def test_a_compiler_below_the_engine_is_work(name: str) -> None:
    """Trace gpu-standalone-jit-after-serving: 70 s, and /health fails for as long."""
    startup = serving(10)
    feed(startup, *(processes(t, *EVERYONE) for t in (11, 12)), http(12.5, 200))
    assert {said.outcome for said in compiling(startup, 13, 100, 1.0, name)} == {"serving"}
    assert startup.compiling == (compiler(name),)
    assert any(f"compiled: {compiler(name)}" in line for line in startup.feed({}).evidence)
    assert feed(startup, http(101, 200)).outcome == "serving"


def test_the_busy_limits_apply_and_the_evidence_names_it() -> None:
    startup = serving(10)
    feed(startup, *(processes(t, *EVERYONE) for t in (11, 12)))
    said = compiling(startup, 13, 200, 1.0)
    wrong = [item for item in said if item.outcome != "serving"]
    assert wrong[0].outcome == "unresponsive" and wrong[0].t >= 10 + 120
    assert any("kernels are being compiled: cicc" in line for line in wrong[0].evidence)


def test_a_compiler_that_waits_is_no_work() -> None:
    """An Inductor worker lives on between two kernels; a hung nvcc uses no processor time."""
    startup = serving(10)
    feed(startup, *(processes(t, *EVERYONE) for t in (11, 12)))
    said = compiling(startup, 13, 80, 0.0)
    assert said[-1].outcome == "unresponsive"
    assert startup.compiling == ()


def test_a_scheduler_that_spins_without_compilers_is_no_work() -> None:
    startup = serving(10)
    for t in range(11, 60):
        spinning = process(2, "sglang::scheduler_TP0", "R", cpu_s=float(t))
        said = feed(startup, processes(t, MAIN, spinning, DETOKENIZER))
        if t % 20 == 0:
            said = feed(startup, timeout(t + 0.5))
    assert said.outcome == "unresponsive"
