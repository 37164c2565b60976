"""Operations that find out whether an engine serves. None of them changes a host."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from pyinfra.api import FunctionCommand, Host, State
from pyinfra.context import host

from roles.readiness import follow, results
from roles.readiness.subject import Subject
from roles.remote import follow as remote_follow
from roles.remote.failing import HostFailed, checked, say
from roles.remote.follow import CannotFollow, Reply
from roles.remote.interrupt import interruptible
from roles.remote.link import Link
from roles.remote.operation import Commands, operation
from roles.remote.over_link import or_interrupted, over_link
from roles.remote.steps import signs_of_life
from roles.report.result import Result, known, record

PROOF_S = 60.0
"""Of `sglangctl verify` beyond its generation."""


@operation(is_idempotent=False)
def serving(
    subject: Subject,
    settled: Callable[[], bool],
    sudo: bool = False,
    then: Callable[[], Sequence[str]] | None = None,
) -> Commands:
    """
    Follow an engine's start until it serves, then have it prove that with a generation.

    Fails this host alone: with the cause, the log lines that show it and the next step. A lost
    link and Ctrl-C leave the work on the host alone.

    + subject: the engine
    + settled: whether it serves, has proved it, and nothing of it changes in this run
    + sudo: whether sglangctl needs it on this host
    + then: the arguments of a `sglangctl` that is called once the engine is ready

    **Example:**

    .. code:: python

        serving(
            name="Wait for kimi",
            subject=Subject("kimi", "sglang-kimi.service", "kimi-k2.5", 8000),
            settled=lambda: False,
        )
    """
    if settled():
        host.noop(f"{subject.name} serves, and nothing of it was changed")
        return

    def run(link: Link) -> None:
        target = link.host
        followed = follow_start(link, subject, lambda line: say(target, line))
        if followed.reason in ("served", "blind"):
            result = results.with_start(proof(link, subject), followed)
        else:
            result = results.of_start(subject, followed)
        conclude(target, result)
        if then is not None:
            answer = link.run(*subject.program, *then())
            if not answer.ok:
                raise HostFailed("\n".join(answer.errors or answer.lines))

    yield proving(run, [subject], sudo)


@operation(is_idempotent=False)
def proved(subjects: Sequence[Subject], sudo: bool = False) -> Commands:
    """
    Have engines prove that they serve: port, ranks, health, model, and a generation.

    + subjects: the engines of the host; each one is asked, whatever the others answer
    + sudo: whether sglangctl needs it on this host
    """

    def run(link: Link) -> None:
        target = link.host
        failures = []
        for subject in subjects:
            try:
                conclude(target, proof(link, subject))
            except HostFailed as failure:
                record_unknown(target, subject, str(failure))
                failures.append(str(failure))
        if failures:
            raise HostFailed("\n".join(failures))

    yield proving(run, subjects, sudo)


@operation(is_idempotent=False)
def reached(subject: Subject, settled: Callable[[], bool]) -> Commands:
    """
    Check from the controller that clients can reach an engine, where the inventory says how.

    + subject: the engine; its `reachable_at` is asked for its models
    + settled: whether nothing of it changes in this run
    """
    if subject.reachable_at is None or settled():
        host.noop(f"{subject.name} is not asked from here")
        return

    def run(state: State, host: Host) -> None:
        # With an HTTP client, which most runs have no use for.
        from roles.readiness.reachable import reach

        before = known(host, subject.name)
        with interruptible():
            found = reach(subject, proven=before is not None and before.exit == 0)
        if found is None:
            return
        if before is not None:
            record(host, replace(before, reachable=found.ok))
        if not found.ok:
            raise HostFailed(f"{subject.name}: {found.sentence}; the engine itself is up")
        say(host, f"{subject.name}: {found.sentence}")

    yield FunctionCommand(checked(or_interrupted(run, interrupted())), (), {})


def follow_start(link: Link, subject: Subject, tell: Callable[[str], None]) -> follow.FollowResult:
    """The end of the engine's start, told line by line."""

    def ask(start: str | None, offset: int, wait_s: float) -> Reply:
        argv = [*subject.program, "journal", subject.name, "--unit"]
        argv += ["--start", start] if start else []
        try:
            return remote_follow.ask(link, argv, offset, wait_s)
        except HostFailed as failure:
            raise HostFailed(unanswered(subject, [str(failure)])) from None

    try:
        return follow.Follower(subject, ask, tell).run()
    except CannotFollow as error:
        raise HostFailed(f"{subject.name}: {error}") from None


def proof(link: Link, subject: Subject) -> Result:
    """What `sglangctl verify` finds; its exit status is in its document."""
    wait_s = subject.limits.generate_timeout_s + PROOF_S
    with signs_of_life(link.host, f"{subject.name}: proof by a generation"):
        answer = link.run(*subject.program, "verify", subject.name, "--json", wait_s=wait_s)
    try:
        return results.of_verify(subject, answer.lines)
    except results.Unusable as error:
        if answer.errors:
            raise HostFailed(unanswered(subject, answer.errors)) from None
        raise HostFailed(str(error)) from None


def unanswered(subject: Subject, errors: Sequence[str]) -> str:
    """A sentence for a sglangctl that could not do what it was asked for."""
    said = "\n".join(errors) or "sglangctl ended without an answer"
    return f"{subject.name} could not be looked at: {said}"


def conclude(target: Host, result: Result) -> None:
    """Keep and print the result; HostFailed when the engine is not ready or cannot be checked."""
    record(target, result)
    lines = results.lines(result)
    if result.exit:
        raise HostFailed("\n".join(lines))
    for number, line in enumerate(lines):
        say(target, line, fg="green" if number == 0 and result.outcome == "ready" else None)


def proving(
    run: Callable[[Link], None], subjects: Sequence[Subject], sudo: bool
) -> FunctionCommand:
    """A command over a link; an engine of which nothing was found out is in the report too."""

    def unknown(host: Host, sentence: str) -> None:
        for subject in subjects:
            record_unknown(host, subject, sentence)

    return over_link(run, sudo, interrupted(), unknown)


def record_unknown(target: Host, subject: Subject, sentence: str) -> None:
    """An engine of which nothing was found out is in the report too."""
    if known(target, subject.name) is None:
        record(target, Result(subject.name, None, exit=2, sentence=sentence))


def interrupted() -> str:
    """What Ctrl-C says."""
    return (
        "interrupted: the work continues on the host; look again with: "
        f"pyinfra inventory.py deploys/verify.py --limit {host.name}"
    )
