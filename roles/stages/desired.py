"""A host as the inventory wants it: what is rendered for it, and what to ask it for.

Made once per host in the prepare phase, before anything is touched, in every mode: a mistake in
the inventory, a secret that cannot be read or a template that needs an undefined value stops here,
and stops this host alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from jinja2 import TemplateError
from pyinfra.context import host, state

from roles.engine import profiles, users
from roles.engine.desired import DesiredEngine, desired_engine
from roles.host.managed import Managed, ManagedDirectory, ManagedFile
from roles.inventory import render
from roles.inventory.errors import Need
from roles.inventory.model import EngineSpec, HostSpec
from roles.remote import program
from roles.remote.failing import contained, fail_host, say
from roles.remote.snapshot import read_again, snapshot
from roles.report.result import keep
from roles.sgl_kernel.choice import probe_request as kernel_request
from roles.stages.asked import for_this_run
from roles.stages.fitness import NO_ENGINE, host_is_fit, inventory_is_right
from roles.stages.needed import PLACES, PROGRAMS
from roles.switch.gone import alike
from sglangctl.preflight.host import folders as host_folders
from sglangctl.state.paths import NAME
from sglangctl.systemd.unit_names import RESUME, RESUME_AT_BOOT, watch_unit

CANNOT_RENDER = (TemplateError, ValueError, OSError)
"""What `make` raises."""
MADE: dict[str, DesiredHost] = {}
"""Host -> what was made of it before its stages ask for it: see `make_early`."""


@dataclass(frozen=True)
class DesiredHost:
    """What the roles work on."""

    spec: HostSpec
    engines: tuple[DesiredEngine, ...]
    managed: tuple[Managed, ...]
    gone: tuple[str, ...] = ()
    """Engines that the host has and the inventory does not."""
    sudo: bool = False
    """For what runs inside a FunctionCommand: pyinfra applies the host's own setting to all else,
    but not there."""

    def each(self) -> Iterator[DesiredEngine]:
        """The engines, so that pyinfra keeps the order of operations in a loop."""
        yield from host.loop(self.engines)

    @property
    def asked(self) -> dict[str, Any]:
        """What most operations are given."""
        return {"request": self.request, "sudo": self.sudo}

    @cached_property
    def request(self) -> dict[str, Any]:
        """What the probe is asked for."""
        ours = (program.path(), program.FOLDER, program.LINK, RESUME_AT_BOOT)
        files: dict[str, str | None] = dict.fromkeys(ours)
        items: list[Managed] = list(self.managed)
        for engine in self.engines:
            items += [*engine.managed, engine.config]
            items += [*engine.live_files.values(), *engine.unit_files.values()]
        for item in items:
            files[item.path] = item.sha256 if isinstance(item, ManagedFile) else None
        takes = {one.name: takes_of(one.spec, self.spec, self.gone) for one in self.engines}
        return {
            **({"takes": {name: found for name, found in takes.items() if found}}),
            **profiles.request(self.spec.engines),
            **({"remove": list(self.removed)} if self.removed else {}),
            "files": files,
            "venvs": {engine.venv.path: engine.venv.python for engine in self.engines},
            "programs": sorted(PROGRAMS),
            "users": sorted({engine.spec.user for engine in self.engines}),
            "engine_configs": [json.loads(one.config.content) for one in self.engines],
            "host_config": json.loads(render.host_json(self.spec)),
            "plan": [engine.name for engine in self.engines],
            "environments": {engine.name: engine.venv.path for engine in self.engines},
            "paths": sorted(
                {*PLACES, *(path for one in self.engines for path in host_folders(one.name))}
            ),
            "preflight": [engine.name for engine in self.engines],
            "kernels": kernel_request(
                {engine.name: (engine.spec, engine.venv.path) for engine in self.engines}
            ),
        }

    @property
    def removed(self) -> tuple[str, ...]:
        """Those of `gone` that this deploy takes away."""
        renamed = [one.was for one in self.spec.engines]
        return tuple(name for name in self.gone if self.spec.prune == "yes" or name in renamed)

    def facts(self) -> dict[str, Any] | None:
        """The probe's document in this phase, None when the host could not be read."""
        return snapshot(self.request)


