"""From what the engine's environment said to a result. Nothing of it is trusted. Pure.

algbw is bytes by seconds. busbw is algbw * 2 * (n - 1) / n for n ranks: what each rank's link carries,
to be compared with what the hardware has (NVIDIA/nccl-tests, doc/PERFORMANCE.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from sglangctl.collective.arms import SIZES, Arm
from sglangctl.systemd.confined import Ended
from sglangctl.util import site_reports
from sglangctl.util.terminal import escaped
from sglangctl.util.values import json_object, mapping, number, text, whole

RIGHT, WRONG, HUNG, NOT_POSSIBLE = "right", "wrong", "hung", "not-possible"
STATUS = {RIGHT: 0, WRONG: 1, NOT_POSSIBLE: 2, HUNG: 4}
"""Outcome -> exit status (docs/operations.md)."""
MOST_BYTES = 1 << 20
"""Of the answers: ours have some 30 KiB."""
LONGEST = 600
SHOWN = 6
SIGNS = ("NCCL WARN", "Error", "error", "CUDA", "No such")


@dataclass(frozen=True)
class Size:
    """All-reduces of one size; `median_s` of the slowest rank, seen from Python."""

    bytes: int
    median_s: float
    algbw_gbps: float
    """GB/s, of 10^9 bytes."""
    busbw_gbps: float


@dataclass(frozen=True)
class World:
    """One number of ranks."""

    world: int
    outcome: str
    sentence: str
    sizes: tuple[Size, ...] = ()


@dataclass(frozen=True)
class Found:
    """One arm: its outcome is that of the first world that was not right."""

    name: str
    environment: dict[str, str]
    outcome: str
    sentence: str
    worlds: tuple[World, ...] = ()


@dataclass(frozen=True)
class Result:
    """All arms. `outcome` is that of the first: what the engine would do."""

    arms: tuple[Found, ...]
    torch: str | None = None
    nccl: str | None = None
    evidence: tuple[str, ...] = field(default=())
    """Lines of what was printed beside the answers, where not all was right."""

    @property
    def outcome(self) -> str:
        return self.arms[0].outcome

    @property
    def status(self) -> int:
        return STATUS[self.outcome]

    def to_json(self) -> dict[str, Any]:
        return {"outcome": self.outcome, "exit": self.status, **asdict(self)}


def judge(
    ended: Ended,
    arms: Iterable[Arm],
    worlds: tuple[int, ...],
    mask: Callable[[str], str] = lambda line: line,
) -> Result:
    """The result of one run.

    + ended: of in_venv.py; its return code is None where it was ended at its limit
    + mask: takes secrets out of a text
    """
    lines = [] if len(ended.stdout) > MOST_BYTES else list(_objects(ended.stdout))

    def shown(value: Any) -> str:
        line = escaped(" ".join(mask(str(value)).split()))
        return line if len(line) <= LONGEST else f"{line[: LONGEST - 3]}..."

    steps = [text(line.get("step")) for line in lines]
    torch = next((text(line.get("torch")) for line in lines if line.get("step") == "torch"), None)
    said: dict[tuple[str, int], Mapping[str, Any]] = {}
    for line in lines:
        name, world = text(line.get("arm")), whole(line.get("world"))
        if line.get("step") in ("begin", "world") and name is not None and world is not None:
            said[name, world] = line
    abouts = [mapping(line.get("about")) for line in said.values()]
    nccl = next((text(about["nccl"]) for about in abouts if text(about.get("nccl"))), None)
    printed = [shown(line) for line in _printed(ended.stderr)]
    telling = [line for line in printed if any(sign in line for sign in SIGNS)]
    unsaid = _unended(ended, steps, len(ended.stdout) > MOST_BYTES, printed)
    found = tuple(_arm(arm, worlds, said, unsaid, shown) for arm in arms)
    right = all(arm.outcome == RIGHT for arm in found)
    return Result(
        found,
        None if torch is None else shown(torch),
        None if nccl is None else shown(nccl),
        () if right else tuple((telling or printed)[-SHOWN:]),
    )


def _arm(
    arm: Arm,
    worlds: tuple[int, ...],
    said: Mapping[tuple[str, int], Mapping[str, Any]],
    unsaid: World,
    shown: Callable[[Any], str],
) -> Found:
    done = []
    for world in worlds:
        line = said.get((arm.name, world))
        if line is None:
            done.append(World(world, NOT_POSSIBLE, unsaid.sentence))
        elif line.get("step") == "begin":
            done.append(World(world, unsaid.outcome, unsaid.sentence))
        else:
            done.append(_world(world, line, shown))
        if done[-1].outcome != RIGHT:
            break
    last = done[-1]
    sentence = f"{last.world} ranks: {last.sentence}"
    return Found(arm.name, dict(arm.environment), last.outcome, sentence, tuple(done))


def _world(world: int, line: Mapping[str, Any], shown: Callable[[Any], str]) -> World:
    sizes = tuple(_sizes(line.get("sizes"), world))
    said, why = line.get("outcome"), shown(line.get("text") or "no reason was given")
    if said == "right" and [one.bytes for one in sizes] == list(SIZES):
        last = sizes[-1]
        sentence = (
            f"every sum is right; {sizes[0].median_s * 1e6:.0f} us for {sizes[0].bytes} B, "
            f"{last.busbw_gbps:.1f} GB/s (busbw) for {last.bytes >> 20} MiB"
        )
        return World(world, RIGHT, sentence, sizes)
    if said == "right":
        return World(world, NOT_POSSIBLE, "it called itself right, and not all sizes were measured")
    outcome = {"wrong": WRONG, "hung": HUNG}.get(str(said), NOT_POSSIBLE)
    if line.get("left"):
        why += "; its ranks could not be killed"
    return World(world, outcome, why, sizes)


def _sizes(value: Any, world: int) -> Iterable[Size]:
    for pair in value if isinstance(value, list) else []:
        if not isinstance(pair, list) or len(pair) != 2:
            continue
        size, seconds = whole(pair[0]), number(pair[1])
        if size in SIZES and seconds is not None and seconds > 0:
            rate = size / seconds / 1e9
            yield Size(size, seconds, rate, rate * 2 * (world - 1) / world)


def _unended(ended: Ended, steps: list[str | None], flood: bool, printed: list[str]) -> World:
    """What is said of a world that has no answer."""
    if flood:
        return World(0, NOT_POSSIBLE, "it printed more than an answer can have")
    last = f": {printed[-1]}" if printed else ""
    if "torch" not in steps:
        how = "did not end in time" if ended.returncode is None else "failed"
        return World(0, NOT_POSSIBLE, f"importing torch {how}{last}")
    if ended.returncode is None:
        return World(0, HUNG, "no answer came in time, and its unit was ended")
    if ended.returncode == 0:
        # Also after ranks that could not be killed.
        return World(0, NOT_POSSIBLE, "it was not run")
    return World(0, NOT_POSSIBLE, f"it ended with {ended.returncode}{last}")


def _objects(answers: bytes) -> Iterable[dict[str, Any]]:
    return filter(None, map(json_object, answers.decode("utf-8", "replace").splitlines()))


def _printed(stderr: bytes) -> list[str]:
    """The last lines, each of a length that can be worked with."""
    end = stderr[-MOST_BYTES:].decode("utf-8", "replace")
    return [line for line in site_reports.without(end.splitlines()) if line.strip()][-200:]
