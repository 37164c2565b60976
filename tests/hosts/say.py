"""Tell a person what is going on, and run long commands with a sign of life."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache"

HEARTBEAT_S = 10.0
TAIL_LINES = 25


class Failure(Exception):
    """What went wrong and what to do next, in one sentence for the operator."""


def say(text: str) -> None:
    print(text, flush=True)


def run(argv: Sequence[str], title: str, *, timeout: float = 1800.0) -> float:
    """Run `argv` with its output in a log file; print `title`, a line every 10 s, and the time taken.

    Returns the seconds it took. Raises Failure with the end of the log when the command fails.
    """
    logs = CACHE / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    name = "".join(c if c.isalnum() else "-" for c in title.lower()).strip("-")[:50]
    log = logs / f"{name}.log"
    say(f"==> {title}")
    start = time.monotonic()
    with log.open("wb") as output:
        process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, cwd=ROOT
        )
        spoken = start
        try:
            while True:
                try:
                    status = process.wait(timeout=0.5)
                    break
                except subprocess.TimeoutExpired:
                    pass
                now = time.monotonic()
                if now - start > timeout:
                    raise Failure(f"{title}: no end after {timeout:.0f} s; see {log}")
                if now - spoken >= HEARTBEAT_S:
                    spoken = now
                    say(f"    {now - start:4.0f} s  {last_line(log)}")
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
    seconds = time.monotonic() - start
    if status != 0:
        end = "\n".join("    " + line for line in lines(log)[-TAIL_LINES:])
        raise Failure(f"{title}: exit status {status}; the end of {log}:\n{end}")
    say(f"    {seconds:4.0f} s  done")
    return seconds


def lines(log: Path) -> list[str]:
    """The log's lines without what would move the terminal's cursor; a carriage return ends a line."""
    text = log.read_bytes().decode("utf-8", "replace").replace("\r", "\n")
    return [
        "".join(c for c in line if c.isprintable()) for line in text.split("\n") if line.strip()
    ]


def last_line(log: Path) -> str:
    """What the command is at: its last line that is no warning."""
    found = [line.strip() for line in lines(log)]
    told = [line for line in found if not line.startswith("WARNING")] or found
    return told[-1][:100] if told else ""


def captured(
    argv: Sequence[str], input: str | None = None, *, timeout: float = 120.0
) -> subprocess.CompletedProcess[str]:
    """A short command with what it printed, whatever its bytes are; without `input` it reads nothing."""
    return subprocess.run(
        argv,
        input=input,
        stdin=subprocess.DEVNULL if input is None else None,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=timeout,
    )


def output(argv: Sequence[str], *, timeout: float = 120.0) -> str:
    """Standard output of a short command, stripped. Raises Failure with what it said."""
    done = captured(argv, timeout=timeout)
    if done.returncode != 0:
        raise Failure(f"{' '.join(argv[:3])}: {(done.stderr or done.stdout).strip()}")
    return done.stdout.strip()


def write_atomically(path: Path, data: bytes, mode: int = 0o644) -> None:
    """Replace `path` in one step, so that another run beside us never reads half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as new:
        new.write(data)
    Path(new.name).chmod(mode)
    Path(new.name).replace(path)


def main_guard(main: Callable[[], int]) -> None:
    """Run a script's main function; a Failure is one sentence and exit status 1, not a traceback."""
    # So that what was begun is cleaned up also when `make` or CI ends this.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        status = main()
    except Failure as failure:
        sys.exit(f"error: {failure}")
    except KeyboardInterrupt:
        sys.exit(130)
    sys.exit(status)


def main() -> int:
    """`python3 -m tests.hosts.say TITLE COMMAND ...`: for the Makefile and shell scripts."""
    if len(sys.argv) < 3:
        say("usage: python3 -m tests.hosts.say TITLE COMMAND ...")
        return 2
    run(sys.argv[2:], sys.argv[1])
    return 0


if __name__ == "__main__":
    main_guard(main)
