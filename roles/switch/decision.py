"""Whether an engine has to be switched, and why. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from roles.engine.desired import DesiredEngine, changed_against_live
from roles.host.managed import Change, Managed, change, rights_only
from roles.remote.snapshot import JSON, engine_facts, releases
from roles.switch.effects import MISSING, restarts
from roles.switch.ending import ending
from sglangctl.startup.render import stopped
from sglangctl.systemd.unit import UP
from sglangctl.systemd.unit_names import watch_unit
from sglangctl.util.values import mapping

STAGING_S = 60.0
"""More than the staging of one release takes."""


@dataclass(frozen=True)
class Decision:
    """Empty `reasons`: the live release is the wanted one and it runs."""

    reasons: tuple[str, ...]
    held: bool = False
    """It would stop what runs, and the inventory says `restart: never`: it stays due."""

    @property
    def needed(self) -> bool:
        return bool(self.reasons)

    @property
    def now(self) -> bool:
        """Whether this run makes the switch."""
        return self.needed and not self.held

    def __str__(self) -> str:
        return "; ".join(self.reasons)


Decide = Callable[[JSON], Decision]
"""From the probe's document to the decision about one engine."""


def decide(
    engine: Mapping[str, Any],
    wanted: str,
    changed_files: Sequence[str],
    unit_differs: bool,
    under_way: bool = False,
    rewritten: Sequence[str] = (),
) -> Decision:
    """Compare what the probe says of one engine with the wanted release.

    + engine: `releases` {current, ...}, `state` (state.json or None), `unit` (systemd's properties)
    + wanted: the digest of the release that the inventory describes
    + changed_files: names of the release's files that differ from the live ones
    + unit_differs: the unit in /etc/systemd/system is not the release's, in what a start reads
    + under_way: a switch of this engine runs now
    + rewritten: names of the release's files that were written after the engine's start
    """
    live = (engine.get("releases") or {}).get("current")
    unit = engine.get("unit") or {}
    state = engine.get("state") or {}
    reasons = []
    if live is None:
        runs = unit.get("ActiveState") in UP
        told = "it runs, and its release is not recorded any more"
        reasons.append(told if runs else "no release is live yet")
    elif live != wanted:
        reasons.append(f"{', '.join(changed_files) or 'the release'} changed")
    elif changed_files:
        reasons.append(f"{', '.join(changed_files)} of the live release was edited or is missing")
    elif unit_differs:
        reasons.append("the unit in /etc/systemd/system was edited")
    if state.get("phase") == "switching":
        reasons.append(
            "a switch of it is running" if under_way else "an earlier switch was interrupted"
        )
    if live == wanted and not unit_differs and not changed_files:
        if state.get("owes"):
            reasons.append(f"{state['owes']}, and the engine was not started since")
        elif rewritten:
            reasons.append(f"{', '.join(rewritten)} was written after the engine's start")
        active = unit.get("ActiveState")
        if active not in UP:
            by = (engine.get("last") or {}).get("stopped_by")
            ended = f": it was {stopped(by)}" if active and isinstance(by, str) else ""
            reasons.append(f"the unit is {active or 'unknown'}{ended}")
    return Decision(tuple(reasons))


def watch_reasons(
    watch: Mapping[str, Any],
    live: bool,
    read_files: Mapping[str, tuple[bool, float | None]],
    now: float = math.inf,
    unrecorded: bool = False,
) -> list[str]:
    """Why the watch of an engine has to be restarted; empty: it has not.

    + watch: systemd's properties of sglang-watch@NAME.service, with `started` (Unix seconds)
    + live: whether the engine has a live release (before that the switch starts the watch)
    + read_files: what the watch reads: name -> (this run changes it, its mtime as it was found)
    + now: the host's time; a file of the future (a clock that was put back) says nothing
    + unrecorded: the engine serves, and its journal is gone: only a new watch begins one again

    A run that was interrupted between a file and the restart is seen by the file's time.
    """
    if not live:
        return []
    if watch.get("ActiveState") != "active":
        return [f"it is {watch.get('ActiveState') or 'unknown'}"]
    reasons = [f"{name} changed" for name, (changes, _) in read_files.items() if changes]
    reasons += ["the journal of this start is gone"] if unrecorded else []
    started = watch.get("started")
    if started is not None:
        reasons += [
            f"{name} is newer than its start"
            for name, (changes, mtime) in read_files.items()
            if not changes and mtime is not None and started < mtime <= now
        ]
    return reasons


