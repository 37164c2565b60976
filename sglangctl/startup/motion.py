"""Whether anything still moves: log, shards, GPU memory, bytes read, compilers, processor time.

Silence alone is not a verdict: healthy starts have been silent for minutes (imports, weights,
JIT compiles), but their memory, bytes or processor time moved.
"""

from __future__ import annotations

from sglangctl.state.config import Limits

GPU_STEP_MIB = 2.0
"""Graph capture moves memory by as little as 2 to 16 MiB (traces h200-*)."""
READ_STEP_BYTES = 262144.0
CPU_SHARE = 0.15
"""Of one core; two waiting ranks used 0.1 s in 10 s (trace h200-sigstop-tp1-in-nccl-init)."""


class Motion:
    """Remembers when each thing last moved."""

    def __init__(self) -> None:
        self.last = 0.0
        """When anything but processor time last moved, seconds since launch."""
        self.what = "the launch"
        self.cpu_last = 0.0
        self.cpu_known = False
        self.gpu_known = False
        self.gpu_busy = False
        self._gpu: list[float] = []
        self._read: float | None = None
        self._cpu: tuple[float, float] | None = None

    def moved(self, t: float, what: str) -> None:
        """Something that counts moved at `t`."""
        if t >= self.last:
            self.last, self.what = t, what

    def gpu(self, t: float, used_mib: list[float], busy: bool) -> None:
        """Memory used on each GPU, MiB; busy: utilisation above zero on one of them."""
        if len(used_mib) != len(self._gpu):
            changed = self.gpu_known
            self._gpu = used_mib
        else:
            changed = any(abs(now - was) >= GPU_STEP_MIB for now, was in zip(used_mib, self._gpu))
            if changed:
                self._gpu = used_mib
        self.gpu_known, self.gpu_busy = True, busy
        if changed:
            self.moved(t, "GPU memory")

    def processes(
        self,
        t: float,
        cpu_s: float,
        read_bytes: float,
        compiling: tuple[str, ...],
        running: bool,
    ) -> None:
        """Sums over the engine's processes: processor seconds and bytes read.

        compiling: compilers that got on; running: a process wants more processor time than it gets.
        """
        self.cpu_known = True
        if self._read is None or abs(read_bytes - self._read) >= READ_STEP_BYTES:
            if self._read is not None:
                self.moved(t, "bytes read")
            self._read = read_bytes
        if compiling:
            self.moved(t, f"a compiler ({', '.join(compiling)})")
        if self._cpu is None:
            self._cpu = (t, cpu_s)
            self.cpu_last = t
        elif t - self._cpu[0] >= 1.0 or cpu_s < self._cpu[1]:
            share = abs(cpu_s - self._cpu[1]) / max(t - self._cpu[0], 1.0)
            self._cpu = (t, cpu_s)
            if share >= CPU_SHARE or running:
                self.cpu_last = t

    def stalled_at(self, limits: Limits) -> float:
        """The t (seconds since launch) at which it is stalled if nothing moves until then.

        Five minutes from the last motion of any kind, processor time included; fifteen from
        the last motion of anything else. Flat means known to be flat: where processor time is
        unknown, GPUs at 0 % stand in for it, and without either it takes the longer time.
        """
        if self.cpu_known:
            flat_at = max(self.last, self.cpu_last) + limits.stalled_flat_s
        elif self.gpu_known and not self.gpu_busy:
            flat_at = self.last + limits.stalled_flat_s
        else:
            flat_at = self.last + limits.stalled_busy_s
        return min(flat_at, self.last + limits.stalled_busy_s)
