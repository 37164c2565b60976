"""What we put on a host, told from what others put there: nothing of theirs is overwritten or
deleted, whatever its name."""

from __future__ import annotations

from pathlib import Path

from sglangctl.paths import Paths

HEAD = "# Made by sglang-provision"
"""First line of each of our units."""
MARKER = "sglang-provision.json"
"""In each finished venv of ours."""
WEIGHTS = ("*.safetensors", "*.gguf", "pytorch_model*.bin", "consolidated*.pth")


def foreign_unit(path: Path) -> bool:
    """Whether a unit file is there that we did not write."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return not file.readline().startswith(HEAD)
    except FileNotFoundError:
        return path.is_symlink()


def weights_in(folder: Path) -> Path | None:
    """A weight file below `folder`, None when there is none: these are never deleted."""
    if not folder.is_dir() or folder.is_symlink():
        return None
    return next((found for pattern in WEIGHTS for found in folder.rglob(pattern)), None)


def venvs(paths: Paths) -> list[Path]:
    """The finished venvs that we made."""
    return sorted(marker.parent for marker in paths.venvs.glob(f"*/{MARKER}"))


def programs(paths: Paths) -> list[Path]:
    """All versions of this program, and the link if it is ours."""
    found = sorted(paths.programs.glob("*.pyz"))
    link = paths.program_link
    if link.is_symlink() and link.resolve().parent == paths.programs.resolve():
        found.append(link)
    return found
