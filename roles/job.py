"""One host's job: what the inventory wants of it, and what to ask the host for.

Made once per host in the prepare phase, before anything is touched, in every mode: a mistake in
the inventory, a secret that cannot be read or a template that needs an undefined value stops here,
and stops this host alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from jinja2 import TemplateError
from pyinfra.context import host

from roles.engine.venv import Venv
from roles.failing import WRONG, fail_host
from roles.host import program
from roles.host.managed import Managed, ManagedDirectory, ManagedFile
from roles.host.snapshot import snapshot
from roles.inventory import render
from roles.inventory.errors import Need
from roles.inventory.model import EngineSpec, HostSpec
from roles.inventory.render import Release
from roles.kernel.deploy import probe_request as kernel_request
from roles.readiness.report import report_once
from sglangctl.state.release import FILES

STATE = "/var/lib/sglangctl"
CANNOT_RENDER = (TemplateError, ValueError, OSError)
"""What `make` raises."""


@dataclass(frozen=True)
class EngineJob:
    """One engine of the host, rendered."""

    spec: EngineSpec
    release: Release
    venv: Venv
    managed: tuple[Managed, ...]
    """What is not part of a release: its folders, and how its log is rotated."""
    config: ManagedFile
    """What sglangctl knows of it. Written by the switch: until then it speaks of what runs."""

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def live_files(self) -> dict[str, ManagedFile]:
        """The release's files under the paths of the live one: what a plan compares."""
        return {
            name: ManagedFile(
                f"{self.spec.current}/{name}",
                content,
                mode=f"{FILES[name]:04o}",
                group=self.spec.group if FILES[name] == 0o640 else "root",
            )
            for name, content in self.release.files.items()
        }

    @property
    def weights(self) -> dict[str, str]:
        """Key of the inventory -> path that must be there before anything is switched."""
        paths = {"model.path": self.spec.model.path}
        if self.spec.drafter and self.spec.drafter.path:
            paths["drafter.path"] = self.spec.drafter.path
        return paths

    @property
    def installed_unit(self) -> ManagedFile:
        return ManagedFile(
            f"/etc/systemd/system/{self.spec.unit}", self.release.files["sglang.service"]
        )


@dataclass(frozen=True)
class Job:
    """What the roles work on."""

    spec: HostSpec
    engines: tuple[EngineJob, ...]
    managed: tuple[Managed, ...]
    sudo: bool = False
    """For what runs inside a FunctionCommand: pyinfra applies the host's own setting to all else,
    but not there."""

    def each(self) -> Iterator[EngineJob]:
        """The engines, so that pyinfra keeps the order of operations in a loop."""
        yield from host.loop(self.engines)

    @cached_property
    def request(self) -> dict[str, Any]:
        """What the probe is asked for."""
        files: dict[str, str | None] = {program.path(): None, program.LINK: None}
        items: list[Managed] = list(self.managed)
        for engine in self.engines:
            items += [*engine.managed, engine.config]
            items += [*engine.live_files.values(), engine.installed_unit]
            files[engine.venv.marker] = None
            files.update(dict.fromkeys(engine.weights.values()))
        for item in items:
            files[item.path] = item.sha256 if isinstance(item, ManagedFile) else None
        return {
            "files": files,
            "users": sorted({engine.spec.user for engine in self.engines}),
            "engine_configs": [json.loads(render.engine_json(one.spec)) for one in self.engines],
            "host_config": json.loads(render.host_json(self.spec)),
            "plan": [engine.name for engine in self.engines],
            "kernels": kernel_request(
                {engine.name: (engine.spec, engine.venv.path) for engine in self.engines}
            ),
        }

    def facts(self) -> dict[str, Any] | None:
        """The probe's document in this phase, None when the host could not be read."""
        return snapshot(self.request)


