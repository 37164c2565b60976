"""Taking secrets out of text whose secrets nobody has told us, before it is published.

The engine's own are known by value and are masked by sglangctl.masking.masker; here are those that
their names give away, their shapes, or the file which they stand in. Each function counts what it
took out by kind where it is given a Counter.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any
from urllib.parse import quote, unquote

from sglangctl.masking.addresses import mask_addresses
from sglangctl.masking.names import MASK, is_no_secret, is_secret_name
from sglangctl.masking.shapes import mask_keys, mask_known, mask_netrc, mask_unit_environment
from sglangctl.masking.text import NAME, NAME_KEPT, mask_argv, mask_text
from sglangctl.util import lazy_re

PASSES = (
    ("private key", mask_keys),
    ("unit's Environment", mask_unit_environment),
    ("by name", mask_text),
    ("by shape", mask_known),
    ("in an address", mask_addresses),
    ("netrc", mask_netrc),
)
BY_NAME = "by name"
ENCODED = lazy_re.compile(r"%[0-9A-Fa-f]{2}")
WORD = lazy_re.compile(r"[^\s\"'<>]+")
ENCODINGS = 3
"""An address within an address within an address."""

Tally = Counter[str]


def scrub(text: str, seen: Tally | None = None) -> str:
    """Text with what looks like a secret taken out."""
    text = joined(text)
    if ENCODED.search(text):
        text = "\n".join(_line(line, seen) for line in text.split("\n"))
    return _plain(text, seen)


def joined(text: str) -> str:
    """Lines that a backslash continues (of units, of a shell) as one, where they name a secret: its value
    may stand on the next one."""
    if "\\\n" not in text:
        return text
    whole: list[list[str]] = []
    goes_on = False
    for line in text.split("\n"):
        if goes_on:
            whole[-1].append(line.lstrip())
        else:
            whole.append([line])
        goes_on = line.endswith("\\") and (
            goes_on or any(is_secret_name(name[-NAME_KEPT:]) for name in NAME.findall(line))
        )
        if goes_on:
            whole[-1][-1] = whole[-1][-1][:-1].rstrip()
    return "\n".join(" ".join(parts) for parts in whole)


def _plain(text: str, seen: Tally | None) -> str:
    for kind, mask in PASSES:
        masked = mask(text)
        if seen is not None and masked != text:
            seen[kind] += max(1, masked.count(MASK) - text.count(MASK))
        text = masked
    return text


def _line(line: str, seen: Tally | None) -> str:
    return WORD.sub(lambda word: _word(word[0], seen), line) if ENCODED.search(line) else line


def _word(word: str, seen: Tally | None) -> str:
    """A word with %3D and the like, itself where nothing in it is a secret."""
    decoded = word
    for _ in range(ENCODINGS):
        decoded = unquote(decoded)
    masked = decoded if decoded == word else _plain(decoded, seen)
    return word if masked == decoded else quote(masked, safe="/:?&=*@#,;+{}[]()")


def scrub_file(name: str, text: str, seen: Tally | None = None) -> str:
    """A file's text, scrubbed by what its name says it is; JSON stays JSON."""
    if name.endswith(".jsonl"):
        return "".join(scrub_event(line, seen) + "\n" for line in text.splitlines())
    if name.endswith(".json"):
        try:
            return json.dumps(scrub_value(json.loads(text), seen), indent=2) + "\n"
        except (ValueError, RecursionError):
            return scrub(text, seen)
    return scrub(text, seen)


def scrub_event(line: str, seen: Tally | None = None) -> str:
    """A journal's line, the strings in it scrubbed; it stays JSON."""
    try:
        document = json.loads(line)
    except (ValueError, RecursionError):
        return scrub(line, seen)
    return json.dumps(scrub_value(document, seen), separators=(",", ":"))


def scrub_value(value: Any, seen: Tally | None = None, depth: int = 0) -> Any:
    """The same for a JSON value: also by the names of keys, and of the flag before a word."""
    if depth > 50:
        return MASK
    if isinstance(value, str):
        return scrub(value, seen)
    if isinstance(value, dict):
        named = _is_named(value.get("name"), value.get("value"))  # a variable of Kubernetes
        return {
            scrub(key, seen): _hide(seen)
            if _is_named(key, item) or (named and key == "value")
            else scrub_value(item, seen, depth + 1)
            for key, item in value.items()
        }
    if isinstance(value, list):
        if len(value) == 2 and _is_named(*value) and isinstance(value[1], str):  # a header
            return [value[0], _hide(seen)]
        words = [joined(item) if isinstance(item, str) else "" for item in value]
        # It may be a command line: what follows a secret's flag goes too.
        return [
            _shown(item, shown, seen)
            if isinstance(item, str)
            else scrub_value(item, seen, depth + 1)
            for item, shown in zip(value, mask_argv(words))
        ]
    return value


def _is_named(name: Any, value: Any) -> bool:
    """Whether a key's value is a secret, which a switch, null and most numbers are not."""
    if not isinstance(name, str) or not is_secret_name(name):
        return False
    if isinstance(value, (bool, int, float, type(None))):
        return not is_no_secret(name, str(value))
    return True


def _hide(seen: Tally | None) -> str:
    if seen is not None:
        seen[BY_NAME] += 1
    return MASK


def _shown(item: str, shown: str, seen: Tally | None) -> str:
    """A word of a list, as a command line's and as a text of its own."""
    return _hide(seen) if shown == MASK != item else scrub(shown, seen)
