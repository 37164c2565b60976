"""Taking secrets out of text whose secrets nobody has told us, before it is published.

The engine's own are known by value and are masked by sglangctl.masking; here are other processes'
flags, tokens of known shapes, passwords in addresses, serial numbers.
"""

from __future__ import annotations

import json
import re
from typing import Any

from sglangctl.masking import MASK, is_secret_name, mask_addresses

FLAG = re.compile(
    r"(?i)(--?[a-z0-9-]*(?:api[-_]?key|password|passwd|secret|credential|auth[-_]?token|hf[-_]?token)"
    r"[a-z0-9-]*)(=|\s+|\x00|\"\s*,\s*\"|'\s*,\s*')([^\s\x00\"',]+)"
)
ASSIGNMENT = re.compile(
    r"(?i)\b([a-z0-9_]*(?:api_?key|password|passwd|secret|credential|token)[a-z0-9_]*)"
    r"(=|['\"]?:\s*)(['\"]?)([^\s'\",]{4,})"
)
KNOWN_SHAPES = re.compile(
    r"\bhf_[A-Za-z0-9]{20,}|\bsk-[A-Za-z0-9_-]{16,}|\bgh[pousr]_[A-Za-z0-9]{20,}|\bAKIA[0-9A-Z]{16}\b"
)
BEARER = re.compile(r"(?i)(\bbearer\s+)[A-Za-z0-9._~+/=-]{8,}")
SERIAL = re.compile(r"(?i)(serial number\s*:\s*).*")
NUMBER = re.compile(r"[0-9.]+|None|null|true|false", re.I)


def scrub(text: str) -> str:
    """Text with what looks like a secret taken out."""
    text = FLAG.sub(rf"\1\2{MASK}", text)
    text = ASSIGNMENT.sub(_assignment, text)
    text = KNOWN_SHAPES.sub(MASK, text)
    text = mask_addresses(text)
    text = BEARER.sub(rf"\1{MASK}", text)
    return SERIAL.sub(rf"\1{MASK}", text)


def scrub_file(name: str, text: str) -> str:
    """A file's text, scrubbed by what its name says it is; JSON stays JSON."""
    if name.endswith(".jsonl"):
        return "".join(scrub_event(line) + "\n" for line in text.splitlines())
    if name.endswith(".json"):
        try:
            return json.dumps(scrub_value(json.loads(text)), indent=2) + "\n"
        except (ValueError, RecursionError):
            return scrub(text)
    return scrub(text)


def scrub_event(line: str) -> str:
    """A journal's line, the strings in it scrubbed; it stays JSON."""
    try:
        document = json.loads(line)
    except (ValueError, RecursionError):
        return scrub(line)
    return json.dumps(scrub_value(document), separators=(",", ":"))


def scrub_value(value: Any, depth: int = 0) -> Any:
    """The same for a JSON value: also by the names of keys, and of the flag before a word."""
    if depth > 50:
        return MASK
    if isinstance(value, str):
        return scrub(value)
    if isinstance(value, dict):
        return {
            key: MASK
            if isinstance(item, str) and is_secret_name(key)
            else scrub_value(item, depth + 1)
            for key, item in value.items()
        }
    if isinstance(value, list):
        flags = [None, *value[:-1]]
        return [
            MASK
            if isinstance(flag, str)
            and flag.startswith("-")
            and "=" not in flag
            and isinstance(item, str)
            and is_secret_name(flag)
            else scrub_value(item, depth + 1)
            for flag, item in zip(flags, value)
        ]
    return value


def _assignment(match: re.Match[str]) -> str:
    name, sign, quote, value = match.groups()
    if not is_secret_name(name) or NUMBER.fullmatch(value):
        return match.group()
    return f"{name}{sign}{quote}{MASK}"
