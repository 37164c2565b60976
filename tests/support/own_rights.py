"""What would run as the build user runs as oneself: no test makes that user on its machine."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from sglangctl.systemd import confined

PROGRAM = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); from sglangctl.state import build_user; "
    "from tests.support import own_rights; build_user.run = own_rights.run; "
    "build_user.theirs = own_rights.theirs; from sglangctl.cli import main; "
    "sys.exit(main(sys.argv[1:]))"
)


def run(argv: Any, paths: Any, *, filled: Any = (), own: Any = (), **options: Any) -> Any:
    """In the place of build_user.run."""
    for folder in filled:
        Path(folder).mkdir(parents=True, exist_ok=True)
    variables = options.pop("variables", None) or {}
    return confined.run(argv, None, environment={**os.environ, **variables}, **options)


def theirs(folder: Path, paths: Any) -> bool:
    """In the place of build_user.theirs."""
    folder.mkdir(parents=True, exist_ok=True)
    return False


def again() -> list[str]:
    """In the place of programs.again, for a process that calls the two."""
    return [sys.executable, "-c", PROGRAM, str(Path(__file__).resolve().parents[2])]
