"""The engines of this host as metrics: what `status`, `holders` and the accepted loads know.

Gauges only, in the text format that Prometheus, OpenMetrics and node_exporter's textfile collector all
read. What is not known has no sample: an alert on absence is the reader's choice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sglangctl.diagnosis.outcomes import OUTCOMES
from sglangctl.engine import accepted
from sglangctl.holders.survey import Holder
from sglangctl.report.status import EngineStatus
from sglangctl.state import starts
from sglangctl.state.config import EngineConfig
from sglangctl.state.paths import Paths
from sglangctl.state.release import link_target
from sglangctl.systemd.unit_names import engine_unit, slots
from sglangctl.util import lazy_re
from sglangctl.util.values import mapping, number

NAMES = {
    "sglang_engine_info": "Release and version that are live.",
    "sglang_engine_outcome": "1 for the last outcome of the watch, 0 for the others.",
    "sglang_engine_seen_seconds": "Since the watch's last event.",
    "sglang_engine_phase_seconds": "Time that the present start spent in a phase.",
    "sglang_engine_served_after_seconds": "From the launch until it served first.",
    "sglang_engine_serving_seconds": "Since it served first, while it is up.",
    "sglang_engine_restarts": "Restarts by systemd since the unit was started.",
    "sglang_engine_alarms": "How often the present start was called stalled or unresponsive.",
    "sglang_engine_proof_tokens_per_second": "Of the last proof's generation.",
    "sglang_engine_proof_first_token_seconds": "Of the last proof's generation.",
    "sglang_engine_proof_warm_seconds": "What walking the users' paths took.",
    "sglang_engine_accept_length_tokens": "Of speculative decoding, over the proof's prompts.",
    "sglang_engine_accepted_tokens_per_second": "Of the last accepted load.",
    "sglang_gpu_memory_used_bytes": "Of a GPU of the engine, whoever uses it.",
    "sglang_gpu_memory_total_bytes": "Of a GPU of the engine.",
    "sglang_gpu_utilization_ratio": "Of a GPU of the engine: 0 to 1.",
    "sglang_gpu_power_watts": "Of a GPU of the engine.",
    "sglang_gpu_holder_memory_bytes": "GPU memory by the class of its holders.",
}
ALARMS = ("stalled", "unresponsive")
_ODD = lazy_re.compile(r'[\\"\n]')
_ESCAPED = {"\\": "\\\\", '"': '\\"', "\n": "\\n"}
MIB = 1 << 20
OF_GPU = (
    ("sglang_gpu_memory_used_bytes", "memory_used_mib", MIB),
    ("sglang_gpu_memory_total_bytes", "memory_total_mib", MIB),
    ("sglang_gpu_utilization_ratio", "utilization_pct", 0.01),
    ("sglang_gpu_power_watts", "power_w", 1.0),
)
"""Metric, the journal's field, what its unit is multiplied with."""
GPUS_AGE_S = 180.0
"""Older than this, what the journal has of the GPUs is not told: while it serves, it has them once a minute."""

Sample = tuple[str, dict[str, str], float]


def of_engine(config: EngineConfig, status: EngineStatus, paths: Paths) -> list[Sample]:
    """The samples of one engine."""
    name = {"engine": config.name}
    found: list[Sample] = []

    def add(metric: str, value: Any, **labels: str) -> None:
        known = number(value)
        if known is not None:
            found.append((f"sglang_engine_{metric}", {**name, **labels}, known))

    release = link_target(config.name, "current", paths)
    # Its own name: a series must not end because the engine is in its other slot now.
    unit = engine_unit(config.name) if config.unit in slots(config.name) else config.unit
    add("info", 1, unit=unit, release=release or "", version=config.version or "")
    for outcome in OUTCOMES:
        if status.outcome is not None:
            add("outcome", int(status.outcome == outcome), outcome=outcome)
    add("seen_seconds", status.seen_s)
    for phase, seconds in status.phases.items():
        add("phase_seconds", seconds, phase=phase)
    add("served_after_seconds", status.served_after_s)
    add("serving_seconds", status.serving_s)
    add("restarts", status.restarts)
    add("alarms", alarms(config.name, status.start, paths))
    proof = mapping(status.generate)
    add("proof_tokens_per_second", proof.get("tokens_per_s"))
    add("proof_first_token_seconds", proof.get("ttft_s"))
    add("proof_warm_seconds", mapping(proof.get("warm")).get("seconds"))
    add("accept_length_tokens", proof.get("accept_length"))
    kept = accepted.entries(config.name, paths)
    for speed in accepted.speeds_of(kept[-1] if kept else None):
        add("accepted_tokens_per_second", speed.tokens_per_s, concurrency=str(speed.concurrency))
    if status.gpus_age_s is not None and status.gpus_age_s <= GPUS_AGE_S:
        found += of_gpus(name, status.gpus)
    return found


def of_gpus(engine: Mapping[str, str], gpus: Iterable[Mapping[str, Any]]) -> list[Sample]:
    """The engine's GPUs, as the watch saw them last."""
    found: list[Sample] = []
    for gpu in gpus:
        for metric, key, unit in OF_GPU:
            value = number(gpu.get(key))
            if value is not None:
                labels = {**engine, "gpu": str(gpu.get("index"))}
                found.append((metric, labels, round(value * unit, 6)))
    return found


def alarms(name: str, start: str | None, paths: Paths) -> int | None:
    """How often a start's verdict became an alarm; None without a journal."""
    if start is None:
        return None
    count, before = 0, ""
    for event in starts.verdicts(paths.starts(name) / start / starts.JOURNAL):
        outcome = starts.outcome_of(event)
        count += outcome in ALARMS and outcome != before
        before = outcome
    return count


def of_holders(holders: Iterable[Holder]) -> list[Sample]:
    """GPU memory by GPU and class."""
    sums: dict[tuple[int, str], int] = {}
    for holder in holders:
        for gpu, mib in holder.memory_mib.items():
            if mib is not None:
                key = (gpu, holder.class_)
                sums[key] = sums.get(key, 0) + mib
    return [
        ("sglang_gpu_holder_memory_bytes", {"gpu": str(gpu), "class": kind}, float(mib * MIB))
        for (gpu, kind), mib in sorted(sums.items())
    ]


def text(samples: Iterable[Sample]) -> str:
    """All samples, each metric's together, with help and type, and the end that OpenMetrics wants."""
    lines: dict[str, list[str]] = {}
    for name, labels, value in samples:
        lines.setdefault(name, []).append(f"{name}{labelled(labels)} {shown(value)}\n")
    parts = [
        f"# HELP {name} {NAMES[name]}\n# TYPE {name} gauge\n{''.join(lines[name])}"
        for name in NAMES
        if name in lines
    ]
    return "".join(parts) + "# EOF\n"


def labelled(labels: Mapping[str, str]) -> str:
    """`{a="b"}`, escaped."""
    pairs = (f'{key}="{_ODD.sub(lambda m: _ESCAPED[m[0]], text)}"' for key, text in labels.items())
    return "{" + ",".join(pairs) + "}"


def shown(value: float) -> str:
    """A number as short as it can be without losing anything."""
    return str(int(value)) if value == int(value) else repr(value)
