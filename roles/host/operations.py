"""Operations on what belongs to the host as a whole: our program, files and folders."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyinfra.api import StringCommand
from pyinfra.api.command import QuoteString
from pyinfra.context import host, state

from roles.host.managed import (
    Change,
    Managed,
    ManagedDirectory,
    ManagedFile,
    change,
    changes,
    wrong_rights,
)
from roles.remote import program
from roles.remote.operation import Commands, operation, read, show, will_fail
from roles.remote.snapshot import JSON, RUNS
from roles.remote.upload import upload

PROGRAMS = ManagedDirectory(program.FOLDER)
PROGRAM_MODE = "0755"
UMASK = "umask 022"
"""Before what makes folders: of a login it may be 027 or 077, and parents are made with it."""


def describe(found: Sequence[Change], diff: bool) -> list[str]:
    """One line a change, and the diff below it where it is wanted (--diff)."""
    lines = []
    for one in found:
        lines.append(f"{one.item.path}: {one.why}")
        if diff:
            lines += one.diff
    return lines


@operation()
def managed_files(wanted: Sequence[Managed], request: JSON) -> Commands:
    """
    Make files and folders what they should be, each in one move.

    + wanted: files and folders, parents before what is in them
    + request: what the probe is asked for

    **Example:**

    .. code:: python

        managed_files(name="Configuration", wanted=[ManagedDirectory("/etc/sglangctl")], request=r)
    """
    facts = read(request)
    found = changes(wanted, facts["files"])
    unreadable = [one for one in found if one.unreadable]
    if unreadable:
        sentence = f"{unreadable[0].item.path} cannot be looked at: {unreadable[0].why}"
        yield will_fail(sentence)
        return
    show(describe(found, bool(state.config.DIFF)))
    if not found:
        host.noop(f"{len(wanted)} files and folders are as they should be")
    for one in found:
        yield write(one.item)


def write(item: Managed) -> StringCommand:
    """The command that makes one path what it should be; content goes through standard input."""
    if isinstance(item, ManagedDirectory):
        owner, path = QuoteString(f"{item.owner}:{item.group}"), QuoteString(item.path)
        return StringCommand(
            f"{UMASK} && mkdir -p --", path, "&& chown", owner, path, "&& chmod", item.mode, path
        )
    return upload(item.path, item.content, item.mode, f"{item.owner}:{item.group}")


@operation()
def install_program(
    request: JSON,
    lacks: Callable[[JSON], list[str]],
    notes: Callable[[JSON], list[str]],
) -> Commands:
    """
    Put this version of sglangctl on the host and make it the one that is called.

    Older versions stay while a process runs from them; units start a version's own path. Where
    another switch runs, the host fails here, before anything is changed.

    + request: what the probe is asked for
    + lacks: from the probe's document to what the host lacks: the host fails over it
    + notes: from the probe's document to what is only told
    """
    facts = read(request)
    show(notes(facts))
    missing = lacks(facts)
    if missing:
        yield will_fail("\n".join([*missing, "nothing was touched"]))
        return
    if facts.get("lock"):
        # Nothing of this run may meet the other one half-way.
        yield will_fail(f"nothing was changed. {facts['lock']['sentence']}")
        return
    here = facts["files"]
    folder = change(PROGRAMS, here.get(PROGRAMS.path) or {"kind": "absent"})
    wrong = program_is_wrong(facts)
    link = here.get(program.LINK) or {"kind": "absent"}
    linked = link.get("target") == program.path()
    ours = link["kind"] == "absent" or str(link.get("target", "")).startswith(f"{program.FOLDER}/")
    if not ours:
        sentence = f"{program.LINK} is somebody else's {link['kind']}: move it away, deploy again"
        yield will_fail(sentence)
        return
    if not folder and not wrong and linked:
        host.noop(f"sglangctl {program.digest()} is installed")
        return
    show(describe([folder] if folder else [], diff=False))
    show([f"{program.LINK}: version {program.digest()}{wrong and f' ({wrong})'}"])
    if folder:
        yield write(PROGRAMS)
    if wrong:
        yield write(ManagedFile(program.path(), program.archive(), mode=PROGRAM_MODE))
    if not linked:
        beside = QuoteString(f"{program.LINK}.new")
        yield StringCommand(
            f"{UMASK} && mkdir -p /usr/local/bin && ln -sfn --",
            QuoteString(program.path()),
            beside,
            "&& mv -T --",
            beside,
            QuoteString(program.LINK),
        )
    yield StringCommand(*program.argv("prune-programs"))


def program_is_wrong(facts: JSON) -> str:
    """Why this version of the program has to be written; empty where it is as it should be.

    Its content is judged by its name and by whether it starts: one made with another Python has
    other bytecode in it.
    """
    fact = facts["files"].get(program.path()) or {"kind": "absent"}
    if fact["kind"] == "absent":
        return "new"
    # To the probe it is of kind `other`: it is larger than what is compared by content.
    if fact["kind"] not in ("file", "other") or not facts.get(RUNS):
        return "damaged"
    return wrong_rights(ManagedFile(program.path(), b"", mode=PROGRAM_MODE), fact)
