"""sglangctl's kernel commands on a host, from inside an operation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyinfra.api import Host, State, StringCommand
from pyinfra.api.command import QuoteString

from roles.remote import follow, program, shape, upload
from roles.remote.failing import HostFailed, say
from roles.remote.limits import TooMuchOutput
from roles.remote.link import Link, LinkLost
from roles.remote.shape import WrongShape
from roles.remote.steps import run_step
from roles.remote.transfer import Moving, watched
from sglangctl.state.journal import Event
from sglangctl.util.values import digits

CACHE = "/var/cache/sglangctl/kernel"
LARGEST = 4 << 30
"""Bytes of a wheel; the stock ones have some 600 MiB."""


@dataclass(frozen=True)
class Ended:
    """A command's end: exit status and its lines of output."""

    status: int
    lines: list[str]

    @property
    def text(self) -> str:
        return "; ".join(line.strip() for line in self.lines if line.strip()) or "no output"


class Bounded(Moving):
    """A new file that takes so many bytes: a host may send without end."""

    def __init__(self, path: Path, limit: int = LARGEST) -> None:
        super().__init__(path, "w")
        self._left = self._limit = limit

    def write(self, data: Any, /) -> int:
        self._left -= len(data)
        if self._left < 0:
            raise TooMuchOutput(f"it has more than {self._limit >> 20} MiB")
        return super().write(data)


@dataclass
class KernelHost:
    """One host. `sudo`: pyinfra does not apply the host's own setting inside an operation."""

    state: State
    host: Host
    sudo: bool

    def program(self, *arguments: str) -> list[str]:
        return program.argv("kernel", *arguments)

    def ask(self, *arguments: str, wait_s: float = 60.0) -> Ended:
        """A short command that may run twice, over a link that may break."""
        try:
            answer = self.link().run(*self.program(*arguments), wait_s=wait_s)
        except LinkLost as error:
            raise HostFailed(str(error)) from None
        return Ended(0 if answer.ok else 1, [*answer.lines, *answer.errors])

    def follow(self, *arguments: str, each: Callable[[Event], None]) -> None:
        """A task to its end, each of its events once."""
        try:
            follow.task(self.link(), self.program(*arguments), each)
        except LinkLost as error:
            raise HostFailed(str(error)) from None

    def link(self) -> Link:
        return Link(self.state, self.host, self.warn, {"_sudo": True} if self.sudo else {})

    def work(self, title: str, *arguments: str, limit_s: float = 3600.0) -> Ended:
        """A long command, with a sign of life every ten seconds; its exit status is an answer."""
        return self.step(title, self.program(*arguments), limit_s)

    def step(self, title: str, argv: Sequence[str], limit_s: float) -> Ended:
        words = [QuoteString(word) for word in argv]
        command = StringCommand(*words, '2>&1; echo "@ $?"')
        lines = run_step(
            self.host,
            title,
            command,
            sudo=self.sudo,
            limit_s=limit_s,
            then="check the host, then deploy again",
        )
        status = digits(lines[-1].removeprefix("@ ")) if lines else None
        if status is None:
            raise HostFailed(f"{title} gave no exit status: {' '.join(lines[-3:])}")
        return Ended(status, lines[:-1])

    def survey(self, venv: str, sm: str | None) -> dict[str, Any]:
        """`sglangctl kernel survey`; HostFailed when it does not answer."""
        arch = [f"--sm={sm}"] if sm else []
        ended = self.ask("survey", f"--venv={venv}", *arch, wait_s=120.0)
        try:
            return shape.check(shape.parsed(ended.lines[0]), shape.KERNEL)
        except (IndexError, WrongShape) as error:
            raise HostFailed(
                f"sglangctl kernel survey does not answer: {ended.text or error}"
            ) from None

    def put(self, path: str, content: bytes, mode: str = "0644") -> None:
        """A small file in one move."""
        folder = path.rpartition("/")[0]
        made, output = self.host.run_shell_command(
            StringCommand("mkdir -p --", QuoteString(folder)), _sudo=self.sudo
        )
        if not made:
            raise HostFailed(f"{path} cannot be written: {' '.join(output.stderr_lines)}")
        upload.put(self.host, path, content, mode, self.sudo)

    def send(self, source: Path, path: str) -> None:
        """A large file; HostFailed."""
        with Moving(source, "r") as file, watched(file, f"{source.name} to {path}"):
            done = self.host.put_file(file, path, _sudo=self.sudo)
        if not done:
            raise HostFailed(f"{source.name} cannot be copied to {path}: is the disk full?")

    def fetch(self, path: str, target: Path) -> None:
        """A file of the host onto the controller; HostFailed, also for one that does not end."""
        try:
            with Bounded(target) as file, watched(file, f"{path} from {self.host.name}"):
                done = self.host.get_file(path, file, _sudo=self.sudo)
        except OSError as error:
            raise HostFailed(f"{path} cannot be copied to {target}: {error}") from None
        if not done:
            raise HostFailed(f"{path} cannot be copied from {self.host.name}")

    def warn(self, text: str) -> None:
        say(self.host, text, fg="yellow")
