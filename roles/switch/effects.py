"""What a difference on a host asks for: a restart, or only a repair. Pure.

Decided by what the running process has read: systemd reads some settings of a unit when it starts
the process, and some only when it acts on the unit again.
"""

from __future__ import annotations

from collections.abc import Sequence

from roles.host.managed import Change, rights_only

RELOADED = (
    *("Description", "Documentation", "WantedBy"),  # systemd's own
    *("Restart", "RestartSec", "RestartPreventExitStatus", "SuccessExitStatus"),  # when it ends
    *("ExecStop", "ExecStopPost", "KillMode", "TimeoutStopSec", "TimeoutSec"),  # at a stop
    *("StartLimitBurst", "StartLimitIntervalSec", "TimeoutStartSec"),  # at the next start
)
"""Settings of a unit that the running process has not read."""


MISSING = "new"
"""Of a change: the file is not there."""


def restarts(change: Change) -> bool:
    """Whether the running process may have read what differs in one of our files."""
    if change.unreadable:
        return True
    if change.why == MISSING:
        return False  # the process has read nothing of that
    if not only_in_place(change):
        return True
    return any(not harmless_in_unit(line) for line in changed_lines(change.diff))


def only_in_place(change: Change) -> bool:
    """Whether the file is there, as a file, and its difference is known."""
    if change.why == "changed":
        return bool(change.diff) and change.diff[0].startswith("---")
    return rights_only(change)


def changed_lines(diff: Sequence[str]) -> list[str]:
    """What was added and taken away, without the diff's own first two lines; and that more was."""
    return [line[1:].strip() for line in diff[2:] if line[:1] in ("+", "-", "(")]


def harmless_in_unit(line: str) -> bool:
    name, equals, _ = line.partition("=")
    return not line or line[0] in "#;" or (bool(equals) and name.strip() in RELOADED)
