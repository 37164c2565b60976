"""Wheels named, kept, found again and installed: real files, a real pip."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from sglangctl.cli import main
from sglangctl.sgl_kernel import cache
from sglangctl.sgl_kernel.build import build, record, wheel
from sglangctl.sgl_kernel.library import inspect, install, metadata
from sglangctl.sgl_kernel.library.unpack import unpack
from sglangctl.sgl_kernel.venv import load
from sglangctl.state.paths import Paths
from sglangctl.util.errors import Unusable
from tests.kernel import sites
from tests.support import pip_venv

KEY = "0123456789abcdef01234567"


def provenance(path: Path, **changes: object) -> dict:
    said = {"file": path.name, "sha256": cache.sha256(path), "bytes": path.stat().st_size}
    return {"v": 1, "key": KEY, "inputs": {"torch": "2.14.1"}, "wheel": said, **changes}


def test_promote_and_find(tmp_path: Path) -> None:
    paths = Paths(tmp_path)
    built = sites.wheel(tmp_path, sites.files())
    entry = cache.promote(KEY, built, provenance(built), paths)
    found = cache.find(KEY, paths)
    assert found == entry
    assert entry.wheel.read_bytes() == built.read_bytes()
    assert [item.key for item in cache.entries(paths)] == [KEY]
    assert [item.name for item in paths.kernel_cache.iterdir()] == [KEY]


def test_a_cut_wheel_in_the_cache_counts_as_none(tmp_path: Path) -> None:
    paths = Paths(tmp_path)
    built = sites.wheel(tmp_path, sites.files())
    entry = cache.promote(KEY, built, provenance(built), paths)
    with open(entry.wheel, "r+b") as file:
        file.truncate(100)
    assert cache.find(KEY, paths) is None
    again = cache.promote(KEY, built, provenance(built), paths)
    assert cache.find(KEY, paths) == again


def test_disk_full_during_promotion_leaves_no_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = Paths(tmp_path)
    built = sites.wheel(tmp_path, sites.files())

    def full(source: Path, target: Path) -> None:
        target.write_bytes(source.read_bytes()[:100])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("sglangctl.sgl_kernel.cache.shutil.copyfile", full)
    with pytest.raises(OSError, match="No space left"):
        cache.promote(KEY, built, provenance(built), paths)
    assert cache.find(KEY, paths) is None
    assert list(paths.kernel_cache.iterdir()) == []


def test_a_provenance_that_names_another_file_is_not_followed(tmp_path: Path) -> None:
    folder = tmp_path / KEY
    folder.mkdir()
    outside = tmp_path / "outside.whl"
    outside.write_bytes(b"x")
    said = {"file": "../outside.whl", "sha256": cache.sha256(outside)}
    (folder / "provenance.json").write_text(json.dumps({"key": KEY, "wheel": said}))
    assert cache.read(folder) is None


def test_a_wheel_is_renamed_as_the_engine_wants_it(tmp_path: Path) -> None:
    built = sites.wheel(tmp_path, sites.files(name="sgl-kernel", version="0.4.12"))
    said = json.dumps({"inputs": {"torch": "2.14.1+cu130"}})
    final = wheel.finish(built, tmp_path, "sglang-kernel", "0.4.9", said)
    assert final.name == "sglang_kernel-0.4.12-cp310-abi3-manylinux2014_x86_64.whl"
    known = metadata.from_wheel(final)
    assert (known.distribution, known.version, known.built_for_torch) == (
        "sglang-kernel",
        "0.4.12",
        "2.14.1+cu130",
    )


def test_an_older_source_than_the_engine_wants_is_refused(tmp_path: Path) -> None:
    built = sites.wheel(tmp_path, sites.files(version="0.4.8"))
    with pytest.raises(Unusable, match="0\\.4\\.9: take a newer"):
        wheel.finish(built, tmp_path, "sglang-kernel", "0.4.9", "{}")


@pytest.mark.parametrize(
    ("version", "minimum", "enough"), [("0.4.10", "0.4.9", True), ("0.4.10+x", "0.4.10", True)]
)
def test_versions_are_compared_as_numbers(
    tmp_path: Path, version: str, minimum: str, enough: bool
) -> None:
    built = sites.wheel(tmp_path, sites.files(version=version))
    (tmp_path / "out").mkdir()
    assert wheel.finish(built, tmp_path / "out", None, minimum, "{}").exists() is enough


@pytest.fixture(scope="module")
def real_venv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("venv") / "venv"
    pip_venv.made(root)
    return root


def lay_torch(root: Path) -> None:
    site = load(root).site_packages
    (site / "torch/lib").mkdir(parents=True, exist_ok=True)
    (site / "torch/version.py").write_text(
        "__version__ = '2.14.1+cu130'\ncuda: Optional[str] = '13.0'\n"
    )


@sites.takes_the_wheel
def test_install_takes_both_old_kernels_away(real_venv: Path, tmp_path: Path) -> None:
    lay_torch(real_venv)
    venv = load(real_venv)
    site = venv.site_packages
    other = {"triton_kernels/__init__.py": ""}
    sites.install(site, sites.files(name="sgl-kernel", version="0.3.21", **other))
    sites.install(site, sites.files(version="0.4.9"))
    (site / "sgl_kernel/flash_ops.abi3.so").write_bytes(b"left over")
    (site / "innocent").mkdir()
    (site / "innocent/__init__.py").write_text("")
    assert inspect.inspect_folder(site, "120", None).verdict == "mixed"

    built = wheel.finish(
        sites.wheel(tmp_path, sites.files()), tmp_path / "..", None, None, '{"inputs": {}}'
    )
    done = install.install(venv, built)
    assert "sgl_kernel-0.3.21.dist-info" in done.removed
    assert "sglang_kernel-0.4.9.dist-info" in done.removed
    names = sorted(path.name for path in site.glob("sgl*"))
    assert names == ["sgl_kernel", "sglang_kernel-0.4.10.dist-info"]
    assert not (site / "sgl_kernel/flash_ops.abi3.so").exists()
    assert not (site / "triton_kernels").exists()
    assert (site / "innocent/__init__.py").exists()
    fake = sites.cuobjdump(tmp_path, "120a")
    assert inspect.inspect_installed(venv, "120", fake).verdict == "usable"


def test_a_record_that_climbs_out_deletes_nothing_outside(real_venv: Path, tmp_path: Path) -> None:
    venv = load(real_venv)
    precious = venv.root / "precious"
    precious.write_text("x")
    members = sites.files()
    sites.install(venv.site_packages, members)
    record = next(venv.site_packages.glob("sglang_kernel-*.dist-info")) / "RECORD"
    climbing = os.path.relpath(precious, venv.site_packages)
    record.write_text(f"{record.read_text()}{climbing},,1\n{precious},,1\n")
    install.clean(venv)
    assert precious.exists()
    assert not (venv.site_packages / "sgl_kernel").exists()


@sites.takes_the_wheel
def test_command_refuses_an_unusable_wheel_before_it_changes_anything(
    real_venv: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lay_torch(real_venv)
    monkeypatch.setenv("SGLANGCTL_ROOT", str(tmp_path))
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    (tmp_path / "bin").mkdir()
    sites.cuobjdump(tmp_path / "bin", "90")
    venv = load(real_venv)
    sites.install(venv.site_packages, sites.files(version="0.4.9"))
    new = sites.wheel(tmp_path, sites.files())
    arguments = ["kernel", "install", str(new), "--venv", str(real_venv), "--sm", "120"]
    assert main(arguments) == 1
    assert "no-cubin" in capsys.readouterr().out
    assert (venv.site_packages / "sglang_kernel-0.4.9.dist-info").exists()

    sites.cuobjdump(tmp_path / "bin", "90", "120a")
    assert main(arguments) == 0
    said = capsys.readouterr().out
    assert "removed sglang_kernel-0.4.9.dist-info" in said
    assert "usable" in said


def test_survey_of_an_environment(
    real_venv: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lay_torch(real_venv)
    monkeypatch.setenv("SGLANGCTL_ROOT", str(tmp_path))
    site = load(real_venv).site_packages
    (site / "sglang/srt/entrypoints").mkdir(parents=True, exist_ok=True)
    (site / "sglang/srt/entrypoints/engine.py").write_text(
        'assert_pkg_version(\n    "sglang-kernel",\n    "0.4.9",\n    "text")\n'
    )
    assert main(["kernel", "survey", "--venv", str(real_venv), "--sm", "120"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["torch"] == "2.14.1+cu130"
    assert document["cuda"] == "13.0"
    assert document["required"] == ["sglang-kernel", "0.4.9"]
    assert document["python"] == "cp{}{}".format(*sys.version_info[:2])
    assert main(["kernel", "survey", "--venv", str(tmp_path / "none"), "--sm", "120"]) == 0
    assert json.loads(capsys.readouterr().out)["installed"] is None


def test_old_build_folders_are_deleted(tmp_path: Path) -> None:
    paths = Paths(tmp_path)
    names = [f"{number:024x}" for number in range(6)]
    for age, name in enumerate(names):
        root = paths.kernel_cache / ".build" / name
        root.mkdir(parents=True)
        os.utime(root, (1000 - age, 1000 - age))
    (paths.kernel_cache / ".build/.environment-x").mkdir()
    gone = build.prune(paths, names[5])
    assert gone == names[2:5]
    left = {item.name for item in (paths.kernel_cache / ".build").iterdir()}
    assert left == {names[0], names[1], names[5], ".environment-x"}


def test_one_build_at_a_time(tmp_path: Path) -> None:
    paths = Paths(tmp_path)
    (tmp_path / "j").mkdir()
    script = (
        "import sys,time; sys.path.insert(0, sys.argv[1])\n"
        "from pathlib import Path\nfrom sglangctl.sgl_kernel.build.build import build_lock\n"
        "from sglangctl.state.paths import Paths\n"
        f"with build_lock(Paths(Path(sys.argv[2])), {KEY!r}, print):\n"
        "    print(1, flush=True); time.sleep(60)\n"
    )
    root = str(Path(__file__).parents[4])
    process = subprocess.Popen(
        [sys.executable, "-c", script, root, str(tmp_path)], stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"1\n"
    assert KEY in build.holder(paths)
    assert str(process.pid) in build.holder(paths)
    process.kill()  # the lock goes with its holder
    process.wait()
    assert build.holder(paths) == "nobody builds"
    held = paths.kernel_cache / build.LOCK
    held.chmod(0o644)  # as an earlier version made it: any user could hold it
    told = record.Record(tmp_path / "j")
    with build.build_lock(paths, KEY, told):
        assert KEY in build.holder(paths)
        assert held.stat().st_mode & 0o777 == 0o600
    told.close()


def planted(tmp_path: Path, name: str, mode: int = 0o100644) -> Path:
    """A kernel's wheel with one more member."""
    built = sites.wheel(tmp_path, sites.files())
    with zipfile.ZipFile(built, "a") as archive:
        entry = zipfile.ZipInfo(name)
        entry.external_attr = mode << 16
        archive.writestr(entry, "/etc/shadow")
    return built


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        ("../../../../evil", 0o100644),
        ("/etc/evil", 0o100644),
        ("a/../../evil", 0o100644),
        ("sgl_kernel/link", 0o120777),
        ("sgl_kernel/pipe", 0o010644),
        ("sglang_kernel-0.4.10.data/scripts/evil", 0o100755),
        ("sglang_kernel-0.4.10.data/data/etc/evil", 0o100644),
    ],
)
def test_a_wheels_names_lead_nowhere_else(tmp_path: Path, name: str, mode: int) -> None:
    site = tmp_path / "venv/lib/site-packages"
    site.mkdir(parents=True)
    with pytest.raises(Unusable):
        unpack(planted(tmp_path, name, mode), site)
    assert list(site.iterdir()) == []


def test_links_that_a_package_left_are_not_followed(tmp_path: Path) -> None:
    site, outside = tmp_path / "site", tmp_path / "outside"
    site.mkdir()
    outside.mkdir()
    (outside / "file").write_text("root's")
    (site / "extra").symlink_to(outside)
    (site / "one.py").symlink_to(outside / "file")
    with pytest.raises(Unusable, match="no folder"):
        unpack(planted(tmp_path, "extra/file"), site)
    unpack(planted(tmp_path, "one.py"), site)
    assert (outside / "file").read_text() == "root's" and not (site / "one.py").is_symlink()


def test_nothing_of_the_environment_runs_when_a_kernel_is_installed(
    tmp_path: Path, real_venv: Path
) -> None:
    lay_torch(real_venv)
    venv, mark = load(real_venv), tmp_path / "mark"
    evil = venv.site_packages / "evil.pth"
    evil.write_text(f"import os; open({str(mark)!r}, 'w')\n")
    try:
        install.install(venv, sites.wheel(tmp_path, sites.files()))
        assert not mark.exists()
        venv.site_packages.joinpath("sgl_kernel").stat()
        subprocess.run([venv.python, "-c", ""], check=True)
        assert mark.exists()  # what its Python does
    finally:
        evil.unlink()
