"""What a plan comes to for each engine, and how it is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from roles.engine.desired import DesiredEngine, desired_engine
from roles.host.managed import Change
from roles.inventory import locked
from roles.report import choice
from roles.switch.choosing import beside, choice_of
from roles.switch.decision import decision_of
from roles.switch.operations import measured_before
from roles.switch.values import of_diff, values
from tests.support.host_facts import facts_of
from tests.support.inventory_case import engine, engine_text, load, only

WANTED = desired_engine(engine())


def chosen(facts: dict[str, Any], wanted: DesiredEngine = WANTED) -> choice.Choice:
    return choice_of(wanted, [], facts, "gpu1")


def test_all_as_it_should_be_stays() -> None:
    assert chosen(facts_of(WANTED)) == choice.Choice(WANTED.name, choice.STAYS)


def test_a_wrong_mode_and_a_disabled_unit_are_repaired_without_a_stop() -> None:
    facts = facts_of(WANTED, unit={"ActiveState": "active", "UnitFileState": "disabled"})
    facts["files"][WANTED.spec.log_folder]["mode"] = "0777"
    found = chosen(facts)
    assert found.action == choice.REPAIR and found.own == 0
    assert "start at boot" in found.reasons[0] and "0777" in found.reasons[1]


def test_a_changed_value_is_the_reason_and_the_last_start_the_estimate() -> None:
    facts = facts_of(WANTED, releases={"current": "b" * 64})
    path = f"{WANTED.spec.current}/engine.yaml"
    old = WANTED.live_files["engine.yaml"].masked.replace("port: ", "port: 1")
    facts["files"][path] = {**facts["files"][path], "sha256": "0" * 64, "text": old}
    plan = {"units_to_stop": [{"unit": WANTED.spec.unit, "pids": [1, 2]}]}
    facts["plans"] = {WANTED.name: plan}
    found = chosen(facts)
    assert found.action == choice.RESTART and found.without_s == 174.0 and found.own == 2
    port = WANTED.spec.port
    assert found.reasons == (f"port 1{port} -> {port}",)


@pytest.mark.parametrize(
    ("kind", "without_s", "phases"),
    [
        ("plain", 48.0, {"launching": 0.5, "importing": 31.0, "loading": 15.0}),
        ("gated", 15.0, {"loading": 15.0}),
    ],
)
def test_what_comes_up_to_a_gate_is_not_without_service(
    kind: str, without_s: float, phases: dict[str, float]
) -> None:
    """The last start was gated: it waited there for 6 s."""
    facts = facts_of(WANTED, releases={"current": "b" * 64})
    seconds = {"launching": 0.5, "importing": 31.0, "gated": 6.0, "loading": 15.0, "serving": 9.0}
    facts["engines"][WANTED.name]["last"] = {"served_after_s": 54.0, "phases": {**seconds, "x": 1}}
    plan = {"units_to_stop": [{"unit": WANTED.spec.unit, "pids": [1]}]}
    facts["plans"] = {WANTED.name: {**plan, "cutover": {"kind": kind, "reason": "because"}}}
    found = chosen(facts)
    assert (found.without_s, found.phases) == (without_s, phases)
    told = choice.of_engine(found, 100)[1]
    assert told.strip().startswith(f"about {without_s:.0f} s without service (")
    assert "loading 15 s" in told and "launching" not in told


NEVER = desired_engine(engine("restart: never"))


def changed(**about: Any) -> dict[str, Any]:
    """Another release is live."""
    return facts_of(NEVER, releases={"current": "b" * 64}, **about)


def test_what_runs_is_not_stopped_where_the_inventory_says_never() -> None:
    facts = changed()
    decision = decision_of(NEVER)(facts)
    assert decision.needed and decision.held and not decision.now
    found = chosen(facts, NEVER)
    assert found.action == choice.DUE and found.own == 0
    told = choice.lines([found], 200)
    assert "DUE" in told[0] and "`restart: never`" in told[0]
    assert told[-1].endswith("deploys/sglang.py --data restart=auto --limit gpu1")
    assert not decision_of(WANTED)(changed()).held


def test_never_holds_for_what_others_run_and_not_for_what_is_down() -> None:
    down = changed(unit={"ActiveState": "inactive"})
    assert decision_of(NEVER)(down).now and chosen(down, NEVER).action == choice.START
    stop = [{"unit": "vllm.service", "pids": [1, 2, 3]}]
    taking = {**down, "plans": {NEVER.name: {"units_to_stop": stop}}}
    assert decision_of(NEVER)(taking).held
    assert "vllm.service (3 processes)" in "".join(chosen(taking, NEVER).reasons)
    assert chosen(facts_of(NEVER), NEVER).action == choice.STAYS


def test_what_is_somebody_elses_is_named() -> None:
    facts = facts_of(WANTED, releases={"current": None}, unit=None)
    others = [{"pid": 9, "class": "ours"}, {"pid": 8, "class": "foreign"}]
    stop = [{"unit": "vllm.service", "pids": [1, 2, 3]}]
    facts["plans"] = {WANTED.name: {"units_to_stop": stop, "processes_to_end": others}}
    found = chosen(facts)
    assert found.action == choice.REPLACE and found.own == 1
    assert any("ends 1 process of its own" in line for line in choice.lines([found], 100))
    assert found.ends == ("vllm.service (3 processes)", "1 process of others")


def test_a_stranger_on_the_gpus_of_an_engine_that_stays_is_named() -> None:
    refusal = {"who": "python3", "pid": 42, "reason": "nobody declared it", "allow": "free e"}
    facts = facts_of(WANTED)
    facts["plans"] = {WANTED.name: {"refused": [refusal]}}
    found = chosen(facts)
    assert found.action == choice.STAYS
    (note,) = found.notes
    assert "python3 (pid 42) is on its GPUs too" in note
    # Not `allow`: that is what a switch would need, and it stops the engine that serves.
    assert note.endswith("To end that alone, on the host: kill 42")
    facts["engines"][WANTED.name]["unit"]["ActiveState"] = "failed"
    assert chosen(facts).notes == (), "the preflight fails the host for it"


def test_a_first_start_ends_nothing() -> None:
    found = chosen(facts_of(WANTED, releases=None, unit=None, last=None))
    assert (found.action, found.without_s) == (choice.START, None)


def test_what_fails_is_told_first_and_what_stays_in_one_line() -> None:
    facts = facts_of(WANTED, releases=None, unit=None)
    fatal = {"id": "weights-missing", "level": "fail", "seen": "not there", "fix": "copy it"}
    facts["preflight"] = {WANTED.name: [fatal]}
    failing = chosen(facts)
    assert "not there" in failing.fails[0]
    stays = [choice.Choice(name, choice.STAYS) for name in ("a", "b")]
    told = choice.lines([*stays, choice.Choice("c", choice.REPAIR, ("x",)), failing], 80)
    assert "START" in told[0] and "will fail" in told[1] and "a, b" in told[-1]
    assert len(told) == 4


def test_a_hosts_words_do_not_reach_the_terminal_as_they_are() -> None:
    told = choice.lines([choice.Choice("c", choice.LEFT, ("\x1b]0;x\x07",), command="\x07")], 80)
    assert not any("\x07" in line for line in told)


@pytest.mark.parametrize(
    ("diff", "told"),
    [
        (["-max-total-tokens: 8192", "+max-total-tokens: 4096"], "max-total-tokens 8192 -> 4096"),
        (['+NCCL_BUFFSIZE="8388608"'], "NCCL_BUFFSIZE 8388608 (new)"),
        (["-a-flag: 1"], "a-flag 1 (removed)"),
        (["--- /etc/x (now)", "+++ /etc/x", " same: 1", "+b: 2"], "b 2 (new)"),
    ],
)
def test_values_of_a_diff(diff: list[str], told: str) -> None:
    assert of_diff(diff) == [told]


def test_a_file_of_which_no_value_is_seen_is_named() -> None:
    secret = Change(WANTED.config, "changed", ("(only a secret's value differs)",))
    assert values([secret]) == [f"{WANTED.name}.json changed"]


def test_drop_ins_of_others_and_a_deleted_log_are_told() -> None:
    ours = "/run/systemd/system/x.d/50-sglangctl-switch.conf"
    unit = {
        "ActiveState": "active",
        "UnitFileState": "enabled",
        "DropInPaths": f"/etc/o.conf {ours}",
    }
    facts = facts_of(WANTED, unit=unit)
    assert chosen(facts).action == choice.STAYS
    assert "/etc/o.conf" in chosen(facts).notes[0] and ours not in chosen(facts).notes[0]
    assert "note" in choice.lines([chosen(facts)], 80)[1]
    facts["files"][WANTED.spec.log_folder] = {"kind": "absent"}
    assert chosen(facts).action == choice.REPAIR
    facts = facts_of(WANTED, unit=unit, log_deleted=True)  # the folder is there again
    assert chosen(facts).action == choice.STAYS
    assert "was deleted" in chosen(facts).notes[1] and "systemctl restart" in chosen(facts).notes[1]
    facts["engines"][WANTED.name]["releases"] = {"current": "b" * 64}
    assert len(chosen(facts).notes) == 1, "the restart opens it anew"


ACCEPTED = desired_engine(engine("acceptance: {limit_s: 20}"))


@pytest.mark.parametrize(
    ("links", "stops", "told"),
    [
        ({"current": "b" * 64}, True, True),
        ({"current": "b" * 64}, False, False),
        ({"current": "b" * 64, "previous": ACCEPTED.release.digest}, True, False),
        ({"current": "b" * 64, "known_good": ACCEPTED.release.digest}, True, False),
    ],
)
def test_the_plan_says_that_what_is_replaced_is_measured(
    links: dict[str, str], stops: bool, told: bool
) -> None:
    facts = facts_of(ACCEPTED, releases=links)
    units = [{"unit": ACCEPTED.spec.unit, "pids": [1]}] if stops else []
    facts["plans"] = {ACCEPTED.name: {"units_to_stop": units}}
    lines = measured_before(ACCEPTED, facts)
    assert len(lines) == told and all("at most 40 s" in line for line in lines)
    assert measured_before(WANTED, facts) == []


def test_processes_of_one_stranger_are_one_note() -> None:
    """Its engine has a scheduler and a detokenizer on the GPU, too."""
    by_hand = [{"who": "x", "pid": pid, "allow": "free e", "reason": "r"} for pid in (7, 8)]
    of_unit = [{"who": "y", "pid": 9, "unit": "their.service", "allow": "free e", "reason": "r"}]
    session = [{"who": "z", "pid": 5, "unit": "session-1.scope", "allow": "a", "reason": "r"}]
    manager = [{"who": "u", "pid": 6, "unit": "user@1.service", "allow": "b", "reason": "r"}]
    one, two, three, four = beside({"refused": [*by_hand, *of_unit, *session, *manager]})
    assert "(pid 7, 8)" in one and one.endswith("kill 7 8")
    assert two.endswith("systemctl stop their.service")
    assert three.endswith("kill 5"), "somebody's login is not ended for it"
    assert four.endswith("kill 6"), "nor all that a user runs"
    (unseen,) = beside({"refused": [{"who": "systemd", "allow": "x", "reason": "r"}]})
    assert "To end" not in unseen


def text_of(facts: dict[str, Any], wanted: DesiredEngine, **other: str) -> dict[str, Any]:
    """The live release with other lines in files: name -> (text, its other text)."""
    for name, text in other.items():
        path = f"{wanted.spec.current}/{name.replace('_', '.')}"
        facts["files"][path] = {**facts["files"][path], "sha256": "0" * 64, "text": text}
    return facts


def test_what_follows_from_another_value_is_no_reason_beside_it() -> None:
    """model.path is also among the mounts of the unit, and a version in each path of its environment."""
    (spec,) = only(load(engine_text("", "{path: /models/old}"))).spec.engines  # type: ignore[union-attr]
    facts = facts_of(desired_engine(spec))
    assert chosen(facts).reasons == (
        "model-path /models/old -> /m",
        "served-model-name old -> m",
    )
    facts = facts_of(desired_engine(engine("version: 0.5.16")))
    assert chosen(facts).reasons == ("version 0.5.16 -> 0.5.23",)
    facts = facts_of(desired_engine(engine("install: {python: python3.12}")))
    assert "environment changed" in chosen(facts).reasons[0] and len(chosen(facts).reasons) == 1


def locked_engine(folder: Path, torch: str, *more: str) -> DesiredEngine:
    """The engine with a lock."""
    hashed = " \\\n    --hash=sha256:" + "a" * 64 + "\n"
    pins = ("sglang==0.5.23", f"torch=={torch}", "tiktoken==0.12.0", *more)
    path = locked.path_of("e", folder)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(locked.written(pins[:1], "".join(pin + hashed for pin in pins)))
    return desired_engine(engine(folder=folder))


def test_a_changed_lock_is_told_by_its_packages(tmp_path: Path) -> None:
    old = locked_engine(tmp_path, "2.14.0", "gone==1.0")
    new = locked_engine(tmp_path, "2.14.1", "came==2.0")
    assert chosen(facts_of(old), new).reasons == (
        *("torch 2.14.0 -> 2.14.1", "came 2.0 (new)", "gone 1.0 (removed)"),
    )
    many = locked_engine(tmp_path, "2.14.1", *(f"p{number}==1.0" for number in range(200)))
    assert chosen(facts_of(desired_engine(engine())), many).reasons == ("202 packages (new)",)


def test_what_somebody_edited_is_called_that() -> None:
    text = WANTED.live_files["engine.yaml"].masked
    facts = text_of(facts_of(WANTED), WANTED, engine_yaml=f"{text}log-level: debug\n")
    assert chosen(facts).reasons == ("edited by hand: log-level debug (removed)",)
    facts = facts_of(WANTED)
    facts["files"][f"{WANTED.spec.current}/engine.yaml"] = {"kind": "absent"}
    assert chosen(facts).reasons == ("engine.yaml is missing",)


def test_an_edited_unit_is_told_by_its_values() -> None:
    unit = WANTED.installed_unit({})
    text = unit.masked.replace("RestartSec=10", "RestartSec=77")
    facts = facts_of(WANTED)
    facts["files"][unit.path] = {**facts["files"][unit.path], "sha256": "0" * 64, "text": text}
    assert "RestartSec 77 -> 10" in chosen(facts).reasons[0]


def test_of_a_command_line_only_the_other_words_are_told() -> None:
    diff = [
        "-ExecStart=/opt/sglang/venvs/a/bin/python -m x --old 1",
        "+ExecStart=/opt/sglang/venvs/b/bin/python -m x --new",
    ]
    assert of_diff(diff) == ["ExecStart --old 1 -> --new"]
