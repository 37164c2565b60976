"""Where a built wheel comes from, written down so that another host can trust it."""

from __future__ import annotations

import socket
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from sglangctl.proc import command
from sglangctl.sgl_kernel.build.compile import Compiled
from sglangctl.sgl_kernel.build.request import Request
from sglangctl.sgl_kernel.build.source import Source
from sglangctl.sgl_kernel.build.toolkit import Toolkit
from sglangctl.sgl_kernel.venv import Venv
from sglangctl.util import lazy_re
from sglangctl.util.plain_files import text_of

PINNED = lazy_re.compile(
    r"\"(?:URL_HASH|GIT_TAG)\"\s+\"([^\"]+)\"|(?:URL_HASH|GIT_TAG)\s+([^\s\")]+)"
)


def describe(
    request: Request,
    source: Source,
    compiled: Compiled,
    tools: Venv,
    toolkit: Toolkit,
    third_party: Path,
    seconds: float,
) -> dict[str, Any]:
    """All of it but the wheel itself, which carries this document inside."""
    return {
        "v": 1,
        "key": request.key,
        "inputs": asdict(request.inputs),
        "git_url": request.git_url,
        "source_tree": source.tree,
        "third_party": revisions(third_party),
        "compilers": {
            "nvcc": toolkit.version,
            "cxx": first_line(["c++", "--version"]),
            "cmake": first_line([str(tools.root / "bin/cmake"), "--version"]),
            "ninja": first_line([str(tools.root / "bin/ninja"), "--version"]),
        },
        "only_arch": compiled.limited,
        "only_arch_reason": compiled.limited_reason,
        "jobs": list(compiled.tried),
        "nvcc_threads": request.nvcc_threads,
        "peak_memory_mib": round(compiled.peak_mib),
        "duration_s": round(seconds, 1),
        "built_on": socket.gethostname(),
        "built_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def revisions(folder: Path) -> dict[str, str]:
    """Third-party source -> its git commit or the hash of its archive, from the folder in which
    CMake's FetchContent keeps them; `unknown` where neither is told."""
    found: dict[str, str] = {}
    for source in sorted(folder.glob("*-src")):
        name = source.name[: -len("-src")]
        head = (
            command.run(["git", "-C", str(source), "rev-parse", "HEAD"])
            if (source / ".git").exists()
            else None
        )
        if head and head.ok:
            found[name] = head.stdout.strip()
            continue
        match = PINNED.search(text_of(folder / f"{name}-subbuild/CMakeLists.txt"))
        found[name] = (match.group(1) or match.group(2)) if match else "unknown"
    return found


def first_line(argv: list[str]) -> str:
    """What a program says of its version; `unknown` when it does not run."""
    result = command.run(argv)
    lines = result.stdout.strip().splitlines()
    return lines[0][:200] if result.ok and lines else "unknown"
