"""Verdicts on kernels: the recorded real wheels, and every way in which one can be wrong."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from sglangctl.cli import main
from sglangctl.sgl_kernel.library import cubins, elf, inspect, judging, metadata
from sglangctl.sgl_kernel.library.inspect import inspect_folder, inspect_installed
from sglangctl.sgl_kernel.library.judging import Library, Subject
from sglangctl.sgl_kernel.library.metadata import Metadata
from sglangctl.sgl_kernel.venv import Torch, Venv, load
from tests.kernel import sites

RECORDED = sorted((Path(__file__).parents[3] / "kernel/recorded").glob("*.json"))
SM100 = "sgl_kernel/sm100/common_ops.abi3.so"


def fake_venv(torch: Torch | None, version: tuple[int, int] = (3, 12)) -> Venv:
    class With(Venv):
        def torch(self) -> Torch | None:
            return torch

    return With(Path("/venv"), Path("/venv/bin/python"), version, (), "x86_64")


def recorded(path: Path) -> tuple[dict, Subject]:
    document = json.loads(path.read_text())
    said = Metadata(
        document["distribution"],
        document["version"],
        document["torch_pin"],
        tuple(document["tags"]),
    )
    libraries = [
        Library(
            **{
                **item,
                "needed": tuple(item["needed"]),
                "archs": tuple(item["archs"]),
                "ptx": tuple(item["ptx"]),
            }
        )
        for item in document["files"]
    ]
    return document, Subject("wheel", Path("/"), said, libraries)


@pytest.mark.parametrize("sm", ["90", "120", "121"])
@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_real_wheels_have_the_verdict_that_was_seen(path: Path, sm: str) -> None:
    document, subject = recorded(path)
    result = judging.judge(subject, sm, "cuobjdump", None)
    assert (result.verdict, result.loads) == (
        document["verdicts"][sm]["verdict"],
        document["verdicts"][sm]["loads"],
    )
    assert result.cuda == document["cuda"]


def test_the_recordings_are_of_both_wheels() -> None:
    assert [path.stem for path in RECORDED] == ["sgl-kernel-0.3.21", "sglang-kernel-0.4.10"]


@pytest.mark.parametrize(
    ("torch", "cuda", "verdict", "word"),
    [
        ("2.14.1+cu130", "13.0", "usable", "120a"),
        ("2.14.1", "13.0", "usable", "120a"),
        ("2.13.0+cu130", "13.0", "abi-mismatch", "torch 2.14.1"),
        ("2.14.1+cu128", "12.8", "cuda-mismatch", "CUDA 12"),
        ("2.14.1+cpu", None, "cuda-mismatch", "without CUDA"),
    ],
)
def test_real_wheel_against_a_torch(torch: str, cuda: str, verdict: str, word: str) -> None:
    _, subject = recorded(RECORDED[1])
    venv = fake_venv(Torch(torch, cuda, Path("/none")))
    result = judging.judge(subject, "120", "cuobjdump", venv)
    assert result.verdict == verdict
    assert word in result.reason
    assert result.unknown == ()


def test_a_wheel_for_another_python() -> None:
    _, subject = recorded(RECORDED[1])
    subject.metadata = Metadata("sglang-kernel", "0.4.10", None, ("cp311-cp311",))
    result = judging.judge(subject, "120", "x", fake_venv(Torch("2.14.1", "13.0", Path("/"))))
    assert result.verdict == "abi-mismatch"
    assert "cp311-cp311" in result.reason
    assert "cp312" in result.reason


def test_without_cuobjdump_it_says_what_is_not_known(tmp_path: Path) -> None:
    wheel = sites.wheel(tmp_path, sites.files())
    result = inspect.inspect_wheel(wheel, "120", None)
    assert (result.verdict, result.exit_status) == ("unknown", 2)
    assert "cuobjdump" in result.reason


def test_without_a_gpu_it_says_what_is_not_known(tmp_path: Path) -> None:
    wheel = sites.wheel(tmp_path, sites.files())
    result = inspect.inspect_wheel(wheel, None, sites.cuobjdump(tmp_path, "120a"))
    assert result.exit_status == 2
    assert "--sm" in result.reason
    assert result.files[0].archs == ("120a",)


def test_a_cut_library_is_incomplete(tmp_path: Path) -> None:
    members = sites.files(**{SM100: sites.LIBRARY.read_bytes()[:4096]})
    wheel = sites.wheel(tmp_path, members)
    result = inspect.inspect_wheel(wheel, "120", sites.cuobjdump(tmp_path, "120a"))
    assert result.verdict == "incomplete"
    assert "4096 of at least" in result.reason
    assert result.exit_status == 1


@pytest.mark.parametrize("content", [b"", b"not ELF at all"])
def test_what_is_no_library_is_incomplete(tmp_path: Path, content: bytes) -> None:
    wheel = sites.wheel(tmp_path, sites.files(**{SM100: content}))
    result = inspect.inspect_wheel(wheel, "120", sites.cuobjdump(tmp_path, "120a"))
    assert result.verdict == "incomplete"


def test_a_wheel_without_a_library(tmp_path: Path) -> None:
    members = sites.files(**{SM100: None, "sgl_kernel/sm90/common_ops.abi3.so": None})
    result = inspect.inspect_wheel(sites.wheel(tmp_path, members), "120", None)
    assert (result.verdict, result.loads) == ("incomplete", None)


@pytest.mark.parametrize("content", [b"", b"PK", b"PK\x05\x06" + bytes(18)])
def test_an_empty_or_broken_wheel_is_incomplete(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "sglang_kernel-0.4.10-cp310-abi3-manylinux2014_x86_64.whl"
    path.write_bytes(content)
    assert inspect.inspect_wheel(path, "120", None).verdict == "incomplete"


def test_a_wheel_of_something_else_is_refused(tmp_path: Path) -> None:
    wheel = sites.wheel(tmp_path, sites.files(name="numpy"))
    result = inspect.inspect_wheel(wheel, "120", None)
    assert result.verdict == "incomplete"
    assert "numpy" in result.reason


def test_members_that_climb_out_stay_inside(tmp_path: Path) -> None:
    members = sites.files()
    members["../../evil.so"] = b"x"
    (tmp_path / "in").mkdir()
    inspect.inspect_wheel(sites.wheel(tmp_path / "in", members), "120", None)
    assert not list(tmp_path.rglob("evil.so"))
    assert not (tmp_path.parent / "evil.so").exists()


@sites.takes_the_wheel
def test_installed_and_usable(tmp_path: Path) -> None:
    site = sites.venv(tmp_path / "venv")
    sites.install(site, sites.files())
    result = inspect_installed(
        load(tmp_path / "venv"), "120", sites.cuobjdump(tmp_path, "90", "120a")
    )
    assert (result.verdict, result.distribution, result.version) == (
        "usable",
        "sglang-kernel",
        "0.4.10",
    )
    assert result.torch == "2.14.1+cu130"
    assert [item.archs for item in result.files] == [("90", "120a")] * 2


@sites.takes_the_wheel
def test_a_symbol_that_torch_lacks_is_an_abi_mismatch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # gevent's library needs CPython's symbols, and nothing in torch/lib exports them.
    monkeypatch.setattr(inspect, "TORCH_SYMBOL", re.compile("^Py"))
    site = sites.venv(tmp_path / "venv")
    sites.install(site, sites.files(**{"INFO/METADATA": "Name: sglang-kernel\nVersion: 0.4.10\n"}))
    result = inspect_installed(load(tmp_path / "venv"), "120", sites.cuobjdump(tmp_path, "120a"))
    assert result.verdict == "abi-mismatch"
    assert re.search(r"torch 2\.14\.1\+cu130 has no Py\w+", result.reason)


def test_both_distributions_are_mixed(tmp_path: Path) -> None:
    sites.install(tmp_path, sites.files(name="sgl-kernel", version="0.3.21"))
    sites.install(tmp_path, sites.files())
    result = inspect_folder(tmp_path, "120", None)
    assert result.verdict == "mixed"
    assert "sgl_kernel-0.3.21" in result.reason
    assert "sglang_kernel-0.4.10" in result.reason


def test_a_leftover_library_is_mixed(tmp_path: Path) -> None:
    sites.install(tmp_path, sites.files())
    (tmp_path / "sgl_kernel/flash_ops.abi3.so").write_bytes(sites.LIBRARY.read_bytes())
    result = inspect_folder(tmp_path, "120", None)
    assert result.verdict == "mixed"
    assert "flash_ops" in result.reason


@pytest.mark.parametrize("loss", ["unlink", "cut", "grown"])
def test_a_lost_library_is_incomplete_even_if_this_gpu_does_not_load_it(
    tmp_path: Path, loss: str
) -> None:
    sites.install(tmp_path, sites.files())
    path = tmp_path / "sgl_kernel/sm90/common_ops.abi3.so"
    if loss == "unlink":
        path.unlink()
    else:
        data = path.read_bytes()
        path.write_bytes(data[:-1] if loss == "cut" else data + b"x")
    result = inspect_folder(tmp_path, "120", sites.cuobjdump(tmp_path, "120a"))
    assert result.verdict == "incomplete"
    assert "sm90/common_ops" in result.reason


def test_an_editable_install_is_incomplete(tmp_path: Path) -> None:
    url = json.dumps({"url": "file:///src/sgl-kernel", "dir_info": {"editable": True}})
    sites.install(tmp_path, sites.files(**{"INFO/direct_url.json": url}))
    result = inspect_folder(tmp_path, "120", sites.cuobjdump(tmp_path, "120a"))
    assert result.verdict == "incomplete"
    assert "editable" in result.reason
    assert "file:///src/sgl-kernel" in result.reason


def test_nothing_installed(tmp_path: Path) -> None:
    assert inspect_folder(tmp_path, "120", None).verdict == "incomplete"


@pytest.mark.parametrize(
    ("cubin", "gpu", "runs"),
    [
        ("120a", "120", True),
        ("120a", "121", False),
        ("120", "121", True),
        ("120f", "121", True),
        ("121a", "120", False),
        ("121", "120", False),
        ("100f", "120", False),
        ("100", "103", True),
        ("80", "89", True),
        ("89", "80", False),
        ("90", "120", False),
    ],
)
def test_which_cubin_runs_where(cubin: str, gpu: str, runs: bool) -> None:
    assert cubins.runs_on(cubin, gpu) is runs


@pytest.mark.parametrize(
    ("ptx", "gpu", "runs"),
    [("90", "120", True), ("120a", "121", False), ("120f", "121", True), ("121", "120", False)],
)
def test_which_ptx_runs_where(ptx: str, gpu: str, runs: bool) -> None:
    assert cubins.ptx_runs_on(ptx, gpu) is runs


def test_ptx_alone_is_usable(tmp_path: Path) -> None:
    wheel = sites.wheel(tmp_path, sites.files())
    result = inspect.inspect_wheel(wheel, "120", sites.cuobjdump(tmp_path, "80", ptx="90"))
    assert result.verdict == "usable"
    assert "90 (PTX)" in result.reason


@pytest.mark.parametrize(
    ("tags", "fits"),
    [
        (("cp310-abi3",), True),
        (("cp312-cp312",), True),
        (("cp311-cp311",), False),
        (("cp313-abi3",), False),
        (("py3-none",), True),
    ],
)
def test_python_tags(tags: tuple[str, ...], fits: bool) -> None:
    assert metadata.python_fits(tags, (3, 12)) is fits


def test_the_loader_prefers_the_folder_of_the_gpu() -> None:
    names = ["sgl_kernel/common_ops.abi3.so", SM100, "sgl_kernel/sm90/common_ops.abi3.so"]
    assert judging.loaded_file(names, "90") == "sgl_kernel/sm90/common_ops.abi3.so"
    assert judging.loaded_file(names, "120") == SM100
    assert judging.loaded_file(names[:1], "120") == "sgl_kernel/common_ops.abi3.so"
    assert judging.loaded_file(["sgl_kernel/flash_ops.abi3.so"], "120") is None


def test_elf_finds_symbols_by_their_hash() -> None:
    with elf.SharedObject(sites.LIBRARY) as library:
        needed, undefined = library.needed(), library.undefined()
        (exported,) = [
            name
            for name in (f"PyInit_{sites.LIBRARY.name.split('.')[0]}",)
            if library.defines(name)
        ]
    assert any(name.startswith("libc.so") for name in needed)
    assert any(name.startswith("Py") for name in undefined)
    assert exported not in undefined
    assert elf.unresolved([exported, "nobody_has_this"], [sites.LIBRARY]) == ["nobody_has_this"]


def test_every_cut_of_a_library_is_noticed(tmp_path: Path) -> None:
    data = sites.LIBRARY.read_bytes()
    path = tmp_path / "x.so"
    for size in range(0, len(data), max(1, len(data) // 97)):
        path.write_bytes(data[:size])
        with pytest.raises(elf.ElfError):
            elf.SharedObject(path)


def test_command_prints_a_document(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wheel = sites.wheel(tmp_path, sites.files(**{SM100: b""}))
    assert main(["kernel", "inspect", str(wheel), "--sm", "12.0", "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert list(document)[:2] == ["v", "target"]
    assert (document["v"], document["verdict"], document["version"]) == (1, "incomplete", "0.4.10")
    assert {"path", "archs", "ptx"} <= set(document["files"][0])


def test_command_refuses_what_is_no_architecture(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["kernel", "inspect", "x.whl", "--sm", "blackwell"]) == 2
    assert "sm_120a" in capsys.readouterr().err


def test_names_with_control_characters_are_shown_harmlessly(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    members = sites.files(**{"sgl_kernel/sm100/common_ops.\x1b[31m.so": b"", SM100: None})
    wheel = sites.wheel(tmp_path, members)
    assert main(["kernel", "inspect", str(wheel), "--sm", "120"]) == 1
    assert "\x1b" not in capsys.readouterr().out


def test_this_python_is_seen(tmp_path: Path) -> None:
    sites.venv(tmp_path / "venv", torch=None)
    venv = load(tmp_path / "venv")
    assert venv.version == sys.version_info[:2]
    assert venv.torch() is None


def test_an_environment_is_read_and_none_of_its_code_is_run(tmp_path: Path) -> None:
    """A .pth file of any package runs whenever that Python starts: root asked it in each probe."""
    site = sites.venv(tmp_path / "venv")
    other = tmp_path / "other"
    other.mkdir()
    mine = tmp_path / "mine"
    (site / "evil.pth").write_text(f"import os; open({str(mine)!r}, 'w')\n{other}\n/nowhere\n")
    found = load(tmp_path / "venv")
    assert not mine.exists()
    asked = subprocess.run(
        [str(found.python), "-I", "-c", "import sys; print(sys.path, sys.version_info[:2])"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert mine.exists()  # what the attack does
    assert str(found.version) in asked and found.path == (site, other)
    assert all(repr(str(folder)) in asked for folder in found.path)


def test_an_environment_that_sees_the_host_s_packages(tmp_path: Path) -> None:
    site = sites.venv(tmp_path / "venv")
    home = tmp_path / "usr/bin"
    shared = tmp_path / "usr/lib/python3/dist-packages"
    shared.mkdir(parents=True)
    for seen, wanted in (("true", (site, shared)), ("false", (site,))):
        text = f"home = {home}\ninclude-system-site-packages = {seen}\n"
        (tmp_path / "venv/pyvenv.cfg").write_text(text)
        assert load(tmp_path / "venv").path == wanted
