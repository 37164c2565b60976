"""`nccl.profile: auto`: which profile a kept result of `sglangctl collective` speaks for, and why. Pure.

It depends on that result alone, so it changes only when a new one is kept. A driver or a GPU that is
another one since changes nothing: an engine that is proven to work with `safe` must not fall back to
peer-to-peer because of an upgrade.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from roles.inventory.model import EngineSpec, Nccl, custom_all_reduce
from roles.inventory.nccl import PROFILES
from sglangctl.collective.answers import HUNG, RIGHT, WRONG
from sglangctl.collective.arms import Arm, effective
from sglangctl.util.values import mapping, mappings, number, text, texts, whole

DEFAULT, SAFE = "none", "safe"
FASTER = 0.05
"""By which share a profile must be faster than NCCL's own choices: the rest is noise."""
HOW = "deploys/collective.py, while it is down"


@dataclass(frozen=True)
class Chosen:
    profile: str
    why: str


@dataclass(frozen=True)
class _Seen:
    """One arm of the result."""

    arm: Arm
    outcome: str
    times_s: Mapping[int, float]
    """By bytes, of the largest world."""


def choose(engine: EngineSpec, known: Mapping[str, Any] | None) -> Chosen:
    """The profile for an engine with `nccl.profile: auto`.

    + known: the probe's `collectives` of this engine: {entry, differs}
    """
    entry = mapping(mapping(known).get("entry"))
    if not entry:
        return Chosen(DEFAULT, f"not proven on this host ({HOW}, does that)")
    ranks = whole(entry.get("ranks")) or 0
    if ranks < engine.tensor_parallel:
        return Chosen(DEFAULT, f"proven for {ranks} ranks only, not for {engine.tensor_parallel}")
    found = _chosen(engine, [_seen(one) for one in mappings(entry.get("arms"))])
    words = [text(entry.get("time"))]
    words += [f"{what} {entry[what]}" for what in ("driver", "nccl") if text(entry.get(what))]
    told = f"{found.why} ({', '.join(filter(None, words))})"
    since = texts(mapping(known).get("differs"))
    if since:
        told += f"; since then: {', '.join(since)}: prove it again ({HOW})"
    return Chosen(found.profile, told)


def _seen(one: Mapping[str, Any]) -> _Seen:
    variables = {
        name: value
        for name, value in mapping(one.get("environment")).items()
        if isinstance(value, str)
    }
    pairs = one.get("times")
    times = {
        size: seconds
        for pair in (pairs if isinstance(pairs, list) else ())
        if isinstance(pair, list) and len(pair) == 2
        if (size := whole(pair[0])) and (seconds := number(pair[1])) and seconds > 0
    }
    return _Seen(Arm(str(one.get("name")), variables), str(one.get("outcome")), times)


def _chosen(engine: EngineSpec, seen: list[_Seen]) -> Chosen:
    bad = [one for one in seen if one.arm.peer_to_peer and one.outcome in (WRONG, HUNG)]
    if bad:
        what = f"with peer-to-peer all-reduces {'hung' if bad[0].outcome == HUNG else 'were wrong'}"
        if any(one.outcome == RIGHT for one in seen if not one.arm.peer_to_peer):
            return Chosen(SAFE, f"{what}, without it every sum was right")
        return Chosen(DEFAULT, f"{what}, and no profile proved right")
    proven = dict(_proven(engine, seen))
    own = proven.get(DEFAULT)
    best, gain = DEFAULT, 0.0
    for name, one in proven.items():
        # What `safe` gives up beside NCCL was not measured.
        if own is None or name in (DEFAULT, SAFE):
            continue
        faster = 1 - _ratio(one, own)
        if faster >= FASTER and faster > gain:
            best, gain = name, faster
    if own is not None and best != DEFAULT:
        return Chosen(best, f"right, and {gain:.0%} less time than with NCCL's own choices")
    if own is not None:
        others = len(proven) > 1
        return Chosen(DEFAULT, "right" + (", and no other profile is faster" if others else ""))
    if proven:
        # Before throughput: what NCCL refuses may be in the way of SGLang's own all-reduce, too.
        name = SAFE if SAFE in proven else next(iter(proven))
        return Chosen(name, "right; NCCL's own choices are not proven")
    return Chosen(DEFAULT, "no profile was measured with these overrides and flags")


def _proven(engine: EngineSpec, seen: list[_Seen]) -> Iterator[tuple[str, _Seen]]:
    """Profile -> what was seen of it, of those that were right."""
    for name in PROFILES:
        wanted = effective(replace(engine.nccl, profile=name).environment, engine.preflight)
        for one in seen:
            if one.outcome == RIGHT and one.arm.environment == wanted:
                yield name, one
                break


def _ratio(one: _Seen, other: _Seen) -> float:
    """Of the times, as the geometric mean over the sizes: each size counts the same, as from a
    decode of one token to a prefill."""
    sizes = sorted(set(one.times_s) & set(other.times_s))
    if not sizes:
        return 1.0
    logs = [math.log(one.times_s[size] / other.times_s[size]) for size in sizes]
    return math.exp(sum(logs) / len(logs))


def with_profile(engine: EngineSpec, profile: str) -> EngineSpec:
    """The engine, and its fallbacks with `auto`, as if the inventory named this profile."""
    fallbacks = {name: with_profile(one, profile) for name, one in engine.fallbacks.items()}
    if not engine.nccl.auto or engine.nccl.profile == profile:
        return engine if fallbacks == engine.fallbacks else replace(engine, fallbacks=fallbacks)
    before = PROFILES[engine.nccl.profile].flags
    own = {
        flag: value
        for flag, value in engine.flags.items()
        if flag not in before or flag in engine.nccl.decided
    }
    brought = PROFILES[profile].flags.items()
    flags = {**{flag: on for flag, on in brought if flag not in engine.nccl.decided}, **own}
    nccl = replace(engine.nccl, profile=profile)
    preflight = replace(
        engine.preflight,
        peer_to_peer=nccl.peer_to_peer,
        custom_all_reduce=custom_all_reduce(flags),
    )
    return replace(engine, nccl=nccl, flags=flags, preflight=preflight, fallbacks=fallbacks)


def candidates(nccl: Nccl) -> dict[str, dict[str, str]]:
    """Profile -> NCCL's variables with this engine's overrides: what `auto` chooses from."""
    return {name: replace(nccl, profile=name).environment for name in PROFILES}
