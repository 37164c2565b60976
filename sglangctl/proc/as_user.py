"""Run a function with the rights of another user, in a separate process, and return JSON."""

from __future__ import annotations

import json
import os
import pwd
import resource
import select
import signal
import time
from contextlib import suppress
from typing import Any, Callable

from sglangctl.util.errors import Unusable

LARGEST = 64 * 1024 * 1024
"""Limit of an answer, in bytes."""
MEMORY = 8 << 30
"""Bytes of address space that a question may take: what is looked at is others', and as large as they like. The
headers and the tokenizer of the largest known model need 2 GB."""


class NoAnswer(Unusable):
    """The child ended without an answer, or not in time; the text is one sentence."""


def ask(user: str, question: Callable[[], Any], limit_s: float) -> Any:
    """What `question` returns (JSON types), run as `user` with that user's groups.

    As somebody else than root: run as it is where `user` is oneself, else PermissionError. KeyError
    for an unknown user, NoAnswer after `limit_s` seconds (a dead NFS server, say).
    """
    entry = pwd.getpwnam(user)
    if entry.pw_uid != os.geteuid() and os.geteuid() != 0:
        raise PermissionError(f"only root can look with the rights of {user}")
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        _answer(writer, entry, question)
    os.close(writer)
    waiting = 0
    try:
        return _read(reader, limit_s)
    except BaseException:  # a signal's, too: the child is not waited for to its end
        # One that hangs in the kernel does not even die of SIGKILL: it is not waited for.
        os.kill(child, signal.SIGKILL)
        waiting = os.WNOHANG
        raise
    finally:
        os.close(reader)
        os.waitpid(child, waiting)


def within(limit_s: float, question: Callable[[], Any]) -> Any:
    """What `question` returns (JSON types), with our own rights: for what may wait for ever, as a
    dead NFS server makes it. NoAnswer after `limit_s` seconds."""
    return ask(pwd.getpwuid(os.geteuid()).pw_name, question, limit_s)


def _answer(writer: int, entry: pwd.struct_passwd, question: Callable[[], Any]) -> None:
    """In the child; does not return. It keeps nothing of ours but `writer`: one that is left behind
    would hold our caller's pipe open (an SSH session then does not end), and our locks."""
    status = 1
    try:
        nowhere = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(nowhere, number)
        for name in os.listdir("/proc/self/fd"):
            if int(name) > 2 and int(name) != writer:
                with suppress(OSError):
                    os.close(int(name))
        with open("/proc/self/statm", encoding="ascii") as file:
            most = int(file.read().split()[0]) * resource.getpagesize() + MEMORY
        hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        resource.setrlimit(resource.RLIMIT_AS, (most if hard < 0 else min(most, hard), hard))
        if entry.pw_uid != os.geteuid():
            os.initgroups(entry.pw_name, entry.pw_gid)
            os.setresgid(entry.pw_gid, entry.pw_gid, entry.pw_gid)
            os.setresuid(entry.pw_uid, entry.pw_uid, entry.pw_uid)
        with os.fdopen(writer, "w", encoding="utf-8", errors="surrogateescape") as out:
            json.dump(question(), out)
        status = 0
    finally:
        os._exit(status)


def _read(reader: int, limit_s: float) -> Any:
    end = time.monotonic() + limit_s
    parts: list[bytes] = []
    room = LARGEST
    while True:
        left = end - time.monotonic()
        if left <= 0 or not select.select([reader], [], [], left)[0]:
            raise NoAnswer(f"no answer within {limit_s:.0f} s: its file system may hang")
        part = os.read(reader, 1 << 16)
        if not part:
            break
        parts.append(part)
        room -= len(part)
        if room < 0:
            raise NoAnswer("the answer is too long")
    try:
        return json.loads(b"".join(parts))
    except ValueError:
        raise NoAnswer("the check ended before it was finished") from None
