"""What the log and the exit say about a failure: tracebacks, the engine's own message, codes.

A line that names a cause is only a candidate until something certain happens: an exit, a rank
that is gone, a failed bind, or the engine's own report of a crash. From the moment that clients may
write into the log (their text may be in an error message, with line ends and all) a report alone is
not certain either: it counts with a process that died or the exit.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from sglangctl.diagnosis.classify import Context, LineCause, classify, deeds
from sglangctl.startup.loglines import LINE_LIMIT, Line
from sglangctl.util import lazy_re, site_reports

RECENT_S = 120.0
"""A candidate older than this, before the failure, is not its cause (the longest seen between
an uncaught exception and the exit was 10 s; a failed bind is certain by itself)."""
_KEEP = 64
_MESSAGE_LINES = 60

_NO_TOKENIZER = "_fix_v5_add_bos_eos_token: failed to read tokenizer_config.json"

_EXCEPTION = lazy_re.compile(
    r"^[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit|Timeout|Failure)\b:?"
)
_CRASHED = lazy_re.compile(r"^Subprocess (\S+) \(pid=\d+\) crashed with exit code (-?\d{1,9})\b")
_DIED = lazy_re.compile(
    r"Rank (\d+) scheduler died during initialization \(exit code: (-?\d{1,9})\)"
)
_TERMINATED = lazy_re.compile(
    r"^Scheduler or DataParallelController (\S+) terminated with (-?\d{1,9})\b"
)
_BIND = ("error while attempting to bind on address", "could not bind on any address out of")
"""Of Python's asyncio; the second from 3.13 on, for an address that is not this host's."""
_CODE = lazy_re.compile(r"Exit code: (-?\d{1,9})\s*")
_DECIDING = lazy_re.compile(
    r"\b(?:fatal|error|Error|failed|cannot|can't|could not|not found|No such|denied|invalid|unsupported"
    r"|Unsupported|refused|mismatch|missing|undefined)\b"
)
_DEAD = lazy_re.compile(r"^Rank (\d+) scheduler is dead\b")
_HIT = lazy_re.compile(r"^(\w+) hit an exception: ")


@dataclass(frozen=True)
class Candidate:
    """A line that names a cause, and where it stood."""

    t: float
    rank: str
    finding: LineCause
    fatal: bool
    """It belongs to an exception that the engine itself reported as the end of a process."""


@dataclass(frozen=True)
class Raised:
    """The last line of a traceback."""

    t: float
    rank: str
    text: str
    fatal: bool
    detail: str = ""
    """The line of its message that says most."""


@dataclass(frozen=True)
class Crash:
    """The first certain sign of a failure."""

    t: float
    source: str
    """`bind`, `held` (the port), `exception`, `child`, `rank`, `warmup`, `watchdog`, `process` or `exit`."""
    text: str
    code: int | None = None
    """Exit status of the process that died, negative for a signal."""


@dataclass
class _Traceback:
    rank: str
    fatal: bool
    doing: frozenset[str] = frozenset()
    """What its frames pass through."""
    message_left: int = 0
    """Lines that may still belong to the exception's message; 0: still among the frames."""
    frames: int = 0


