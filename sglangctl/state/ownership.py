"""Which files on a host are from sglang-provision: files of others are never overwritten or
deleted, whatever their names."""

from __future__ import annotations

import pwd
from pathlib import Path

from sglangctl.proc import command
from sglangctl.state.paths import Paths
from sglangctl.util.errors import Failed

HEAD = "# Made by sglang-provision"
"""First line of each of our units."""
MARKER = "sglang-provision.json"
"""In each finished venv of ours."""
FIND_S = 600.0
"""Time limit of a search through one of our folders, on a slow disk."""
WEIGHTS = ("*.safetensors", "*.gguf", "pytorch_model*.bin", "consolidated*.pth")


def written_by_others(path: Path) -> bool:
    """Whether a unit file is there that we did not write."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return not file.readline().startswith(HEAD)
    except FileNotFoundError:
        return path.is_symlink()


def weights_in(folder: Path) -> Path | None:
    """A weight file below `folder`, None when there is none: these are never deleted.

    Failed where that cannot be told. By find(1), which no folder is too deep for: an engine's
    cache is its user's, who may nest folders beyond Python's stack and the longest path.
    """
    if not folder.is_dir() or folder.is_symlink():
        return None
    names = [word for pattern in WEIGHTS for word in ("-o", "-name", pattern)][1:]
    argv = ["find", "-P", str(folder), "(", *names, ")", "-print0", "-quit"]
    result = command.run(argv, FIND_S)
    found = result.stdout.partition("\0")[0]
    if found:
        return Path(found)
    if not result.ok:
        said = (result.stderr.strip().splitlines() or ["find gave no reason"])[0]
        raise Failed(
            f"{folder} cannot be searched for weights ({said}); look at it, then run it again"
        )
    return None


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


def users(paths: Paths) -> list[str]:
    """The users that a deploy created and recorded, if their entries are unchanged.

    A user's comment is no proof: every user can set its own (chfn).
    """
    found = []
    for record in sorted(paths.users.glob("*")):
        try:
            uid = record.read_text(encoding="utf-8").split(":")[2]
            if uid == str(pwd.getpwnam(record.name).pw_uid) and uid != "0":
                found.append(record.name)
        except (OSError, ValueError, IndexError, KeyError):
            continue
    return found
