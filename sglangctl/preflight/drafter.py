"""Does the draft model fit its target, and the algorithm that is to use it?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sglangctl.diagnosis.finding import FAIL, WARN, Finding
from sglangctl.preflight.catalog import finding
from sglangctl.preflight.configs import text_model
from sglangctl.state.config import EngineConfig
from sglangctl.util.values import whole

EAGLE3 = "Eagle3"
"""Ends the name of an EAGLE-3 drafter's architecture: LlamaForCausalLMEagle3."""
HEADS = ("eagle", "nextn", "mtp")
"""In the architecture of what EAGLE takes, or in a key of its config.json: a model's own heads."""
LAYERS_OF_HEAD = 4
"""At most; known ones have one or two."""


def look(engine: EngineConfig, target: dict[str, Any], draft: dict[str, Any]) -> Iterator[Finding]:
    """What does not fit; nothing where one of the two config.json could not be read."""
    if engine.drafter is not None and target and draft:
        yield from judge(engine.drafter.algorithm, target, draft)


def judge(algorithm: str, target: dict[str, Any], draft: dict[str, Any]) -> Iterator[Finding]:
    """Two config.json. Pure."""
    of_target, of_draft = text_model(target), text_model(draft)
    given = draft.get("architectures")
    named = [one for one in given if isinstance(one, str)] if isinstance(given, list) else []
    eagle3 = any(one.endswith(EAGLE3) for one in named)
    if named and eagle3 != (algorithm == "EAGLE3") and algorithm in ("EAGLE", "EAGLE3"):
        right = "EAGLE3" if eagle3 else "EAGLE"
        yield finding(
            "drafter-algorithm",
            WARN,
            f"the drafter is a {named[0][:80]}, and drafter.algorithm is {algorithm}: it may never "
            "guess right (accept length 1.0), and nothing else says so",
            f"set `drafter: {{algorithm: {right}}}`, or take a drafter for {algorithm}",
        )
    layers = whole(of_draft.get("num_hidden_layers")) or 0
    said = " ".join([*named, *of_draft]).lower()
    if algorithm == "EAGLE" and layers > LAYERS_OF_HEAD and not any(one in said for one in HEADS):
        yield finding(
            "drafter-algorithm",
            WARN,
            f"the drafter is a whole model of {layers} layers, and EAGLE takes a head that was trained "
            "for the model",
            "set `drafter: {algorithm: STANDALONE}`, or take a drafter for EAGLE",
        )
    if algorithm in ("EAGLE", "EAGLE3"):
        made_for = whole(draft.get("target_hidden_size")) or whole(of_draft.get("hidden_size"))
        yield from _same("hidden_size", whole(of_target.get("hidden_size")), made_for, FAIL)
    sizes = [whole(one.get("vocab_size")) for one in (of_target, of_draft)]
    yield from _same("vocab_size", sizes[0], sizes[1], WARN)


def _same(name: str, target: int | None, draft: int | None, level: str) -> Iterator[Finding]:
    if target is not None and draft is not None and target != draft:
        yield finding(
            "drafter-shape",
            level,
            f"the drafter is made for {name} {draft}, the model has {target}",
            "take the drafter that was trained for this model",
        )
