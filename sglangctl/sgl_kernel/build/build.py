"""One build of one kernel, from a request to an entry in the cache.

It is the body of the transient unit; it can be killed at any moment and started again with the
same request: the source, the environment and ninja's work are kept in the build's folder, and the
cache has the wheel only when it is proven.
"""

from __future__ import annotations

import dataclasses
import fcntl
import json
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sglangctl.proc import memory
from sglangctl.sgl_kernel import cache, common
from sglangctl.sgl_kernel.build import (
    command_line,
    compile,
    environment,
    jobs,
    provenance,
    source,
    toolkit,
    wheel,
)
from sglangctl.sgl_kernel.build.record import BuildError, Record
from sglangctl.sgl_kernel.build.request import Request, folder, unused_folder
from sglangctl.sgl_kernel.key import is_key
from sglangctl.sgl_kernel.library import check, cubins, inspect
from sglangctl.sgl_kernel.library.judging import USABLE, Inspection
from sglangctl.sgl_kernel.library.translations import FAILED, UNKNOWN
from sglangctl.sgl_kernel.venv import Venv
from sglangctl.state.paths import Paths
from sglangctl.util import os_errors
from sglangctl.util.errors import Unusable

DISK_MIB = 4 * 1024
"""Least free space to begin with: sources and objects of one architecture."""
LOCK = ".build/lock"
KEPT = 3
"""Build folders: going on after a small patch is the point of keeping one."""
INSTALL = ("--no-deps", "--no-index", "--force-reinstall", "--disable-pip-version-check")


def build(request: Request, paths: Paths) -> cache.Entry:
    """Build, prove and promote; BuildError (told in the journal too). An entry that is already
    there is the answer."""
    root = folder(request.key, paths)
    root.mkdir(parents=True, exist_ok=True)
    record = Record(root)
    place = compile.Place(root, paths.kernel_cache)
    try:
        with build_lock(paths, request.key, record):
            existing = cache.find(request.key, paths)
            entry = existing or _build(request, place, record, paths)
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
        step = f"free space under {paths.kernel_cache}, then deploy again: it continues where it stopped"
        record("end", outcome="failed", text=sentence, next_step=step)
        raise BuildError(sentence, step) from None
    finally:
        record.close()


def _build(request: Request, place: compile.Place, record: Record, paths: Paths) -> cache.Entry:
    began = time.monotonic()
    space = shutil.disk_usage(place.root).free // 2**20
    if space < DISK_MIB:
        raise BuildError(
            f"{place.root} has {space / 1024:.1f} GiB free, a build needs "
            f"{DISK_MIB // 1024} GiB at least",
            "free space there, then deploy again",
        )
    tools_cuda = _toolkit(request)
    record("source", text=f"{request.inputs.commit[:12]} of {request.git_url}")
    tree = source.prepare(request, place.root, place.log)
    record("environment", text=f"torch {request.inputs.torch}, CUDA {tools_cuda.version}")
    tools = environment.prepare(request, place.root, tree.project, place.log)
    have = jobs.room(memory.available_mib(), memory.cgroup_room_mib())
    plan = jobs.plan(have, os.cpu_count() or 1, request.jobs, request.nvcc_threads)
    record("jobs", text=plan.reason, jobs=plan.jobs, memory_max_mib=plan.memory_max_mib)
    compiled = compile.build(request, place, tree.project, tools, tools_cuda, plan, record)
    if not compiled.limited:
        record("compile", text=f"all architectures were built: {compiled.limited_reason}")
    facts = provenance.describe(
        request,
        tree,
        compiled,
        tools,
        tools_cuda,
        compile.third_party(request, place),
        time.monotonic() - began,
    )
    final = _finish(request, compiled.wheel, place.root, facts)
    record("wheel", text=f"{final.name}, {final.stat().st_size / 2**20:.1f} MiB")
    facts["inspection"], facts["check"] = _prove(request, final, tools, place, record, paths)
    facts["wheel"] = {
        "file": final.name,
        "sha256": cache.sha256(final),
        "bytes": final.stat().st_size,
    }
    record("promote", text=f"into {paths.kernel_cache / request.key}")
    return cache.promote(request.key, final, facts, paths)


