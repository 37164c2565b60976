"""Arguments of `pip install` for the other commands that need to know where packages come from. Pure."""

from __future__ import annotations

from collections.abc import Sequence

INSTALL_ALONE = frozenset(
    [
        *("--user", "--force-reinstall", "--ignore-installed", "--upgrade", "-U", "-I"),
        *("--compile", "--no-compile", "--dry-run", "--no-warn-script-location"),
        *("--no-warn-conflicts", "--break-system-packages"),
    ]
)
"""Options without a value that only `pip install` has."""
INSTALL_VALUED = frozenset(
    [
        *("--target", "-t", "--prefix", "--root", "--report", "--upgrade-strategy"),
        "--root-user-action",
    ]
)


def sources(index: Sequence[str], find_links: Sequence[str]) -> tuple[str, ...]:
    """install.index and install.find_links as pip has them; uv has the same options."""
    first = [f"--index-url={one}" for one in index[:1]]
    more = [f"--extra-index-url={one}" for one in index[1:]]
    return (*first, *more, *(f"--find-links={one}" for one in find_links))


def for_download(arguments: Sequence[str]) -> tuple[str, ...]:
    """Without what only `pip install` understands: `pip download` ends over that."""
    found = []
    given = iter(arguments)
    for argument in given:
        name, equals, _ = argument.partition("=")
        if name in INSTALL_VALUED and not equals:
            next(given, None)
        elif name not in INSTALL_ALONE and name not in INSTALL_VALUED:
            found.append(argument)
    return tuple(found)
