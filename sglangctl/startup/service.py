"""Does the engine answer, is the answer its own, and when did it stop answering.

Identity: socket events say who owns the port; without them the engine's own "Uvicorn running
on" does. An answer that was asked for before our own process had bound the port is someone
else's. An open port, /v1/models, /model_info and /ready are not readiness: they answer 200 while
the engine still warms up. /server_info says nothing here: it waits for the scheduler.

Health of an idle engine: /health sends one token through every process, so that a failure of
it means what it says. Under load a long prefill delays it by minutes: then tokens count.
"""

from __future__ import annotations

from typing import Any

from sglangctl.state.config import Limits
from sglangctl.util.values import digits, number, text, whole

_HEALTH = ("/health", "/health_generate")
STOPPING_S = 2.0
"""After its own word that it stops it may still answer this long."""
WORKING_S = 15.0
"""A sign of work counts for this long."""


class Service:
    """The port and the answers from it."""

    def __init__(self) -> None:
        self.bound_t: float | None = None
        """When our own process was first known to listen."""
        self.bound_by_log = False
        self.socket_known = False
        self.ours: bool | None = None
        """Whether the port is the engine's, by the last socket event; None: unknown."""
        self.owner: int | None = None
        self.answered_unidentified = False
        """Something answered on the port that may not be the engine."""
        self.held_t: float | None = None
        """Since when somebody else listens on the port ..."""
        self.held_by = ""
        """... and who."""
        self.good_t: float | None = None
        """When the last good answer became known."""
        self.proof = ""
        self.failed = 0
        """Health probes that failed since the last good one."""
        self.engine_says_dead = False
        """The engine's own health check failed (20 s without any answer)."""
        self.stopping = False
        """It says that it stops ..."""
        self.stopping_t = 0.0
        """... since when."""
        self.loaded = False
        """Clients' work was under way when it was last reported."""
        self.clients_t: float | None = None
        """When a client's connection was last seen."""
        self.tokens_t = 0.0
        """When tokens last moved."""
        self.models: tuple[str, ...] | None = None

    @property
    def identified(self) -> bool:
        """The port is known to be the engine's."""
        if self.socket_known and self.ours is not None:
            return self.ours
        return self.bound_by_log

    @property
    def identity(self) -> str:
        """By what it is known, for the evidence."""
        if self.socket_known and self.ours:
            return f"the port's owner (pid {self.owner}) is in this engine's unit"
        return 'the port is the engine\'s by its own line "Uvicorn running on" (no socket event)'

    @staticmethod
    def port_matches(message: str, port: int | None) -> bool:
        """Whether "Uvicorn running on http://H:P (..." names our port; yes where unknown."""
        address = message[len("Uvicorn running on ") :].split(" ", 1)[0]
        found = address.rpartition(":")[2].strip("/")
        return port is None or digits(found) in (None, port)

    def bound(self, t: float) -> None:
        """The engine's own line says that it listens."""
        self.bound_by_log = True
        if self.bound_t is None:
            self.bound_t = t

    def held(self, now: float, limit_s: float) -> str | None:
        """Who else has had the port all the time for `limit_s`, before the engine bound it."""
        if self.held_t is None or self.bound_t is not None or now - self.held_t < limit_s:
            return None
        return self.held_by

    def socket(self, t: float, event: dict[str, Any], port: int | None) -> bool:
        """A socket event; whether it newly shows that the port is the engine's."""
        number_of = whole(event.get("port"))
        if port is not None and number_of is not None and number_of != port:
            return False
        ours = event.get("ours")
        self.socket_known = True
        self.owner = whole(event.get("owner_pid"))
        self.ours = ours if isinstance(ours, bool) else None
        if self.owner is None and "owner_pid" in event:
            self.ours = False
        listens = self.owner is not None or "owner_pid" not in event
        if ours is False and listens:
            self.held_t = t if self.held_t is None else self.held_t
            self.held_by = text(event.get("owner")) or f"pid {self.owner or 'unknown'}"
        elif self.owner is None or ours:
            self.held_t = None
        if self.ours and self.bound_t is None:
            self.bound_t = t
            return True
        return False

    def http(self, t: float, event: dict[str, Any], served: bool) -> bool:
        """An HTTP probe; whether it is a good answer of the engine."""
        path = (text(event.get("path")) or "").partition("?")[0]
        status = whole(event.get("status"))
        # By the event's own time: the fold's may be ahead of it (a clock that ticked before).
        known = number(event.get("t"))
        asked = (t if known is None else known) - max(0.0, number(event.get("seconds")) or 0.0)
        if path == "/v1/models":
            self.list_models(event)
        clients = number(event.get("clients"))
        if clients is not None and clients > 0:
            self.clients_t = t
        elif clients == 0:
            # Nobody waits for anything: the last batch's clients have gone since.
            self.loaded = False
        if path not in _HEALTH:
            return False
        if status == 200:
            if not self.identified or self.bound_t is None or asked < self.bound_t - 0.001:
                self.answered_unidentified = not served
                if served and not self.identified and not self.stopping:
                    # Another process has the port now: not the engine's answer.
                    self.failed += 1
                return False
            if asked > self.stopping_t + STOPPING_S:
                self.stopping = False  # a client's words in the log: what stops does not answer
            self.good(t, f"{path} answered 200")
            return True
        if served and not self.stopping:
            self.failed += 1
            if status == 503 and (number(event.get("seconds")) or 0.0) >= 15.0:
                self.engine_says_dead = True
        return False

    def stops(self, t: float) -> None:
        """A line of the log says that it stops."""
        self.stopping, self.stopping_t = True, t

    def engine_failed(self, t: float) -> None:
        """The engine's own line: no answer from the detokenizer for 20 s."""
        if not self.stopping:
            self.engine_says_dead = True
            self.failed = max(self.failed, 1)

    def list_models(self, event: dict[str, Any]) -> None:
        """The ids that the port serves, where an event names them."""
        if isinstance(event.get("models"), list):
            self.models = tuple(name for name in event["models"] if isinstance(name, str))

    def good(self, t: float, proof: str) -> None:
        """A good answer of the engine."""
        self.good_t, self.proof = t, proof
        self.failed = 0
        self.engine_says_dead = False

    def batch(self, t: float, line: str) -> None:
        """A "Prefill batch" or "Decode batch" line: clients' tokens moved.

        It is written when the batch is done, so that the first part of a long prefill does not
        show here. Our own health probes are one sequence of one token: no work, and no sign
        of life either, for a dead detokenizer does not keep the scheduler from them.
        """
        fields = dict(
            part.split(": ", 1) for part in line.partition(", ")[2].split(", ") if ": " in part
        )

        def count(name: str) -> int:
            return digits(fields.get(name, "")) or 0

        work = (
            count("#running-req")
            + count("#queue-req")
            + count("#pending-token")
            + max(0, count("#new-seq") - 1)
            + max(0, count("#new-token") - 1)
        )
        self.loaded = work > 0
        if work:
            self.tokens_t = t

    def silent(self, t: float, limits: Limits, working_t: float | None) -> bool:
        """Whether it counts as unresponsive at `t`.

        working_t: when there was last a sign that it computes (GPUs busy, several cores, open
        client connections), None without any. Idle: a failed probe and `unresponsive_idle_s`
        without a good answer. Loaded: two failed probes and no token for
        `unresponsive_busy_s`.
        """
        if self.good_t is None or self.stopping or not self.failed:
            return False
        loaded = self.loaded or (
            working_t is not None and working_t > max(self.good_t + 1.5, t - WORKING_S)
        )
        if loaded:
            moved = max(self.tokens_t, self.good_t)
            return self.failed >= 2 and t - moved >= limits.unresponsive_busy_s
        return t - max(self.good_t, self.tokens_t) >= limits.unresponsive_idle_s
