"""The state of the kernel on this host, in one document for the deploy."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

from sglangctl.sgl_kernel import common
from sglangctl.util import os_errors
from sglangctl.util.errors import Unusable


def survey(root: Path, sm: str | None, everything: bool = False) -> dict[str, Any]:
    """Never fails: what cannot be known is null, with a reason in `problems`.

    `installed` is an inspection of what is there; `torch`, `python` and `required` are the
    environment's; `pinned` what its SGLang's metadata asks for; `checked` the outcome of the last
    `kernel check` of exactly this kernel and torch; `cached` lists the keys of this host's cache
    (their wheels are not read here).
    """
    from sglangctl.sgl_kernel import cache
    from sglangctl.sgl_kernel.library import cubins, inspect, stamp
    from sglangctl.sgl_kernel.venv import load
    from sglangctl.state.paths import Paths

    problems: list[str] = []
    try:
        arch = common.chosen_sm(sm)
    except Unusable as error:
        arch = None
        problems.append(str(error))
    document: dict[str, Any] = {
        "v": 1,
        "venv": str(root),
        "sm": arch,
        "machine": os.uname().machine,
        "installed": None,
        "torch": None,
        "cuda": None,
        "python": None,
        "required": None,
        "pinned": None,
        "checked": None,
        "cuobjdump": cubins.find_cuobjdump(),
        "cached": [],
        "problems": problems,
    }
    document["cached"] = cache.keys(Paths())
    if (root / "bin/python").exists():
        try:
            venv = load(root)
            torch = venv.torch()
            document["python"] = venv.tag
            if torch:
                document["torch"], document["cuda"] = torch.version, torch.cuda
            document["required"] = venv.required_kernel()
            document["pinned"] = venv.pinned_kernel()
            document["checked"] = stamp.read(venv)
            seen = inspect.inspect_installed(venv, arch, document["cuobjdump"], everything)
            document["installed"] = asdict(seen)
        except (Unusable, OSError) as error:
            problems.append(os_errors.describe(error))
    return document
