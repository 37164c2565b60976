"""The user that code of a package index runs as while it is installed or built.

Not an engine's: an engine could then change what others (and its own next release) will run.
What this user fills is root's afterwards, and nobody else can write there.
"""

from __future__ import annotations

import configparser
import io
import os
import pwd
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from sglangctl.proc import command
from sglangctl.state.files import write_atomic
from sglangctl.state.paths import OWN_USER, Paths
from sglangctl.systemd import confined
from sglangctl.util import lazy_re
from sglangctl.util.errors import Failed

NAME = "sglang-build"
KEPT = lazy_re.compile(
    f"{confined.KEPT.pattern}|PIP_\\w+|SSL_CERT_(?:FILE|DIR)|(?:REQUESTS|CURL)_CA_BUNDLE|"
    "GIT_SSL_CA(?:INFO|PATH)|SGLANGCTL_ROOT|"
    "(?i:(?:https?|all|no)_proxy)"
)
"""Variables of root's that pip and git need to reach what they fetch."""
GLOBAL = ("etc/xdg/pip/pip.conf", "etc/pip.conf")
CONFIGURATION = (".pip/pip.conf", ".config/pip/pip.conf")
"""In root's home. How to reach a private index: the user gets a copy, as build scripts always did."""
CHOOSING = frozenset(
    [
        "index-url",
        "extra-index-url",
        "find-links",
        "no-index",
        "constraint",
        "pre",
        "no-binary",
        "only-binary",
        "prefer-binary",
        "no-deps",
        "no-dependencies",
        "use-deprecated",
        "uploaded-prior-to",
    ]
)
"""Settings of pip that decide what is installed."""
CHOWN_S = 600.0
"""For an environment of a hundred thousand files."""


def run(
    argv: Sequence[str],
    paths: Paths,
    *,
    limit_s: float,
    filled: Sequence[Path] = (),
    own: Sequence[Path] = (),
    streamed: bool = False,
    tell: Callable[[bytes], None] | None = None,
    unit: Sequence[str] = (),
    name: str | None = None,
    variables: Mapping[str, str] | None = None,
) -> confined.Ended:
    """Run `argv` confined as the build user, who is made where there is none.

    + filled: folders that it writes to: the user's while it runs, root's afterwards
    + own: folders that stay the user's (`theirs` makes them): root never runs, follows or changes
      anything in there
    + tell, unit, name: as confined.run has them
    + variables: of its environment, beside those that are KEPT

    Whoever is not root runs it with their own rights. Failed where user or folders cannot be made.
    """
    if os.geteuid() != 0:
        environment = {**os.environ, **(variables or {})}
        return confined.run(
            argv, None, limit_s=limit_s, environment=environment, streamed=streamed, tell=tell
        )
    home = ensure(paths)
    environment = {
        **confined.kept(os.environ, KEPT),
        **(variables or {}),
        "HOME": str(home),
    }
    settings = _settings(paths)
    if settings is not None:
        environment["PIP_CONFIG_FILE"] = str(settings)
    with ExitStack() as stack:
        for folder in filled:
            stack.enter_context(lent(folder))
        return confined.run(
            argv,
            NAME,
            limit_s=limit_s,
            environment=environment,
            writable=[home, *filled, *own],
            streamed=streamed,
            tell=tell,
            unit=unit,
            name=name,
        )


def ensure(paths: Paths) -> Path:
    """Make the user where there is none; returns its home, in which pip keeps what it downloads."""
    home = paths.root / "var/cache/sglangctl/build"
    try:
        entry = pwd.getpwnam(NAME)
    except KeyError:
        options = ["--system", "--user-group", "--no-create-home", "--shell", "/usr/sbin/nologin"]
        made = command.run(
            ["useradd", *options, "--comment", OWN_USER, "--home-dir", str(home), "--", NAME]
        )
        if not made.ok:
            said = made.stderr.strip()
            raise Failed(
                f"the user {NAME} cannot be made: {said}; make it, then deploy again"
            ) from None
        entry = pwd.getpwnam(NAME)
        paths.users.mkdir(parents=True, exist_ok=True)
        write_atomic(paths.users / NAME, (":".join(map(str, entry)) + "\n").encode(), 0o644)
    if entry.pw_uid == 0:
        raise Failed(f"the user {NAME} is root: give it another uid, then deploy again")
    home.mkdir(parents=True, exist_ok=True)
    os.chmod(home, 0o700)
    os.chown(home, entry.pw_uid, entry.pw_gid)
    return home


