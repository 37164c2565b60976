"""A socket whose whole answer has a limit in time and in bytes.

A socket's own timeout is for each read: a server that sends one byte now and then (within a header,
the status line, a chunk's size), or "100 Continue" for ever, never meets it.
"""

from __future__ import annotations

import http.client
import io
import socket
import time
from typing import Any


class AnswerTooLong(http.client.HTTPException):
    """More came than any answer has."""


class BoundedSocket:
    """What http.client uses of a socket, every read and write of it before `deadline`
    (time.monotonic()), and at most `most` bytes read: then TimeoutError or AnswerTooLong."""

    def __init__(self, raw: socket.socket, deadline: float, most: int) -> None:
        self._raw, self._deadline, self.room = raw, deadline, most

    def sendall(self, data: bytes) -> None:
        self._limit()
        self._raw.sendall(data)  # its timeout is for the whole

    def receive_into(self, buffer: Any) -> int:
        """At least one byte, 0 at the end."""
        self._limit()
        size = self._raw.recv_into(buffer)
        self.room -= size
        if self.room < 0:
            raise AnswerTooLong("the answer is too long")
        return size

    def makefile(self, mode: str = "rb") -> io.BufferedReader:
        return io.BufferedReader(_Reader(self))

    def close(self) -> None:
        """Nothing: http.client lets go of it before the answer was read ("Connection: close")."""

    def close_now(self) -> None:
        self._raw.close()

    def _limit(self) -> None:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        self._raw.settimeout(left)


class _Reader(io.RawIOBase):
    def __init__(self, source: BoundedSocket) -> None:
        self._source = source

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self._source.receive_into(buffer)
