"""A build is code of others: what it says and what it leaves is data, and root runs none of it."""

from __future__ import annotations

import json
import os
import pwd
import stat
import struct
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sglangctl.sgl_kernel.build import accept, build, compile, toolkit
from sglangctl.sgl_kernel.build.record import BuildError
from sglangctl.sgl_kernel.build.request import Request, folder
from sglangctl.sgl_kernel.library import archive, inspect, metadata
from sglangctl.state import build_user
from sglangctl.state.paths import Paths
from sglangctl.systemd import confined
from sglangctl.util.errors import Unusable
from tests.conftest import THE_REAL_RUN, THE_REAL_THEIRS
from tests.kernel import sites
from tests.support.kernel_requests import a_request

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives folders away")


class Told(list[tuple[str, dict[str, Any]]]):
    def __call__(self, step: str, **fields: Any) -> None:
        self.append((step, fields))


def test_lines_of_a_build_are_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accept, "EVENTS", 50)
    told = Told()
    heard = accept.Heard(told)
    for line in (
        b"\xff\xfe",
        b"[" * 100_000,
        b"[1]",
        b'{"step": "end", "outcome": "built"}',
        b'{"step": ["x"]}',
        b'{"step": "jobs", "jobs": 1e999, "text": 7, "t": 0, "kind": "verdict"}',
        json.dumps({"step": "source", "text": "x" * 10_000, "jobs": 10**40}).encode(),
        b'{"step": "made", "wheel": 7}',
    ):
        heard(line)
    assert told == [("jobs", {}), ("source", {"text": "x" * accept.TEXT})]
    assert heard.wheel is None and heard.failure is None
    for _ in range(accept.EVENTS + 10):
        heard(b'{"step": "compile", "done": 1}')
    assert len(told) == accept.EVENTS
    heard(b'{"step": "made", "wheel": "x.whl", "facts": []}')
    assert (heard.wheel, heard.facts) == ("x.whl", {})
    for depth in range(985, 1000):  # Python 3.12 reads two levels more than it writes
        deep = b'{"a": ' * depth + b"1" + b"}" * depth
        heard(b'{"step": "made", "wheel": "x.whl", "facts": ' + deep + b"}")
        json.dumps({"inside": heard.facts}, indent=1)


@pytest.mark.parametrize("name", ["../x.whl", "/etc/x.whl", ".whl", "x", "a\nb.whl", "-x.whl"])
def test_a_wheels_name_leads_nowhere(tmp_path: Path, name: str) -> None:
    with pytest.raises(BuildError, match="strange name"):
        accept.take(name, tmp_path, tmp_path / "final")


def test_only_a_plain_file_of_the_builds_own_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work, secret = tmp_path / "builder", tmp_path / "secret"
    work.mkdir()
    secret.write_text("root's")
    (work / "link.whl").symlink_to(secret)
    os.mkfifo(work / "pipe.whl")
    (work / "folder.whl").mkdir()
    (work / "large.whl").write_bytes(b"x" * 100)
    for name in ("link.whl", "pipe.whl", "folder.whl", "none.whl"):
        with pytest.raises(BuildError, match="no plain file"):
            accept.take(name, work, tmp_path / "final")
    assert accept.take("large.whl", work, tmp_path / "final").read_bytes() == b"x" * 100
    monkeypatch.setattr(accept, "LARGEST", 99)
    with pytest.raises(BuildError, match="more than"):
        accept.take("large.whl", work, tmp_path / "final")
    (tmp_path / "other").symlink_to(work)
    with pytest.raises(BuildError, match="no plain file"):
        accept.take("large.whl", tmp_path / "other", tmp_path / "final")


