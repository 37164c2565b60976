"""What our own generations prove: ready, degraded, or neither, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sglangctl.util.values import number, printable, text, whole

if TYPE_CHECKING:
    from sglangctl.startup.fold import Startup

_HUNG_S = 20.0
"""A generation without an answer for this long has not been answered."""


class Proof:
    """What our own generations showed."""

    def __init__(self) -> None:
        self.ok: bool | None = None
        """The last answer's text was sane; None: unknown."""
        self.came = False
        """A generation came back with status 200."""
        self.hung = False
        """The last one was not answered."""
        self.model: str | None = None
        self.accept_length: float | None = None
        self.speculative: str | None = None
        """The algorithm that runs, "" for none; None: unknown."""
        self.faults: tuple[str, ...] = ()
        """What differs from the drafter that was declared."""
        self.tokens_per_s: float | None = None
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
        self.speculative = text(event.get("speculative"))
        faults = event.get("speculative_faults")
        self.faults = (
            tuple(x for x in faults if isinstance(x, str)) if isinstance(faults, list) else ()
        )
        self.tokens_per_s = number(event.get("tokens_per_s"))
        if self.ok is False:
            fault = text(event.get("fault")) or "its text makes no sense"
            self.error = f"the last generation is not as it should be: {printable(fault)}"
        return True


def not_ready(s: Startup) -> str:
    """Why a good generation does not make it ready yet; empty when it does."""
    wanted = s.launched.served_name
    found = s.service.models if s.service.models is not None else s.proof.model and (s.proof.model,)
    if wanted and found and wanted not in found:
        return f"the port serves {', '.join(map(printable, found))}, not {printable(wanted)}"
    world = s.launched.world
    if s.ranks.seen and s.ranks.alive and world is not None and s.ranks.alive < world:
        return f"{s.ranks.alive} of {world} ranks are alive"
    return ""


def degraded(s: Startup) -> tuple[str, ...]:
    """What should be better about a start that is proven to serve."""
    if not s.launched.speculative:
        return ()
    proof = s.proof
    found: list[str] = []
    if proof.speculative == "":
        declared = printable(s.launched.algorithm or "a drafter")
        found.append(f"speculative decoding is off, declared is {declared}")
    found += [f"speculative decoding: {printable(fault)}" for fault in proof.faults]
    accept, floor = proof.accept_length, s.launched.min_accept_length
    if accept is not None and accept < floor:
        found.append(f"accept length {accept:.2f} is below {floor:g}: the drafter is of no use")
    return tuple(found)
