"""Packages into a new environment: a lock's by uv, with hard links to one cache; all else by pip.

uv runs as root, because hard links to files that root owns are root's alone to make, and it runs no
code of a package: only wheels, whose hashes the lock has. It has no capability, and nothing to write
to but /opt/sglang. pip runs build scripts, so it is the build user, in an environment of its own.
"""

from __future__ import annotations

import os
import re
import stat
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from sglangctl.packages import growth, options
from sglangctl.packages.uv_program import NoUv, ready
from sglangctl.state import build_user
from sglangctl.state.paths import Paths
from sglangctl.systemd import confined
from sglangctl.util import lazy_re

COMPILE_S = 900.0
MISMATCH = lazy_re.compile(r"(?i)hash mismatch")


@dataclass(frozen=True)
class Wanted:
    """What comes into which environment."""

    venv: Path
    requirements: Path | None
    """A lock: every package with its hashes."""
    packages: tuple[str, ...] = ()
    """Where there is no lock."""
    arguments: tuple[str, ...] = ()
    """Of `pip install`."""
    limit_s: float = 3600.0

    @property
    def python(self) -> Path:
        return self.venv / "bin/python"

    @property
    def pip(self) -> list[str]:
        return [str(self.python), "-I", "-m", "pip"]


def fill(wanted: Wanted, progress: Path | None, paths: Paths) -> int:
    """Fill it; the exit status. What is to be read goes to our output."""
    began = time.time() - 1
    cache = paths.packages
    home = paths.root / "var/cache/sglangctl/build/.cache/pip"

    def size() -> int:
        buckets = cache.iterdir() if cache.is_dir() else ()
        new = sum(growth.size_of(bucket, began) for bucket in buckets if bucket.is_dir())
        return new + growth.size_of(home) + (0 if new else growth.size_of(wanted.venv))

    with growth.written_to(progress, size):
        if wanted.requirements is not None:
            try:
                return by_uv(wanted, wanted.requirements, paths)
            except NoUv as why:
                print(f"uv is not used: {why}; pip installs", flush=True)
        return by_pip(wanted, paths)


def by_pip(wanted: Wanted, paths: Paths) -> int:
    argv = [*wanted.pip, "install", "--no-input", "--disable-pip-version-check"]
    argv += ["--progress-bar=off", *wanted.arguments]
    if wanted.requirements is not None:
        argv += ["--require-hashes", "--requirement", str(wanted.requirements)]
    else:
        argv += ["--", *wanted.packages]
    ended = build_user.run(argv, paths, limit_s=wanted.limit_s, filled=[wanted.venv], streamed=True)
    return confined.status(ended)


def by_uv(wanted: Wanted, requirements: Path, paths: Paths) -> int:
    """NoUv while nothing was changed, so that pip can do it."""
    interpreter_is_roots(wanted.python)
    try:
        given, said = options.for_uv(wanted.arguments)
    except options.Unknown as argument:
        raise NoUv(f"it does not know {argument}") from None
    uv = ready(wanted.pip, wanted.arguments, paths)
    paths.packages.mkdir(parents=True, exist_ok=True)
    paths.packages.chmod(0o700)  # whoever could open uv's locks could hold them
    before = entries(wanted.venv)
    argv = [str(uv), "pip", "install", f"--python={wanted.python}", "--quiet", "--no-config"]
    argv += ["--require-hashes", "--no-build", "--link-mode=hardlink", "--no-python-downloads"]
    argv += ["--index-strategy=unsafe-best-match", "--system-certs", "--color=never"]
    argv += [f"--cache-dir={paths.packages}", *given, "--requirement", str(requirements)]
    environment = {**options.variables(build_user.settings(paths)), **said}
    ended = alone(argv, wanted.limit_s, environment, paths)
    text = ended.stderr.decode("utf-8", "backslashreplace")
    if ended.returncode != 0:
        at_limit = ended.returncode is None  # pip would get the same time once more
        if not (at_limit or MISMATCH.search(text)) and entries(wanted.venv) == before:
            raise NoUv(" ".join(text.split())[-600:] or f"it ended with {ended.returncode}")
        sys.stderr.write(text)
        return confined.status(ended) or 1
    compiled(wanted, paths)
    build_user.closed(wanted.venv)
    return 0


def alone(
    argv: Sequence[str], limit_s: float, more: dict[str, str], paths: Paths
) -> confined.Ended:
    """Run it as root (or whoever we are) without a capability, with one folder to write to: a hard link
    leads from one mount to the same one only, and each writable folder is a mount."""
    user = "root" if os.geteuid() == 0 else None
    environment = {**confined.kept(os.environ, build_user.KEPT), **more}
    folder = paths.packages.parent
    return confined.run(argv, user, limit_s=limit_s, environment=environment, writable=[folder])


def compiled(wanted: Wanted, paths: Paths) -> None:
    """Bytecode, which no start could write: the environment is root's. It is compiled once for all
    environments. -S: Python then runs no .pth file, so nothing of a package."""
    said = (wanted.venv / "pyvenv.cfg").read_text(encoding="utf-8", errors="replace")
    version = re.search(r"^version\s*=\s*3\.(\d+)", said, re.MULTILINE)
    tag = f"cpython-3{version[1]}" if version else ""
    (site,) = (wanted.venv / "lib").glob("python3.*/site-packages")
    missing = [one for one in sources(site) if not bytecode(one, tag).exists()]
    if not missing:
        return
    jobs = f"-j{len(os.sched_getaffinity(0))}"
    # Sources of another Python's syntax do not compile, as with pip.
    argv = [str(wanted.python), "-I", "-S", "-m", "compileall", "-q", jobs, str(site)]
    alone(argv, COMPILE_S, {}, paths)
    inodes = {one.stat().st_ino: one for one in sources(paths.packages / "archive-v0")}
    for source in missing:
        origin, new = inodes.get(source.stat().st_ino), bytecode(source, tag)
        if origin is None or not new.exists():
            continue
        kept = bytecode(origin, tag)
        kept.parent.mkdir(exist_ok=True)
        with suppress(OSError):  # it is there, or the cache lies elsewhere: compiled again then
            os.link(new, kept)


def sources(folder: Path) -> list[Path]:
    found = []
    for place, _, files in os.walk(folder):
        found += [Path(place, name) for name in files if name.endswith(".py")]
    return found


def bytecode(source: Path, tag: str) -> Path:
    return source.parent / "__pycache__" / f"{source.stem}.{tag}.pyc"


def entries(venv: Path) -> list[str]:
    (site,) = (venv / "lib").glob("python3.*/site-packages")
    return sorted([*os.listdir(site), *os.listdir(venv / "bin")])


def interpreter_is_roots(python: Path) -> None:
    """NoUv for a Python that somebody else could have changed: uv asks it, with root's rights."""
    if os.geteuid() != 0:
        return
    real = Path(os.path.realpath(python))
    for one in (real, *real.parents):
        status = one.stat()
        loose = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not status.st_mode & stat.S_ISVTX
        if status.st_uid != 0 or loose:
            raise NoUv(f"{real} is not root's alone ({one})")
