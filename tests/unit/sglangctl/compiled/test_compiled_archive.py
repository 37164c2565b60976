"""What an engine has compiled: packed on one host, unpacked on another, and nothing else with it."""

from __future__ import annotations

import errno
import getpass
import io
import os
import shutil
import subprocess
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sglangctl.compiled import archive, exchange, key
from sglangctl.compiled.key import Request
from sglangctl.gpu import gpus
from sglangctl.state.paths import Paths
from sglangctl.util.errors import Unusable

VENV = "0123456789abcdef"
NS = 1_790_000_000_123_456_789


def request_of(tmp_path: Path, **more: Any) -> Request:
    venv, model = tmp_path / "venvs" / VENV, tmp_path / "model"
    document = {
        "engine": "chat",
        "user": getpass.getuser(),
        "venv": str(venv),
        "model": str(model),
        "flags": "f",
        "gpus": [],
        **more,
    }
    torch = venv / "lib/python3.12/site-packages/torch"
    torch.mkdir(parents=True, exist_ok=True)
    (venv / "bin").mkdir(exist_ok=True)
    (venv / "bin/python").write_text("#!/bin/sh\n")
    (venv / "bin/python").chmod(0o755)
    version = more.get("torch", "2.11.0+cu130")
    (torch / "version.py").write_text(f"__version__ = '{version}'\ncuda: str = '13.0'\n")
    (torch / "header.h").touch()
    model.mkdir(exist_ok=True)
    (model / "config.json").write_text("{}")
    return key.parse(document)


def compile_into(folder: Path, **files: bytes) -> None:
    for name, content in {"triton/ab/kernel.cubin": b"cubin", **files}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        os.utime(path, ns=(NS, NS))


def folder_of(paths: Paths) -> Path:
    return paths.cache("chat") / "compiled" / VENV


def test_what_one_host_compiled_is_on_the_other_to_the_nanosecond(tmp_path: Path) -> None:
    here, there = Paths(tmp_path / "here"), Paths(tmp_path / "there")
    request = request_of(tmp_path)
    flashinfer = ".cache/flashinfer/0.6/120/cached_ops/x"
    compile_into(
        folder_of(here),
        **{f"{flashinfer}/x.so": b"so", f"{flashinfer}/.ninja_log": b"log"},
    )
    (folder_of(here) / flashinfer / "x.so").chmod(0o755)
    packed = exchange.pack(request, here)
    assert (packed["files"], packed["bytes"]) == (3, 10)
    assert Path(packed["path"]).stat().st_mode & 0o777 == 0o600
    place = there.compiled / packed["key"]
    place.mkdir(parents=True)
    there.cache("chat").mkdir(parents=True)
    header = next(Path(request.venv).rglob("header.h"))
    os.utime(header, ns=(NS + 5, NS + 5))
    os.replace(packed["path"], place / exchange.NAME)
    assert exchange.look(request, there)["files"] == 0
    adopted = exchange.adopt(request, packed["key"], packed["sha256"], there)
    assert adopted["files"] == exchange.look(request, there)["files"] == 3
    brought = folder_of(there) / flashinfer / "x.so"
    assert brought.read_bytes() == b"so"
    assert brought.stat().st_mtime_ns == NS
    assert brought.stat().st_mode & 0o777 == 0o750
    assert header.stat().st_mtime_ns < NS, "ninja would compile all of it again"
    assert not (place / exchange.NAME).exists()
    again = exchange.adopt(request, packed["key"], packed["sha256"], there)
    assert again == adopted, "the call is repeated after a lost link"


def test_only_plain_files_of_the_engine_s_user_are_packed(tmp_path: Path) -> None:
    paths = Paths(tmp_path)
    secret = tmp_path / "secret"
    secret.write_bytes(b"secret")
    folder = folder_of(paths)
    compile_into(
        folder,
        **{
            "triton/lock": b"",
            "inductor/x.lock": b"",
            ".cache/flashinfer/1/flashinfer_jit.log": b"",
        },
        **{".cache/huggingface/token": b"hf", "notes": b"n", "triton/ab/line\nfeed": b""},
    )
    (folder / "triton/link").symlink_to(secret)
    (folder / "inductor").joinpath("folder").symlink_to(tmp_path)
    os.link(secret, folder / "triton/second-name")
    os.mkfifo(folder / "triton/pipe")
    out = io.BytesIO()
    packed = archive.pack(folder, os.getuid(), out)
    assert [one.name for one in packed] == ["triton/ab/kernel.cubin"]
    assert b"secret" not in out.getvalue()
    assert archive.pack(folder, os.getuid() + 1, io.BytesIO()) == []


