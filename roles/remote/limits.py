"""Bounds on what a host may send us, and on what of it reaches the terminal as it is.

pyinfra keeps every line that a command prints, without end, and prints what a fact said on its
standard error with its control characters. A host that is not ours any more must not take the
controller's memory nor its terminal with that: it fails alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from queue import Queue
from typing import Any

import gevent
from pyinfra.api import facts, operations
from pyinfra.api.output import echo
from pyinfra.connectors import ssh, util
from pyinfra.connectors.util import CommandOutput, OutputLine

from sglangctl.util.terminal import escaped

OUTPUT_LIMIT = 16 << 20
"""Bytes of one command's output; the largest probe's document seen is under 1 MiB."""
LINE_COST = 128
"""Bytes that keeping a line costs beyond its text."""
PIECE = 64 * 1024
FACT_S = 300
"""A fact may take. A host that swaps answers in a minute or two; one that sends a byte now and then
does not hold up the run for ever."""


STALL_S = 120.0
"""Without a byte of a transfer: longer than a full disk queue or a short break of the network."""


class NotRead(OSError):
    """A command does not read its standard input to the end."""


class TooMuchOutput(OSError):
    """A command printed more than it can have to say."""


class Bounded:
    """A command's output as text lines, up to the limit; then `exceeded`, and nothing more is read.

    + buffer: pyinfra's, of paramiko (its channel is read as bytes: not all is UTF-8) or of a pipe
    + error: it is the standard error
    """

    def __init__(self, buffer: Any, error: bool, limit: int = OUTPUT_LIMIT) -> None:
        channel = getattr(buffer, "channel", None)
        self._close = (channel or buffer).close
        if channel is not None:
            buffer = channel.makefile_stderr("rb") if error else channel.makefile("rb")
        self._buffer = buffer
        self._left = limit
        self.exceeded = False

    def __iter__(self) -> Iterator[str]:
        pieces: list[bytes] = []
        while piece := self._buffer.readline(PIECE):
            self._left -= len(piece) + (0 if pieces else LINE_COST)
            if self._left < 0:
                self.exceeded = True
                self._close()  # the other side's write fails, so that its command ends
                return
            pieces.append(piece)
            if piece.endswith(b"\n"):
                yield b"".join(pieces).decode("utf-8", "backslashreplace")
                pieces = []
        if pieces:
            yield b"".join(pieces).decode("utf-8", "backslashreplace")


def read_buffer(
    name: str,
    io: Bounded,
    output_queue: Queue[OutputLine],
    print_output: bool = False,
    print_func: Any = None,
) -> None:
    """As pyinfra's, with control characters written out in all that is printed: what comes on the
    standard error is read by nobody else, what comes on the standard output is kept as it is."""
    for raw in io:
        line = raw.rstrip("\n")
        shown = escaped(line)
        output_queue.put(OutputLine(name, shown if name == "stderr" else line))
        if print_output:
            echo(print_func(shown) if print_func else shown, err=True)


def write_stdin(stdin: Sequence[str], buffer: Any) -> None:
    """As pyinfra's, in pieces, each with a limit: NotRead where nothing moves for STALL_S."""
    late = NotRead(
        f"the host stopped reading what a command is given, for {STALL_S:g} s: check the host's "
        "disk and its network"
    )
    text = "".join(line if line.endswith("\n") else f"{line}\n" for line in stdin).encode()
    try:
        for at in range(0, len(text), PIECE):
            with gevent.Timeout(STALL_S, late):
                buffer.write(text[at : at + PIECE])
                buffer.flush()
        with gevent.Timeout(STALL_S, late):
            buffer.close()
    except NotRead:
        channel = getattr(buffer, "channel", None)
        if channel is not None:
            channel.close()
        raise


def guard() -> None:
    """Put these bounds on every command of this process. Patched, because pyinfra has none."""
    if getattr(util.read_output_buffers, "bounded", False):
        return
    read, shown = util.read_output_buffers, facts.print_host_combined_output

    def read_output_buffers(
        stdout_buffer: Any, stderr_buffer: Any, *arguments: Any, **options: Any
    ) -> CommandOutput:
        streams = Bounded(stdout_buffer, error=False), Bounded(stderr_buffer, error=True)
        output = read(*streams, *arguments, **options)
        if any(stream.exceeded for stream in streams):
            raise TooMuchOutput(
                f"the host sent more than {OUTPUT_LIMIT >> 20} MiB as one command's output: look at "
                "what answers there"
            )
        return output

    def print_host_combined_output(host: Any, output: CommandOutput) -> None:
        lines = [OutputLine(one.buffer_name, escaped(one.line)) for one in output]
        shown(host, CommandOutput(lines))

    read_output_buffers.bounded = True  # type: ignore[attr-defined]
    for module in (util, ssh):
        vars(module)["read_output_buffers"] = read_output_buffers
        vars(module)["write_stdin"] = write_stdin
    vars(util)["read_buffer"] = read_buffer
    for module in (facts, operations):
        vars(module)["print_host_combined_output"] = print_host_combined_output
