"""The archive of a bundle: its parts, with secrets masked, in one tar.gz."""

from __future__ import annotations

import io
import json
import os
import tarfile
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from sglangctl.masking.masker import Masker
from sglangctl.masking.names import MASK
from sglangctl.masking.scrub import Tally, scrub_file
from sglangctl.report.bundle_parts import Missing, Part
from sglangctl.util import os_errors

VERSION = 1


@dataclass
class Written:
    """What is in a bundle, and what is not."""

    parts: list[str] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)
    """Part -> why."""
    masked: dict[str, dict[str, int]] = field(default_factory=dict)
    """Part -> kind of secret -> how many."""


def write(target: Path, name: str, now: str, wanted: Iterator[Part], masker: Masker) -> Written:
    """Write the archive beside `target` and move it there; returns what is in it.

    `target` may be in a folder that others can write (/tmp): the file beside it has a name that
    nobody can know before, and is made anew, so that no link is followed and no pipe waited on.
    """
    folder = f"{name}-{now}"
    done = Written()
    try:
        descriptor, made = tempfile.mkstemp(prefix=".sglangctl-bundle-", dir=target.parent)
    except OSError as error:
        error.filename = str(target)
        raise
    beside = Path(made)
    try:
        with open(descriptor, "wb") as file, tarfile.open(fileobj=file, mode="w:gz") as archive:
            for part in wanted:
                try:
                    text = part.make()
                except Missing as reason:
                    done.missing[part.name] = str(reason)
                    continue
                except OSError as error:
                    done.missing[part.name] = os_errors.sentence(error)
                    continue
                except Exception as error:  # an internal error must not lose the other parts
                    done.missing[part.name] = f"internal error: {error!r}"
                    continue
                done.parts.append(part.name)
                add(archive, f"{folder}/{part.name}", masked(part.name, text, masker, done))
            manifest = {
                "v": VERSION,
                "engine": name,
                "time": now,
                **asdict(done),
            }
            add(archive, f"{folder}/MANIFEST.json", json.dumps(manifest, indent=2) + "\n")
        os.replace(beside, target)
    finally:
        beside.unlink(missing_ok=True)
    return done


def masked(part: str, text: str, masker: Masker, done: Written) -> str:
    """A part's text without secrets; `done` notes how many of which kind."""
    known = masker.mask(text)
    tally: Tally = Counter()
    if known != text:
        tally["known by value"] = known.count(MASK) - text.count(MASK)
    scrubbed = scrub_file(part, known, tally)
    if tally:
        done.masked[part] = dict(tally)
    return scrubbed


def add(archive: tarfile.TarFile, name: str, text: str) -> None:
    """A plain file, without this machine's users and with rights for everybody who unpacks it."""
    data = text.encode("utf-8", "backslashreplace")
    entry = tarfile.TarInfo(name)
    entry.size = len(data)
    entry.mode = 0o644
    entry.mtime = int(time.time())
    archive.addfile(entry, io.BytesIO(data))
