"""Text for people: the same on the host (`status`) and on the controller (the readiness role).

Everything that comes from the engine or from a journal passes through `escaped`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sglangctl.diagnosis.outcomes import PROVEN
from sglangctl.util.terminal import cut, escaped
from sglangctl.util.values import number

if TYPE_CHECKING:
    from sglangctl.startup.assessment import Assessment

WIDTH = 200
"""Of an evidence line: log lines can have kilobytes."""


def duration(seconds: float) -> str:
    """`0.4 s`, `42 s`, `3 min 12 s`, `1 h 05 min`."""
    if seconds < 9.95:
        return f"{max(0.0, seconds):.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def clock_time(seconds: float | None) -> str:
    """`02:56:10 UTC` of Unix seconds; empty where there are none, or no time of ours."""
    return _at("%H:%M:%S UTC", seconds)


def clock(seconds: float | None, now: float | None = None) -> str:
    """`02:56:10 UTC`, with the day where it is another one than `now`'s; of the host's clock."""
    day = _at("%Y-%m-%d", seconds)
    if not day:
        return "an unknown time"
    today = _at("%Y-%m-%d", time.time() if now is None else now)
    return clock_time(seconds) if day == today else f"{day} {clock_time(seconds)}"


def _at(form: str, seconds: float | None) -> str:
    try:
        return "" if seconds is None else time.strftime(form, time.gmtime(seconds))
    except (OverflowError, OSError, ValueError):
        return ""


def gpu_memory(gpus: Sequence[Mapping[str, Any]]) -> str:
    """`8 GPUs 75.9-76.1 of 95.6 GiB`, from a gpu event's list; empty when there is nothing."""
    known = [
        (gpu["memory_used_mib"], gpu["memory_total_mib"])
        for gpu in gpus
        if _number(gpu.get("memory_used_mib")) and _number(gpu.get("memory_total_mib"))
    ]
    if not known:
        return ""
    used = [one for one, _ in known]
    count = "GPU" if len(known) == 1 else f"{len(known)} GPUs"
    return f"{count} {_range(used)} of {_range([total for _, total in known])} GiB"


def eta(view: Assessment) -> str:
    """`ETA 55 s (+- 20 s)`; empty when the fold has none."""
    if view.eta_s is None:
        return ""
    about = "" if view.eta_error_s is None else f" (+- {duration(view.eta_error_s)})"
    to = "" if view.eta_until in (None, "serving") else f" to the end of {view.eta_until}"
    return f"ETA {duration(view.eta_s)}{about}{to}"


def stopped(by: str) -> str:
    """`stopped by a switch of chat to release ...`: an end that somebody asked for."""
    if by == "systemd":
        return "stopped by systemd (systemctl stop or restart, or the host went down)"
    return f"stopped by {escaped(by)}"


def progress_line(view: Assessment, elapsed_s: float, gpus: Sequence[Mapping[str, Any]]) -> str:
    """One line of a start that goes on: elapsed, phase, progress, ETA, GPU memory."""
    word = view.phase
    if view.outcome in PROVEN:
        word = view.outcome
    elif view.stopped_by:
        word = stopped(view.stopped_by)
    elif view.outcome not in ("pending", "serving"):
        word = f"{view.phase}, {view.outcome}" + (f" ({view.cause})" if view.cause else "")
    parts = [escaped(view.progress or ""), eta(view), gpu_memory(gpus)]
    return "  ".join([f"{duration(elapsed_s):>11}", f"{escaped(word):<10}", *filter(None, parts)])


def evidence(lines: Sequence[str], width: int = WIDTH) -> list[str]:
    """Log lines and readings that an outcome rests on, fit for a terminal."""
    parts = [part.rstrip() for line in lines for part in str(line).splitlines() if part.strip()]
    # The log's last line often is the telling one, which stands above it already.
    shown = [part for part in parts if not (part.startswith("log: ") and part[5:] in parts)]
    return [cut(escaped(part), width) for part in shown]


def explain(name: str, cause: str, evidence: Sequence[str] = (), folder: str = "") -> list[str]:
    """What a cause means and what to do, for the engine `name`; one line each.

    `evidence` names the processes, `folder` is the model's: for the command to be copied.
    """
    from sglangctl.diagnosis.causes import CAUSES  # lazy: `status` of a healthy host needs no table

    known = CAUSES.get(cause)
    if known is None:
        return [f"{escaped(cause)}"]
    return [
        f"{known.name}: {known.sentence}",
        f"next step: {escaped(known.next_for(name, evidence, folder))}",
    ]


def restarted(times: int | None) -> str:
    """`restarted once`, `restarted 3 times`."""
    return "restarted once" if times == 1 else f"restarted {times} times"


def next_try(restarts: float | None, tries: float | None, retry: str | None) -> str:
    """`systemd tries again (2 of 3, 10s after its end)`, of a unit in auto-restart."""
    count = 0.0 if restarts is None else restarts + 2
    if tries and count > tries:
        return "systemd tries once more at most"
    parts = [] if restarts is None or not tries else [f"{count:.0f} of {tries:.0f}"]
    parts += [f"{escaped(retry)} after its end"] if retry else []
    return "systemd tries again" + (f" ({', '.join(parts)})" if parts else "")


def phase_table(durations: Mapping[str, float]) -> str:
    """`importing 11 s, loading 42 s, ...`."""
    return ", ".join(f"{escaped(name)} {duration(taken)}" for name, taken in durations.items())


def answer(generate: Mapping[str, Any] | None) -> str:
    """`41.2 tokens/s, first token after 0.21 s, accept length 2.10` of a generation."""
    if not generate:
        return ""
    parts = []
    for key, text in (
        ("tokens_per_s", "{:.1f} tokens/s"),
        ("ttft_s", "first token after {:.2f} s"),
        ("accept_length", "accept length {:.2f}"),
    ):
        if _number(generate.get(key)):
            parts.append(text.format(generate[key]))
    return ", ".join(parts)


def walks(warm: Any) -> str:
    """`8 paths walked in 6.1 s, the slowest first took 85 s`, of the `warm` of a generate event."""
    paths = warm.get("paths") if isinstance(warm, Mapping) else None
    if not isinstance(paths, list):
        return ""
    walked = [path for path in paths if isinstance(path, Mapping) and _number(path.get("first_s"))]
    text = f"{len(walked)} paths walked"
    if _number(warm.get("seconds")):
        text += f" in {duration(warm['seconds'])}"
    slowest = max(walked, key=lambda path: float(path["first_s"]), default=None)
    if slowest is not None:
        name = escaped(str(slowest.get("name") or "a path"))
        text += f"; slowest at first: {name}, {duration(slowest['first_s'])}"
    return text


def _range(values: Sequence[float]) -> str:
    low, high = f"{min(values) / 1024:.1f}", f"{max(values) / 1024:.1f}"
    return low if low == high else f"{low}-{high}"


def _number(value: Any) -> bool:
    return number(value) is not None
