"""One run: refused where somebody has the GPUs; measured, judged and kept otherwise."""

from __future__ import annotations

import json
import os
import pkgutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sglangctl.collective import answers, arms
from sglangctl.collective.answers import HUNG, NOT_POSSIBLE, Result
from sglangctl.free import verdicts
from sglangctl.gpu import gpus, topology
from sglangctl.gpu.gpus import Gpu
from sglangctl.holders import classes, survey
from sglangctl.holders.survey import Holder, Survey
from sglangctl.masking.masker import Masker, read_env, secrets_of
from sglangctl.proc import command
from sglangctl.state import collectives, release
from sglangctl.state.config import EngineConfig, HostConfig, load_host, siblings_of
from sglangctl.state.lock import Busy, locked
from sglangctl.state.paths import Paths
from sglangctl.systemd import confined
from sglangctl.systemd.unit import find
from sglangctl.systemd.unit_names import collective_unit
from sglangctl.util import os_errors
from sglangctl.util.errors import Failed, Unusable

REFUSED = 3
"""Exit status: somebody has the GPUs."""
WORLD_S = 120.0
"""For one world, from its ranks' start to their end: eight H200s take some 20 s."""
IMPORT_S = 300.0
"""For torch, from a cold disk on a busy host."""
KILL_S = 15.0
SETTLE_S = 3.0
"""Until the driver's utilisation no longer counts what was killed."""
PRIVATE = ("TemporaryFileSystem=/dev/shm:mode=1777", "LimitMEMLOCK=infinity", "TasksMax=4096")
"""Of the unit: shared memory that goes with it, because ranks are killed and then leave theirs."""
STOP = {
    classes.REPLACED: "sglangctl free {}",
    classes.ENGINE: "sglangctl free {} --policy engines",
    classes.FOREIGN: "sglangctl free {} --policy all",
}
Confined = Callable[..., confined.Ended]


@dataclass(frozen=True)
class Kept:
    """A result with what it holds for, as it is in collective.json."""

    engine: str
    result: Result
    entry: Mapping[str, Any]
    wedged: tuple[str, ...] = ()
    """GPUs that are busy with nobody on them, after ranks that hung were killed."""
    unkept: str = ""


def measure(
    engine: EngineConfig,
    paths: Paths,
    digest: str | None = None,
    profiles: Mapping[str, Mapping[str, str]] | None = None,
    limit_s: float = WORLD_S,
    run: Confined = confined.run,
) -> Kept:
    """All-reduces of the release `digest` (None: the live one), under the host's lock.

    + profiles: name -> variables of NCCL in the place of nccl.env's, to be compared
    + limit_s: of each world

    Failed with status 3: a GPU has a holder, or a switch is under way. Unusable: it is not possible.
    """
    if not arms.worlds(engine.tensor_parallel):
        raise Unusable(f"{engine.name} has tensor_parallel 1: one rank has nothing to add up")
    if os.geteuid() != 0:
        raise Unusable("not root: run it with sudo")
    try:
        with locked(paths, engine.name, f"collective of {engine.name}"):
            refuse_holders(engine, paths)
            mine = _gpus(engine)
            wanted = digest or release.link_target(engine.name, "current", paths)
            if wanted is None or wanted not in release.staged(engine.name, paths):
                what = f"release {wanted}" if wanted else "no release"
                state = "is not staged" if wanted else "is staged"
                raise Unusable(f"{what} of {engine.name} {state}: deploy it first")
            return _measured(engine, paths, wanted, mine, profiles or {}, limit_s, run)
    except Busy as error:
        raise Failed(str(error), REFUSED) from None


def _gpus(engine: EngineConfig) -> tuple[Gpu, ...]:
    """The engine's GPUs in its order; none for `device: cpu`."""
    if engine.preflight.device == "cpu":
        return ()
    reading = gpus.read()
    if reading.gpus is None:
        raise Unusable(f"the GPUs do not answer: {reading.reason}")
    known = {gpu.index: gpu for gpu in reading.gpus}
    indices = tuple(known) if isinstance(engine.gpus, str) else engine.gpus
    absent = [index for index in indices if index not in known]
    if absent or len(indices) < engine.tensor_parallel:
        raise Unusable(
            f"{engine.name} needs {engine.tensor_parallel} GPUs ({_listed(indices)}), and the host has "
            f"{_listed(known) or 'none'}: nvidia-smi -L lists them"
        )
    return tuple(known[index] for index in indices)


