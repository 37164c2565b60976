"""What a deploy would do to each engine of a host, from the probe's document. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from roles.engine.desired import DesiredEngine, changed_against_live
from roles.host.managed import Change, Managed, changes
from roles.remote.snapshot import JSON, engine_facts, releases
from roles.report.choice import DUE, REPAIR, REPLACE, RESTART, START, STAYS, Choice
from roles.switch.blockers import blockers
from roles.switch.decision import decision_of, side_of, watch_reasons_of
from roles.switch.drift import drift
from roles.switch.ending import ending
from roles.switch.values import FOLLOWS, WIDTH, of_manifest, values
from sglangctl.diagnosis.outcomes import ORDER
from sglangctl.engine import deleted_log
from sglangctl.free.model import is_a_service
from sglangctl.switch.cutover import Cutover
from sglangctl.systemd.unit import UP
from sglangctl.systemd.unit_names import SWITCH_DROP_IN
from sglangctl.util.terminal import cut
from sglangctl.util.values import mapping, number


def choice_of(engine: DesiredEngine, managed: Sequence[Managed], facts: JSON, host: str) -> Choice:
    """For one engine of the inventory; `managed` is what the host's engines share."""
    about = engine_facts(facts, engine.name)
    notes = notes_of(engine, facts)
    decision = decision_of(engine)(facts)
    if not decision.needed:
        repairs = [
            *drift(engine, facts).lines,
            *values(changes([engine.config], facts["files"])),
            *(f"{one.item.path}: {one.why}" for one in changes(engine.managed, facts["files"])),
            *(f"its watch restarts: {why}" for why in watch_reasons_of(engine, managed)(facts)),
        ]
        return Choice(engine.name, REPAIR if repairs else STAYS, tuple(repairs), notes=notes)
    runs = (about.get("unit") or {}).get("ActiveState") in UP
    live = releases(facts, engine.name).get("current")
    changed = changed_against_live(engine, facts) if live is not None else []
    reasons = reasons_of(engine, facts, changed) or list(decision.reasons)
    ends, own = ending(engine, facts)
    action = REPLACE if ends else RESTART if runs or own else START
    was = engine_facts(facts, engine.spec.was or "")
    if was and live is None:
        reasons = [f"takes the place of {engine.spec.was}, with its caches and journals"]
    if decision.held:
        command = f"pyinfra inventory.py deploys/sglang.py --data restart=auto --limit {host}"
        due = f"not done now: `restart: never`{ends_with(ends)}. To do it:"
        return Choice(engine.name, DUE, (*reasons, due), notes=notes, command=command)
    without_s, phases = dark(mapping(about.get("last") or was.get("last")), gated(engine, facts))
    return Choice(
        engine.name,
        action,
        tuple(reasons),
        without_s=without_s,
        phases=phases,
        ends=tuple(ends),
        own=own,
        notes=notes,
        fails=tuple(text for one in blockers(facts, engine) for text in one.splitlines()[:1]),
    )


def reasons_of(engine: DesiredEngine, facts: JSON, changed: Sequence[Change]) -> list[str]:
    """The values that changed, those that follow from others left out; and that somebody did it by hand,
    where the live release is the wanted one."""
    found = values(changed)
    file = engine.live_files["manifest.json"]
    found = [*of_manifest(facts["files"].get(file.path) or {}, file.content), *found]
    told = [one for one in found if not FOLLOWS.match(one)]
    if releases(facts, engine.name).get("current") == engine.release.digest:
        return [f"edited by hand: {one}" if "missing" not in one else one for one in told or found]
    return told or found


def gated(engine: DesiredEngine, facts: JSON) -> bool:
    """Whether the switch starts the engine beside what serves."""
    way = Cutover.from_json(engine_facts(facts, engine.name, "plans").get("cutover"))
    return way is not None and way.gated


def dark(last: JSON, gated: bool) -> tuple[float | None, dict[str, float]]:
    """For how long nothing will serve, in seconds, by an engine's last start (None: not known), and the
    phases of that. What comes up to a gate comes while the old engine still serves."""
    served = number(last.get("served_after_s"))
    seconds = {name: number(s) or 0.0 for name, s in mapping(last.get("phases")).items()}
    phases = {name: s for name, s in seconds.items() if name in ORDER and name != "serving"}
    waited = phases.pop("gated", 0.0)
    if served is None:
        return None, {}
    if not gated:
        return served - waited, phases
    after = {name: s for name, s in phases.items() if ORDER[name] > ORDER["gated"]}
    return (sum(after.values()) if after else None), after


def ends_with(others: Sequence[str]) -> str:
    return f", and it would end {', '.join(others)}" if others else ""


def notes_of(engine: DesiredEngine, facts: JSON) -> tuple[str, ...]:
    """A fallback that serves, others on the GPUs of an engine that stays, drop-ins of others, and a log
    that was deleted while the engine writes it."""
    unit = engine_facts(facts, engine.name).get("unit") or {}
    stays, found = not decision_of(engine)(facts).needed, []
    if side_of(engine, facts) is not engine:
        about = mapping((engine_facts(facts, engine.name).get("state") or {}).get("fallback"))
        found.append(
            f"fallback {about.get('name')} serves because {about.get('cause')}: it is kept while the "
            f"inventory is the same. To try release {engine.release.digest[:12]} again, on "
            f"the host: sglangctl stop {engine.name}, then deploy"
        )
    if stays:
        found += beside(engine_facts(facts, engine.name, "plans"))
    paths = str(unit.get("DropInPaths") or "").split()
    others = [path for path in paths if not path.endswith(f"/{SWITCH_DROP_IN}")]
    if others:
        found.append(f"drop-ins change {engine.spec.unit}, and are left alone: {', '.join(others)}")
    if stays and engine_facts(facts, engine.name).get("log_deleted") is True:
        log, unit_name = Path(engine.spec.log), engine.installed_unit(facts).path.rsplit("/", 1)[1]
        found.append(deleted_log.sentence(log, unit_name))
    return tuple(found)


def beside(plan: JSON) -> list[str]:
    """Whoever is on the GPUs of an engine that stays, and may not be ended: one line each remedy. Not
    the remedy of a switch, which stops the engine too."""
    found: dict[str, list[JSON]] = {}
    for one in plan.get("refused") or []:
        found.setdefault(str(one.get("unit") or one.get("allow")), []).append(one)
    return [line for several in found.values() for line in alone(several)]


def alone(several: Sequence[JSON]) -> list[str]:
    first, pids = several[0], [str(one["pid"]) for one in several if one.get("pid") is not None]
    who = (
        f"{cut(str(first.get('who')), WIDTH)} (pid {', '.join(pids)})" if pids else first.get("who")
    )
    unit = str(first.get("unit") or "")
    service = is_a_service(unit)
    end = f"systemctl stop {unit}" if service else f"kill {' '.join(pids)}"
    known = service or pids
    remedy = f". To end that alone, on the host: {end}" if known else ""
    return [f"{who} is on its GPUs too, and left alone ({first.get('reason')}){remedy}"]
