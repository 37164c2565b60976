"""Which side serves after a switch, and after one that was cut at any of its steps: on a made-up
systemd, which knows what runs and what is enabled."""

from __future__ import annotations

import errno
import io
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from sglangctl import free
from sglangctl.free.model import ContainerStep, FreeResult, Plan, Refusal, UnitStep
from sglangctl.proc.command import Result
from sglangctl.state import journal, ownership, release, slots
from sglangctl.state.config import EngineConfig, load_engine, siblings_of
from sglangctl.state.files import link_atomic
from sglangctl.state.paths import Paths
from sglangctl.switch import (
    back,
    before,
    cutover,
    cutover_facts,
    gate,
    live,
    on_demand,
    present,
    recorded_unit,
    transaction,
)
from sglangctl.switch.configure import engine_of
from sglangctl.switch.ended import Cancelled, Stopped
from sglangctl.switch.gate import GATING
from sglangctl.switch.journal import Record
from sglangctl.switch.outcome import Outcome
from sglangctl.switch.transaction import ALL_STEPS, COMMITTING, STEPS, Wanted
from sglangctl.systemd import containers, systemctl
from sglangctl.systemd.unit import Unit
from sglangctl.util.errors import Failed
from tests.support.engine_host import write_config
from tests.support.unit_files import OURS
from tests.support.units import unit

OLD, NEW = "a" * 64, "b" * 64
SLOTS = ("sglang-tiny_a.service", "sglang-tiny_b.service")
MOVE = slots.move
UNIT, WATCH, VLLM = "sglang-tiny.service", "sglang-watch@tiny.service", "vllm.service"
BOX = ContainerStep("c" * 64, "vllm-box", "docker", "no", ())
PORT_BEFORE, PORT_AFTER = 30000, 30007


class Cut(BaseException):
    """kill -9, or the power: nothing more is done."""


@dataclass
class Machine:
    """What systemd has to say. A release serves if it is in `good`."""

    paths: Paths
    good: set[str] = field(default_factory=lambda: {OLD, NEW})
    running: set[str] = field(default_factory=set)
    enabled: set[str] = field(default_factory=set)
    queued: set[str] = field(default_factory=set)
    """Units whose start waits for another's: no process of theirs is there yet."""
    slow: bool = False
    """Starts stay queued."""
    said: list[str] = field(default_factory=list)
    refused: tuple[Refusal, ...] = ()
    cut_at: str | None = None
    cut_of: str | None = None
    """Only of the switch to this release."""
    ended_by: Failed | None = None
    """What a signal raises while the start is followed."""
    outcome: Outcome | None = None
    """Of every start, whatever is in `good`."""
    cause: str = "rank-died"
    """Of every start that fails."""
    tried: list[str] = field(default_factory=list)
    """The releases that were started, in their order."""
    starts: int = 0
    allowed: bool = True
    """Whether the unit restarted by itself when it was started last."""
    gated: bool = False
    """Switches start the new engine at its gate, beside what serves."""
    at_gate: Outcome | None = None
    """Of every start that does not come to its gate."""
    own: bool = True
    """systemd has the engine's name as a unit of its own: others refer to it."""

    def record(self) -> Record:
        made = Record(self.paths.root / f"journal-{self.starts}.jsonl")
        made.say = self.said.append  # type: ignore[method-assign]
        return made

    def systemctl(self, *arguments: str, timeout_s: float = 0) -> Result:
        units = [word for word in arguments[1:] if word.endswith(".service")]
        self.reload(arguments[0] == "daemon-reload")
        if arguments[0] in ("start", "restart"):
            if self.slow:
                self.queued |= set(units)
                return Result(0, "", "")
            self.running |= set(units)
            if {UNIT, *SLOTS} & set(units):
                self.starts += 1
                self.allowed = not self.no_restarts.exists()
        elif arguments[0] == "stop":
            self.running -= set(units)
            self.queued -= set(units)
        elif arguments[0] == "enable":
            self.enabled |= set(units)
        elif arguments[0] == "disable":
            self.enabled -= set(units)
        return Result(0, "", "")

    def reload(self, now: bool = True) -> None:
        """What would end systemd: the dead state of the name's own unit over that of a slot that runs.
        Somebody else may reload at any moment."""
        assert not (self.own and self.unit in self.running and self.unit in SLOTS)
        if now:
            self.own = self.unit == UNIT

    def find(self, name: str) -> Unit:
        state = "active" if name in self.running else "inactive"
        job = name in self.queued
        boots = "enabled" if name in self.enabled else "disabled"
        serial = str(self.starts)
        return unit(state, invocation_id=serial, job=job, name=name, UnitFileState=boots)

    def plan(
        self, engine: EngineConfig, *_: Any, policy: str, stop: bool, waiting: str | None = None
    ) -> Plan:
        names = [one for one in (*engine.replaces, engine.unit) if one in self.running]
        steps = tuple(
            UnitStep(one, "replaced", "", "active", "", one not in {UNIT, *SLOTS}, (), (), "", "")
            for one in names
        )
        boxes = (BOX,) if BOX.name in self.running else ()
        return Plan(
            engine.name, policy, stop, None, steps, containers_to_stop=boxes, refused=self.refused
        )

    def begin_at_gate(self, engine: EngineConfig, way: gate.Gate, to: str, paths: Paths) -> None:
        assert way.before in self.running or not self.running & {UNIT, *SLOTS}
        assert slots.live_unit("tiny", paths) == way.before
        (paths.units / way.unit).write_text(f"{OURS}# {to}\n")
        live.put_switch_drop_in(way.unit, b"", paths)
        self.reload()
        self.running.add(way.unit)

    def move(self, name: str, unit: str, paths: Paths) -> None:
        """A target's link to the name becomes one to the slot."""
        self.enabled |= {unit} if UNIT in self.enabled else set()
        MOVE(name, unit, paths)

    def disable_others(self, name: str, unit: str, paths: Paths) -> None:
        self.enabled -= {UNIT, *SLOTS} - {unit}

    def changing_over(self, *_: Any) -> cutover.Cutover:
        single = UNIT in self.running
        kind = cutover.GATED if self.gated and not single else cutover.PLAIN
        return cutover.Cutover(kind, "a test", moves=self.gated and single)

    def free(self, plan: Plan, say: Any, emit: Any = None) -> FreeResult:
        assert not any(step.disable for step in plan.units_to_stop), "only the commit disables"
        self.running -= {step.unit for step in plan.units_to_stop}
        self.running -= {box.name for box in plan.containers_to_stop}
        return FreeResult(0, "free", "free")

    def start_container(self, program: str, identity: str, _timeout_s: float = 0) -> Result:
        assert (program, identity) == (BOX.command, BOX.id)
        assert BOX.name not in self.running, "once"
        self.running.add(BOX.name)
        return Result(0, "", "")

    def follow(self, engine: EngineConfig, paths: Paths, *_: Any) -> Outcome:
        self.tried.append(str(self.live))
        if self.ended_by is not None and self.live == NEW:
            ended, self.ended_by = self.ended_by, None
            raise ended
        if self.outcome is not None:
            return self.outcome
        if self.live in self.good:
            return Outcome("ready", "tiny is ready")
        # The unit itself is not down yet when the watch says that the engine failed.
        verdict = {"cause": self.cause, "evidence": ["exit code: -9"]}
        return Outcome("failed", "it failed while loading", verdict)

    def recorded(self, name: str) -> recorded_unit.RecordedUnit | None:
        if name == UNIT:
            return None
        active = "active" if name in self.running else "inactive"
        return recorded_unit.RecordedUnit(name, "loaded", active, "enabled", {}, (8000,), ("kimi",))

    def reboot(self) -> None:
        """What a boot does: the drop-in in /run is gone, resume runs, then what is enabled starts."""
        self.running.clear()
        self.own = self.unit == UNIT
        shutil.rmtree(self.paths.root / "run", ignore_errors=True)
        transaction.at_boot("tiny", self.paths)
        # A target's link to the engine's own name means whatever that is an alias of.
        self.running |= {self.unit if one == UNIT else one for one in self.enabled}

    @property
    def unit(self) -> str:
        return slots.live_unit("tiny", self.paths)

    @property
    def live(self) -> str | None:
        return release.link_target("tiny", "current", self.paths)

    @property
    def no_restarts(self) -> Path:
        return self.paths.root / f"run/systemd/system/{self.unit}.d/50-sglangctl-switch.conf"

    @property
    def state(self) -> release.State:
        found = release.read_state("tiny", self.paths)
        assert found is not None
        return found

    @property
    def port(self) -> int:
        return load_engine("tiny", self.paths).port

    def serving(self) -> set[str]:
        """Engines that run: ours by its release."""
        ours = {str(self.live)} if self.unit in self.running else set()
        assert not self.running & ({UNIT, *SLOTS} - {self.unit}), "one unit of it runs"
        return ours | (self.running & {VLLM, BOX.name})


