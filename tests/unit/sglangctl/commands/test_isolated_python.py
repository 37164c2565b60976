"""Root runs no module of the folder that it happens to be in: a local user may write there."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sglangctl.sgl_kernel import venv
from sglangctl.sgl_kernel.build import compile, environment
from sglangctl.sgl_kernel.build.record import BuildError
from sglangctl.sgl_kernel.library import check, cubins, install
from sglangctl.sgl_kernel.library.translations import OK
from sglangctl.state import programs
from sglangctl.state.paths import Paths
from tests.support.kernel_requests import a_request

CHECKOUT = Path(__file__).resolve().parents[4]
WITHOUT = {
    "sglang.launch_server",  # the unit's, and not root's: its folder is its own cache
    "pyinfra",  # the controller's: its folder is the checkout, whose code runs anyway
}
NO_PYTHON = {"sh", "nvidia-smi"}
POISON = "open({marker!r}, 'a').write(__name__)\n"


@pytest.fixture
def marker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder has modules by the names of those that are run; what this file holds
    afterwards was run."""
    folder, marker = tmp_path / "writable", tmp_path / "marker"
    folder.mkdir()
    for name in ("torch", "sgl_kernel", "json", "signal", "sglangctl", "pip", "venv", "ensurepip"):
        (folder / name).mkdir()
        for file in ("__init__.py", "__main__.py"):
            (folder / name / file).write_text(POISON.format(marker=str(marker)))
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PYTHONPATH", str(folder))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    yield marker
    ran = marker.read_text() if marker.exists() else ""
    assert ran == ""


@pytest.fixture
def own() -> venv.Venv:
    """The environment of the tests, as if it were an engine's."""
    return venv.load(Path(sys.prefix))


def test_the_modules_of_this_test_would_be_run(marker: Path) -> None:
    subprocess.run([sys.executable, "-m", "pip", "--version"], capture_output=True, timeout=60)
    assert marker.read_text() != ""
    marker.unlink()


@pytest.mark.usefixtures("marker")
def test_the_check_of_a_kernel(own: venv.Venv) -> None:
    assert check.check(own).outcome != OK  # there is no kernel in this environment


@pytest.mark.usefixtures("marker")
def test_pip_of_an_environment(own: venv.Venv) -> None:
    install.pip(own, ["--version"], "pip does not run")
    assert compile.command(own, Path("/build"), Path("/out"))[1] == "-I"


@pytest.mark.usefixtures("marker")
def test_the_tools_of_nvidia(tmp_path: Path) -> None:
    with pytest.raises(cubins.CubinError):
        cubins.fetch_cuobjdump(sys.executable, Paths(tmp_path / "root"))


@pytest.mark.slow  # two environments with pip
@pytest.mark.usefixtures("marker")
def test_the_environment_of_a_build(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "pyproject.toml").write_text("[build-system]\nrequires = []\n")
    request = a_request(venv=None, python=sys.executable)
    with pytest.raises(BuildError, match="pip cannot install"):
        environment.prepare(request, tmp_path / "environments", project, tmp_path / "log")


@pytest.mark.usefixtures("marker")
def test_this_program_started_again_from_a_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", [str(CHECKOUT / "sglangctl/__main__.py")])
    argv = [*programs.again(), "kernel", "--help"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert "inspect" in done.stdout


def command_lines() -> Iterator[tuple[str, list[str]]]:
    """Every list of words with -m or -c in our programs' sources: (where, its plain words)."""
    for folder in ("sglangctl", "roles"):
        for path in sorted((CHECKOUT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, (ast.List, ast.Tuple)):
                    words = [one.value for one in node.elts if isinstance(one, ast.Constant)]
                    if "-m" in words or "-c" in words:
                        yield f"{path.relative_to(CHECKOUT)}:{node.lineno}", words


@pytest.mark.slow
def test_every_python_that_is_started_is_isolated() -> None:
    found = list(command_lines())
    assert len(found) >= 8
    for where, words in found:
        if not WITHOUT.union(NO_PYTHON).intersection(words):
            assert "-I" in words, where
