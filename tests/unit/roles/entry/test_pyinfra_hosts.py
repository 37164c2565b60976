"""inventory.py under the real pyinfra: which file, what a person sees, who fails."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import paramiko
import pytest

from roles.entry.hosts import pyinfra_hosts
from roles.entry.project import inventory_path
from roles.inventory.errors import InventoryError

ROOT = Path(__file__).parents[4]
PYINFRA = Path(sys.executable).parent / "pyinfra"


def pyinfra(folder: Path, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run pyinfra with this checkout's inventory.py, from a folder of its own."""
    clean = {key: value for key, value in os.environ.items() if key != "SGLANG_INVENTORY"}
    clean |= {"PYTHONPATH": str(ROOT), "PYINFRA_PROGRESS": "off", **environ}
    return subprocess.run(
        [str(PYINFRA), "--config", str(ROOT / "config.py"), str(ROOT / "inventory.py"), *arguments],
        cwd=folder,
        env=clean,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=60,
        check=False,
    )


@pytest.fixture
def inventory(tmp_path: Path):
    def write(text: str) -> str:
        path = tmp_path / "some.yml"
        path.write_text(textwrap.dedent(text), encoding="utf-8")
        return str(path)

    return write


@pytest.mark.slow
def test_pyinfra_gets_hosts_and_their_data(tmp_path: Path, inventory) -> None:
    path = inventory(
        """
        engines: {e: {model: {path: /m}, api_key: {env: K}}}
        hosts:
          good.example.com:
            ssh: {user: admin, port: 2222, key: keys/id, hostname: 10.0.0.1}
            sudo: true
            engines: {e: }
          bad.example.com: {engines: {e: {prot: 1}}}
        """
    )
    done = pyinfra(tmp_path, "debug-inventory", SGLANG_INVENTORY=path, K="sk-planted-0123456789")
    assert done.returncode == 0, done.stderr
    output = done.stdout + done.stderr
    assert f'found \\"{tmp_path}/keys/id\\", which does not exist' in output
    (tmp_path / "keys").mkdir()
    paramiko.RSAKey.generate(1024).write_private_key_file(str(tmp_path / "keys/id"))
    done = pyinfra(tmp_path, "debug-inventory", SGLANG_INVENTORY=path, K="sk-planted-0123456789")
    output = done.stdout + done.stderr
    assert "does not exist" not in output
    for text in ('"ssh_user": "admin"', '"ssh_port": 2222', f"{tmp_path}/keys/id", '"_sudo": true'):
        assert text in output
    assert '"api_key": "***"' in output
    assert ".engines.e.prot: found an unknown key" in output
    assert "sk-planted" not in output


def test_without_an_inventory_it_says_which_example_to_copy(tmp_path: Path) -> None:
    (tmp_path / "inventory.py").touch()  # a project, that never means the hosts of the checkout
    done = pyinfra(tmp_path, "debug-inventory")
    assert done.returncode == 1
    assert "there is no inventory/hosts.yml yet: copy an example" in done.stderr
    assert "cp inventory/minimal.example.yml inventory/hosts.yml" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_a_file_that_cannot_be_used_is_one_sentence(tmp_path: Path, inventory) -> None:
    done = pyinfra(tmp_path, "debug-inventory", SGLANG_INVENTORY=inventory("hosts: [\n"))
    assert done.returncode == 1
    assert "some.yml:2: the document: found what is not YAML" in done.stderr
    assert "Traceback" not in done.stderr
    done = pyinfra(tmp_path, "debug-inventory", SGLANG_INVENTORY=str(tmp_path / "gone.yml"))
    assert done.returncode == 1
    assert "gone.yml does not exist" in done.stderr


