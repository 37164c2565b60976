"""The engine's venv: created once for each digest of its pins, verified, and never modified again."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path

from pyinfra.api import FunctionCommand, Host, State, StringCommand
from pyinfra.api.command import QuoteString
from pyinfra.context import host

from roles.engine.locking import why_none, with_lock
from roles.inventory import pins
from roles.inventory.locked import Locked
from roles.inventory.model import Install
from roles.remote import program
from roles.remote.failing import checked, say
from roles.remote.operation import operation, read, show, will_fail
from roles.remote.snapshot import JSON, forget
from roles.remote.steps import STEP, run_step
from roles.remote.upload import put
from roles.report.result import keep
from sglangctl.probe.venvs import UNFINISHED
from sglangctl.state.ownership import MARKER

# Checks that each pin is there in its version, and prints what is there. Requirements are read with
# pip's own copy of `packaging`, so that versions compare as pip's do.
VERIFY = """\
import importlib.metadata, importlib.util, json, sys
from pip._vendor.packaging.requirements import Requirement
found, wrong = {}, []
for pin in json.loads(sys.argv[1]):
    wanted = Requirement(pin)
    if wanted.marker is not None and not wanted.marker.evaluate():
        continue
    try:
        found[wanted.name] = importlib.metadata.version(wanted.name)
    except importlib.metadata.PackageNotFoundError:
        wrong.append(wanted.name + " is missing")
        continue
    if not wanted.specifier.contains(found[wanted.name], prereleases=True):
        wrong.append(wanted.name + " is " + found[wanted.name] + ", not " + str(wanted.specifier))
if importlib.util.find_spec("sglang") is None:
    wrong.append("there is no module sglang")
if wrong:
    sys.exit("; ".join(wrong))
print(json.dumps(found))
"""
# Python runs what packages left in .pth files, even when nothing is imported: so it runs confined,
# with the rights of the engine's user. Root writes the marker, as the last thing, and not through
# a link that a package left there.
MARK = """\
set -e; cd /
marker=$1 pins=$2; shift 2
found=$("$@")
rm -rf -- "$marker.new"
printf '{"v": 1, "packages": %s, "pins": %s}\\n' "$found" "$pins" >"$marker.new"
sync -- "$marker.new"
mv -fT -- "$marker.new" "$marker"
printf '%s\\n' "$found"
"""
HASHES = re.compile(r"HASHES|(?i:hash mismatch)")
"""In what pip and uv say of a file with another hash."""
KERNELS = ("sglang-kernel", "sgl-kernel")
"""Installed afterwards where the inventory or the GPU asks for another one than the stock wheel."""
FOLDED = 4
"""Pins that are shown; the report has all of them."""
VERIFY_S = 300.0
"""For a look at a venv's metadata, on a cold disk."""
DISK = "disk: "
"""Begins the last line of a failure: df's about the file system of the venvs."""
BUSY = 75
"""Exit status when another deploy is working on the same venv (EX_TEMPFAIL)."""


@dataclass(frozen=True)
class Venv:
    """What is wanted: the path carries the digest of all the rest."""

    path: str
    python: str
    packages: tuple[str, ...]
    pip_arguments: tuple[str, ...] = ()
    system_site_packages: bool = False
    locked: Locked | None = None
    """All packages with their hashes, where there is a lock."""
    lock_file: Path | None = None
    """Where a deploy keeps the one that it makes, on the controller."""
    index: tuple[str, ...] = ()
    find_links: tuple[str, ...] = ()
    digest: str = ""
    """64 hex digits, of all that decides what is in it."""
    user: str = "nobody"
    """With whose rights its own Python runs."""
    limit_s: float = 3600.0

    @property
    def install(self) -> Install:
        names = (one.name for one in fields(Install))
        return Install(**{name: getattr(self, name) for name in names})

    @property
    def marker(self) -> str:
        return f"{self.path}/{MARKER}"

    @property
    def lock(self) -> str:
        """Held while it is made."""
        return f"/run/sglang-venv-{self.path.rpartition('/')[2]}.lock"

    @property
    def requirements(self) -> str:
        """Where pip reads the locked packages."""
        return f"/run/sglang-venv-{self.path.rpartition('/')[2]}.txt"

    @property
    def progress(self) -> str:
        """Where the host says how much has come."""
        return f"/run/sglang-venv-{self.path.rpartition('/')[2]}.progress"

    @property
    def verified(self) -> tuple[str, ...]:
        """What must be in it: the pins, and of a lock all but the kernel, which can be another one."""
        if self.locked is None:
            return self.packages
        of_lock = (one for one in self.locked.packages if pins.distribution(one) not in KERNELS)
        return tuple(dict.fromkeys((*self.packages, *of_lock)))


