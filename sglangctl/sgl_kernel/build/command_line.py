"""Commands that the build runs: bounded, their output in the build's log, their failure told."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sglangctl.proc import memory
from sglangctl.util import lazy_re

KEPT = 4000
"""Lines of output that a failure is explained from."""
SAMPLE_S = 1.0
CREDENTIALS = lazy_re.compile(r"://[^/@\s]+@")


@dataclass
class Outcome:
    """A command's end. `peak_mib`: the most memory that its processes had together."""

    returncode: int
    lines: deque[str] = field(default_factory=lambda: deque(maxlen=KEPT))
    peak_mib: float = 0.0


def run(
    argv: Sequence[str],
    log: Path,
    on_line: Callable[[str, float], None] | None = None,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> Outcome:
    """Run `argv` to its end, each line of its output into `log` and to `on_line` with the memory
    in use (MiB). OSError when the program does not exist."""
    outcome = Outcome(0)
    with open(log, "ab") as file:
        said = CREDENTIALS.sub("://***@", " ".join(map(str, argv)))
        file.write(f"\n$ {said}\n".encode("utf-8", "backslashreplace"))
        file.flush()
        process = subprocess.Popen(
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env={**os.environ, **(environment or {})},
            start_new_session=True,
        )
        sampler = _Sampler(process.pid)
        sampler.start()
        try:
            assert process.stdout is not None
            for raw in process.stdout:
                file.write(raw)
                file.flush()
                text = raw.decode("utf-8", "backslashreplace").rstrip("\n")
                outcome.lines.append(text)
                if on_line:
                    on_line(text, sampler.now_mib)
            outcome.returncode = process.wait()
        finally:
            sampler.stop()
            if process.poll() is None:
                # An exception on our side must not leave compilers behind.
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    outcome.peak_mib = sampler.peak_mib
    return outcome


class _Sampler(threading.Thread):
    """Looks at the memory of one session's processes every second."""

    def __init__(self, session: int) -> None:
        super().__init__(daemon=True)
        self.session, self.now_mib, self.peak_mib = session, 0.0, 0.0
        self._ended = threading.Event()

    def run(self) -> None:
        while not self._ended.wait(SAMPLE_S):
            self.now_mib, _ = memory.tree_rss_mib(self.session)
            self.peak_mib = max(self.peak_mib, self.now_mib)

    def stop(self) -> None:
        self._ended.set()
        self.join(timeout=5 * SAMPLE_S)
