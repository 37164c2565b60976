"""Passwords in clear inside of other values: addresses, proxies."""

from __future__ import annotations

import re
from typing import Any

from sglangctl.masking.names import is_secret_name

_IN_ADDRESS = re.compile(r"://[^/\s@:]*:[^/\s@]*@|https?://[^/\s@]+@", re.IGNORECASE)
"""ssh://git@host is a user's name alone; https://TOKEN@host is a secret."""
_BEFORE_AT = re.compile(r"(?<![^/\s@])[^/\s@]+(?=@)")
_FIRST, _LATER = re.compile(r"(?:^|=)[^:=]+:."), re.compile(r"=[^:=]+:.")
"""Before an @: user:password@host, as --proxy and *_proxy take it. (Two patterns, each of which begins
once in a run of characters: one for both took a time that grew with the square of a value.)"""
_PARAMETER = re.compile(r"[?&]([^=&?\s]+)=[^&\s]")


def in_address(text: str) -> bool:
    """Whether a text holds an address with a password or a token."""
    return bool(_IN_ADDRESS.search(text)) or any(map(is_secret_name, _PARAMETER.findall(text)))


def in_argument(text: str) -> bool:
    """The same, and `user:password@host` without a scheme."""
    return in_address(text) or _bare(text)


def _bare(text: str) -> bool:
    """Whether a user and a password stand at the text's beginning or behind a `=`."""
    return any(
        (_LATER if found.start() else _FIRST).search(found[0])
        for found in _BEFORE_AT.finditer(text)
    )


def in_variable(name: str, value: Any) -> bool:
    """Whether a variable's value holds a password; names of proxies need no scheme."""
    text = str(value)
    return in_address(text) or (name.lower().endswith("_proxy") and _bare(text))


def in_value(value: Any) -> bool:
    """Whether a flag's value holds an address with a password, at any depth."""
    if isinstance(value, dict):
        return any(map(in_value, value)) or any(map(in_value, value.values()))
    if isinstance(value, list):
        return any(map(in_value, value))
    return isinstance(value, str) and in_address(value)
