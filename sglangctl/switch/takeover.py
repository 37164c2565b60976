"""Engines of this host that the inventory no longer has: one of another name takes their place.

The unit of one that was renamed, or that is in the way, is treated as if `replaces` named it: recorded,
stopped, and started again if the new engine does not become ready. Its caches and the history of its
starts are handed over first, while it serves.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from sglangctl.free.planning import gpus_of, overlap
from sglangctl.proc import command
from sglangctl.state import ownership
from sglangctl.state.config import EngineConfig
from sglangctl.state.files import write_atomic
from sglangctl.state.paths import Paths
from sglangctl.switch.ended import Ended
from sglangctl.util import os_errors
from sglangctl.util.errors import Failed

COPY_S = 3600.0
"""Time limit of a copy: compiled kernels are some GB."""
END_S = 30.0
"""For tar to end, when all that it has given was taken."""
CHANGED = 1
"""tar's exit status where a file changed while it was read."""
SAID = 4096
"""Bytes of its complaints that are read."""


@dataclass(frozen=True)
class Takeover:
    """What an engine takes the place of."""

    was: str | None = None
    """Its own name before: it hands everything over."""
    gone: tuple[str, ...] = ()
    """Others that are removed by this deploy."""

    def of(
        self, engine: EngineConfig, others: Sequence[EngineConfig]
    ) -> tuple[EngineConfig, list[EngineConfig]]:
        """(the engine, with these units among those that it replaces; its siblings).

        + others: all other engines of the host
        """
        taken = [
            one
            for one in others
            if one.name == self.was or (one.name in self.gone and in_the_way(one, engine))
        ]
        units = dict.fromkeys((*engine.replaces, *(one.unit for one in taken)))
        siblings = [one for one in others if one not in taken]
        return replace(engine, replaces=tuple(units)), siblings


def in_the_way(one: EngineConfig, engine: EngineConfig) -> bool:
    return one.port == engine.port or overlap(gpus_of(one), gpus_of(engine))


def hand_over(
    old: EngineConfig, new: EngineConfig, paths: Paths, say: Callable[[str], None]
) -> None:
    """Copy caches, journals, accepted speeds and collectives of `old` to where `new` has none yet.

    Never fails a switch: without them the new engine only starts more slowly. Ended, where the switch
    is told to end meanwhile.
    """
    caches = paths.root / "var/cache/sglang"
    for source, target, copy in (
        (caches / old.name, caches / new.name, partial(with_their_rights, old.user, new.user)),
        (paths.starts(old.name), paths.starts(new.name), partial(as_root, f"root:{new.user}")),
    ):
        try:
            said = copied(source, target, copy)
        except Ended:
            raise
        except (Failed, OSError) as error:
            said = f"{source} is not handed over: {os_errors.describe(error)}"
        if said:
            say(said)
    for file in (paths.accepted, paths.collective):
        known, its = file(old.name), file(new.name)
        try:
            if known.is_file() and not its.exists():
                write_atomic(its, known.read_bytes(), 0o644)
        except OSError as error:
            say(f"{known} is not handed over: {os_errors.describe(error)}")


def copied(source: Path, target: Path, copy: Callable[[Path, Path], None]) -> str | None:
    """Copy a folder to an empty one; a sentence, None where nothing is to be done.

    Into a folder beside it first: what the engine's user may put into the target is not followed.
    """
    if not source.is_dir() or not target.is_dir() or any(target.iterdir()):
        return None
    weights = ownership.weights_in(source)
    if weights is not None:
        return f"{source} is not handed over: there are weights in it ({weights})"
    between = target.with_name(f".{target.name}.handed-over")
    shutil.rmtree(between, ignore_errors=True)
    between.mkdir(mode=0o700)
    try:
        copy(source, between)
        _call(["chmod", f"--reference={target}", "--", str(between)])
        between.rename(target)
    finally:
        shutil.rmtree(between, ignore_errors=True)
    return f"{source} is handed over to {target}"


def as_root(owner: str, source: Path, target: Path) -> None:
    """Copy a tree that only root writes to, and give it to `owner`. Failed."""
    _call(["cp", "-a", "--reflink=auto", "--", f"{source}/.", str(target)])
    _call(["chown", "-R", "-h", "--", owner, str(target)])


def with_their_rights(old: str, new: str, source: Path, target: Path) -> None:
    """Copy what one user owns for another one: read as `old`, written as `new`. Failed.

    The engine runs meanwhile: root would follow a folder of its user's that becomes a link while it
    is in there.
    """
    reader, writer = _entry(old), _entry(new)
    os.chown(target, writer.pw_uid, writer.pw_gid)
    give = [*_with_rights_of(reader), "tar", "-C", str(source), "-cSf", "-", "."]
    take = [*_with_rights_of(writer), "tar", "-C", str(target), "-xpf", "-"]
    environment = {**os.environ, **command.PLAIN}
    with (
        tempfile.TemporaryFile() as words,
        subprocess.Popen(
            give,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=words,
            env=environment,
        ) as giving,
    ):
        try:
            taken = subprocess.run(
                take,
                stdin=giving.stdout,
                capture_output=True,
                timeout=COPY_S,
                env=environment,
            )
            if giving.stdout is not None:
                giving.stdout.close()
            status = giving.wait(END_S)
        except subprocess.TimeoutExpired as error:
            raise Failed(f"it was not copied within {error.timeout:g} s") from None
        finally:
            giving.kill()  # nothing where it has ended
        words.seek(0)
        said = words.read(SAID)
    # Each may have failed because the other did: the cause is told.
    refused = taken.returncode != 0
    if status not in (0, CHANGED) and not (refused and status == -signal.SIGPIPE):
        raise Failed(f"user {old} cannot read all of it ({_first(said)})")
    if refused:
        raise Failed(_first(taken.stderr))


def _first(said: bytes) -> str:
    return (said.decode("utf-8", "backslashreplace").strip().splitlines() or ["tar failed"])[0]


def _entry(user: str) -> pwd.struct_passwd:
    try:
        return pwd.getpwnam(user)
    except KeyError:
        raise Failed(f"there is no user {user}") from None


def _with_rights_of(user: pwd.struct_passwd) -> list[str]:
    if user.pw_uid == os.geteuid():
        return []
    ids = [f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}"]
    return ["setpriv", *ids, "--init-groups", "--no-new-privs", "--"]


def _call(argv: Sequence[str]) -> None:
    done = command.run(argv, COPY_S)
    if not done.ok:
        raise Failed((done.stderr.strip().splitlines() or [f"{argv[0]} failed"])[0])
