"""Which unit an engine is: its own, or the slot that its name is an alias of."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from sglangctl.proc.command import Result
from sglangctl.state import slots
from sglangctl.state.config import load_engine
from sglangctl.state.paths import Paths
from sglangctl.switch import remove
from sglangctl.systemd import systemctl
from sglangctl.util.errors import Failed
from tests.support.engine_config import ENGINE
from tests.support.unit_files import OURS

OWN, A, B = "sglang-tiny.service", "sglang-tiny_a.service", "sglang-tiny_b.service"


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    found = Paths(tmp_path)
    found.units.mkdir(parents=True)
    return found


def there(paths: Paths, *units: str) -> None:
    for unit in units:
        (paths.units / unit).write_text(OURS)


def test_an_engine_is_its_own_unit_until_a_slot_takes_over(paths: Paths) -> None:
    assert slots.live_unit("tiny", paths) == OWN
    there(paths, OWN)
    assert slots.live_unit("tiny", paths) == OWN
    assert slots.free_slot("tiny", paths) == A


def test_it_takes_turns_in_its_slots_and_comes_back(paths: Paths) -> None:
    there(paths, OWN, A)
    slots.put("tiny", A, paths)
    assert slots.live_unit("tiny", paths) == A
    assert not (paths.units / OWN).exists()
    assert slots.free_slot("tiny", paths) == B
    there(paths, B)
    slots.put("tiny", B, paths)
    assert slots.live_unit("tiny", paths) == B
    assert not (paths.units / A).exists()
    assert slots.free_slot("tiny", paths) == A
    there(paths, OWN)
    slots.put("tiny", OWN, paths)
    assert slots.live_unit("tiny", paths) == OWN
    assert os.listdir(paths.units) == [OWN]
    assert os.listdir(paths.aliases) == []


def test_a_move_takes_the_name_and_what_starts_it_at_boot_along(paths: Paths) -> None:
    there(paths, OWN, A)
    wants = paths.units / "multi-user.target.wants"
    wants.mkdir()
    (wants / OWN).symlink_to(paths.units / OWN)
    slots.move("tiny", A, paths)
    assert slots.live_unit("tiny", paths) == A
    assert os.listdir(wants) == [A]
    assert os.readlink(wants / A) == str(paths.units / A)
    slots.move("tiny", A, paths)
    assert os.listdir(wants) == [A]
    (wants / A).unlink()
    there(paths, OWN)
    slots.move("tiny", B, paths)
    assert os.listdir(wants) == [], "what did not start at boot does not now"


@pytest.mark.parametrize(
    ("result", "own"),
    [
        # As systemd 252 answers: dead, running, a name that others refer to; nothing of that id.
        (Result(0, "sglang-tiny.service loaded inactive dead SGLang engine tiny\n", ""), True),
        (Result(0, "sglang-tiny.service loaded active running SGLang engine tiny\n", ""), True),
        (Result(0, "sglang-tiny.service not-found inactive dead sglang-tiny.service\n", ""), True),
        (Result(0, "", ""), False),
        (Result(1, "", "Failed to connect to bus"), True),
    ],
)
def test_whether_systemd_has_the_name_as_a_unit_of_its_own(
    monkeypatch: pytest.MonkeyPatch, result: Result, own: bool
) -> None:
    monkeypatch.setattr(systemctl, "call", lambda *arguments: result)
    assert slots.has_own_unit("tiny") is own


def test_a_cut_leaves_the_name_on_one_of_the_two(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    there(paths, OWN, A)
    monkeypatch.setattr(slots, "_unlink", lambda path: None)
    slots.put("tiny", A, paths)
    assert slots.live_unit("tiny", paths) == OWN, "systemd takes the file before the alias"


@pytest.mark.parametrize("target", ["/etc/systemd/system/sshd.service", "sglang-other_a.service"])
def test_an_alias_of_somebody_else_is_none(paths: Paths, target: str) -> None:
    paths.aliases.mkdir(parents=True)
    slots.alias("tiny", paths).symlink_to(target)
    assert slots.live_unit("tiny", paths) == OWN
    assert slots.alias("tiny", paths) not in slots.files("tiny", paths)


def test_files_of_somebody_else_with_the_names_of_slots_stay(paths: Paths) -> None:
    """Every plain switch puts the engine's own unit: it deleted them."""
    alias = slots.alias("tiny", paths)
    target = paths.units / "multi-user.target.wants"
    for folder in (alias.parent, target):
        folder.mkdir(parents=True)
    theirs = [alias, paths.units / A]
    for file in theirs:
        file.write_text("[Unit]\nDescription=mine\n")
    (target / A).symlink_to(paths.units / A)
    there(paths, OWN, B)
    slots.put("tiny", OWN, paths)
    slots.disable_others("tiny", OWN, paths)
    assert all(file.is_file() for file in (*theirs, paths.units / OWN, target / A))
    assert not (paths.units / B).exists()
    slots.take_away("tiny", paths)
    assert all(file.is_file() for file in theirs) and not (paths.units / OWN).exists()


def test_a_boot_starts_one_of_them_alone(paths: Paths) -> None:
    target = paths.units / "multi-user.target.wants"
    target.mkdir()
    for unit in (OWN, A, "sglang-tiny2.service"):
        (target / unit).symlink_to(f"/etc/systemd/system/{unit}")
    slots.disable_others("tiny", A, paths)
    assert sorted(os.listdir(target)) == ["sglang-tiny2.service", A]


def test_the_configuration_is_read_with_the_unit_as_it_is(paths: Paths) -> None:
    paths.engines.mkdir(parents=True)
    document = {key: getattr(ENGINE, key) for key in ("user", "port", "listen", "model")}
    document.update(v=1, name="tiny", unit=OWN, served_name="tiny")
    paths.engine_json("tiny").write_text(json.dumps(document))
    there(paths, A)
    slots.put("tiny", A, paths)
    assert load_engine("tiny", paths).unit == A


def test_a_removal_takes_the_slots_and_the_alias(paths: Paths) -> None:
    there(paths, A)
    slots.put("tiny", A, paths)
    remove.refuse_unit_of_others("tiny", paths)
    lines = [line for path in slots.files("tiny", paths) for line in remove.deletion(path).lines()]
    assert lines == [
        f"remove {paths.aliases / OWN}",
        f"remove {paths.units / A}",
    ]
    (paths.units / A).write_text("[Unit]\nDescription=mine\n")
    with pytest.raises(Failed, match="was not made by sglang-provision"):
        remove.refuse_unit_of_others("tiny", paths)
