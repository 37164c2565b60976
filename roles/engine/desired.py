"""One engine as the inventory wants it: rendered, and compared with what a host has. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from roles.engine.venv import Venv
from roles.host.managed import Change, Managed, ManagedDirectory, ManagedFile, changes
from roles.inventory import render
from roles.inventory.model import EngineSpec
from roles.inventory.render import Release
from roles.remote.snapshot import JSON, engine_facts
from sglangctl.state.release import mode_of
from sglangctl.systemd.unit_names import slots


@dataclass(frozen=True)
class DesiredEngine:
    """One engine of the host, rendered."""

    spec: EngineSpec
    release: Release
    venv: Venv
    managed: tuple[Managed, ...]
    """What is not part of a release: its folders, and how its log is rotated."""
    config: ManagedFile
    """What sglangctl knows of it. Written by the switch: until then it speaks of what runs."""
    fallbacks: Mapping[str, DesiredEngine] = field(default_factory=dict)
    """By their names, in the order in which they are tried."""

    @property
    def name(self) -> str:
        return self.spec.name

    @cached_property
    def live_files(self) -> dict[str, ManagedFile]:
        """The release's files under the paths of the live one: what a plan compares."""
        return {
            name: ManagedFile(
                f"{self.spec.current}/{name}",
                content,
                mode=f"{mode_of(name):04o}",
                group=self.spec.group if mode_of(name) == 0o640 else "root",
            )
            for name, content in self.release.files.items()
        }

    @cached_property
    def unit_files(self) -> dict[str, ManagedFile]:
        """By the name of each unit that it can be on a host: its own, and its slots."""
        return {
            unit: ManagedFile(f"/etc/systemd/system/{unit}", self.release.files["sglang.service"])
            for unit in (self.spec.unit, *slots(self.name))
        }

    def installed_unit(self, facts: JSON) -> ManagedFile:
        """The file of the unit that it is on this host."""
        found = self.unit_files
        return found.get(
            str(engine_facts(facts, self.name).get("unit_name")), found[self.spec.unit]
        )


KEPT: dict[str, tuple[EngineSpec, DesiredEngine]] = {}
"""What was rendered: in a fleet most engines are one and the same. By all that a spec shows, because
the order of its fallbacks matters too, which dictionaries leave out when they are compared."""


def desired_engine(engine: EngineSpec) -> DesiredEngine:
    """The engine, rendered once; raises what `render` does."""
    shown = repr(engine)
    known = KEPT.get(shown)
    if known is None or known[0] != engine:
        known = KEPT[shown] = engine, rendered(engine)
    return known[1]


def rendered(engine: EngineSpec) -> DesiredEngine:
    digest = render.venv_digest(engine)
    venv = Venv(path=render.venv_path(engine), user=engine.user, **vars(engine.install))
    if venv.locked is not None and venv.locked.environment not in (None, digest):
        venv = replace(venv, locked=None)  # of an environment that is wanted no more
    venv = replace(venv, digest=digest)
    config = ManagedFile(f"/etc/sglangctl/engines/{engine.name}.json", render.engine_json(engine))
    return DesiredEngine(
        spec=engine,
        release=render.render(engine, venv=venv.path),
        venv=venv,
        config=config,
        # The host's file is about all of them: sglangctl sees by the live release which one serves.
        fallbacks={
            name: replace(desired_engine(one), config=config)
            for name, one in engine.fallbacks.items()
        },
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


def changed_against_live(engine: DesiredEngine, facts: JSON) -> list[Change]:
    """The files of the release that differ from the live one.

    The manifest goes with them without being told: what it says is in the others.
    """
    files = [file for name, file in engine.live_files.items() if name != "manifest.json"]
    return changes(files, facts["files"])