def theirs(folder: Path, paths: Paths) -> bool:
    """Make `folder` one that only the build user can enter; whether one of somebody else's (an
    earlier version filled it as root) was deleted for that.

    The folder above it must be root's. Failed where it cannot be made.
    """
    if os.geteuid() != 0:
        folder.mkdir(parents=True, exist_ok=True)
        return False
    ensure(paths)
    entry = pwd.getpwnam(NAME)
    folder.parent.mkdir(parents=True, exist_ok=True)
    found = None
    with suppress(FileNotFoundError):
        found = folder.lstat()
    if found is not None and stat.S_ISDIR(found.st_mode) and found.st_uid == entry.pw_uid:
        return False
    if found is not None:
        discard(folder)
    folder.mkdir(mode=0o700)
    os.chown(folder, entry.pw_uid, entry.pw_gid, follow_symlinks=False)
    return found is not None


def discard(folder: Path) -> None:
    """Delete a tree that others have filled: rm follows no link and bears any depth. Failed."""
    _call(["rm", "-rf", "--one-file-system", "--", str(folder)])


@contextmanager
def lent(folder: Path) -> Iterator[None]:
    """A folder (made where it is missing) and all in it are the build user's, then root's again and
    writable for nobody else. No link is followed. Nothing of that user may run afterwards."""
    folder.mkdir(parents=True, exist_ok=True)
    _own(folder, NAME)
    try:
        yield
    finally:
        _own(folder, "root")
        closed(folder)


def closed(folder: Path) -> None:
    """Nobody but its owner can write below a folder, and nothing in it gives rights. Failed."""
    _call(["chmod", "-R", "go-w,a-s", "--", str(folder)])


def _own(folder: Path, user: str) -> None:
    entry = pwd.getpwnam(user)
    _call(["chown", "-hR", f"{entry.pw_uid}:{entry.pw_gid}", "--", str(folder)])


def _call(argv: list[str]) -> None:
    done = command.run(argv, CHOWN_S)
    if not done.ok:
        said = (done.stderr.strip().splitlines() or ["no reason was given"])[0]
        raise Failed(f"{argv[0]} of {argv[-1]} failed: {said}; look at it, then deploy again")


def sources(paths: Paths) -> list[str]:
    """The settings of root's pip that decide what is installed, by their names; Failed where a file is
    not in pip's format."""
    return sorted(CHOOSING & settings(paths).keys())


def settings(paths: Paths) -> dict[str, str]:
    """What `pip install` of root is set to, by its files and variables; Failed as above."""
    merged = _merged(paths)
    found: dict[str, str] = {}
    for section in ("global", "install"):
        found.update(merged.items(section) if merged.has_section(section) else ())
    of_variables = {
        name[4:].lower().replace("_", "-"): value
        for name, value in os.environ.items()
        if name.startswith("PIP_") and value
    }
    return {**{name.replace("_", "-"): value for name, value in found.items()}, **of_variables}


def _settings(paths: Paths) -> Path | None:
    """All settings of root's pip in a file that the build user can read; None without any.

    A file with an index's password is readable for root alone, and pip ignores what it cannot read.
    Failed where one is not in pip's format.
    """
    named = os.environ.get("PIP_CONFIG_FILE")
    if named == os.devnull:
        return Path(named)  # as pip has it: no file at all
    merged = _merged(paths)
    copy = paths.root / "var/cache/sglangctl/pip.conf"
    if not merged.sections():
        copy.unlink(missing_ok=True)
        return None
    text = io.StringIO()
    merged.write(text)
    write_atomic(copy, text.getvalue().encode(), 0o640, 0, pwd.getpwnam(NAME).pw_gid)
    return copy


def _merged(paths: Paths) -> configparser.RawConfigParser:
    """All settings of root's pip from its files; Failed."""
    merged = configparser.RawConfigParser()
    named = os.environ.get("PIP_CONFIG_FILE")
    if named == os.devnull:
        return merged
    home = pwd.getpwuid(0).pw_dir.strip("/")
    files = [paths.root / name for name in (*GLOBAL, *(f"{home}/{own}" for own in CONFIGURATION))]
    # Later ones win, as in pip.
    for source in [*files, *([Path(named)] if named else [])]:
        try:
            merged.read_string(source.read_text(encoding="utf-8"), str(source))
        except OSError:
            continue
        except (configparser.Error, UnicodeDecodeError) as error:
            said = str(error).splitlines()[0]
            raise Failed(f"{source} is no configuration of pip: {said}; correct it") from None
    return merged
