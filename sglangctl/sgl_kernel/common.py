"""What the kernel commands share: which environment, which GPU, how a document is printed."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from sglangctl.sgl_kernel.venv import Venv, load
from sglangctl.state.paths import Paths
from sglangctl.util import os_errors
from sglangctl.util.errors import Unusable


def add_venv(parser: argparse.ArgumentParser) -> None:
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--venv", type=Path, help="the engine's environment")
    group.add_argument("--engine", metavar="NAME", help="the environment of this engine")


def add_sm(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--sm", metavar="ARCH", help="GPU architecture (120, 12.0, sm_120a); default: this GPU's"
    )


def chosen_venv(args: argparse.Namespace) -> Venv:
    """--venv, or that of --engine, or that of the only engine here; Unusable with what to do."""
    return load(args.venv or _engine_venv(args.engine))


def chosen_sm(text: str | None) -> str | None:
    """--sm without a kind letter, else this host's GPU; None when there is none to ask.

    Unusable for text that is no architecture, and for GPUs of several kinds.
    """
    from sglangctl.sgl_kernel.library.cubins import parse_arch

    if text is not None:
        try:
            return parse_arch(text).rstrip("af")
        except ValueError as error:
            raise Unusable(str(error)) from None
    found = sorted(set(gpu_architectures()))
    if len(found) > 1:
        raise Unusable(f"this host has GPUs of several kinds ({', '.join(found)}): name one (--sm)")
    return found[0] if found else None


def gpu_architectures() -> list[str]:
    """`120` for each GPU of this host; empty without a driver."""
    import sglangctl.gpu.gpus as gpus

    return [
        str(gpu.compute_capability).replace(".", "")
        for gpu in gpus.sample() or []
        if gpu.compute_capability
    ]


def document(value: Any) -> str:
    """A dataclass as our JSON: `v` first."""
    fields = asdict(value)
    return json.dumps({"v": fields.pop("v"), **fields}, indent=2)


def _engine_venv(name: str | None) -> Path:
    from sglangctl.state.config import engine_names, require_known

    paths = Paths()
    if name is None:
        names = engine_names(paths)
        if len(names) != 1:
            known = ", ".join(names) or "none"
            raise Unusable(f"name an engine (--engine; here: {known}) or an environment (--venv)")
        name = names[0]
    require_known(name, paths)
    try:
        manifest = json.loads((paths.current(name) / "manifest.json").read_text(encoding="utf-8"))
        return Path(manifest["venv"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        why = os_errors.sentence(error) if isinstance(error, OSError) else "its manifest is broken"
        raise Unusable(
            f"the engine {name} has no live release ({why}): deploy it, or name --venv"
        ) from None
