"""Code of others, with one user's rights: a transient unit with the sandbox of `hardening: strict`.

Where systemd is not the init of the machine (a container, Slurm) there is no sandbox: the command
then has that user's rights and cannot gain others.

It never gets a descriptor of ours but pipes: from root's terminal it could read what root types. And
nothing of it runs on when it has ended.
"""

from __future__ import annotations

import ctypes
import itertools
import json
import os
import pwd
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from sglangctl.proc import procfs
from sglangctl.systemd import systemctl
from sglangctl.util import lazy_re
from sglangctl.util.errors import Failed
from sglangctl.util.terminal import escaped

SANDBOX = {
    "NoNewPrivileges": ("yes",),
    "CapabilityBoundingSet": ("",),
    "AmbientCapabilities": ("",),
    "PrivateTmp": ("yes",),
    "ProtectControlGroups": ("yes",),
    "ProtectHome": ("read-only",),
    "ProtectHostname": ("yes",),
    "ProtectKernelLogs": ("yes",),
    "ProtectKernelModules": ("yes",),
    "ProtectKernelTunables": ("yes",),
    "RestrictRealtime": ("yes",),
    "RestrictSUIDSGID": ("yes",),
    "LockPersonality": ("yes",),
    "SystemCallArchitectures": ("native",),
    "ProtectSystem": ("strict",),
    "ProtectProc": ("invisible",),
    "PrivateMounts": ("yes",),
    "RestrictNamespaces": ("yes",),
    "RestrictAddressFamilies": ("AF_UNIX AF_INET AF_INET6 AF_NETLINK",),
    "SystemCallFilter": ("@system-service", "~@privileged"),
    "SystemCallErrorNumber": ("EPERM",),
    "LimitCORE": ("0",),
}
"""As in templates/sglang.service.j2, without PrivateIPC, which systemd 247 does not know (a unit
file with it is read there, systemd-run refuses it)."""
KEPT = lazy_re.compile(r"PATH|LANG|LC_ALL|TZ|LD_LIBRARY_PATH|CUDACXX|(?:CUDA|NVIDIA)_\w+")
"""Variables of root's that others' code gets: the rest may be secrets."""
LARGEST = 4 * 1024 * 1024
"""Bytes of output that are kept, the last ones: a venv may print for ever."""
LONGEST = 256 * 1024
"""Bytes of a line that is told; a longer one comes in pieces."""
GRACE_S = 30.0
"""Until systemd ends what we could not."""
COPIED = 64 * 1024 * 1024
"""Bytes of output that are copied to ours: whoever reads them may keep them in memory."""
OUTPUT_S = 2.0
"""For what is left of its output, once it has ended."""
SLOW_S = 60.0
"""The same, where our own reader may be slow."""
SUBREAPER = 36
"""PR_SET_CHILD_SUBREAPER of prctl(2): who is orphaned below us becomes our child."""
TIMED_OUT = 124
"""As timeout(1) has it."""
# The unit's main process. What it is to run comes over standard input, because arguments are there
# for everybody to see, and it says by its exit status which signal ended that.
LAUNCH = """
import json, os, subprocess, sys
said = json.load(sys.stdin)
code = subprocess.call(said["argv"], env=said["env"], stdin=subprocess.DEVNULL)
sys.exit(code if code >= 0 else 128 - code)
"""
_NUMBERS = itertools.count()


@dataclass(frozen=True)
class Ended:
    """`returncode` as subprocess has it (negative: a signal); None: it was ended at its limit."""

    returncode: int | None
    stdout: bytes = b""
    stderr: bytes = b""


