"""The host: our program and what it may know of the inventory."""

from __future__ import annotations

from pyinfra.api import deploy

from roles.host.operations import install_program, managed_files
from roles.job import Job


@deploy("Host")
def prepare_host(job: Job) -> None:
    """
    Ship sglangctl and what all engines of the host share.

    + job: the host's job
    """
    install_program(name="sglangctl", request=job.request)
    managed_files(name="configuration", wanted=job.managed, request=job.request)
