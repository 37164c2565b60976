"""An environment with pip in a tenth of the time: this one's pip, linked, and none unpacked."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path


def made(folder: Path) -> Path:
    """A virtual environment in that folder, and its site-packages."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (site,) = folder.glob("lib/python*/site-packages")
    pip = distribution("pip")
    tops = {Path(file).parts[0] for file in pip.files or () if ".." not in Path(file).parts}
    for top in tops:
        (site / top).symlink_to(Path(str(pip.locate_file(top))))
    return site
