"""Paths on the host. `root` moves the whole tree, for tests."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from sglangctl.util import lazy_re
from sglangctl.util.errors import Unusable

NAME = lazy_re.compile(r"[a-z0-9][a-z0-9-]{0,39}")
OWN_USER = "sglang-provision"
"""The comment (GECOS) of a user that we made: nobody else's is ever deleted."""


def default_root() -> Path:
    """`/`, or the folder named by SGLANGCTL_ROOT (tests)."""
    return Path(os.environ.get("SGLANGCTL_ROOT", "/"))


@dataclass(frozen=True)
class Paths:
    """All paths on the host."""

    root: Path = field(default_factory=default_root)

    @property
    def host_json(self) -> Path:
        return self.root / "etc/sglangctl/host.json"

    @property
    def engines(self) -> Path:
        return self.root / "etc/sglangctl/engines"

    def engine_json(self, name: str) -> Path:
        return self.engines / f"{checked_name(name)}.json"

    @property
    def state(self) -> Path:
        return self.root / "var/lib/sglangctl"

    def engine_state(self, name: str) -> Path:
        return self.state / checked_name(name)

    def releases(self, name: str) -> Path:
        return self.engine_state(name) / "releases"

    def current(self, name: str) -> Path:
        return self.engine_state(name) / "current"

    def state_json(self, name: str) -> Path:
        return self.engine_state(name) / "state.json"

    def accepted(self, name: str) -> Path:
        """Measured loads that were accepted."""
        return self.engine_state(name) / "accepted.json"

    def former(self, name: str) -> Path:
        """What the last switch found of the engine that it replaced (engine/former.py)."""
        return self.engine_state(name) / "former.json"

    def collective(self, name: str) -> Path:
        """Results of all-reduces on its GPUs."""
        return self.engine_state(name) / "collective.json"

    def starts(self, name: str) -> Path:
        return self.engine_state(name) / "starts"

    def latest_journal(self, name: str) -> Path:
        return self.starts(name) / "latest" / "journal.jsonl"

    def engine_log(self, name: str) -> Path:
        return self.root / "var/log/sglang" / checked_name(name) / "engine.log"

    def textfile(self, name: str) -> Path:
        """An engine's metrics, in the folder that Debian's node_exporter reads."""
        return self.root / "var/lib/prometheus/node-exporter" / f"sglang-{checked_name(name)}.prom"

    @property
    def units(self) -> Path:
        return self.root / "etc/systemd/system"

    @property
    def aliases(self) -> Path:
        """Where systemd looks after `units`: an engine's name, as a link to the slot that it is in."""
        return self.root / "usr/local/lib/systemd/system"

    @property
    def venvs(self) -> Path:
        return self.root / "opt/sglang/venvs"

    def cache(self, name: str) -> Path:
        """HOME of an engine: its user's, with what it compiles."""
        return self.root / "var/cache/sglang" / checked_name(name)

    @property
    def tools(self) -> Path:
        """Programs that installing needs, each in a folder with its version."""
        return self.root / "opt/sglang/tools"

    @property
    def packages(self) -> Path:
        """uv's cache. Beside the environments: files of another file system have no hard links, and
        /var is often one."""
        return self.root / "opt/sglang/cache"

    @property
    def kernel_cache(self) -> Path:
        return self.root / "var/cache/sglangctl/kernel"

    @property
    def compiled(self) -> Path:
        """What engines have compiled, on its way between hosts: root's."""
        return self.root / "var/cache/sglangctl/compiled"

    def asking(self, name: str) -> Path:
        """While a staged engine is asked: the program, and what it answers."""
        return self.root / "run/sglangctl/preflight" / checked_name(name)

    @property
    def asked(self) -> Path:
        """What was asked and had no fault, one file an engine and its arguments."""
        return self.root / "var/cache/sglangctl/preflight"

    @property
    def users(self) -> Path:
        """A file for each user that a deploy made: its line of passwd(5) at that time."""
        return self.state / ".users"

    @property
    def programs(self) -> Path:
        return self.root / "usr/local/lib/sglangctl"

    @property
    def program_link(self) -> Path:
        return self.root / "usr/local/bin/sglangctl"


def linked(name: str, link: str, paths: Paths) -> str | None:
    """The name of what a link in an engine's folder points to; None when it does not exist."""
    try:
        return Path(os.readlink(paths.engine_state(name) / link)).name
    except OSError:
        return None


def checked_name(name: str) -> str:
    """`name` if it can be an engine's name; Unusable for anything else (it becomes a path)."""
    if not NAME.fullmatch(name):
        raise Unusable(
            f"{name!r} is not an engine's name (a-z, 0-9 and -, at most 40, - not first)"
        )
    return name