@pytest.mark.slow
def test_a_host_that_cannot_be_named_fails_alone(tmp_path: Path, inventory) -> None:
    # pyinfra ends the whole run on a connector that it does not know.
    path = inventory(
        """
        hosts:
          "@dokcer/x": {engines: {e: {model: {path: /m}}}}
          "@local": {engines: {e: {model: {path: /m}}}}
        """
    )
    done = pyinfra(tmp_path, "-y", "exec", "--", "echo", "reached", SGLANG_INVENTORY=path)
    output = done.stdout + done.stderr
    assert 'did you mean "docker"?' in output
    assert re.search(r"\[@local\] +reached", output)
    assert re.search(r"\[dokcer-x-[0-9a-f]{4}\.invalid\] not connected to: the inventory", output)
    assert done.returncode == 1
    assert "Invalid connector" not in output


@pytest.mark.slow
def test_a_host_with_wrong_ssh_values_does_not_end_the_run(tmp_path: Path, inventory) -> None:
    path = inventory(
        """
        hosts:
          wrong.invalid: {ssh: {port: "22", user: 5}, engines: {e: {model: {path: /m}}}}
          "@local": {engines: {e: {model: {path: /m}}}}
        """
    )
    done = pyinfra(tmp_path, "-y", "exec", "--", "echo", "reached", SGLANG_INVENTORY=path)
    output = done.stdout + done.stderr
    assert "reached" in output
    assert "internal exception" not in output
    assert done.returncode == 1


def test_the_file_in_the_working_folder_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SGLANG_INVENTORY", raising=False)
    (tmp_path / "inventory").mkdir()
    (tmp_path / "inventory" / "hosts.yml").write_text("hosts: {}\n")
    assert inventory_path() == Path("inventory/hosts.yml")
    monkeypatch.setenv("SGLANG_INVENTORY", "~/other.yml")
    assert inventory_path() == Path.home() / "other.yml"


def test_a_folder_of_its_own_never_means_the_hosts_of_the_checkout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # sglang-init fleet && cd fleet && pyinfra ...: it deployed to the hosts of the checkout.
    checkout, fleet = tmp_path / "checkout", tmp_path / "fleet"
    for folder in (checkout / "inventory", fleet / "inventory"):
        folder.mkdir(parents=True)
    (checkout / "inventory" / "hosts.yml").write_text("hosts: {}\n")
    for folder in (checkout, fleet):
        (folder / "inventory.py").write_text("")
    monkeypatch.setattr("roles.entry.project.SHIPPED", checkout)
    monkeypatch.delenv("SGLANG_INVENTORY", raising=False)
    monkeypatch.chdir(fleet)
    with pytest.raises(InventoryError, match="there is no inventory"):
        inventory_path()
    monkeypatch.chdir(tmp_path)
    assert inventory_path() == checkout / "inventory" / "hosts.yml"


def test_an_inventory_below_the_home_of_nobody_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SGLANG_INVENTORY", "~nosuchuser/hosts.yml")
    with pytest.raises(SystemExit, match="the home folder of a user that does not exist"):
        pyinfra_hosts()


def test_examples_that_are_named_are_there() -> None:
    from roles.inventory.shipped import EXAMPLES

    for name in EXAMPLES:
        assert (ROOT / "inventory" / name).is_file()


def test_a_wrong_base_that_no_host_uses_is_told(
    tmp_path: Path, inventory, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = inventory(
        "engines: {idle: {prot: 1}}\nhosts: {h: {engines: {e: {model: {path: /m}}}}}\n"
    )
    monkeypatch.setenv("SGLANG_INVENTORY", path)
    ((name, data),) = pyinfra_hosts()
    assert (name, data["sglang_mistakes"]) == ("h", [])
    assert data["sglang_host"].engines[0].name == "e"
    assert "no host uses this, and it is wrong: " in capsys.readouterr().err


def test_no_pyinfra_is_imported_by_the_spec() -> None:
    script = "import sys, roles.inventory, roles.inventory.render\n"
    script += "print([name for name in sys.modules if name.startswith('pyinfra')])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout.strip() == "[]", done.stderr


def test_an_inventory_error_is_an_exception_of_its_own() -> None:
    assert issubclass(InventoryError, Exception)
    assert json.dumps(str(InventoryError("x"))) == '"x"'
