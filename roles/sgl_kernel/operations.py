"""The operation that makes the right kernel be in an engine's environment."""

from __future__ import annotations

import json
from collections.abc import Generator
from dataclasses import replace
from typing import Any

from gevent.lock import RLock
from pyinfra.api import FunctionCommand, Host, State
from pyinfra.context import host

from roles.inventory.model import EngineSpec
from roles.remote.failing import HostFailed, checked, failing, say
from roles.remote.operation import operation, read, show
from roles.remote.snapshot import JSON, forget
from roles.sgl_kernel import building, fleet
from roles.sgl_kernel.choice import Situation, Step, architecture, decide, device_of, request
from roles.sgl_kernel.kernel_host import Ended, KernelHost
from sglangctl.packages import options as pip

STEPS = 12
"""More than there are sources: an internal error ends here instead of looping for ever."""
# One build a key in the whole run: the next host that wants the same one finds it in the cache.
BUILDING: dict[str, RLock] = {}


@operation()
def kernel_ready(
    engine: EngineSpec, venv: str, request: JSON, sudo: bool = False
) -> Generator[FunctionCommand, None, None]:
    """
    Make an engine's environment have a kernel that is proven to fit its GPU and its torch.

    + engine: the engine's spec
    + venv: the path of its environment
    + request: what the probe is asked for, `kernels` of this engine among it
    + sudo: whether commands need it on this host

    **Example:**

    .. code:: python

        kernel_ready(name="Kernel of kimi", engine=spec, venv=path, request=desired.request)
    """
    facts = read(request)
    now = situation(engine, (facts.get("kernels") or {}).get(engine.name))
    step = decide(now)
    if step.action in ("none", "nothing"):
        host.noop(f"kernel of {engine.name}: {step.reason}")
        return
    show([plan_line(engine.name, step)])
    if step.action == "fail":
        yield failing(f"kernel of {engine.name}: {step.reason}")
        return

    def run(state: State, host: Host) -> None:
        provide(state, KernelHost(state, host, sudo), engine, venv)

    yield FunctionCommand(checked(run), (), {})
    forget()


def situation(engine: EngineSpec, survey: dict[str, Any] | None) -> Situation:
    """What the choice is made from."""
    return Situation(
        engine.kernel,
        device_of(engine),
        survey,
        fleet.keys(engine.kernel.cache),
    )


def plan_line(name: str, step: Step) -> str:
    """One line of the plan."""
    doing = {
        "later": "",
        "fail": "will fail",
        "tools": "cuobjdump is fetched, then decided",
        "check": "checked with one operation",
        "stock": f"stock wheel {step.distribution or 'as the engine wants it'} {step.version or ''}",
        "cached": f"wheel {step.key} of this host's cache",
        "fleet": f"wheel {step.key} of the fleet's cache",
        "build": f"build {step.key}",
    }[step.action]
    return f"kernel of {name}: " + (f"{doing.strip()} ({step.reason})" if doing else step.reason)


def provide(state: State, remote: KernelHost, engine: EngineSpec, venv: str) -> None:
    """Step by step until the kernel is there and checked; HostFailed lists every attempt."""
    tried: dict[str, str] = {}
    arch, source = engine.kernel.arch, "stock"
    for _ in range(STEPS):
        survey = remote.survey(venv, arch.rstrip("af") if arch else None)
        now = replace(situation(engine, survey), tried=dict(tried))
        step = decide(now)
        if step.action == "nothing":
            say(remote.host, f"kernel of {engine.name}: {step.reason}", fg="green")
            return
        if step.action in ("fail", "later", "none"):
            raise HostFailed(f"kernel of {engine.name}: {step.reason}")
        say(remote.host, plan_line(engine.name, step))
        reason = take(state, remote, engine, venv, now, step)
        if reason is not None:
            tried[step.action] = reason
            if step.action == "check":
                # What brought this kernel would bring it again; all our builds have one key.
                for name in ("cached", "fleet", "build") if source == "built" else ("stock",):
                    tried[name] = reason
            say(remote.host, f"kernel of {engine.name}: {step.action}: {reason}", fg="yellow")
        elif step.action in ("stock", "cached", "fleet", "build"):
            # Another kernel is there now: what the check said was of the one before.
            tried.pop("check", None)
            source = "stock" if step.action == "stock" else "built"
    raise HostFailed(f"kernel of {engine.name}: no end after {STEPS} steps; please report it")


