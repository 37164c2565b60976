"""CUDA graph capture, JIT compiles and their cache."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from sglang._standin import options
from sglang._standin.errors import RankError
from sglang._standin.log import VERSION, bar
from sglang._standin.shared.title import die_with_parent, retitle

if TYPE_CHECKING:
    from sglang._standin.rank import Starter

BATCHES = [1, 2, 4, 8, 12, 16, 24, 32, 40, 48]
TOKENS = [4, 16, 64, 256, 1024, 4096, 8192]


def cache_folder() -> str:
    """Where the real engine keeps what it compiles."""
    home = os.path.expanduser("~")
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(home, ".cache")
    return os.environ.get("SGLANG_CACHE_DIR") or os.path.join(cache, "sglang")


def write_cache() -> None:
    """Write a compiled kernel; RankError with the system's own words when that fails."""
    size = int(options.number("CACHE_KIB", 64)) * 1024
    path = os.path.join(cache_folder(), f"kernel-{os.getpid()}.so")
    try:
        with open(path, "wb") as file:
            file.write(bytes(size))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise RankError(f"{type(error).__name__}: {error}") from None
    finally:
        if os.path.exists(path):
            os.unlink(path)


def compile_kernels(seconds: float, busy: bool = False) -> None:
    """A silent rank with a compiler as its child; `busy`: one that uses processor time."""
    if seconds <= 0:
        return
    child = os.fork()
    if child == 0:
        die_with_parent()
        retitle("cicc --c++17 --gnu_version=120200 kernel.cu")
        end = time.monotonic() + seconds
        while busy and time.monotonic() < end:
            begin = time.monotonic()
            while time.monotonic() < begin + 0.05:
                sum(range(1000))
            time.sleep(0.05)
        time.sleep(max(0.0, end - time.monotonic()))
        os._exit(0)
    os.waitpid(child, 0)


def compile_once(seconds: float) -> None:
    """As Triton does it: what is in its cache is not compiled again."""
    if seconds <= 0:
        return
    folder = os.path.join(os.environ["TRITON_CACHE_DIR"], "standin")
    path = os.path.join(folder, "kernel.cubin")
    if os.path.exists(path):
        return
    compile_kernels(seconds)
    os.makedirs(folder, exist_ok=True)
    with open(f"{path}.{os.getpid()}.tmp", "wb") as file:
        file.write(b"compiled")
    os.replace(file.name, path)


def graphs(rank: Starter) -> None:
    """Log the captures: target prefill and decode (or verify), then the drafter's."""
    args = rank.args
    off = args.disable_cuda_graph or args.cuda_graph_backend_decode == "disabled"
    if rank.devices is None or off:
        rank.strike("capturing")
        rank.log.line(
            "Disable prefill CUDA graph because cuda_graph_config resolved "
            "prefill.backend='disabled' (e.g. via --cuda-graph-backend-prefill=disabled or "
            "auto-disable rules)."
        )
        return
    what = "verify" if args.speculative_algorithm else "decode"
    names = ["target prefill", f"target {what}"]
    if args.speculative_algorithm:
        names += ["draft prefill", "draft decode"]
    if VERSION < (0, 5, 12):
        names = names[1:2]
    for number, name in enumerate(names):
        _graph(rank, name, options.phase_s("capturing") / len(names), number == 0)


def _graph(rank: Starter, name: str, seconds: float, first: bool) -> None:
    begin = time.monotonic()
    old = VERSION < (0, 5, 12)
    head = "Capture cuda graph" if old else f"Capture {name} CUDA graph"
    more = " This can take up to several minutes." if old else " backend=full,"
    rank.log.line(f"{head} begin.{more} avail mem={rank.memory.free_gb:.2f} GB")
    prefill = "prefill" in name
    sizes = TOKENS[::-1] if prefill else BATCHES[::-1]
    for done, size in enumerate(sizes):
        time.sleep(seconds / len(sizes))
        key = f"num_tokens={size}" if prefill else f"bs={size}"
        kind = "num tokens" if prefill else "batches"
        label = f"Capturing {kind} ({key} avail_mem={rank.memory.free_gb:.2f} GB)"
        rank.report(rank.memory.used + 16, 60)
        rank.bar(bar(label, done, len(sizes), time.monotonic() - begin, blocks=True))
        if first and done == 1:
            rank.strike("capturing")
    rank.bar(bar(label, len(sizes), len(sizes), time.monotonic() - begin, blocks=True))
    rank.bar("", end=True)
    rank.report(rank.memory.used)
    elapsed = time.monotonic() - begin
    took = f"Time elapsed: {elapsed:.2f} s." if old else f"elapsed={elapsed:.2f} s,"
    rank.log.line(f"{head} end. {took} mem usage=0.16 GB, avail mem={rank.memory.free_gb:.2f} GB.")
