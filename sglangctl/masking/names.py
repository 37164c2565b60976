"""Which names hold secrets, and addresses that hold them."""

from __future__ import annotations

import re

MASK = "***"
SECRET_NAME = re.compile(r"(?i)(api[-_]?key|token|secret|password|passwd|credential)")
"""A flag or variable with such a name holds a secret. `tokens` (a number) does not: see below."""
NOT_SECRET = re.compile(
    r"(?i)tokens|tokenizer|token[-_](num|id|worker|usage|step|latency|map|distribution)|"
    r"(first|per)[-_]token|(bos|eos|pad|unk)[-_]token"
)
"""Names with `token` that hold numbers, files or a tokenizer's words: all such flags of SGLang 0.5.9
to 0.5.23."""

ADDRESS = re.compile(
    r"(?i)(\b[a-z][a-z0-9+.-]{0,31}://)[^/\s:@]*:[^/\s@]*@|(\bhttps?://)[^/\s@\"'?#]+@"
)
"""An address with a user and a password, or with a token; without a password the user of another
scheme is no secret (ssh://git@)."""


def is_secret_name(name: str) -> bool:
    """Whether a flag's or variable's name says that its value is a secret."""
    return bool(SECRET_NAME.search(name)) and not NOT_SECRET.search(name)


def mask_addresses(text: str) -> str:
    """A text without the user and password of `scheme://user:password@host`."""
    return ADDRESS.sub(lambda match: f"{match[1] or match[2]}{MASK}@", text)
