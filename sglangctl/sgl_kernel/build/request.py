"""What is to be built: the document that the controller writes and the build reads."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from sglangctl.sgl_kernel import key as keys
from sglangctl.sgl_kernel.library.cubins import parse_arch
from sglangctl.state.paths import Paths
from sglangctl.util import os_errors
from sglangctl.util.errors import Unusable

SUBDIRECTORIES = ("python/sglang/kernels/aot", "sgl-kernel", ".")
"""Where the kernel's source is: since 0.4, up to 0.3, and in a repository of its own."""


@dataclass(frozen=True)
class Request:
    """request.json in the build's folder."""

    key: str
    inputs: keys.Inputs
    git_url: str
    venv: str | None = None
    """An engine's environment on this host, whose torch is built against; None: torch comes from
    the package index."""
    python: str = "python3"
    """The Python for the build's environment when there is no venv."""
    subdirectory: str | None = None
    jobs: int | None = None
    """None: from memory."""
    nvcc_threads: int = 1
    distribution: str | None = None
    """What the wheel must be called, None: as the environment's SGLang wants it."""
    minimum: str | None = None
    pip_arguments: tuple[str, ...] = ()
    cuda_home: str | None = None
    policy_version_minimum: str | None = "3.5"
    """CMAKE_POLICY_VERSION_MINIMUM: CMake 4 refuses the old third-party projects without it."""
    runtime_max_s: int = 6 * 3600
    """The slowest build on record (all architectures, two jobs) took four hours."""
    v: int = 1

    @property
    def arch(self) -> str:
        return self.inputs.arch


def cmake_flags(arch: str, extra: tuple[str, ...] = ()) -> tuple[str, ...]:
    """The CMake arguments that decide the wheel's bytes, sorted; `extra` (the inventory's
    cmake_args) wins over ours of the same name.

    FA3 is for sm_80 to sm_90 only (SM120 never loads it) and is the largest part of a full build.
    """
    number = int(parse_arch(arch).rstrip("af"))
    ours = {
        "ENABLE_BELOW_SM90": "ON" if number < 90 else "OFF",
        "SGL_KERNEL_ENABLE_FA3": "ON" if number <= 90 else "OFF",
    }
    named = {item[2:].split("=")[0].split(":")[0] for item in extra if item.startswith("-D")}
    kept = [f"-D{name}={value}" for name, value in ours.items() if name not in named]
    return tuple(sorted([*kept, *extra]))


def unused_folder(arch: str) -> str:
    """The folder of common_ops that the loader never takes on this GPU."""
    return "sm100" if parse_arch(arch).rstrip("af") == "90" else "sm90"


def native(sm: str) -> str:
    """The architecture to build for a GPU (`120` -> `120a`): from Hopper on the kernels use
    instructions of exactly that GPU."""
    name = parse_arch(sm)
    return name if name[-1] in "af" or int(name) < 90 else f"{name}a"


def parse(document: Any) -> Request:
    """A Request from its JSON; Unusable for fields that are missing, unknown or wrong."""
    if not isinstance(document, dict) or document.get("v") != 1:
        raise Unusable("the build request is not of version 1: deploy again")
    known = {item.name for item in fields(Request)}
    unknown = sorted(set(document) - known)
    if unknown:
        raise Unusable(f"the build request has unknown fields {', '.join(unknown)}")
    try:
        inputs = keys.parse(document["inputs"])
        values: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in document.items()
            if name != "inputs"
        }
        request = Request(inputs=inputs, **values)
        parse_arch(inputs.arch)
    except (KeyError, TypeError, ValueError) as error:
        raise Unusable(f"the build request cannot be used: {error}") from None
    if request.key != keys.make(inputs) or not keys.is_key(request.key):
        raise Unusable("the build request's key does not fit its inputs: deploy again")
    if not (len(inputs.commit) == 40 and set(inputs.commit) <= set("0123456789abcdef")):
        raise Unusable("kernel.git.commit must be 40 hex digits (a name can move)")
    if request.git_url.startswith("-"):
        raise Unusable("kernel.git.url must not begin with a dash")
    return request


def load(path: Path) -> Request:
    """Read request.json."""
    try:
        return parse(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise Unusable(f"{path} cannot be read: {os_errors.describe(error)}") from None


def dump(request: Request) -> str:
    """As request.json."""
    return json.dumps(asdict(request), indent=1) + "\n"


BUILDER = "builder"
"""In a build's folder: what the build user fills."""


def folder(key: str, paths: Paths | None = None) -> Path:
    """The build's folder, root's: request.json, patches/, journal.jsonl; `builder/` is the build
    user's: source/, build/, build.log."""
    if not keys.is_key(key):
        raise Unusable(f"{key!r} is not a key of a kernel build")
    return (paths or Paths()).kernel_cache / ".build" / key
