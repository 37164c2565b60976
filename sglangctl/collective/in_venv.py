"""All-reduces whose results are known, by the torch of an engine's environment.

Run by the environment's Python (3.9 or newer) with one argument, a request as in `arms.request`. It
imports nothing of ours. Answers are JSON, one a line, on standard output; what libraries print goes to
standard error.

torch is imported once. The ranks are forked from here, so nothing here may touch CUDA. A rank
that waits for ever is killed from here; where that does not help, whoever started this ends all of it.
"""

import json
import os
import selectors
import signal
import sys
import time
from contextlib import suppress
from datetime import timedelta
from importlib import import_module
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

PERIOD, STEP = 251, 31
"""Of the patterns: primes, so that no two ranks and no two places near each other have the same."""
REPEATED = ((64 << 10, 20), (1 << 20, 10), (1 << 62, 3))
"""Up to so many bytes -> how often; beside a first time, which is checked and not measured."""
KILLED_S = 10.0
BEYOND_S = 60.0
"""torch's own limit is later than ours, so that it is ours that ends a rank."""


def main() -> None:
    request = json.loads(sys.argv[1])
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8", errors="backslashreplace")
    os.dup2(2, 1)

    def tell(**answer: Any) -> None:
        answers.write(json.dumps(answer) + "\n")
        answers.flush()

    tell(step="import")
    torch: Any = import_module("torch")
    import_module("torch.distributed")
    tell(step="torch", torch=str(torch.__version__))
    for arm in request["arms"]:
        for world in request["worlds"]:
            tell(step="begin", arm=arm["name"], world=world)
            found = reduced(torch, request, arm["environment"], world)
            tell(step="world", arm=arm["name"], world=world, **found)
            if found.get("left"):
                return  # on the GPUs still: nothing measured beside it would mean anything
            if found["outcome"] != "right":
                break
    tell(step="end")


def reduced(torch: Any, request: "dict[str, Any]", environment: Any, world: int) -> Any:
    """One world: its ranks from their start to their end."""
    pids, streams = [], {}
    with TemporaryDirectory() as folder:
        for rank in range(world):
            reader, writer = os.pipe()
            sys.stderr.flush()
            pid = os.fork()
            if pid == 0:
                be_rank(torch, request, environment, world, rank, f"{folder}/store", writer)
            os.close(writer)
            pids.append(pid)
            streams[reader] = rank
        said = listen(streams, time.monotonic() + request["limit_s"])
        left = ended(pids)
    found = judge(said, request["sizes"], world, request["limit_s"])
    return {**found, "left": left} if left else found


def listen(streams: "dict[int, int]", until: float) -> "dict[int, dict[str, Any]]":
    """What each rank said until all are done, one has failed, or the time is over."""
    said: Any = {rank: {"lines": [], "closed": False} for rank in streams.values()}
    parts = dict.fromkeys(streams, b"")
    with selectors.DefaultSelector() as ready:
        for stream in streams:
            ready.register(stream, selectors.EVENT_READ)
        while ready.get_map():
            events = ready.select(max(0.0, until - time.monotonic()))
            if not events:
                break
            for key, _ in events:
                stream = key.fd
                part = os.read(stream, 1 << 16)
                *lines, parts[stream] = (parts[stream] + part).split(b"\n")
                said[streams[stream]]["lines"] += map(json.loads, lines)
                if not part:
                    said[streams[stream]]["closed"] = True
                    ready.unregister(stream)
            if all(map(done, said.values())) or any(map(failed, said.values())):
                break
    for stream in streams:
        os.close(stream)
    return dict(said)


def done(rank: "dict[str, Any]") -> bool:
    return bool(rank["lines"]) and rank["lines"][-1]["step"] == "done"


def failed(rank: "dict[str, Any]") -> bool:
    """Whether it is certain that this rank does not come to its end."""
    steps = [line["step"] for line in rank["lines"]]
    return "wrong" in steps or "error" in steps or (rank["closed"] and not done(rank))


