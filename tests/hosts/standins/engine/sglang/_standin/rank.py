"""A scheduler process: from its imports to the end of its start, in the real order."""

from __future__ import annotations

import os
import signal
import time
from typing import Any, NoReturn

from sglang._standin import errors, gate, memory, model, options, replay
from sglang._standin.log import VERSION, Log, bar, raw, traceback
from sglang._standin.shared.devices import Devices
from sglang._standin.shared.title import die_with_parent, retitle
from sglang._standin.wiring import Rank

FRAME = ("sglang/srt/managers/scheduler.py", 6362, "run_scheduler_process")
FRAMES = {
    "loading": ("sglang/srt/model_loader/loader.py", 1020, "load_model"),
    "connecting": ("sglang/srt/distributed/bootstrap.py", 130, "init_parallel_runtime"),
}


def run(wiring: Rank) -> None:
    """Entry of the process."""
    Log.silent = replay.quiet()
    starter = Starter(wiring)
    starter.imports()
    try:
        starter.start()
        starter.announce()
        from sglang._standin.loop import Loop

        Loop(starter).run()
    except errors.RankError as error:
        starter.fail(str(error))


class Starter:
    """One rank's start."""

    def __init__(self, wiring: Rank) -> None:
        self.wiring = wiring
        self.args = wiring.args
        self.log = Log(self.args.log_level, wiring.label)
        self.devices: Devices | None = None
        self.memory = memory.Plan(self.args.mem_fraction_static)
        self.orphan = False
        self.phase = "importing"

    def imports(self) -> None:
        """Until here the title is multiprocessing's own, and a parent's death goes unnoticed."""
        time.sleep(options.phase_s("importing"))
        self.strike("importing")
        retitle(self.wiring.title)
        die_with_parent()
        self.orphan = os.getppid() != self.wiring.parent
        if self.orphan and options.text("ORPHANS") == "die":
            os._exit(1)

    def start(self) -> None:
        self.connect()
        self.load()
        self.allocate()
        self.capture()

    def announce(self) -> None:
        """Tell the launcher; an orphan of a start that was interrupted just stays."""
        tokens = self.args.max_total_tokens or 825044
        if self.wiring.number == 0:
            device = "gpu" if self.devices else "cpu"
            self.log.line(
                f"max_total_num_tokens={tokens}, chunked_prefill_size="
                f"{self.args.chunked_prefill_size}, max_prefill_tokens=16384, "
                f"max_running_requests={self.args.max_running_requests or 2048}, "
                f"context_len={self.args.context_length or 8192}, "
                f"available_{device}_mem={self.memory.free_gb:.2f} GB"
            )
            self.log.line(
                "Tree cache initialized: source=default impl=UnifiedRadixCache hybrid_swa=False "
                "hybrid_ssm=False hicache_attached=False"
            )
        Log.silent = False
        try:
            self.wiring.ready.send({"max_total_num_tokens": tokens})
        except OSError:
            self.rest()

    def connect(self) -> None:
        """The rendezvous of all ranks."""
        self.phase = "connecting"
        begin = time.monotonic()
        name = "parallel" if VERSION >= (0, 5, 20) else "torch distributed"
        self.log.line(f"Init {name} begin.")
        gpu = self.wiring.gpu
        if gpu == -1:
            raise errors.RankError(errors.SCHEDULER["too-few-gpus"][1])
        if gpu is None and self.wiring.size > 1 and "SGLANG_CPU_OMP_THREADS_BIND" not in os.environ:
            text = errors.SCHEDULER["cpu-ranks"][1]
            raise errors.RankError(text.format(ranks=self.wiring.size))
        if gpu is not None:
            self.devices = Devices([gpu], options.devices())
            self.report(memory.CONTEXT)
        if self.wiring.size > 1 and gpu is not None:
            self._nccl()
        self.strike("connecting")
        self.barrier()
        time.sleep(options.phase_s("connecting"))
        elapsed = time.monotonic() - begin
        if VERSION < (0, 5, 12):
            self.log.line(f"Init {name} ends. mem usage=1.07 GB")
        else:
            self.log.line(f"Init {name} ends. elapsed={elapsed:.2f} s, mem usage=1.07 GB")
        gate.wait(self)
        if self.wiring.number == 0 and VERSION >= (0, 5, 20):
            self.log.line("Memory baseline taken. mem usage=0.00 GB")

    def _nccl(self) -> None:
        if self.wiring.number == 0:
            self.log.line("sglang is using nccl==2.28.9")
        name = os.environ.get("NCCL_SOCKET_IFNAME", "")
        prefixes = [word for word in name.lstrip("=").split(",") if word]
        there = os.listdir("/sys/class/net")
        wrong = prefixes and not any(n.startswith(p) for n in there for p in prefixes)
        if name[:1] != "^" and wrong:
            raw(
                f"{os.uname().nodename}:{os.getpid()} NCCL WARN Bootstrap : no socket interface found\n"
            )
            raise errors.RankError(errors.SCHEDULER["nccl-no-interface"][1])
        if os.environ.get("NCCL_DEBUG") in ("INFO", "TRACE"):
            who = f"{os.uname().nodename}:{os.getpid()}:{os.getpid()} [{self.wiring.number}]"
            for key, value in sorted(os.environ.items()):
                if key.startswith("NCCL_") and key != "NCCL_DEBUG":
                    raw(f"{who} NCCL INFO {key} set by environment to {value}\n")

    def load(self) -> None:
        """The target's weights, then the drafter's."""
        self.phase = "loading"
        seconds = options.phase_s("loading")
        draft = self.args.speculative_draft_model_path
        self._load_model(self.args.model_path, self.wiring.config, seconds * (0.85 if draft else 1))
        if draft and self.args.speculative_algorithm:
            self._load_model(draft, model.resolve(draft), seconds * 0.15, drafter=True)
        self.barrier()

    def _load_model(
        self, path: str, config: dict[str, Any], seconds: float, drafter: bool = False
    ) -> None:
        begin = time.monotonic()
        self.log.line(f"Load weight begin. avail mem={self.memory.free_gb:.2f} GB")
        files = model.shards(path)
        total = int(options.number("SHARDS", len(files)))
        label = "Multi-thread loading shards"
        if VERSION < (0, 5, 12):
            label = "Loading safetensors checkpoint shards"
        self.bar(bar(label, 0, total, 0))
        name = model.architecture(config)
        last = int(options.number("HANG_AFTER", total // 2))
        for done in range(1, total + 1):
            time.sleep(seconds / total)
            if done <= len(files):
                model.read_shard(files[done - 1])
            if drafter:
                self._compare(config)
            self.report(self.memory.used + self.memory.weights / total)
            self.bar(bar(label, done, total, time.monotonic() - begin))
            if done == max(1, last) and drafter == self.fault_of_drafter():
                self.strike("loading")
        self.bar("", end=True)
        eat(options.number("HOST_MEMORY_MIB", 0))
        self.log.line(
            f"Load weight end. elapsed={time.monotonic() - begin:.2f} s, type={name}, avail mem="
            f"{self.memory.free_gb:.2f} GB, mem usage={self.memory.weights / 1024:.2f} GB."
        )

    def _compare(self, config: dict[str, Any]) -> None:
        """A drafter's weights must fit the target's hidden size."""
        hidden = (config.get("hidden_size"), self.wiring.config.get("hidden_size"))
        if all(hidden) and hidden[0] != hidden[1]:
            raise errors.RankError(
                f"AssertionError: Attempted to load weight (torch.Size([{hidden[0]}])) into "
                f"parameter (torch.Size([{hidden[1]}]))"
            )

    def fault_of_drafter(self) -> bool:
        """Whether STANDIN_FAULT in `loading` means the drafter's turn."""
        return options.fault()[0] == "drafter-mismatch" and bool(self.args.speculative_algorithm)

    def allocate(self) -> None:
        """The key/value cache."""
        self.phase = "allocating"
        self.strike("allocating")
        time.sleep(options.phase_s("allocating"))
        size = self.memory.cache / 2048
        self.report(self.memory.used + self.memory.cache)
        tokens = self.args.max_total_tokens or 825044
        self.log.line(
            f"KV Cache is allocated. dtype: torch.bfloat16, #tokens: {tokens}, "
            f"K size: {size:.2f} GB, V size: {size:.2f} GB"
        )
        self.log.line(f"Memory pool end. avail mem={self.memory.free_gb:.2f} GB")

    def capture(self) -> None:
        """CUDA graphs, and whatever is compiled on the way."""
        from sglang._standin import capture

        self.phase = "capturing"
        capture.compile_kernels(options.number("JIT_S", 0))
        capture.compile_once(options.number("JIT_ONCE_S", 0))
        capture.write_cache()
        capture.graphs(self)
        self.barrier()

    def barrier(self) -> None:
        """Wait for all other ranks: with one of them stopped, all stand."""
        for connection in self.wiring.followers:
            connection.recv()
        for connection in self.wiring.followers:
            connection.send("go")
        if self.wiring.leader:
            self.wiring.leader.send("here")
            self.wiring.leader.recv()

    def report(self, memory_mib: float, utilization_pct: int = 0) -> None:
        """Show memory and utilization to nvidia-smi."""
        self.memory.used = memory_mib
        if self.devices:
            self.devices.report(memory_mib, utilization_pct)

    def bar(self, text: str, end: bool = False) -> None:
        """Progress bars are rank 0's."""
        if self.wiring.number == 0 and not Log.silent:
            raw("\n" if end else f"\r{text}")

    def strike(self, phase: str) -> None:
        """Let STANDIN_FAULT happen, if this is its rank and phase."""
        name, at = options.fault()
        entry = errors.SCHEDULER.get(name) or errors.SIGNALS.get(name) or ("connecting",)
        default = {"hang": "connecting", "watchdog": "serving"}.get(name, str(entry[0]))
        last = self.wiring.size - 1 if name.startswith("rank-") else 0
        if phase != (at or default) or self.wiring.number != options.number("FAULT_RANK", last):
            return
        if phase != "serving":
            time.sleep(options.number("FAULT_AFTER_S", 0))
        if name in errors.SCHEDULER:
            raise errors.RankError(errors.SCHEDULER[name][1])
        if name in errors.SIGNALS and errors.SIGNALS[name][2] == "rank":
            os.kill(os.getpid(), errors.SIGNALS[name][1])
        if name == "hang":
            self.rest()
        if name == "watchdog":
            timeout = self.args.watchdog_timeout
            time.sleep(options.scaled(timeout))
            self.log.line(
                f"Scheduler watchdog timeout (self.watchdog_timeout={timeout}, self.soft=False)",
                "error",
            )
            os.kill(os.getppid(), signal.SIGQUIT)
            self.rest()
        if name == "nccl-timeout":
            self.nccl_timeout()

    def nccl_timeout(self) -> None:
        """The collective watchdog of torch: it aborts the process."""
        time.sleep(options.scaled(float(self.args.dist_timeout or 600)))
        milliseconds = int(float(self.args.dist_timeout or 600) * 1000)
        rank = self.wiring.number
        raw(
            f"[rank{rank}]:[E{time.strftime('%m%d %H:%M:%S')}.000000000 ProcessGroupNCCL.cpp:685] "
            f"[Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1, "
            f"OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)={milliseconds}) ran for "
            f"{milliseconds + 9} milliseconds before timing out.\n"
        )
        os.abort()

    def fail(self, error: str) -> NoReturn:
        """Say why, tell the parent, and end."""
        frame = FRAMES.get(self.phase, FRAME)
        text = traceback(error, FRAME, frame)
        self.log.line(f"Scheduler hit an exception: {text}", "error")
        if not self.orphan:
            os.kill(os.getppid(), signal.SIGQUIT)
        time.sleep(2)
        os._exit(1)

    def rest(self) -> NoReturn:
        """Do nothing for ever."""
        while True:
            time.sleep(3600)


_eaten: list[bytearray] = []


def eat(mib: float) -> None:
    """Really use host memory, so that a memory limit kills this process."""
    for _ in range(int(mib) // 8):
        _eaten.append(bytearray(os.urandom(4096)) * 2048)
