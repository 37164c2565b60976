"""Secrets of an engine, and their removal from what is printed or kept."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

from sglangctl.masking.names import MASK, is_secret_name


class Masker:
    """Replaces known secrets in text. Short values (under 4 characters) are left alone:
    masking every "1" would hide the log."""

    def __init__(self, secrets: Iterable[str]) -> None:
        # Longest first: one secret may be the beginning of another.
        known = sorted({secret for secret in secrets if len(secret) >= 4}, key=len, reverse=True)
        forms = [form for secret in known for form in dict.fromkeys(written(secret))]
        self._pattern = re.compile("|".join(map(re.escape, forms))) if forms else None

    def mask(self, text: str) -> str:
        return self._pattern.sub(MASK, text) if self._pattern else text


def written(secret: str) -> list[str]:
    """How logs write it: as it is, in JSON, as Python's repr in either kind of quotes (the
    engine logs its arguments as a dict, and what else is in a string decides the quotes), and as
    addresses have it."""
    encoded = [quote(secret), quote(secret, safe=""), quote_plus(secret)]
    plain = repr(secret)[1:-1]
    bare = plain.replace("\\'", "'")
    return [
        json.dumps(secret)[1:-1],
        json.dumps(secret, ensure_ascii=False)[1:-1],
        plain,
        bare,
        bare.replace("'", "\\'"),
        secret,
        *encoded,
        *(re.sub("%..", lambda found: found[0].lower(), form) for form in encoded),
    ]


def read_engine_yaml(path: Path) -> dict[str, Any]:
    """The engine's --config file: one `key: JSON value` a line, as our template writes it.

    OSError when it cannot be read; a line that is not of this form is left out.
    """
    values: dict[str, Any] = {}
    for line in path.read_text(encoding="utf-8").split("\n"):
        key, separator, value = line.partition(": ")
        if not separator or line.startswith(("#", " ")):
            continue
        try:
            values[key] = json.loads(value)
        except ValueError:
            continue
    return values


def read_env(path: Path) -> dict[str, str]:
    """An EnvironmentFile as our template writes it: NAME="value" with \\ before " \\ ` $."""
    values: dict[str, str] = {}
    for line in path.read_text(encoding="utf-8").split("\n"):
        name, separator, value = line.partition("=")
        if not separator or line.startswith("#"):
            continue
        if len(value) >= 2 and value[0] == value[-1] == '"':
            value = re.sub(r"\\(.)", r"\1", value[1:-1])
        values[name] = value
    return values


def secrets_of(release: Path) -> list[str]:
    """The secrets in a release's engine.yaml and engine.env (absent files: none).

    PermissionError passes through: to go on unmasked would publish what is there.
    """
    found: list[str] = []
    for reader, name in ((read_engine_yaml, "engine.yaml"), (read_env, "engine.env")):
        try:
            values: dict[str, Any] = dict(reader(release / name))
        except FileNotFoundError:
            continue
        found += [str(value) for key, value in values.items() if is_secret_name(key) and value]
    return found
