"""One build of one kernel, from a request to an entry in the cache.

It is the body of the transient unit; it can be killed at any moment and started again with the
same request: the source, the environment and ninja's work are kept in the build's folder, and the
cache has the wheel only when it is whole.

Root runs nothing of the source: the build user does (inside.py), in a unit of its own, and what
it leaves is copied and looked at.
"""

from __future__ import annotations

import fcntl
import json
import os
import pwd
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path

from sglangctl.proc import command
from sglangctl.sgl_kernel import cache
from sglangctl.sgl_kernel.build import accept, compile, unit
from sglangctl.sgl_kernel.build.accept import Heard
from sglangctl.sgl_kernel.build.inside import free_space
from sglangctl.sgl_kernel.build.record import BuildError, Record
from sglangctl.sgl_kernel.build.request import BUILDER, Request, folder
from sglangctl.sgl_kernel.key import is_key
from sglangctl.state import build_user, lock, programs
from sglangctl.state.paths import Paths
from sglangctl.systemd import confined
from sglangctl.systemd.unit_names import build_work_unit
from sglangctl.util import os_errors
from sglangctl.util.terminal import escaped

DISK_MIB = 4 * 1024
"""Least free space to begin with: sources and objects of one architecture."""
LOCK = ".build/lock"
KEPT = 3
"""Build folders: going on after a small patch is the point of keeping one."""


def build(request: Request, paths: Paths) -> cache.Entry:
    """Build, prove and promote; BuildError (told in the journal too). An entry that is already
    there is the answer."""
    root = folder(request.key, paths)
    root.mkdir(parents=True, exist_ok=True)
    record = Record(root)
    try:
        with build_lock(paths, request.key, record):
            existing = cache.find(request.key, paths)
            entry = existing or _build(request, root, record, paths)
            prune(paths, request.key)
        record(
            "end",
            outcome="built",
            text=f"{entry.wheel.name} is in the cache",
            wheel=str(entry.wheel),
            sha256=entry.sha256,
        )
        return entry
    except BuildError as error:
        record("end", outcome="failed", text=error.sentence, next_step=error.next_step)
        raise
    except OSError as error:
        full = error.errno == 28
        sentence = "the disk is full" if full else os_errors.sentence(error)
        step = free_space(paths.kernel_cache)
        record("end", outcome="failed", text=sentence, next_step=step)
        raise BuildError(sentence, step) from None
    finally:
        record.close()


def _build(request: Request, root: Path, record: Record, paths: Paths) -> cache.Entry:
    space = shutil.disk_usage(root).free // 2**20
    if space < DISK_MIB:
        raise BuildError(
            f"{root} has {space / 1024:.1f} GiB free, a build needs "
            f"{DISK_MIB // 1024} GiB at least",
            "free space there, then deploy again",
        )
    place = compile.Place(root / BUILDER, paths.kernel_cache)
    prepare(root, place, record, paths)
    heard = Heard(record)
    ended = build_user.run(
        [*programs.again(), "kernel", "build", "--work", request.key],
        paths,
        limit_s=request.runtime_max_s,
        own=place.own,
        tell=heard,
        unit=unit.limits(request.key),
        name=build_work_unit(request.key),
    )
    if heard.wheel is None:
        raise _refused(heard, ended, request)
    wheel = accept.take(heard.wheel, place.work, root / "final")
    accept.examine(wheel, request)
    facts = {
        **heard.facts,
        "v": 1,
        "key": request.key,
        "inputs": asdict(request.inputs),
        "git_url": request.git_url,
        "wheel": {
            "file": wheel.name,
            "sha256": cache.sha256(wheel),
            "bytes": wheel.stat().st_size,
        },
    }
    record("promote", text=f"into {paths.kernel_cache / request.key}")
    entry = cache.promote(request.key, wheel, facts, paths)
    shutil.rmtree(root / "final")
    return entry


def prepare(root: Path, place: compile.Place, record: Record, paths: Paths) -> None:
    """Folders for the build user, which is handed nothing that root filled once."""
    anew = [folder.name for folder in place.own if build_user.theirs(folder, paths)]
    if os.geteuid() == 0:
        of_roots = [root / name for name in ("source", "build", "dist", "tmp", "build.log")]
        for path in [*of_roots, *(paths.kernel_cache / ".build").glob(".environment-*")]:
            if path.exists():
                build_user.discard(path)
                anew.append(path.name)
        # The document may have the way to a private index.
        with suppress(KeyError):
            os.chown(root / "request.json", 0, pwd.getpwnam(build_user.NAME).pw_gid)
            os.chmod(root / "request.json", 0o640)
        # CUDA makes nvidia-uvm's device node through a setuid helper, which a sandbox forbids.
        command.run(["/usr/bin/nvidia-modprobe", "-u", "-c=0"])
    if anew:
        record(
            "begin",
            text=f"an earlier version built as root: {', '.join(anew)} begins anew, as "
            f"{build_user.NAME}",
        )


def _refused(heard: Heard, ended: confined.Ended, request: Request) -> BuildError:
    if heard.failure is not None:
        return BuildError(*heard.failure)
    if ended.returncode is None:
        hours = request.runtime_max_s / 3600
        return BuildError(
            f"the build did not end within {hours:.0f} h", "deploy again: it continues"
        )
    said = escaped(confined.refusal(ended))
    return BuildError(
        f"the build ended without a word (exit status {ended.returncode}: {said})",
        "deploy again: it continues where it stopped",
    )


def prune(paths: Paths, key: str) -> list[str]:
    """Delete all build folders but the newest KEPT and that of `key`; returns their keys.

    Each is gigabytes. Called with the build lock held, so none of them is in use.
    """
    found = []
    for root in (paths.kernel_cache / ".build").glob("*"):
        if is_key(root.name) and root.name != key:
            found.append((root.stat().st_mtime, root))
    gone = [root for _, root in sorted(found, reverse=True)[KEPT - 1 :]]
    for root in gone:
        build_user.discard(root)
    return [root.name for root in gone]


@contextmanager
def build_lock(paths: Paths, key: str, record: Record) -> Iterator[None]:
    """One build at a time on a host: two would share one memory. The kernel drops the lock when
    its holder dies; the file says who holds it."""
    with open(lock.private(paths.kernel_cache / LOCK), "r+", encoding="utf-8") as file:
        told = False
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not told:
                    told = True
                    record("lock", text=f"waiting for another build: {holder(paths)}")
                time.sleep(0.5)
        file.seek(0)
        file.truncate()
        since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
        file.write(json.dumps({"v": 1, "key": key, "pid": os.getpid(), "since": since}) + "\n")
        file.flush()
        yield


def holder(paths: Paths) -> str:
    """Who holds the lock, for people; also when nobody does."""
    path = paths.kernel_cache / LOCK
    try:
        with open(path, encoding="utf-8") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return "nobody builds"
            except BlockingIOError:
                document = json.loads(file.read())
    except (OSError, ValueError):
        return "unknown"
    return "{key} (process {pid}, since {since})".format_map(document)
