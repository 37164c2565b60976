"""locks/ENGINE.txt beside the inventory: every package of an engine's environment, with its version and
the hashes of its files, as `sglang-lock` writes it and `pip install --require-hashes` reads it.

With a lock an environment is the same on every host and in every month: without one, pip chooses the
packages below the pins on the day when it is made. Only requirements and hashes are accepted here: an
option of pip in it would go around what the inventory says.

A deploy that makes an environment without a lock keeps one, too. That one names the environment that it
was made for. It decides nothing but what a host gets that makes this environment anew: the digest of what
runs stays, so that nothing is restarted because a file has come.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path as FilePath

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from roles.inventory.errors import shown
from roles.inventory.reading import UnreadableFile, read_regular
from roles.inventory.schema import Report

FOLDER = "locks"
LARGEST = 4 * 1024 * 1024
"""Bytes: SGLang's 220 packages take 0.4 MB."""
_PINS = "# pins: "
_ENVIRONMENT = "# environment: "
_REQUIREMENT = re.compile(
    r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)(?:\[[A-Za-z0-9._,-]+\])?"
    r"==(?P<version>[A-Za-z0-9][A-Za-z0-9._+!-]*)(?: ; [^\\#\n]+)? \\"
)
_HASH = re.compile(r"    --hash=sha256:[0-9a-f]{64}(?: \\)?")


@dataclass(frozen=True)
class Locked:
    """The content of a lock. `packages`: NAME==VERSION each, with its marker; as they stand in it."""

    packages: tuple[str, ...]
    content: bytes = field(repr=False)
    environment: str | None = None
    """Of a lock that a deploy made: the digest of the environment, without a lock, that it is for."""

    @property
    def digest(self) -> str:
        """64 hex digits: another lock is another environment."""
        return hashlib.sha256(self.content).hexdigest()


class NoLock(ValueError):
    """A text that is no lock; the message is what is wrong with it."""


def path_of(engine: str, folder: FilePath) -> FilePath:
    """Where an engine's lock lies; `folder` is the inventory's."""
    return folder / FOLDER / f"{engine}.txt"


def read(engine: str, pins: Sequence[str], folder: FilePath, report: Report) -> Locked | None:
    """The engine's lock, None where there is none. A lock that is not for these pins is a mistake."""
    path = path_of(engine, folder)
    try:
        content = read_regular(path, LARGEST)
    except FileNotFoundError:
        return None
    except UnreadableFile as error:
        report(("install",), f"{path}, which {error}", "a lock, or no such file", None)
        return None
    try:
        found, packages = parse(content)
    except NoLock as error:
        allowed = f"what sglang-lock writes: run sglang-lock --upgrade {engine}, or delete the file"
        report(("install",), f"{path}: {error}", allowed, None)
        return None
    environment = environment_of(content)
    if found != list(pins) and environment is not None:
        return None  # nobody asked for it: the deploy makes another one
    if found != list(pins):
        report(
            ("install",),
            f"{path} is for other pins ({', '.join(found)})",
            f"a lock for {', '.join(pins)}: run sglang-lock, or delete the file",
            None,
        )
        return None
    return Locked(tuple(packages), content, environment)


def parse(content: bytes) -> tuple[list[str], list[str]]:
    """(the pins that it was made for, its packages); NoLock."""
    try:
        lines = content.decode("utf-8").splitlines()
    except UnicodeDecodeError:
        raise NoLock("it is no text") from None
    pins: list[str] | None = None
    packages: list[str] = []
    hashed = True
    for number, line in enumerate(lines, 1):
        if line.startswith(_PINS) and pins is None:
            pins = _texts(line.removeprefix(_PINS))
        elif _HASH.fullmatch(line) and packages:
            hashed = True
        elif _REQUIREMENT.fullmatch(line) and hashed:
            packages.append(line.removesuffix(" \\"))
            hashed = False
        elif line.strip() and not line.lstrip().startswith("#"):
            raise NoLock(f"line {number} is neither NAME==VERSION nor a hash: {shown(line)}")
    if pins is None:
        raise NoLock(f"it has no line that begins with {_PINS!r}")
    if not packages or not hashed:
        raise NoLock("a package has no hash" if packages else "it has no packages")
    for pin in pins:
        _look_for(pin, packages)
    return pins, packages


def _look_for(pin: str, packages: Sequence[str]) -> None:
    """NoLock where what was asked for is not in it: an index that lacks a release may answer with
    another one."""
    try:
        wanted = Requirement(pin)
    except InvalidRequirement:
        raise NoLock(f"its pin {shown(pin)} is none") from None
    name = canonicalize_name(wanted.name)
    there = [found for one in packages if canonicalize_name((found := versioned(one))[0]) == name]
    if not there:
        raise NoLock(f"{pin} is not in it")
    for _, version in there:
        if not wanted.specifier.contains(version, prereleases=True):
            raise NoLock(f"it has {wanted.name} {version}, and {pin} was asked for")


def versioned(package: str) -> tuple[str, str]:
    """(name, version) of NAME[EXTRAS]==VERSION ; MARKER."""
    name, _, rest = package.partition("==")
    return name.partition("[")[0], rest.partition(" ;")[0].strip()


def versions(packages: Sequence[str]) -> dict[str, str]:
    """Name -> its versions (one for each marker)."""
    found: dict[str, set[str]] = {}
    for package in packages:
        name, version = versioned(package)
        found.setdefault(canonicalize_name(name), set()).add(version)
    return {name: ", ".join(sorted(several)) for name, several in found.items()}


def differences(old: Sequence[str], new: Sequence[str]) -> list[tuple[str, str | None, str | None]]:
    """(name, version before, version now) of each package that is not the same, by name; None: it is
    not there."""
    before, after = versions(old), versions(new)
    names = sorted({*before, *after})
    sides = [(name, before.get(name), after.get(name)) for name in names]
    return [(name, was, now) for name, was, now in sides if was != now]


def found_in(path: FilePath) -> tuple[list[str], list[str]]:
    """As `parse`; nothing where there is no lock."""
    try:
        return parse(path.read_bytes())
    except (FileNotFoundError, NoLock):
        return [], []


def environment_of(content: bytes) -> str | None:
    """Of a lock's content; see Locked."""
    found = re.search(rb"^# environment: ([0-9a-f]{64})$", content, re.MULTILINE)
    return found[1].decode() if found else None


def written(pins: Sequence[str], requirements: str, environment: str | None = None) -> bytes:
    """A lock for these pins; `requirements`: what uv wrote. NoLock where that is none.

    + environment: see Locked
    """
    maker = "a deploy" if environment else "sglang-lock"
    head = f"# Made by {maker}. Do not edit.\n{_PINS}{json.dumps(list(pins))}\n"
    head += f"{_ENVIRONMENT}{environment}\n" if environment else ""
    content = (head + requirements).encode()
    parse(content)
    return content


def _texts(text: str) -> list[str] | None:
    try:
        found = json.loads(text)
    except ValueError:
        return None
    good = isinstance(found, list) and all(isinstance(one, str) for one in found)
    return found if good else None
