"""A release that differs from the live one only in settings of its unit that the running process has
not read: it goes live under the engine, which runs on."""

from __future__ import annotations

from dataclasses import replace

from sglangctl.state import release
from sglangctl.state.files import link_atomic
from sglangctl.state.lock import locked
from sglangctl.state.paths import Paths
from sglangctl.util.errors import Failed

READ_BY_SYSTEMD = ("sglang.service", "manifest.json")
"""Files of a release that no process of the engine reads."""


def put_live(name: str, digest: str, seen: str | None, paths: Paths) -> None:
    """Make `digest` the live release, without a start; nothing where it is that. The unit's file comes
    with its commit.

    `previous` stays: back to the release that this one was would be a restart for nothing. Failed where
    the two differ in what the engine reads, or a switch came between (`seen`: as of a switch).
    """
    if release.link_target(name, "current", paths) in (None, digest):
        return
    with locked(paths, name, f"configuration of {name}"):
        current = release.link_target(name, "current", paths)
        if seen is not None:
            release.check_unchanged(name, seen, paths)
        state = release.read_state(name, paths)
        if state is None or state.phase not in ("live", "back"):
            raise Failed(f"{digest} is not the live release of {name}: deploy again")
        release.check_whole(name, digest, paths)
        if _read(name, str(current), paths) != _read(name, digest, paths):
            raise Failed(
                f"nothing was changed. {name} would have to be started again for release "
                f"{digest[:12]}: deploy again"
            )
        release.write_state(name, replace(state, to=digest), paths)
        link_atomic(paths.current(name), f"releases/{digest}")


def _read(name: str, digest: str, paths: Paths) -> dict[str, bytes]:
    """What a process of the engine reads of a release."""
    folder = paths.releases(name) / digest
    files = [*release.FILES, *release.shipped(name, digest, paths)]
    return {file: (folder / file).read_bytes() for file in files if file not in READ_BY_SYSTEMD}
