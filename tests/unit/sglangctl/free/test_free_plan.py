"""Plans from made-up situations: what may be ended, what refuses, and what would allow it."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglangctl.free import planning, verdicts
from sglangctl.free.model import Plan, Situation
from sglangctl.free.text import plan_document, plan_lines
from sglangctl.gpu import gpus
from sglangctl.holders import classes
from sglangctl.holders.survey import Holder
from sglangctl.state.config import HostConfig
from sglangctl.systemd.containers import Container
from sglangctl.util import terminal
from tests.support.free_plans import GONE, KIMI, QWEN, VLLM, holder, plan, unit

BOX = "e" * 64
FREE = "on the host: sglangctl free kimi"


def ends(made: Plan) -> list[int]:
    return [item.pid for item in made.processes_to_end]


def test_nothing_to_do() -> None:
    made = plan(engine=replace(KIMI, replaces=()))
    assert made.empty
    assert plan_lines(made) == ["GPUs 0, 1 of kimi: nothing is in the way"]
    assert plan_document(made)["empty"] is True


def test_a_unit_that_is_not_there_is_noted_and_no_failure() -> None:
    note = (
        "note: `replaces` of kimi names vllm-kimi.service, and this host has no such unit (removed "
        "since, or misspelt)"
    )
    made = plan()
    assert plan_lines(made) == ["GPUs 0, 1 of kimi: nothing is in the way", note]
    assert not made.refused
    stopped = unit("vllm-kimi.service", ActiveState="inactive", UnitFileState="disabled")
    assert note not in plan_lines(plan(units=(stopped,)))


def test_the_hint_stops_the_engine_too_where_that_is_on_these_gpus() -> None:
    own = holder(6, "ours", system_unit="sglang-kimi.service")
    units = (GONE, unit("sglang-kimi.service"))
    (refusal,) = plan(holder(5, "foreign"), own, units=units, stop=True).refused
    assert refusal.allow == f"{FREE} --stop --policy all"


@pytest.mark.parametrize(
    ("class_", "allowed_by"),
    [
        ("replaced", {"declared", "engines", "all"}),
        ("engine", {"engines", "all"}),
        ("foreign", {"all"}),
        ("sibling", set()),
        ("protected", set()),
        ("ours", set()),
    ],
)
def test_who_may_be_ended_by_which_policy(class_: str, allowed_by: set[str]) -> None:
    for policy in classes.POLICIES:
        made = plan(holder(7, class_, system_unit="sglang-kimi.service"), policy=policy)
        assert (ends(made) == [7]) == (policy in allowed_by), policy
        # What may not be ended refuses the whole plan; the protected stay and are not in the way.
        refuses = policy not in allowed_by and class_ != "protected"
        assert bool(made.refused) == refuses, policy
        assert [item.pid for item in made.kept] == ([7] if class_ == "protected" else [])


def test_what_is_never_ended_and_keeps_a_gpu_full_is_a_refusal_before_anything_is_stopped() -> None:
    """A desktop with 60 GB: the vLLM would be stopped, and the GPU not free all the same."""
    desktop = holder(7, "protected", memory_mib={0: 61440})
    vllm = holder(8, "replaced", system_unit="vllm-kimi.service")
    made = plan(desktop, vllm, units=(VLLM,))
    (refusal,) = made.refused
    assert (refusal.pid, refusal.class_, refusal.gpus) == (7, "protected", (0,))
    assert "61440 MiB of GPU 0" in refusal.reason and "leave this GPU out" in refusal.allow
    # Several together; on another GPU, or below the limit, they are in nobody's way.
    two = [holder(pid, "protected", memory_mib={1: 600, 3: 9000}) for pid in (7, 9)]
    assert [item.gpus for item in plan(*two).refused] == [(1,)]
    assert not plan(holder(7, "protected", memory_mib={0: 1000, 1: 1000, 2: 9000})).refused
    assert not plan(holder(7, "protected", memory_mib={0: None})).refused


def test_a_refusal_says_who_why_and_the_exact_line_that_would_allow_it() -> None:
    made = plan(holder(41, "engine"), holder(42, "replaced"))
    (refusal,) = made.refused
    assert (refusal.pid, refusal.allow) == (41, f"{FREE} --policy engines")
    lines = plan_lines(made)
    assert lines[0] == (
        "refused, nothing is changed: title of 41 (pid 41) may not be ended, and uses GPUs 0, 1 of kimi"
    )
    assert "  41 title of 41 (engine, GPU 0): made up as engine" in lines
    assert f"    allowed by: {FREE} --policy engines" in lines
    assert any(line.startswith("otherwise it would end 42") for line in lines)
    assert "note: started by hand, without a unit of their own (41): nothing to go back to" in lines


def test_processes_of_one_remedy_have_it_said_once() -> None:
    lines = plan_lines(plan(holder(41, "engine"), holder(42, "engine"), holder(43, "foreign")))
    remedies = [(at, line) for at, line in enumerate(lines) if "allowed by: " in line]
    assert [line.rpartition(" ")[2] for at, line in remedies] == ["engines", "all"]
    assert [lines[at - 1].split()[0] for at, line in remedies] == ["42", "43"]


@pytest.mark.parametrize(
    ("item", "allow"),
    [
        (
            holder(5, "engine", system_unit="ollama.service"),
            f"`replaces: [ollama.service]` of kimi in the inventory, or {FREE} --policy engines",
        ),
        (holder(5, "engine", system_unit="session-3.scope"), f"{FREE} --policy engines"),
        (
            holder(5, "engine", system_unit="user@1000.service", unit="vllm.service"),
            f"{FREE} --policy engines",
        ),
        (
            holder(5, "engine", container=BOX, container_name="vllm-box"),
            f"`containers: [vllm-box]` in the inventory, or {FREE} --policy engines",
        ),
        (holder(5, "foreign"), f"{FREE} --policy all"),
        (
            holder(5, "ours", system_unit="sglang-kimi.service"),
            f"{FREE} --stop (it is kimi itself)",
        ),
    ],
)
def test_what_would_allow_it(item: Holder, allow: str) -> None:
    (refusal,) = plan(item).refused
    assert refusal.unit == item.system_unit, "a user's own unit is not what systemctl stop takes"
    assert refusal.allow == allow


def test_a_sibling_is_in_the_way_only_where_gpus_overlap() -> None:
    # It has all devices open, as every CUDA process has; the inventory gives it 2 and 3.
    sibling = holder(6, "sibling", (0, 1, 2, 3), system_unit=QWEN.unit)
    made = plan(sibling)
    assert not made.refused
    assert [item.pid for item in made.kept] == [6]
    on_ours = replace(sibling, memory_mib={1: 5000})
    (refusal,) = plan(on_ours, policy="all").refused
    assert "no policy ends a sibling" in refusal.allow
    assert plan(sibling, engine=replace(KIMI, gpus="all"), policy="all").refused
    assert plan(sibling, engine=replace(KIMI, gpus=(2,)), policy="all").refused


def test_processes_on_other_gpus_are_left_out_of_every_decision() -> None:
    others = [holder(8, name, (2,)) for name in ("engine", "foreign", "sibling", "protected")]
    for policy in classes.POLICIES:
        made = plan(*others, policy=policy)
        assert made.empty and not made.kept


def test_a_replaced_unit_is_stopped_and_disabled_with_all_that_is_in_it() -> None:
    made = plan(
        holder(20, "replaced", system_unit="vllm-kimi.service"),
        holder(21, "replaced", (), system_unit="vllm-kimi.service"),
        units=(VLLM,),
    )
    (step,) = made.units_to_stop
    assert (step.unit, step.disable, step.pids, step.enabled) == (
        "vllm-kimi.service",
        True,
        (20, 21),
        "enabled",
    )
    assert ends(made) == []
    assert plan_lines(made) == [
        "stop and disable vllm-kimi.service (replaced; active, enabled, 2 processes): "
        "the inventory replaces it",
        "  ends with it: 20 title of 20 (replaced, GPU 0, user bob)",
        "  ends with it: 21 title of 21 (replaced, user bob)",
    ]


@pytest.mark.parametrize(
    ("properties", "stopped", "disabled"),
    [
        ({"ActiveState": "inactive"}, True, True),  # enabled: it would come at the next boot
        ({"ActiveState": "activating", "UnitFileState": "disabled"}, True, False),
        ({"ActiveState": "failed", "UnitFileState": "static"}, False, False),
        ({"ActiveState": "inactive", "UnitFileState": "disabled"}, False, False),
        ({"LoadState": "not-found", "ActiveState": "inactive", "UnitFileState": ""}, False, False),
    ],
)
def test_replaced_units_that_hold_nothing(
    properties: dict[str, str], stopped: bool, disabled: bool
) -> None:
    made = plan(units=(unit("vllm-kimi.service", **properties),))
    assert [step.disable for step in made.units_to_stop] == ([disabled] if stopped else [])


def test_a_failed_unit_with_processes_left_is_still_stopped() -> None:
    dead = unit("vllm-kimi.service", ActiveState="failed", UnitFileState="static")
    made = plan(holder(30, "replaced", system_unit="vllm-kimi.service"), units=(dead,))
    assert [step.pids for step in made.units_to_stop] == [(30,)]


def test_orphans_of_a_replaced_unit_are_ended_also_without_a_gpu() -> None:
    made = plan(holder(31, "replaced", ()), holder(32, "engine", (), ports=(8000,)))
    assert ends(made) == [31]
    assert not made.refused


def test_an_engines_port_holder_goes_with_it() -> None:
    family = {"session": 50, "uid": 9}
    worker = holder(51, "engine", **family)
    server = holder(52, "engine", (), ports=(8000,), **family)
    stranger = holder(53, "engine", (), ports=(8000,), session=60, uid=9)
    assert ends(plan(worker, server, stranger, policy="engines")) == [51, 52]
    assert ends(plan(server, policy="engines")) == []


def test_ours_is_stopped_by_stop_alone_and_never_disabled() -> None:
    mine = unit("sglang-kimi.service")
    item = holder(60, "ours", system_unit=mine.name)
    assert plan(item, units=(mine,), policy="all").refused
    made = plan(item, units=(mine,), stop=True)
    assert [(step.unit, step.class_, step.disable) for step in made.units_to_stop] == [
        ("sglang-kimi.service", "ours", False)
    ]
    assert not made.refused


def test_replaces_may_not_name_an_engine_of_the_inventory() -> None:
    engine = replace(KIMI, replaces=("sglang-qwen.service",))
    made = plan(engine=engine, units=(unit("sglang-qwen.service"),), policy="all")
    (refusal,) = made.refused
    assert "`replaces` names the unit of qwen" in refusal.reason
    assert made.units_to_stop == ()


def test_a_protected_process_inside_what_would_be_stopped_refuses() -> None:
    made = plan(
        holder(70, "replaced", system_unit="vllm-kimi.service"),
        holder(71, "protected", (), system_unit="vllm-kimi.service"),
        units=(VLLM,),
        policy="all",
    )
    (refusal,) = made.refused
    assert refusal.pid == 71
    assert "inside vllm-kimi.service" in refusal.reason


def test_an_undeclared_service_is_stopped_whole_only_if_it_is_the_engine() -> None:
    ollama = unit("ollama.service", MainPID="80", Restart="always")
    main = holder(80, "engine", system_unit="ollama.service")
    child = holder(81, "engine", system_unit="ollama.service")
    made = plan(main, child, units=(ollama,), policy="engines")
    assert [(step.unit, step.disable) for step in made.units_to_stop] == [("ollama.service", False)]
    assert ends(made) == []
    assert any("ollama.service is stopped and not disabled" in note for note in made.notes)
    # Its main process is something else (cron, sshd, a shell): only the engine is ended.
    cron = replace(ollama, properties={**ollama.properties, "MainPID": "79"})
    made = plan(child, units=(cron,), policy="engines")
    assert made.units_to_stop == ()
    assert ends(made) == [81]
    assert any("has Restart=always and will start 81 again" in note for note in made.notes)


def test_a_scope_or_a_users_manager_is_never_stopped_whole() -> None:
    for name in ("session-3.scope", "user@1000.service"):
        login = unit(name, MainPID="90")
        made = plan(holder(91, "engine", system_unit=name), units=(login,), policy="all")
        assert made.units_to_stop == ()
        assert ends(made) == [91]


def test_timers_that_start_it_again_are_named() -> None:
    made = plan(units=(unit("vllm-kimi.service", TriggeredBy="vllm.timer vllm.socket"),))
    assert [note.split()[0] for note in made.notes] == ["vllm.timer", "vllm.socket"]


def test_a_container_is_stopped_through_its_engine_only_if_named() -> None:
    box = {BOX: Container(BOX, "vllm-box", "docker", "always")}
    inside = holder(95, "replaced", container=BOX, container_name="vllm-box")
    made = plan(inside, containers=box, host=HostConfig(containers=("vllm-box",)))
    assert [(step.name, step.pids) for step in made.containers_to_stop] == [("vllm-box", (95,))]
    assert ends(made) == []
    other = replace(inside, class_="engine")
    made = plan(other, containers=box, policy="engines")
    assert made.containers_to_stop == ()
    assert ends(made) == [95]
    assert any("restart policy always" in note for note in made.notes)


def test_the_plan_is_a_document_and_harmless_text() -> None:
    nasty = holder(99, "engine", title="VLLM::\\x1b[31m", command=("VLLM::\x1b[31m",))
    made = plan(replace(nasty, title=terminal.escaped("VLLM::\x1b[31m\n$(reboot)")))
    document = json.loads(json.dumps(plan_document(made)))
    assert document["refused"][0]["class"] == "engine"
    assert document["lines"] == plan_lines(made)
    assert all(line == terminal.escaped(line) for line in plan_lines(made))


def test_what_cannot_be_known_is_said() -> None:
    made = plan(reading=gpus.Reading(None, None, "no driver"), unreadable=3, pidfds=False)
    assert any("memory on the GPUs cannot be checked: no driver" in note for note in made.notes)
    assert any("run it as root" in note for note in made.notes)
    assert any("pidfds" in note for note in made.notes)


CLASS = st.sampled_from(classes.CLASSES)
UNITS = st.sampled_from([None, "vllm-kimi.service", "sglang-kimi.service", "sglang-qwen.service"])
HOLDERS = st.lists(
    st.builds(
        lambda pid, class_, uses, name: holder(pid, class_, tuple(sorted(uses)), system_unit=name),
        st.integers(1, 40),
        CLASS,
        st.sets(st.integers(0, 4)),
        UNITS,
    ),
    max_size=8,
    unique_by=lambda item: item.pid,
)


@given(found=HOLDERS, policy=st.sampled_from(sorted(classes.POLICIES)), stop=st.booleans())
def test_never_ever(found: list[Holder], policy: str, stop: bool) -> None:
    """Whatever the situation: no protected or sibling process is ended singly, ours only with
    stop, and everything on the engine's GPUs is either ended, kept, or refuses the plan."""
    made = plan(*found, policy=policy, stop=stop, units=(VLLM, unit("sglang-kimi.service")))
    for item in made.processes_to_end:
        assert item.class_ in classes.POLICIES[policy]
    stopped = {step.unit for step in made.units_to_stop}
    assert QWEN.unit not in stopped
    assert (KIMI.unit in stopped) <= stop
    handled = {item.pid for item in (*made.processes_to_end, *made.kept)}
    handled |= {refusal.pid for refusal in made.refused if refusal.pid}
    for item in found:
        if {0, 1} & set(item.uses) and item.system_unit not in stopped:
            assert item.pid in handled
        if not {0, 1} & set(item.uses) and item.class_ in ("engine", "foreign"):
            assert item.pid not in handled


