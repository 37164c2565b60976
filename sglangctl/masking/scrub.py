"""Taking secrets out of text whose secrets nobody has told us, before it is published.

The engine's own are known by value and are masked by sglangctl.masking.masker; here are other processes'
flags, tokens of known shapes, passwords in addresses, serial numbers.
"""

from __future__ import annotations

import json
import re
from typing import Any

from sglangctl.masking.names import MASK, is_secret_name, mask_addresses
from sglangctl.masking.text import mask_argv, mask_text

KNOWN_SHAPES = re.compile(
    r"(?<![A-Za-z0-9_-])(?:hf_[A-Za-z0-9]{20,}|sk-[A-Za-z0-9_-]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|"
    r"github_pat_[A-Za-z0-9_]{20,}|gl[a-z]{1,6}-[A-Za-z0-9_-]{20,}|nvapi-[A-Za-z0-9_-]{20,}|"
    r"xox[a-z]-[A-Za-z0-9-]{10,}|AKIA[0-9A-Z]{16}\b|"
    r"eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]*)"
)
BEARER = re.compile(r"(?i)(\bbearer\s+)[A-Za-z0-9._~+/=-]{8,}")
SERIAL = re.compile(r"(?i)(serial number\s*:\s*).*")


def scrub(text: str) -> str:
    """Text with what looks like a secret taken out."""
    text = mask_text(text)
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
            if isinstance(item, (str, list, dict)) and is_secret_name(key)
            else scrub_value(item, depth + 1)
            for key, item in value.items()
        }
    if isinstance(value, list):
        words = [item if isinstance(item, str) else "" for item in value]
        # It may be a command line: what follows a secret's flag goes too.
        return [
            scrub(shown) if isinstance(item, str) else scrub_value(item, depth + 1)
            for item, shown in zip(value, mask_argv(words))
        ]
    return value
