"""sglangctl-switch.service: the transient unit that a switch runs in, so that a lost connection
changes nothing for it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from sglangctl.proc import command
from sglangctl.state import lock, programs
from sglangctl.state.files import write_atomic
from sglangctl.state.paths import Paths
from sglangctl.systemd import systemctl
from sglangctl.systemd.unit import show
from sglangctl.systemd.unit_names import SWITCH
from sglangctl.util import lazy_re
from sglangctl.util.errors import Failed

TICKET = lazy_re.compile(r"[0-9A-Za-z-]{1,80}")
UNIT_GONE_S = 5.0


def checked_ticket(ticket: str) -> str:
    """`ticket` if it can be one (it becomes a path); Failed for anything else."""
    if not TICKET.fullmatch(ticket):
        raise Failed(f"{ticket!r} is not a ticket")
    return ticket


def start(
    ticket: str, journal: Path, config: str | None, arguments: Sequence[str], paths: Paths
) -> None:
    """Start `sglangctl switch ARGUMENTS` in the unit; idempotent: a second call with the
    same ticket changes nothing (the answer to the first one may have been lost).

    `journal` is what a follower reads; `config` is handed on in a file beside it.
    """
    if not systemctl.booted():
        raise Failed("this machine is not run by systemd: engines need it")
    if journal.exists():
        return
    holder = lock.holder(paths)
    if holder is not None:
        raise lock.Busy(f"nothing was changed. {holder.sentence}")
    journal.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    handed_on = journal.with_suffix(".json")
    if config is not None:
        write_atomic(handed_on, config.encode(), 0o644)
    journal.touch(mode=0o600)
    argv = [
        "systemd-run",
        f"--unit={SWITCH}",
        "--collect",
        "--quiet",
        "--no-block",
        "--property=Type=exec",
        f"--setenv=SGLANGCTL_SWITCH={checked_ticket(ticket)}",
        *programs.again(),
        "switch",
        *arguments,
        *([] if config is None else [f"--config={handed_on}"]),
    ]
    deadline = time.monotonic() + UNIT_GONE_S
    while True:
        result = command.run(argv)
        if result.ok:
            return
        # Of a switch that has just ended, the unit stays for a moment.
        holder = lock.holder(paths)
        if "already" not in result.stderr or holder is not None or time.monotonic() > deadline:
            break
        time.sleep(0.2)
    journal.unlink()
    handed_on.unlink(missing_ok=True)
    if holder is not None:
        raise lock.Busy(f"nothing was changed. {holder.sentence}")
    raise Failed(
        f"nothing was changed. {SWITCH} is there already and does not end: systemctl status {SWITCH} "
        "says why; then deploy again"
        if "already" in result.stderr
        else f"systemd-run failed: {result.stderr.strip()}"
    )


def active() -> bool:
    """Whether the unit runs, or is about to; also where systemd does not answer: no answer does not
    mean that it has ended."""
    shown = show([SWITCH])
    if shown is None:
        return systemctl.booted()
    return shown[SWITCH].running or shown[SWITCH].job