GPU = gpus.Gpu(0, "u", "n", "b", "12.0", 10, 97887, 0, 30.0, "580", power_limit_w=600.0)


@pytest.mark.parametrize(
    ("gpu", "verdict"),
    [
        (GPU, None),
        (replace(GPU, memory_used_mib=None, utilization_pct=None, power_w=None), None),
        (replace(GPU, memory_used_mib=1023), None),
        (replace(GPU, memory_used_mib=1024), verdicts.MEMORY_WITHOUT_HOLDER),
        (
            replace(GPU, memory_used_mib=5000, processes=((77, 5000),)),
            verdicts.MEMORY_OF_PROTECTED,
        ),
        (replace(GPU, utilization_pct=100, power_w=110.0), verdicts.WEDGED),
        (replace(GPU, utilization_pct=100, power_w=110.0, power_limit_w=None), verdicts.WEDGED),
        (replace(GPU, utilization_pct=100, power_w=500.0), None),
        (replace(GPU, utilization_pct=100, power_w=110.0, processes=((5, 100),)), None),
        (replace(GPU, error="lost"), verdicts.UNKNOWN_GPU),
    ],
)
def test_what_the_gpus_say_once_nobody_is_left(gpu: gpus.Gpu, verdict: str | None) -> None:
    found = verdicts.of_gpus([gpu], None, [77], KIMI.limits)
    assert (found.name if found else None) == verdict
    # A GPU that the engine does not use is nobody's business.
    assert verdicts.of_gpus([gpu, replace(GPU, index=1)], [1], [77], KIMI.limits) is None


