"""The observations of a start as text, where no single log line proves the outcome."""

from __future__ import annotations

from sglangctl.startup.render import clock_time
from sglangctl.startup.state import State
from sglangctl.util.values import printable


def stopped(s: State) -> tuple[str, ...]:
    """Which processes are stopped, and since when."""
    since = ""
    if s.stopped_t is not None:
        after = f"{s.stopped_t:.0f} s after the launch"
        at = clock_time(s.launched.at + s.stopped_t) if s.launched.at is not None else ""
        since = f"since {at} ({after})" if at else f"since {after}"
    if s.ranks.stopped:
        return (f"stopped (state T) {since}: {', '.join(map(printable, s.ranks.stopped))}",)
    return (f"the cgroup is frozen {since}",)


def state(s: State, outcome: str) -> list[str]:
    """The evidence for `outcome`."""
    lines: list[str] = []
    service = s.service
    if s.served:
        if outcome == "unresponsive":
            since = s.now - (service.good_t or 0.0)
            lines.append(
                f"no good answer for {since:.0f} s, {service.failed} health probes failed since"
            )
            if service.engine_says_dead:
                lines.append("the engine's own health check failed (20 s without an answer)")
        elif service.proof:
            lines.append(service.proof)
        if s.compiling and (outcome == "unresponsive" or service.failed or s.warm.path):
            lines.append(f"kernels are being compiled: {', '.join(s.compiling)}")
        lines.append(service.identity)
        if s.proof.error:
            lines.append(s.proof.error)
        elif outcome in ("serving",) and not s.proof.came:
            lines.append("not yet proven by a generation")
        if outcome == "ready" and s.launched.speculative and s.proof.accept_length is None:
            lines.append("accept length: cannot tell")
        return lines
    motion = s.motion
    quiet = s.now - motion.last
    if outcome == "stalled":
        lines.append(f"nothing moved for {quiet:.0f} s (last: {motion.what})")
    elif outcome == "deadline":
        lines.append(f"the budget of {s.limits.start_s:.0f} s is spent; last moved: {motion.what}")
    elif quiet >= 10.0:
        lines.append(f"last moved {quiet:.0f} s ago: {motion.what}")
    if motion.cpu_known:
        still = s.now - motion.cpu_last
        moving = "moves" if still < 10.0 else f"flat for {still:.0f} s"
        lines.append(f"processor time {moving}")
    if s.compiling:
        lines.append(f"kernels are being compiled: {', '.join(s.compiling)}")
    if s.gpus:
        used = [now for now, _ in s.gpus]
        total = max(size for _, size in s.gpus)
        idle = "busy" if motion.gpu_busy else "at 0 %"
        lines.append(
            f"{len(used)} GPUs {idle}, {min(used) / 1024:.1f} to {max(used) / 1024:.1f} of "
            f"{total / 1024:.0f} GiB used"
        )
    if s.phases.from_gpu:
        lines.append("the log lags: the phase is estimated from GPU memory")
    if service.answered_unidentified:
        lines.append("something answers on the port, but nothing shows that it is this engine")
    return lines
