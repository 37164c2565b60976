"""Passwords behind the short flags of programs that everybody knows: `curl -u me:S`, `sshpass -p S`."""

from __future__ import annotations

import re

from sglangctl.masking.names import MASK
from sglangctl.util import lazy_re

_SEPARATED = r"(?:[ \t\0]+|=|)[\"']?"
_LOGIN = (r"-p|--password", _SEPARATED, "")
_FETCHES = (r"-[A-Za-z]{0,8}?u|-U|--user|--proxy-user", _SEPARATED, r"[^\s:\"'\0]+:")
_FLAGS = {
    r"curl": (_FETCHES, (r"-b", _SEPARATED, r"[^\s=\"'\0]+=")),
    r"wget": (_FETCHES,),
    r"sshpass": ((r"-p", _SEPARATED, ""),),
    r"(?:mysql|mariadb)[a-z-]*": ((r"-p", "", ""),),
    r"redis-cli": ((r"-a", _SEPARATED, ""),),
    r"(?:docker|podman|helm|nerdctl)[ \t\0]+(?:registry[ \t\0]+)?login": (_LOGIN,),
    r"ldap[a-z]{3,8}": ((r"-w", _SEPARATED, ""),),
}
"""Program -> (flag, what separates it from its value, how the value begins)."""
_PATTERNS = tuple(
    (
        lazy_re.compile(rf"(?:^|(?<=[\s\0/;|&\"'(`=?])){program}(?=[\s\0])"),
        lazy_re.compile(
            "|".join(
                rf"(?<![^\s\0])((?:{flag}){gap})(?=[^\s\"'\0]){begins}[^\s\"'\0]*"
                for flag, gap, begins in flags
            )
        ),
    )
    for program, flags in _FLAGS.items()
)
_ANY = lazy_re.compile("curl|wget|sshpass|mysql|mariadb|redis-cli|login|ldap")


def mask_flags(line: str) -> str:
    """A command line in one text, its words separated by spaces or NULs, without such passwords."""
    if _ANY.search(line) is None:
        return line
    for program, flags in _PATTERNS:
        if (found := program.search(line)) is not None:
            head, tail = line[: found.end()], line[found.end() :]
            line = head + flags.sub(_hide, tail)
    return line


def _hide(match: re.Match[str]) -> str:
    return f"{next(filter(None, match.groups()))}{MASK}"
