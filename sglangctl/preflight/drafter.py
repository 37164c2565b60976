"""Does the draft model fit its target, and the algorithm that is to use it?"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sglangctl.diagnosis.finding import FAIL, WARN, Finding
from sglangctl.preflight.catalog import finding
from sglangctl.preflight.model import reader_of
from sglangctl.proc.as_user import NoAnswer, ask
from sglangctl.state.config import EngineConfig
from sglangctl.util.values import mapping, whole

LIMIT_S = 30.0
LARGEST = 4 * 1024 * 1024
EAGLE3 = "Eagle3"
"""Ends the name of an EAGLE-3 drafter's architecture: LlamaForCausalLMEagle3."""


def look(engine: EngineConfig) -> Iterator[Finding]:
    """What does not fit; nothing where one of the two configurations cannot be read (the check of
    the weights says why)."""
    drafter = engine.drafter
    if drafter is None or not drafter.path:
        return
    folders = [engine.model, drafter.path]
    try:
        target, draft = ask(reader_of(engine.user), lambda: list(map(_config, folders)), LIMIT_S)
    except (OSError, KeyError, NoAnswer):
        return
    if target and draft:
        yield from judge(drafter.algorithm, target, draft)


def judge(algorithm: str, target: dict[str, Any], draft: dict[str, Any]) -> Iterator[Finding]:
    """Two config.json. Pure."""
    of_target, of_draft = _text_model(target), _text_model(draft)
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


def _text_model(config: dict[str, Any]) -> dict[str, Any]:
    """The language model's part of a configuration (multimodal models nest it)."""
    return {**config, **mapping(config.get("text_config"))}


def _config(folder: str) -> dict[str, Any]:
    try:
        with open(Path(folder) / "config.json", "rb") as file:
            return mapping(json.loads(file.read(LARGEST)))
    except (OSError, ValueError, RecursionError):
        return {}