def judge(
    said: "dict[int, Any]", sizes: "list[int]", world: int, limit_s: float
) -> "dict[str, Any]":
    """The outcome of a world from what its ranks said."""
    every = [(rank, line) for rank, one in said.items() for line in one["lines"]]
    about: Any = next((line["about"] for _, line in every if line["step"] == "joined"), {})
    times: Any = {}
    for _, line in every:
        if line["step"] == "size":
            times.setdefault(line["bytes"], []).append(line["median_s"])
    # A world is as fast as its slowest rank.
    measured = [[size, max(times[size])] for size in sizes if len(times.get(size, ())) == world]
    found = {"outcome": "right", "sizes": measured, "about": about}
    for outcome, step in (("wrong", "wrong"), ("failed", "error")):
        for rank, line in every:
            if line["step"] == step:
                return {**found, "outcome": outcome, "text": f"rank {rank}: {line['text']}"}
    for rank, one in said.items():
        if one["closed"] and not done(one):
            return {**found, "outcome": "failed", "text": f"rank {rank} died ({place(one)})"}
    waiting = [rank for rank, one in said.items() if not done(one)]
    if waiting:
        where = "; ".join(f"rank {rank} {place(said[rank])}" for rank in waiting)
        return {**found, "outcome": "hung", "text": f"no end after {limit_s:g} s: {where}"}
    return found


def place(rank: "dict[str, Any]") -> str:
    """How far a rank came."""
    last = rank["lines"][-1] if rank["lines"] else {"step": "nothing"}
    if last["step"] == "size":
        return f"was past {last['bytes']} bytes"
    return {"joined": "had joined", "nothing": "had not joined"}.get(last["step"], last["step"])


def ended(pids: "list[int]") -> "list[int]":
    """Kill the ranks; those that do not die of it."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    until, left = time.monotonic() + KILLED_S, list(pids)
    while left and time.monotonic() < until:
        left = [pid for pid in left if os.waitpid(pid, os.WNOHANG)[0] == 0]
        if left:
            time.sleep(0.02)
    return left


def be_rank(
    torch: Any,
    request: "dict[str, Any]",
    environment: "dict[str, str]",
    world: int,
    rank: int,
    store: str,
    writer: int,
) -> None:
    """Never returns."""
    answers = os.fdopen(writer, "w", encoding="utf-8", errors="backslashreplace")

    def tell(step: str, **answer: Any) -> None:
        answers.write(json.dumps({"step": step, **answer}) + "\n")
        answers.flush()

    try:
        os.environ.update(environment)
        if run_rank(torch, request, world, rank, store, tell):
            tell("done")
    except BaseException as error:
        tell("error", text=f"{type(error).__name__}: {error}"[:2000])
    # Not to its end: another rank may still read this one's memory, and what torch does at the end
    # may wait for the others. It is killed once all are done.
    while True:
        signal.pause()


def run_rank(
    torch: Any, request: "dict[str, Any]", world: int, rank: int, store: str, tell: Any
) -> bool:
    """Whether every sum was right."""
    on_gpu = request["device"] == "cuda"
    device = f"cuda:{rank}" if on_gpu else "cpu"
    about = {}
    if on_gpu:
        torch.cuda.set_device(rank)
        about["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
        about["gpu"] = torch.cuda.get_device_name(rank)
    distributed = torch.distributed
    distributed.init_process_group(
        "nccl" if on_gpu else "gloo",
        store=distributed.FileStore(store, world),
        rank=rank,
        world_size=world,
        timeout=timedelta(seconds=request["limit_s"] + BEYOND_S),
    )

    def finished() -> None:
        if on_gpu:
            torch.cuda.synchronize()

    tell("joined", about=about)
    for size in request["sizes"]:
        count = size // 4
        places = torch.arange(count, dtype=torch.int32, device=device)
        mine, total = pattern(torch, places, rank), pattern(torch, places, 0)
        for other in range(1, world):
            total = total + pattern(torch, places, other)
        taken = []
        for turn in range(1 + next(times for most, times in REPEATED if size <= most)):
            # Other numbers each time: what is left of the time before is not right.
            data, wanted = mine + turn, total + world * turn
            distributed.barrier()
            finished()
            began = time.perf_counter()
            distributed.all_reduce(data)
            finished()
            taken.append(time.perf_counter() - began)
            if not torch.equal(data, wanted):
                bad = torch.nonzero(data != wanted).reshape(-1)
                first = int(bad[0])
                tell(
                    "wrong",
                    text=f"{len(bad)} of {count} sums are wrong at {size} bytes, the first at "
                    f"{first}: {float(data[first])} for {float(wanted[first])}",
                )
                return False
        tell("size", bytes=size, median_s=median(taken[1:]))
    return True


def pattern(torch: Any, places: Any, rank: int) -> Any:
    """Whole numbers of 1 to PERIOD: float32 adds those of 64 ranks without rounding."""
    return ((places + STEP * rank) % PERIOD + 1).to(torch.float32)


if __name__ == "__main__":
    main()
