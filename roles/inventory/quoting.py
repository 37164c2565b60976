"""Text as systemd, environment files and SGLang's config file want it. Pure functions.

Sources: systemd.syntax(7), systemd.service(5) "COMMAND LINES", systemd.exec(5)
EnvironmentFile=, systemd.unit(5) "SPECIFIERS".
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

_PLAIN = re.compile(r"[A-Za-z0-9_./:,@+=-]+")
_FLOAT = re.compile(r"(-?\d+)(e[+-]\d+)")
_UNSAFE_IN_YAML = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
_UNWRITABLE = re.compile(
    # NUL ends a C string; a lone surrogate cannot be written as UTF-8; and systemd drops a
    # line that holds one of Unicode's noncharacters.
    "[\x00\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff"
    + "".join(
        chr(plane * 0x10000 + 0xFFFE) + chr(plane * 0x10000 + 0xFFFF) for plane in range(1, 17)
    )
    + "]"
)


def is_writable(text: str) -> bool:
    """Whether a text can stand in every file that we write."""
    return not _UNWRITABLE.search(text)


def unit_word(text: str) -> str:
    """One word of a unit's setting that knows specifiers but no variables (RequiresMountsFor=).

    ValueError for control characters: not every setting has an escape for them.
    """
    if _has_control(text) or not is_writable(text):
        raise ValueError("control characters cannot be written into this setting")
    return _quoted(text.replace("%", "%%"))


def exec_word(text: str) -> str:
    """One argument of ExecStart=: specifiers (%), variables ($) and quotes made literal.

    ValueError for what systemd cannot pass on (NUL, lone surrogates, noncharacters).
    """
    if not is_writable(text):
        raise ValueError("an argument cannot hold NUL, surrogates or noncharacters")
    return _quoted(text.replace("%", "%%").replace("$", "$$"))


def exec_line(arguments: Iterable[str]) -> str:
    """Arguments of ExecStart= as one line."""
    return " ".join(exec_word(argument) for argument in arguments)


def env_value(text: str) -> str:
    """A value of an EnvironmentFile= in double quotes; sh reads the same from it.

    systemd drops the backslash only before " \\ ` and $, and a line break there must not be
    told from a continuation, so control characters but tab are a ValueError.
    """
    if _has_control(text.replace("\t", "")) or not is_writable(text):
        raise ValueError("control characters cannot be written into an environment file")
    return '"' + re.sub(r'(["\\`$])', r"\\\1", text) + '"'


def config_value(value: str | int | float | bool | list[str | int | float]) -> str:
    """A value of SGLang's --config file: JSON that YAML 1.1 (PyYAML) reads as the same value.

    Two differences matter. YAML wants a point in a float (1e-05 would be a string), and it
    folds or refuses some characters that JSON leaves as they are.
    """
    if isinstance(value, list):
        return "[" + ", ".join(config_value(item) for item in value) + "]"
    if isinstance(value, float):
        text = json.dumps(value, allow_nan=False)
        return _FLOAT.sub(r"\1.0\2", text) if "." not in text else text
    if isinstance(value, str):
        text = json.dumps(value, ensure_ascii=False)
        return _UNSAFE_IN_YAML.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
    return json.dumps(value)


def _quoted(text: str) -> str:
    if _PLAIN.fullmatch(text):
        return text
    inner = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + re.sub(r"[\x01-\x1f\x7f]", lambda match: f"\\x{ord(match[0]):02x}", inner) + '"'


def _has_control(text: str) -> bool:
    return any(ord(letter) < 32 or 0x7F <= ord(letter) < 0xA0 for letter in text)
