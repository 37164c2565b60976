import subprocess
import sys
from pathlib import Path

from roles.remote import program


def test_the_zipapp_runs_and_is_the_same_every_time(tmp_path: Path) -> None:
    path = tmp_path / "x.pyz"
    path.write_bytes(program.archive())
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(path), "--version"], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (0, "0.1.0\n"), done.stderr
    first = program.archive()
    program.archive.cache_clear()
    assert program.archive() == first


def test_bytecode_is_used(tmp_path: Path) -> None:
    path = tmp_path / "x.pyz"
    path.write_bytes(program.archive())
    code = (
        f"import sys; sys.path.insert(0, {str(path)!r}); import sglangctl.cli as c;"
        "print(c.__cached__ or c.__file__)"
    )
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True)
    assert done.stdout.strip().endswith("cli.pyc"), done


def test_the_loader_runs_from_standard_input_and_writes_nothing(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-I", "-", "help", "all"],
        input=program.loader(),
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={"HOME": str(tmp_path), "TMPDIR": str(tmp_path)},
    )
    assert done.returncode == 0, done.stderr
    assert "probe" in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_the_digest_is_that_of_the_sources() -> None:
    before = program.digest()
    program.digest.cache_clear()
    files = dict(program.sources())
    assert program.digest() == before
    assert files["sglangctl/cli.py"] == (program.SOURCE / "cli.py").read_bytes()
