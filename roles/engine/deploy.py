"""The engine: everything it needs, beside what runs now and without disturbing it."""

from __future__ import annotations

from pyinfra.api import deploy

from roles.engine.operations import service_user, staged_release
from roles.engine.venv import venv_ready
from roles.host.operations import managed_files
from roles.job import Job


@deploy("Engine")
def prepare_engines(job: Job) -> None:
    """
    Make user, folders, venv and release of each engine.

    + job: the host's job
    """
    for engine in job.each():
        title = f"{engine.name}:"
        service_user(
            name=f"{title} user",
            user=engine.spec.user,
            home=f"/var/cache/sglang/{engine.name}",
            request=job.request,
        )
        managed_files(name=f"{title} folders", wanted=engine.managed, request=job.request)
        venv_ready(
            name=f"{title} packages",
            venv=engine.venv,
            request=job.request,
            sudo=job.sudo,
            release_digest=engine.release.digest,
        )
        staged_release(name=f"{title} release", engine=engine, request=job.request)
