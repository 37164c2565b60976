"""The package as a user installs it: a wheel, in an environment that knows nothing of the checkout."""

from __future__ import annotations

import site
import subprocess
import sys
from pathlib import Path

from tests.hosts.say import ROOT


def installed(folder: Path) -> Path:
    """Build the wheel and install it into a new environment in `folder`; returns its bin folder.

    Without the network: what it depends on is this environment's own, which a line in a .pth file
    adds behind the new one's site-packages (lines in this one's .pth files, such as the editable
    checkout's, are not read that way).
    """
    run(ROOT, sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder / "dist"))
    (wheel,) = (folder / "dist").glob("*.whl")
    run(folder, sys.executable, "-m", "venv", "--without-pip", str(folder / "venv"))
    python = folder / "venv/bin/python"
    offline = ["install", "--quiet", "--no-deps", "--no-index", str(wheel)]
    run(folder, sys.executable, "-m", "pip", "--python", str(python), *offline)
    (packages,) = (folder / "venv").glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text("\n".join(site.getsitepackages()) + "\n")
    return python.parent


def run(folder: Path, *argv: str) -> None:
    """Run a command there; AssertionError with what it said if it fails."""
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stdout + done.stderr
