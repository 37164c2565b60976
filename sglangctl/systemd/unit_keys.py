"""Keys of our units that an older systemd does not know. It leaves such a key out and says so."""

from __future__ import annotations

import re

from sglangctl.util import lazy_re

SINCE = {"PrivateIPC": 248}
"""Key -> the first version of systemd that knows it. Oldest host: 247 (Debian 11)."""
UNKNOWN = lazy_re.compile(r"Unknown (?:key name|key|lvalue) '(\w+)' in section")


def number(version: str | None) -> int | None:
    """`252` of "252.39-1~deb12u1"; None for no version."""
    found = re.match(r"\d+", version or "")
    return int(found[0]) if found else None


def unknown_to(version: str | None) -> list[str]:
    """The keys that this systemd leaves out; none where its version is not known."""
    known = number(version)
    return sorted(key for key, since in SINCE.items() if known is not None and known < since)


def is_expected(complaint: str, version: str | None) -> bool:
    """Whether a line of systemd-analyze says only that this systemd is too old for a key."""
    found = UNKNOWN.search(complaint)
    return found is not None and found[1] in unknown_to(version)
