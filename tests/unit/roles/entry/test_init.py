"""sglang-init, and what its folder can do with nothing but the installed package."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from pyinfra.api.metadata import parse_plugins

from roles.entry import init
from roles.remote import program
from tests.hosts.say import ROOT
from tests.support.installed_package import installed

DEPLOYS = {f"deploys/{name}.py" for name in ("sglang", "stop", "rollback", "remove", "verify")}


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_a_project_is_written_and_the_next_command_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "my/fleet"
    assert init.main([str(folder)]) == 0
    said = capsys.readouterr().out
    assert f"cd {folder}" in said and "pyinfra inventory.py deploys/sglang.py --dry" in said
    assert files(folder) >= DEPLOYS | {"inventory.py", "config.py", "inventory/schema.json"}
    assert "inventory/minimal.example.yml" in files(folder)
    for path in files(folder):
        assert (folder / path).read_bytes() == (ROOT / path).read_bytes(), path


@pytest.mark.parametrize("there", ["inventory.py", "deploys/verify.py", "inventory/schema.json"])
def test_what_is_there_is_not_overwritten_and_nothing_is_added(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], there: str
) -> None:
    (tmp_path / there).parent.mkdir(exist_ok=True)
    (tmp_path / there).write_text("mine")
    assert init.main([str(tmp_path)]) == 1
    said = capsys.readouterr().err
    assert str(tmp_path / there) in said and said.count("\n") == 1
    assert files(tmp_path) == {there} and (tmp_path / there).read_text() == "mine"


def test_a_folder_that_cannot_be_made_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert init.main([str(tmp_path / "file/fleet")]) == 1
    said = capsys.readouterr().err
    assert str(tmp_path / "file") in said and said.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "status"), [(["--help"], 0), ([], 1), (["-x"], 1), (["a", "b"], 1)]
)
def test_how_it_is_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], status: int
) -> None:
    monkeypatch.chdir(tmp_path)
    assert init.main(words) == status
    assert files(tmp_path) == set()


@pytest.mark.slow
def test_the_installed_package_needs_no_checkout(tmp_path: Path) -> None:
    bin_folder = installed(tmp_path)
    clean = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "PYINFRA_PROGRESS": "off"}

    def run(*argv: str, folder: Path = tmp_path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(bin_folder / argv[0]), *argv[1:]],
            cwd=folder,
            env=clean,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=100,
        )

    where = run(
        "python", "-c", "import roles, sglangctl; print(roles.__file__, sglangctl.__file__)"
    )
    assert str(ROOT) not in where.stdout and where.stdout.count("site-packages") == 2
    # Two controllers, one with a checkout, ship the same program.
    digest = run("python", "-c", "from roles.remote import program; print(program.digest())")
    assert digest.stdout.strip() == program.digest(), digest.stderr

    lost = run("sglang-plan")
    assert lost.returncode == 1 and "sglang-init" in lost.stderr

    assert run("sglang-init", "fleet").returncode == 0
    fleet = tmp_path / "fleet"
    (fleet / "inventory/hosts.yml").write_text("hosts: {'@local': {engines: {e: {modle: 1}}}}\n")
    plan = run("sglang-plan", folder=fleet)
    assert plan.returncode == 1
    assert 'hosts."@local".engines.e.modle' in plan.stderr and '"model"' in plan.stderr
    # The folder's own deploy is the one that is run.
    (fleet / "deploys/sglang.py").write_text("raise SystemExit('my own deploy')\n")
    (fleet / "inventory/hosts.yml").write_text(
        "hosts: {'@local': {engines: {e: {model: {path: /m}}}}}\n"
    )
    assert "my own deploy" in run("sglang-plan", folder=fleet).stderr


def test_what_pyinfra_is_told_of_this_package_is_there() -> None:
    plugins = parse_plugins((ROOT / "pyinfra-metadata.toml").read_text())
    told = {plugin.path for plugin in plugins if plugin.type == "deploy"}
    assert told == {f"deploys/{path.name}" for path in (ROOT / "deploys").glob("*.py")}
    marks = {"operation": "@operation(", "fact": "(FactBase", "deploy": "from roles.stages import"}
    for plugin in plugins:
        assert marks[plugin.type] in (ROOT / plugin.path).read_text(), plugin
