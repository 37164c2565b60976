"""What README.md and docs/inventory.md show is what works: an inventory, and files of your own."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from roles.inventory.load import load_inventory

ROOT = Path(__file__).parents[4]
README = ROOT / "README.md"
PAGE = ROOT / "docs" / "inventory.md"


def block(page: Path, language: str, begins: str) -> str:
    """The one code block of a page that begins so."""
    text = page.read_text(encoding="utf-8")
    blocks = re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    (found,) = [text for text in blocks if text.startswith(begins)]
    return str(found)


def without_comments(text: str) -> str:
    return "".join(f"{line}\n" for line in text.splitlines() if not line.startswith("#"))


def test_the_first_inventory_is_the_minimal_example() -> None:
    example = (ROOT / "inventory" / "minimal.example.yml").read_text(encoding="utf-8")
    shown = block(README, "yaml", "# inventory/hosts.yml")
    assert without_comments(shown) == without_comments(example)
    assert "ssh: {user: root}" in shown


def test_what_replaces_vllm_is_right(tmp_path: Path) -> None:
    file = tmp_path / "hosts.yml"
    file.write_text(block(ROOT / "docs" / "day-two.md", "yaml", "# replace vLLM"))
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "chat.key").write_text("a-key-of-a-test\n")
    inventory = load_inventory(file)
    (host,) = inventory.hosts
    assert not (inventory.errors or host.mistakes or host.warnings)


@pytest.mark.slow
def test_the_inventory_of_your_own_is_one_that_pyinfra_takes(tmp_path: Path) -> None:
    (tmp_path / "my_inventory.py").write_text(block(PAGE, "python", "# my_inventory.py"))
    (tmp_path / "gpus.yml").write_text(
        """
hosts:
  "@local": {engines: {chat: {model: {path: /m}}}}
  "@dokcer/x": {engines: {chat: {model: {path: /m}}}}
"""
    )
    done = subprocess.run(
        [
            *(str(Path(sys.executable).parent / "pyinfra"), "-y", "my_inventory.py"),
            *("exec", "--", "echo", "reached"),
        ],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYINFRA_PROGRESS": "off"},
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=60,
        check=False,
    )
    output = done.stdout + done.stderr
    assert "[@local] reached" in re.sub(r" +", " ", output), output
    # One wrong name is one host that fails, not the end of the run.
    assert re.search(r"\[dokcer-x-[0-9a-f]{4}\.invalid\] not connected to", output), output


def test_the_deploy_file_of_your_own_is_ours_under_another_name() -> None:
    yours = ast.parse(block(PAGE, "python", "# my_deploy.py"))
    ours = ast.parse((ROOT / "deploys" / "sglang.py").read_text(encoding="utf-8"))
    shown = ast.unparse(yours).replace("my-deploy", "sglang")
    assert shown == "\n".join(ast.unparse(part) for part in ours.body[1:])
