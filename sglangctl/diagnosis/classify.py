"""Which cause a log line names."""

from __future__ import annotations

import re
from dataclasses import dataclass

from sglangctl.diagnosis.signatures import find

FOLDER = "making a folder"
TOKENIZER = "reading the tokenizer's files"
ARGUMENTS = "checking the arguments"
WEIGHTS = "loading weights"


@dataclass(frozen=True)
class Context:
    """What the classification of a line depends on besides the line."""

    phase: str = "importing"
    drafter_path: str | None = None
    tokenizer_path: str | None = None
    speculative: bool = False
    """Speculative decoding is declared."""
    loading_drafter: bool = False
    """The drafter's weights are being loaded, not the target's."""
    doing: frozenset[str] = frozenset()
    """What the traceback's frames pass through: FOLDER, TOKENIZER, ARGUMENTS, WEIGHTS."""


@dataclass(frozen=True)
class Finding:
    """The cause that a line names."""

    cause: str
    line: str
    effect: bool = False
    """It is a consequence: any other finding goes first."""


_CANNOT_MAKE = re.compile(
    r"^[\w.]*(?:FileNotFoundError|PermissionError|NotADirectoryError|FileExistsError|OSError): "
    r"\[Errno (?:1|2|13|17|20|30)\]"
)

_REFUSAL = re.compile(r"^(?:ValueError|AssertionError|NotImplementedError)\b")
_NO_FIT = re.compile(
    r"^(?:KeyError|AssertionError|(?:RuntimeError|ValueError|IndexError)\b.*(?:size|shape|dimension))"
)
_NO_JSON = re.compile(r"^(?:json\.decoder\.)?JSONDecodeError\b|^Exception: .*(?:EOF|expected)")


def classify(line: str, context: Context, exception: bool = False) -> Finding | None:
    """What `line` says about the cause; None for a line that says nothing.

    exception: it is the last line of a traceback, or belongs to that line's message.
    """
    if exception and FOLDER in context.doing and _CANNOT_MAKE.match(line):
        return Finding("cache-not-writable", line)
    if exception and TOKENIZER in context.doing and _NO_JSON.match(line):
        return Finding("tokenizer-missing", line)
    signature = find(line, exception)
    if signature is None:
        if exception and WEIGHTS in context.doing and _NO_FIT.match(line):
            return Finding(_refine("weights-corrupt", line, context), line)
        if exception and ARGUMENTS in context.doing and _REFUSAL.match(line):
            return Finding("unsupported-configuration", line)
        return None
    return Finding(_refine(signature.cause, line, context), line, signature.effect)


def _refine(cause: str, line: str, context: Context) -> str:
    """The same sentence of the engine means another thing for the drafter or the tokenizer."""
    if cause == "model-not-found":
        if _names(line, context.drafter_path):
            return "drafter-not-found"
        if _names(line, context.tokenizer_path):
            return "tokenizer-missing"
    if cause == "weights-missing" and _names(line, context.drafter_path):
        return "drafter-not-found"
    if cause == "weights-corrupt" and context.loading_drafter and "afetensor" not in line:
        return "drafter-mismatch"
    return cause


def _names(line: str, path: str | None) -> bool:
    """Whether `line` names `path` itself, not a longer path that begins with it."""
    if not path:
        return False
    at = line.find(path)
    while at >= 0:
        end = line[at + len(path) : at + len(path) + 1]
        if not (end.isalnum() or end in ("-", "_")):
            return True
        at = line.find(path, at + 1)
    return False
