"""The plan of a stop and of a removal says what these do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from roles.switch.stop import is_down, stop_lines
from sglangctl.probe import document
from sglangctl.state import ownership
from sglangctl.state.files import link_atomic
from sglangctl.state.paths import Paths
from sglangctl.state.release import FILES
from sglangctl.switch import forecast, remove
from sglangctl.util.errors import Failed, Unusable
from tests.support.unit_files import OURS, make


def everything(root: Path) -> set[str]:
    return {str(path) for path in root.rglob("*")}


def planned(lines: list[str]) -> list[str]:
    return [line.removeprefix("remove ") for line in lines if line.startswith("remove /")]


def furnish(where: Paths) -> None:
    """A host with one engine, and things of others among ours."""
    make(where, "etc/systemd/system/sglang-kimi.service", OURS)
    make(where, "etc/systemd/system/sglang-watch@.service", OURS)
    make(where, "etc/sglangctl/engines/kimi.json", json.dumps({"v": 1}))
    make(where, "etc/sglangctl/host.json", '{"v": 1, "engines": ["kimi"]}')
    make(where, "etc/tmpfiles.d/sglang-kimi.conf")
    make(where, "etc/logrotate.d/sglang-kimi")
    make(where, "var/lib/sglangctl/kimi/starts/1/journal.jsonl")
    make(where, "var/log/sglang/kimi/engine.log")
    make(where, "var/log/sglang/other/x.log")
    make(where, "var/cache/sglang/kimi/triton/x")
    make(where, "var/cache/sglangctl/kernel/0/wheel.whl")
    make(where, f"opt/sglang/venvs/0123456789abcdef/{ownership.MARKER}")
    make(where, "opt/sglang/venvs/fedcba9876543210/bin/python")
    make(where, "opt/sglang/venvs/mine/bin/python")
    program = make(where, "usr/local/lib/sglangctl/0123456789abcdef.pyz")
    where.program_link.parent.mkdir(parents=True)
    link_atomic(where.program_link, str(program))


@pytest.mark.parametrize("alone", [True, False])
def test_a_removal_deletes_what_its_plan_says(
    paths: Paths,
    alone: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    furnish(paths)
    if not alone:
        make(paths, "etc/sglangctl/engines/other.json", "{}")
    # Stopping by its configuration needs a whole one; that is not what this is about.
    monkeypatch.setattr(remove, "load_engine", lambda *_: None)
    monkeypatch.setattr(remove, "stop", lambda *_: None)
    plan = forecast.removal("kimi", paths)
    assert plan["refused"] is None
    before = everything(paths.root)
    remove.remove("kimi", paths, print)
    gone = before - everything(paths.root)
    wanted = planned(plan["lines"])
    assert wanted and len(wanted) == len(set(wanted))
    for path in gone - set(wanted):
        # In a folder that goes as a whole, or a folder that nothing is left in.
        assert any(path.startswith(f"{one}/") or one.startswith(f"{path}/") for one in wanted), path
    assert set(wanted) <= gone
    assert (str(paths.program_link) in wanted) == alone


def test_what_stays_is_said(paths: Paths) -> None:
    make(paths, "var/cache/sglang/kimi/hub/w.safetensors")
    make(paths, "etc/systemd/system/sglang-watch@.service", "[Unit]\n")
    lines = forecast.removal("kimi", paths)["lines"]
    cache = paths.root / "var/cache/sglang/kimi"
    assert f"{cache} stays: there are weights in it ({cache}/hub/w.safetensors)" in lines
    assert not any("sglang-watch@" in line for line in lines)


def test_a_unit_of_somebody_else_refuses_the_removal(paths: Paths) -> None:
    unit = make(paths, "etc/systemd/system/sglang-kimi.service", "[Unit]\n")
    plan = forecast.removal("kimi", paths)
    assert plan == {"lines": [], "refused": f"{unit} was not made by sglang-provision"}


def test_a_release_that_is_not_whole_is_told(paths: Paths) -> None:
    for name in FILES:
        make(paths, f"var/lib/sglangctl/other/releases/{'a' * 64}/{name}", "no document")
    make(paths, f"opt/sglang/venvs/0123456789abcdef/{ownership.MARKER}")
    plan = forecast.removal("kimi", paths)
    with pytest.raises(Failed) as error:
        remove.remove("kimi", paths, print)
    assert plan["refused"] == str(error.value)


def test_an_engine_without_a_configuration_is_looked_at_too(paths: Paths) -> None:
    make(paths, "etc/systemd/system/sglang-kimi.service", OURS)
    request = document.parse_request('{"remove": ["kimi"]}')
    found = document.probe(request, paths)
    assert found.engines is not None and found.engines["kimi"]["releases"]["current"] is None
    assert found.plans == {}
    assert planned(found.removals["kimi"]["lines"]) == [str(paths.units / "sglang-kimi.service")]


@pytest.mark.parametrize("key", ["stop", "remove"])
def test_a_name_that_is_none_is_refused(key: str, paths: Paths) -> None:
    with pytest.raises(Unusable, match="is not an engine's name"):
        document.probe(document.parse_request(json.dumps({key: ["../x"]})), paths)


def facts(unit: tuple[str, str], watch: tuple[str, str], **plan: object) -> dict[str, object]:
    keys = ("ActiveState", "UnitFileState")
    about = {"unit": dict(zip(keys, unit)), "watch": dict(zip(keys, watch))}
    return {"engines": {"e": about}, "plans": {"e": plan}}


DOWN = ("inactive", "disabled")


@pytest.mark.parametrize(
    ("found", "down"),
    [
        (facts(DOWN, DOWN), True),
        (facts(("inactive", ""), ("inactive", "")), True),
        (facts(("active", "enabled"), DOWN), False),
        (facts(("inactive", "enabled"), DOWN), False),
        (facts(("failed", "disabled"), DOWN), False),
        (facts(DOWN, ("inactive", "static")), True),
        (facts(DOWN, ("active", "static")), False),
        (facts(DOWN, DOWN, processes_to_end=[{"pid": 7}]), False),
        (facts(DOWN, DOWN, processes_to_end=[{"pid": 7}], refused=[{}]), True),
        ({}, True),
    ],
)
def test_what_is_down(found: dict[str, object], down: bool) -> None:
    assert is_down(found, "e") == down


def test_the_lines_of_a_stop() -> None:
    up = (("active", "enabled"), ("active", "static"))
    told = ["stop sglang-e.service (ours; ...)", "  ends with it: 7 python"]
    assert stop_lines(facts(*up, lines=told), "e") == [
        *told,
        "disable sglang-e.service (enabled)",
        "stop sglang-watch@e.service (active, static)",
    ]
    # Others are on its GPUs: nothing of that plan is done, and the units are stopped all the same.
    assert stop_lines(facts(*up, lines=["refused"], refused=[{"who": "x"}]), "e") == [
        "stop sglang-e.service (active, enabled)",
        "disable sglang-e.service (enabled)",
        "stop sglang-watch@e.service (active, static)",
    ]
