"""The kernels of a host's engines: after their packages are there, before anything is switched."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from pyinfra.api import deploy

from roles.inventory.model import EngineSpec
from roles.kernel.ladder import wanted
from roles.kernel.operations import kernel_ready


class Venv(Protocol):
    """What is used of roles.engine.venv.Venv."""

    @property
    def path(self) -> str: ...


class EngineJob(Protocol):
    """What is used of roles.job.EngineJob."""

    @property
    def name(self) -> str: ...
    @property
    def spec(self) -> EngineSpec: ...
    @property
    def venv(self) -> Venv: ...


class Job(Protocol):
    """What is used of roles.job.Job."""

    @property
    def sudo(self) -> bool: ...
    @property
    def request(self) -> dict[str, Any]: ...
    def each(self) -> Iterator[Any]: ...


@deploy("Kernel")
def prepare_kernels(job: Job) -> None:
    """
    Make each engine's environment have a kernel that fits its GPU and its torch.

    It belongs after the packages (the kernel must fit the torch that is there) and before the
    switch. What of the inventory's `kernel` decides the environment's content is part of the
    environment's digest (roles.inventory.render.venv_digest), so a verified one is not modified: only a
    new one gets its kernel, and a damaged one is repaired.

    + job: the host's job
    """
    for engine in job.each():
        kernel_ready(
            name=f"Kernel of {engine.name}",
            engine=engine.spec,
            venv=engine.venv.path,
            request=job.request,
            sudo=job.sudo,
        )


def probe_request(engines: Mapping[str, tuple[EngineSpec, str]]) -> dict[str, Any]:
    """The part `kernels` of the probe's request: engine -> (its spec, its environment's path).

    Engines whose kernel is none are left out: nothing is looked at that nobody asks for.
    """
    found = {}
    for name, (spec, venv) in engines.items():
        if wanted(spec.kernel, _device(spec)) is None:
            arch = spec.kernel.arch
            found[name] = {"venv": venv, "sm": arch.rstrip("af") if arch else None}
    return found


def _device(spec: EngineSpec) -> str | None:
    device = spec.flags.get("device")
    return str(device) if device is not None else None
