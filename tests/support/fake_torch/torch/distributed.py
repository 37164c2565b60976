"""Ranks that add up through files. FAULT=KIND,RANK makes one of them do wrong at the third reduce:
stop, exit, raise, wrong; at an environment that sets it only. KIND,RANK,peers: only where NCCL may
copy from GPU to GPU."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

from torch import Tensor

_rank, _world, _turn, _folder = 0, 0, 0, Path()


class FileStore:
    def __init__(self, path: str, world: int) -> None:
        self.path = path


def init_process_group(
    backend: str, store: FileStore, rank: int, world_size: int, timeout: Any
) -> None:
    global _rank, _world, _folder
    if os.environ.get("FAULT") == f"refuse,{rank}":
        raise RuntimeError("NCCL error: unhandled system error")
    _rank, _world, _folder = rank, world_size, Path(store.path).parent


def barrier() -> None:
    all_reduce(Tensor([]))


def all_reduce(data: Tensor) -> None:
    global _turn
    _turn += 1
    kind, rank, where, *_ = [*os.environ.get("FAULT", "").split(","), "", ""]
    if where == "peers" and os.environ.get("NCCL_P2P_DISABLE") == "1":
        kind = ""
    if _turn == 6 and rank == str(_rank):
        if kind == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        if kind == "exit":
            os._exit(3)
        if kind == "raise":
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
    unfinished = _folder / f"{_turn}.{_rank}.new"
    unfinished.write_text(json.dumps(data.values))
    unfinished.rename(_folder / f"{_turn}.{_rank}")
    files = [_folder / f"{_turn}.{rank}" for rank in range(_world)]
    while not all(file.exists() for file in files):
        time.sleep(0.001)
    parts = [json.loads(file.read_text()) for file in files]
    data.values = [sum(values) for values in zip(*parts)]
    if _turn == 6 and rank == str(_rank) and kind == "wrong":
        data.values[-1] += 1
