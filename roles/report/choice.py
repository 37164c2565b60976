"""What the deploy would do to each engine: the decision that a person has to make. Pure, but for
CHOICES: the deploy file is run once per host, and what must exist once lives in this module."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pyinfra import logger
from pyinfra.api.output import format_text

from roles.remote import failing
from sglangctl.free.text import processes
from sglangctl.startup.render import duration, phase_table
from sglangctl.util.terminal import escaped

START, RESTART, REPLACE = "START", "RESTART", "REPLACE"
REPAIR, REMOVE, DUE, LEFT, STAYS = "REPAIR", "REMOVE", "DUE", "LEFT", "stays"
COLOURS = {
    START: "green",
    RESTART: "yellow",
    REPLACE: "yellow",
    REPAIR: "cyan",
    REMOVE: "yellow",
    DUE: "magenta",
    LEFT: "magenta",
}
SHOWN = 4
"""Reasons in full; the diff above has all of them."""
INDENT = " " * 11


@dataclass(frozen=True)
class Choice:
    """What a deploy would do to one engine."""

    engine: str
    action: str
    reasons: tuple[str, ...] = ()
    """Values where they are known: `max-total-tokens 8192 -> 4096`."""
    without_s: float | None = None
    """For how long nothing serves, by the engine's last start; None: unknown, or no time."""
    phases: Mapping[str, float] = field(default_factory=dict)
    """Seconds of each phase of that time, as far as it is the start's."""
    ends: tuple[str, ...] = ()
    """Units and containers that are somebody else's, with the number of their processes."""
    own: int = 0
    """Processes of the engine itself that end."""
    fails: tuple[str, ...] = ()
    """Why the deploy would fail."""
    notes: tuple[str, ...] = ()
    """What to know of it whatever is done: drop-ins of others, a log that was deleted."""
    command: str | None = None
    """What a person can do about it instead."""


CHOICES: dict[str, list[Choice]] = {}
"""By host's name."""


class Plan:
    """Where the choices are told: at the very end of a dry run, else right before pyinfra asks, or, where
    that cannot be had, at the end of each host's preparation."""

    dry = False
    before_asking = False

    @staticmethod
    def print_all() -> None:
        for name in CHOICES:
            print_plan(name)


def print_plan(host: str) -> None:
    """Print what the deploy would do to one host."""
    width = shutil.get_terminal_size((100, 24)).columns - 4
    logger.info(f"--> {host}: what the deploy would do")
    for line in [*foreseen(host, width), *lines(CHOICES[host], width)]:
        logger.info(line)


def foreseen(host: str, width: int) -> list[str]:
    """What the host itself fails for, whatever its engines are: a full disk, another run."""
    told = {text for one in CHOICES[host] for text in one.fails}
    found: list[str] = []
    for text in failing.FORESEEN.get(host, []):
        shown = text.splitlines()
        if shown and shown[0] not in told:
            found += [line for one in shown for line in wrapped(f"{'will fail':<10} {one}", width)]
    return [format_text(escaped(line), "red") for line in found]


def lines(choices: Sequence[Choice], width: int) -> list[str]:
    """What will fail first, then what is done, then one line for all that stays.

    + width: columns of the terminal
    """
    ordered = sorted(choices, key=lambda one: (not one.fails, one.action == STAYS))
    found = [line for one in ordered if one.action != STAYS for line in of_engine(one, width)]
    stays = [one.engine for one in choices if one.action == STAYS]
    if stays:
        text = escaped(f"{STAYS:<10} {', '.join(stays)}")
        found += [format_text(line, "bright_black") for line in wrapped(text, width)]
    for one in choices:
        for note in one.notes:
            found += wrapped(escaped(f"{'note':<10} {one.engine}: {note}"), width)
    return found


def of_engine(one: Choice, width: int) -> list[str]:
    more = len(one.reasons) - SHOWN
    reasons = [*one.reasons[:SHOWN], *([f"and {more} more"] if more > 0 else [])]
    head = wrapped(escaped(f"{one.action:<10} {one.engine}: {'; '.join(reasons)}"), width)
    colour = "red" if one.fails else COLOURS.get(one.action)
    found = [format_text(head[0], colour), *head[1:]]
    for text in one.fails:
        told = wrapped(escaped(f"{'':<10} will fail: {text}"), width)
        found += [format_text(line, "red") for line in told]
    details = []
    if one.action in (RESTART, REPLACE):
        known = one.without_s is not None
        taken = f"about {duration(one.without_s or 0)}" if known else "for an unknown time"
        phases = phase_table({name: s for name, s in one.phases.items() if s >= 1})
        why = phases if known else "no start was seen yet"
        details.append(f"{taken} without service" + (f" ({why})" if why else ""))
    if one.ends:
        details.append(f"ends {', '.join(one.ends)}")
    if one.own:
        details.append(f"ends {processes(one.own)} of its own")
    for text in details:
        found += wrapped(escaped(f"{'':<10} {text}"), width)
    if one.command:
        found.append(f"{INDENT}{escaped(one.command)}")  # in one line, to be copied
    return found


def wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, max(40, width), subsequent_indent=INDENT) or [""]
