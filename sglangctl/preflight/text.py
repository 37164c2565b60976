"""Findings as lines for people and as a document."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from sglangctl.diagnosis.finding import FAIL, INFO, WARN, Finding
from sglangctl.preflight.catalog import fails

ORDER = (FAIL, WARN, INFO)


def sentence(finding: Finding) -> str:
    """What was seen, what is needed and what to do, in one; several lines where `seen` has them."""
    text = finding.seen + (f"; needed: {finding.needed}" if finding.needed else "")
    return f"{text}: {finding.fix}" if finding.fix else text


def lines(name: str, gate: str, found: Sequence[Finding]) -> list[str]:
    """The verdict first, then each finding, the worst first."""
    counts = [f"{sum(one.level == level for one in found)} {level}" for level in ORDER]
    verdict = "would fail" if fails(found) else "nothing is in the way"
    text = [f"{name}: {verdict} (gate {gate}: {', '.join(counts)})"]
    for one in sorted(found, key=lambda one: ORDER.index(one.level)):
        first, *more = one.seen.split("\n")
        text.append(f"  {one.level} {one.id}: {first}")
        text += [f"    {line}" for line in more]
        for label, value in (("needed", one.needed), ("fix", one.fix), ("source", one.source)):
            if value and (one.level != INFO or label == "fix"):
                text.append(f"    {label}: {value}")
    return text


def document(name: str, gate: str, found: Iterable[Finding]) -> dict[str, Any]:
    """What --json prints."""
    found = list(found)
    return {
        "v": 1,
        "preflight": [{"engine": name, "gate": gate, "fails": fails(found)}],
        "findings": [{**one.to_json(), "engine": name} for one in found],
    }
