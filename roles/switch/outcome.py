"""How a switch ended, for the report and the last screen. Pure."""

from __future__ import annotations

from roles.report.result import Result
from sglangctl.diagnosis.causes import CAUSES
from sglangctl.diagnosis.outcomes import PROVEN
from sglangctl.state.journal import Event
from sglangctl.util.values import mapping, number, text, texts


def result_of(engine: str, event: Event) -> Result:
    """From the `outcome` event of a switch (sglangctl/switch/outcome.py), whatever it holds."""
    outcome, cause = text(event.get("outcome")), text(event.get("cause"))
    known, evidence = CAUSES.get(cause or ""), texts(event.get("evidence"))
    return Result(
        engine=engine,
        outcome=outcome,
        exit=0 if outcome in PROVEN else 1,
        cause=cause,
        sentence=text(event.get("sentence")) or "",
        phase=text(event.get("phase")),
        phases={str(name): number(s) or 0.0 for name, s in mapping(event.get("phases")).items()},
        served_after_s=number(event.get("served_after_s")),
        evidence=evidence,
        next_step=known.next_for(engine, evidence) if known else None,
        stopped_by=text(event.get("stopped_by")),
    )


def others_of(event: Event) -> list[str]:
    """From the event `back` of a switch (sglangctl/switch/back.py): what serves again that is none of
    our releases, `vllm-kimi.service serves` each."""
    return texts(event.get("others"))


def fallback_of(event: Event) -> dict[str, str | None]:
    """From the event `fallback` of a switch (sglangctl/switch/transaction.py): which one serves, and
    the cause for which the wanted release did not."""
    return {"name": text(event.get("fallback")), "cause": text(event.get("cause"))}
