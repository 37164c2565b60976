"""A result for people. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from sglangctl.collective.answers import NOT_POSSIBLE, RIGHT, World
from sglangctl.collective.arms import CONFIGURED, WITHOUT_P2P
from sglangctl.collective.run import Kept
from sglangctl.state.collectives import peer_to_peer
from sglangctl.util.values import mapping, text

WORDS = {
    CONFIGURED: "as configured",
    WITHOUT_P2P: "NCCL_P2P_DISABLE=1",
}
UNTIL_THEN = (
    "`sglangctl preflight {}` names what on PCIe may be the cause (IOMMU, ACS); until it is mended set "
    "nccl.profile safe (or auto), and deploy"
)
EVERYWHERE = (
    "NCCL does not work here without peer-to-peer either: dmesg -T | grep -i -e xid -e nvrm"
)


def lines(kept: Kept) -> Iterator[str]:
    """The deciding line first, then each arm with a table of its largest world."""
    result = kept.result
    key = mapping(kept.entry.get("key"))
    yield f"{kept.engine}: {result.outcome}: {result.arms[0].sentence}"
    known = [f"{what} {key[what]}" for what in ("driver", "nccl") if text(key.get(what))]
    known += [f"torch {result.torch}"] if result.torch else []
    if known:
        yield f"  {', '.join(known)}"
    for arm in result.arms:
        yield f"  {WORDS.get(arm.name, f'profile {arm.name}')}: {arm.outcome}: {arm.sentence}"
        for world in (one for one in arm.worlds[-1:] if one.outcome == RIGHT):
            yield from table(world)
    for line in result.evidence:
        yield f"  | {line}"
    for line in kept.wedged:
        yield f"  {line}"
    step = next_step(kept)
    if step:
        yield f"  next step: {step}"
    if kept.unkept:
        yield f"  not kept: {kept.unkept}"
    elif all(arm.outcome == NOT_POSSIBLE for arm in result.arms):
        yield "  not kept: nothing was found out"


def table(world: World) -> Iterator[str]:
    yield f"    {'bytes':>10}  {'median us':>10}  {'algbw GB/s':>10}  {'busbw GB/s':>10}"
    for one in world.sizes:
        yield (
            f"    {one.bytes:>10}  {one.median_s * 1e6:>10.1f}  {one.algbw_gbps:>10.2f}  "
            f"{one.busbw_gbps:>10.2f}"
        )


def next_step(kept: Kept) -> str:
    """What to do where the engine's own setting is not right; "" where nothing is to be done."""
    first, *others = kept.result.arms
    if first.outcome == RIGHT or kept.entry.get("device") == "cpu":
        return ""
    without = [arm for arm in others if not peer_to_peer(arm.environment)]
    if any(arm.outcome == RIGHT for arm in without):
        return UNTIL_THEN.format(kept.engine)
    if first.outcome == NOT_POSSIBLE:
        return ""  # its sentence says why
    return EVERYWHERE if without or not peer_to_peer(first.environment) else ""
