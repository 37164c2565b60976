"""Measured loads that were accepted, and whether a new one is worse.

`accepted.json` of an engine keeps the last ones, each with the model, the hardware and the release
that it was measured on: only what was measured on the same is compared. A new release is held
against the engine that it replaced as well, and so are its answers.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import Any

from sglangctl.engine import canaries
from sglangctl.engine.canaries import Agreement
from sglangctl.engine.former import Former
from sglangctl.engine.http import Endpoint
from sglangctl.engine.kinds import CHATTING, Kind
from sglangctl.engine.load import Load, Speed, measure
from sglangctl.gpu import gpus
from sglangctl.state.config import VERSION, Acceptance, EngineConfig
from sglangctl.state.files import write_atomic
from sglangctl.state.paths import Paths
from sglangctl.state.release import link_target
from sglangctl.util import os_errors, plain_files
from sglangctl.util.values import json_object, mapping, mappings, text

KEPT = 50
TOLD = 20
SHOWN = ("concurrency", "tokens_per_s", "first_p50_s", "pace_p50_s")
"""Measurements, and fields of Speed, for the reports of a controller."""
SURE = 2.0
"""Standard errors by which a speed must be below the tolerance to be called worse."""
LEAST_FIRST_S = 0.05
"""First tokens that differ by less are the same."""
MOST_BYTES = 1 << 20
COMPARED = (
    ("a token", "pace_p20_s", 20, 0.0),
    ("a token at the median", "pace_p50_s", 50, 0.0),
    ("until the first token", "first_p20_s", 50, LEAST_FIRST_S),
)
"""Words, field of Speed, whose noise counts (p20 or p50), and seconds that make no difference."""


@dataclass(frozen=True)
class Comparison:
    """Sentences with the numbers. Both empty: it is as fast as it was, within the tolerance."""

    worse: tuple[str, ...]
    unsure: tuple[str, ...]
    """It looks worse, and the noise is too great to tell."""


@dataclass(frozen=True)
class Judged:
    """One measurement, beside the last accepted one of the same model and hardware."""

    load: Load
    against: dict[str, Any] | None
    comparison: Comparison
    before: Former | None = None
    """The engine that it replaced."""
    answers: Agreement | None = None
    """With the answers of that one."""
    kept: bool = False
    unkept: str = ""
    """Why it could not be kept: that makes no engine worse."""

    def event(self, wanted: Acceptance) -> dict[str, Any]:
        """`acceptance` of a `generate` event, and of `bench --json`."""
        found = {
            **self.load.as_dict(),
            "worse": [*self.differences, *self.comparison.worse],
            "unsure": list(self.comparison.unsure),
            "compared_with": (self.against or {}).get("time"),
            "fail": wanted.fail,
            "kept": self.kept,
        }
        if self.before is not None:
            one = self.before
            found["before"] = {"who": one.who, "time": one.time, **(one.load or {})}
        if self.answers is not None:
            same = self.before is not None and self.before.same_weights is True
            words = self.before.weights if self.before is not None and not same else ""
            said = "; ".join(filter(None, (self.answers.said(), words)))
            found["answers"] = {**self.answers.as_dict(), "same_weights": same, "said": said}
        return found

    @property
    def differences(self) -> list[str]:
        """Of its answers, where the weights are the same: other weights answer otherwise."""
        if self.answers is None or self.before is None or self.before.same_weights is not True:
            return []
        who = self.before.who
        found = self.answers.differences()
        return [f"with the same weights it answers otherwise than {who}: {one}" for one in found]


def judge(
    config: EngineConfig,
    wanted: Acceptance,
    paths: Paths,
    where: Endpoint,
    kind: Kind = CHATTING,
    keep: bool | None = None,
    before: Former | None = None,
) -> Judged:
    """Measure, compare, and keep what is not worse (`keep`: in any case, or never). `before`: what it
    has replaced, to be held against too."""
    against, answers = last(config, paths), None
    if before is not None and before.answers:
        logprobs = canaries.safe(config.drafter is not None, config.version)
        answers = canaries.compare(where, before.answers, logprobs, wanted.limit_s)
    same_way = before is not None and before.kind == kind.name
    replaced = before.load if before is not None and same_way else None
    load, found = measured(where, config.served_name, wanted, against, kind, replaced)
    judged = Judged(load, against, found, before, answers)
    good = load.fault is None and bool(load.speeds) and not (found.worse or judged.differences)
    kept = good if keep is None else keep and load.fault is None
    unkept = ""
    if kept:
        try:
            store(config, load, paths)
        except OSError as error:
            kept, unkept = False, os_errors.sentence(error)
    return replace(judged, kept=kept, unkept=unkept)


def measured(
    where: Endpoint,
    model: str,
    wanted: Acceptance,
    against: Mapping[str, Any] | None,
    kind: Kind = CHATTING,
    replaced: Mapping[str, Any] | None = None,
) -> tuple[Load, Comparison]:
    """Measure and compare, once more where it looks worse: a busy minute of the host is no slower
    engine. `against`, `replaced`: what was accepted, and what the engine before it had."""

    def compared() -> Comparison:
        accepted = compare(load, against, wanted.tolerance)
        before = compare(load, replaced, wanted.tolerance, "the engine before it had")
        return Comparison(accepted.worse + before.worse, accepted.unsure + before.unsure)

    load = measure(where, model, wanted, kind)
    found = compared()
    if (found.worse or found.unsure) and load.fault is None:
        load = best(load, measure(where, model, wanted, kind))
        found = compared()
    return load, found


def best(one: Load, other: Load) -> Load:
    """The faster one: noise makes an engine slower, never faster."""

    def gap(load: Load) -> float:
        return sum(speed.pace_p20_s or 1e9 for speed in load.speeds) if load.speeds else 1e12

    return other if other.fault is None and gap(other) < gap(one) else one


def compare(
    load: Load,
    against: Mapping[str, Any] | None,
    tolerance: float,
    whose: str = "accepted were",
) -> Comparison:
    """What of `load` is slower than another one's document by more than `tolerance` (a share)."""
    before = {speed.concurrency: speed for speed in speeds_of(against)}
    worse: list[str] = []
    unsure: list[str] = []
    for speed in load.speeds:
        old = before.get(speed.concurrency)
        if old is None:
            continue
        at_once = "one at a time" if speed.concurrency == 1 else f"{speed.concurrency} at once"
        for label, field, percentile, least_s in COMPARED:
            now_s, then_s = getattr(speed, field), getattr(old, field)
            error = _both(speed, old, percentile)
            if not now_s or not then_s or now_s - then_s <= least_s:
                continue
            share = then_s / now_s
            if share >= 1.0 - tolerance:
                continue
            line = (
                f"{at_once}: {now_s * 1000:.1f} ms {label}, {whose} {then_s * 1000:.1f} ms "
                f"({100 * (1 - share):.0f} % slower, tolerance {100 * tolerance:.0f} %)"
            )
            sure = share + SURE * error * share < 1.0 - tolerance
            (worse if sure else unsure).append(line)
    return Comparison(tuple(worse), tuple(unsure))


