"""One run of a unit: which one it is, how it ended, and whether somebody asked it to end.

Asking systemctl costs 10 ms of processor time, so that every look is first a link that systemd
keeps for the journal daemon (/run/systemd/units/invocation:UNIT, systemd >= 235) or a pidfd.
"""

from __future__ import annotations

import os
import time
from typing import Any

from sglangctl.proc import command
from sglangctl.systemd import systemctl
from sglangctl.systemd.unit import find, returncode
from sglangctl.util.values import json_object

INVOCATION = "/run/systemd/units/invocation:"
UNIT_PROCESS_EXITED = "98e322203f7a4ed290d09fe03c09fe15"
"""MESSAGE_ID of systemd's line "Main process exited, code=..., status=..." (sd-messages.h)."""
UNIT_STOPPING = "de5b426a63be47a7b6ac3eaac82e2f6f"
"""MESSAGE_ID of "Stopping ...": a stop job began. A crash has none; nor has a stop before the unit
was active (systemd 252)."""
OF_SYSTEMD = ("_PID=1", "_UID=0", "_TRANSPORT=journal")
"""Fields that journald sets itself: every other one is written by whoever logs, INVOCATION_ID and
MESSAGE_ID too (`logger --journald`)."""
UNIT_STOPPED = "9d1aaa27d60140bd96365438aad20286"
"""MESSAGE_ID of "Stopped ...": JOB_TYPE is `restart` when systemd itself starts it anew."""


def invocation(unit: str) -> str | None:
    """The id of the unit's present run, without asking systemd; None when it does not run.

    Where systemd keeps no such link (a container that hides /run) it is asked.
    """
    try:
        return os.readlink(INVOCATION + unit)
    except FileNotFoundError:
        if os.path.isdir(os.path.dirname(INVOCATION)):
            return None
    except OSError:
        pass
    found = find(unit)
    return found.invocation_id or None if found and found.active != "inactive" else None


def exit_of(unit: str, invocation_id: str, pid: int, patience_s: float = 1.5) -> int | None:
    """How the main process `pid` of this run ended; None when it cannot be found out.

    systemd may still have to collect it (then we wait a little), or may have started the next
    run already (then its own journal knows).
    """
    end = time.monotonic() + patience_s
    while True:
        found = find(unit)
        if found is None:
            return None
        if found.invocation_id not in ("", invocation_id) or found.last_main_pid not in (0, pid):
            return logged_exit(invocation_id)
        if found.exited:
            return found.exit_status
        if time.monotonic() >= end:
            return logged_exit(invocation_id)
        time.sleep(0.05)


def logged_exit(invocation_id: str) -> int | None:
    """The end of a run's main process from the system's journal, None if it does not exist."""
    for entry in reversed(logged(invocation_id, UNIT_PROCESS_EXITED)):
        if entry.get("COMMAND", "ExecStart") != "ExecStart":
            continue  # ExecStartPost and the like end under the same message id
        codes = {"exited": 1, "killed": 2, "dumped": 3}
        try:
            return returncode(codes[entry["EXIT_CODE"]], int(entry["EXIT_STATUS"]))
        except (ValueError, KeyError, TypeError):
            continue
    return None


def logged(invocation_id: str, *message_ids: str) -> list[dict[str, Any]]:
    """systemd's own entries of some kinds on a run, oldest first; empty where it has no journal."""
    if not invocation_id:
        return []
    result = command.run(
        [
            "journalctl",
            "--no-pager",
            "--quiet",
            "--output=json",
            "--lines=20",
            *OF_SYSTEMD,
            f"INVOCATION_ID={invocation_id}",
            *(f"MESSAGE_ID={message_id}" for message_id in message_ids),
        ],
        timeout_s=5.0,
    )
    return [entry for entry in map(json_object, result.stdout.splitlines()) if entry]


def being_stopped(unit: str, invocation_id: str) -> bool:
    """Whether somebody asked systemd to stop (or restart) this run: a job says so, or, when that
    is done already, the system's journal."""
    result = systemctl.call("list-jobs", "--no-legend", "--plain", "--full", timeout_s=5.0)
    for line in result.stdout.splitlines():
        words = line.split()
        if len(words) >= 3 and words[1] == unit and words[2] in ("stop", "restart"):
            return True
    return any(
        entry.get("MESSAGE_ID") == UNIT_STOPPING or entry.get("JOB_TYPE") == "stop"
        for entry in logged(invocation_id, UNIT_STOPPING, UNIT_STOPPED)
    )