def test_the_wedged_sentence_and_missing_gpus() -> None:
    found = verdicts.of_gpus(
        [replace(GPU, utilization_pct=100, power_w=110.0)], [0], [], KIMI.limits
    )
    assert (
        found
        and "needs a GPU reset or reboot; killing more processes cannot help" in found.sentence
    )
    found = verdicts.of_gpus([GPU], [0, 7], [], KIMI.limits)
    assert found and "names GPU 7, which this host does not have" in found.sentence
    assert verdicts.of_gpus(None, [0], [], KIMI.limits) is None


@pytest.mark.parametrize(
    ("state", "frozen", "name"),
    [
        ("D", False, verdicts.STUCK_IN_KERNEL),
        ("D", True, verdicts.FROZEN),
        ("S", False, verdicts.NOT_ENDED),
        ("S", True, verdicts.FROZEN),
    ],
)
def test_survivors_need_a_person(state: str, frozen: bool, name: str) -> None:
    found = verdicts.of_survivor(5, "x", state, "nvidia_wait", frozen)
    assert found.name == name
    if name == verdicts.STUCK_IN_KERNEL:
        assert "in nvidia_wait" in found.sentence and "reboot" in found.sentence


def test_of_what_is_replaced_alone_the_engine_runs_on() -> None:
    """`free --replaced`: nobody on the engine's GPUs is in the way, the engine itself included."""
    ours = holder(5, "ours", system_unit="sglang-kimi.service")
    theirs = holder(6, "replaced", system_unit="vllm-kimi.service")
    stray = holder(7, "foreign")
    members = {"vllm-kimi.service": (6,), "sglang-kimi.service": (5,)}
    units = (VLLM, unit("sglang-kimi.service"))
    made = plan(ours, theirs, stray, engine=replace(KIMI, gpus=()), units=units, members=members)
    assert not made.refused
    assert [(step.unit, step.disable) for step in made.units_to_stop] == [
        ("vllm-kimi.service", True)
    ]
    assert ends(made) == []
    down = plan(ours, engine=replace(KIMI, gpus=()), units=(GONE,))
    assert plan_lines(down)[0] == "what kimi replaces: nothing is in the way"


