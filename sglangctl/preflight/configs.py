"""What the config.json of a model says."""

from __future__ import annotations

from typing import Any

from sglangctl.util.values import json_object, mapping
from sglangctl.weights.check import Model


def of(model: Model | None) -> dict[str, Any]:
    """As it was read with the weights; empty where it could not be (their check says why)."""
    return json_object(model.config) if model is not None else {}


def text_model(config: dict[str, Any]) -> dict[str, Any]:
    """The language model's part of a configuration (multimodal models nest it)."""
    return {**config, **mapping(config.get("text_config"))}
