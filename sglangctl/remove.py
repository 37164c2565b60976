"""Stop an engine and take away what was put on this host for it: never weights, never the units
of others, and of what engines share only what no other engine needs.

Exit status: 0 gone (also when it was), 1 not.
"""

from __future__ import annotations

import argparse
import json
import pwd
import shutil
import sys
from pathlib import Path
from typing import Any

from sglangctl import release, systemd
from sglangctl.config import ConfigError, load_engine
from sglangctl.files import write_atomic
from sglangctl.paths import OWN_USER, Paths
from sglangctl.release import ReleaseError
from sglangctl.stop import stop
from sglangctl.switch import Say, SwitchError, locked

SHARED = (
    "etc/systemd/system/sglang-watch@.service",
    "etc/sglangctl",
    "var/lib/sglangctl",
    "var/log/sglang",
    "var/cache/sglang",
    "var/cache/sglangctl",
    "opt/sglang/venvs",
    "usr/local/bin/sglangctl",
    "usr/local/lib/sglangctl",
)
"""What all engines of a host share; goes with the last one."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", help="the engine's name")


def run(args: argparse.Namespace) -> int:
    paths = Paths()
    try:
        remove(args.name, paths, lambda line: print(line, flush=True))
    except (ConfigError, ReleaseError, SwitchError, OSError, ValueError) as error:
        print(f"sglangctl remove: {error}", file=sys.stderr)
        return 1
    return 0


def remove(name: str, paths: Paths, say: Say) -> None:
    """Take engine `name` away. Raises SwitchError when it cannot be stopped (then it stays)."""
    venvs = venvs_of(name, paths)
    users: set[str] = set()
    with locked(paths):
        if paths.engine_json(name).exists():
            engine = load_engine(name, paths)
            users.add(engine.user)
            stop(engine, paths, say)
        gone(paths.units / f"sglang-{name}.service", say)
        systemd.systemctl("daemon-reload")
        for path in (
            paths.engine_state(name),
            paths.engine_log(name).parent,
            paths.root / "var/cache/sglang" / name,
            paths.root / f"etc/tmpfiles.d/sglang-{name}.conf",
            paths.root / f"etc/logrotate.d/sglang-{name}",
        ):
            gone(path, say)
        gone(paths.engine_json(name), say)
        others = sorted(path.stem for path in paths.engines.glob("*.json"))
        used = {venv for other in others for venv in venvs_of(other, paths)}
        for venv in sorted(venvs - used):
            gone(Path(venv), say)
        if others:
            forget(name, paths)
    if not others:
        for user in sorted(users):
            remove_user(user, say)
        # This program goes last: what it has not imported by then it cannot import any more.
        for shared in SHARED:
            gone(paths.root / shared, say)
        remove_empty(paths.root / "opt/sglang")
        systemd.systemctl("daemon-reload")
    say(f"{name} is removed")


def venvs_of(name: str, paths: Paths) -> set[str]:
    """The venvs that an engine's releases name, those of ours only (below /opt/sglang/venvs)."""
    found: set[str] = set()
    for digest in release.staged(name, paths):
        try:
            venv = str(release.manifest(name, digest, paths).get("venv", ""))
        except ReleaseError:
            continue
        if Path(venv).parent == paths.venvs:
            found.add(venv)
    return found


def forget(name: str, paths: Paths) -> None:
    """Take the engine out of host.json."""
    document: Any = json.loads(paths.host_json.read_text(encoding="utf-8"))
    document["engines"] = [other for other in document["engines"] if other != name]
    write_atomic(paths.host_json, json.dumps(document, indent=2).encode() + b"\n", 0o600)


def gone(path: Path, say: Say) -> None:
    """Delete a path of ours, whatever it is; a link is deleted, not followed."""
    if path.is_symlink() or path.is_file():
        path.unlink()
    elif path.is_dir():
        shutil.rmtree(path)
    else:
        return
    say(f"removed {path}")


def remove_empty(folder: Path) -> None:
    """Delete a folder if nothing is in it."""
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()


def remove_user(user: str, say: Say) -> None:
    """Delete a user that we made (its comment says so)."""
    try:
        entry = pwd.getpwnam(user)
    except KeyError:
        return
    if entry.pw_gecos != OWN_USER:
        return
    result = systemd.run(["userdel", "--", user])
    if not result.ok:
        raise SwitchError(f"userdel {user} failed: {result.stderr.strip()}")
    say(f"removed user {user}")
