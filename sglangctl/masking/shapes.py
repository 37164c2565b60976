"""Secrets that are known by their own shape, or by that of the file which they stand in.

The text is anybody's: everything here takes time in proportion to its length.
"""

from __future__ import annotations

import re

from sglangctl.masking.names import MASK
from sglangctl.util import lazy_re

_KNOWN = lazy_re.compile(
    r"(?<![A-Za-z0-9_-])(?:hf_[A-Za-z0-9]{20,}|gh[pousr]_[A-Za-z0-9]{20,}|"
    r"(?<!/)sk-(?!(?:ecdsa|ssh)-)[A-Za-z0-9_-]{16,}|"
    # In a path, only what no folder is called.
    r"sk-(?:[a-z0-9]{1,8}-){0,2}(?=[a-z0-9]*[A-Z])(?=[A-Za-z]*[0-9])[A-Za-z0-9]{16}[A-Za-z0-9_-]*|"
    r"github_pat_[A-Za-z0-9_]{20,}|gl[a-z]{1,6}-[A-Za-z0-9_-]{20,}|nvapi-[A-Za-z0-9_-]{20,}|"
    r"xox[a-z]-[A-Za-z0-9-]{10,}|xapp-[A-Za-z0-9-]{16,}|A[KS]IA[0-9A-Z]{16}\b|"
    r"AIza[A-Za-z0-9_-]{30,}|ya29\.[A-Za-z0-9_-]{20,}|SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}|"
    r"[srp]k_(?:live|test)_[A-Za-z0-9]{16,}|whsec_[A-Za-z0-9+/=]{16,}|npm_[A-Za-z0-9]{30,}|"
    r"pypi-[A-Za-z0-9_-]{30,}|dckr_[a-z]{1,8}_[A-Za-z0-9_-]{16,}|do[a-z]_v1_[a-f0-9]{32,}|"
    r"hv[sbr]\.[A-Za-z0-9_-]{20,}|glsa_[A-Za-z0-9_]{20,}|tskey-[A-Za-z0-9-]{16,}|"
    r"(?:gsk|r8|xai)[_-][A-Za-z0-9]{20,}|shp[a-z]{2}_[A-Fa-f0-9]{32}|"
    r"AGE-SECRET-KEY-1[A-Z0-9]{20,}|"
    r"eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]*)"
)
_BEARER = lazy_re.compile(r"(?i)(\bbearer\s+)[A-Za-z0-9._~+/=-]{8,}")
_HASHED = lazy_re.compile(r"\$(?:1|2[abxy]?|5|6|7|y|gy|argon2id?|scrypt)\$[^\s:\"']{16,}")
"""A password as /etc/shadow and htpasswd keep it."""
_SERIAL = lazy_re.compile(r"(?i)(serial number\s*:\s*).*")

_BEGIN = lazy_re.compile(r"-----BEGIN ([A-Z0-9 ]{1,40})-----")
_BLOCK_LIMIT = 20 * 1024
"""Characters of a block; the largest keys have some 13,000."""
_BLOCK_LINES = lazy_re.compile(r"(?:[A-Za-z0-9+/=]+(?:\\[nr]|\s)+|\s+)*[A-Za-z0-9+/=]*")
"""Of a block whose end was cut off."""
_KEY_LINE = lazy_re.compile(
    r"(?m)^([ \t]*)(?!/)(?=\S*[a-z])(?=\S*[A-Z])(?=\S*[0-9])"
    r"(?:[A-Za-z0-9+/]{76}|[A-Za-z0-9+/]{70}|[A-Za-z0-9+/]{64})(?=\r?$)"
)
"""A line of a block whose beginning was cut off: 64 characters, in OpenSSH's own format 70."""

_NETRC = lazy_re.compile(
    r"(\b(?:(?:machine|login|account)[ \t]+\S+|default)[ \t]+password[ \t]+)\S+|"
    r"(?m:^([ \t]*passw(?:or)?d[ \t]+)\S+[ \t]*$)"
)
_ENVIRONMENT = lazy_re.compile(
    r"(?:(?<![A-Za-z])|(?<=\\n))((?:Environment|SetCredential(?:Encrypted)?)[ \t]*=)((?:[^\\\n]|\\[^\n]|\\\n)*)"
)
_ASSIGNMENT = lazy_re.compile(
    r"(?:[ \t]|\\\n)*(?:\"([A-Za-z_]\w*)=(?:[^\"\\]|\\.)*\"|'([A-Za-z_]\w*)=(?:[^'\\]|\\.)*'|"
    r"([A-Za-z_]\w*)=(?:[^\s\"'\\]|\\[^\n])*)(?=[ \t\r\n\\]|$)",
    re.DOTALL,
)


def mask_known(text: str) -> str:
    """Without tokens of known services, bearer tokens, hashed passwords and serial numbers."""
    text = _BEARER.sub(rf"\1{MASK}", _KNOWN.sub(MASK, text))
    text = _HASHED.sub(MASK, text) if "$" in text else text
    return _SERIAL.sub(rf"\1{MASK}", text)


def mask_keys(text: str) -> str:
    """Without what stands in PEM and PGP blocks, whole ones and cut ones."""
    parts, at = [], 0
    while (begin := _BEGIN.search(text, at)) is not None:
        end = text.find(f"-----END {begin[1]}-----", begin.end(), begin.end() + _BLOCK_LIMIT)
        parts += [text[at : begin.end()], MASK]
        if end < 0:
            lines = _BLOCK_LINES.match(text, begin.end())
            end = lines.end() if lines else begin.end()
        at = end
    return _KEY_LINE.sub(rf"\1{MASK}", "".join(parts) + text[at:])


def mask_netrc(text: str) -> str:
    """Without the passwords of .netrc: `machine h login u password S`, also over several lines."""
    if "passw" not in text:
        return text
    return _NETRC.sub(lambda match: f"{match[1] or match[2]}{MASK}", text)


def mask_unit_environment(text: str) -> str:
    """Without the values of `Environment=` in units, whatever their names: the names stay."""
    return _ENVIRONMENT.sub(lambda match: match[1] + _without_values(match[2]), text)


def _without_values(text: str) -> str:
    names, at = [], 0
    while (found := _ASSIGNMENT.match(text, at)) is not None:
        names.append(f"{found[1] or found[2] or found[3]}={MASK}")
        at = found.end()
    if text[at:].strip("\\ \t\r\n"):
        names.append(MASK)
    return " ".join(names)