def side_of(engine: DesiredEngine, facts: JSON) -> DesiredEngine:
    """What the host is compared with: the engine, or one of its fallbacks, where the switch to this
    very release ended with that and it runs as it should. Pure."""
    about = engine_facts(facts, engine.name)
    state = about.get("state") or {}
    instead = mapping(state.get("fallback")).get("instead_of")
    if state.get("phase") == "live" and instead == engine.release.digest:
        for one in engine.fallbacks.values():
            if not _decision(one, facts).needed:
                return one
    return engine


def decision_of(engine: DesiredEngine) -> Decide:
    """From the probe's document to the decision about this engine."""
    return lambda facts: _decision(side_of(engine, facts), facts)


def _decision(engine: DesiredEngine, facts: JSON) -> Decision:
    # What has wrong rights only is put right without a restart: see roles/switch/drift.py.
    files = [
        one.item.path.rsplit("/", 1)[1]
        for one in changed_against_live(engine, facts)
        if not rights_only(one)
    ]
    wanted = engine.release.digest
    if unread(engine, facts):
        wanted, files = str(releases(facts, engine.name)["current"]), []
    unit = engine.installed_unit(facts)
    differs = change(unit, facts["files"][unit.path])
    lock = facts.get("lock") or {}
    about = engine_facts(facts, engine.name)
    decision = decide(
        about,
        wanted,
        files,
        differs is not None and restarts(differs),
        under_way=lock.get("engine") == engine.name,
        rewritten=rewritten(engine, facts),
    )
    runs = (about.get("unit") or {}).get("ActiveState") in UP
    others, own = ending(engine, facts)
    stops = runs or own > 0 or bool(others)
    held = decision.needed and engine.spec.restart == "never" and stops
    return replace(decision, held=held)


def unread(engine: DesiredEngine, facts: JSON) -> tuple[Change, ...]:
    """How the unit of the live release differs from the wanted one's, where nothing differs but what the
    running process has not read (our own time limits): it goes live without a restart. Pure."""
    state = engine_facts(facts, engine.name).get("state") or {}
    live = releases(facts, engine.name).get("current")
    if live in (None, engine.release.digest) or state.get("phase") not in ("live", "back"):
        return ()
    found = [one for one in changed_against_live(engine, facts) if not rights_only(one)]
    only_unit = [one.item.path.rsplit("/", 1)[1] for one in found] == ["sglang.service"]
    known = only_unit and found[0].why != MISSING
    return tuple(found) if known and not restarts(found[0]) else ()


def rewritten(engine: DesiredEngine, facts: JSON) -> list[str]:
    """The names of the live release's files that somebody wrote since the engine read them, although
    they are as they should be: it may have been started with others. Pure.

    All files of a release are staged in one moment: one that is much newer than the rest was not, also
    where the clock was set meanwhile.
    """
    unit = engine_facts(facts, engine.name).get("unit") or {}
    times = {
        name: (facts["files"][item.path] or {}).get("mtime")
        for name, item in engine.live_files.items()
    }
    started, staged = unit.get("started"), times.pop("manifest.json")
    if unit.get("ActiveState") not in UP or started is None or staged is None:
        return []
    now = host_time(facts)
    return [
        name
        for name, mtime in times.items()
        if name != "sglang.service"
        and mtime is not None
        and max(started, staged + STAGING_S) < mtime <= now
    ]


def watch_reasons_of(
    engine: DesiredEngine, managed: Sequence[Managed]
) -> Callable[[JSON], list[str]]:
    """From the probe's document to why this engine's watch has to be restarted.

    + managed: what the host's engines share, the watch's unit among it
    """
    wanted = [
        item
        for item in (*managed, engine.config)
        if item.path.endswith((f"/{watch_unit()}", f"/{engine.name}.json"))
    ]

    def of(facts: JSON) -> list[str]:
        about = engine_facts(facts, engine.name)
        live = releases(facts, engine.name).get("current") is not None
        read = {}
        for item in wanted:
            fact = facts["files"][item.path]
            read[item.path.rsplit("/", 1)[1]] = (
                change(item, fact) is not None,
                fact.get("mtime"),
            )
        serves = (about.get("unit") or {}).get("ActiveState") == "active"
        unrecorded = serves and about.get("last", {}) is None
        return watch_reasons(about.get("watch") or {}, live, read, host_time(facts), unrecorded)

    return of


def host_time(facts: JSON) -> float:
    """The host's clock at the probe, in Unix seconds (a second's grace for what it cut off)."""
    return datetime.fromisoformat(facts["time"].replace("Z", "+00:00")).timestamp() + 1
