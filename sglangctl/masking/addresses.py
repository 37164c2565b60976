"""Secrets in addresses: a user's password, parameters, webhooks whose path is the secret.

The text is anybody's: everything here takes time in proportion to its length.
"""

from __future__ import annotations

from sglangctl.masking.names import MASK, is_secret_parameter
from sglangctl.util import lazy_re

_USER = lazy_re.compile(
    r"(?i)(\b[a-z][a-z0-9+.-]{0,31}://)[^/\s:@\"'<>]{0,256}:"
    # A password with a slash in it is told from a port by not being a number.
    r"(?:[^/\s\"'<>]{0,512}@|(?![0-9]{1,5}[/?#])[^\s\"'<>]{0,512}@)|"
    r"(\bhttps?://)[^/\s@\"'?#<>]+@"
)
"""An address with a user and a password, or with a token; without a password the user of another
scheme is no secret (ssh://git@)."""
_PARAMETER = lazy_re.compile(r"[?&;](?:amp;)?([A-Za-z0-9_.-]{1,64})=(?=[^&\s])")
_VALUE = lazy_re.compile(r"[^&\s\"'<>#]+")
_WEBHOOK = lazy_re.compile(
    r"(?i)(//hooks\.[a-z0-9.-]{1,100}/|\bdiscord(?:app)?\.com/api/webhooks/|"
    r"\bwebhook\.office\.com/|\boutlook\.office(?:365)?\.com/webhook/|\bapi\.telegram\.org/bot|"
    r"\bopen-apis/bot/v2/hook/|\bsctapi\.ftqq\.com/)[^\s\"'<>]+"
)


def mask_addresses(text: str) -> str:
    """A text without the user and password of `scheme://user:password@host`, and without the values
    of `?key=`, `&sig=` and their like."""
    if "://" in text:
        text = _USER.sub(lambda match: f"{match[1] or match[2]}{MASK}@", text)
    text = _mask_parameters(text)
    low = text.lower()
    # Most texts have none of them, and looking for the words is faster than for the pattern.
    if any(word in low for word in ("hook", "/bot", "ftqq")):
        text = _WEBHOOK.sub(rf"\1{MASK}", text)
    return text


def _mask_parameters(text: str) -> str:
    parts, done, at = [], 0, 0
    while (found := _PARAMETER.search(text, at)) is not None:
        at = found.end()
        if is_secret_parameter(found[1]) and (value := _VALUE.match(text, at)) is not None:
            parts += [text[done:at], MASK]
            done = at = value.end()
    return "".join(parts) + text[done:]
