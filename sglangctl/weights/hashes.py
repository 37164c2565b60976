"""sha256 of each file against a list or the hub's own metadata: in parallel, resumable."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable

from sglangctl.diagnosis.finding import FAIL, Finding
from sglangctl.util import lazy_re
from sglangctl.util.errors import Unusable
from sglangctl.weights import access, remembered
from sglangctl.weights.safetensors import shown

CHUNK = 8 * 1024 * 1024
TELL_S = 5.0
"""Between two words of how far it is, while no file is done."""
SHA256 = lazy_re.compile(r"[0-9a-f]{64}")
LINE = lazy_re.compile(r"([0-9a-fA-F]{64}) [ *](.+)")
"""A line of sha256sum(1)."""
METADATA_LIMIT = 64 * 1024
"""Bytes of three lines, by far."""
HUB = ".cache/huggingface/download"
"""Where huggingface_hub keeps, for `hf download --local-dir`, FILE.metadata: commit, etag, time; of
a file in LFS the etag is its sha256."""


@dataclass(frozen=True)
class Progress:
    """How far it is: bytes of all files, and those done."""

    done: int
    total: int


def from_list(text: str) -> dict[str, str]:
    """File -> sha256, of what sha256sum printed; Unusable for a line that is none."""
    found = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        match = LINE.fullmatch(line.rstrip("\r"))
        name = os.path.normpath(match[2]) if match else ""
        if match is None or name.startswith(("/", "..")):
            raise Unusable(f"line {number} is not `SHA256  FILE` with a file in the folder")
        found[name] = match[1].lower()
    return found


def from_hub(folder: Path) -> dict[str, str]:
    """File -> sha256, of what huggingface_hub wrote down when it fetched the folder; empty where
    it did not, or where the file is none of LFS (its etag is a git hash then)."""
    found = {}
    try:
        names = sorted(os.listdir(folder / HUB))
    except OSError:
        return {}
    for name in names:
        if not name.endswith(".metadata"):
            continue
        try:
            with open(folder / HUB / name, "rb", opener=_without_waiting) as file:
                lines = file.read(METADATA_LIMIT).decode("utf-8").split("\n")
        except (OSError, UnicodeDecodeError):
            continue
        if len(lines) >= 2 and SHA256.fullmatch(lines[1].strip()):
            found[name[: -len(".metadata")]] = lines[1].strip()
    return found


def from_cache(folder: Path) -> dict[str, str]:
    """File -> sha256, of links into a hub cache: ../../blobs/<sha256> is named by its content."""
    found = {}
    for name in sorted(os.listdir(folder)):
        path = folder / name
        if path.is_symlink():
            blob = Path(os.readlink(path))
            if blob.parent.name == "blobs" and SHA256.fullmatch(blob.name):
                found[name] = blob.name
    return found


def from_source(folder: Path) -> dict[str, str]:
    """File -> sha256, of whatever the folder itself knows of its source. OSError."""
    return {**from_cache(folder), **from_hub(folder)}


def verify(
    folder: Path,
    wanted: Mapping[str, str],
    known: dict[str, Any],
    tell: Callable[[Progress], None],
    keep: Callable[[], None],
    workers: int | None = None,
) -> list[Finding]:
    """Read every file of `wanted` and compare. `known` (file -> [identity, sha256]) is taken for
    unchanged files and filled as files are done; `keep` is called after each, so that a run that
    was ended goes on from there. What ends it (Ctrl-C) waits for no file.
    """
    findings: list[Finding] = []
    todo: dict[str, list[int]] = {}
    done = 0
    for name in wanted:
        try:
            found = remembered.identity(os.stat(folder / name))
        except OSError as error:
            findings.append(access.refusal(folder / name, error))
            continue
        if name in known and known[name][0] == found:
            done += found[0]
            findings.extend(_compared(name, wanted[name], known[name][1]))
        else:
            todo[name] = found
    total = done + sum(size for size, *_ in todo.values())
    from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait  # as in check.py

    read = dict.fromkeys(todo, 0)
    ended = False

    def hashed(name: str) -> str:
        def took(length: int) -> None:
            if ended:
                raise InterruptedError
            read[name] += length

        return digest(folder / name, took)

    with ThreadPoolExecutor(workers or min(8, os.cpu_count() or 1)) as pool:
        jobs = {pool.submit(hashed, name): name for name in todo}
        left = set(jobs)
        try:
            while left:
                over, left = wait(left, TELL_S, FIRST_COMPLETED)
                for job in over:
                    name = jobs[job]
                    try:
                        value = job.result()
                    except OSError as error:
                        findings.append(access.refusal(folder / name, error))
                        continue
                    known[name] = [todo[name], value]
                    keep()
                    findings.extend(_compared(name, wanted[name], value))
                tell(Progress(done + sum(read.values()), total))
        finally:
            ended = True
            pool.shutdown(wait=False, cancel_futures=True)
    return findings


def digest(path: Path, took: Callable[[int], None] = lambda length: None) -> str:
    """The file's sha256 as hex; `took` is told how many bytes were read. OSError, also for what is no
    plain file: a pipe or a device that somebody put into a folder of weights never ends."""
    total = hashlib.sha256()
    with open(path, "rb", buffering=0, opener=_without_waiting) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "is no plain file", str(path))
        buffer = memoryview(bytearray(CHUNK))
        while length := file.readinto(buffer):
            total.update(buffer[:length])
            took(length)
    return total.hexdigest()


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)


def _compared(name: str, wanted: str, found: str) -> list[Finding]:
    if wanted == found:
        return []
    return [
        Finding(
            "weights-corrupt",
            FAIL,
            f"{shown(name)} has the sha256 {found[:16]}…, its source says {wanted[:16]}…",
            "download that file again",
        )
    ]
