"""The kit of the GPU check: wheels in parts that can be carried; settings; results that stay."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.gpu import checks, kit, run
from tests.gpu.bench import Bench, merge


def test_parts_hold_every_wheel_once_and_stay_below_the_limit(tmp_path: Path) -> None:
    sizes = {"a": 40, "b": 30, "c": 25, "d": 20, "e": 5, "too-large": 120}
    for name, size in sizes.items():
        (tmp_path / f"{name}.whl").write_bytes(b"0" * size)
    made = kit.parts(tmp_path.glob("*.whl"), 50)
    names = sorted(path.stem for part in made for path in part)
    assert names == sorted(sizes)
    assert [sum(sizes[path.stem] for path in part) for part in made] == [120, 45, 50, 25]


def test_a_trimmed_wheel_lacks_the_file_and_keeps_the_rest(tmp_path: Path) -> None:
    path = tmp_path / "sglang_kernel-1-cp310-abi3-linux_x86_64.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr("sgl_kernel/flash_ops.abi3.so", b"1" * 1000)
        wheel.writestr("sgl_kernel/common_ops.abi3.so", b"2")
    kit.trim(path, "flash_ops.abi3.so")
    with zipfile.ZipFile(path) as wheel:
        assert wheel.namelist() == ["sgl_kernel/common_ops.abi3.so"]
    before = path.stat().st_mtime_ns
    kit.trim(path, "flash_ops.abi3.so")
    assert path.stat().st_mtime_ns == before


def test_a_wheel_is_found_by_its_pin(tmp_path: Path) -> None:
    (tmp_path / "apache_tvm_ffi-0.1.11-cp312-abi3-any.whl").touch()
    assert kit.find(tmp_path, "apache-tvm-ffi==0.1.11")
    assert not kit.find(tmp_path, "apache-tvm-ffi==0.1.1")


def test_changes_are_merged_mapping_by_mapping() -> None:
    base = {"flags": {"a": 1, "b": 2}, "port": 1, "replaces": ["x"]}
    assert merge(base, {"flags": {"b": 3}, "replaces": None, "port": 2}) == {
        "flags": {"a": 1, "b": 3},
        "port": 2,
    }
    assert base["flags"] == {"a": 1, "b": 2}


def test_a_failed_check_leaves_the_others_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def good(bench: Bench) -> dict[str, Any]:
        return {"seconds": 1}

    def bad(bench: Bench) -> dict[str, Any]:
        raise AssertionError("not so")

    def impossible(bench: Bench) -> dict[str, Any]:
        raise checks.Skip("no GPU")

    known = [checks.Check(f.__name__, "", f) for f in (good, bad, impossible)]
    monkeypatch.setattr(checks, "ALL", known)
    bench = Bench(None, "host", {}, {}, None, "/models", tmp_path)  # type: ignore[arg-type]
    assert run.run(bench, [known[0]]) == 0
    assert run.run(bench, known[1:]) == 1
    document = json.loads((tmp_path / "gpu-check.json").read_text())
    assert [(one["name"], one["outcome"]) for one in document["checks"]] == [
        ("good", "passed"),
        ("bad", "failed"),
        ("impossible", "skipped"),
    ]
    assert "not so" in (tmp_path / "bad.traceback").read_text()
    assert "not so" in capsys.readouterr().out