def run(
    argv: Sequence[str],
    user: str | None,
    *,
    limit_s: float,
    environment: Mapping[str, str] | None = None,
    writable: Sequence[Path] = (),
    streamed: bool = False,
    tell: Callable[[bytes], None] | None = None,
    unit: Sequence[str] = (),
    name: str | None = None,
) -> Ended:
    """Run `argv` as `user` (None: whoever calls) to its end, or for `limit_s` seconds.

    + environment: all of it but HOME, which is a folder that is deleted; None: what is KEPT of ours
    + writable: folders; the user's rights still count
    + streamed: output is copied to ours (to a terminal with its control characters written out),
      instead of into the answer. BrokenPipeError where nobody reads that any more, Failed beyond COPIED
    + tell: called with each line of its standard output, which then is not in the answer. What it
      raises ends the run and is raised here
    + unit: more properties of the unit, `NAME=VALUE`
    + name: the unit's; one of that name that still runs is ended first

    KeyError for an unknown user, OSError where the program does not start (without a unit).
    """
    env = dict(environment) if environment is not None else kept(os.environ, KEPT)
    if user is not None and os.geteuid() == 0 and systemctl.booted():
        pwd.getpwnam(user)
        return _in_unit(argv, user, limit_s, env, writable, streamed, tell, unit, name)
    with _home(user) as home:
        # A sandbox that has this already does not let setpriv ask for it again.
        if "NoNewPrivs:\t1" not in Path("/proc/self/status").read_text():
            argv = ["setpriv", "--no-new-privs", "--", *argv]
        return _run(argv, limit_s, streamed, {"HOME": home, **env}, _rights(user), tell=tell)


def status(ended: Ended) -> int:
    """The exit status that tells of it: the command's; 128 and the signal's number; TIMED_OUT."""
    if ended.returncode is None:
        return TIMED_OUT
    return ended.returncode if ended.returncode >= 0 else 128 - ended.returncode


def kept(variables: Mapping[str, str], names: re.Pattern[str]) -> dict[str, str]:
    """The variables whose whole name fits."""
    return {name: value for name, value in variables.items() if names.fullmatch(name)}


def properties(user: str, writable: Sequence[Path], limit_s: float) -> list[str]:
    """The options of systemd-run for one run."""
    found = [f"--property={name}={value}" for name, values in SANDBOX.items() for value in values]
    found += [f"--property=ReadWritePaths={folder}" for folder in writable]
    return [
        *found,
        f"--property=User={user}",
        # When memory runs out, it goes before an engine that serves (500).
        "--property=OOMScoreAdjust=900",
        "--property=UMask=0022",
        f"--property=RuntimeMaxSec={limit_s + GRACE_S:.0f}",
    ]


def _in_unit(
    argv: Sequence[str],
    user: str,
    limit_s: float,
    env: Mapping[str, str],
    writable: Sequence[Path],
    streamed: bool,
    tell: Callable[[bytes], None] | None,
    more: Sequence[str],
    name: str | None,
) -> Ended:
    unit = name or f"sglangctl-confined-{os.getpid()}-{next(_NUMBERS)}.service"
    if name is not None:
        _end(unit)
    start = [
        *("systemd-run", "--quiet", "--collect", "--wait", "--pipe", f"--unit={unit}"),
        f"--description={os.path.basename(argv[0])} as {user}, for sglangctl",
        *properties(user, writable, limit_s),
        *(f"--property={one}" for one in more),
        *("--", sys.executable, "-I", "-S", "-c", LAUNCH),
    ]
    said = json.dumps({"argv": list(argv), "env": {"HOME": "/tmp", **env}}).encode()
    ended = Ended(None)
    try:
        ended = _run(start, limit_s, streamed, None, {}, said, tell)
    finally:
        if ended.returncode is None:
            # systemd-run is dead, what it started is not: and nothing of it may run on.
            _end(unit)
    if ended.returncode is not None and ended.returncode > 128:
        return Ended(128 - ended.returncode, ended.stdout, ended.stderr)
    return ended


def _end(unit: str) -> None:
    systemctl.call("kill", "--signal=SIGKILL", unit)
    systemctl.call("stop", unit)


