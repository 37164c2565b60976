"""That a kernel was checked: remembered for exactly these files and this torch.

The stamp says nothing of whether the kernel is whole: that is inspected every time.
"""

from __future__ import annotations

import hashlib
import json

from sglangctl.sgl_kernel.library.check import Check
from sglangctl.sgl_kernel.venv import Venv, dist_infos
from sglangctl.state.files import write_atomic
from sglangctl.util import plain_files

NAME = "sglangctl-kernel.json"


def write(venv: Venv, result: Check) -> None:
    """Remember an outcome; OSError."""
    document = {
        "v": 1,
        "of": fingerprint(venv),
        "outcome": result.outcome,
        "reason": result.reason,
    }
    write_atomic(venv.root / NAME, (json.dumps(document) + "\n").encode(), 0o644)


def read(venv: Venv) -> str | None:
    """The outcome of the last check of what is installed now; None when it was not checked."""
    try:
        document = json.loads(plain_files.read_text(venv.root / NAME))
        return str(document["outcome"]) if document["of"] == fingerprint(venv) else None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def fingerprint(venv: Venv) -> str:
    """Of the kernel's RECORD and of torch's version."""
    total = hashlib.sha256()
    for folders in dist_infos(venv.kernel_site()).values():
        for folder in folders:
            try:
                total.update(plain_files.read_bytes(folder / "RECORD"))
            except OSError:
                total.update(b"none")
    torch = venv.torch()
    total.update((torch.version if torch else "none").encode())
    return total.hexdigest()
