"""Filling an environment, with the real uv and the real pip, from an index in a folder."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import subprocess
import zipfile
from pathlib import Path

import pytest
import uv

from sglangctl.packages import fill, uv_program
from sglangctl.packages.fill import Wanted
from sglangctl.packages.uv_program import NoUv
from sglangctl.state.paths import Paths
from sglangctl.systemd import confined
from tests.support import pip_venv
from tests.support.wheels import wheel

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="what root makes and shares")


class Host:
    """A root folder, an index and the lock of what lies there."""

    def __init__(self, root: Path) -> None:
        self.root, self.paths, self.index = root, Paths(root), root / "index"
        self.mark = root / "mark"
        self.index.mkdir()
        code = {"engine/__init__.py": "ANSWER = 42\n", "engine/old.py": "print 'no'\n"}
        evil = {"evil.pth": f"import os; open({str(self.mark)!r}, 'w')\n"}
        wheel(self.index, "engine", "1.0", "torch", content={**code, **evil})
        wheel(self.index, "torch", "2.14.0", content={"torch.py": "BIG = 1\n" * 1000})
        self.lock = root / "lock.txt"
        self.lock_all()

    def lock_all(self) -> None:
        lines = []
        for file in sorted(self.index.glob("*.whl")):
            name, version = file.name.split("-")[:2]
            digest = hashlib.sha256(file.read_bytes()).hexdigest()
            lines.append(f"{name}=={version} --hash=sha256:{digest}\n")
        self.lock.write_text("".join(lines))

    def has_uv(self) -> None:
        program = self.paths.tools / f"uv-{uv_program.VERSION}/uv"
        program.parent.mkdir(parents=True)
        program.symlink_to(uv.find_uv_bin())

    def filled(self, name: str, *arguments: str) -> tuple[int, Path]:
        venv = self.paths.venvs / name
        venv.parent.mkdir(parents=True, exist_ok=True)
        site = pip_venv.made(venv)
        given = ("--no-index", f"--find-links={self.index}", *arguments)
        return fill.fill(Wanted(venv, self.lock, (), given), None, self.paths), site


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    for name in [name for name in os.environ if name.startswith(("PIP_", "UV_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    return Host(tmp_path)


def frozen(site: Path) -> str:
    python = site.parents[2] / "bin/python"
    argv = [str(python), "-I", "-m", "pip", "freeze", "--all"]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout


def records(site: Path) -> dict[str, str]:
    """The hashes that RECORD has of each file, and that they are the files'."""
    found = {}
    for record in (one for one in site.glob("*/RECORD") if not one.parent.name.startswith("pip-")):
        for line in record.read_text().splitlines():
            name, digest, _ = line.rsplit(",", 2)
            if digest:
                own = hashlib.sha256((site / name).read_bytes()).digest()
                assert digest == f"sha256={base64.urlsafe_b64encode(own).rstrip(b'=').decode()}"
                found[name] = digest
    return found


@pytest.mark.slow
def test_two_environments_of_one_lock_are_the_same(host: Host) -> None:
    host.has_uv()
    (first, one), (second, two) = host.filled("one"), host.filled("two")
    assert first == second == 0
    assert "torch==2.14.0" in frozen(one) and frozen(one) == frozen(two)
    assert "engine/__init__.py" in records(one) and records(one) == records(two)