def refuse_holders(engine: EngineConfig, paths: Paths) -> None:
    """Failed names who has one of the engine's GPUs, and the command that ends that."""
    if engine.preflight.device == "cpu":
        return
    unit = find(engine.unit)
    if unit is not None and unit.active in ("active", "activating", "reloading"):
        raise Failed(
            f"nothing was measured: {engine.unit} is {unit.active}; first: sglangctl stop {engine.name}",
            REFUSED,
        )
    siblings = siblings_of(engine.name, paths)
    for one in in_the_way(engine, load_host(paths), siblings, survey.survey()):
        where = f", {one.system_unit}" if one.system_unit else ""
        raise Failed(
            f"nothing was measured: GPU {_listed(one.uses)} has a holder, {one.pid} {one.title[:80]} "
            f"({one.class_}, user {one.user}{where}); first: {_command(one, engine.name)}",
            REFUSED,
        )


def in_the_way(
    engine: EngineConfig, host: HostConfig, siblings: Sequence[EngineConfig], looked: Survey
) -> Iterator[Holder]:
    """Who has the engine's GPUs: not the driver, the desktop or a monitor, unless it has memory that
    counts."""
    found = survey.find(engine, host, siblings, looked)
    bare = survey.find(engine, replace(host, protected=(), containers=()), siblings, looked)
    for one, other in zip(found, bare):
        mine = [at for at in one.uses if isinstance(engine.gpus, str) or at in engine.gpus]
        used = sum(one.memory_mib.get(at) or 0 for at in mine)
        harmless = other.class_ == classes.PROTECTED and used < engine.limits.memory_free_mib
        if mine and not harmless:
            yield one


def _command(holder: Holder, name: str) -> str:
    if holder.class_ == classes.OURS:
        return f"sglangctl stop {name}"
    if holder.class_ == classes.SIBLING and holder.system_unit:
        return f"systemctl stop {holder.system_unit}"
    known = STOP.get(holder.class_)
    return known.format(name) if known else f"end it yourself ({holder.reason})"


def _measured(
    engine: EngineConfig,
    paths: Paths,
    digest: str,
    mine: Sequence[Gpu],
    profiles: Mapping[str, Mapping[str, str]],
    limit_s: float,
    run: Confined,
) -> Kept:
    folder = paths.releases(engine.name) / digest
    try:
        venv = release.venv(engine.name, digest, paths)
    except Failed as error:
        raise Unusable(str(error)) from None
    python = Path(venv or "", "bin/python")
    nccl = read_env(folder / "nccl.env")
    unit = confined.kept(read_env(folder / "engine.env"), arms.OF_THE_UNIT)
    found = arms.arms(nccl, profiles, engine.preflight)
    device = "cpu" if engine.preflight.device == "cpu" else "cuda"
    request = arms.request(device, found, engine.tensor_parallel, limit_s)
    environment = {"NCCL_DEBUG": "WARN", **unit}
    if device == "cpu":
        environment.setdefault("GLOO_SOCKET_IFNAME", "lo")
    else:
        # CUDA makes nvidia-uvm's device node through a setuid helper, which a sandbox forbids.
        command.run(["/usr/bin/nvidia-modprobe", "-u", "-c=0"])
    program = (pkgutil.get_data("sglangctl.collective", "in_venv.py") or b"").decode()
    try:
        ended = run(
            [str(python), "-I", "-B", "-X", "faulthandler", "-c", program, json.dumps(request)],
            engine.user,
            limit_s=IMPORT_S + len(found) * len(request["worlds"]) * (limit_s + KILL_S),
            environment=environment,
            unit=PRIVATE,
            name=collective_unit(engine.name),
        )
    except KeyError:
        raise Unusable(f"there is no user {engine.user} on this host: deploy first") from None
    except OSError as error:
        raise Unusable(f"{python} does not run: {os_errors.describe(error)}") from None
    mask = Masker(secrets_of(folder)).mask
    result = answers.judge(ended, found, request["worlds"], mask)
    hung = any(arm.outcome == HUNG for arm in result.arms)
    entry = {
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "release": digest,
        "device": device,
        "ranks": engine.tensor_parallel,
        "key": {
            "driver": next((gpu.driver for gpu in mine), None),
            "nccl": result.nccl,
            "topology": topology.read(mine),
        },
        **result.to_json(),
    }
    kept = Kept(engine.name, result, entry, _wedged(mine) if hung else ())
    if all(arm.outcome == NOT_POSSIBLE for arm in result.arms):
        return kept  # nothing was found out: what is known stays
    try:
        collectives.store(engine.name, entry, paths)
    except OSError as error:
        return replace(kept, unkept=os_errors.sentence(error))
    return kept


def _wedged(mine: Sequence[Gpu]) -> tuple[str, ...]:
    if not mine:
        return ()
    time.sleep(SETTLE_S)
    indices = {gpu.index for gpu in mine}
    now = [gpu for gpu in gpus.sample() or () if gpu.index in indices]
    return tuple(verdicts.wedged(gpu) for gpu in now if verdicts.is_wedged(gpu))


def _listed(indices: Sequence[int] | Mapping[int, Any]) -> str:
    return ", ".join(map(str, indices))
