"""systemctl show for many units at once, and what is read from it."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from sglangctl.proc import cgroup, freezer, procfs
from sglangctl.systemd import systemctl as systemd
from sglangctl.systemd import unit as units
from sglangctl.systemd.unit_names import engine_unit, is_helper, watch_unit
from tests.support.units import unit

BLOCK = """\
Id=vllm-kimi.service
LoadState=loaded
ActiveState=activating
UnitFileState=enabled
MainPID=0
ExecMainPID=700
ExecMainStartTimestampMonotonic=50000000
ControlGroup=/system.slice/vllm-kimi.service
User=root
UID=[not set]
TriggeredBy=vllm.timer vllm.socket
Restart=always
Description=a=b
"""
ABSENT = "Id=other.service\nLoadState=not-found\nActiveState=inactive\nUnitFileState=\n"


@pytest.fixture
def systemctl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    script = tmp_path / "systemctl"
    script.write_text(f"#!/bin/sh\ncat {tmp_path}/answer\nexit $(cat {tmp_path}/status)\n")
    script.chmod(0o755)
    (tmp_path / "status").write_text("0")
    (tmp_path / "answer").write_text(BLOCK + "\n" + ABSENT)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(systemd, "booted", lambda: True)
    return tmp_path


def test_two_units_in_one_answer(systemctl: Path) -> None:
    shown = units.show(["vllm.service", "other.service", "vllm.service"])
    assert shown is not None and list(shown) == ["vllm.service", "other.service"]
    vllm, other = shown.values()
    # Asked for by an alias: its own name is the one in cgroups.
    assert (vllm.asked, vllm.name) == ("vllm.service", "vllm-kimi.service")
    assert vllm.exists and vllm.running and vllm.enabled
    assert vllm.triggers == ("vllm.timer", "vllm.socket")
    assert (vllm.last_main_pid, vllm.started, vllm.uid()) == (700, 50.0, 0)
    slept = time.clock_gettime(time.CLOCK_BOOTTIME) - time.clock_gettime(time.CLOCK_MONOTONIC)
    assert vllm.started_since_boot == pytest.approx(50.0 + slept, abs=0.1)
    assert vllm["Description"] == "a=b"
    assert not (other.exists or other.running or other.enabled)
    assert (other.last_main_pid, other.started, other.triggers) == (0, None, ())


def test_an_answer_that_does_not_fit_the_question_is_none(systemctl: Path) -> None:
    assert units.show(["only-one.service"]) is None
    (systemctl / "status").write_text("1")
    assert units.show(["a.service", "b.service"]) is None
    assert units.show([]) == {}


def test_without_systemd(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(systemd, "booted", lambda: False)
    assert units.show(["a.service"]) is None
    assert units.with_watch("a", "a.service") is None
    assert systemd.version() is None


SHOWN = """\
Id=sglang-kimi.service
LoadState=loaded
Result=success
NRestarts=2
ActiveState=activating
SubState=start-post
Job=4711
InvocationID=295b636163334fe3a4bd3798fd0a69d9

Id=sglang-watch@kimi.service
LoadState=loaded
ActiveState=active
SubState=running
Result=success
InvocationID=55c14af8ceb840e293e952959c529461
NRestarts=0
Job=
"""


def test_an_engine_and_its_watch(systemctl: Path) -> None:
    (systemctl / "answer").write_text(SHOWN)
    shown = units.with_watch("kimi", "sglang-kimi.service")
    assert shown is not None
    engine, watch = shown
    assert (engine.active, engine.sub, engine.result) == ("activating", "start-post", "success")
    assert (engine.restarts, engine.job, engine.exit_status) == (2, True, None)
    assert engine.invocation_id == "295b636163334fe3a4bd3798fd0a69d9"
    assert (watch.name, watch.active, watch.job) == ("sglang-watch@kimi.service", "active", False)


def test_one_unit(systemctl: Path) -> None:
    (systemctl / "answer").write_text(ABSENT)
    assert units.find("other.service") is None
    (systemctl / "answer").write_text(BLOCK)
    found = units.find("vllm.service")
    assert found is not None and found.name == "vllm-kimi.service"


@pytest.mark.parametrize(
    ("code", "status", "exited", "expected"),
    [("1", "203", "77", 203), ("2", "9", "77", -9), ("1", "0", "77", 0), ("0", "0", "0", None)],
)
def test_how_the_main_process_ended(
    code: str, status: str, exited: str, expected: int | None
) -> None:
    ended = unit(
        ExecMainPID="7",
        ExecMainCode=code,
        ExecMainStatus=status,
        ExecMainExitTimestampMonotonic=exited,
    )
    assert ended.exit_status == expected
    assert unit(ExecMainPID="0", ExecMainCode=code, ExecMainStatus=status).exit_status is None


def test_down_is_neither_running_nor_about_to() -> None:
    assert unit("failed").down and unit("inactive").down
    assert not unit().down and not unit("failed", job=True).down
    assert not unit("activating").down


def test_the_names_of_our_units() -> None:
    assert engine_unit("kimi") == "sglang-kimi.service"
    assert watch_unit("kimi") == "sglang-watch@kimi.service"
    assert watch_unit() == "sglang-watch@.service"
    assert is_helper("sglang-watch@kimi.service") and is_helper("sglangctl-switch.service")
    assert not is_helper("sglang-kimi.service") and not is_helper("sglang-watch.service")


@pytest.mark.parametrize(
    ("properties", "uid"),
    [
        ({"UID": "61234", "User": "dynamic"}, 61234),
        ({"UID": "[not set]", "User": "0"}, 0),
        ({"UID": "[not set]", "User": ""}, 0),
        ({"UID": "[not set]", "User": "nobody-of-that-name"}, None),
    ],
)
def test_the_user_of_a_unit(properties: dict[str, str], uid: int | None) -> None:
    assert units.Unit("a.service", properties).uid() == uid


@pytest.mark.parametrize(
    ("line", "file", "text", "frozen"),
    [
        ("6:freezer:/a/b", "freezer/a/freezer.state", "FROZEN", True),
        ("6:cpu,freezer:/a/b", "freezer/a/b/freezer.state", "FREEZING", True),
        ("6:freezer:/a/b", "freezer/a/freezer.state", "THAWED", False),
        ("0::/a/b", "a/cgroup.freeze", "1\n", True),
        ("0::/a/b", "unified/a/b/cgroup.freeze", "1\n", True),
        ("0::/a/b", "a/cgroup.freeze", "0\n", False),
        ("0::/", "cgroup.freeze", "1\n", False),
    ],
)
def test_frozen_on_every_layout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, file: str, text: str, frozen: bool
) -> None:
    path = tmp_path / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    monkeypatch.setattr(procfs, "read_text", lambda pid, name: f"9:pids:/a/b\n{line}\n")
    monkeypatch.setattr(cgroup, "CGROUP", tmp_path)
    assert freezer.frozen(1) == frozen
