"""The addresses of this machine's own interfaces."""

from __future__ import annotations

import ipaddress
import re

from sglangctl.proc import procfs
from sglangctl.util import lazy_re

LOCAL = lazy_re.compile(r"\|-- (\d+\.\d+\.\d+\.\d+)\n\s+/32 host LOCAL")
"""Of /proc/net/fib_trie: an address that is this machine's own."""
LARGEST = 4 << 20


def public() -> list[str]:
    """Those that the whole internet could reach, were nothing in between; sorted."""
    found = {*LOCAL.findall(_text("fib_trie"))}
    for line in _text("if_inet6").splitlines():
        words = line.split()
        if len(words) == 6 and re.fullmatch("[0-9a-f]{32}", words[0]):
            found.add(str(ipaddress.IPv6Address(int(words[0], 16))))
    return sorted(one for one in found if is_public(one))


def is_public(address: str) -> bool:
    """Whether it is routed on the internet; False for what is no address (a name)."""
    try:
        return ipaddress.ip_address(address).is_global
    except ValueError:
        return False


def _text(name: str) -> str:
    try:
        with open(f"{procfs.PROC}/net/{name}", encoding="ascii", errors="replace") as file:
            return file.read(LARGEST)
    except OSError:
        return ""