def fact_of(venv: Venv, facts: JSON) -> JSON:
    """What the probe says of it: {wrong, starts, python, running}."""
    return dict((facts.get("venvs") or {}).get(venv.path) or {"wrong": "new"})


@operation()
def venv_ready(
    venv: Venv, request: JSON, sudo: bool = False
) -> Generator[StringCommand | FunctionCommand, None, None]:
    """
    Make the venv of an engine's pins, where there is no verified one yet.

    + venv: path, python, packages and pip arguments
    + request: what the probe is asked for
    + sudo: whether commands need it on this host

    **Example:**

    .. code:: python

        venv_ready(name="Packages of kimi", venv=venv, request=request)
    """
    facts = read(request)
    fact = fact_of(venv, facts)
    if not fact["wrong"]:
        host.noop(f"{venv.path} is there and verified")
        return
    unlocked = why_none(venv.install, facts)
    show([f"{venv.path}: {fact['wrong']}, {folded(venv.packages)}, {of_lock(venv, unlocked)}"])
    # What an engine runs from is left alone as long as it can be started again from it.
    kept = list(fact.get("running") or []) if fact.get("starts") else []
    if kept and fact["wrong"] != UNFINISHED:
        yield will_fail(f"{fact['wrong']}; {left_alone(kept)}")
        return

    def build(state: State, host: Host) -> None:
        whole = venv if kept or unlocked else with_its_lock(host, venv)
        if whole.locked is not None:
            put(host, whole.requirements, whole.locked.content, "0644", sudo)
        build_venv(host, whole, sudo, kept)

    yield FunctionCommand(checked(build), (), {})
    forget()


def build_venv(host: Host, venv: Venv, sudo: bool, kept: Sequence[str] = ()) -> None:
    """Make, fill and verify it, under a lock, so that two deploys do not mix one.

    A venv that the engines `kept` run from is only verified again. HostFailed says at which step it
    ended; a half venv is left for a look, and made again by the next run.
    """
    options = ["--system-site-packages"] if venv.system_site_packages else []
    # Source packages run build scripts, and .pth files whenever Python starts: none of it as root.
    fill = partial(confine, user=None, limit_s=venv.limit_s, writable=(venv.path,))
    make = [
        ["echo", f"{STEP}creating the venv"],
        ["rm", "-rf", "--", venv.path],
        fill([venv.python, "-I", "-m", "venv", *options, venv.path]),
        ["echo", f"{STEP}installing the packages"],
        fill_command(venv),
    ]
    commands = [*([] if kept else make), ["echo", f"{STEP}verifying the venv"], verify(venv)]
    title = f"installing {folded(venv.packages)} into {venv.path}"
    lines = run_step(
        host,
        title,
        StringCommand(
            # Whoever can open a lock file for reading can hold the lock, too.
            "umask 077 && : >>",
            QuoteString(venv.lock),
            "&& chmod 600",
            QuoteString(venv.lock),
            "&& flock -n -E",
            str(BUSY),
            QuoteString(venv.lock),
            "sh -c",
            QuoteString(
                # Where it fails for want of room, neither venv nor pip always says so.
                StringCommand(
                    "umask 022 &&",
                    all_of(commands),
                    "|| { status=$?; df -P --",
                    QuoteString(venv.path.rpartition("/")[0]),
                    f"| sed -n '2s/^/{DISK}/p'; exit $status; }}",
                )
            ),
        ),
        sudo=sudo,
        limit_s=venv.limit_s,
        then=next_step(venv, kept),
        more=["cat", "--", venv.progress],
    )
    keep(host, f"packages of {venv.path}", found := installed(lines))
    say(host, f"packages: {folded(found) or 'none'}")


def fill_command(venv: Venv) -> list[str]:
    """The command that installs the packages."""
    what = [f"--package={pin}" for pin in venv.packages]
    if venv.locked is not None:
        what = [f"--requirements={venv.requirements}"]
    given = [f"--pip-argument={argument}" for argument in venv.install.arguments]
    how = [f"--limit={venv.limit_s:g}", f"--progress={venv.progress}"]
    return program.argv("fill", *how, *what, *given, "--", venv.path)


