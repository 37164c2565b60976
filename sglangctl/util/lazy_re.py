"""Regular expressions that are compiled when they are first used.

A command imports about a hundred of them and uses a few. To compile them all was 29 % of what cProfile
counted in a probe, and a deploy with nothing to do is little else than probes.
"""

from __future__ import annotations

import re
from typing import Any, AnyStr, cast


class Lazy:
    """Stands for an re.Pattern: what is asked of it, the compiled one answers."""

    def __init__(self, pattern: Any, flags: int) -> None:
        self._wanted = pattern, flags

    def __getattr__(self, name: str) -> Any:
        found = getattr(re.compile(*self._wanted), name)  # re keeps what it has compiled
        setattr(self, name, found)  # from now on without this detour
        return found


def compile(pattern: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """As re.compile. What is wrong with `pattern` is raised at the first use."""
    return cast("re.Pattern[AnyStr]", Lazy(pattern, flags))
