"""The `kernel` key of an engine: its rules, and its patches read."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path as FilePath
from typing import Any

from roles.inventory.errors import closest, shown
from roles.inventory.model import Kernel, Patch
from roles.inventory.reading import UnreadableFile, read_regular
from roles.inventory.schema import Report
from sglangctl.sgl_kernel.library.cubins import parse_arch

LARGEST_PATCH = 16 * 1024 * 1024
"""Bytes; a patch travels to the build host."""


def check(kernel: Mapping[str, Any], hosts: Sequence[str], report: Report) -> None:
    """Rules between its keys, and with the inventory's hosts; defaults are filled in."""
    source, commit = kernel["source"], kernel["git"].get("commit")
    where = ("kernel", "git", "commit")
    if source == "build" and not commit:
        allowed = "with `source: build` a commit's 40 hex digits (git ls-remote URL TAG shows it)"
        report(where, "nothing", allowed, None)
    elif kernel["patches"] and source in ("wheel", "none"):
        allowed = "no patches with `source: wheel` or `none`: they need a build"
        report(("kernel", "patches"), shown(kernel["patches"]), allowed, None)
    elif kernel["patches"] and not commit:
        allowed = "with `patches` the commit that they are for, 40 hex digits"
        report(where, "nothing", allowed, None)
    if source == "build" and kernel.get("version"):
        allowed = "no version with `source: build`: the commit decides it"
        report(("kernel", "version"), shown(kernel["version"]), allowed, None)
    host = kernel.get("build_host")
    if host is not None and host not in hosts:
        allowed = "a host of this inventory"
        report(("kernel", "build_host"), shown(host), allowed, closest(host, hosts))


def read(kernel: Mapping[str, Any], folder: FilePath, report: Report) -> Kernel:
    """The kernel's part of the spec. `folder`: where relative paths on the controller start."""
    patches = []
    for index, name in enumerate(kernel["patches"]):
        path = folder / os.path.expanduser(name)
        try:
            content = read_regular(path, LARGEST_PATCH)
        except (FileNotFoundError, UnreadableFile) as error:
            reason = (
                "cannot be read: it does not exist"
                if isinstance(error, FileNotFoundError)
                else str(error)
            )
            found = f"{shown(name)}, which {reason}"
            report(("kernel", "patches", index), found, "a patch file on the controller", None)
            continue
        patches.append(Patch(path.name, hashlib.sha256(content).hexdigest(), content))
    arch, jobs = kernel.get("arch"), kernel["max_jobs"]
    return Kernel(
        source=kernel["source"],
        version=kernel.get("version"),
        patches=tuple(patches),
        arch=parse_arch(arch) if arch is not None else None,
        max_jobs=None if jobs == "auto" else int(jobs),
        nvcc_threads=int(kernel["nvcc_threads"]),
        cmake_args=tuple(kernel["cmake_args"]),
        build_host=kernel.get("build_host"),
        git_url=kernel["git"]["url"],
        git_commit=kernel["git"].get("commit"),
        git_path=kernel["git"].get("path"),
        cache=os.path.abspath(folder / os.path.expanduser(kernel["cache"])),
    )
