"""The engine's venv: made once for a digest of its pins, verified, and never modified again."""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyinfra.api import FunctionCommand, Host, State, StringCommand, operation
from pyinfra.api.command import QuoteString
from pyinfra.context import host

from roles.failing import HostFailed, checked, failing, say
from roles.host.operations import UNREAD, show
from roles.host.snapshot import JSON, Input, snapshot
from roles.steps import run_step

MARKER = "sglang-provision.json"
"""Written last, after the check: a venv without it is a half one and is made again."""

# Prints {distribution: version} for the pins, or says which one is not as it was pinned.
VERIFY = """\
import importlib.metadata as metadata, json, re, sys
found, wrong = {}, []
for pin in json.loads(sys.argv[1]):
    match = re.fullmatch(r"([A-Za-z0-9._-]+)(?:\\[[^]]*\\])?==([^;\\s]+)(?:\\s*;.*)?", pin)
    if not match:
        continue
    name, wanted = match.groups()
    try:
        found[name] = metadata.version(name)
    except metadata.PackageNotFoundError:
        wrong.append(name + " is not there")
        continue
    same = found[name] == wanted or found[name].split("+")[0] == wanted
    if not same and not wanted.endswith(".*"):
        wrong.append(name + " is " + found[name] + ", not " + wanted)
if wrong:
    sys.exit("; ".join(wrong))
import importlib.util
if importlib.util.find_spec("sglang") is None:
    sys.exit("no module sglang in this venv")
print(json.dumps(found))
"""


@dataclass(frozen=True)
class Venv:
    """What is wanted: the path carries the digest of all the rest."""

    path: str
    python: str
    packages: tuple[str, ...]
    pip_arguments: tuple[str, ...] = ()
    system_site_packages: bool = False
    limit_s: float = 3600.0

    @property
    def marker(self) -> str:
        return f"{self.path}/{MARKER}"


def is_verified(venv: Venv, files: Mapping[str, Any]) -> bool:
    """Whether the probe saw the marker of a finished venv."""
    return (files.get(venv.marker) or {}).get("kind") == "file"


@operation()
def venv_ready(
    venv: Venv, request: JSON, sudo: bool = False
) -> Generator[StringCommand | FunctionCommand, None, None]:
    """
    Make the venv of an engine's pins, where a verified one is not there yet.

    + venv: path, python, packages and pip arguments
    + request: what the probe is asked for
    + sudo: whether commands need it on this host

    **Example:**

    .. code:: python

        venv_ready(name="Packages of kimi", venv=venv, request=request)
    """
    facts = snapshot(request)
    if facts is None:
        yield failing(UNREAD)
        return
    if is_verified(venv, facts["files"]):
        host.noop(f"{venv.path} is there and verified")
        return
    show([f"{venv.path}: new, {' '.join(venv.packages)}"])

    def build(state: State, host: Host) -> None:
        build_venv(host, venv, sudo)

    yield FunctionCommand(checked(build), (), {})


def build_venv(host: Host, venv: Venv, sudo: bool) -> None:
    """Make, fill and verify it. HostFailed says at which step it ended; a half venv is left for
    a look, and made again by the next run."""
    python = f"{venv.path}/bin/python"
    options = ["--system-site-packages"] if venv.system_site_packages else []
    step = _Steps(host, sudo, venv.limit_s)
    step(
        "creating the venv",
        ["rm", "-rf", "--", venv.path],
        [venv.python, "-m", "venv", *options, venv.path],
        then=f"look at {venv.python} (inventory: install.python; python3-venv is needed)",
    )
    step(
        f"installing {' '.join(venv.packages)}",
        [
            python,
            "-m",
            "pip",
            "install",
            "--no-input",
            "--disable-pip-version-check",
            "--progress-bar=off",
            *venv.pip_arguments,
            "--",
            *venv.packages,
        ],
        then="check install.packages and install.pip_arguments, and the host's way to its index",
    )
    lines = step(
        "verifying the venv",
        [python, "-I", "-c", VERIFY, json.dumps(venv.packages)],
        then="what pip put there is not what the inventory pins: look at install.packages",
    )
    try:
        found = json.loads(lines[-1])
    except (IndexError, ValueError):
        raise HostFailed(f"{python} did not answer the check of its packages") from None
    marker = json.dumps({"v": 1, "packages": found, "pins": venv.packages}, indent=1)
    ok, output = host.run_shell_command(
        StringCommand("cat >", QuoteString(venv.marker)), _stdin=Input([marker]), _sudo=sudo
    )
    if not ok:
        raise HostFailed(f"{venv.marker} cannot be written: {output.stderr}")
    say(host, "packages: " + ", ".join(f"{name} {version}" for name, version in found.items()))


class _Steps:
    """`run_step` with argument lists, for one host."""

    def __init__(self, host: Host, sudo: bool, limit_s: float) -> None:
        self.host, self.sudo, self.limit_s = host, sudo, limit_s

    def __call__(self, title: str, *commands: Sequence[str], then: str) -> list[str]:
        bits: list[object] = []
        for command in commands:
            bits += (
                ["&&", *(QuoteString(word) for word in command)]
                if bits
                else [QuoteString(word) for word in command]
            )
        return run_step(
            self.host,
            title,
            StringCommand(*bits),
            sudo=self.sudo,
            limit_s=self.limit_s,
            then=then,
        )
