from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sglangctl.gpu import gpus, nvml
from sglangctl.proc import procfs
from tests.support.tools import missing

ROW = (
    "{index}, GPU-{index}, NVIDIA RTX PRO 6000 Blackwell, 00000000:{bus}:00.0, 76000, 97887, {util}"
)
SMI = """#!/bin/sh
case "$1" in
--query-gpu=*compute_cap*) {modern};;
--query-gpu=*) {old};;
--query-compute-apps=*) printf 'GPU-1, 77, 75000\\nGPU-1, 78, [N/A]\\n[Not Found], x, 1\\n';;
esac
"""


@pytest.fixture
def smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Puts an nvidia-smi in the way and takes NVML away; call it with the script's text."""
    monkeypatch.setattr(nvml, "LIBRARY", "libnvidia-ml.so.absent")
    monkeypatch.setattr(gpus, "_nvml", None)
    monkeypatch.setattr(gpus, "Nvml", lambda: nvml.Nvml("libnvidia-ml.so.absent"))

    def write(text: str) -> None:
        (tmp_path / "nvidia-smi").write_text(text)
        (tmp_path / "nvidia-smi").chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    return write


def row(index: int, bus: str, util: str = "0") -> str:
    return ROW.format(index=index, bus=bus, util=util)


def test_neither_source_gives_a_reason_that_names_both(monkeypatch, smi, tmp_path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    reading = gpus.read()
    assert reading.gpus is None and reading.source is None
    assert reading.reason == (
        "libnvidia-ml.so.absent is not installed: no NVIDIA driver; nvidia-smi: not installed"
    )
    assert gpus.sample() is None


def test_nvidia_smi_as_fallback(smi) -> None:
    text = f"{row(0, '01', '[N/A]')}, 31.05, 580.95.05, 12.0, 600.00\\n"
    text += f"{row(1, '02', '100')}, [Not Supported], 580.95.05, [N/A], 600.00\\n"
    smi(SMI.format(modern=f"printf '{text}'", old="exit 1"))
    first, second = gpus.read().gpus or ()
    assert (first.index, first.uuid, first.bus_id) == (0, "GPU-0", "00000000:01:00.0")
    assert (first.memory_used_mib, first.memory_total_mib) == (76000, 97887)
    assert (first.utilization_pct, first.power_w, first.power_limit_w) == (None, 31.05, 600.0)
    assert (first.compute_capability, first.driver) == ("12.0", "580.95.05")
    assert (second.utilization_pct, second.power_w, second.compute_capability) == (100, None, None)
    assert second.processes == ((77, 75000), (78, None))
    assert first.processes == ()


def test_an_old_nvidia_smi_is_asked_again_without_what_it_refuses(smi) -> None:
    refused = "echo 'Field \"compute_cap\" is not a valid field to query.'; exit 2"
    smi(SMI.format(modern=refused, old=f"echo '{row(0, '01')}, 31.05, 470.1'"))
    (gpu,) = gpus.read().gpus or ()
    assert (gpu.compute_capability, gpu.power_limit_w, gpu.driver) == (None, None, "470.1")


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("echo 'NVIDIA-SMI has failed'; exit 9", "NVIDIA-SMI has failed"),
        ("echo 'No devices were found'", "nvidia-smi says 'No devices were found'"),
        ("exec sleep 30", "did not answer within 0.3 s"),
    ],
)
def test_a_broken_driver_is_a_reason(smi, monkeypatch, script: str, reason: str) -> None:
    monkeypatch.setattr(gpus, "SMI_TIMEOUT_S", 0.3)
    smi(f"#!/bin/sh\n{script}\n")
    reading = gpus.read()
    assert reading.gpus is None
    assert reason in (reading.reason or "")


def test_the_device_number_is_the_kernel_modules_not_the_index(tmp_path, monkeypatch) -> None:
    folder = tmp_path / "driver/nvidia/gpus/0000:c1:00.0"
    folder.mkdir(parents=True)
    (folder / "information").write_text("Model: \t X\nDevice Minor: \t 5\n")
    monkeypatch.setattr(procfs, "PROC", str(tmp_path))
    assert gpus.minor_of("00000000:C1:00.0", 0) == 5
    assert gpus.minor_of("00000000:C2:00.0", 1) == 1


STUB = """
int nvmlInit_v2(void) { return %s; }
const char *nvmlErrorString(int code) { return "Driver/library version mismatch"; }
int nvmlDeviceGetCount_v2(unsigned *n) { *n = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **h) { *h = (void *)1L; return i ? 15 : 0; }
int nvmlDeviceGetMinorNumber(void *h, unsigned *n) { *n = 3; return 0; }
int nvmlDeviceGetPowerUsage(void *h, unsigned *mw) { *mw = 12345; return 0; }
struct p { unsigned pid; unsigned long long used; unsigned a, b; };
int nvmlDeviceGetComputeRunningProcesses_v3(void *h, unsigned *n, struct p *rows) {
    if (*n < 100) { *n = 100; return 7; }
    *n = 100;
    for (unsigned i = 0; i < 100; i++)
        rows[i] = (struct p){1000 + i, i ? (i + 1ULL) << 20 : ~0ULL, 0, 0};
    return 0;
}
"""


@pytest.fixture
def stub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A library that answers as a driver in trouble does (the real one: docs/evidence)."""
    if missing("cc"):
        pytest.skip("needs a C compiler")

    def build(status: int) -> None:
        source, library = tmp_path / "stub.c", tmp_path / f"stub{status}.so"
        source.write_text(STUB % status)
        subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
        monkeypatch.setattr(gpus, "_nvml", None)
        monkeypatch.setattr(gpus, "Nvml", lambda: nvml.Nvml(str(library)))

    return build


def test_nvml_with_a_lost_gpu_many_processes_and_missing_calls(stub) -> None:
    stub(0)
    reading = gpus.read()
    assert reading.source == "nvml"
    first, second = reading.gpus or ()
    assert (first.minor, first.power_w, first.power_limit_w) == (3, 12.345, None)
    assert (first.memory_used_mib, first.name) == (None, "")
    assert len(first.processes) == 100
    assert first.processes[:2] == ((1000, None), (1001, 2))
    assert gpus.by_minor(reading.gpus) == {3: 0, 1: 1}
    assert "error 15" in (second.error or "") and "reboot" in (second.error or "")


def test_nvml_that_does_not_start_falls_back_and_says_why(stub, monkeypatch, tmp_path) -> None:
    stub(18)
    monkeypatch.setenv("PATH", str(tmp_path))
    reading = gpus.read()
    assert reading.gpus is None
    assert "version mismatch (error 18)" in (reading.reason or "")
    assert "reboot" in (reading.reason or "")


def test_importing_it_is_cheap() -> None:
    """The watch and the probe import it on every start."""
    loaded = subprocess.run(
        [
            sys.executable,
            "-I",
            "-c",
            "import sys; sys.path.insert(0, sys.argv[1]); import sglangctl.gpu.gpus;"
            "print('subprocess' in sys.modules)",
            str(Path(gpus.__file__).parents[2]),
        ],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert loaded.strip() == "False"
