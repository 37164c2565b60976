"""sglang-lock, with the real uv and an index in a folder."""

from __future__ import annotations

import hashlib
import tarfile
from pathlib import Path

import pytest

from roles.entry import lock
from roles.inventory import locked, locking
from tests.support.wheels import wheel

INVENTORY = """\
hosts:
  gpu1:
    engines:
      chat:
        model: {path: /m}
        version: 0.5.23
        install: {pip_arguments: [--no-index, "--find-links=FOLDER"]}
"""


@pytest.fixture
def inventory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An inventory whose index has SGLang for Python 3.11 and newer, and one package below it."""
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("UV_PYTHON_INSTALL_DIR", str(tmp_path / "pythons"))
    monkeypatch.setenv("UV_PYTHON_INSTALL_MIRROR", f"file://{tmp_path}/mirror")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))  # no Python but this one
    index = tmp_path / "index"
    index.mkdir()
    wheel(index, "sglang", "0.5.23", "torch>=2.14", "old; python_version < '3.12'", python=">=3.11")
    wheel(index, "torch", "2.14.0")
    wheel(index, "old", "1.0")
    file = tmp_path / "hosts.yml"
    file.write_text(INVENTORY.replace("FOLDER", str(index)))
    return file


def packages(inventory: Path) -> list[str]:
    return locked.parse(locked.path_of("chat", inventory.parent).read_bytes())[1]


def test_a_lock_has_every_package_with_its_hash(inventory: Path) -> None:
    assert lock.main([str(inventory)]) == 0
    assert locked.versions(packages(inventory)) == {
        "old": "1.0",
        "sglang": "0.5.23",
        "torch": "2.14.0",
    }
    wanted = hashlib.sha256((inventory.parent / "index/torch-2.14.0-py3-none-any.whl").read_bytes())
    text = locked.path_of("chat", inventory.parent).read_text()
    assert f"--hash=sha256:{wanted.hexdigest()}" in text


@pytest.mark.parametrize("option", [[], ["--build"]])
def test_no_python_is_downloaded_to_choose(inventory: Path, option: list[str]) -> None:
    """The lock is for Pythons that this machine need not have: 3.10 is tried first, then 3.11."""
    assert lock.main([*option, str(inventory)]) == 0
    assert not (inventory.parent / "pythons").exists(), "uv began to download"


def test_a_lock_stays_until_it_is_upgraded(
    inventory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert lock.main([str(inventory)]) == 0
    wheel(inventory.parent / "index", "torch", "2.14.1")
    assert lock.main([str(inventory), "chat"]) == 0
    assert "torch==2.14.0" in packages(inventory)
    assert lock.main(["--upgrade", str(inventory)]) == 0
    assert "torch==2.14.1" in packages(inventory)
    assert "torch 2.14.0 -> 2.14.1" in capsys.readouterr().out


def test_a_lock_that_a_deploy_made_stays_until_it_is_upgraded(
    inventory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert lock.main([str(inventory)]) == 0
    path = locked.path_of("chat", inventory.parent)
    requirements = path.read_text().split("\n", 2)[2]
    path.write_bytes(locked.written(["sglang==0.5.23"], requirements, "a" * 64))
    assert lock.main([str(inventory)]) == 0
    assert "a deploy chose them; --upgrade" in capsys.readouterr().out
    assert lock.main(["--upgrade", str(inventory)]) == 0
    assert locked.environment_of(path.read_bytes()) is None


def test_another_pin_keeps_what_it_does_not_touch(inventory: Path) -> None:
    assert lock.main([str(inventory)]) == 0
    index = inventory.parent / "index"
    wheel(index, "torch", "2.14.1")
    wheel(index, "extra", "1.0")
    text = inventory.read_text().replace("install: {", "install: {packages: [extra==1.0], ")
    inventory.write_text(text)
    assert lock.main([str(inventory)]) == 0
    assert {"torch==2.14.0", "extra==1.0"} <= set(packages(inventory))


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("0.5.23", "0.5.99", ["sglang==0.5.99"]),
        ("install: {", "install: {system_site_packages: true, ", ["system_site_packages"]),
        (
            "install: {",
            f"install: {{packages: ['x @ git+https://h.example/x@{'a' * 40}'], ",
            ["x @ git+", "pin a version"],
        ),
        ("--no-index", "--platform=any", ["--platform=any", "does not know"]),
        ("[--no-index", "[--no-deps, --no-index", ["--no-deps"]),
    ],
)
def test_what_cannot_be_locked_is_said(
    inventory: Path, capsys: pytest.CaptureFixture[str], old: str, new: str, words: list[str]
) -> None:
    inventory.write_text(inventory.read_text().replace(old, new))
    assert lock.main([str(inventory)]) == 1
    told = capsys.readouterr().err
    assert told.startswith("sglang-lock: chat: ") and all(word in told for word in words), told
    assert not locked.path_of("chat", inventory.parent).exists()


def test_two_hosts_that_pin_other_packages_under_one_name(
    inventory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    second = INVENTORY.replace("hosts:\n", "").replace("gpu1", "gpu2").replace("0.5.23", "0.5.22")
    inventory.write_text(inventory.read_text() + second)
    assert lock.main([str(inventory)]) == 1
    assert "gpu1 and gpu2 pin other packages for chat" in capsys.readouterr().err


def test_without_uv_the_command_that_installs_it_is_said(
    inventory: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locking, "find_spec", lambda name: None)
    assert lock.main([str(inventory)]) == 1
    assert "-m pip install uv" in capsys.readouterr().err


def test_an_engine_that_is_not_there(inventory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert lock.main([str(inventory), "chta"]) == 1
    assert "chta; it has: chat" in capsys.readouterr().err


BACKEND = """\
import os
def prepare_metadata_for_build_wheel(folder, config_settings=None):
    open({mark!r}, "w").close()
    info = os.path.join(folder, "source-1.0.dist-info")
    os.mkdir(info)
    with open(os.path.join(info, "METADATA"), "w") as file:
        file.write("Metadata-Version: 2.1\\nName: source\\nVersion: 1.0\\n")
    return "source-1.0.dist-info"
