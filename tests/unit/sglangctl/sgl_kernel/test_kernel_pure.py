"""The pure parts of a build: jobs from memory, the key, requests, progress, causes of failure."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglangctl.proc import memory
from sglangctl.sgl_kernel import key
from sglangctl.sgl_kernel.build import jobs, progress, request
from sglangctl.sgl_kernel.build.compile import read_report
from sglangctl.sgl_kernel.build.environment import requirements
from sglangctl.util.errors import Unusable
from tests.support.kernel_requests import a_request, inputs

GIB = 1024


@pytest.mark.parametrize(
    ("available_gib", "cores", "wanted", "expected"),
    [
        (64, 32, None, 11),  # (64 - 8) / 5
        (64, 4, None, 4),
        (12, 32, None, 1),  # 4 GiB are less than one job
        (2, 32, None, 1),
        (512, 128, None, 100),
        (16, 2, 8, 8),
        (16, 2, 0, 1),
    ],
)
def test_jobs_come_from_memory(
    available_gib: int, cores: int, wanted: int | None, expected: int
) -> None:
    plan = jobs.plan(jobs.Room(available_gib * GIB, "MemAvailable"), cores, wanted)
    assert plan.jobs == expected
    assert "MemAvailable" in plan.reason
    assert f"{available_gib:.1f} GiB" in plan.reason


def test_the_smaller_of_memory_and_cgroup_counts() -> None:
    assert jobs.room(64 * GIB, 20 * GIB) == jobs.Room(20 * GIB, "the cgroup's limit")
    assert jobs.room(64 * GIB, None).source == "MemAvailable"
    assert jobs.room(64 * GIB, 128 * GIB).available_mib == 64 * GIB


def test_halving_ends() -> None:
    tried, number = [], 9
    while number is not None:
        tried.append(number)
        number = jobs.fewer(number)
    assert tried == [9, 4, 2, 1]


@given(st.integers(0, 4_000_000), st.integers(1, 512))
def test_the_plan_is_always_possible(available: int, cores: int) -> None:
    plan = jobs.plan(jobs.Room(available, "MemAvailable"), cores)
    assert 1 <= plan.jobs <= cores
    assert plan.jobs == 1 or plan.jobs * jobs.JOB_MIB + jobs.RESERVE_MIB <= available
    assert plan.memory_max_mib <= max(available, 256)


def test_cgroup_v2_room_is_the_least_of_all_levels(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("memory\n")
    unit = tmp_path / "system.slice/x.service"
    unit.mkdir(parents=True)
    for folder, limit, usage, cache in (
        (unit, "max", 10 * 2**20, 0),
        (tmp_path / "system.slice", str(900 * 2**20), 500 * 2**20, 100 * 2**20),
    ):
        (folder / "memory.max").write_text(limit)
        (folder / "memory.current").write_text(str(usage))
        (folder / "memory.stat").write_text(f"anon 1\ninactive_file {cache}\n")
    assert memory.cgroup_room_mib("0::/system.slice/x.service\n", tmp_path) == 500


def test_cgroup_v1_room(tmp_path: Path) -> None:
    folder = tmp_path / "memory"
    folder.mkdir()
    (folder / "memory.limit_in_bytes").write_text(str(300 * 2**20))
    (folder / "memory.usage_in_bytes").write_text(str(200 * 2**20))
    (folder / "memory.stat").write_text("total_inactive_file 1048576\n")
    # The path of the host's view: a container sees its own folder as the root.
    assert memory.cgroup_room_mib("5:cpu,memory:/docker/abc\n0::/\n", tmp_path) == 101
    (folder / "memory.limit_in_bytes").write_text("9223372036854771712")
    assert memory.cgroup_room_mib("5:memory:/\n", tmp_path) is None


def test_the_key_is_the_same_everywhere() -> None:
    # Written down: another value means that every wheel of every fleet is built again.
    assert key.make(inputs()) == "5f5227a6f7b154ab35e4a7c4"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("commit", "b" * 40),
        ("patches", ("f" * 64,)),
        ("torch", "2.14.2+cu130"),
        ("cuda", "13.1"),
        ("python", "cp313"),
        ("machine", "aarch64"),
        ("arch", "121a"),
        ("flags", ("-DX=1",)),
    ],
)
def test_everything_that_decides_the_bytes_is_in_the_key(field: str, value: object) -> None:
    changed = key.make(inputs(**{field: value}))
    assert changed != key.make(inputs())
    assert key.is_key(changed)


def test_the_key_has_all_fields_tested() -> None:
    assert len(dataclasses.fields(key.Inputs)) == 8


def test_patches_in_another_order_are_another_kernel() -> None:
    assert key.make(inputs(patches=("a", "b"))) != key.make(inputs(patches=("b", "a")))


@pytest.mark.parametrize("text", ["", "../../etc/passwd", "A" * 24, "a" * 23, "a" * 25])
def test_what_is_no_key(text: str) -> None:
    assert not key.is_key(text)
    with pytest.raises(Unusable):
        request.folder(text)


@pytest.mark.parametrize(
    ("arch", "expected"),
    [
        ("120a", ("-DENABLE_BELOW_SM90=OFF", "-DSGL_KERNEL_ENABLE_FA3=OFF")),
        ("90a", ("-DENABLE_BELOW_SM90=OFF", "-DSGL_KERNEL_ENABLE_FA3=ON")),
        ("89", ("-DENABLE_BELOW_SM90=ON", "-DSGL_KERNEL_ENABLE_FA3=ON")),
    ],
)
def test_flags(arch: str, expected: tuple[str, ...]) -> None:
    assert request.cmake_flags(arch) == expected


def test_the_inventory_s_arguments_win_and_are_sorted() -> None:
    found = request.cmake_flags("120a", ("-DZ=1", "-DSGL_KERNEL_ENABLE_FA3:BOOL=ON"))
    assert found == ("-DENABLE_BELOW_SM90=OFF", "-DSGL_KERNEL_ENABLE_FA3:BOOL=ON", "-DZ=1")


@pytest.mark.parametrize(
    ("sm", "arch"),
    [("120", "120a"), ("12.1", "121a"), ("89", "89"), ("90", "90a"), ("120f", "120f")],
)
def test_native_architecture(sm: str, arch: str) -> None:
    assert request.native(sm) == arch


def test_a_request_survives_its_json() -> None:
    wanted = a_request(jobs=4, pip_arguments=("--pre",), venv="/opt/x")
    assert request.parse(json.loads(request.dump(wanted))) == wanted


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"v": 2}, "version"),
        ({"key": "0" * 24}, "key"),
        ({"surprise": 1}, "surprise"),
        ({"git_url": "--upload-pack=evil"}, "dash"),
        ({"inputs": {}}, "inputs"),
    ],
)
def test_bad_requests_are_refused(change: dict, word: str) -> None:
    document = {**json.loads(request.dump(a_request())), **change}
    with pytest.raises(Unusable, match=word):
        request.parse(document)


def test_a_branch_is_no_commit() -> None:
    made = inputs(commit="main")
    with pytest.raises(Unusable, match="40 hex digits"):
        request.parse(json.loads(request.dump(a_request(inputs=made, key=key.make(made)))))


def test_progress_and_eta() -> None:
    meter = progress.Meter()
    assert meter.feed("  -- Configuring done", 0.0) is None
    assert meter.feed("  [1/11] Building CXX object", 100.0) == progress.Progress(1, 11, None)
    meter.feed("[2/11] x", 110.0)
    meter.feed("[3/11] x", 120.0)
    found = meter.feed("\x1b[32m[6/11] Building CUDA object\x1b[0m", 150.0)
    assert found == progress.Progress(6, 11, 50.0)
    assert meter.feed("[11/11] Linking", 200.0) == progress.Progress(11, 11, 0.0)
    # Fewer jobs: ninja counts what is left, from one.
    assert meter.feed("[1/4] Building", 300.0) == progress.Progress(1, 4, None)


@pytest.mark.parametrize(
    "line",
    [
        "nvcc error   : 'cicc' died due to signal 9 (Kill signal)",
        "nvcc error   : 'ptxas' died due to signal 9 (Kill signal)",
        "g++: fatal error: Killed signal terminated program cc1plus",
        "FAILED: [code=137] CMakeFiles/common_ops_sm100_build.dir/csrc/heavy.cu.o",
        "Killed",
        "/bin/sh: line 1:  4242 Killed                  /usr/local/cuda/bin/nvcc -x cu",
        "cc1plus: out of memory allocating 65536 bytes after a total of 1 bytes",
        "terminate called after throwing an instance of 'std::bad_alloc'",
    ],
)
def test_killed_compilers_are_understood(line: str) -> None:
    output = ["[1/9] Building", line, "ninja: build stopped: subcommand failed.", "error: failed"]
    fault = progress.explain(output, 1)
    assert fault.memory
    assert "lack of memory" in fault.sentence
    assert fault.line == line.strip()


@pytest.mark.parametrize(
    "line", ["kernel_killed.cu.o", "[7/9] Building killed.cu", "137 warnings", "signal 91"]
)
def test_what_is_no_kill(line: str) -> None:
    assert not progress.explain([line], 1).memory


def test_a_killed_pip_is_memory_too() -> None:
    assert progress.explain([], -9).memory


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("  Compatibility with CMake < 3.5 has been removed from CMake.",
         ["CMake below 3.5", "CMAKE_POLICY_VERSION_MINIMUM=3.5"]),
        ("nvcc fatal   : Unsupported gpu architecture 'compute_120a'", ["compute_120a", "12.8"]),
        ("fatal error: numa.h: No such file or directory", ["libnuma-dev"]),
        ("fatal error: infiniband/verbs.h: No such file or directory", ["libibverbs-dev"]),
        ("fatal error: error writing to /x.s: No space left on device", ["disk is full"]),
        ("#error -- unsupported GNU version! gcc versions later than 15", ["g++"]),
        ("fatal: unable to access 'https://github.com/': Could not resolve host: github.com",
         ["third-party", "FETCHCONTENT_SOURCE_DIR"]),
        ("CMake 3.31 or higher is required.  You are running version 3.25.1", ["3.31"]),
        ("ERROR: No matching distribution found for cmake>=9", ["cmake>=9"]),
    ],
)  # fmt: skip
def test_causes_of_failed_builds(line: str, words: list[str]) -> None:
    fault = progress.explain(["-- Detecting", line, "error: subprocess-exited-with-error"], 1)
    assert not fault.memory
    for word in words:
        assert word in f"{fault.sentence} {fault.next_step}"
    assert fault.line == line.strip()


def test_an_unknown_failure_shows_the_first_error() -> None:
    output = ["ok", 'x.cu(3): error: identifier "y" is undefined', "ninja: build stopped", "FAILED"]
    fault = progress.explain(output, 1)
    assert 'identifier "y" is undefined' in fault.sentence


def test_requirements_of_a_pyproject(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(
        '[project]\nrequires = ["no"]\n[build-system]\nrequires = [\n  "scikit-build-core>=0.10",\n'
        "  \"torch==2.14.1\",  # the engine's\n  'wheel',\n  \"torchvision\",\n]\nbuild-backend = 'x'\n"
    )
    assert requirements(tmp_path) == ["scikit-build-core>=0.10", "wheel", "torchvision"]


def test_report_of_the_cmake_module(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    assert read_report(path)[0] is False
    path.write_text('{"v": 1, "limited": true, "reason": ""}')
    assert read_report(path) == (True, "")
