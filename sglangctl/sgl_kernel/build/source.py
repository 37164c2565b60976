"""The kernel's source on the build host: one commit, patched, in the build's folder.

A folder that already holds this commit with these patches is left as it is: ninja goes by
modification times, and a fresh checkout would compile everything again.
"""

from __future__ import annotations

import hashlib
import json
import os
import pwd
import shutil
from dataclasses import dataclass
from pathlib import Path

from sglangctl.proc import command
from sglangctl.sgl_kernel.build import command_line
from sglangctl.sgl_kernel.build.record import BuildError
from sglangctl.sgl_kernel.build.request import SUBDIRECTORIES, Request
from sglangctl.state import build_user

STAMP = ".sglangctl-source.json"
NETWORK = (
    f"give the build host network access to kernel.git.url, or name a copy that {build_user.NAME} "
    "can read there"
)


@dataclass(frozen=True)
class Source:
    """`project` has the pyproject.toml; `tree` is git's id of that folder's content."""

    project: Path
    tree: str


def prepare(request: Request, patches_in: Path, work: Path, log: Path) -> Source:
    """Check the commit out below `work` (or find it there) and apply the patches; BuildError."""
    target = work / "source"
    patches = checked_patches(request, patches_in)
    wanted = {"commit": request.inputs.commit, "patches": list(request.inputs.patches)}
    if _stamp(target) != wanted:
        shutil.rmtree(target, ignore_errors=True)
        _fetch(request, target, log)
        for patch in patches:
            _git(
                ["apply", "--verbose", "--", str(patch)],
                target,
                log,
                f"the patch {patch.name} does not fit {request.inputs.commit[:12]}",
                "rebase the patch on kernel.git.commit, or drop it from kernel.patches",
            )
        (target / STAMP).write_text(json.dumps(wanted))
    project = find_project(target, request.subdirectory)
    inside = project.relative_to(target).as_posix()
    spec = request.inputs.commit + (f":{inside}" if inside != "." else "^{tree}")
    tree = command.run(["git", "-C", str(target), "rev-parse", spec])
    if not tree.ok:
        raise BuildError(f"git cannot name the tree of {inside}: {tree.stderr.strip()}", NETWORK)
    return Source(project, tree.stdout.strip())


def checked_patches(request: Request, folder: Path) -> list[Path]:
    """The patch files of `folder`, each with the sha256 that the key was made from."""
    found = sorted(folder.glob("*"))
    digests = tuple(hashlib.sha256(path.read_bytes()).hexdigest() for path in found)
    if digests != request.inputs.patches:
        raise BuildError("the patches are not those of the request", "deploy again")
    return found


def find_project(target: Path, subdirectory: str | None) -> Path:
    """The folder with pyproject.toml and CMakeLists.txt: the named one, else the known places."""
    for name in (subdirectory,) if subdirectory else SUBDIRECTORIES:
        project = (target / name).resolve()
        inside = project == target.resolve() or target.resolve() in project.parents
        if inside and all(
            (project / file).is_file() for file in ("pyproject.toml", "CMakeLists.txt")
        ):
            return project
    places = subdirectory or ", ".join(SUBDIRECTORIES)
    raise BuildError(
        f"this commit has no kernel source (pyproject.toml, CMakeLists.txt) in {places}",
        "check kernel.git: the commit must be one of SGLang's repository, or set git.path",
    )


def _fetch(request: Request, target: Path, log: Path) -> None:
    target.mkdir(parents=True)
    commit = request.inputs.commit
    if pwd.getpwuid(os.geteuid()).pw_name == build_user.NAME:
        # A repository of this host is somebody else's. git's refusal protects who has rights to
        # lose, and asks only that user's own settings.
        trust = ["config", "--global", "--replace-all", "safe.directory", "*"]
        _git(trust, target, log, "git does not work", "apt-get install git")
    _git(["init", "--quiet"], target, log, "git does not work", "apt-get install git")
    _git(
        ["remote", "add", "origin", "--", request.git_url],
        target,
        log,
        "git refuses kernel.git.url",
        "check kernel.git.url",
    )
    # One commit is enough, where the server gives out commits by their id; else everything.
    shallow = command_line.run(
        ["git", "-C", str(target), "fetch", "--quiet", "--depth=1", "origin", commit], log
    )
    if shallow.returncode:
        _git(
            ["fetch", "--quiet", "origin", "+refs/*:refs/remotes/origin/*"],
            target,
            log,
            f"{request.git_url} cannot be fetched",
            NETWORK,
        )
    _git(
        ["checkout", "--quiet", "--detach", commit],
        target,
        log,
        f"{request.git_url} has no commit {commit}",
        "check kernel.git.commit",
    )


def _git(arguments: list[str], target: Path, log: Path, sentence: str, next_step: str) -> None:
    try:
        done = command_line.run(["git", "-C", str(target), *arguments], log)
    except OSError:
        raise BuildError("git is not installed on the build host", "apt-get install git") from None
    if done.returncode:
        said = " ".join(list(done.lines)[-2:])
        raise BuildError(f"{sentence} ({said.strip()[:300]})", next_step)


def _stamp(target: Path) -> object:
    try:
        return json.loads((target / STAMP).read_text())
    except (OSError, ValueError):
        return None
