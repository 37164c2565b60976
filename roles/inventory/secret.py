"""Secrets: read on the controller, never printed."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from roles.inventory.errors import shown
from roles.inventory.reading import UnreadableFile, expanded, read_regular

SHORTEST = 8
"""Characters; sglangctl's masking leaves words under 4 alone, and shorter keys are guessed."""
LARGEST = 64 * 1024
"""Bytes of a file that is read for a secret."""


class SecretError(Exception):
    """A secret that cannot be used; the text says why and never quotes it."""


class Secret:
    """A value that shows itself only when asked to.

    + missing: why there is no value; who asks for it gets a SecretError with this sentence
    """

    __slots__ = ("_missing", "_value")

    def __init__(self, value: str, missing: str | None = None) -> None:
        self._value = value
        self._missing = missing

    def reveal(self) -> str:
        """The value itself; SecretError where it could not be read."""
        if self._missing is not None:
            raise SecretError(self._missing)
        return self._value

    def __repr__(self) -> str:
        return "***"

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return format("***", spec)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Secret)
            and other._value == self._value
            and other._missing == self._missing
        )

    def __hash__(self) -> int:
        return hash((self._value, self._missing))


def read_secret(
    source: Mapping[str, Any], folder: Path, environ: Mapping[str, str] | None = None
) -> Secret:
    """Read `{file: ...}` (relative to `folder`) or `{env: ...}`; SecretError if it cannot be used.

    It must be one line of printable ASCII (it travels in an HTTP header), and must not begin
    with `-`: SGLang's --config file passes it on as a word of its own, where it would be
    taken for an option.
    """
    if "env" in source:
        name = str(source["env"])
        value = (os.environ if environ is None else environ).get(name)
        if value is None:
            raise SecretError(f"environment variable {name} is not set on the controller")
        origin = f"environment variable {name}"
    else:
        origin = f"file {shown(str(folder / str(source['file'])))}"
        try:
            path = folder / expanded(str(source["file"]))
            origin = f"file {shown(str(path))}"
            value = read_regular(path, LARGEST).decode("utf-8")
        except FileNotFoundError:
            raise SecretError(f"{origin} does not exist; make it, readable by you alone") from None
        except UnicodeDecodeError:
            raise SecretError(f"{origin} is not text") from None
        except UnreadableFile as error:
            raise SecretError(f"{origin} {error}") from None
        value = value.removesuffix("\n").removesuffix("\r")
    if len(value) < SHORTEST:
        raise SecretError(f"{origin} holds {len(value)} characters; at least {SHORTEST} are needed")
    if not all(" " < letter < "\x7f" for letter in value):
        raise SecretError(f"{origin} must be one line of printable ASCII without spaces")
    if value.startswith("-"):
        raise SecretError(f"{origin} begins with -, which SGLang would take for an option")
    return Secret(value)
