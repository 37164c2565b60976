"""The console scripts run pyinfra in the checkout, for a person who stands elsewhere."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from roles.entry import plan, verify
from roles.entry.project import environment

GOOD = "hosts: {'@local': {engines: {chat: {modle: 1}}}}\n"


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SGLANG_INVENTORY", raising=False)
    monkeypatch.delenv("SGLANG_REPORTS", raising=False)
    return tmp_path


def test_relative_paths_stay_where_the_person_stands(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SGLANG_INVENTORY", "my/../fleet.yml")
    monkeypatch.setenv("SGLANG_REPORTS", "out")
    found = environment(MORE="x")
    assert found["SGLANG_INVENTORY"] == str(elsewhere / "fleet.yml")
    assert found["SGLANG_REPORTS"] == str(elsewhere / "out")
    assert found["MORE"] == "x" and found["PATH"] == os.environ["PATH"]


def test_home_and_absolute_paths_are_left_alone(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in ("~/fleet.yml", "~nosuchuser/fleet.yml", "/srv/fleet.yml"):
        monkeypatch.setenv("SGLANG_INVENTORY", path)
        assert environment()["SGLANG_INVENTORY"] == path


def test_the_inventory_of_this_folder_comes_first(elsewhere: Path) -> None:
    assert "SGLANG_INVENTORY" not in environment()
    (elsewhere / "inventory").mkdir()
    (elsewhere / "inventory" / "hosts.yml").write_text(GOOD)
    assert environment()["SGLANG_INVENTORY"] == str(elsewhere / "inventory" / "hosts.yml")


@pytest.mark.parametrize("command", ["plan", "verify"])
def test_both_commands_hand_it_on(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    seen: dict[str, Any] = {}

    def run(*args: object, **options: Any) -> subprocess.CompletedProcess[bytes]:
        seen.update(options)
        return subprocess.CompletedProcess([], 1, b"")

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setenv("SGLANG_INVENTORY", "fleet.yml")
    status = plan.main([]) if command == "plan" else verify.main([])
    assert status == (1 if command == "plan" else 2)
    assert seen["env"]["SGLANG_INVENTORY"] == str(elsewhere / "fleet.yml")


@pytest.mark.slow
def test_a_relative_inventory_is_found_from_another_folder(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (elsewhere / "fleet.yml").write_text(GOOD)
    monkeypatch.setenv("SGLANG_INVENTORY", "fleet.yml")
    assert verify.main([]) == 2
    said = capfd.readouterr().err
    assert "does not exist" not in said and 'did you mean "model"?' in said
