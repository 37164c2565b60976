"""What an engine must prove to be ready: every condition, and the decision. Pure, no I/O.

`sglangctl verify` fills the facts by looking now; the fold of a start fills them from the journal.
Both ask `decide`. Unknown is not negative: an unknown fact is None. verify answers "could not
check" where a required fact is unknown. The fold, which sees a start bit by bit, ignores it.
"""

from __future__ import annotations

from dataclasses import dataclass

from sglangctl.state.config import EngineConfig


@dataclass(frozen=True)
class Expected:
    """What is declared; None: not known (the fold of an incomplete journal)."""

    port: int | None
    served_name: str | None
    ranks: int | None
    """Schedulers of one replica on this host."""
    speculative: bool
    """Speculative decoding is declared: two more checks."""
    algorithm: str
    """Its algorithm, as declared; empty: not known."""
    min_accept_length: float

    @classmethod
    def of(cls, config: EngineConfig) -> Expected:
        drafter = config.drafter
        return cls(
            port=config.port,
            served_name=config.served_name,
            ranks=config.tensor_parallel,
            speculative=drafter is not None,
            algorithm=drafter.algorithm if drafter else "",
            min_accept_length=config.readiness.min_accept_length,
        )


@dataclass(frozen=True)
class Facts:
    """What is known of a running engine; None: unknown."""

    main_alive: bool | None = None
    port_ours: bool | None = None
    """The listening socket's owner is one of the engine's processes, started after its launch."""
    port_owner: str | None = None
    """Its owner, as text."""
    health: int | None = None
    health_error: str | None = None
    served_models: tuple[str, ...] | None = None
    ranks_alive: int | None = None
    ranks_wrong: tuple[str, ...] = ()
    """Ranks or the detokenizer that are stopped or dead, as text."""
    generation_ok: bool | None = None
    generation_fault: str | None = None
    speculative: str | None = None
    """The algorithm that runs; "" for none; None: not known."""
    speculative_faults: tuple[str, ...] = ()
    """What differs from the declared drafter, as text."""
    accept_length: float | None = None
    accept_source: str = ""
    paths: str | None = None
    """What the watch found when it walked the users' paths in this start, in words; None: not
    known."""
    paths_fault: str = ""
    """Which of them does not work."""
    paths_slow: tuple[str, ...] = ()
    load: str | None = None
    """What the load of the acceptance showed, in words; None: none was measured in this start."""
    load_worse: tuple[str, ...] = ()
    load_fails: bool = False
    """The inventory wants a slower engine refused."""


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


def decide(expected: Expected, facts: Facts) -> Decision:
    """The checks, in the order in which a failure explains those after it."""
    checks = [
        Check("main process", facts.main_alive, _yes(facts.main_alive, "runs", "does not run")),
        Check("port", facts.port_ours, facts.port_owner or f"owner of {expected.port} unknown"),
        _ranks(expected, facts),
        Check("health", _is_200(facts), _health(facts)),
        _model(expected, facts),
        Check(
            "generation",
            facts.generation_ok,
            facts.generation_fault or _yes(facts.generation_ok, "sane text", "no sane text"),
        ),
    ]
    if facts.paths is not None:
        checks.append(_paths(facts, facts.paths))
    if facts.load is not None:
        worse = "; ".join(facts.load_worse)
        degrades = not facts.load_fails
        checks.append(Check("acceptance", not worse, worse or facts.load, degrades=degrades))
    if expected.speculative:
        checks += [_speculation(expected, facts), _acceptance(expected, facts)]
    hard = [check for check in checks if not check.degrades]
    if any(check.passed is not True for check in hard):
        return Decision(None, tuple(checks))
    degraded = any(check.passed is False for check in checks)
    return Decision("degraded" if degraded else "ready", tuple(checks))


def _ranks(expected: Expected, facts: Facts) -> Check:
    if facts.ranks_wrong:
        return Check("ranks", False, ", ".join(facts.ranks_wrong))
    if facts.ranks_alive is None or expected.ranks is None:
        return Check("ranks", None, "the engine's processes are not visible")
    found = f"{facts.ranks_alive} of {expected.ranks} ranks alive"
    return Check("ranks", facts.ranks_alive >= expected.ranks, found)


def _model(expected: Expected, facts: Facts) -> Check:
    if facts.served_models is None or expected.served_name is None:
        return Check("model", None, "/v1/models gave no answer")
    serves = f"serves {', '.join(facts.served_models) or 'none'}"
    if expected.served_name in facts.served_models:
        return Check("model", True, serves)
    return Check("model", False, f"{serves}, not {expected.served_name}")


def _paths(facts: Facts, walked: str) -> Check:
    if facts.paths_fault:
        return Check("paths", False, facts.paths_fault)
    if facts.paths_slow:
        return Check("paths", False, "; ".join(facts.paths_slow), degrades=True)
    return Check("paths", True, walked)


def _speculation(expected: Expected, facts: Facts) -> Check:
    name = "speculative decoding"
    if facts.speculative is None:
        return Check(name, None, "/server_info does not tell", degrades=True)
    if not facts.speculative:
        declared = expected.algorithm or "a drafter"
        return Check(name, False, f"off, declared is {declared}", degrades=True)
    if facts.speculative_faults:
        return Check(name, False, "; ".join(facts.speculative_faults), degrades=True)
    return Check(name, True, f"{facts.speculative}, as declared", degrades=True)


def _acceptance(expected: Expected, facts: Facts) -> Check:
    name, floor = "accept length", expected.min_accept_length
    if facts.accept_length is None:
        return Check(name, None, f"cannot tell: {facts.accept_source}", degrades=True)
    source = f"; from {facts.accept_source}" if facts.accept_source else ""
    found = f"{facts.accept_length:.2f} (floor {floor:g}{source})"
    return Check(name, facts.accept_length >= floor, found, degrades=True)


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