def _toolkit(request: Request) -> toolkit.Toolkit:
    given = {"CUDA_HOME": request.cuda_home} if request.cuda_home else None
    variables = {**os.environ, **given} if given else None
    found = toolkit.find(variables)
    if found is None:
        raise BuildError(
            "there is no CUDA compiler (nvcc) on this host",
            f"install the CUDA toolkit {request.inputs.cuda}, or name another kernel.build_host",
        )
    # A torch without CUDA (a build for another machine's sake) has no opinion.
    wanted = request.inputs.cuda.split(".")[0]
    if wanted.isdecimal() and found.release.split(".")[0] != wanted:
        raise BuildError(
            f"nvcc is of CUDA {found.release}, torch {request.inputs.torch} of CUDA "
            f"{request.inputs.cuda}: the kernel would not load",
            f"install the CUDA toolkit {wanted}.x or name it (install.cuda_home)",
        )
    return found


def _finish(request: Request, built: Path, root: Path, facts: dict[str, Any]) -> Path:
    target = root / "final"
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    try:
        return wheel.finish(
            built, target, request.distribution, request.minimum, json.dumps(facts, indent=1)
        )
    except Unusable as error:
        raise BuildError(str(error), "check kernel.git.commit") from None


def _prove(
    request: Request,
    final: Path,
    tools: Venv,
    place: compile.Place,
    record: Record,
    paths: Paths,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """inspect and check, before anybody can get the wheel."""
    sm = request.arch.rstrip("af")
    program = cubins.find_cuobjdump(paths)
    if program is None:
        try:
            program = cubins.fetch_cuobjdump(str(tools.python), paths)
        except cubins.CubinError as error:
            raise BuildError(str(error), "install the CUDA toolkit's cuobjdump") from None
    seen = inspect.inspect_wheel(final, sm, program, tools)
    record("inspect", text=f"{seen.verdict}: {seen.reason}", verdict=seen.verdict)
    if seen.verdict != USABLE:
        raise BuildError(
            f"the built wheel is not usable: {seen.verdict}: {seen.reason}",
            f"sglangctl kernel inspect {final} --sm {sm}",
        )
    done = command_line.run(
        tools.pip("install", *INSTALL, "--", str(final)),
        place.log,
    )
    if done.returncode:
        raise BuildError("the built wheel cannot be installed", f"read {place.log}")
    result = try_it(tools, seen, request.arch)
    record("check", text=f"{result.outcome}: {result.reason}", outcome=result.outcome)
    if result.outcome == FAILED:
        raise BuildError(
            f"the built kernel does not work: {result.reason}", result.next_step or "read the log"
        )
    archs = {item.path: list(item.archs or ()) for item in seen.files}
    return (
        {"verdict": seen.verdict, "loads": seen.loads, "archs": archs},
        {"outcome": result.outcome, "reason": result.reason, "gpu": result.gpu},
    )


def try_it(tools: Venv, seen: Inspection, arch: str) -> check.Check:
    """The check as far as this machine can do it: a build host needs no driver and may have
    another GPU, whose loader looks into another folder. The engine's host checks again."""
    here = common.gpu_architectures()
    if not here or any(cubins.runs_on(arch, one) for one in here):
        result = check.check(tools, seen)
    elif unused_folder(arch) == "sm100":
        return check.Check(
            UNKNOWN, f"not imported: its loader needs a GPU of sm_{arch}, here is {here[0]}"
        )
    else:
        result = check.check(tools, seen, {"CUDA_VISIBLE_DEVICES": ""})
    if result.cause == "driver-mismatch":
        return dataclasses.replace(result, outcome=UNKNOWN)
    return result


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
        shutil.rmtree(root, ignore_errors=True)
    return [root.name for root in gone]


@contextmanager
def build_lock(paths: Paths, key: str, record: Record) -> Iterator[None]:
    """One build at a time on a host: two would share one memory. The kernel drops the lock when
    its holder dies; the file says who holds it."""
    path = paths.kernel_cache / LOCK
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a+", encoding="utf-8") as file:
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
