"""Secrets in free text, found by the names before them: `--api-key S`, `api_key='a b'`,
`x-api-key: S`, `Authorization: Basic S`, `"--api-key", "S"`.

The text is anybody's: everything here takes time in proportion to its length.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterator, Sequence

from sglangctl.masking.addresses import mask_addresses
from sglangctl.masking.names import MASK, is_no_secret, is_secret_name
from sglangctl.masking.programs import mask_flags
from sglangctl.util import lazy_re

WORD = lazy_re.compile(
    r"(?i)key|token|secret|pass|pwd|psk|credential|auth|cookie|webhook|signature|"
    r"(?<![a-z])pw(?![a-z])"
)
"""A secret's name has one of them in it."""
NAME = lazy_re.compile(r"[A-Za-z0-9_-]+")
NAME_LETTERS = frozenset(string.ascii_letters + string.digits + "_-")
NAME_KEPT = 64
"""Characters at a name's end that are looked at."""
NAMED = lazy_re.compile(r"(-{0,2}[A-Za-z0-9_.-]{1,64})=(?=.)", re.DOTALL)
CLOSING = lazy_re.compile(r"\\{0,4}[\"']")
SIGN = lazy_re.compile(r"[ \t]*(?:=>?(?!=)|:(?![:/]))[ \t]*")
SPACE = lazy_re.compile(r"[ \t\0]+")
COMMA = lazy_re.compile(r"[ \t]*,[ \t]*(?=\\{0,4}[\"'])")
QUOTE = lazy_re.compile(r"(?:[bBuUrRfF]{1,2}(?=[\"']))?(\\{0,4})([\"'])")
BARE = lazy_re.compile(r"(?:[^\s\0\"'\\]|(?!\\{0,4}[\"'](?:[\s\0,;:\]})]|$))[\"'\\])+")
"""A word; a quote that something could end with ends it too."""
LITERAL = lazy_re.compile(r"[^\s,\]}]+")
"""A value of JSON or of Python that is no string."""
SHELL = frozenset("|;&<>#")
SCHEME = lazy_re.compile(
    r"(?i)(?:\\{0,4}[\"']|[\[(]|[ \t]){0,8}(?:(?:basic|bearer|digest|token|apikey|negotiate)[ \t]+)?"
)
REST = lazy_re.compile(r"[^\"'\0]+")

Span = tuple[int, int]


def mask_text(text: str) -> str:
    """The text without the values of what is named as a secret."""
    return "\n".join(map(_line, text.split("\n")))


def mask_argv(argv: Sequence[str]) -> list[str]:
    """A command line for showing: `--api-key X`, `--api-key=X` and `HF_TOKEN=X` without the X, also
    within a word (`sh -c "serve --api-key X"`, a header, a title of many words)."""
    shown: list[str] = []
    for word, hide in zip(argv, _hidden(argv)):
        secret = NAMED.match(word)
        if hide:
            shown.append(MASK)
        elif secret is not None and is_secret_name(secret[1]):
            shown.append(f"{secret[0]}{MASK}")
        else:
            shown.append(mask_addresses(mask_text(word)))
    words = mask_flags("\0".join(shown)).split("\0")
    return words if len(words) == len(shown) else shown


def secrets_in_argv(argv: Sequence[str]) -> list[str]:
    """The values that `mask_argv` hides. Of several words behind one flag, those after the first only
    where they are no paths or plain words: masked everywhere by value, they would hide the log."""
    found: list[str] = []
    behind = False
    for word, shown, hide in zip(argv, mask_argv(argv), _hidden(argv)):
        if hide:
            if not behind or (len(word) >= 8 and not word.startswith(("/", "."))):
                found.append(word)
        elif shown.endswith(f"={MASK}") and (secret := NAMED.match(word)) is not None:
            found.append(word[secret.end() :])
        elif shown != word:
            inside = [line[slice(*span)] for line in word.split("\n") for span in _secrets(line)]
            found += inside or [word]
        behind = hide
    return found


def _hidden(argv: Sequence[str]) -> Iterator[bool]:
    """For each word whether it stands behind a secret's flag; the first one may begin with `--`."""
    hide = first = False
    for word in argv:
        hide = hide and (first or not word.startswith("-"))
        yield hide
        first = first and not hide
        if not hide:
            name = word.lstrip("-")
            hide = first = (
                word.startswith("-")
                and NAME.fullmatch(name) is not None
                and len(name) <= NAME_KEPT
                and is_secret_name(name)
            )


