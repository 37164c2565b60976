"""What the build user does: fetch, compile, prove. All code of others that a build runs, runs here.

It is a process of its own, confined, and tells root by lines of JSON on its standard output what it
does. Root believes none of it: it is data of somebody else.
"""

from __future__ import annotations

import dataclasses
import fcntl
import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

from sglangctl.proc import memory
from sglangctl.sgl_kernel import common
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
from sglangctl.sgl_kernel.build.record import BuildError, Tell
from sglangctl.sgl_kernel.build.request import Request, unused_folder
from sglangctl.sgl_kernel.library import check, cubins, inspect
from sglangctl.sgl_kernel.library.judging import USABLE, Inspection
from sglangctl.sgl_kernel.library.translations import FAILED, UNKNOWN
from sglangctl.sgl_kernel.venv import Venv
from sglangctl.state import build_user
from sglangctl.util import os_errors
from sglangctl.util.errors import Unusable

MADE, FAILED_STEP = "made", "failed"
"""The last line's `step`."""
INSTALL = ("--no-deps", "--no-index", "--force-reinstall", "--disable-pip-version-check")


def tell(step: str, **fields: Any) -> None:
    """One line for root."""
    print(json.dumps({"step": step, **fields}), flush=True)


def work(request: Request, patches: Path, place: compile.Place, told: Tell = tell) -> int:
    """Make a wheel that is proven, in `place.work`; the exit status. `patches`: their folder."""
    try:
        with open(place.work / "lock", "a", encoding="utf-8") as file:
            # Where there is no unit to end, what a killed run has left goes on for a while.
            fcntl.flock(file, fcntl.LOCK_EX)
            name, facts = _work(request, patches, place, told)
    except (BuildError, Unusable) as error:
        failed = error if isinstance(error, BuildError) else BuildError(str(error), "deploy again")
        told(FAILED_STEP, text=failed.sentence, next_step=failed.next_step)
        return 1
    except OSError as error:
        sentence = "the disk is full" if error.errno == 28 else os_errors.sentence(error)
        told(FAILED_STEP, text=sentence, next_step=free_space(place.cache))
        return 1
    told(MADE, wheel=name, facts=facts)
    return 0


def _work(
    request: Request, patches: Path, place: compile.Place, told: Tell
) -> tuple[str, dict[str, Any]]:
    began = time.monotonic()
    tools_cuda = _toolkit(request)
    told("source", text=f"{request.inputs.commit[:12]} of {request.git_url}")
    tree = source.prepare(request, patches, place.work, place.log)
    told("environment", text=f"torch {request.inputs.torch}, CUDA {tools_cuda.version}")
    tools = environment.prepare(request, place.environments, tree.project, place.log)
    have = jobs.room(memory.available_mib(), memory.cgroup_room_mib())
    plan = jobs.plan(have, os.cpu_count() or 1, request.jobs)
    told("jobs", text=plan.reason, jobs=plan.jobs, memory_max_mib=plan.memory_max_mib)
    compiled = compile.build(request, place, tree.project, tools, tools_cuda, plan, told)
    if not compiled.limited:
        told("compile", text=f"all architectures were built: {compiled.limited_reason}")
    facts = provenance.describe(
        request,
        tree,
        compiled,
        tools,
        tools_cuda,
        compile.third_party(request, place),
        time.monotonic() - began,
    )
    final = _finish(request, compiled.wheel, place.work, facts)
    told("wheel", text=f"{final.name}, {final.stat().st_size / 2**20:.1f} MiB")
    facts["inspection"], facts["check"] = _prove(request, final, tools, place, told)
    return final.name, facts


def _toolkit(request: Request) -> toolkit.Toolkit:
    given = {"CUDA_HOME": request.cuda_home} if request.cuda_home else None
    variables = {**os.environ, **given} if given else None
    found = toolkit.find(variables)
    if found is None:
        raise BuildError(
            f"there is no CUDA compiler (nvcc) on this host that {build_user.NAME} can run",
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


def _finish(request: Request, built: Path, work: Path, facts: dict[str, Any]) -> Path:
    for old in work.glob("*.whl"):
        old.unlink()
    try:
        return wheel.finish(
            built, work, request.distribution, request.minimum, json.dumps(facts, indent=1)
        )
    except Unusable as error:
        raise BuildError(str(error), "check kernel.git.commit") from None


def _prove(
    request: Request, final: Path, tools: Venv, place: compile.Place, told: Tell
) -> tuple[dict[str, Any], dict[str, Any]]:
    """inspect and check, before anybody can get the wheel."""
    sm = request.arch.rstrip("af")
    seen = inspect.inspect_wheel(final, sm, _cuobjdump(tools, place), tools)
    told("inspect", text=f"{seen.verdict}: {seen.reason}", verdict=seen.verdict)
    if seen.verdict != USABLE:
        raise BuildError(
            f"the built wheel is not usable: {seen.verdict}: {seen.reason}",
            f"sglangctl kernel inspect {final} --sm {sm}",
        )
    done = command_line.run(tools.pip("install", *INSTALL, "--", str(final)), place.log)
    if done.returncode:
        raise BuildError("the built wheel cannot be installed", f"read {place.log}")
    result = try_it(tools, seen, request.arch)
    told("check", text=f"{result.outcome}: {result.reason}", outcome=result.outcome)
    if result.outcome == FAILED:
        raise BuildError(
            f"the built kernel does not work: {result.reason}", result.next_step or "read the log"
        )
    archs = {item.path: list(item.archs or ()) for item in seen.files}
    return (
        {"verdict": seen.verdict, "loads": seen.loads, "archs": archs},
        {"outcome": result.outcome, "reason": result.reason, "gpu": result.gpu},
    )


def _cuobjdump(tools: Venv, place: compile.Place) -> str:
    """The host's, else the package index's in a folder of the build user's."""
    found = cubins.find_cuobjdump()
    folder = place.environments / "cuobjdump"
    if found is None and not cubins.programs(folder):
        shutil.rmtree(folder, ignore_errors=True)
        options = ["install", *cubins.PIP_OPTIONS, "--target", str(folder), cubins.PACKAGE]
        command_line.run(tools.pip(*options), place.log)
    program = found or next(iter(cubins.programs(folder)), None)
    if program is None:
        raise BuildError(
            f"{cubins.PACKAGE} could not be installed (log: {place.log})",
            "install the CUDA toolkit's cuobjdump",
        )
    return program


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


def free_space(cache: Path) -> str:
    """The next step where the disk is full."""
    return f"free space under {cache}, then deploy again: it continues where it stopped"