@contained
def desired_host(deploy: str) -> DesiredHost | None:
    """The current host as it is wanted; None when this host has failed (and has been told why)."""
    if not inventory_is_right(deploy, Need.FILES):
        return None
    sudo = bool(host.data.get("_sudo"))
    try:
        spec = for_this_run(host.data.get("sglang_host"), host.data.get)
    except ValueError as error:
        fail_host(f"nothing was changed: {error}")
        return None
    try:
        desired = made_early(spec, sudo) or make(spec, sudo)
        facts = desired.facts()
        choices: list[str] = []
        engines = spec.engines
        if facts is not None:
            engines = profiles.settled(users.settled(engines, facts), facts)
            choices = profiles.lines(engines, facts)
        if engines != spec.engines:
            # Users of before, or a profile that is proven: other files are asked for.
            read_again()
            spec = replace(spec, engines=engines)
            desired = make(spec, sudo)
            facts = desired.facts()
        gone = gone_of(spec, facts)
        if facts is not None and not spec.engines and not gone:
            say(state.inventory.get_host(host.name), NO_ENGINE)
            return None
        if gone:
            engines = renamed(spec, gone, facts or {})
            if engines != spec.engines:
                desired = make(replace(spec, engines=engines), sudo)
            desired = replace(desired, gone=gone)
        if desired.removed:
            read_again()  # what their removal would do
            facts = desired.facts()
    except CANNOT_RENDER as error:
        fail_host(f"the inventory cannot be rendered, nothing was changed: {error}")
        return None
    if facts is not None and choices:
        target = state.inventory.get_host(host.name)
        keep(target, "nccl.profile", choices)
        say(target, "\n".join(choices))
    return desired if host_is_fit(facts, deploy) else None


def gone_of(spec: HostSpec, facts: dict[str, Any] | None) -> tuple[str, ...]:
    """Engines that the host has and the inventory does not. Their names come from the host, and
    become parts of commands."""
    names = {engine.name for engine in spec.engines}
    found = sorted((facts or {}).get("engines") or {})
    return tuple(name for name in found if name not in names and NAME.fullmatch(name))


def renamed(spec: HostSpec, gone: Sequence[str], facts: dict[str, Any]) -> tuple[EngineSpec, ...]:
    """The engines; a new one with the port and the model of one that has left the inventory is that one
    under another name, as with `was`."""
    if spec.prune == "no":
        return spec.engines
    return tuple(
        replace(one, was=next((name for name in gone if alike(name, one, facts)), None))
        if one.was is None
        else one
        for one in spec.engines
    )


def takes_of(engine: EngineSpec, host: HostSpec, gone: Sequence[str]) -> dict[str, Any]:
    """What the engine's switch takes the place of, for the host (sglangctl/switch/takeover.py)."""
    was = engine.was if engine.was in gone else None
    others = [one for one in gone if one != was] if host.prune == "yes" else []
    return {"was": was, "gone": others} if was or others else {}


def make_early(spec: HostSpec) -> None:
    """Find out whether everything of a host can be rendered, and keep it: that takes a while."""
    MADE[spec.name] = make(spec)


def made_early(spec: HostSpec, sudo: bool) -> DesiredHost | None:
    """What was kept, once; None where this run wants the host otherwise."""
    found = MADE.pop(spec.name, None)
    return None if found is None or found.spec != spec else replace(found, sudo=sudo)


def make(spec: HostSpec, sudo: bool = False) -> DesiredHost:
    """Render everything for one host."""
    engines = tuple(desired_engine(engine) for engine in spec.engines)
    managed: tuple[Managed, ...] = (
        ManagedDirectory("/etc/sglangctl"),
        ManagedDirectory("/etc/sglangctl/engines"),
        ManagedDirectory("/var/lib/sglangctl"),
        ManagedDirectory("/var/log/sglang"),
        ManagedDirectory("/var/cache/sglang"),
        ManagedDirectory("/opt/sglang"),
        ManagedDirectory("/opt/sglang/venvs"),
        ManagedFile("/etc/sglangctl/host.json", render.host_json(spec), mode="0600"),
        *(
            ManagedFile(f"/etc/systemd/system/{one}", render.unit_of_ours(one, program.path()))
            for one in (watch_unit(), RESUME)
        ),
    )
    return DesiredHost(spec, engines, managed, sudo=sudo)
