"""Lock files that a killed JIT compiler left behind, and their removal when that is proven.

Two kinds lie in the caches of an engine. torch's cpp_extension takes a lock by making a file named
`lock` that must not exist, and keeps it open: when its process dies the file stays, and every later
start waits for it forever. FlashInfer, SGLang and Triton take flock(2) on a file: the kernel drops
that with the process, so a file that is left over does no harm and is left alone.

A lock is stale when no process has it open. That can only be known with rights to see every
process and for a file system that no other machine can reach.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from sglangctl.free.jit_locks import default_folders, find, remove
from sglangctl.util.terminal import escaped


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", nargs="*", type=Path, help="default: the engines' caches")
    parser.add_argument("--clean", action="store_true", help="remove those that are stale")
    parser.add_argument("--json", action="store_true")


def run(args: argparse.Namespace) -> int:
    found = find(args.folder or default_folders())
    removed = [lock.path for lock in found if args.clean and remove(lock)]
    if args.json:
        print(json.dumps({"v": 1, "locks": [asdict(lock) for lock in found], "removed": removed}))
        return 0
    for lock in found:
        done = "removed" if lock.path in removed else lock.state
        print(escaped(f"{done:<8} {lock.path}: {lock.reason}"))
    if not found:
        print("no lock of a JIT compiler is left over")
    return 0
