"""What the config.json of a model says, read with the rights of the engine's user."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sglangctl.proc.as_user import NoAnswer, ask
from sglangctl.util.plain_files import descriptor
from sglangctl.util.values import mapping

LIMIT_S = 30.0
LARGEST = 4 * 1024 * 1024


def read(user: str, folders: Sequence[str]) -> list[dict[str, Any]]:
    """One for each folder, in their order; empty where it cannot be read (the check of the weights
    says why)."""
    try:
        answer = ask(user, lambda: list(map(_config, folders)), LIMIT_S)
    except (OSError, KeyError, NoAnswer):
        return [{} for _ in folders]
    found = answer if isinstance(answer, list) else []
    return [mapping(one) for one in found] + [{}] * (len(folders) - len(found))


def text_model(config: dict[str, Any]) -> dict[str, Any]:
    """The language model's part of a configuration (multimodal models nest it)."""
    return {**config, **mapping(config.get("text_config"))}


def _config(folder: str) -> dict[str, Any]:
    try:
        with open(descriptor(Path(folder) / "config.json"), "rb") as file:
            return mapping(json.loads(file.read(LARGEST)))
    except (OSError, ValueError, RecursionError):
        return {}
