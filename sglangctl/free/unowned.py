"""Memory on GPUs that belongs to no process that can be seen from here. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sglangctl.gpu import gpus
from sglangctl.holders.classes import PROTECTED
from sglangctl.holders.survey import Holder


def memory(
    reading: gpus.Reading,
    holders: Sequence[Holder],
    targets: Collection[int] | None,
    limit_mib: float,
) -> dict[gpus.Gpu, int]:
    """GPU -> MiB in use less what the processes in `holders` have, where that is `limit_mib` or more.

    Only where the driver tells whose memory it is: not on a GPU that a process uses while none of
    its users is listed (MIG; some containers).
    """
    found = {}
    for gpu in reading.gpus or ():
        if gpu.memory_used_mib is None or (targets is not None and gpu.index not in targets):
            continue
        known = _known(gpu, reading, holders)
        if known is not None and gpu.memory_used_mib - known >= limit_mib:
            found[gpu] = gpu.memory_used_mib - known
    return found


def _known(gpu: gpus.Gpu, reading: gpus.Reading, holders: Sequence[Holder]) -> int | None:
    """The MiB of its visible users; None where the driver does not tell."""
    users = [one for one in holders if gpu.index in one.uses]
    listed = [one for one in users if gpu.index in one.memory_mib]
    amounts = [one.memory_mib[gpu.index] for one in listed]
    if any(one.class_ != PROTECTED for one in users) and not listed:
        return None
    # nvidia-smi lists no graphics: a desktop's memory would be nobody's.
    if reading.source != "nvml" and any(
        one.class_ == PROTECTED and one not in listed for one in users
    ):
        return None
    known = [mib for mib in amounts if mib is not None]
    return sum(known) if len(known) == len(amounts) else None