@as_root
def test_the_second_one_takes_no_room_and_is_compiled_already(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.has_uv()
    _, one = host.filled("one")
    ran: list[str] = []
    alone = fill.alone
    monkeypatch.setattr(
        fill, "alone", lambda argv, *rest: (ran.append(argv[0]), alone(argv, *rest))[1]
    )
    _, two = host.filled("two")
    shared = [name for name in ("torch.py", "engine/__init__.py") if (one / name).exists()]
    shared += [str(path.relative_to(one)) for path in one.glob("[te]*/__pycache__/*.pyc")]
    shared += [str(path.relative_to(one)) for path in one.glob("__pycache__/torch.*.pyc")]
    assert len(shared) >= 4
    for name in shared:
        assert (one / name).stat().st_ino == (two / name).stat().st_ino, name
    # What has the syntax of another Python is tried again; nothing else is compiled twice.
    assert len(ran) <= 2


@as_root
def test_no_code_of_a_package_runs_and_nobody_else_can_write(host: Host) -> None:
    """A line of a .pth file runs whenever Python starts in the environment."""
    host.has_uv()
    status, site = host.filled("one")
    assert status == 0 and (site / "evil.pth").exists() and not host.mark.exists()
    loose = ["find", str(host.paths.venvs / "one"), "!", "-type", "l", "-perm", "/6022"]
    assert subprocess.run(loose, capture_output=True, text=True).stdout == ""


@pytest.mark.parametrize("with_uv", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_another_file_is_refused(
    host: Host, with_uv: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    from roles.engine.venv import HASHES

    if with_uv:
        host.has_uv()
    wheel(host.index, "torch", "2.14.0", content={"torch.py": "EVIL = 1\n"})
    status, site = host.filled("one")
    told = capfd.readouterr()
    assert status != 0 and not (site / "torch.py").exists()
    assert HASHES.search(told.err), told.err
    assert ("pip installs" in told.out) == (not with_uv), "pip downloads nothing again for it"


@pytest.mark.slow
@pytest.mark.parametrize("with_uv", [True, False])
def test_what_the_lock_does_not_have_comes_by_neither(host: Host, with_uv: bool) -> None:
    if with_uv:
        host.has_uv()
    engine, _ = host.lock.read_text().splitlines()
    host.lock.write_text(f"{engine}\n")
    status, site = host.filled("one")
    assert status != 0 and not (site / "torch.py").exists()


@pytest.mark.parametrize(
    ("code", "half", "status"), [(1, False, 0), (1, True, 1), (None, False, 124)]
)
def test_pip_goes_on_only_where_uv_failed_early_and_changed_nothing(
    host: Host, monkeypatch: pytest.MonkeyPatch, code: int | None, half: bool, status: int
) -> None:
    host.has_uv()
    by_pip: list[Wanted] = []

    def alone(argv: list[str], *_: object) -> confined.Ended:
        if half:
            (next((host.paths.venvs / "one/lib").glob("*/site-packages")) / "half").mkdir()
        return confined.Ended(code, b"", b"no room")

    monkeypatch.setattr(fill, "alone", alone)
    monkeypatch.setattr(fill, "by_pip", lambda wanted, paths: by_pip.append(wanted) or 0)
    assert host.filled("one")[0] == status
    assert len(by_pip) == (1 if status == 0 else 0)


@pytest.mark.slow
def test_what_has_no_wheel_is_not_built_by_root(
    host: Host, capfd: pytest.CaptureFixture[str]
) -> None:
    host.has_uv()
    (host.index / "torch-2.14.0-py3-none-any.whl").unlink()
    (host.index / "torch-2.14.0.tar.gz").write_bytes(b"never")
    digest = hashlib.sha256(b"never").hexdigest()
    text = host.lock.read_text().splitlines()
    host.lock.write_text(f"{text[0]}\ntorch==2.14.0 --hash=sha256:{digest}\n")
    assert host.filled("one")[0] != 0
    assert "uv is not used" in capfd.readouterr().out, "the build user's pip is asked"


@pytest.mark.slow
def test_without_uv_pip_installs_the_same(host: Host, capfd: pytest.CaptureFixture[str]) -> None:
    status, site = host.filled("by-pip")
    assert status == 0 and "uv is not used: pip cannot get uv" in capfd.readouterr().out
    host.has_uv()
    assert host.filled("by-uv")[0] == 0
    assert frozen(site) == frozen(host.paths.venvs / "by-uv" / site.relative_to(site.parents[2]))
    assert host.filled("asked", "--no-clean")[0] == 0
    assert "it does not know --no-clean" in capfd.readouterr().out


def uv_wheel(folder: Path) -> bytes:
    file = folder / f"uv-{uv_program.VERSION}-py3-none-any.whl"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(uv_program.PROGRAM, "#!/bin/sh\n")
        info = f"uv-{uv_program.VERSION}.dist-info"
        archive.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: uv\nVersion: {uv_program.VERSION}\n"
        )
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return file.read_bytes()


@pytest.mark.slow
def test_uv_is_taken_from_the_wheel_that_we_know(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = uv_wheel(host.index)
    site = pip_venv.made(host.paths.venvs / "x")
    pip = Wanted(site.parents[2], None).pip
    sources = ["--no-index", f"--find-links={host.index}", "--no-warn-conflicts"]
    with pytest.raises(NoUv, match="cannot get uv"):
        uv_program.ready(pip, sources, host.paths)
    known = {os.uname().machine: hashlib.sha256(content).hexdigest()}
    monkeypatch.setattr(uv_program, "WHEELS", known)
    program = uv_program.ready(pip, sources, host.paths)
    assert program.read_text() == "#!/bin/sh\n" and program.stat().st_mode & 0o777 == 0o755
    assert [one.name for one in host.paths.tools.iterdir()] == [program.parent.name]
    with pytest.raises(NoUv, match="another hash"):
        uv_program.taken_out(content, "0" * 64)
    monkeypatch.setattr(uv_program, "WHEELS", {})
    (program).unlink()
    with pytest.raises(NoUv, match="no uv for"):
        uv_program.ready(pip, sources, host.paths)


@as_root
def test_a_python_that_others_can_change_is_not_asked_by_root(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.touch(0o755)
    fill.interpreter_is_roots(python)
    python.chmod(0o775)
    with pytest.raises(NoUv, match="not root's alone"):
        fill.interpreter_is_roots(python)


def test_what_has_come_is_written_while_it_comes(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sglangctl.packages import growth

    assert growth.line(3 * 2**30, 60) == "3.0 GiB, 51 MiB/s\n"
    assert growth.line(-1, 0) == "\n"
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/b/c").write_bytes(bytes(5))
    assert growth.size_of(tmp_path / "a") == 5
    assert growth.size_of(tmp_path / "a", since=9e9) == 0
    monkeypatch.setattr(growth, "EVERY_S", 0.01)
    file, sizes = tmp_path / "progress", iter([0, *[2**20] * 100000])
    with growth.written_to(file, lambda: next(sizes)):
        from tests.support import waiting

        waiting.until(file.exists)
        assert file.read_text().startswith("1 MiB, ")
    assert not file.exists()


def test_the_command_gives_its_arguments(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    from roles.engine import venv as engine_venv
    from roles.inventory.locked import Locked
    from sglangctl import cli

    called: list[Wanted] = []
    monkeypatch.setattr(fill, "fill", lambda wanted, progress, paths: called.append(wanted) or 0)
    plain = engine_venv.Venv(
        "/v/x", "python3", ("sglang==1",), ("--no-index",), index=("https://a",)
    )
    for venv in (plain, engine_venv.replace(plain, locked=Locked((), b""))):
        argv = engine_venv.fill_command(venv)
        assert cli.main(argv[argv.index("fill") :]) == 0
    one, two = called
    assert (
        one.arguments == ("--index-url=https://a", "--no-index") and one.packages == plain.packages
    )
    assert one.requirements is None and str(two.requirements) == plain.requirements
    assert json.dumps(two.packages) == "[]"
