"""The last screen of a failure: what failed, what serves now, the way back, the evidence. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from roles.remote.shape import JSON
from sglangctl.diagnosis.outcomes import SERVED
from sglangctl.startup import render
from sglangctl.startup.render import clock
from sglangctl.util.terminal import cut, escaped
from sglangctl.util.values import number
from sglangctl.util.values import text as as_text

WIDTH = 240
"""Of what failed: a log line can have kilobytes."""
ALLOWED = "allowed by: "
"""Before the remedy of a refusal: see sglangctl/free/text.py."""
LEFT_ALONE = "what runs now was left alone"
"""Last line of a failure before anything of the live engine, or of what it replaces, was stopped."""
DEPLOY = "pyinfra inventory.py deploys/{}.py --limit {}"


@dataclass(frozen=True)
class Failure:
    """One host that failed."""

    host: str
    deploy: str
    """The deploy's name, without .py."""
    messages: Sequence[str]
    """As they were printed, in their order."""
    touched: bool
    """Whether operations were executed on it."""
    engines: Sequence[JSON] | None = None
    """What the host said of its engines afterwards (sglangctl status --json); None: nothing."""
    before: Sequence[str] = ()
    """Engines that have a release to go back to."""
    down: Sequence[str] = ()
    """Those of them that were down before this deploy did anything."""
    given: Sequence[str] = ()
    """What of --data this deploy was called with: `engine=old`. Without it the same command does more."""
    others: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Engine -> what of others serves again after its switch went back: `vllm.service serves`."""


def lines(failure: Failure, report: str | None) -> list[str]:
    """Four lines; `report` is the path of the report, None where it could not be written."""
    down = [one for one in failure.engines or () if not serves(one)]
    see = [report] if report else []
    if failure.engines is not None:
        names = [one["name"] for one in down] or [one["name"] for one in failure.engines]
        see += [f"on {failure.host}: sglangctl bundle {name}" for name in names[:3]]
    return [
        f"what failed: {escaped(what_failed(failure.messages))}",
        f"serves now:  {escaped(serving(failure))}",
        f"way back:    {escaped(way_back(failure, [one['name'] for one in down]))}",
        f"evidence:    {escaped('; '.join(see) or 'see above')}",
    ]


def what_failed(messages: Sequence[str]) -> str:
    """The first sentence of the first failure, and the log line that decided it."""
    texts = [line.strip() for message in messages[:1] for line in message.splitlines()]
    texts = [line for line in texts if line] or ["see above"]
    head = " ".join(texts[:2]) if texts[0].endswith(":") else texts[0]
    shown = next((line[1:].strip() for line in texts[1:] if line[:1] in "|>"), None)
    return cut(head if shown is None else f"{head} | {shown}", WIDTH)


def serves(engine: JSON) -> bool:
    return engine.get("outcome") in SERVED and engine.get("active") == "active"


def serving(failure: Failure) -> str:
    """What of others serves again, and each engine of the host: since when it serves, or not."""
    if not failure.touched:
        already = [f"{name} was down already" for name in failure.down]
        return "; ".join(["what served before: nothing was changed", *already])
    if failure.engines is None:
        return "unknown: the host could not be asked (sglangctl status)"
    again = others(failure)
    parts = [*again, *(of_engine(one) for one in failure.engines)]
    if not again and not any(serves(one) for one in failure.engines):
        alone = left_alone(failure)
        parts.insert(0, "what served before was left alone" if alone else "no engine of ours")
    return "; ".join(parts)


def left_alone(failure: Failure) -> bool:
    """Whether it failed before the switch: another team's service on the GPUs serves on."""
    return any(message.rstrip().endswith(LEFT_ALONE) for message in failure.messages[:1])


def others(failure: Failure) -> list[str]:
    return [f"{one} again" for found in failure.others.values() for one in found]


def of_engine(engine: JSON) -> str:
    """`chat since 02:56:10 UTC`, or what it is instead and whether systemd goes on."""
    name, since = engine["name"], clock(number(engine.get("since")))
    if serves(engine):
        return f"{name} since {since}"
    state = f"{engine.get('active') or 'unknown'}/{engine.get('sub') or 'unknown'}"
    text = f"{name} is {state}" + (f" since {since}" if engine.get("since") is not None else "")
    if engine.get("sub") == "auto-restart":
        tried, limit = number(engine.get("restarts")), number(engine.get("tries"))
        again = render.next_try(tried, limit, as_text(engine.get("retry")))
        return f"{text}; {again}"
    if engine.get("active") == "failed":
        return f"{text}; systemd does not try again"
    return text


def way_back(failure: Failure, down: Sequence[str]) -> str:
    """A command, or why none is needed."""
    given = [word for one in failure.given for word in ("--data", one)]
    deploy = " ".join([DEPLOY.format(failure.deploy, failure.host), *map(shlex.quote, given)])
    again = failure.deploy in ("stop", "remove")
    allowed = allowed_by(failure)
    needed = "" if failure.down and not failure.touched else "none is needed; "
    if allowed and (not failure.touched or not down or left_alone(failure)):
        return f"{needed}{allowed}, then: {deploy}"
    if again or (failure.deploy == "rollback" and not failure.touched):
        return f"again: {deploy}"
    if not failure.touched or failure.deploy in ("collective", "monitoring"):
        # All-reduces change nothing, and their engines are down because they have to be. Monitoring
        # touches no engine.
        return f"{needed}fix it, then: {deploy}"
    if failure.engines is None:
        return f"look at it when it answers: {DEPLOY.format('verify', failure.host)}"
    if failure.deploy == "rollback":
        # The same deploy would take those forward again that went back.
        return f"on {failure.host}: {one_by_one(down or ['NAME'])}"
    if not failure.engines:
        return f"none is needed: no engine was put on this host yet; fix it, then: {deploy}"
    if not down:
        return f"none is needed: every engine serves; fix it, then: {deploy}"
    if all(failure.others.get(name) for name in down):
        return f"none is needed: {', '.join(others(failure))}; fix it, then: {deploy}"
    back = [name for name in down if name in failure.before]
    if back and len(down) < len(failure.engines):
        return f"on {failure.host}: {one_by_one(back)}"  # the deploy would take all of them back
    if back:
        return DEPLOY.format("rollback", failure.host)
    alone = left_alone(failure)
    why = f"none is needed: {LEFT_ALONE}" if alone else "there is no release before this one"
    return f"{why}; fix it, then: {deploy}"


def allowed_by(failure: Failure) -> str:
    """What would end who is in the way: a command of the host, or what the inventory can say."""
    lines = (line for message in failure.messages[:1] for line in message.splitlines())
    found = next((line.partition(ALLOWED)[2] for line in lines if ALLOWED in line), "")
    return found.replace("on the host: ", f"on {failure.host}: ", 1)


def one_by_one(names: Sequence[str]) -> str:
    """On the host: these engines back, and no other."""
    return "; ".join(f"sglangctl rollback {name}" for name in names)
