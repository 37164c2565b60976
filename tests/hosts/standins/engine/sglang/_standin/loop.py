"""Rank 0's event loop while it serves: prefill in chunks, decode in steps."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sglang._standin import options
from sglang._standin.capture import compile_kernels

if TYPE_CHECKING:
    from sglang._standin.rank import Starter


@dataclass
class Work:
    """One request in progress."""

    rid: str
    words: list[str]
    prompt_tokens: int
    max_tokens: int
    prefilled: int = 0
    produced: int = 0
    owed: float = 0.0
    steps: int = 0

    @property
    def finish(self) -> str | None:
        if self.produced >= self.max_tokens:
            return "length"
        return "stop" if self.produced >= len(self.words) else None


class Loop:
    """One rank while it serves; ranks other than 0 only keep step."""

    def __init__(self, rank: Starter) -> None:
        self.rank = rank
        self.wiring = rank.wiring
        self.log = rank.log
        self.work: list[Work] = []
        self.health: list[str] = []
        self.started = time.monotonic()
        self.rate = options.number("TOKENS_PER_S", 400)
        self.prefill_rate = options.number("PREFILL_TOKENS_PER_S", 100_000)
        speculative = bool(rank.args.speculative_algorithm)
        self.accept = options.number("ACCEPT_LENGTH", 2.6) if speculative else 1.0
        self.speculative = speculative
        self.totals = {"tokens": 0, "steps": 0}
        self.struck = False
        self.jit_s = options.number("JIT_AGAIN_S", 0)
        self.seen: set[tuple[int, str]] = set()

    def run(self) -> None:
        while True:
            if not self.struck:
                self._maybe_strike()
            if self.wiring.leader:
                self._follow(self.wiring.leader)
                continue
            assert self.wiring.requests is not None
            while self.wiring.requests.poll(0 if self.work else 0.25):
                if not self._take(self.wiring.requests.recv()):
                    return
                if self.work:
                    break
            self._step()

    def _maybe_strike(self) -> None:
        if time.monotonic() - self.started >= options.number("FAULT_AFTER_S", 0):
            self.struck = True
            self.rank.strike("serving")

    def _follow(self, leader: Any) -> None:
        if leader.poll(0.25):
            leader.send(leader.recv())

    def _together(self) -> None:
        """A collective: every rank must take part."""
        for connection in self.wiring.followers:
            connection.send("step")
        for connection in self.wiring.followers:
            connection.recv()

    def _take(self, message: dict[str, Any]) -> bool:
        """Handle one message; False ends the process."""
        kind = message["kind"]
        if kind == "shutdown":
            return False
        if kind == "abort":
            self.work = [work for work in self.work if work.rid != message["rid"]]
        elif kind == "info":
            assert self.wiring.control is not None
            self.wiring.control.send({"id": message["id"], "state": self._state()})
        elif kind == "generate":
            if message["health"] and self.work:
                # A busy engine answers a health check with its next batch.
                self.health.append(message["rid"])
            else:
                rid, words = message["rid"], message["words"]
                if not message["health"]:
                    self._compile_for_cached(message["prompt_tokens"], "".join(words))
                limits = (message["prompt_tokens"], message["max_tokens"])
                self.work.append(Work(rid, words, *limits))
        return True

    def _compile_for_cached(self, tokens: int, answer: str) -> None:
        """Kernels of a path that is walked first when a prompt comes for the second time."""
        key = (tokens, answer[:8])
        if key in self.seen and self.jit_s:
            compile_kernels(self.jit_s, busy=True)
            self.jit_s = 0.0
        self.seen.add(key)

    def _state(self) -> dict[str, Any]:
        state: dict[str, Any] = {"last_gen_throughput": self.rate, "memory_usage": {}}
        state["effective_max_running_requests_per_dp"] = 2048
        if self.speculative and self.totals["steps"]:
            state["avg_spec_accept_length"] = self.totals["tokens"] / self.totals["steps"]
        return state

    def _step(self) -> None:
        if not self.work:
            return
        self._together()
        self.rank.report(self.rank.memory.used, 90)
        waiting = [work for work in self.work if work.prefilled < work.prompt_tokens]
        if waiting:
            self._prefill(waiting[0])
        else:
            self._decode()
        for rid in self.health:
            self._send(rid, [], "length", {})
        self.health = []
        self.work = [work for work in self.work if work.finish is None]
        if not self.work:
            self.rank.report(self.rank.memory.used, 0)

    def _prefill(self, work: Work) -> None:
        chunk = min(work.prompt_tokens - work.prefilled, self.rank.args.chunked_prefill_size)
        end = time.monotonic() + chunk / self.prefill_rate
        while time.monotonic() < end:
            sum(range(20_000))
            time.sleep(min(0.02, max(0.0, end - time.monotonic())))
        work.prefilled += chunk
        self.log.line(
            f"Prefill batch, #new-seq: 1, #new-token: {chunk}, #cached-token: 0, token usage: "
            f"0.00, #running-req: {len(self.work) - 1}, #queue-req: 0, #pending-token: "
            f"{work.prompt_tokens - work.prefilled}, input throughput (token/s): "
            f"{self.prefill_rate:.2f}"
        )

    def _decode(self) -> None:
        time.sleep(self.accept / self.rate)
        for work in self.work:
            work.owed += self.accept
            count = max(1, int(work.owed))
            count = min(count, work.max_tokens - work.produced, len(work.words) - work.produced)
            work.owed -= count
            words = work.words[work.produced : work.produced + count]
            work.produced += count
            work.steps += 1
            self.totals["tokens"] += count
            self.totals["steps"] += 1
            if work.steps % 40 == 0:
                self._log_decode(work)
            self._send(work.rid, words, work.finish, self._stats(work))

    def _log_decode(self, work: Work) -> None:
        spec = ""
        if self.speculative:
            spec = f"accept len: {self.accept:.2f}, accept rate: {(self.accept - 1) / 3:.2f}, "
        self.log.line(
            f"Decode batch, #running-req: {len(self.work)}, #token: "
            f"{work.prompt_tokens + work.produced}, token usage: 0.00, {spec}cuda graph: True, "
            f"gen throughput (token/s): {self.rate:.2f}, #queue-req: 0"
        )

    def _stats(self, work: Work) -> dict[str, Any]:
        stats: dict[str, Any] = {"completion_tokens": work.produced}
        if self.speculative:
            stats["spec_verify_ct"] = work.steps
            stats["spec_accept_length"] = work.produced / work.steps
            drafted = work.steps * ((self.rank.args.speculative_num_draft_tokens or 4) - 1)
            right = max(0, work.produced - work.steps)
            stats["spec_accept_rate"] = right / max(1, drafted)
            stats["spec_num_correct_drafts"] = right
            stats["spec_num_proposed_drafts"] = drafted
        return stats

    def _send(self, rid: str, words: list[str], finish: str | None, stats: dict[str, Any]) -> None:
        assert self.wiring.tokens is not None
        self.wiring.tokens.send({"rid": rid, "words": words, "finish": finish, "stats": stats})
