"""The deploy file as a module of its own, so that a plan with many hosts costs less.

pyinfra finds the place of each operation with `inspect`, for each host. For a file that is no module's,
inspect looks at all modules of the process, each time. docs/hosts.md has the figures.
"""

from __future__ import annotations

import os
import sys
from types import ModuleType

PREFIX = "sglang_deploy_file_"


def as_module(file: str | None) -> None:
    """Give the file that pyinfra runs a module, unless it has one; None where there is no file."""
    if not file:
        return
    name = PREFIX + os.path.basename(file).partition(".")[0]
    if name not in sys.modules:
        module = ModuleType(name)
        module.__file__ = file
        sys.modules[name] = module
