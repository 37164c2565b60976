"""How freeing can end, and the sentence for each end. Pure.

`free` is the good one. The others name who or what is left and the next step; several of them
need a person, because killing more processes cannot help.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sglangctl.gpu import gpus
from sglangctl.state.config import Limits

FREE = "free"
REFUSED = "refused"
STUCK_IN_KERNEL = "stuck-in-kernel"
FROZEN = "frozen"
NOT_ENDED = "not-ended"
UNIT_NOT_STOPPED = "unit-not-stopped"
RESPAWNED = "respawned"
MEMORY_WITHOUT_HOLDER = "memory-without-holder"
MEMORY_OF_PROTECTED = "memory-of-protected"
WEDGED = "wedged"
UNKNOWN_GPU = "unknown-gpu"
CANNOT_LOOK = "cannot-look"

BUSY_PCT = 99
IDLE_SHARE = 0.4
"""Of the power limit: a hung collective shows 100 % at 85 to 140 W of 600 W."""
IDLE_W = 150.0
"""The same where the limit is not known."""


@dataclass(frozen=True)
class Verdict:
    """One end: its name, and the sentence with the cause and the next step."""

    name: str
    sentence: str


def is_wedged(gpu: gpus.Gpu) -> bool:
    """Fully busy at idle power, with no process on it: a collective that hangs in the hardware."""
    if gpu.processes or gpu.utilization_pct is None or gpu.power_w is None:
        return False
    idle = gpu.power_limit_w * IDLE_SHARE if gpu.power_limit_w else IDLE_W
    return gpu.utilization_pct >= BUSY_PCT and gpu.power_w <= idle


def wedged(gpu: gpus.Gpu) -> str:
    """What is said of such a GPU."""
    return (
        f"GPU {gpu.index} is {gpu.utilization_pct} % busy at {gpu.power_w:.0f} W with no "
        "process on it: a wedged collective, needs a GPU reset or reboot; killing more "
        "processes cannot help"
    )


def of_gpus(
    found: Sequence[gpus.Gpu] | None,
    targets: Sequence[int] | None,
    protected: Sequence[int],
    limits: Limits,
) -> Verdict | None:
    """What is wrong with the GPUs once nobody is left on them; None when they are free.

    `protected`: pids of holders that stay. Numbers that the driver does not give count as good.
    """
    if found is None:
        return None
    known = {gpu.index for gpu in found}
    missing = sorted(set(targets or ()) - known)
    if missing:
        listed = ", ".join(map(str, missing))
        return Verdict(
            UNKNOWN_GPU,
            f"the inventory names GPU {listed}, which this host does not have (it has "
            f"{', '.join(map(str, sorted(known))) or 'none'}): correct `gpus`, or check dmesg",
        )
    for gpu in found:
        if targets is not None and gpu.index not in targets:
            continue
        if gpu.error:
            return Verdict(UNKNOWN_GPU, f"GPU {gpu.index} cannot be read: {gpu.error}")
        if is_wedged(gpu):
            return Verdict(WEDGED, wedged(gpu))
        if gpu.memory_used_mib is None or gpu.memory_used_mib < limits.memory_free_mib:
            continue
        held = {pid: mib for pid, mib in gpu.processes if pid in protected}
        if held:
            pids = ", ".join(map(str, sorted(held)))
            return Verdict(
                MEMORY_OF_PROTECTED,
                f"GPU {gpu.index} has {gpu.memory_used_mib} MiB in use by processes that are "
                f"never ended ({pids}): stop them yourself, or leave this GPU out of `gpus`",
            )
        return Verdict(
            MEMORY_WITHOUT_HOLDER,
            f"GPU {gpu.index} has {gpu.memory_used_mib} MiB in use and no process that holds it: "
            f"needs a GPU reset (nvidia-smi --gpu-reset -i {gpu.index}) or a reboot; "
            "killing more processes cannot help",
        )
    return None


def of_survivor(pid: int, title: str, state: str, where: str | None, frozen: bool) -> Verdict:
    """A process that is still there after SIGKILL. `where`: the kernel function it waits in."""
    who = f"{pid} {title}"
    if frozen:
        return Verdict(
            FROZEN, f"{who} is frozen by the cgroup freezer: thaw its cgroup, then free again"
        )
    if state == "D":
        at = f" in {where}" if where and where != "0" else ""
        return Verdict(
            STUCK_IN_KERNEL,
            f"{who} is in uninterruptible sleep (state D){at}: SIGKILL cannot reach it, "
            "check dmesg (Xid, nfs), then reboot",
        )
    return Verdict(
        NOT_ENDED, f"{who} is still there after SIGKILL (state {state}): examine it, then reboot"
    )