@pytest.fixture
def machine(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine(paths)
    monkeypatch.setattr(systemctl, "call", made.systemctl)
    monkeypatch.setattr(free, "plan", made.plan)
    monkeypatch.setattr(free, "execute", made.free)
    monkeypatch.setattr(recorded_unit, "record", made.recorded)
    for start in ("start", "start_later"):
        monkeypatch.setattr(containers, start, made.start_container)
    monkeypatch.setattr(back, "missing_of", lambda one: None if one["unit"] in made.running else "")
    monkeypatch.setattr(transaction.disabling, "find", lambda name: None)  # type: ignore[attr-defined]
    monkeypatch.setattr(cutover_facts, "chosen", made.changing_over)
    monkeypatch.setattr(slots, "disable_others", made.disable_others)
    monkeypatch.setattr(slots, "move", made.move)
    monkeypatch.setattr(slots, "has_own_unit", lambda name: made.own)
    monkeypatch.setattr(gate, "begin", made.begin_at_gate)
    monkeypatch.setattr(gate, "wait", lambda *_: made.at_gate)
    monkeypatch.setattr(gate, "let_in", lambda *_: None)
    for module in (present, transaction, back, live):
        monkeypatch.setattr(module, "find", made.find)
    for module in (transaction, back):
        monkeypatch.setattr(module, "follow", made.follow)
    write = release.write_state

    def cut(name: str, state: release.State, found: Paths) -> None:
        write(name, state, found)
        this = made.cut_of in (None, state.to)
        if this and made.cut_at is not None and state.step == made.cut_at:
            raise Cut

    monkeypatch.setattr(release, "write_state", cut)
    for digest in (OLD, NEW):
        stage(paths, digest)
    return made


def stage(paths: Paths, digest: str) -> None:
    folder = paths.releases("tiny") / digest
    folder.mkdir(parents=True, exist_ok=True)
    for name in release.FILES:
        (folder / name).write_text("{}")
    (folder / "sglang.service").write_text(f"{OURS}# {digest}\n")


def config(paths: Paths, port: int, **more: Any) -> str:
    write_config(paths.root, port, **more)
    return paths.engine_json("tiny").read_text()


def ran_before(machine: Machine, what: str, **more: Any) -> Wanted:
    """The host before the switch: our release OLD (in the unit of its own name, or in a slot), a vLLM of
    somebody else (a unit or a container), or nothing."""
    if what == "vllm":
        more["replaces"] = [VLLM]
    wanted = Wanted("tiny", NEW, config=config(machine.paths, PORT_AFTER, **more))
    if what in OURS_BEFORE:
        here = UNIT if what == "ours" else SLOTS[0]
        config(machine.paths, PORT_BEFORE, **more)
        link_atomic(machine.paths.current("tiny"), f"releases/{OLD}")
        (machine.paths.units / here).write_text(f"{OURS}# {OLD}\n")
        slots.put("tiny", here, machine.paths)
        machine.own = what == "ours"
        machine.running |= {here, WATCH}
        machine.enabled |= {here, WATCH}
    else:
        machine.paths.engine_json("tiny").unlink()
    if what == "vllm":
        machine.running.add(VLLM)
        machine.enabled.add(VLLM)
    if what == "box":
        machine.running.add(BOX.name)
    return wanted


SIDES: dict[str, set[str]] = {
    "ours": {OLD},
    "slot": {OLD},
    "vllm": {VLLM},
    "box": {BOX.name},
    "nothing": set(),
}
OURS_BEFORE = ("ours", "slot")
SIDES_BEFORE = (*OURS_BEFORE, "vllm", "box")
BEFORE_A_GATE = ("slot", "vllm", "box")
"""Beside which a new engine can wait at its gate."""


def settled(machine: Machine, what: str) -> None:
    """The side from before serves, starts at boot, and nothing of the switch is left."""
    assert machine.serving() == SIDES[what]
    ours = what in OURS_BEFORE
    assert machine.live == (OLD if ours else None)
    boots = {machine.unit} if ours else {VLLM} if what == "vllm" else set()
    assert machine.enabled - {live.RESUME, WATCH} == boots
    assert not list(machine.paths.root.glob("run/systemd/system/*/*"))
    there = {path.name for path in slots.files("tiny", machine.paths) if os.path.lexists(path)}
    assert there == ({machine.unit, UNIT} if ours else set())
    assert machine.state.phase == "back"
    assert machine.state.gate is None
    if ours:
        assert (machine.paths.units / machine.unit).read_text() == f"{OURS}# {OLD}\n"
        assert machine.port == PORT_BEFORE
        assert machine.allowed, "the old engine runs on, and must restart by itself again"


def committed(machine: Machine) -> None:
    assert machine.serving() == {NEW}
    assert machine.live == NEW
    assert machine.enabled - {live.RESUME} == {machine.unit, WATCH}
    assert (machine.paths.units / machine.unit).read_text() == f"{OURS}# {NEW}\n"
    assert [one.name for one in machine.paths.units.glob("sglang-tiny*")] == [machine.unit]
    assert machine.state.gate is None
    assert VLLM not in machine.enabled
    assert machine.state.phase == "live"
    assert machine.port == PORT_AFTER
    assert not list(machine.paths.root.glob("run/systemd/system/*/*"))
    assert release.link_target("tiny", "known-good", machine.paths) == NEW


@pytest.mark.parametrize("what", SIDES)
def test_a_release_that_serves_is_kept(machine: Machine, what: str) -> None:
    wanted = ran_before(machine, what)
    transaction.begin(wanted, machine.paths, machine.record())
    committed(machine)
    assert not machine.allowed, "one failure is enough to go back"


@pytest.mark.parametrize("what", SIDES)
def test_a_release_that_waited_at_its_gate_is_kept_in_its_slot(machine: Machine, what: str) -> None:
    wanted = ran_before(machine, what)
    machine.gated = True
    transaction.begin(wanted, machine.paths, machine.record())
    committed(machine)
    if what == "ours":
        assert (machine.unit, machine.starts) == (SLOTS[0], 1), "moved while nothing ran"
    else:
        assert machine.unit == SLOTS[1]
        assert machine.starts == 0, "it was let in, and not started"
    now, then = machine.unit, next(one for one in SLOTS if one != machine.unit)
    machine.starts = 0
    stage(machine.paths, "c" * 64)
    again = Wanted("tiny", "c" * 64, config=wanted.config)
    machine.good.add("c" * 64)
    transaction.begin(again, machine.paths, machine.record())
    assert machine.serving() == {"c" * 64}
    assert (machine.unit, machine.starts) == (then, 0)
    assert machine.enabled - {live.RESUME} == {then, WATCH}
    machine.gated = False
    stage(machine.paths, OLD)
    transaction.begin(replace(wanted, to=OLD), machine.paths, machine.record())
    assert machine.serving() == {OLD}
    assert machine.unit == then != now, "a plain switch stays where it is"


def test_a_name_that_is_no_alias_ends_the_gate_before_systemd_reads_it(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = ran_before(machine, "slot")
    machine.gated = True
    monkeypatch.setattr(slots, "has_own_unit", lambda name: True)
    transaction.begin(wanted, machine.paths, machine.record())
    committed(machine)
    assert machine.starts == 1, "ended, and started when the name was its alias"
    assert any("unit of the engine's own name" in line for line in machine.said)


def test_an_engine_that_runs_is_not_moved(machine: Machine) -> None:
    ran_before(machine, "ours")
    engine = load_engine("tiny", machine.paths)
    with pytest.raises(Failed, match=f"{UNIT} is active"):
        live.move_to_slot(engine, SLOTS[0], OLD, machine.paths)
    assert machine.unit == UNIT


@pytest.mark.parametrize("rollback", [True, False])
@pytest.mark.parametrize("what", BEFORE_A_GATE)
def test_what_does_not_come_to_its_gate_stops_nothing(
    machine: Machine, what: str, rollback: bool
) -> None:
    wanted = ran_before(machine, what, rollback=rollback)
    machine.gated = True
    machine.at_gate = Outcome(
        "failed", "it failed while importing", {"cause": "environment-broken"}
    )
    with pytest.raises(Failed) as failed:
        transaction.begin(wanted, machine.paths, machine.record())
    first, second, *_ = str(failed.value).splitlines()
    assert first == "tiny: it failed while importing"
    assert second.startswith("nothing was stopped for it:")
    assert machine.starts == 0
    settled(machine, what)


@pytest.mark.parametrize("what", BEFORE_A_GATE)
def test_where_there_is_no_room_beside_what_serves_that_is_stopped_first(
    machine: Machine, what: str
) -> None:
    wanted = ran_before(machine, what)
    machine.gated = True
    machine.at_gate = Outcome("failed", "it failed", {"cause": "gpu-out-of-memory"})
    transaction.begin(wanted, machine.paths, machine.record())
    committed(machine)
    assert machine.unit == (SLOTS[0] if what == "slot" else UNIT)
    assert any("no room (gpu-out-of-memory): cutover: plain" in line for line in machine.said)


REFUSED = "the engine refuses its arguments: --x"


def asking(machine: Machine, asked: list[str], *wrong: str) -> transaction.Ask:
    """A staged engine's parser and imports; what serves goes on meanwhile."""

    def ask(engine: EngineConfig, digest: str, paths: Paths) -> list[str]:
        assert machine.serving() == {OLD}
        asked.append(digest)
        return list(wrong)

    return ask


@pytest.mark.parametrize(
    ("gated", "cause", "asks"),
    [(False, None, True), (True, None, False), (True, "host-out-of-memory", True)],
    ids=["plain", "gated", "crowded"],
)
@pytest.mark.parametrize("good", [True, False])
def test_parser_and_imports_are_asked_where_no_gate_shows_them(
    machine: Machine, gated: bool, cause: str | None, asks: bool, good: bool
) -> None:
    wanted, asked = ran_before(machine, "slot"), list[str]()
    wanted = replace(wanted, ask=asking(machine, asked, *([] if good else [REFUSED])))
    machine.gated = gated
    machine.at_gate = Outcome("failed", "it failed", {"cause": cause}) if cause else None
    if good or not asks:
        transaction.begin(wanted, machine.paths, machine.record())
        committed(machine)
    else:
        with pytest.raises(Failed, match=REFUSED) as failed:
            transaction.begin(wanted, machine.paths, machine.record())
        kept = "nothing was stopped for it" if gated else "nothing was changed"
        assert kept in str(failed.value)
        assert machine.serving() == {OLD}
    assert asked == ([NEW] if asks else [])


@pytest.mark.parametrize("asks", [True, False])
def test_a_detached_switch_knows_that_nobody_has_asked(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, asks: bool
) -> None:
    begun: list[list[str]] = []
    monkeypatch.setattr(transaction.switch_unit, "start", lambda *given: begun.append(given[3]))
    wanted = Wanted("tiny", NEW, ask=asking(machine, []) if asks else None)
    transaction.detach(wanted, "t", machine.paths)
    assert ("--unproven" in begun[0]) is asks


def test_a_fallback_is_tried_at_the_gate_as_well(machine: Machine) -> None:
    wanted = with_fallbacks(machine, "slot")
    machine.gated, machine.cause = True, "gpu-out-of-memory"
    failed = Outcome("failed", "it failed while connecting", {"cause": "nccl-error"})
    machine.at_gate = failed
    with pytest.raises(Failed, match="nothing was stopped for it") as told:
        transaction.begin(wanted, machine.paths, machine.record())
    assert str(told.value).count("fallback") == 2
    settled(machine, "slot")


@pytest.mark.parametrize("gated", [False, True], ids=["plain", "gated"])
@pytest.mark.parametrize("what", SIDES_BEFORE)
def test_a_release_that_fails_gives_way_to_what_ran_before(
    machine: Machine, what: str, gated: bool
) -> None:
    wanted = ran_before(machine, what)
    machine.good, machine.gated = {OLD}, gated
    with pytest.raises(Failed) as failed:
        transaction.begin(wanted, machine.paths, machine.record())
    first, second, *more = str(failed.value).splitlines()
    assert first == "tiny: it failed while loading"
    others = {"vllm": ["vllm.service serves"], "box": ["container vllm-box runs"]}.get(what, [])
    assert second == f"{', '.join(others) or 'release aaaaaaaaaaaa of tiny serves'} again"
    assert "> exit code: -9" in more
    (file,) = machine.paths.root.glob("journal-*.jsonl")
    (back,) = [one for one in journal.read(file) if one.get("name") == "back"]
    assert back["others"] == others
    settled(machine, what)


@pytest.mark.parametrize(
    ("what", "rollback", "said"),
    [
        ("nothing", True, "nothing ran before it"),
        ("ours", False, "`rollback: false`"),
        ("vllm", False, "`rollback: false`"),
    ],
)
def test_without_a_way_back_it_says_that_nothing_serves(
    machine: Machine, what: str, rollback: bool, said: str
) -> None:
    wanted = ran_before(machine, what, rollback=rollback)
    machine.good = {OLD}
    with pytest.raises(Failed, match=said) as failed:
        transaction.begin(wanted, machine.paths, machine.record())
    assert machine.serving() == set(), "systemd would try it again"
    assert machine.state.phase == "failed"
    assert machine.live == NEW, "it stays there to be looked at"
    assert (VLLM in machine.enabled) == (what == "vllm"), "a reboot brings back what is enabled"
    boots = VLLM if what == "vllm" else "neither it nor what it replaces"
    assert f"at the next boot: {boots} starts" in str(failed.value)
    machine.reboot()
    assert machine.serving() == SIDES[what] - {OLD}, "a release that was never proven"
    stage(machine.paths, OLD)


@pytest.mark.parametrize("step", STEPS[:-1])
def test_a_power_cut_without_a_rollback_boots_nothing_unproven(machine: Machine, step: str) -> None:
    wanted = ran_before(machine, "ours", rollback=False)
    machine.cut_at = step
    with pytest.raises(Cut):
        transaction.begin(wanted, machine.paths, machine.record())
    machine.cut_at = None
    machine.queued.add(UNIT)  # the boot's own start, which waits for this
    machine.reboot()
    assert NEW not in machine.serving()
    assert (UNIT in machine.queued) == (machine.live == OLD)
    if machine.live == OLD:
        assert OLD in (machine.paths.units / UNIT).read_text()
        assert machine.port == PORT_BEFORE


def test_a_unit_that_was_written_before_the_link_moved_is_put_back(machine: Machine) -> None:
    wanted = ran_before(machine, "ours", rollback=False)
    machine.cut_at = "moving"
    with pytest.raises(Cut):
        transaction.begin(wanted, machine.paths, machine.record())
    machine.cut_at = None
    (machine.paths.units / UNIT).write_text(f"{OURS}# {NEW}\n")
    machine.reboot()
    assert OLD in (machine.paths.units / UNIT).read_text()


def test_a_proven_release_that_fails_again_still_boots(machine: Machine) -> None:
    transaction.begin(ran_before(machine, "ours"), machine.paths, machine.record())
    machine.good = {OLD}
    machine.running -= {UNIT, WATCH}
    with pytest.raises(Failed, match=f"at the next boot: {UNIT} starts"):
        transaction.begin(Wanted("tiny", NEW), machine.paths, machine.record())
    assert UNIT in machine.enabled


@pytest.mark.parametrize("what", SIDES)
@pytest.mark.parametrize("rollback", [True, False])
def test_the_plan_and_the_switch_say_the_same_way_back(
    machine: Machine, what: str, rollback: bool
) -> None:
    wanted = ran_before(machine, what, rollback=rollback)
    engine = engine_of("tiny", str(wanted.config), machine.paths)
    plan = machine.plan(engine, policy="declared", stop=True)
    told = before.line(present.would_go_back_to(engine, plan, machine.paths), "tiny", NEW)
    transaction.begin(wanted, machine.paths, machine.record())
    assert told in machine.said
    if rollback:
        sides = {"ours": OLD[:12], "slot": OLD[:12], "vllm": VLLM, "box": BOX.name}
        assert sides.get(what, "nothing ran before it") in told
    else:
        assert "`rollback: false`" in told


@pytest.mark.parametrize(("what", "side"), [("vllm", VLLM), ("box", f"container {BOX.name}")])
@pytest.mark.parametrize("step", ["freeing", "following"])
def test_the_plan_after_a_cut_says_what_ran_first(
    machine: Machine, step: str, what: str, side: str
) -> None:
    cut(machine, step, what)
    engine = engine_of("tiny", str(machine.state.config), machine.paths)
    plan = machine.plan(engine, policy="declared", stop=True)
    told = before.line(present.would_go_back_to(engine, plan, machine.paths), "tiny", NEW)
    assert told.endswith(f"back to {side}")


def test_the_plan_after_a_cut_in_the_commit_goes_back_to_what_was_proven(machine: Machine) -> None:
    cut(machine, COMMITTING, "vllm")
    engine = load_engine("tiny", machine.paths)
    plan = machine.plan(engine, policy="declared", stop=True)
    ran = present.would_go_back_to(engine, plan, machine.paths)
    assert before.line(ran, "tiny", "c" * 64).endswith(f"back to release {NEW[:12]}")


def test_a_side_that_does_not_come_back_is_said_with_both_reasons(machine: Machine) -> None:
    wanted = ran_before(machine, "ours")
    machine.good = set()
    with pytest.raises(Failed) as failed:
        transaction.begin(wanted, machine.paths, machine.record())
    assert "tiny: it failed while loading" in str(failed.value)
    assert "going back failed: release aaaaaaaaaaaa of tiny" in str(failed.value)
    assert machine.state.phase == "failed"


def test_beside_an_engine_that_does_not_stop_nothing_is_started(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody came onto the GPUs meanwhile: the new engine's unit alone is stopped."""
    wanted = ran_before(machine, "ours")

    def follow(*_: Any) -> Outcome:
        machine.refused = (Refusal("protected", "Xorg", "yours", "no policy"),)
        return Outcome("failed", "it failed while loading")

    def stuck(*arguments: str, timeout_s: float = 0) -> Result:
        if arguments[0] == "stop":
            return Result(None, "", "no answer")
        return machine.systemctl(*arguments, timeout_s=timeout_s)

    monkeypatch.setattr(transaction, "follow", follow)
    monkeypatch.setattr(systemctl, "call", stuck)
    with pytest.raises(Failed, match="going back failed: systemctl stop"):
        transaction.begin(wanted, machine.paths, machine.record())
    assert machine.starts == 1


def test_after_two_failures_the_side_before_both_is_what_to_go_back_to(machine: Machine) -> None:
    wanted = ran_before(machine, "vllm", rollback=False)
    machine.good = set()
    with pytest.raises(Failed):
        transaction.begin(wanted, machine.paths, machine.record())
    assert wanted.config is not None
    again = json.dumps({**json.loads(wanted.config), "rollback": True})
    with pytest.raises(Failed, match="serves again"):
        transaction.begin(replace(wanted, config=again), machine.paths, machine.record())
    settled(machine, "vllm")


def test_what_an_earlier_switch_replaced_is_not_brought_back(machine: Machine) -> None:
    transaction.begin(ran_before(machine, "vllm"), machine.paths, machine.record())
    committed(machine)
    machine.good = {NEW}
    stage(machine.paths, OLD)
    with pytest.raises(Failed, match="release bbbbbbbbbbbb of tiny serves again"):
        transaction.begin(Wanted("tiny", OLD), machine.paths, machine.record())
    assert machine.serving() == {NEW}
    assert [one["unit"] for one in machine.state.foreign] == [VLLM], "remove.py still tells of it"


def test_what_may_not_be_ended_is_refused_before_anything_is_stopped(machine: Machine) -> None:
    wanted = ran_before(machine, "vllm")
    machine.refused = (Refusal("protected", "Xorg", "yours", "no policy"),)
    with pytest.raises(Failed, match="nothing was changed"):
        transaction.begin(wanted, machine.paths, machine.record())
    assert machine.serving() == {VLLM}
    assert release.read_state("tiny", machine.paths) is None


DAMAGE = [b"", b"[]", b"[" * 100_000, b"\xff\xfe", b'{"v": 1, "name": "tiny", "port": []}']


@pytest.mark.parametrize("data", DAMAGE, ids=lambda data: repr(data[:12]))
@pytest.mark.parametrize("good", [True, False])
def test_a_deploy_mends_a_damaged_configuration(machine: Machine, data: bytes, good: bool) -> None:
    """Its message says to deploy again; and it is nothing to go back to."""
    wanted = ran_before(machine, "ours")
    machine.paths.engine_json("tiny").write_bytes(data)
    machine.good = {OLD, NEW} if good else {OLD}
    if good:
        transaction.begin(wanted, machine.paths, machine.record())
    else:
        with pytest.raises(Failed, match="release aaaaaaaaaaaa of tiny serves again"):
            transaction.begin(wanted, machine.paths, machine.record())
    assert machine.serving() == {NEW if good else OLD}
    assert load_engine("tiny", machine.paths).port == PORT_AFTER


@pytest.mark.parametrize("data", [*DAMAGE, b'{"v": 2}'], ids=lambda data: repr(data[:12]))
def test_the_damaged_configuration_of_another_engine_is_that_ones_alone(
    machine: Machine, data: bytes
) -> None:
    wanted = ran_before(machine, "ours")
    for name in ("other", "no name"):
        (machine.paths.engines / f"{name}.json").write_bytes(data)
    transaction.begin(wanted, machine.paths, machine.record())
    assert machine.serving() == {NEW}
    (known,) = siblings_of("tiny", machine.paths)
    assert (known.name, known.unit, known.gpus) == ("other", "sglang-other.service", ())


@pytest.mark.parametrize("what", ["units", "engine.json", "state"])
def test_where_a_file_of_it_cannot_be_written_nothing_is_stopped(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """Beside a mount that is read-only and a full disk, which the preflight may not have seen."""
    wanted, paths, full = ran_before(machine, "vllm"), machine.paths, "No space left on device"
    config_folder = paths.engine_json("tiny").parent
    known = {
        "units": paths.units,
        "engine.json": config_folder,
        "state": paths.engine_state("tiny"),
    }
    bad = known[what]
    monkeypatch.setattr(transaction, "no_room", lambda folder: full if folder == bad else None)
    with pytest.raises(Failed, match=f"nothing was changed. .* {bad}: {full}; make room"):
        transaction.begin(wanted, machine.paths, machine.record())
    assert machine.serving() == {VLLM}


@pytest.mark.parametrize("good", [True, False])
def test_the_watch_is_started_anew_after_the_configuration_is_there(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, good: bool
) -> None:
    """One that was restarted earlier reads the old limits, and the next deploy restarts it again."""
    wanted, seen = ran_before(machine, "ours"), []
    file = machine.paths.engine_json("tiny")
    if not good:
        machine.good = {OLD}

    def call(*words: str, timeout_s: float = 0) -> Result:
        if words[0] == "restart":
            seen.append(file.read_bytes())
        return machine.systemctl(*words)

    monkeypatch.setattr(systemctl, "call", call)
    if good:
        transaction.begin(wanted, machine.paths, machine.record())
    else:
        with pytest.raises(Failed, match="serves again"):
            transaction.begin(wanted, machine.paths, machine.record())
    assert seen and seen[-1] == file.read_bytes()


def test_going_back_systemd_reads_its_units_once(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each time costs the old engine's start."""
    wanted, calls = ran_before(machine, "ours"), []
    machine.good = {OLD}

    def call(*words: str, timeout_s: float = 0) -> Result:
        calls.append(words[0] if words[0] == "daemon-reload" else f"{words[0]} {words[-1]}")
        return machine.systemctl(*words)

    monkeypatch.setattr(systemctl, "call", call)
    with pytest.raises(Failed, match="serves again"):
        transaction.begin(wanted, machine.paths, machine.record())
    first = calls.index(f"start {UNIT}")
    after = calls[first + 1 :]
    restart, start = after.index(f"restart {WATCH}"), after.index(f"start {UNIT}")
    assert after[:start].count("daemon-reload") == 1
    assert after.index("daemon-reload") < restart < start


def cut(machine: Machine, step: str, what: str) -> None:
    wanted = ran_before(machine, what)
    machine.cut_at = step
    with pytest.raises(Cut):
        transaction.begin(wanted, machine.paths, machine.record())
    machine.cut_at = None


Comes = Callable[[Machine], None]


def resumed(machine: Machine) -> None:
    transaction.resume("tiny", machine.paths, machine.record())


CUTS = [*((step, False) for step in STEPS), *((step, True) for step in ALL_STEPS)]
"""(a step, whether the new engine came there by its gate)"""


@pytest.mark.parametrize("after", [resumed, Machine.reboot], ids=["killed", "power cut"])
@pytest.mark.parametrize(
    ("what", "step", "gated"),
    [
        (what, step, gated)
        for what in SIDES_BEFORE
        for step, gated in CUTS
        if step != GATING or what in BEFORE_A_GATE
    ],
)
def test_a_cut_at_any_step_ends_with_the_side_that_counts(
    machine: Machine, step: str, gated: bool, what: str, after: Comes
) -> None:
    machine.gated = gated
    cut(machine, step, what)
    after(machine)
    if step == COMMITTING:
        committed(machine)
    else:
        settled(machine, what)
    if what == "box" and after is Machine.reboot and step != COMMITTING:
        assert f"container {BOX.name} was started again" in str(machine.state.ended)


@pytest.mark.parametrize("step", STEPS)
def test_where_nothing_ran_before_a_killed_switch_is_finished(machine: Machine, step: str) -> None:
    cut(machine, step, "nothing")
    resumed(machine)
    committed(machine)


@pytest.mark.parametrize("step", STEPS[:-1])
def test_where_nothing_ran_before_a_power_cut_starts_nothing(machine: Machine, step: str) -> None:
    cut(machine, step, "nothing")
    machine.reboot()
    assert machine.serving() == set()
    assert machine.state.phase == "failed"
    assert "deploy again" in str(machine.state.ended)


@pytest.mark.parametrize("after", [resumed, Machine.reboot], ids=["killed", "power cut"])
@pytest.mark.parametrize("gated", [False, True], ids=["plain", "gated"])
@pytest.mark.parametrize("what", SIDES_BEFORE)
def test_a_cut_while_it_goes_back_goes_on(
    machine: Machine, what: str, gated: bool, after: Comes
) -> None:
    wanted = ran_before(machine, what)
    machine.gated = gated
    machine.good, machine.cut_at = {OLD}, "going back"
    with pytest.raises(Cut):
        transaction.begin(wanted, machine.paths, machine.record())
    machine.cut_at = None
    after(machine)
    settled(machine, what)


@pytest.mark.parametrize(("step", "gated"), CUTS)
def test_the_next_deploy_after_a_cut_knows_what_ran_first(
    machine: Machine, step: str, gated: bool
) -> None:
    machine.gated = gated
    cut(machine, step, "vllm")
    third = "c" * 64
    stage(machine.paths, third)
    machine.good = {NEW}
    wanted = Wanted("tiny", third, config=config(machine.paths, PORT_AFTER, replaces=[VLLM]))
    with pytest.raises(Failed, match="serves again"):
        transaction.begin(wanted, machine.paths, machine.record())
    # What had been proven is the side to go back to; what had not is not.
    assert machine.serving() == ({NEW} if step == COMMITTING else {VLLM})


@pytest.mark.parametrize(
    ("what", "step"),
    [
        (what, step)
        for what in BEFORE_A_GATE
        for step in STEPS[:-1]
        if (what, step) != ("box", "freeing")  # it runs, and is started once more: no harm
    ],
)
def test_a_deploy_that_is_refused_after_a_cut_leaves_what_ran_before_both(
    machine: Machine, step: str, what: str
) -> None:
    """What the cut switch had let in was ended for it: seen with a stranger on the GPUs."""
    machine.gated = True
    cut(machine, step, what)
    machine.refused = (Refusal("foreign", "a stranger", "no", "--policy all"),)
    more = {"replaces": [VLLM]} if what == "vllm" else {}
    wanted = Wanted("tiny", NEW, config=config(machine.paths, PORT_AFTER, **more))
    with pytest.raises(Failed) as told:
        transaction.begin(wanted, machine.paths, machine.record())
    assert machine.serving() == SIDES[what]
    if step != "freeing":
        settled(machine, what)
        for untrue in ("nothing was changed", "nothing is changed"):
            assert untrue not in str(told.value)


def test_a_refusal_after_a_cut_says_that_nothing_serves(machine: Machine) -> None:
    machine.gated = True
    wanted = ran_before(machine, "slot", rollback=False)
    machine.cut_at = "following"
    with pytest.raises(Cut):
        transaction.begin(wanted, machine.paths, machine.record())
    machine.cut_at, machine.refused = (
        None,
        (Refusal("foreign", "a stranger", "no", "--policy all"),),
    )
    with pytest.raises(Failed, match="was ended: `sglangctl switch tiny --resume`") as told:
        transaction.begin(wanted, machine.paths, machine.record())
    assert "nothing was changed" not in str(told.value)


def test_stop_starts_nothing_again(machine: Machine) -> None:
    wanted = ran_before(machine, "ours")
    machine.ended_by = Stopped("the switch was ended by sglangctl stop")
    with pytest.raises(Stopped):
        transaction.begin(wanted, machine.paths, machine.record())
    assert machine.starts == 1
    assert "nothing was started again" in str(machine.state.ended)
    assert not machine.no_restarts.exists()


def test_a_switch_that_is_told_to_end_goes_back(machine: Machine) -> None:
    wanted = ran_before(machine, "ours")
    machine.ended_by = Cancelled("the switch was told to end")
    with pytest.raises(Failed, match="told to end"):
        transaction.begin(wanted, machine.paths, machine.record())
    settled(machine, "ours")


@pytest.mark.parametrize(
    "what,gated", [("ours", False), ("slot", False), *((one, True) for one in BEFORE_A_GATE)]
)
@pytest.mark.parametrize("rollback", [True, False])
def test_told_to_end_while_what_serves_is_measured_it_stops_nothing(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, what: str, gated: bool, rollback: bool
) -> None:
    wanted = ran_before(machine, what, rollback=rollback)
    machine.gated = gated

    def ended(*_: Any) -> None:
        raise Cancelled("the switch was told to end")

    def freed(plan: Plan, *_: Any) -> FreeResult:
        assert not {step.unit for step in plan.units_to_stop} & before, "what serves was stopped"
        return machine.free(plan, *_)

    before = set(machine.running)
    monkeypatch.setattr(transaction.measuring, "take", ended)
    monkeypatch.setattr(free, "execute", freed)
    with pytest.raises(Failed, match="told to end\nnothing was stopped for it"):
        transaction.begin(wanted, machine.paths, machine.record())
    assert machine.starts == 0
    settled(machine, what)


def test_a_shutdown_in_the_middle_is_left_to_the_next_boot(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = ran_before(machine, "ours")
    machine.ended_by = Cancelled("the switch was told to end")
    monkeypatch.setattr(systemctl, "going_down", lambda: True)
    with pytest.raises(Cancelled):
        transaction.begin(wanted, machine.paths, machine.record())
    assert machine.starts == 1, "systemd starts nothing while it goes down"
    assert machine.state.phase == "switching"
    machine.reboot()
    settled(machine, "ours")


class GoneTerminal(io.StringIO):
    def write(self, text: str) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))


def test_a_terminal_that_is_gone_does_not_end_a_switch(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = ran_before(machine, "ours")
    record = Record(machine.paths.root / "journal.jsonl")
    monkeypatch.setattr("sys.stdout", GoneTerminal())
    transaction.begin(wanted, machine.paths, record)
    assert release.link_target("tiny", "current", machine.paths) == NEW


def test_nothing_to_resume(machine: Machine) -> None:
    transaction.begin(ran_before(machine, "ours"), machine.paths, machine.record())
    with pytest.raises(Failed, match="nothing to resume"):
        resumed(machine)


def test_an_engine_that_answers_is_left_where_nothing_else_would_serve(machine: Machine) -> None:
    wanted = ran_before(machine, "ours", rollback=False, readiness={"degraded": "fail"})
    machine.outcome = Outcome("degraded", "tiny is degraded")
    with pytest.raises(Failed, match="`rollback: false`"):
        transaction.begin(wanted, machine.paths, machine.record())
    assert machine.serving() == {NEW}


def test_a_commit_enables_again_what_somebody_disabled(machine: Machine) -> None:
    transaction.begin(ran_before(machine, "ours"), machine.paths, machine.record())
    machine.enabled.clear()
    transaction.commit("tiny", NEW, machine.paths)
    assert machine.enabled >= {machine.unit, WATCH}
    release.write_state("tiny", replace(machine.state, phase="stopped"), machine.paths)
    serving = set(machine.running)
    machine.running.clear()
    machine.enabled.clear()
    transaction.commit("tiny", NEW, machine.paths)
    assert machine.enabled == set(), "what was stopped stays down"
    machine.running |= serving
    transaction.commit("tiny", NEW, machine.paths)
    assert machine.enabled >= {machine.unit, WATCH}, "started by hand after a stop"
    assert machine.state.phase == "live"


def test_a_commit_writes_a_state_that_was_lost(machine: Machine) -> None:
    transaction.begin(ran_before(machine, "ours"), machine.paths, machine.record())
    for lost in ("state.json", "known-good"):
        (machine.paths.engine_state("tiny") / lost).unlink()
    transaction.commit("tiny", NEW, machine.paths)
    assert (machine.state.phase, machine.state.to) == ("live", NEW)
    assert release.link_target("tiny", "known-good", machine.paths) == NEW


def test_a_commit_writes_the_unit_again_and_nothing_is_started(machine: Machine) -> None:
    transaction.begin(ran_before(machine, "ours"), machine.paths, machine.record())
    file, starts = machine.paths.units / UNIT, machine.starts
    wanted = file.read_bytes()
    file.write_bytes(ownership.HEAD.encode() + b"\n[Service]\nRestart=no\n")
    file.chmod(0o666)
    transaction.commit("tiny", NEW, machine.paths)
    assert file.read_bytes() == wanted and file.stat().st_mode & 0o777 == 0o644
    assert machine.starts == starts
    release.write_state("tiny", replace(machine.state, phase="back"), machine.paths)
    file.chmod(0o600)
    transaction.commit("tiny", NEW, machine.paths)
    assert file.stat().st_mode & 0o777 == 0o644, "after a switch that went back, too"
    file.write_bytes(b"[Service]\n")
    with pytest.raises(Failed, match="not made by sglang-provision"):
        transaction.commit("tiny", NEW, machine.paths)
    assert file.read_bytes() == b"[Service]\n"


def test_a_start_that_is_still_queued_is_cancelled(machine: Machine) -> None:
    """Else it begins with the old release, and counts as the run before the one that is followed."""
    wanted = ran_before(machine, "ours")
    machine.slow, machine.cut_at = True, "following"
    with pytest.raises(Cut):
        transaction.begin(wanted, machine.paths, machine.record())
    assert UNIT in machine.queued
    machine.slow, machine.cut_at = False, None
    before = machine.starts
    resumed(machine)
    assert UNIT not in machine.queued
    assert machine.starts == before + 1
    settled(machine, "ours")


def after_two(machine: Machine) -> None:
    """NEW is live and known to be good; OLD was before it."""
    transaction.begin(ran_before(machine, "ours"), machine.paths, machine.record())
    committed(machine)


def test_a_rollback_goes_to_the_release_before_with_its_configuration(machine: Machine) -> None:
    after_two(machine)
    transaction.begin(
        on_demand.wanted("tiny", None, machine.paths), machine.paths, machine.record()
    )
    assert machine.serving() == {OLD}
    assert machine.port == PORT_BEFORE
    assert machine.state.reason == "rollback from bbbbbbbbbbbb"
    assert on_demand.wanted("tiny", None, machine.paths).to == NEW, "and forward again"


def test_a_rollback_that_fails_keeps_what_ran(machine: Machine) -> None:
    after_two(machine)
    machine.good = {NEW}
    with pytest.raises(Failed, match="release bbbbbbbbbbbb of tiny serves again"):
        asked = on_demand.wanted("tiny", "aaaa", machine.paths)
        transaction.begin(asked, machine.paths, machine.record())
    assert machine.serving() == {NEW}
    assert machine.port == PORT_AFTER


@pytest.mark.parametrize(
    ("asked", "said"),
    [("bbbb", "is live"), ("cccc", "no release cccc"), ("", "releases that begin with")],
)
def test_a_rollback_to_what_is_not_there(machine: Machine, asked: str, said: str) -> None:
    after_two(machine)
    with pytest.raises(Failed, match=f"nothing was changed.*{said}"):
        on_demand.wanted("tiny", asked, machine.paths)


def test_a_rollback_without_a_release_before(machine: Machine) -> None:
    machine.good = {NEW}
    transaction.begin(ran_before(machine, "nothing"), machine.paths, machine.record())
    with pytest.raises(Failed, match="no release before the live one"):
        on_demand.wanted("tiny", None, machine.paths)


LESS, LEAST = "d" * 64, "e" * 64


def with_fallbacks(machine: Machine, what: str, **more: Any) -> Wanted:
    for digest in (LESS, LEAST):
        stage(machine.paths, digest)
    named = {"less": LESS, "least": LEAST}
    return ran_before(
        machine,
        what,
        drafter={"path": "/d"},
        fallbacks=[{"name": n, "release": d, "instead_of": NEW} for n, d in named.items()],
        **more,
    )


@pytest.mark.parametrize("what", SIDES)
@pytest.mark.parametrize("good", [LESS, LEAST])
def test_a_fallback_that_serves_is_kept(machine: Machine, what: str, good: str) -> None:
    wanted = with_fallbacks(machine, what)
    machine.good = {OLD, good}
    transaction.begin(wanted, machine.paths, machine.record())
    assert machine.tried == [NEW, LESS, LEAST][: 2 + (good == LEAST)]
    assert machine.serving() == {good} and machine.enabled >= {machine.unit, WATCH}
    assert VLLM not in machine.enabled and not machine.no_restarts.exists()
    name = "less" if good == LESS else "least"
    assert machine.state.phase == "live"
    assert machine.state.fallback == {"name": name, "instead_of": NEW, "cause": "rank-died"}
    assert machine.said[-1] == f"tiny serves with fallback {name} because rank-died"
    assert any("fallback less, then least" in line for line in machine.said)
    assert release.link_target("tiny", "known-good", machine.paths) == good
    assert release.link_target("tiny", "previous", machine.paths) in (None, OLD)
    assert load_engine("tiny", machine.paths).drafter is None, "as the fallback has it"


@pytest.mark.parametrize("what", SIDES_BEFORE)
def test_what_no_override_can_help_goes_back_at_once(machine: Machine, what: str) -> None:
    wanted = with_fallbacks(machine, what)
    machine.good, machine.cause = {OLD}, "disk-full"
    with pytest.raises(Failed, match="again"):
        transaction.begin(wanted, machine.paths, machine.record())
    assert LESS not in machine.tried
    settled(machine, what)


@pytest.mark.parametrize("what", SIDES_BEFORE)
def test_after_the_last_fallback_it_goes_back_and_says_all_reasons(
    machine: Machine, what: str
) -> None:
    wanted = with_fallbacks(machine, what)
    machine.good = {OLD}
    with pytest.raises(Failed) as failed:
        transaction.begin(wanted, machine.paths, machine.record())
    first, again, *more = str(failed.value).splitlines()
    assert first == "tiny: it failed while loading" and again.endswith(" again")
    assert [line for line in more if line.startswith("fallback ")] == [
        "fallback less: tiny: it failed while loading",
        "fallback least: tiny: it failed while loading",
    ]
    assert machine.tried[:3] == [NEW, LESS, LEAST]
    settled(machine, what)


def test_a_fallback_that_is_not_on_the_host_is_not_tried(machine: Machine) -> None:
    wanted = with_fallbacks(machine, "ours")
    shutil.rmtree(machine.paths.releases("tiny") / LESS)
    machine.good = {OLD, LEAST}
    transaction.begin(wanted, machine.paths, machine.record())
    assert machine.tried == [NEW, LEAST]
    assert not any("less" in line for line in machine.said)


def test_the_release_that_failed_is_not_what_to_go_back_to(machine: Machine) -> None:
    """It ran before, failed when it was started again, and so did its fallbacks."""
    wanted = with_fallbacks(machine, "ours")
    link_atomic(machine.paths.current("tiny"), f"releases/{NEW}")
    machine.good = set()
    with pytest.raises(Failed, match="it is the release that ran before"):
        transaction.begin(wanted, machine.paths, machine.record())
    assert machine.tried == [NEW, LESS, LEAST]
    assert machine.serving() == set()


def test_a_rollback_on_demand_tries_no_fallback_of_another_release(machine: Machine) -> None:
    wanted = with_fallbacks(machine, "ours")
    transaction.begin(wanted, machine.paths, machine.record())
    machine.good, machine.tried = {NEW}, []
    with pytest.raises(Failed, match="serves again"):
        asked = on_demand.wanted("tiny", None, machine.paths)
        transaction.begin(asked, machine.paths, machine.record())
    assert machine.tried == [OLD, NEW]


@pytest.mark.parametrize("after", [resumed, Machine.reboot], ids=["killed", "power cut"])
@pytest.mark.parametrize("what", SIDES)
@pytest.mark.parametrize("step", STEPS[1:])
def test_a_cut_while_a_fallback_is_tried(
    machine: Machine, step: str, what: str, after: Comes
) -> None:
    wanted = with_fallbacks(machine, what)
    machine.good = {OLD, LESS}
    machine.cut_at, machine.cut_of = step, LESS
    with pytest.raises(Cut):
        transaction.begin(wanted, machine.paths, machine.record())
    machine.cut_at = None
    after(machine)
    if step == COMMITTING or (what == "nothing" and after is resumed):
        assert machine.serving() == {LESS} and machine.state.phase == "live"
        assert machine.state.fallback is not None
    elif what == "nothing":
        assert machine.serving() == set()
    else:
        settled(machine, what)
