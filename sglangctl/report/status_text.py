"""The status of engines as a table for people, and below it what is wrong and the next step."""

from __future__ import annotations

import time
from collections.abc import Sequence

from sglangctl.diagnosis.outcomes import PROVEN, SERVED
from sglangctl.report.status import EngineStatus
from sglangctl.startup import render
from sglangctl.util.terminal import cut, escaped
from sglangctl.util.values import number

HEAD = ("ENGINE", "STATE", "SINCE (UTC)", "PORT", "MODEL", "RELEASE", "PROOF")
WIDEST_MODEL = 32
STEP = "next step: "
FRESH_S = 5.0
"""A reading that is older than this carries its age."""
COLOURS = {"ready": 32, "serving": 32, "degraded": 33, "failed": 31, "unresponsive": 31}
"""SGR colours; a state of which nothing has to be done has none."""


def lines(found: Sequence[EngineStatus], width: int, colour: bool, details: bool) -> list[str]:
    """The table, then what is to be said of each engine.

    + width: columns of the terminal
    + details: also of an engine that is well: its unit, memory and speed
    """
    rows = [HEAD, *(row(one) for one in found)]
    widths = [max(len(each[at]) for each in rows) for at in range(len(HEAD))]
    shown = []
    for each in rows:
        cells = [cell.ljust(size) for cell, size in zip(each, widths)]
        line = cut("  ".join(cells).rstrip(), width)
        at = widths[0] + 2
        if colour and each[1] in COLOURS and line[at:].startswith(each[1]):
            painted = f"\x1b[{COLOURS[each[1]]}m{each[1]}\x1b[0m"
            line = line[:at] + painted + line[at + len(each[1]) :]
        shown.append(line)
    for one in found:
        more = below(one, details)
        shown += ["", *more] if more else []
    return shown


def row(one: EngineStatus) -> tuple[str, ...]:
    since = "-"
    if one.since is not None:
        ago = render.duration(max(0.0, time.time() - one.since))
        since = f"{render.clock(one.since).replace(' UTC', '')} ({ago})"
    return (
        one.name,
        state(one),
        since,
        str(one.port),
        cut(escaped(one.model), WIDEST_MODEL),
        (one.release or "-")[:12],
        proof(one),
    )


def state(one: EngineStatus) -> str:
    """One word: the phase of a start, else the outcome; what systemd says where nothing else is known."""
    if one.stopped_by:
        return "stopped"
    if starting(one):
        return one.phase or "starting"
    if down(one) and one.outcome in (*SERVED, "pending", None):
        return "down"
    return one.outcome or "unknown"


def down(one: EngineStatus) -> bool:
    return one.active in ("inactive", "failed")


def starting(one: EngineStatus) -> bool:
    """Also while the proof walks the users' paths, once it answers."""
    early = one.outcome == "pending" or (one.outcome == "serving" and one.phase != "serving")
    return early and not down(one)


def proof(one: EngineStatus) -> str:
    """When our own generation last proved it."""
    if one.generate_age_s is None or one.outcome not in (*PROVEN, "unresponsive"):
        return "-"
    speed = number((one.generate or {}).get("tokens_per_s"))
    text = f"{speed:.1f} tokens/s, " if speed is not None else ""
    return f"{text}{render.duration(one.generate_age_s)} ago"


def below(one: EngineStatus, details: bool) -> list[str]:
    """What is wrong with an engine, the deciding line, and the command."""
    doing = working(one)
    shown = [f"{one.name}: {doing}"] if doing else []
    if one.stopped_by:
        lived = (
            "" if one.elapsed_s is None else f", {render.duration(one.elapsed_s)} after its launch"
        )
        shown = [f"{one.name}: {render.stopped(one.stopped_by)}{lived}"]
    elif one.cause:
        why, step = render.explain(one.name, one.cause, one.evidence, one.folder)
        shown += [f"{one.name}: {why}", *deciding(one), *command_of(step), f"  {step}"]
    elif one.outcome not in ("pending", "ready", "serving", None) and not down(one):
        shown += [f"{one.name}: {one.outcome}", *deciding(one)]
    told = list(one.notes)
    if not (one.cause or one.stopped_by) and any(note.startswith(STEP) for note in told):
        # What systemd says of its failure, and what to do: see report/status.py, reasons.
        at = next(at for at, note in enumerate(told) if note.startswith(STEP))
        why, step = told[max(0, at - 1)], told[at]
        shown = [f"{one.name}: {escaped(why)}", f"  {escaped(step)}"]
        told = [note for note in told if note not in (why, step)]
    notes = [f"  note: {escaped(note)}" for note in (*instead(one), *told)]
    wrong = bool(shown or notes)
    if wrong and not shown:
        shown = [f"{one.name}: {state(one)}"]
    if details or wrong:
        shown += unit(one) if shown else [f"{one.name}: {unit(one)[0].strip()}", *unit(one)[1:]]
    if details and one.collective:
        shown.append(f"  collective: {escaped(one.collective)}")
    return [*shown, *notes]


def instead(one: EngineStatus) -> list[str]:
    """Which fallback serves, and why."""
    found = one.fallback
    if not found:
        return []
    wanted = str(found.get("instead_of"))[:12]
    because = f"because {found.get('cause')}"
    return [f"serves with fallback {found.get('name')} {because} (wanted: {wanted})"]


def deciding(one: EngineStatus) -> list[str]:
    return [f"  | {line}" for line in render.evidence(one.evidence)]


def command_of(step: str) -> list[str]:
    """The command that a next step begins with, in a line of its own: to be copied."""
    words = step.partition(": ")[2]
    if not words.startswith("`"):
        return []
    return [f"  {words[1:].partition('`')[0]}"]


def working(one: EngineStatus) -> str:
    """How far a start is."""
    if not starting(one) or one.stopped_by:
        return ""
    parts = [one.phase or "starting", *([escaped(one.progress)] if one.progress else [])]
    if one.eta_s is not None:
        error = "" if one.eta_error_s is None else f" (+- {render.duration(one.eta_error_s)})"
        parts.append(f"ETA {render.duration(one.eta_s)}{error}")
    if one.elapsed_s is not None:
        parts.append(f"{render.duration(one.elapsed_s)} since launch")
    return ", ".join(parts)


def unit(one: EngineStatus) -> list[str]:
    """The unit, and the last numbers."""
    text = f"{one.unit} {one.active}/{one.sub}" if one.active else f"{one.unit} (no systemd)"
    again = f", {render.restarted(one.restarts)}" if one.restarts else ""
    if one.sub == "auto-restart":
        again += f"; {render.next_try(one.restarts, one.tries, one.retry)}"
    numbers = [part for part in (memory(one), render.answer(one.generate)) if part]
    return [f"  {text}{again}", *([f"  {'; '.join(numbers)}"] if numbers else [])]


def memory(one: EngineStatus) -> str:
    """GPU memory, with its age; nothing of an engine that holds none any more."""
    text = "" if down(one) else render.gpu_memory(one.gpus)
    if text and one.gpus_age_s is not None and one.gpus_age_s >= FRESH_S:
        text += f" ({render.duration(one.gpus_age_s)} ago)"
    return text