def begin(deploy: str) -> Job | None:
    """The current host's job; None when this host has failed (and has been told why)."""
    if not right(deploy, Need.FILES):
        return None
    try:
        job = make(host.data.get("sglang_host"), sudo=bool(host.data.get("_sudo")))
    except CANNOT_RENDER as error:
        fail_host(f"what the inventory describes cannot be rendered, nothing was touched: {error}")
        return None
    return job if fit(job.facts(), deploy) else None


def right(deploy: str, need: Need) -> bool:
    """Whether nothing that is needed is wrong in the inventory; else the host has failed."""
    report_once(deploy)
    mistakes = host.data.get("sglang_mistakes")
    if mistakes is None:
        fail_host(
            "this host has no engines in the inventory: use inventory.py of this checkout, or give "
            "the host its data with roles.hosts"
        )
        return False
    errors = [mistake.text for mistake in mistakes if mistake.need <= need]
    if errors:
        fail_host("\n".join([WRONG, *errors]))
    return not errors


def fit(facts: dict[str, Any] | None, deploy: str) -> bool:
    """Whether something can be done on this host; else it has failed."""
    if facts is None:
        return False
    unfit = why_unfit(facts, deploy)
    if unfit:
        fail_host("\n".join(unfit))
    return not unfit


def why_unfit(facts: dict[str, Any], deploy: str) -> list[str]:
    """Why nothing can be done on this host, a sentence each; empty when something can."""
    found = []
    if facts.get("uid") != 0:
        found.append(
            f"{deploy} needs root on the host: set `ssh: {{user: root}}` or `sudo: true` for it"
        )
    if facts.get("systemd") is None:
        reason = (facts.get("reasons") or {}).get("systemd", "it does not answer")
        found.append(f"{deploy} needs a host that is run by systemd: {reason}")
    if deploy == "verify" and facts.get("program") is None:
        found.append("nothing was deployed to this host yet (no sglangctl): deploys/sglang.py does")
    return found


def make(spec: HostSpec, sudo: bool = False) -> Job:
    """Render everything for one host."""
    engines = tuple(engine_job(engine) for engine in spec.engines)
    managed: tuple[Managed, ...] = (
        ManagedDirectory("/etc/sglangctl"),
        ManagedDirectory("/etc/sglangctl/engines"),
        ManagedDirectory(STATE),
        ManagedDirectory("/var/log/sglang"),
        ManagedDirectory("/var/cache/sglang"),
        ManagedDirectory("/opt/sglang"),
        ManagedDirectory("/opt/sglang/venvs"),
        ManagedFile("/etc/sglangctl/host.json", render.host_json(spec), mode="0600"),
        ManagedFile("/etc/systemd/system/sglang-watch@.service", render.watch_unit(program.path())),
    )
    return Job(spec, engines, managed, sudo)


def engine_job(engine: EngineSpec) -> EngineJob:
    install = engine.install
    venv = Venv(
        path=render.venv_path(engine),
        python=install.python,
        packages=tuple(install.packages),
        pip_arguments=tuple(install.pip_arguments),
        system_site_packages=install.system_site_packages,
    )
    return EngineJob(
        spec=engine,
        release=render.render(engine, venv=venv.path),
        venv=venv,
        config=ManagedFile(
            f"/etc/sglangctl/engines/{engine.name}.json", render.engine_json(engine)
        ),
        managed=(
            ManagedFile(f"/etc/tmpfiles.d/sglang-{engine.name}.conf", render.tmpfiles(engine)),
            ManagedFile(f"/etc/logrotate.d/sglang-{engine.name}", render.logrotate(engine)),
            ManagedDirectory(engine.state),
            ManagedDirectory(f"{engine.state}/releases"),
            # setgid, and root's: see templates/tmpfiles.conf.j2.
            ManagedDirectory(f"{engine.state}/starts", "2750", "root", engine.group),
            ManagedDirectory(engine.log_folder, "2750", "root", engine.group),
            ManagedDirectory(engine.cache, "0750", engine.user, engine.group),
        ),
    )
