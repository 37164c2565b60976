"""A small file onto a host, in one move."""

from __future__ import annotations

import base64

from pyinfra.api import Host, StringCommand
from pyinfra.api.command import QuoteString

from roles.remote.failing import HostFailed
from roles.remote.limits import FACT_S
from roles.remote.snapshot import Input


def upload(path: str, content: bytes, mode: str, owner: str = "root:root") -> StringCommand:
    """Write beside, own, rename: a reader sees the old file or the new one, never wider rights."""
    folder, _, name = path.rpartition("/")
    beside = QuoteString(f"{folder}/.{name}.new")
    return StringCommand(
        "( umask 077 && rm -f --",
        beside,
        "&& base64 -d >",
        beside,
        "&& chown",
        QuoteString(owner),
        beside,
        "&& chmod",
        mode,
        beside,
        # To the disk before it has its name: a power cut must not leave an empty file there.
        "&& sync",
        beside,
        "&& mv -T --",
        beside,
        QuoteString(path),
        ")",
        _stdin=Input([base64.b64encode(content).decode()]),
        _timeout=FACT_S,
    )


def put(host: Host, path: str, content: bytes, mode: str, sudo: bool) -> None:
    """The same from inside an operation, where pyinfra does not apply the host's own setting of sudo;
    HostFailed."""
    command = upload(path, content, mode)
    arguments = {**command.connector_arguments, "_sudo": sudo}
    made, output = host.run_shell_command(command, **arguments)
    if not made:
        raise HostFailed(f"{path} cannot be written: {' '.join(output.stderr_lines)}")