def take(
    state: State, remote: KernelHost, engine: EngineSpec, venv: str, now: Situation, step: Step
) -> str | None:
    """Take one step; why it did not help, None when it did (the next survey says whether)."""
    where = [f"--venv={venv}"]
    sm = architecture(now.kernel, now.survey or {})
    fitting = [*where, f"--sm={sm}"]
    sources = [f"--pip-argument={one}" for one in pip.for_download(engine.install.arguments)]
    if step.action == "tools":
        options = ["--fetch-tools", *sources]
        ended = remote.work("getting cuobjdump", "inspect", "installed", *options, *fitting)
        return ended.text if ended.status == 2 else None
    if step.action == "check":
        accept = ["--accept-no-gpu"] if engine.kernel.arch else []
        command = ["check", "--remember", "--json", f"--user={engine.user}", *accept, *where]
        return checked_kernel(remote.work("checking the kernel", *command, limit_s=600), engine)
    if step.action == "stock":
        options = [f"--version={step.version}"] if step.version else []
        options += [f"--distribution={step.distribution}"] if step.distribution else []
        options += sources
        ended = remote.work("installing the stock kernel", "install", "stock", *options, *fitting)
        return ended.text if ended.status else None
    assert step.key is not None
    if step.action == "build":
        made = obtain(state, remote, engine, venv, now, step.key)
        if made is not None:
            return made
    if step.action == "fleet":
        entry = fleet.find(engine.kernel.cache, step.key)
        if entry is None:
            return f"{engine.kernel.cache}/{step.key} is damaged: delete it"
        building.distribute(remote, entry)
    ended = remote.work("installing the built kernel", "install", step.key, *sources, *fitting)
    return ended.text if ended.status else None


def has_torch(builder: KernelHost, venv: str, now: Situation) -> bool:
    """Whether the build host has the same environment, torch and Python: then it is not
    downloaded again."""
    here, there = now.survey or {}, builder.survey(venv, now.kernel.arch)
    return all(here.get(name) == there.get(name) for name in ("torch", "python", "machine"))


def checked_kernel(ended: Ended, engine: EngineSpec) -> str | None:
    """Why the kernel failed its check; None when it passed or could not be run for want of memory.

    HostFailed where no kernel would help: the driver shows GPUs and torch sees none. With
    kernel.arch set, a host without a GPU is what the inventory means.
    """
    try:
        document = json.loads("\n".join(ended.lines))
        outcome, stage, reason = document["outcome"], document["stage"], str(document["reason"])
    except (ValueError, KeyError, TypeError):
        raise HostFailed(f"the kernel could not be checked: {ended.text}") from None
    if outcome == "failed":
        return reason
    if outcome == "unknown" and stage == "no-gpu" and not engine.kernel.arch:
        said = "".join(f"\n  {line}" for line in document.get("evidence") or ())
        raise HostFailed(
            f"kernel of {engine.name}: the driver shows GPUs and torch sees none: the driver is "
            f"older than torch's CUDA, or the GPUs are hidden from this user (nvidia-smi){said}"
        )
    return None


def obtain(
    state: State, remote: KernelHost, engine: EngineSpec, venv: str, now: Situation, key: str
) -> str | None:
    """Have the wheel of `key` built and put it into this host's cache. None: it is there."""
    kernel = engine.kernel
    with BUILDING.setdefault(key, RLock()):
        entry = fleet.find(kernel.cache, key)
        if entry is None:
            where = building.build_host(state, remote.host, kernel.build_host)
            own = where is remote.host
            builder = remote if own else KernelHost(state, where, bool(where.data.get("_sudo")))
            pip_arguments = tuple(
                one for one in pip.for_download(engine.install.arguments) if one != "--no-deps"
            )
            there = own or has_torch(builder, venv, now)
            document = request(now, venv if there else None, pip_arguments)
            building.build(builder, document, kernel.patches, remote.host)
            # Its code will be root's on whoever gets it: only a host that the inventory names for
            # that gives it to others. What a host builds for itself stays there.
            if kernel.build_host is None:
                return None
            entry = building.collect(builder, key, kernel.cache)
            if own:
                return None
    building.distribute(remote, entry)
    return None