@pytest.mark.parametrize(
    ("state", "members", "stops", "starting"),
    [
        ("active", (), True, False),
        ("activating", (7,), True, True),
        ("failed", (7,), True, False),
        ("failed", (), False, False),
    ],
)
def test_its_own_unit_is_stopped_where_it_runs_or_has_left_something_running(
    state: str, members: tuple[int, ...], stops: bool, starting: bool
) -> None:
    own = unit("sglang-kimi.service", ActiveState=state)
    facts = {"units": (GONE, own), "members": {own.name: members, "x": (1,)}}
    steps = plan(stop=True, **facts).units_to_stop
    assert [step.starting for step in steps] == ([starting] if stops else [])
    assert plan(**facts).empty


@pytest.mark.parametrize(
    ("state", "enabled", "members", "stops"),
    [
        ("active", "disabled", (), True),
        ("inactive", "enabled", (), True),
        ("failed", "disabled", (7,), True),
        ("inactive", "disabled", (), False),
    ],
)
def test_a_replaced_unit_is_stopped_where_it_runs_or_would_again(
    state: str, enabled: str, members: tuple[int, ...], stops: bool
) -> None:
    old = unit("vllm-kimi.service", ActiveState=state, UnitFileState=enabled)
    steps = plan(units=(old,), members={old.name: members, "x": (1,)}).units_to_stop
    assert [step.disable for step in steps] == ([enabled == "enabled"] if stops else [])


