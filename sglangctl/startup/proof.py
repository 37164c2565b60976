"""Results of our own generations."""

from __future__ import annotations

from typing import Any

from sglangctl.util.values import number, printable, text, texts, whole

_HUNG_S = 20.0
"""A generation without an answer for this long has not been answered."""


class Proof:
    """Results of our own generations."""

    def __init__(self) -> None:
        self.ok: bool | None = None
        """The last answer's text was sane; None: unknown."""
        self.came = False
        """A generation came back with status 200."""
        self.hung = False
        """The last one was not answered."""
        self.model: str | None = None
        self.accept_length: float | None = None
        self.accept_source = ""
        self.speculative: str | None = None
        """The algorithm that runs, "" for none; None: unknown."""
        self.faults: tuple[str, ...] = ()
        """What differs from the drafter that was declared."""
        self.error = ""

    def feed(self, t: float, event: dict[str, Any]) -> bool:
        """Take a generate event; whether it came back well."""
        status = whole(event.get("status"))
        seconds = number(event.get("seconds")) or 0.0
        self.hung = status is None and seconds >= _HUNG_S
        if status != 200:
            reason = text(event.get("error")) or f"status {status}"
            self.error = f"the last generation failed: {printable(reason)}"
            return False
        ok = event.get("text_ok")
        self.came, self.ok, self.error = True, ok if isinstance(ok, bool) else None, ""
        self.model = text(event.get("model")) or self.model
        self.accept_length = number(event.get("accept_length"))
        self.accept_source = text(event.get("accept_source")) or ""
        self.speculative = text(event.get("speculative"))
        self.faults = tuple(texts(event.get("speculative_faults")))
        if self.ok is False:
            fault = text(event.get("fault")) or "its text makes no sense"
            self.error = f"the last generation failed its check: {printable(fault)}"
        return True
