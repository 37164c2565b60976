"""What a host lacks for what is to be done on it, all of it at once and before anything is touched.

Pure. A host on which nothing is to be done lacks nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from roles.engine.operations import needs_staging
from roles.engine.venv import fact_of
from roles.host.managed import changes
from roles.host.operations import program_is_wrong
from roles.remote import program
from roles.remote.snapshot import JSON
from roles.stages.desired import DesiredHost
from roles.stages.needed import PLACES, PROGRAMS
from roles.switch.decision import decision_of, side_of
from sglangctl.preflight.host import folders
from sglangctl.systemd import unit_keys

FOR_VENV = ("chmod", "chown", "flock", "systemd-run", "timeout", "useradd")
FOR_USER = ("getent", "useradd")
FOR_RELEASE = ("systemd-analyze",)
FOR_SWITCH = ("find", "systemd-run")


def lacks(facts: JSON, desired: DesiredHost) -> list[str]:
    """A sentence each, with its remedy; empty where nothing is missing, or nothing is to be done."""
    needed = needs(facts, desired)
    if needed is None:
        return []
    found = []
    there: dict[str, Any] = facts.get("programs") or {}
    missing = sorted(name for name in needed if there.get(name) is False)
    if missing:
        packages = sorted({PROGRAMS[name] for name in missing})
        found.append(
            f"not on this host, and needed: {', '.join(missing)}: apt-get install "
            f"{' '.join(packages)}"
        )
    for engine in desired.engines:
        reason = fact_of(engine.venv, facts).get("python")
        if reason:
            sentence = (
                f"{engine.venv.python} cannot make a virtual environment ({reason}): apt-get install "
                "python3-venv, or name another `install.python`"
            )
            found += [] if sentence in found else [sentence]
    disks = facts.get("disks") or {}
    told = told_by_preflight(facts, desired)
    return found + full(
        {path: disks.get(path) for path in PLACES if device(disks, path) not in told}
    )


def device(disks: dict[str, Any], path: str) -> Any:
    """The file system of a place, and whether it is read-only there: one folder of it can be, mounted
    over itself. The place itself where the probe does not say."""
    disk = disks.get(path) or {}
    return disk.get("device", path), bool(disk.get("read_only"))


def told_by_preflight(facts: JSON, desired: DesiredHost) -> set[Any]:
    """The file systems on which the preflight of a switch that this run makes has looked for room."""
    disks = facts.get("disks") or {}
    return {
        device(disks, path)
        for engine in desired.engines
        if decision_of(engine)(facts).now
        for path in folders(engine.name)
    }


def full(disks: dict[str, Any]) -> list[str]:
    """The places that cannot be written to, one sentence for each kind."""
    known = {path: disk for path, disk in disks.items() if disk}
    closed = [path for path, disk in known.items() if disk.get("read_only")]
    spent = [path for path, disk in known.items() if disk.get("free_mib") == 0]
    found = []
    if closed:
        found.append(f"on a read-only file system: {', '.join(closed)} (dmesg may say why)")
    if spent:
        found.append(f"no room is left for: {', '.join(spent)} (df -h {spent[0]})")
    return found


def needs(facts: JSON, desired: DesiredHost) -> set[str] | None:
    """The programs that what is to be done will run; None where nothing is to be done."""
    needed: set[str] = set()
    link = facts["files"].get(program.LINK) or {}
    busy = bool(program_is_wrong(facts)) or link.get("target") != program.path()
    busy = busy or bool(changes(desired.managed, facts["files"]))
    for engine in desired.engines:
        for programs, due in (
            (FOR_VENV, bool(fact_of(engine.venv, facts)["wrong"])),
            (FOR_USER, (facts.get("users") or {}).get(engine.spec.user) is None),
            (FOR_RELEASE, needs_staging(side_of(engine, facts), facts)),
            (FOR_SWITCH, decision_of(engine)(facts).now),
            ((), bool(changes([*engine.managed, engine.config], facts["files"]))),
        ):
            busy = busy or due
            needed.update(programs if due else ())
    return needed if busy else None


def notes(facts: JSON, hardening: Iterable[str]) -> list[str]:
    """What does not keep a deploy from its end, and that somebody has to know.

    + hardening: of the host's engines
    """
    found = []
    if (facts.get("programs") or {}).get("logrotate") is False:
        found.append(
            "note: logrotate is not on this host, so that the engines' logs grow without end: "
            "apt-get install logrotate"
        )
    version = facts.get("systemd")
    unknown = unit_keys.unknown_to(version) if "strict" in hardening else []
    if unknown:
        found.append(
            f"note: systemd {version} does not know {', '.join(unknown)}: `hardening: strict` goes "
            "without on this host"
        )
    return found
