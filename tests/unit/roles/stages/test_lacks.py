"""What a host lacks is one list, and only where something is to be done."""

from __future__ import annotations

from typing import Any

import pytest

from roles.host.operations import PROGRAM_MODE
from roles.remote import program
from roles.remote.snapshot import RUNS
from roles.stages import lacks as subject
from roles.stages import needed
from roles.stages.desired import DesiredHost, make
from roles.switch.decision import Decision
from tests.support.inventory_case import engine_text, load, only


@pytest.fixture(scope="module")
def desired() -> DesiredHost:
    entry = only(load(engine_text("port: 8000\n")))
    assert entry.spec is not None, entry.errors
    return make(entry.spec)


def bare(desired: DesiredHost, **more: Any) -> dict[str, Any]:
    """A host on which nothing was deployed yet and nothing is missing."""
    return {
        "files": {path: {"kind": "absent"} for path in desired.request["files"]},
        "users": {"sglang": None},
        "venvs": {one: {"wrong": "new", "python": None} for one in desired.request["venvs"]},
        "programs": dict.fromkeys(needed.PROGRAMS, True),
        "disks": {path: {"read_only": False, "free_mib": 100} for path in needed.PLACES},
        "engines": {},
        **more,
    }


def test_the_venv_of_every_engine_is_named_for_the_plan_of_its_switch() -> None:
    entry = only(load(engine_text("flags: {device: cpu}\n")))
    assert entry.spec is not None, entry.errors
    request = make(entry.spec).request
    assert list(request["environments"].values()) == list(request["venvs"])


def test_a_host_that_has_everything(desired: DesiredHost) -> None:
    assert subject.lacks(bare(desired), desired) == []
    assert subject.notes(bare(desired), ["strict"]) == []
    old = bare(desired, systemd="247.3-7+deb11u7")
    assert subject.notes(old, ["baseline"]) == []
    (note,) = subject.notes(old, ["baseline", "strict"])
    assert "247.3" in note and "PrivateIPC" in note


def test_all_of_it_at_once(desired: DesiredHost) -> None:
    (venv,) = desired.request["venvs"]
    facts = bare(
        desired,
        programs={**dict.fromkeys(needed.PROGRAMS, False), "chown": True},
        venvs={venv: {"wrong": "new", "python": "No module named 'ensurepip'"}},
        disks={
            "/usr/local/bin": {"read_only": True, "free_mib": 9, "device": 1},
            "/etc/sglangctl": {"read_only": False, "free_mib": 0, "device": 2},
            "/etc/systemd/system": None,
            "/opt/sglang/venvs": {"read_only": True, "free_mib": 9, "device": 3},
            "/usr/local/lib/sglangctl": {"read_only": True, "free_mib": 9, "device": 3},
        },
    )
    first, second, third, fourth = subject.lacks(facts, desired)
    assert "flock" in first and "useradd" in first and "chown" not in first
    assert "logrotate" not in first  # a note, not a lack
    assert first.endswith("apt-get install coreutils findutils libc-bin passwd systemd util-linux")
    assert "No module named 'ensurepip'" in second and "python3-venv" in second
    assert "/usr/local/bin" in third and "read-only" in third
    assert "/usr/local/lib" not in third and "/opt" not in third  # the preflight says it
    assert "/etc/sglangctl" in fourth and "no room" in fourth
    assert "logs grow without end" in subject.notes(facts, [])[0]


def test_one_folder_of_a_file_system_can_be_read_only(desired: DesiredHost) -> None:
    # /etc mounted over itself: a switch stopped the engine that served, and could write no unit.
    here = {"read_only": False, "free_mib": 9000, "device": 1}
    facts = bare(
        desired,
        programs=dict.fromkeys(needed.PROGRAMS, True),
        disks={path: here for path in (*needed.PLACES, *subject.folders("chat"))},
    )
    facts["disks"]["/etc/systemd/system"] = {**here, "read_only": True}
    (sentence,) = subject.lacks(facts, desired)
    assert "read-only file system: /etc/systemd/system (" in sentence


def test_a_probe_that_does_not_say_is_no_lack(desired: DesiredHost) -> None:
    assert subject.lacks(bare(desired, programs={}, disks={}), desired) == []


def test_where_nothing_is_to_be_done_nothing_is_missing(
    desired: DesiredHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = {"kind": "file", "mode": PROGRAM_MODE, "owner": "root", "group": "root", "sha256": "x"}
    files = {program.path(): good, program.LINK: {"kind": "link", "target": program.path()}}
    (engine,) = desired.engines
    facts = bare(
        desired,
        files=files,
        users={engine.spec.user: {"group": engine.spec.user}},
        venvs={engine.venv.path: {"wrong": None}},
        programs=dict.fromkeys(needed.PROGRAMS, False),
        engines={engine.name: {"releases": {"staged": [engine.release.digest]}}},
        **{RUNS: True},
    )
    monkeypatch.setattr(subject, "changes", lambda wanted, facts: [])
    monkeypatch.setattr(subject, "decision_of", lambda engine: lambda facts: Decision(()))
    assert subject.lacks(facts, desired) == []
    monkeypatch.setattr(subject, "decision_of", lambda engine: lambda facts: Decision(("why",)))
    (sentence,) = subject.lacks(facts, desired)
    assert "find, systemd-run:" in sentence


def test_a_restart_that_is_held_needs_no_program_and_its_full_disk_is_told(
    desired: DesiredHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = {"read_only": False, "free_mib": 0, "device": 3}
    facts = bare(
        desired,
        programs={**dict.fromkeys(needed.PROGRAMS, True), "find": False},
        disks={"/var/lib/sglangctl": full, "/opt/sglang/venvs": full},
    )
    held = Decision(("an argument changed",), held=True)
    monkeypatch.setattr(subject, "decision_of", lambda engine: lambda facts: held)
    # No switch: its preflight does not look at the disks.
    (sentence,) = subject.lacks(facts, desired)
    assert "/opt/sglang/venvs, /var/lib/sglangctl" in sentence and "no room" in sentence


def test_a_release_that_was_edited_is_written_again(
    desired: DesiredHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = bare(desired)
    (engine,) = desired.engines
    facts["engines"] = {
        engine.name: {
            "releases": {"current": engine.release.digest, "staged": [engine.release.digest]}
        }
    }
    monkeypatch.setattr(subject, "decision_of", lambda engine: lambda facts: Decision(()))
    assert "systemd-analyze" in (subject.needs(facts, desired) or ())
