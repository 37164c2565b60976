"""The archive of a bundle: its parts with their secrets taken out, in one tar.gz."""

from __future__ import annotations

import io
import json
import os
import tarfile
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from sglangctl.masking.masker import Masker
from sglangctl.masking.scrub import scrub_file
from sglangctl.report.bundle_parts import Missing, Part
from sglangctl.util import os_errors

VERSION = 1


def write(
    target: Path, name: str, now: str, wanted: Iterator[Part], masker: Masker
) -> dict[str, str]:
    """Write the archive beside `target` and move it there; returns what is missing, and why.

    `target` may be in a folder that others can write (/tmp): the file beside it has a name that
    nobody can know before, and is made anew, so that no link is followed and no pipe waited on.
    """
    folder = f"{name}-{now}"
    held: list[str] = []
    missing: dict[str, str] = {}
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
                    missing[part.name] = str(reason)
                    continue
                except OSError as error:
                    missing[part.name] = os_errors.sentence(error)
                    continue
                except Exception as error:  # a defect of ours must not lose the other parts
                    missing[part.name] = f"internal error: {error!r}"
                    continue
                held.append(part.name)
                add(archive, f"{folder}/{part.name}", scrub_file(part.name, masker.mask(text)))
            manifest = {
                "v": VERSION,
                "engine": name,
                "time": now,
                "parts": held,
                "missing": missing,
            }
            add(archive, f"{folder}/MANIFEST.json", json.dumps(manifest, indent=2) + "\n")
        os.replace(beside, target)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    return missing


def add(archive: tarfile.TarFile, name: str, text: str) -> None:
    """A plain file, without this machine's users and with rights for everybody who unpacks it."""
    data = text.encode("utf-8", "backslashreplace")
    entry = tarfile.TarInfo(name)
    entry.size = len(data)
    entry.mode = 0o644
    entry.mtime = int(time.time())
    archive.addfile(entry, io.BytesIO(data))