@needs_root
def test_a_name_of_theirs_for_a_file_of_roots_is_not_taken(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("root's")
    work = tmp_path / "builder"
    work.mkdir()
    os.chown(work, pwd.getpwnam("nobody").pw_uid, -1)
    os.link(tmp_path / "secret", work / "x.whl")
    with pytest.raises(BuildError, match="no plain file"):
        accept.take("x.whl", work, tmp_path / "final")


def built(tmp_path: Path, request: Request, **changes: object) -> Path:
    said = {"key": request.key, "inputs": {"torch": request.inputs.torch}, **changes}
    members = sites.files()
    info = next(name.split("/")[0] for name in members if ".dist-info/" in name)
    return sites.wheel(
        tmp_path, {**members, f"{info}/{metadata.PROVENANCE}": json.dumps(said).encode()}
    )


def test_a_wheel_must_be_this_requests(tmp_path: Path) -> None:
    request = a_request()
    accept.examine(built(tmp_path, request), request)
    for changes in ({"key": "0" * 24}, {"inputs": {"torch": "9"}}, {"inputs": []}):
        with pytest.raises(BuildError, match="another build's"):
            accept.examine(built(tmp_path, request, **changes), request)


def test_a_wheel_with_a_name_that_leads_out_is_refused(tmp_path: Path) -> None:
    request = a_request()
    wheel = built(tmp_path, request)
    with zipfile.ZipFile(wheel, "a") as found:
        found.writestr("../../../etc/cron.d/x", "")
    with pytest.raises(BuildError, match="cron"):
        accept.examine(wheel, request)


def bomb(path: Path, size: int) -> None:
    """A wheel whose only member says that it has so many bytes."""
    with zipfile.ZipFile(path, "w") as found:
        found.writestr("sgl_kernel/x.so", b"")
    data = bytearray(path.read_bytes())
    at = data.index(b"PK\x01\x02")
    data[at + 24 : at + 28] = struct.pack("<I", size)
    path.write_bytes(data)


def test_archives_have_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = tmp_path / "x.whl"
    bomb(wheel, 0xFFFFFFF0)
    monkeypatch.setattr(archive, "UNPACKED", 1 << 30)
    with pytest.raises(Unusable, match="unpacks to more than 1 GiB"):
        archive.examine(wheel)
    assert inspect.inspect_wheel(wheel, None, None).verdict == "incomplete"

    with zipfile.ZipFile(wheel, "w") as found:
        for number in range(500):
            found.writestr(f"{number:0200}", b"")
    archive.examine(wheel)
    monkeypatch.setattr(archive, "LISTED", 1 << 16)
    with pytest.raises(Unusable, match="list of files"):
        archive.examine(wheel)


def test_a_text_in_an_archive_has_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = built(tmp_path, a_request())
    monkeypatch.setattr(archive, "TEXT", 10)
    with pytest.raises(BuildError, match="METADATA has more than"):
        accept.examine(wheel, a_request())


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_other_ways_to_pack_are_refused(tmp_path: Path, method: int) -> None:
    with zipfile.ZipFile(tmp_path / "x.whl", "w", method) as found:
        found.writestr("sgl_kernel/x", b"x" * 100)
    with pytest.raises(Unusable, match="packed in a way"):
        archive.examine(tmp_path / "x.whl")


@pytest.fixture
def root(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A host on which the build user is `nobody`, who is there already."""
    monkeypatch.setattr(build_user, "NAME", "nobody")
    monkeypatch.setattr(build_user, "run", THE_REAL_RUN)
    monkeypatch.setattr(build_user, "theirs", THE_REAL_THEIRS)
    monkeypatch.setattr(confined.systemctl, "booted", lambda: False)
    with tempfile.TemporaryDirectory() as made:
        Path(made).chmod(0o755)
        yield Path(made)


@needs_root
def test_what_root_filled_once_begins_anew(root: Path) -> None:
    """An earlier version built as root: its objects and sources are not handed to another."""
    paths = Paths(root)
    at = folder(a_request().key, paths)
    old = [at / "source", at / "build", paths.kernel_cache / ".build/.environment-0123"]
    shared = [paths.kernel_cache / ".ccache", paths.kernel_cache / ".third-party"]
    outside = root / "outside"
    outside.mkdir()
    (outside / "precious").write_text("x")
    for one in (*old, *shared):
        one.mkdir(parents=True)
        (one / "of-root").write_text("x")
        (one / "link").symlink_to(outside)
    (at / "build.log").write_text("x")
    (at / "request.json").write_text("{}")
    told, place = Told(), compile.Place(at / "builder", paths.kernel_cache)
    build.prepare(at, place, told, paths)
    ((step, fields),) = told
    assert step == "begin" and "as root" in fields["text"]
    nobody = pwd.getpwnam("nobody")
    for one in place.own:
        assert list(one.iterdir()) == []
        assert (one.stat().st_uid, stat.S_IMODE(one.stat().st_mode)) == (nobody.pw_uid, 0o700)
    assert not any(one.exists() for one in old) and (outside / "precious").exists()
    assert sorted(one.name for one in at.iterdir()) == ["builder", "request.json"]
    mode = (at / "request.json").stat()
    assert (mode.st_uid, mode.st_gid, mode.st_mode & 0o777) == (0, nobody.pw_gid, 0o640)
    # The second time all of it is theirs and stays.
    (place.own[1] / "kept").write_text("x")
    build.prepare(at, place, told, paths)
    assert len(told) == 1 and (place.own[1] / "kept").exists()


@needs_root
def test_a_link_in_the_place_of_a_folder_is_not_followed(root: Path) -> None:
    outside, at = root / "outside", root / "builder"
    outside.mkdir()
    os.chown(outside, pwd.getpwnam("nobody").pw_uid, -1)
    at.symlink_to(outside)
    assert build_user.theirs(at, Paths(root))
    assert not at.is_symlink() and outside.is_dir()


@needs_root
@pytest.mark.slow
def test_a_tree_of_any_depth_can_be_deleted(root: Path) -> None:
    script = (
        "import os, sys; os.chdir(sys.argv[1])\nfor _ in range(3000): os.mkdir('d'); os.chdir('d')"
    )
    at = root / "deep"
    at.mkdir()
    subprocess.run([sys.executable, "-c", script, str(at)], check=True)
    build_user.discard(at)
    assert not at.exists()


@needs_root
def test_root_does_not_run_the_nvcc_that_it_finds(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A package put it into the environment, whose folder is on the unit's PATH."""
    monkeypatch.setenv("A_ROOT_SECRET", "hunter2")
    (root / "bin").mkdir()
    nvcc = root / "bin/nvcc"
    nvcc.write_text("#!/bin/sh\necho release 13.0, V$(id -u).$(env | grep -c hunter2)\n")
    nvcc.chmod(0o755)
    found = toolkit.find({"PATH": str(root / "bin")})
    assert found is not None
    assert found.version == f"{pwd.getpwnam('nobody').pw_uid}.0"
