"""Pairs of GPUs through NVML's own calling convention (a stand-in of the library, compiled)."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from sglangctl.gpu import health, links, nvml
from sglangctl.gpu.links import Link
from tests.support.tools import missing

STUB = """
int nvmlInit_v2(void) { return 0; }
const char *nvmlErrorString(int code) { return "lost"; }
int nvmlDeviceGetCount_v2(unsigned *n) { *n = 3; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **h) { *h = (void *)(i + 1L); return i == 2 ? 15 : 0; }
int nvmlDeviceGetTopologyCommonAncestor(void *a, void *b, int *level) {
    *level = a == (void *)1L && b == (void *)2L ? 30 : 99;
    return 0;
}
int nvmlDeviceGetP2PStatus(void *a, void *b, int which, int *status) {
    *status = which == 0 ? 4 : which == 2 ? 5 : 6;
    return 0;
}
int nvmlDeviceGetCurrPcieLinkWidth(void *h, unsigned *n) { *n = 8; return 0; }
int nvmlDeviceGetMaxPcieLinkWidth(void *h, unsigned *n) { *n = 16; return 0; }
int nvmlDeviceGetEnforcedPowerLimit(void *h, unsigned *n) { *n = 300000; return 0; }
int nvmlDeviceGetPowerManagementDefaultLimit(void *h, unsigned *n) { *n = 600000; return 0; }
"""


@pytest.fixture(autouse=True)
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if missing("cc"):
        pytest.skip("needs a C compiler")
    source, library = tmp_path / "stub.c", tmp_path / "stub.so"
    source.write_text(STUB)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    for module in (links, health):
        monkeypatch.setattr(module, "Nvml", lambda: nvml.Nvml(str(library)))


def test_a_pair_and_a_lost_gpu() -> None:
    refused = "it is switched off in the driver"
    assert links.read([0, 1, 2]) == [Link(0, 1, "PHB", False, refused)]


def test_a_level_that_nobody_knows() -> None:
    # Only the pair (0, 1) has a level of ours; the order of the indices is theirs, not the caller's.
    (pair,) = links.read([1, 0]) or []
    assert (pair.first, pair.second, pair.level) == (0, 1, "PHB")


def test_lanes_and_power() -> None:
    found = (health.read() or {})[0]
    assert (found.lanes, found.lanes_most) == (8, 16)
    assert (found.power_limit_w, found.power_default_w) == (300, 600)
    assert (found.generation_most, found.display) == (None, None)
