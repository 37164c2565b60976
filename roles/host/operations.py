"""Operations on what belongs to the host as a whole: our program, files and folders."""

from __future__ import annotations

import base64
from collections.abc import Generator, Sequence

from pyinfra.api import FunctionCommand, StringCommand, operation
from pyinfra.api.command import QuoteString
from pyinfra.context import host, state

from roles.failing import failing, say
from roles.host import program
from roles.host.managed import Change, Managed, ManagedDirectory, ManagedFile, changes
from roles.host.snapshot import JSON, RUNS, Input, snapshot

UNREAD = "the host could not be read, see above"
Commands = Generator[StringCommand | FunctionCommand, None, None]


def show(lines: Sequence[str]) -> None:
    """Print once: with the plan where there is one, while executing where there is none (-y)."""
    if state.is_executing == state.check_for_changes:
        return
    for line in lines:
        say(host, line, fg={"+": "green", "-": "yellow"}.get(line[:1]))


def obstructed(obstacle: str) -> FunctionCommand:
    """Fail the host with `obstacle`. A plan says it too; without one (-y) it is said once."""
    if not state.is_executing:
        show([f"will fail: {obstacle}"])
    return failing(obstacle)


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
    facts = snapshot(request)
    if facts is None:
        yield failing(UNREAD)
        return
    found = changes(wanted, facts["files"])
    unreadable = [one for one in found if one.unreadable]
    if unreadable:
        obstacle = f"{unreadable[0].item.path} cannot be looked at: {unreadable[0].why}"
        yield obstructed(obstacle)
        return
    show(describe(found, bool(state.config.DIFF)))
    if not found:
        host.noop(f"{len(wanted)} files and folders are as they should be")
    for one in found:
        yield write(one.item)


def write(item: Managed) -> StringCommand:
    """The command that makes one path what it should be; content goes through standard input."""
    owner = QuoteString(f"{item.owner}:{item.group}")
    path = QuoteString(item.path)
    if isinstance(item, ManagedDirectory):
        return StringCommand(
            "mkdir -p --", path, "&& chown", owner, path, "&& chmod", item.mode, path
        )
    return upload(item.path, item.content, item.mode, owner)


def upload(path: str, content: bytes, mode: str, owner: QuoteString) -> StringCommand:
    """Write beside, own, rename: a reader sees the old file or the new one, never wider rights."""
    folder, _, name = path.rpartition("/")
    beside = QuoteString(f"{folder}/.{name}.new")
    return StringCommand(
        "( umask 077 && rm -f --",
        beside,
        "&& base64 -d >",
        beside,
        "&& chown",
        owner,
        beside,
        "&& chmod",
        mode,
        beside,
        # To the disk before it has its name: a power cut must not leave an empty file there.
        "&& sync",
        beside,
        "&& mv -T --",
        beside,
        QuoteString(path),
        ")",
        _stdin=Input([base64.b64encode(content).decode()]),
    )


@operation()
def install_program(request: JSON) -> Commands:
    """
    Put this version of sglangctl on the host and make it the one that is called.

    Older versions stay while a process runs from them; units start a version's own path. Where
    another switch runs, the host fails here, before anything is changed.

    + request: what the probe is asked for
    """
    facts = snapshot(request)
    if facts is None:
        yield failing(UNREAD)
        return
    if facts.get("lock"):
        # Nothing of this run may meet the other one half-way.
        yield obstructed(f"nothing was changed. {facts['lock']['sentence']}")
        return
    here = facts["files"]
    file = ManagedFile(program.path(), program.archive(), mode="0755")
    # By name, not by content: one made with another Python has other bytecode in it.
    present = bool(facts.get(RUNS))
    link = here.get(program.LINK) or {"kind": "absent"}
    linked = link.get("target") == file.path
    ours = link["kind"] == "absent" or str(link.get("target", "")).startswith(f"{program.FOLDER}/")
    if not ours:
        obstacle = f"{program.LINK} is somebody else's {link['kind']}: move it away, deploy again"
        yield obstructed(obstacle)
        return
    if present and linked:
        host.noop(f"sglangctl {program.digest()} is installed")
        return
    show([f"{program.LINK}: version {program.digest()}"])
    if not present:
        yield StringCommand("mkdir -p --", QuoteString(program.FOLDER))
        yield write(file)
    if not linked:
        beside = QuoteString(f"{program.LINK}.new")
        yield StringCommand(
            "mkdir -p /usr/local/bin && ln -sfn --",
            QuoteString(file.path),
            beside,
            "&& mv -T --",
            beside,
            QuoteString(program.LINK),
        )
    yield StringCommand("python3 -I -S", QuoteString(file.path), "prune-programs")