def test_a_folder_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    compile_into(elsewhere)
    folder = folder_of(Paths(tmp_path))
    folder.mkdir(parents=True)
    (folder / "triton").symlink_to(elsewhere / "triton")
    with pytest.raises(OSError):
        archive.pack(folder, os.getuid(), io.BytesIO())


def test_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compile_into(tmp_path, **{"triton/b": b"12345"})
    monkeypatch.setattr(archive, "LARGEST", 9)
    with pytest.raises(Unusable):
        archive.pack(tmp_path, os.getuid(), io.BytesIO())
    monkeypatch.setattr(archive, "LARGEST", 10)
    monkeypatch.setattr(archive, "MOST_FILES", 1)
    with pytest.raises(Unusable):
        archive.pack(tmp_path, os.getuid(), io.BytesIO())


def test_what_is_compiled_meanwhile_is_not_packed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compile_into(tmp_path)
    member = archive._member

    def compiles(found: archive.Found) -> tarfile.TarInfo:
        compile_into(tmp_path, **{"triton/new": b""})
        return member(found)

    monkeypatch.setattr(archive, "_member", compiles)
    with pytest.raises(Unusable, match="still compiles"):
        archive.pack(tmp_path, os.getuid(), io.BytesIO())


BAD: dict[str, tuple[str, dict[str, Any]]] = {
    "outside": ("../../etc/cron.d/x", {}),
    "within": ("triton/../../x", {}),
    "absolute": ("/triton/x", {}),
    "another part": (".ssh/authorized_keys", {}),
    "a lock": ("triton/x.lock", {}),
    "a link": ("triton/x", {"type": tarfile.SYMTYPE, "linkname": "/etc/passwd"}),
    "a second name": ("triton/x", {"type": tarfile.LNKTYPE, "linkname": "/etc/passwd"}),
    "a device": ("triton/x", {"type": tarfile.CHRTYPE}),
    "a pipe": ("triton/x", {"type": tarfile.FIFOTYPE}),
    "a control character": ("triton/x\n", {}),
    "no time": ("triton/x", {"pax_headers": {}}),
    "a time of words": ("triton/x", {"pax_headers": {"mtime": "1e3"}}),
}


@pytest.mark.parametrize("name", BAD)
def test_an_archive_of_somebody_else_is_refused_whole(tmp_path: Path, name: str) -> None:
    path, fields = BAD[name]
    bad = tarfile.TarInfo(path)
    bad.pax_headers = {"mtime": "1.000000000"}
    for field, value in fields.items():
        setattr(bad, field, value)
    with tarfile.open(tmp_path / "a.tar", "w", format=tarfile.PAX_FORMAT) as made:
        made.addfile(archive._member(archive.Found("triton/good", 0, NS, False)), io.BytesIO())
        made.addfile(bad)
    with pytest.raises((Unusable, tarfile.TarError)):
        archive.unpack(tmp_path / "a.tar", tmp_path / "target")
    assert [one.name for one in tmp_path.iterdir()] == ["a.tar"]


def test_another_torch_flags_or_model_is_another_key(tmp_path: Path) -> None:
    def key_of(**more: Any) -> str:
        return key.make(key.inputs(request_of(tmp_path, **more)))

    first = key_of()
    assert first == key_of()
    assert len({first, key_of(torch="2.12.0+cu130"), key_of(flags="g"), key_of(engine="b")}) == 4
    request = request_of(tmp_path)
    (Path(request.model) / "config.json").write_text('{"hidden_size": 1}')
    assert key.make(key.inputs(request)) != first


