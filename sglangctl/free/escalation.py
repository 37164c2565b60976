"""Carry out a plan, step by step: units and containers, their cgroups, single processes.

Each step has its own limit and its own line of output. A step with nothing to do prints nothing.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from sglangctl.free import text, unit_stop
from sglangctl.free.model import ContainerStep, Ended, Plan, UnitStep
from sglangctl.free.verdicts import UNIT_NOT_STOPPED, Verdict, of_survivor
from sglangctl.proc import command, freezer, membership, pidfds, procfs
from sglangctl.proc.pidfds import Target
from sglangctl.systemd import containers
from sglangctl.systemd.unit import show
from sglangctl.util import terminal
from sglangctl.util.heartbeat import heartbeat

Say = Callable[[str], None]
Emit = Callable[..., Any]
POLL_S = 0.1


class Recorder:
    """Says a line to people and writes the event of it to the journal."""

    def __init__(self, say: Say, emit: Emit | None) -> None:
        self._say, self._emit = say, emit

    def step(self, line: str, **facts: Any) -> None:
        line = terminal.escaped(line)  # titles, units and what commands said are not ours
        self._say(line)
        self.event("step", name="free", text=line, **facts)

    def event(self, kind: str, **facts: Any) -> None:
        if self._emit is not None:
            self._emit(kind, **facts)


class Escalation:
    """The state of one run: what was ended, and how."""

    def __init__(self, plan: Plan, recorder: Recorder) -> None:
        self.plan, self.limits, self.recorder = plan, plan.limits, recorder
        self.ended: list[Ended] = []
        self.units_stopped: list[str] = []
        self.titles = {
            holder.pid: holder.title
            for holder in (plan.situation.holders if plan.situation else ())
        }

    def run(self) -> Verdict | None:
        """All steps; None when everything in the plan has ended."""
        for holder in self.plan.processes_to_end:
            self.recorder.event(
                "holder",
                pid=holder.pid,
                **{"class": holder.class_},
                reason=holder.reason,
                gpus=holder.uses,
                title=holder.title,
            )
        return self._units() or self._containers() or self._processes()

    # Units: stop, then SIGTERM and SIGKILL to what is left in their cgroups.

    def _units(self) -> Verdict | None:
        steps = self.plan.units_to_stop
        if not steps:
            return None
        members = [self._hold(pid) for step in steps for pid in step.pids]
        began = time.monotonic()
        for step in steps:
            failed = unit_stop.begin(step)
            if failed:
                return Verdict(UNIT_NOT_STOPPED, failed)
        left = self._wait_for_units(steps, members)
        for step in steps:
            done = "did not stop" if step.unit in left else "stopped"
            self.recorder.step(
                f"{step.unit}: {done}{' and disabled' if step.disable else ''}, "
                f"{time.monotonic() - began:.1f} s",
                unit=step.unit,
            )
        verdict = self._cgroups(steps)
        for member in members:
            if member.gone():
                self._note(member.identity.pid, "unit")
            member.close()
        self.units_stopped += [step.unit for step in steps]
        if verdict is None:
            unit_stop.reset_failed(steps)
        return verdict

    def _wait_for_units(self, steps: Sequence[UnitStep], members: Sequence[Target]) -> set[str]:
        """Wait until systemd is done with them; the units that are not at the limit."""
        limit_s = max(self._stop_limit_s(step) for step in steps)
        with heartbeat(self.recorder.step, lambda: _stopping(steps, members), limit_s):
            return self._left_running(steps, members, time.monotonic() + limit_s)

    def _stop_limit_s(self, step: UnitStep) -> float:
        return self.limits.stop_starting_s if step.starting else self.limits.stop_units_s

    def _left_running(
        self, steps: Sequence[UnitStep], members: Sequence[Target], end: float
    ) -> set[str]:
        left = {step.unit for step in steps}
        while True:
            shown = show(sorted(left), timeout_s=10) or {}
            left = {name for name in left if name not in shown or shown[name].running}
            if not left or time.monotonic() >= end:
                return left
            # The end of a process is an event, that of the stop job is not: poll that.
            pidfds.wait_gone([member for member in members if not member.gone()], POLL_S)
            time.sleep(POLL_S / 4)

    def _cgroups(self, steps: Sequence[UnitStep]) -> Verdict | None:
        """SIGTERM, then SIGKILL, to every process that is still in the units' cgroups."""
        names = {step.unit for step in steps}
        for number, seconds in (
            (signal.SIGTERM, self.limits.term_s),
            (signal.SIGKILL, self.limits.kill_s),
        ):
            what = f"the processes left in {', '.join(sorted(names))} to end"
            with heartbeat(self.recorder.step, what, seconds):
                empty = self._empty(names, number, seconds)
            if empty:
                return None
        survivors = self._members(names)
        try:
            return self._survived(survivors)
        finally:
            _close(survivors)

    def _empty(self, names: set[str], number: signal.Signals, seconds: float) -> bool:
        """Send the signal to every member once, also to those that appear meanwhile, until the
        cgroups are empty (True) or the time is over."""
        sent: dict[pidfds.Identity, Target] = {}
        end = time.monotonic() + seconds
        while True:
            members = self._members(names)
            new = [member for member in members if member.identity not in sent]
            _close(member for member in members if member.identity in sent)
            if new:
                self.recorder.step(
                    f"{number.name} to {text.processes(len(new))} left in {', '.join(sorted(names))}"
                )
            for member in new:
                sent[member.identity] = member
                self._send(member, number)
            if number == signal.SIGKILL:
                self._thaw(new)
            over = not members or time.monotonic() >= end
            if over:
                for member in sent.values():
                    if member.gone():
                        self._note(member.identity.pid, number.name)
                _close(sent.values())
                return not members
            pidfds.wait_gone(sent.values(), min(POLL_S * 5, max(0.0, end - time.monotonic())))

    def _members(self, names: set[str]) -> list[Target]:
        """The living processes of the cgroups, each held before its membership is checked."""
        found, root = [], membership.own_root()
        shown = show(sorted(names))
        if shown is None and self.plan.situation is not None:
            # No answer does not mean no process: look where the unit was when the plan was made.
            shown = {
                name: unit
                for name, unit in (self.plan.situation.units or {}).items()
                if unit.name in names
            }
        for unit in (shown or {}).values():
            for pid in unit.pids():
                target = self._hold(pid)
                if target.gone() or membership.of(pid, root).system_unit not in names:
                    target.close()
                else:
                    found.append(target)
        return found

    # Containers, through their own engine.

    def _containers(self) -> Verdict | None:
        for step in self.plan.containers_to_stop:
            members = [self._hold(pid) for pid in step.pids]
            limit_s = self.limits.term_s + self.limits.kill_s + 20
            with heartbeat(self.recorder.step, f"the container {step.name} to stop", limit_s):
                result = containers.stop(
                    containers.Container(step.id, step.name, step.command),
                    max(1, round(self.limits.term_s)),
                    limit_s,
                )
            left = self._wait_gone(members, self.limits.kill_s if result.ok else 0)
            for member in members:
                if member.gone():
                    self._note(member.identity.pid, "container")
            verdict = self._survived(left) if left else None
            _close(members)
            if not result.ok or verdict:
                return verdict or _container_failed(step, result)
            self.recorder.step(f"container {step.name}: stopped by {step.command}")
        return None

    # Single processes, each through a pidfd.

    def _processes(self) -> Verdict | None:
        targets = [Target(holder.identity) for holder in self.plan.processes_to_end]
        try:
            return self._end(targets)
        finally:
            _close(targets)

    def _end(self, targets: list[Target]) -> Verdict | None:
        left = [target for target in targets if not target.gone()]
        for number, seconds in (
            (signal.SIGTERM, self.limits.term_s),
            (signal.SIGKILL, self.limits.kill_s),
        ):
            if not left:
                return None
            pids = ", ".join(str(target.identity.pid) for target in left)
            self.recorder.step(f"{number.name} to {pids}")
            for target in left:
                self._send(target, number)
            if number == signal.SIGKILL:
                self._thaw(left)
            still = self._wait_gone(left, seconds)
            for target in left:
                if target.gone():
                    self._note(target.identity.pid, number.name)
            left = still
        return self._survived(left) if left else None

    # What all steps share.

    def _wait_gone(self, targets: Sequence[Target], seconds: float) -> list[Target]:
        """Those that are still there after `seconds`."""
        with heartbeat(self.recorder.step, f"{text.processes(len(targets))} to end", seconds):
            return pidfds.wait_gone(targets, seconds)

    def _hold(self, pid: int) -> Target:
        """A pidfd for the process that has this pid now."""
        return Target(pidfds.identify(pid) or pidfds.Identity(pid, -1))

    def _send(self, target: Target, number: signal.Signals) -> None:
        pid = target.identity.pid
        failed = target.send(number)
        if number == signal.SIGTERM and failed is None:
            # A stopped process takes SIGTERM only once it goes on (systemd does the same).
            target.send(signal.SIGCONT)
        self.recorder.event("signal", pid=pid, signal=number.name, error=failed)
        if failed:
            self.recorder.step(f"{number.name} to {pid} failed: {failed}")

    def _thaw(self, killed: Sequence[Target]) -> None:
        pids = {target.identity.pid for target in killed}
        for pid in sorted(pids):
            if freezer.thaw(pid, pids):
                self.recorder.step(f"thawed the frozen cgroup of {pid}, so that it can end")

    def _note(self, pid: int, how: str) -> None:
        if all(one.pid != pid for one in self.ended):
            self.ended.append(Ended(pid, self.titles.get(pid, ""), how))

    def _survived(self, left: Iterable[Target]) -> Verdict | None:
        for target in left:
            pid = target.identity.pid
            found = procfs.stat(pid)
            if target.gone() or found is None or found.state in procfs.DEAD:
                continue
            return of_survivor(
                pid,
                text.short(self.titles.get(pid) or found.comm),
                found.state,
                procfs.read_text(pid, "wchan"),
                freezer.frozen(pid),
            )
        return None


def _stopping(steps: Sequence[UnitStep], members: Sequence[Target]) -> str:
    """What a stop waits for, at this moment."""
    left = [str(member.identity.pid) for member in members if not member.gone()]
    shown = f"{text.processes(len(left))} left: {', '.join(left)}" if left else "no process left"
    return f"{', '.join(step.unit for step in steps)} to stop ({shown})"


def _container_failed(step: ContainerStep, result: command.Result) -> Verdict:
    said = result.stderr.strip() or "no answer"
    return Verdict(UNIT_NOT_STOPPED, f"{step.command} stop {step.name} failed: {said}")


def _close(targets: Iterable[Target]) -> None:
    for target in targets:
        target.close()
