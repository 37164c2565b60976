"""The plan of a stop and of a removal says what these do."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sglangctl import cli, free
from sglangctl.free.model import UNSEEN, FreeResult, Plan, Refusal, UnitStep
from sglangctl.probe import document
from sglangctl.proc.command import Result
from sglangctl.state import ownership, release
from sglangctl.state.config import HostConfig
from sglangctl.state.files import link_atomic
from sglangctl.state.paths import Paths
from sglangctl.state.release import FILES
from sglangctl.switch import forecast, remove, step, stop
from sglangctl.systemd.unit import Unit
from sglangctl.util.errors import Failed, Unusable
from tests.support.engine_config import ENGINE
from tests.support.unit_files import OURS, make
from tests.support.units import unit

UNIT, WATCH = "sglang-kimi.service", "sglang-watch@kimi.service"


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


def test_a_removal_after_a_deploy_leaves_what_that_one_makes(paths: Paths) -> None:
    # The plan of a rename named the program, the users and the venv, all of which stayed.
    furnish(paths)
    alone = planned(forecast.removal("kimi", paths)["lines"])
    venvs = [path for path in alone if path.startswith(str(paths.venvs))]
    beside = planned(forecast.removal("kimi", paths, ["talk"], venvs)["lines"])
    assert venvs and str(paths.program_link) in alone
    assert not {*venvs, str(paths.program_link), str(paths.host_json)} & set(beside)
    assert str(paths.engine_state("kimi")) in beside


def test_what_stays_is_said(paths: Paths) -> None:
    make(paths, "var/cache/sglang/kimi/hub/w.safetensors")
    make(paths, "etc/systemd/system/sglang-watch@.service", "[Unit]\n")
    lines = forecast.removal("kimi", paths)["lines"]
    cache = paths.root / "var/cache/sglang/kimi"
    assert f"{cache} stays: there are weights in it ({cache}/hub/w.safetensors)" in lines
    assert not any("sglang-watch@" in line for line in lines)


def test_a_unit_of_somebody_else_refuses_the_removal(paths: Paths) -> None:
    make(paths, "etc/systemd/system/sglang-kimi.service", "[Unit]\n")
    plan = forecast.removal("kimi", paths)
    with pytest.raises(Failed) as error:
        remove.remove("kimi", paths, print)
    assert plan == {"lines": [], "refused": str(error.value)}


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


@pytest.mark.parametrize("where", ["etc/systemd/system", "usr/lib/systemd/system"])
def test_a_unit_of_somebody_else_without_a_configuration_refuses_the_stop_and_its_plan(
    paths: Paths, units: dict[str, Unit], calls: list[str], where: str, capsys: Any
) -> None:
    """The plan said that it would be stopped, and the run refused."""
    file = make(paths, f"{where}/{UNIT}", "[Unit]\n")
    has(units, UNIT, "active", "enabled", FragmentPath=str(file))
    stops: dict[str, Any] = {}
    forecast.look(stops, {}, {"stop": ["kimi"]}, HostConfig(), {}, paths)
    assert cli.main(["stop", "kimi"]) == 3
    assert stops["kimi"]["lines"] == []
    assert stops["kimi"]["refused"] in capsys.readouterr().err
    assert f"{file} was not made by sglang-provision" in stops["kimi"]["refused"]
    assert f"systemctl stop {UNIT}" in stops["kimi"]["refused"]
    assert calls == []


def test_an_engine_of_ours_without_a_configuration_is_stopped_as_its_plan_says(
    paths: Paths, units: dict[str, Unit], calls: list[str], capsys: Any
) -> None:
    has(units, UNIT, "active", "enabled", FragmentPath=str(make(paths, f"e/{UNIT}", OURS)))
    metrics = make(paths, "var/lib/prometheus/node-exporter/sglang-kimi.prom", "its last word")
    stops: dict[str, Any] = {}
    forecast.look(stops, {}, {"stop": ["kimi"]}, HostConfig(), {}, paths)
    assert cli.main(["stop", "kimi"]) == 0
    lines = [f"stop {UNIT} (active, enabled)", f"disable {UNIT} (enabled)"]
    assert stops["kimi"] == {"lines": lines, "refused": None}
    assert capsys.readouterr().out == f"{UNIT} is stopped and disabled\n"
    assert calls == ["stop", "stop", "disable", "reset-failed"]
    assert not metrics.exists(), "it would say for ever that the engine serves"


def test_a_stop_of_what_is_not_there_says_so(
    paths: Paths, units: dict[str, Unit], calls: list[str]
) -> None:
    assert cli.main(["stop", "kimi"]) == 2
    assert calls == []


@pytest.mark.parametrize("name", ["../x", "-x", "x_a", ""])
@pytest.mark.parametrize("key", ["stop", "remove"])
def test_a_name_that_is_none_is_refused(key: str, name: str, paths: Paths) -> None:
    with pytest.raises(Unusable, match="is not an engine's name"):
        document.probe(document.parse_request(json.dumps({key: [name]})), paths)


@pytest.fixture
def units(monkeypatch: pytest.MonkeyPatch) -> dict[str, Unit]:
    """What systemd knows, by name."""
    known: dict[str, Unit] = {}
    monkeypatch.setattr(stop, "find", known.get)
    return known


def has(units: dict[str, Unit], name: str, active: str, boots: str, **more: Any) -> None:
    units[name] = unit(active, name=name, UnitFileState=boots, **more)


@pytest.mark.parametrize(
    ("own", "watch", "lines"),
    [
        (("inactive", "disabled"), ("inactive", "static"), []),
        (None, None, []),
        (
            ("active", "enabled"),
            ("active", "static"),
            [
                f"stop {UNIT} (active, enabled)",
                f"stop {WATCH} (active, static)",
                f"disable {UNIT} (enabled)",
            ],
        ),
        (("inactive", "enabled"), None, [f"disable {UNIT} (enabled)"]),
        (("failed", "disabled"), None, [f"stop {UNIT} (failed, disabled)"]),
        (None, ("active", "static"), [f"stop {WATCH} (active, static)"]),
    ],
)
def test_the_lines_of_a_stop_by_name(
    units: dict[str, Unit],
    own: tuple[str, str] | None,
    watch: tuple[str, str] | None,
    lines: list[str],
) -> None:
    for name, found in ((UNIT, own), (WATCH, watch)):
        if found is not None:
            has(units, name, *found)
    assert step.lines(stop.unit_steps("kimi", Paths())) == lines


def test_a_start_that_is_queued_is_stopped(units: dict[str, Unit]) -> None:
    has(units, UNIT, "inactive", "disabled", job=True)
    assert step.lines(stop.unit_steps("kimi", Paths())) == [f"stop {UNIT} (inactive, disabled)"]


STEP = UnitStep(UNIT, "ours", "the engine itself", "active", "enabled", False, (7,), (), "no", "")
OTHER = Refusal("foreign", "x", "no", "--policy all")


def of_stop(monkeypatch: pytest.MonkeyPatch, paths: Paths, **plan: Any) -> dict[str, Any]:
    """What the probe says of a stop of a configured engine."""
    made = Plan("kimi", "declared", True, (0,), **plan)
    monkeypatch.setattr(free, "plan", lambda *_, **__: made)
    stops: dict[str, Any] = {}
    configured = {"kimi": replace(ENGINE, name="kimi", unit=UNIT)}
    forecast.look(stops, {}, {"stop": ["kimi"]}, HostConfig(), configured, paths)
    return dict(stops["kimi"])


def test_a_stop_ends_what_its_plan_names_and_says_each_unit_once(
    monkeypatch: pytest.MonkeyPatch, paths: Paths, units: dict[str, Unit]
) -> None:
    has(units, UNIT, "active", "enabled")
    found = of_stop(monkeypatch, paths, units_to_stop=(STEP,))
    stops = [line for line in found["lines"] if line.strip().startswith(f"stop {UNIT}")]
    assert len(stops) == 1 and "ours" in stops[0]
    assert found["lines"][-1] == f"disable {UNIT} (enabled)"


def test_others_on_its_gpus_do_not_keep_a_stop_from_its_units(
    monkeypatch: pytest.MonkeyPatch, paths: Paths, units: dict[str, Unit]
) -> None:
    has(units, UNIT, "active", "enabled")
    found = of_stop(monkeypatch, paths, units_to_stop=(STEP,), refused=(OTHER,))
    assert found["lines"] == [f"stop {UNIT} (active, enabled)", f"disable {UNIT} (enabled)"]


def test_a_stop_that_would_be_refused_is_told(
    monkeypatch: pytest.MonkeyPatch, paths: Paths, units: dict[str, Unit]
) -> None:
    has(units, UNIT, "active", "enabled")
    blind = Refusal(UNSEEN, UNIT, "systemd does not answer", "try again")
    found = of_stop(monkeypatch, paths, refused=(blind,))
    assert found["lines"] == [] and UNIT in found["refused"]


def test_what_is_down_has_no_lines(
    monkeypatch: pytest.MonkeyPatch, paths: Paths, units: dict[str, Unit]
) -> None:
    assert of_stop(monkeypatch, paths, notes=("a note",)) == {"lines": [], "refused": None}


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was done, in its order."""
    done: list[str] = []

    def execute(plan: Plan, say: Any) -> FreeResult:
        done.append("free")
        return FreeResult(1, "GPU 0 is not free", "not-free")

    def systemctl(*arguments: str, timeout_s: float = 0) -> Result:
        done.append(arguments[0])
        return Result(0, "", "")

    monkeypatch.setattr(free, "execute", execute)
    monkeypatch.setattr(stop.systemctl, "call", systemctl)
    return done


def test_a_plan_of_a_stop_does_nothing(
    monkeypatch: pytest.MonkeyPatch, paths: Paths, units: dict[str, Unit], calls: list[str]
) -> None:
    has(units, UNIT, "active", "enabled")
    assert of_stop(monkeypatch, paths, units_to_stop=(STEP,))["lines"]
    assert calls == []


def test_a_stop_that_cannot_free_the_gpus_still_keeps_the_engine_down(
    monkeypatch: pytest.MonkeyPatch, paths: Paths, units: dict[str, Unit], calls: list[str]
) -> None:
    made = Plan("kimi", "declared", True, (0,), units_to_stop=(STEP,))
    monkeypatch.setattr(free, "plan", lambda *_, **__: made)
    paths.engine_state("kimi").mkdir(parents=True)
    release.write_state("kimi", release.State("live"), paths)
    engine = replace(ENGINE, name="kimi", unit=UNIT)
    with pytest.raises(Failed, match="GPU 0 is not free"):
        stop.stop(engine, paths, print)
    assert calls == ["free", "stop", "stop", "disable", "reset-failed"]
    state = release.read_state("kimi", paths)
    assert state is not None and state.phase == "stopped"