def _line(line: str) -> str:
    parts, done = [], 0
    for start, end in _secrets(line):
        parts += [line[done:start], MASK]
        done = end
    return mask_flags("".join(parts) + line[done:])


def _secrets(line: str) -> Iterator[Span]:
    at = 0
    while (word := WORD.search(line, at)) is not None:
        start = word.start()
        while start > max(at, word.start() - NAME_KEPT) and line[start - 1] in NAME_LETTERS:
            start -= 1
        found = NAME.match(line, start)
        if found is None:
            return  # cannot be: the word itself is a name
        at = found.end()
        name = found[0][-NAME_KEPT:]
        if not is_secret_name(name):
            continue
        header = name.lower().endswith(("authorization", "cookie"))
        spans = (_header(line, at) if header else []) or _values(line, found)
        for start, end in spans:
            yield start, end
            at = max(at, end)


def _header(line: str, at: int) -> list[Span]:
    """All that follows `Authorization:` and `Cookie:`, but for the scheme."""
    closing = CLOSING.match(line, at)
    sign = SIGN.match(line, closing.end() if closing else at)
    scheme = SCHEME.match(line, sign.end()) if sign else None
    rest = REST.match(line, scheme.end()) if scheme else None
    return [rest.span()] if rest and rest[0].strip() else []


def _values(line: str, name: re.Match[str]) -> list[Span]:
    """The values of a secret's name; of a flag with a space all words until the next flag."""
    flag, at = name[0].startswith("-"), name.end()
    quoted = CLOSING.match(line, at)
    if quoted is not None:
        at = quoted.end()
    between = next((p for p in (COMMA, SPACE) if flag and p.match(line, at)), None)
    if between is not None:
        return _words(line, at, between)
    sign = SIGN.match(line, at)
    if sign is None:
        return []
    path = line[name.start() - 1 : name.start()] in ("/", "\\")
    if ":" in sign[0] and not quoted and (path or flag):
        return []  # "/run/secret: not found", "argument --api-key: expected one argument"
    at = sign.end()
    if line[at : at + 1] in ("[", "(", "{"):
        return _list(line, at + 1)
    pattern = LITERAL if quoted and ":" in sign[0] else BARE
    span, _ = _value(line, at, pattern)
    bare = line[span[0] - 1 : span[0]] not in ('"', "'")
    if bare and not flag and is_no_secret(name[0], line[slice(*span)]):
        return []
    return [span] if span[0] < span[1] else []


def _words(line: str, at: int, between: re.Pattern[str]) -> list[Span]:
    spans: list[Span] = []
    while (gap := between.match(line, at)) is not None:
        start = gap.end()
        quote = QUOTE.match(line, start)
        first = line[quote.end() if quote else start : (quote.end() if quote else start) + 1]
        if spans and (first == "-" or (quote is None and first in SHELL)):
            break
        span, at = _value(line, start, BARE)
        if span[0] >= span[1]:
            break
        spans.append(span)
    return spans


def _list(line: str, at: int) -> list[Span]:
    """The strings of a list; of one that holds none, all of it."""
    spans: list[Span] = []
    while QUOTE.match(line, at) is not None:
        span, at = _value(line, at, BARE)
        spans.append(span)
        comma = COMMA.match(line, at)
        if comma is None:
            return [span for span in spans if span[0] < span[1]]
        at = comma.end()
    if not spans:
        ends = [end for end in (line.find(sign, at) for sign in "])}") if end >= 0]
        spans = [(at, min(ends, default=len(line)))]
    return [span for span in spans if span[0] < span[1]]


def _value(line: str, at: int, bare: re.Pattern[str]) -> tuple[Span, int]:
    """One value: where its text is, without its quotes, and where it ends."""
    quote = QUOTE.match(line, at)
    if quote is None:
        found = bare.match(line, at)
        end = found.end() if found else at
        while end > at + 1 and line[end - 1] in ",;)]}":
            end -= 1
        return (at, end), end
    start, closing = quote.end(), quote[1] + quote[2]
    end = start
    while True:
        end = line.find(closing, end)
        if end < 0:
            return (start, len(line)), len(line)
        before = line[max(start, end - 64) : end]
        if quote[1] or (len(before) - len(before.rstrip("\\"))) % 2 == 0:
            break
        end += 1
    behind = end + len(closing)
    # The shell joins what follows without a space.
    if line[behind : behind + 1].isalnum() or line[behind : behind + 1] in ('"', "'"):
        more = BARE.match(line, behind)
        if more is not None:
            return (start, more.end()), more.end()
    return (start, end), behind
