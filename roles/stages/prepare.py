"""Everything that an engine needs, beside what runs now and without disturbing it."""

from __future__ import annotations

from functools import partial

from pyinfra.api import deploy

from roles.engine.operations import service_user, staged_release
from roles.engine.venv import venv_ready
from roles.host.operations import install_program, managed_files
from roles.remote.failing import contained
from roles.sgl_kernel.operations import kernel_ready
from roles.stages.desired import DesiredHost
from roles.stages.lacks import lacks, notes
from roles.switch.decision import decision_of, side_of
from roles.switch.staged import staged_fallbacks


@contained
@deploy("Host")
def prepare_host(desired: DesiredHost) -> None:
    """
    Ship sglangctl and what all engines of the host share.

    + desired: the host
    """
    install_program(
        name="sglangctl",
        request=desired.request,
        lacks=lambda facts: lacks(facts, desired),
        notes=lambda facts: notes(facts, [one.spec.hardening for one in desired.engines]),
    )
    managed_files(name="configuration", wanted=desired.managed, request=desired.request)


@contained
@deploy("Engine")
def prepare_engines(desired: DesiredHost) -> None:
    """
    Make user, folders, venv and release of each engine.

    + desired: the host
    """
    for engine in desired.each():
        title = f"{engine.name}:"
        service_user(
            name=f"{title} user",
            user=engine.spec.user,
            home=f"/var/cache/sglang/{engine.name}",
            request=desired.request,
        )
        managed_files(name=f"{title} folders", wanted=engine.managed, request=desired.request)
        venv_ready(name=f"{title} packages", venv=engine.venv, **desired.asked)
        staged_release(
            name=f"{title} release",
            engine=engine,
            side=partial(side_of, engine),
            request=desired.request,
        )
        staged_fallbacks(
            name=f"{title} fallbacks",
            engine=engine,
            decide=decision_of(engine),
            request=desired.request,
        )


@contained
@deploy("Kernel")
def prepare_kernels(desired: DesiredHost) -> None:
    """
    Make each engine's environment have a kernel that fits its GPU and its torch.

    It belongs after the packages (the kernel must fit the torch that is there) and before the
    switch. What of the inventory's `kernel` decides the environment's content is part of the
    environment's digest (roles.inventory.render.venv_digest), so a verified one is not modified: only a
    new one gets its kernel, and a damaged one is repaired.

    + desired: the host
    """
    for engine in desired.each():
        kernel_ready(
            name=f"Kernel of {engine.name}",
            engine=engine.spec,
            venv=engine.venv.path,
            **desired.asked,
        )
