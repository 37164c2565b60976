"""Where packages come from, as arguments of pip. Pure."""

from __future__ import annotations

from collections.abc import Sequence


def sources(index: Sequence[str], find_links: Sequence[str]) -> tuple[str, ...]:
    """install.index and install.find_links as pip has them; uv has the same options."""
    first = [f"--index-url={one}" for one in index[:1]]
    more = [f"--extra-index-url={one}" for one in index[1:]]
    return (*first, *more, *(f"--find-links={one}" for one in find_links))
