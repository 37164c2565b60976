"""One tar.gz of evidence about an engine: journals, log, unit, environment and flags, versions,
GPUs, the kernel's log lines on GPU faults and memory, stacks. Secrets are taken out; parts that
could not be had are named inside, in MANIFEST.json. Safe to attach to a public issue: it holds
paths, model names, addresses that the engine listens on and what the engine itself logged.

Exit status: 0 written, 1 could not be written, 2 no such engine, or not allowed to read what must
be masked.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from sglangctl.commands.bundle_parts import Missing, Part, parts
from sglangctl.commands.logs import all_secrets
from sglangctl.masking.masker import Masker
from sglangctl.masking.scrub import scrub_file
from sglangctl.state.config import ConfigError, require_known
from sglangctl.state.paths import Paths
from sglangctl.util import os_errors
from sglangctl.util.terminal import harmless

VERSION = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="the engine")
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="where to write it (default: here, NAME-<time>)"
    )


def run(args: argparse.Namespace) -> int:
    paths = Paths()
    now = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    name = args.name
    target = Path(args.output or f"{name}-{now}.tar.gz")
    try:
        require_known(name, paths)
        masker = Masker(all_secrets(name, paths))
        wanted = list(parts(name, paths))
    except ConfigError as error:
        return refuse(str(error), 2)
    except OSError as error:
        return refuse(os_errors.sentence(error), 2)
    try:
        missing = write(target, name, now, iter(wanted), masker)
    except OSError as error:
        return refuse(cannot_write(target, error), 1)
    print(f"{target} ({target.stat().st_size // 1024 + 1} KiB)")
    for part, reason in missing.items():
        print(f"  without {part}: {harmless(reason)}")
    return 0


def cannot_write(target: Path, error: OSError) -> str:
    """Why there is no bundle, and where else to put it."""
    folder = target.parent
    if not folder.is_dir():
        return f"{target} cannot be written: there is no folder {folder}; name another with -o"
    if target.is_dir():
        return f"{target} is a folder: name a file with -o"
    if error.filename is None:
        error.filename = str(target)
    return f"{os_errors.sentence(error)}, or name another place with -o"


def refuse(sentence: str, status: int) -> int:
    print(f"sglangctl bundle: {harmless(sentence)}", file=sys.stderr)
    return status


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
