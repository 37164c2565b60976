"""Upgrades that come by themselves and would replace NVIDIA's driver under a running engine: its
next start then meets libraries of another version than the loaded module (NVML's error 18).

Of Debian and Ubuntu: apt.conf(5), unattended-upgrades' README, dpkg-query(1).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from sglangctl.diagnosis.finding import WARN, Finding
from sglangctl.preflight.catalog import finding
from sglangctl.util import lazy_re
from sglangctl.util.plain_files import text_of

SWITCH = lazy_re.compile(r'^\s*APT::Periodic::Unattended-Upgrade\s+"(\w+)"\s*;', re.M)
LEFT_OUT = lazy_re.compile(r"Unattended-Upgrade::Package-Blacklist\s*\{([^}]*)\}")
COMMENT = lazy_re.compile(r"^\s*(?://|#)[^\n]*$|/\*.*?\*/", re.M | re.S)
OFF = ("0", "false", "no", "off")
DRIVERS = ("nvidia-driver-*", "libnvidia-compute-*", "nvidia-kernel-*", "nvidia-dkms-*")
"""Packages of the driver: a library of one version beside a module of another is what hurts."""
HELD = lazy_re.compile(r"^Package: (\S+)\nStatus: hold ", re.M)
NAMED = 3


def look(root: Path) -> Iterator[Finding]:
    """Nothing where upgrades do not come by themselves, or leave the driver alone."""
    settings = COMMENT.sub("", _settings(root / "etc/apt/apt.conf.d"))
    switches = SWITCH.findall(settings)
    if not switches or switches[-1].lower() in OFF:
        return
    kept = [rule for part in LEFT_OUT.findall(settings) for rule in re.findall(r'"([^"]+)"', part)]
    names = sorted(name for name in _installed(root) if not _matches(kept, name))
    if names:
        held = set(HELD.findall(text_of(root / "var/lib/dpkg/status")))
        names = [name for name in names if name not in held]
    if names:
        more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
        yield finding(
            "driver-upgrades",
            WARN,
            f"unattended upgrades may replace the driver ({', '.join(names[:NAMED])}{more}) while "
            "an engine runs: its next start would fail until a reboot",
            f"apt-mark hold {' '.join(names)}",
        )


def _installed(root: Path) -> set[str]:
    """Names of the driver's packages, by the lists of their files."""
    found = set()
    for pattern in DRIVERS:
        for path in (root / "var/lib/dpkg/info").glob(f"{pattern}.list"):
            found.add(path.name[: -len(".list")].partition(":")[0])
    return found


def _matches(rules: list[str], name: str) -> bool:
    for rule in rules:
        try:
            if re.match(rule, name):
                return True
        except re.error:
            continue
    return False


def _settings(folder: Path) -> str:
    """The files that apt reads, in its order: the last one has the last word."""
    try:
        names = sorted(path for path in folder.iterdir() if path.suffix in ("", ".conf"))
    except OSError:
        return ""
    return "\n".join(map(text_of, names))