def build_wheel(folder, config_settings=None, metadata_directory=None):
    raise SystemExit("never")
"""


def test_no_code_of_a_package_runs_on_the_controller(
    inventory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It holds the keys of the fleet; a package without a wheel has build scripts."""
    index, mark, source = inventory.parent / "index", tmp_path / "mark", tmp_path / "source-1.0"
    source.mkdir()
    (source / "backend.py").write_text(BACKEND.format(mark=str(mark)))
    (source / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    )
    (source / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: source\nVersion: 1.0\n")
    with tarfile.open(index / "source-1.0.tar.gz", "w:gz") as archive:
        archive.add(source, source.name)
    wheel(index, "torch", "2.14.2", "source")
    assert lock.main([str(inventory)]) == 0, "an older version that needs no build is chosen"
    assert locked.versions(packages(inventory))["torch"] == "2.14.0" and not mark.exists()
    (index / "torch-2.14.0-py3-none-any.whl").unlink()
    assert lock.main(["--upgrade", str(inventory)]) == 1
    assert "--build" in capsys.readouterr().err and not mark.exists()
    assert lock.main(["--upgrade", "--build", str(inventory)]) == 0
    assert mark.exists() and locked.versions(packages(inventory))["source"] == "1.0"


def test_without_an_inventory_it_says_what_to_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "inventory.py").write_text("")
    monkeypatch.delenv("SGLANG_INVENTORY", raising=False)
    monkeypatch.chdir(tmp_path)
    assert lock.main([]) == 1
    assert "there is no inventory/hosts.yml" in capsys.readouterr().err