class Failures:
    """Collects candidates, exceptions and the first certain sign."""

    def __init__(self) -> None:
        self.crash: Crash | None = None
        self.candidates: list[Candidate] = []
        self.exceptions: list[Raised] = []
        self.heard: Crash | None = None
        """The last report that nothing but the log bears out, while clients may write there."""
        self.doubtful = False
        """Clients may write into the log, and processes are seen."""
        self.own: bool = False
        """The engine said itself that it fails (so a SIGKILL that follows is its own)."""
        self.no_tokenizer = ""
        """The engine's warning that the model has no tokenizer; it goes on with an empty one."""
        self._traceback: _Traceback | None = None
        self._site_left = 0

    @property
    def open(self) -> bool:
        """A traceback has begun and its exception is still to come."""
        return self._traceback is not None and not self._traceback.message_left

    def sign(self, crash: Crash) -> None:
        """Something certain; the first one stays, the engine's own message fills it in."""
        if self.crash is None:
            self.crash = crash
        elif crash.source not in ("exit", "process"):
            if self.crash.source == "process":
                self.crash = replace(crash, t=self.crash.t)
            elif self.crash.code is None and crash.code is not None:
                self.crash = replace(self.crash, code=crash.code)

    def take_back(self) -> None:
        """A later look found the rank that one look had missed."""
        if self.crash is not None and self.crash is self.heard:
            self.crash, self.own = None, False
        elif self.crash is not None and self.crash.source == "process":
            self.crash = None

    def died(self, crash: Crash) -> None:
        """A process is gone, or the main one has ended: what the log said of it was true."""
        if self.heard is not None and self.crash is None and self.heard.t >= crash.t - RECENT_S:
            self.own, self.crash = True, self.heard
        self.sign(crash)

    def _said(self, crash: Crash) -> None:
        """The engine's own words say that it fails, or somebody's words in its log."""
        if self.doubtful and self.crash is None:
            self.heard = crash
            return
        self.own = True
        self.sign(crash)

    def advance(self) -> None:
        """The start got further: what was said before was not its end."""
        if self.crash is None:
            self.candidates.clear()
            self.exceptions.clear()
            self._traceback = None

    def line(self, t: float, line: Line, context: Context) -> None:
        """Take a line that the phase machine has no use for."""
        text = line.text[:LINE_LIMIT]
        rank = line.rank
        if rank is None and self._site(text):
            return
        if rank is not None:
            self._message(t, text, rank)
        elif text.startswith("Initialization failed") or text.startswith("Subprocess "):
            self._message(t, text, "")
        if text.endswith("Traceback (most recent call last):"):
            self._begin(text, rank)
            if rank is None:
                return
        traceback = self._traceback
        exception = False
        if rank is None and traceback is not None:
            exception = self._in_traceback(t, text, traceback)
            if exception and traceback.doing:
                context = replace(context, doing=traceback.doing)
        elif rank is None and _EXCEPTION.match(text):
            # Printed without a traceback of its own (the end of one that was cut, or of a child).
            exception = True
        elif rank is not None:
            exception = _HIT.match(text) is not None and "Error: " in text
        finding = classify(text, context, exception)
        if any(part in text for part in _BIND):
            self._said(Crash(t, "bind", text))
        if finding is None:
            return
        owner = traceback if rank is None else None
        self.candidates.append(
            Candidate(
                t,
                owner.rank if owner else (rank or ""),
                finding,
                owner is not None and owner.fatal,
            )
        )
        if len(self.candidates) > _KEEP:
            del self.candidates[_KEEP // 2]
        if finding.cause == "watchdog":
            self._said(Crash(t, "watchdog", text))

    def _site(self, text: str) -> bool:
        """Whether the line belongs to the report of a .pth file: Python goes on without it."""
        if site_reports.BEGIN.match(text):
            self._site_left = site_reports.LINES
            return True
        if not self._site_left:
            return False
        self._site_left -= 1
        return text[:2] == "  " or text == site_reports.END

    def _begin(self, text: str, rank: str | None) -> None:
        """A traceback begins, of its own or as the next link of a chain."""
        before = self._traceback
        if rank is None:
            fatal = before is not None and before.fatal
            self._traceback = _Traceback(before.rank if before else "", fatal)
        else:
            self._traceback = _Traceback(rank, _HIT.match(text) is not None)

    def _in_traceback(self, t: float, text: str, traceback: _Traceback) -> bool:
        """Whether the line belongs to the exception that ends the traceback."""
        if not traceback.message_left:
            if text[:1] in (" ", "\t", "^", "|", "+"):
                traceback.frames += 1
                traceback.doing |= deeds(text)
                return False
            if not text.strip():
                return False
            if _EXCEPTION.match(text) or traceback.frames:
                traceback.message_left = _MESSAGE_LINES
                self._exception(t, text, traceback)
                return True
            self._traceback = None
            return False
        traceback.message_left -= 1
        if text.startswith(("The above exception was", "During handling of the above")):
            return False
        died = _DIED.search(text)
        if died:
            self._exception(t, text, traceback)
        elif self.exceptions and not self.exceptions[-1].detail and _DECIDING.search(text):
            self.exceptions[-1] = replace(self.exceptions[-1], detail=text)
        if not traceback.message_left:
            self._traceback = None
        return True

    def _exception(self, t: float, text: str, traceback: _Traceback) -> None:
        died = _DIED.search(text)
        if died:
            self._said(Crash(t, "rank", text, int(died[2])))
        if len(self.exceptions) < _KEEP:
            self.exceptions.append(Raised(t, traceback.rank, text, traceback.fatal))

    def _message(self, t: float, text: str, rank: str) -> None:
        """A message of the engine's logger that reports a crash."""
        if self._traceback is not None and self._traceback.message_left:
            self._traceback = None
        if _HIT.match(text):
            self._said(Crash(t, "exception", f"{rank + ': ' if rank else ''}{text}"))
            return
        crashed = _CRASHED.match(text) or _TERMINATED.match(text)
        if crashed:
            self._said(Crash(t, "rank", text, int(crashed[2])))
        elif _DEAD.match(text):
            self._said(Crash(t, "rank", text))
        elif text.startswith("Exit code: ") and self.crash and self.crash.source == "rank":
            code = _CODE.fullmatch(text)
            if code:
                self.sign(Crash(t, "rank", text, int(code[1])))
        elif text.startswith(("Received sigquit from a child", "SIGQUIT received")):
            self._said(Crash(t, "child", text))
        elif text.startswith(_NO_TOKENIZER):
            self.no_tokenizer = text
        elif text.startswith("Initialization failed. warmup error"):
            self._said(Crash(t, "warmup", text))
