"""Containers through their engine's command, with commands that answer as docker and podman do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sglangctl.systemd import containers
from sglangctl.systemd.containers import Container

ONE, TWO, NONE = "1" * 64, "2" * 64, "3" * 64


def document(key: str, name: str, restart: str = "no") -> dict[str, object]:
    return {
        "Id": key,
        "Name": name,
        "HostConfig": {"RestartPolicy": {"Name": restart}},
    }


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A docker that knows ONE and a podman that knows TWO; both write down how they were called."""
    for name, answer in (
        ("docker", [document(ONE, "/vllm-box", "always")]),
        ("podman", [document(TWO, "pod-box")]),
    ):
        (tmp_path / f"{name}.json").write_text(json.dumps(answer))
        script = tmp_path / name
        script.write_text(
            f'#!/bin/sh\necho "$@" >> {tmp_path}/{name}.calls\n'
            f"[ $1 = inspect ] && cat {tmp_path}/{name}.json\n"
            # As docker: what it does not know is an error, the rest is printed.
            "echo 'Error: No such container' >&2\nexit 1\n"
        )
        script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path


def test_each_engine_is_asked_for_what_may_be_its_own(commands: Path) -> None:
    found = containers.inspect({ONE: "docker", TWO: None, NONE: None})
    assert found == {
        ONE: Container(ONE, "vllm-box", "docker", "always"),
        TWO: Container(TWO, "pod-box", "podman", "no"),
    }
    assert (commands / "podman.calls").read_text().split() == [
        "inspect",
        "--type=container",
        "--",
        TWO,
        NONE,
    ]
    assert containers.names({ONE: "docker"}) == {ONE: "vllm-box"}


def test_what_the_path_says_is_podmans_is_not_asked_of_docker(commands: Path) -> None:
    assert list(containers.inspect({TWO: "podman"})) == [TWO]
    assert not (commands / "docker.calls").exists()


def test_without_any_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert containers.inspect({ONE: None}) == {}


def test_stop_gives_the_container_its_time(commands: Path) -> None:
    result = containers.stop(Container(ONE, "vllm-box", "docker"), 10, 30)
    assert not result.ok and "No such container" in result.stderr
    assert (commands / "docker.calls").read_text().split() == ["stop", "--time=10", "--", ONE]


def test_a_start_that_is_not_waited_for_follows_the_daemon(commands: Path) -> None:
    tool = commands / "systemd-run"
    tool.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {commands}/run.calls\n')
    tool.chmod(0o755)
    assert containers.start_later("podman", TWO).ok
    options, _, argv = (commands / "run.calls").read_text().partition("--\n")
    assert argv.split() == ["podman", "start", "--", TWO]
    assert "--no-block" in options
    assert "--property=After=docker.service containerd.service" in options.splitlines()
    assert not (commands / "podman.calls").exists()


@pytest.mark.parametrize(
    "text", ["", "nonsense", "{}", "[1, null]", '[{"Id": 5}]', '[{"Name": "x"}]']
)
def test_an_answer_that_is_none(text: str) -> None:
    assert containers.parse(text, "docker") == []


def test_fields_that_are_missing_are_unknown() -> None:
    (found,) = containers.parse(json.dumps([{"Id": ONE, "HostConfig": None}]), "docker")
    assert found == Container(ONE, "", "docker", "no")
