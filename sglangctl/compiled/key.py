"""The key of what an engine has compiled: what decides whether another host can use it."""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sglangctl.gpu import gpus
from sglangctl.proc import as_user
from sglangctl.sgl_kernel import key as kernel_key
from sglangctl.sgl_kernel import venv as environments
from sglangctl.state.paths import checked_name
from sglangctl.util import plain_files
from sglangctl.util.errors import Unusable
from sglangctl.util.values import text

CONFIG_S = 60.0
"""For config.json, which may lie on a slow mount."""


@dataclass(frozen=True)
class Request:
    """What the controller asks about: one engine, as the inventory wants it."""

    engine: str
    user: str
    venv: str
    model: str
    drafter: str | None
    gpus: tuple[int, ...] | None
    """Their indices; None: all; empty: an engine on the CPU."""
    flags: str
    """A digest of the flags and variables that decide what is compiled."""

    @property
    def packages(self) -> str:
        """The environment's digest, which names its folder."""
        return os.path.basename(self.venv)


def parse(document: Mapping[str, Any]) -> Request:
    """A request from its JSON; Unusable for anything else."""
    words = {
        name: text(document.get(name)) for name in ("engine", "user", "venv", "model", "flags")
    }
    chosen = document.get("gpus")
    if not all(words.values()) or not (chosen is None or isinstance(chosen, list)):
        raise Unusable("standard input is no request of this version")
    return Request(
        engine=checked_name(str(words["engine"])),
        user=str(words["user"]),
        venv=str(words["venv"]),
        model=str(words["model"]),
        drafter=text(document.get("drafter")),
        gpus=None if chosen is None else tuple(map(int, chosen)),
        flags=str(words["flags"]),
    )


def inputs(request: Request) -> dict[str, Any]:
    """What the key is made of, by name. Unusable where something of it cannot be told."""
    venv = environments.load(Path(request.venv))
    torch = venv.torch()
    folders = [request.model, *([request.drafter] if request.drafter else [])]
    return {
        # Paths are compiled in: Triton's and ninja's files name their own folder.
        "engine": request.engine,
        "packages": request.packages,
        "torch": torch.version if torch else None,
        "cuda": torch.cuda if torch else None,
        "python": venv.tag,
        "gpus": _gpus(request),
        # gcc compiles for this processor, against this C library.
        "processor": _processor(),
        "system": _system(),
        "models": [_config(request.user, one) for one in folders],
        "flags": request.flags,
    }


def make(found: Mapping[str, Any]) -> str:
    """The key of these inputs: the same on every host."""
    said = json.dumps(found, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(said.encode()).hexdigest()[: kernel_key.LENGTH]


def _gpus(request: Request) -> list[str]:
    """Unusable where one of them cannot be read: kernels of another GPU must not get this key."""
    if request.gpus == ():
        return []
    reading = gpus.read()
    if reading.gpus is None:
        raise Unusable(f"the GPUs cannot be read: {reading.reason}")
    chosen = [one for one in reading.gpus if request.gpus is None or one.index in request.gpus]
    for one in chosen:
        if one.error or not one.name:
            raise Unusable(f"GPU {one.index} cannot be read: {one.error or 'it has no name'}")
    if len(chosen) < len(set(request.gpus or (0,))):
        raise Unusable(f"the driver does not show all GPUs of {request.engine}: nvidia-smi -L")
    return sorted({f"{one.name} {one.compute_capability}" for one in chosen})


def _processor() -> str:
    """Its name and what it can do, as a digest."""
    wanted = ("model name", "flags", "CPU part", "Features")
    lines = plain_files.read_text(Path("/proc/cpuinfo")).split("\n\n")[0].splitlines()
    said = "\n".join(line for line in lines if line.partition(":")[0].strip() in wanted)
    if not said:
        raise Unusable("/proc/cpuinfo does not say which processor this is")
    return f"{os.uname().machine} {hashlib.sha256(said.encode()).hexdigest()[:12]}"


def _system() -> str:
    release = plain_files.text_of(Path("/etc/os-release")).splitlines()
    fields = dict(line.split("=", 1) for line in release if "=" in line)
    named = [fields.get(name, "").strip('"') for name in ("ID", "VERSION_ID")]
    return " ".join([*named, *platform.libc_ver()])


def _config(user: str, folder: str) -> str:
    """sha256 of a model's config.json, as the engine's user sees it."""

    def read() -> str:
        return hashlib.sha256(plain_files.read_bytes(Path(folder) / "config.json")).hexdigest()

    try:
        return str(as_user.ask(user, read, CONFIG_S))
    except KeyError:
        raise Unusable(f"there is no user {user}") from None


def archive_name(key: str) -> str:
    """The folder of a key's archive; Unusable for what is no key (it becomes a path)."""
    if not kernel_key.is_key(key):
        raise Unusable(f"{key!r} is no key")
    return key