def reading(*found: dict[str, Any]) -> gpus.Reading:
    shown = (
        replace(gpus._unreadable(n, None, ""), **{"error": None, **one})
        for n, one in enumerate(found)
    )
    return gpus.Reading(tuple(shown), "nvml")


H200: dict[str, Any] = {"name": "NVIDIA H200", "compute_capability": "9.0"}


def test_another_gpu_is_another_key_and_their_number_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def found(*shown: dict[str, Any], **more: Any) -> Any:
        monkeypatch.setattr(gpus, "read", lambda: reading(*shown))
        return key.inputs(request_of(tmp_path, **more))["gpus"]

    l4 = {"name": "NVIDIA L4", "compute_capability": "8.9"}
    assert found(H200, H200, gpus=None) == found(H200, l4, gpus=[0]) == ["NVIDIA H200 9.0"]
    assert found(H200, l4, gpus=[1]) == ["NVIDIA L4 8.9"]
    assert found(H200, gpus=[]) == [], "an engine on the CPU"


@pytest.mark.parametrize("chosen", [None, [0], [0, 1]])
@pytest.mark.parametrize(
    ("found", "said"),
    [
        (gpus.Reading(None, None, "no driver"), "no driver"),
        (reading({"error": "it is lost"}, H200), "GPU 0 .*it is lost"),
        (reading({}, H200), "GPU 0 .*no name"),
        (reading(), "nvidia-smi -L"),
    ],
)
def test_a_host_whose_gpus_cannot_be_read_has_no_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, found: Any, said: str, chosen: Any
) -> None:
    monkeypatch.setattr(gpus, "read", lambda: found)
    with pytest.raises(Unusable, match=said):
        key.inputs(request_of(tmp_path, gpus=chosen))


def test_a_host_that_lacks_one_of_its_gpus_has_no_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpus, "read", lambda: reading(H200))
    with pytest.raises(Unusable, match="nvidia-smi -L"):
        key.inputs(request_of(tmp_path, gpus=[0, 1]))


def test_a_host_that_does_not_name_its_processor_has_no_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key.plain_files, "read_text", lambda path: "processor: 0\n")
    with pytest.raises(Unusable, match="cpuinfo"):
        key.inputs(request_of(tmp_path))


def test_an_archive_of_another_key_or_cut_is_not_unpacked(tmp_path: Path) -> None:
    here, there, request = Paths(tmp_path / "a"), Paths(tmp_path / "b"), request_of(tmp_path)
    compile_into(folder_of(here))
    packed = exchange.pack(request, here)
    (there.compiled / packed["key"]).mkdir(parents=True)
    there.cache("chat").mkdir(parents=True)
    brought = there.compiled / packed["key"] / exchange.NAME
    other = request_of(tmp_path, flags="g")
    for asked, key_of, digest in (
        (other, packed["key"], packed["sha256"]),
        (request, packed["key"], "0" * 64),
        (request, "../../etc", packed["sha256"]),
    ):
        shutil.copy(packed["path"], brought)
        with pytest.raises(Unusable):
            exchange.adopt(asked, key_of, digest, there)
        # It may be 2 GiB large. What is no key is nobody's path.
        assert brought.exists() == (key_of != packed["key"])
    assert not folder_of(there).exists()


def test_why_it_cannot_be_packed_is_not_hidden(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request, paths = request_of(tmp_path), Paths(tmp_path)

    def full(path: Path, *more: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    with monkeypatch.context() as patched:
        patched.setattr(exchange.os, "open", full)
        with pytest.raises(OSError, match="No space"):
            exchange.pack(request, paths)
    with pytest.raises(Unusable, match="compiled nothing"):
        exchange.pack(request, paths)
    assert not list(paths.compiled.rglob(exchange.NAME))


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"engine": "../x"}', "[" * 100_000])
def test_a_request_that_is_none(text: str) -> None:
    done = subprocess.run(
        ["python3", "-m", "sglangctl", "compiled", "look"],
        input=text,
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[4],
    )
    assert done.returncode == 2
    assert "request" in done.stderr
    assert "Traceback" not in done.stderr