def _both(now: Speed, then: Speed, percentile: int) -> float:
    """The relative error of the ratio of two speeds."""
    errors = [getattr(speed, f"noise_p{percentile}") or 0.0 for speed in (now, then)]
    return float(sum(error * error for error in errors) ** 0.5)


def last(config: EngineConfig, paths: Paths, release: str | None = None) -> dict[str, Any] | None:
    """The last accepted measurement of the same model and hardware (and of `release`)."""
    wanted = {"model": config.model, "hardware": hardware_of(config)}
    if release is not None:
        wanted["release"] = release
    for entry in reversed(entries(config.name, paths)):
        if all(entry.get(key) == value for key, value in wanted.items()):
            return dict(entry)
    return None


def entries(name: str, paths: Paths) -> list[dict[str, Any]]:
    """What is kept of an engine, oldest first; what is no file that can be parsed counts as none, also
    a folder or a FIFO. PermissionError passes through."""
    try:
        found = json_object(plain_files.read_bytes(paths.accepted(name), MOST_BYTES))
    except PermissionError:
        raise
    except OSError:
        return []
    return mappings(found.get("accepted")) if found.get("v") == VERSION else []


def store(config: EngineConfig, load: Load, paths: Paths) -> None:
    """Keep a measurement as accepted."""
    entry = {
        "time": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "model": config.model,
        "hardware": hardware_of(config),
        "release": link_target(config.name, "current", paths),
        "version": config.version,
        **load.as_dict(),
    }
    kept = [*entries(config.name, paths), entry][-KEPT:]
    file = paths.accepted(config.name)
    file.parent.mkdir(parents=True, exist_ok=True)
    data = json.dumps({"v": VERSION, "accepted": kept}, indent=1).encode()
    write_atomic(file, data + b"\n", 0o644)


def speeds_of(entry: Mapping[str, Any] | None) -> list[Speed]:
    """The speeds of a kept measurement."""
    found = [Speed.read(item) for item in mappings(mapping(entry).get("speeds"))]
    return [speed for speed in found if speed is not None]


def hardware_of(config: EngineConfig) -> str:
    """The GPUs that the engine uses, in words; without any the processor."""
    found = gpus.read().gpus or ()
    used = [one.name for one in found if config.gpus == "all" or one.index in config.gpus]
    if used:
        kinds = sorted(set(used))
        return ", ".join(f"{used.count(kind)} x {kind}" for kind in kinds)
    return f"{os.cpu_count()} processor cores"


def described(entry: Mapping[str, Any]) -> list[str]:
    """A measurement in lines for people."""
    lines = []
    for speed in speeds_of(entry):
        count = "1 at a time" if speed.concurrency == 1 else f"{speed.concurrency} at once"
        parts = [f"{speed.tokens_per_s or 0:.1f} tokens/s"]
        for label, values in (
            ("first token", (speed.first_p50_s, speed.first_p95_s)),
            ("between tokens", (speed.gap_p50_s, speed.gap_p95_s, speed.gap_p99_s)),
        ):
            shown = " / ".join("?" if value is None else f"{value * 1000:.1f}" for value in values)
            parts.append(f"{label} {shown} ms")
        lines.append(f"{count:<12} {', '.join(parts)}")
    return lines


def history(name: str, paths: Paths) -> list[dict[str, Any]]:
    """The newest measurements that are kept of an engine, for a report: what made them, and the speeds
    that people look at."""
    return [
        {
            **{key: entry.get(key) for key in ("time", "model", "hardware", "release", "version")},
            "speeds": [{key: getattr(speed, key) for key in SHOWN} for speed in speeds_of(entry)],
        }
        for entry in entries(name, paths)[-TOLD:]
    ]


def text_or_dash(value: Any) -> str:
    """A field of an entry as text."""
    return text(value) or "-"