def with_its_lock(host: Host, venv: Venv) -> Venv:
    return replace(venv, locked=with_lock(host, venv.install, venv.digest).locked)


def of_lock(venv: Venv, unlocked: str | None) -> str:
    """What decides the packages below the pins."""
    if venv.locked is not None:
        return f"locked: {len(venv.locked.packages)} packages"
    return f"no lock: {unlocked}" if unlocked else "no lock yet: this deploy makes one"


def folded(packages: Sequence[str]) -> str:
    """One line for any number of pins: the first ones, sglang before all."""
    first = sorted(packages, key=lambda pin: not pin.startswith("sglang"))[:FOLDED]
    more = len(packages) - len(first)
    return " ".join(first) + (f" and {more} more" if more else "")


def installed(lines: Sequence[str]) -> list[str]:
    """NAME==VERSION of each pinned package, from the last line that MARK prints."""
    try:
        found = json.loads(lines[-1]) if lines else {}
    except ValueError:
        return []
    if not isinstance(found, dict):
        return []
    return [f"{name}=={version}" for name, version in sorted(found.items())]


def verify(venv: Venv) -> list[str]:
    """The command that checks a filled venv and writes its marker."""
    wanted = json.dumps(venv.verified)
    look = [f"{venv.path}/bin/python", "-I", "-c", VERIFY, wanted]
    confined = confine(look, venv.user, VERIFY_S)
    return ["sh", "-c", MARK, "sh", venv.marker, wanted, *confined]


def confine(
    argv: Sequence[str], user: str | None, limit_s: float, writable: Sequence[str] = ()
) -> list[str]:
    """The command that runs `argv` on the host in the sandbox for code of others: as `user`, or
    (None) as the one that installs, for whom `writable` are the folders that it fills."""
    folders = [f"--writable={folder}" for folder in writable]
    who = "--build" if user is None else f"--user={user}"
    options = [who, f"--limit={limit_s:g}", *folders]
    return program.argv("confine", *options, "--", *argv)


def all_of(commands: Sequence[Sequence[str]]) -> StringCommand:
    """Argument lists, joined so that the first failure ends it."""
    bits: list[object] = []
    for command in commands:
        bits += ["&&"] if bits else []
        bits += [QuoteString(word) for word in command]
    return StringCommand(*bits)


def left_alone(kept: Sequence[str]) -> str:
    """The next step for a venv that engines run from."""
    return (
        f"{', '.join(kept)} runs from this venv, so it was left alone: stop it (sglangctl stop "
        f"{kept[0]}) and deploy again"
    )


def next_step(venv: Venv, kept: Sequence[str] = ()) -> Callable[[Sequence[str]], str]:
    """The next step for a failure's output."""

    def then(lines: Sequence[str]) -> str:
        step = next((line for line in reversed(lines) if line.startswith(STEP)), "")
        if not lines:
            return f"if another deploy is working on {venv.path}, wait for it; else deploy again"
        disk = next((line.split() for line in lines if line.startswith(DISK)), [])
        if disk[4:5] == ["0"] or any("No space left on device" in line for line in lines):
            folder = venv.path.rpartition("/")[0]
            return f"{folder} has no room left: make room there (df -h {folder}), then deploy again"
        if "creating" in step:
            return f"look at {venv.python} (install.python): apt-get install python3-venv?"
        if "installing" in step and any(HASHES.search(line) for line in lines):
            return (
                "a file is another one than the lock names (an index that was changed?): compare it, "
                "then sglang-lock --upgrade"
            )
        if "installing" in step and venv.locked is not None and venv.locked.environment:
            return (
                "check install.index and the host's network access to its index; where that has other "
                f"releases, delete {venv.lock_file}: the next deploy chooses anew"
            )
        if "installing" in step:
            return (
                "check install.packages, install.index and install.pip_arguments, and the host's "
                "network access to its index"
            )
        if any("Permission denied" in line for line in lines):
            return (
                f"the user {venv.user} must be able to read {venv.path}: check the rights of the "
                f"folders above it (namei -l {venv.path})"
            )
        if kept:
            return left_alone(kept)
        return "pip installed other versions than the inventory pins: check install.packages"

    return then
