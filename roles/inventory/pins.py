"""What pip installs: pins, and the arguments that it gets."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from roles.inventory import credentials
from roles.inventory.errors import Path, shown
from roles.inventory.schema import Report


def check(install: Mapping[str, Any], version: str, report: Report) -> None:
    """Rules of `install`; `version` is the engine's. Defaults are filled in."""
    seen: dict[str, int] = {}
    for index, given in enumerate(install["packages"]):
        where = ("install", "packages", index)
        pin = tidy(given)
        name = distribution(pin)
        if seen.setdefault(name, index) != index:
            report(where, shown(pin), f"one pin for {name}", None)
        pinned = pin.partition("==")[2].lstrip("=") if " @ " not in pin else None
        if name == "sglang" and pinned is not None and pinned != version:
            report(where, shown(pin), f"sglang=={version}, as the key version says", None)
        if name == "sgl-kernel":
            _check_kernel_name(pin, where, report)
        if credentials.in_address(pin):
            allowed = "an address without a password (root's ~/.netrc on the host may hold it)"
            report(where, "an address with credentials (not shown)", allowed, None)
    for key in ("index", "find_links", "pip_arguments"):
        for index, argument in enumerate(install[key]):
            if credentials.in_argument(argument) or re.search(r"://[^/\s]*@", argument):
                where = ("install", key, index)
                allowed = (
                    "an address without a password: every user of the host sees arguments (use "
                    "root's pip.conf or ~/.netrc on the host)"
                )
                report(where, "an address with credentials (not shown)", allowed, None)


def all_of(engine: Mapping[str, Any]) -> tuple[str, ...]:
    """The pins of a filled engine, sglang's own among them."""
    pins = tuple(map(tidy, engine["install"]["packages"]))
    if any(distribution(pin) == "sglang" for pin in pins):
        return pins
    return (f"sglang=={engine['version']}", *pins)


def tidy(pin: str) -> str:
    """`NAME == VERSION` as `NAME==VERSION`, so that one pin is one environment."""
    return pin if " @ " in pin else re.sub(r"\s+", "", pin)


def distribution(pin: str) -> str:
    """The normalised name of what a pin installs (PEP 503)."""
    name = re.match(r"[A-Za-z0-9._-]+", pin)
    return re.sub(r"[-_.]+", "-", name[0]).lower() if name else pin


def _check_kernel_name(pin: str, where: Path, report: Report) -> None:
    version = pin.partition("==")[2].lstrip("=")
    if version and _numbers(version) >= (0, 4):
        # Renamed in 0.4.0; the import name stayed sgl_kernel.
        report(where, shown(pin), "sglang-kernel, as it is called since 0.4.0", "sglang-kernel")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])
