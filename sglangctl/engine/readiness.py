"""From facts to `ready`, `degraded` or neither: the pure decision, no I/O.

Unknown is not negative: a fact that could not be had is None. A fact that `ready` rests on and
that is unknown makes the answer "could not check", not "ready" and not "broken".
"""

from __future__ import annotations

from dataclasses import dataclass

from sglangctl.state.config import EngineConfig


@dataclass(frozen=True)
class Facts:
    """What was found out about a running engine; None everywhere: could not be found out."""

    main_alive: bool | None = None
    port_ours: bool | None = None
    """The listening socket's owner is one of the engine's processes, started after its launch."""
    port_owner: str | None = None
    """Who owns it, in words."""
    health: int | None = None
    health_error: str | None = None
    served_models: tuple[str, ...] | None = None
    ranks_alive: int | None = None
    ranks_wrong: tuple[str, ...] = ()
    """Ranks or the detokenizer that are stopped or dead, in words."""
    generation_ok: bool | None = None
    generation_fault: str | None = None
    speculative: str | None = None
    """The algorithm that runs; "" for none; None: not known."""
    speculative_faults: tuple[str, ...] = ()
    """What differs from the inventory's drafter, in words."""
    accept_length: float | None = None
    accept_source: str = ""


@dataclass(frozen=True)
class Check:
    """One line of the proof. `passed` None: could not be checked."""

    name: str
    passed: bool | None
    detail: str
    degrades: bool = False
    """A failure makes the engine degraded, not unready; an unknown leaves it ready."""


@dataclass(frozen=True)
class Decision:
    """`outcome`: ready, degraded, or None when it is neither (then `first` says why)."""

    outcome: str | None
    checks: tuple[Check, ...]

    @property
    def failed(self) -> tuple[Check, ...]:
        return tuple(check for check in self.checks if check.passed is False)

    @property
    def unknown(self) -> tuple[Check, ...]:
        """Checks that `ready` rests on and that could not be made."""
        return tuple(check for check in self.checks if check.passed is None and not check.degrades)

    @property
    def first(self) -> Check | None:
        """The check that decided against `ready`."""
        return next(iter(self.failed or self.unknown), None)


def decide(config: EngineConfig, facts: Facts) -> Decision:
    """The proof of an engine, check by check, in the order in which a failure explains the rest."""
    checks = [
        Check("main process", facts.main_alive, _yes(facts.main_alive, "runs", "does not run")),
        Check("port", facts.port_ours, facts.port_owner or f"owner of {config.port} unknown"),
        _ranks(config, facts),
        Check("health", _is_200(facts), _health(facts)),
        _model(config, facts),
        Check(
            "generation",
            facts.generation_ok,
            facts.generation_fault or _yes(facts.generation_ok, "sane text", "no sane text"),
        ),
    ]
    if config.drafter is not None:
        checks += [_speculation(config, facts), _acceptance(config, facts)]
    hard = [check for check in checks if not check.degrades]
    if any(check.passed is not True for check in hard):
        return Decision(None, tuple(checks))
    degraded = any(check.passed is False for check in checks)
    return Decision("degraded" if degraded else "ready", tuple(checks))


def _ranks(config: EngineConfig, facts: Facts) -> Check:
    expected = config.tensor_parallel
    if facts.ranks_wrong:
        return Check("ranks", False, ", ".join(facts.ranks_wrong))
    if facts.ranks_alive is None:
        return Check("ranks", None, "processes could not be looked at")
    return Check(
        "ranks", facts.ranks_alive >= expected, f"{facts.ranks_alive} of {expected} ranks alive"
    )


def _model(config: EngineConfig, facts: Facts) -> Check:
    if facts.served_models is None:
        return Check("model", None, "/v1/models gave no answer")
    served = ", ".join(facts.served_models) or "none"
    return Check("model", config.served_name in facts.served_models, f"serves {served}")


def _speculation(config: EngineConfig, facts: Facts) -> Check:
    declared = config.drafter.algorithm if config.drafter else ""
    name = "speculative decoding"
    if facts.speculative is None:
        return Check(name, None, "/server_info does not tell", degrades=True)
    if not facts.speculative:
        return Check(name, False, f"off, declared is {declared}", degrades=True)
    if facts.speculative_faults:
        return Check(name, False, "; ".join(facts.speculative_faults), degrades=True)
    return Check(name, True, f"{facts.speculative}, as declared", degrades=True)


def _acceptance(config: EngineConfig, facts: Facts) -> Check:
    floor = config.readiness.min_accept_length
    if facts.accept_length is None:
        return Check("accept length", None, f"cannot tell: {facts.accept_source}", degrades=True)
    return Check(
        "accept length",
        facts.accept_length >= floor,
        f"{facts.accept_length:.2f} (floor {floor:g}; from {facts.accept_source})",
        degrades=True,
    )


def _health(facts: Facts) -> str:
    if facts.health is not None:
        return f"/health answers {facts.health}"
    return f"/health: {facts.health_error or 'not asked'}"


def _is_200(facts: Facts) -> bool | None:
    """No answer at all is a no, not an unknown."""
    if facts.health is None:
        return False if facts.health_error else None
    return facts.health == 200


def _yes(value: bool | None, yes: str, no: str) -> str:
    return "not known" if value is None else yes if value else no
