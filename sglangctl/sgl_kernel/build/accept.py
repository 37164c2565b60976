"""What the build user says and leaves, as data of somebody else: its lines and its wheel."""

from __future__ import annotations

import json
import os
import shutil
import stat
from pathlib import Path
from typing import Any

from sglangctl.sgl_kernel.build import inside
from sglangctl.sgl_kernel.build.record import BuildError, Tell
from sglangctl.sgl_kernel.build.request import Request
from sglangctl.sgl_kernel.library import archive, metadata
from sglangctl.util import lazy_re
from sglangctl.util.errors import Unusable
from sglangctl.util.values import json_object

STEPS = ("source", "environment", "jobs", "compile", "retry", "wheel", "inspect", "check")
TEXTS = ("text", "verdict", "outcome", "line")
NUMBERS = ("done", "total", "eta_s", "memory_mib", "jobs", "memory_max_mib")
EVENTS = 20_000
"""A build of six hours tells every two seconds."""
TEXT = 2000
LARGEST = 4 << 30
"""Bytes of a wheel; the stock ones have some 600 MiB."""
NAME = lazy_re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,200}\.whl")
STRANGE = "look at the source: it is not what a kernel's build does"


class Heard:
    """Takes the lines of inside.py: steps go into the record, the last line is kept."""

    def __init__(self, record: Tell) -> None:
        self._record, self._left = record, EVENTS
        self.wheel: str | None = None
        """The name of the wheel, when one was made."""
        self.facts: dict[str, Any] = {}
        self.failure: tuple[str, str] | None = None
        """Sentence and next step."""

    def __call__(self, line: bytes) -> None:
        said = json_object(line)
        step, text = said.get("step"), said.get("text")
        if step == inside.MADE and isinstance(said.get("wheel"), str):
            self.wheel, self.facts = said["wheel"], _writable(said.get("facts"))
        elif step == inside.FAILED_STEP and isinstance(text, str):
            self.wheel = None
            self.failure = text[:TEXT], str(said.get("next_step"))[:TEXT]
        elif step in STEPS and self._left > 0:
            self._left -= 1
            self._record(step, **_plain(said))


def _plain(said: dict[str, Any]) -> dict[str, Any]:
    texts = {name: said[name][:TEXT] for name in TEXTS if isinstance(said.get(name), str)}
    return {**texts, **{name: said[name] for name in NUMBERS if _is_number(said.get(name))}}


def _writable(facts: Any) -> dict[str, Any]:
    """An object that can be written again: what is nested deep can be read and not written."""
    try:
        json.dumps(facts, indent=1)
    except RecursionError:
        return {}
    return facts if isinstance(facts, dict) else {}


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and abs(value) < 1e12  # not NaN, and not infinity


def take(name: str, work: Path, target: Path) -> Path:
    """Copy the wheel `name` out of the build user's folder into `target`, which is root's and new.

    BuildError unless it is a plain file of theirs of at most LARGEST bytes: a link, or another's
    file under a name of theirs, would be read with root's rights.
    """
    if not NAME.fullmatch(name):
        raise BuildError("the build left a wheel with a strange name", STRANGE)
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    folder = -1
    try:
        folder = os.open(work, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        # Not blocking: it may be a pipe that nobody writes to.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
        with open(os.open(name, flags, dir_fd=folder), "rb") as source:
            found = os.fstat(source.fileno())
            owner = os.fstat(folder).st_uid
            if not stat.S_ISREG(found.st_mode) or found.st_uid != owner:
                raise BuildError(f"the build left no plain file {name}", STRANGE)
            left = LARGEST
            with open(target / name, "wb") as out:
                while piece := source.read(1 << 20):
                    left -= len(piece)
                    if left < 0:
                        raise BuildError(f"{name} has more than {LARGEST >> 20} MiB", STRANGE)
                    out.write(piece)
    except OSError as error:
        if error.errno == 28:
            raise
        raise BuildError(
            f"the build left no plain file {name} ({error.strerror})", STRANGE
        ) from None
    finally:
        if folder >= 0:
            os.close(folder)
    return target / name


def examine(wheel: Path, request: Request) -> None:
    """BuildError for a wheel that is no kernel for this request, or that no host would install."""
    try:
        archive.examine(wheel)
        said = metadata.from_wheel(wheel)
    except (*archive.BROKEN, Unusable) as error:
        raise BuildError(f"the built wheel cannot be used: {error}", STRANGE) from None
    if said.key != request.key or said.built_for_torch != request.inputs.torch:
        raise BuildError("the built wheel says that it is another build's", STRANGE)