def _run(
    argv: Sequence[str],
    limit_s: float,
    streamed: bool,
    env: Mapping[str, str] | None,
    rights: Mapping[str, object],
    given: bytes = b"",
    tell: Callable[[bytes], None] | None = None,
) -> Ended:
    uid = rights.get("user")  # None: our own, or a unit's
    if isinstance(uid, int):
        _adopt_orphans(True)
    process = subprocess.Popen(  # type: ignore[call-overload]
        list(argv),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=env,
        start_new_session=True,
        umask=0o022,
        **rights,
    )
    readers = [
        _Reader(stream, process.pid, _copy_to(number) if streamed else told)
        for number, stream, told in ((1, process.stdout, tell), (2, process.stderr, None))
    ]
    status: int | None = None
    try:
        try:
            process.stdin.write(given)
            process.stdin.close()
        except BrokenPipeError:
            pass  # it ended before it read: its status tells
        status = process.wait(limit_s)
    except subprocess.TimeoutExpired:
        pass
    finally:
        if status is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if isinstance(uid, int):
            _end_strays(uid)
            _adopt_orphans(False)
    left_s = SLOW_S if streamed else OUTPUT_S
    return Ended(status, *(reader.text(left_s) for reader in readers))


def _copy_to(number: int) -> Callable[[bytes], None]:
    """Writes each line to a descriptor of ours."""
    shown, left = os.isatty(number), COPIED

    def copy(line: bytes) -> None:
        nonlocal left
        left -= len(line)
        if left < 0:
            raise Failed(f"it was ended: it printed more than {COPIED >> 20} MiB")
        if shown:
            text = escaped(line.rstrip(b"\n").decode("utf-8", "backslashreplace"))
            line = text.encode() + (b"\n" if line.endswith(b"\n") else b"")
        while line:
            line = line[os.write(number, line) :]

    return copy


class _Reader(threading.Thread):
    """Reads a pipe to its end and keeps what came last, or tells each line."""

    def __init__(
        self, stream: IO[bytes], session: int, tell: Callable[[bytes], None] | None
    ) -> None:
        super().__init__(daemon=True)
        self._stream, self._parts = stream, deque[bytes](maxlen=LARGEST >> 12)
        self._session, self._tell = session, tell
        self._failed: Exception | None = None
        self.start()

    def run(self) -> None:
        if self._tell is None:
            while part := self._stream.read1(1 << 12):  # type: ignore[attr-defined]
                self._parts.append(part)
            return
        try:
            while part := self._stream.readline(LONGEST):
                self._tell(part)
        except Exception as error:
            self._failed = error
            with suppress(ProcessLookupError):
                os.killpg(self._session, signal.SIGKILL)

    def text(self, left_s: float) -> bytes:
        # What a process that left the session holds open is not waited for.
        self.join(left_s)
        if self._failed is not None:
            raise self._failed
        return b"".join(self._parts.copy())


def _adopt_orphans(wanted: bool) -> None:
    ctypes.CDLL(None).prctl(SUBREAPER, int(wanted), 0, 0, 0)


def _end_strays(uid: int) -> None:
    """End what has left the session of a command that ran as `uid`. A unit's end does that; here it
    would go on writing into files that are root's by then."""
    end = time.monotonic() + GRACE_S
    while (strays := _strays(uid)) and time.monotonic() < end:
        for pid in strays:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def _strays(uid: int) -> list[int]:
    """Children of ours that we did not start: of `uid`, and in another session. (A process of ours
    confines one command at a time.)"""
    ours, session = os.getpid(), os.getsid(0)
    found = (procfs.stat(pid) for pid in procfs.pids())
    children = (one for one in found if one and one.ppid == ours and one.session != session)
    return [one.pid for one in children if procfs.uid(one.pid) == uid]


def _rights(user: str | None) -> dict[str, object]:
    """Popen's arguments to run with a user's rights; none where that is who we are."""
    if user is None:
        return {}
    entry = pwd.getpwnam(user)
    if entry.pw_uid == os.geteuid():
        return {}
    groups = os.getgrouplist(user, entry.pw_gid)
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": groups, "cwd": "/"}


@contextmanager
def _home(user: str | None) -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="sglangctl-home-") as home:
        if user is not None and os.geteuid() == 0:
            entry = pwd.getpwnam(user)
            os.chown(home, entry.pw_uid, entry.pw_gid)
        yield home


def refusal(ended: Ended) -> str:
    """The last line that it wrote, for a sentence."""
    lines = ended.stderr.decode("utf-8", "backslashreplace").strip().splitlines()
    return lines[-1][:300] if lines else "it gave no reason"
