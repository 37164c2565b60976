"""A torch.py for an engine's environment: the real torch, whose rank 1 does wrong once 4 KiB are added up.

What it does is in the file FAULT: `stop` (SIGSTOP of itself) or `wrong`. `peers` beside it: only where
NCCL may copy from GPU to GPU.
"""

from __future__ import annotations

FAULT = "/srv/fault"
SOURCE = f"""\
import importlib, os, signal, sys
here = os.path.dirname(__file__)
sys.path.remove(here)
del sys.modules["torch"]
real = importlib.import_module("torch")
distributed = importlib.import_module("torch.distributed")
sys.path.insert(0, here)
faults, add = open("{FAULT}").read().split(), distributed.all_reduce
def all_reduce(data):
    faulty = data.numel() == 1024 and distributed.get_rank() == 1
    if "peers" in faults and os.environ.get("NCCL_P2P_DISABLE") == "1":
        faulty = False
    if faulty and "stop" in faults:
        os.kill(os.getpid(), signal.SIGSTOP)
    add(data)
    if faulty and "wrong" in faults:
        data[7] += 1
distributed.all_reduce = all_reduce
"""