def test_a_plan_leaves_its_own_unit_alone_unless_it_is_told() -> None:
    own = unit("sglang-kimi.service")
    situation = Situation(
        engine=KIMI,
        host=HostConfig(),
        siblings=(),
        holders=(),
        reading=gpus.Reading((), "nvml"),
        units={own.name: own},
        members={},
        containers={},
    )
    assert not planning.make(situation).units_to_stop
    assert len(planning.make(situation, stop=True).units_to_stop) == 1


def test_a_user_with_many_processes_fills_neither_the_screen_nor_the_answer() -> None:
    """Anybody can open a GPU in 30,000 processes, and call them like an engine."""
    for class_ in ("foreign", "engine"):
        made = plan(*(holder(pid, class_) for pid in range(5, 2005)), units=(GONE,))
        lines = plan_lines(made)
        assert len(lines) < 120 and "  and 1950 more" in lines
        assert max(map(len, lines)) < 500
        assert len(plan_document(made)["refused"]) == 200 and len(made.refused) == 2000


@pytest.mark.timeout(30)
@pytest.mark.parametrize(("policy", "ended"), [("declared", 0), ("all", 30_000)])
def test_a_plan_does_not_compare_each_process_with_each(policy: str, ended: int) -> None:
    """2,000 took 6 s of a processor: anybody could keep a host from its deploys."""
    made = plan(*(holder(pid, "foreign") for pid in range(5, 30_005)), policy=policy)
    assert len(made.processes_to_end) == ended and len(made.refused) == 30_000 - ended
