"""Facts of the machine that `sglangctl probe` reports, each from one source.

A function raises OSError (or returns None) where its source is missing; the probe turns that into
null and a reason.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from sglangctl.sgl_kernel.library.metadata import normalized
from sglangctl.util import lazy_re

MIB = 2**20
DISTRIBUTION = lazy_re.compile(r"(.+?)-([^-]+)\.dist-info")


def os_release() -> dict[str, str]:
    """/etc/os-release, keys in lower case: id, version_id, pretty_name, ..."""
    import shlex

    values = {}
    for path in ("/etc/os-release", "/usr/lib/os-release"):
        try:
            text = Path(path).read_text(encoding="utf-8", errors="replace")
            break
        except FileNotFoundError:
            continue
    else:
        raise FileNotFoundError("no os-release file")
    for line in text.splitlines():
        name, separator, value = line.partition("=")
        if separator and not line.startswith("#"):
            try:
                values[name.lower()] = "".join(shlex.split(value))
            except ValueError:
                values[name.lower()] = value
    return values


def kernel() -> dict[str, str]:
    name = os.uname()
    return {"release": name.release, "version": name.version, "machine": name.machine}


def python() -> dict[str, str]:
    """The interpreter that runs this."""
    return {"path": sys.executable, "version": ".".join(map(str, sys.version_info[:3]))}


def memory() -> dict[str, int]:
    """MiB, from /proc/meminfo."""
    values = {}
    with open("/proc/meminfo", encoding="ascii") as file:
        for line in file:
            name, _, rest = line.partition(":")
            values[name] = int(rest.split()[0]) * 1024 // MIB
    return {
        "total_mib": values["MemTotal"],
        "available_mib": values["MemAvailable"],
        "swap_total_mib": values["SwapTotal"],
        "swap_free_mib": values["SwapFree"],
    }


def cgroup_version(root: str = "/sys/fs/cgroup") -> str | None:
    """`v2`, `hybrid` (v1 controllers, systemd on v2) or `v1`; None without cgroups."""
    if os.path.exists(f"{root}/cgroup.controllers"):
        return "v2"
    if os.path.exists(f"{root}/unified/cgroup.controllers"):
        return "hybrid"
    return "v1" if os.path.isdir(f"{root}/systemd") or os.path.isdir(f"{root}/memory") else None


def disk(path: str) -> dict[str, Any]:
    """The file system that holds `path`, or will once it is made: that of the nearest folder
    above it. Sizes in MiB; `free_mib` is what is left to users other than root. `free_inodes` None:
    the file system has no fixed number of them (btrfs), and says 0 of 0."""
    at = os.path.abspath(path)
    while not os.path.exists(at):
        at = os.path.dirname(at)
    found = os.statvfs(at)
    return {
        "exists": at == os.path.abspath(path),
        "nearest": at,
        "device": os.stat(at).st_dev,
        "total_mib": found.f_blocks * found.f_frsize // MIB,
        "free_mib": found.f_bavail * found.f_frsize // MIB,
        "free_inodes": found.f_favail if found.f_files else None,
        "read_only": bool(found.f_flag & os.ST_RDONLY),
    }


def _group(gid: int) -> str:
    """A group's name, or its number where it has none."""
    import grp

    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)


def user(name: str) -> dict[str, Any] | None:
    """uid, gid, home, primary group and all groups; None when there is no such user."""
    import pwd

    try:
        found = pwd.getpwnam(name)
    except KeyError:
        return None
    names = [_group(gid) for gid in os.getgrouplist(name, found.pw_gid)]
    return {
        "uid": found.pw_uid,
        "gid": found.pw_gid,
        "group": _group(found.pw_gid),
        "home": found.pw_dir,
        "shell": found.pw_shell,
        "groups": sorted(names),
    }


def distributions(venv: str, wanted: Iterable[str]) -> dict[str, str | None] | None:
    """Name -> version of the wanted distributions in a venv (None: not in it); None without the
    venv. From the names of the dist-info folders: no Python is started."""
    found: dict[str, str] = {}
    folders = list(Path(venv).glob("lib/python3*/site-packages"))
    if not folders:
        return None
    for folder in folders:
        for entry in os.listdir(folder):
            match = DISTRIBUTION.fullmatch(entry)
            if match:
                found[normalized(match.group(1))] = match.group(2)
    return {name: found.get(normalized(name)) for name in wanted}
