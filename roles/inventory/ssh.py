"""The `ssh` key of a host: its files on the controller, and what pyinfra is told.

pyinfra ends the whole run where a key file is missing, locked or no key, and goes on without a
word where a configuration file is missing: so both are looked at here, before any connection.
"""

from __future__ import annotations

import io
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path as FilePath
from typing import Any

from roles.inventory.errors import shown
from roles.inventory.reading import UnreadableFile, expanded, read_regular
from roles.inventory.schema import Report

LARGEST = 1024 * 1024
"""Bytes of a file that is read."""

DATA = {
    "hostname": "ssh_hostname",
    "user": "ssh_user",
    "port": "ssh_port",
    "key": "ssh_key",
    "known_hosts": "ssh_known_hosts_file",
    "config": "ssh_config_file",
    "host_key_checking": "ssh_strict_host_key_checking",
}
"""Key of the inventory -> pyinfra's host data."""
FILES = ("key", "known_hosts", "config")


def located(value: str, folder: FilePath) -> str:
    """A path of the inventory as an absolute one; UnreadableFile for ~ of nobody."""
    return os.path.abspath(folder / expanded(value))


def data(ssh: Mapping[str, Any], folder: FilePath) -> dict[str, Any]:
    """pyinfra's host data; `ssh` has only what is right, or what the command line replaces."""
    found = {}
    for key, value in ssh.items():
        if key in FILES:
            with suppress(UnreadableFile):
                found[DATA[key]] = located(value, folder)
        elif key in DATA:
            found[DATA[key]] = value
    return found


def check(
    ssh: Mapping[str, Any], folder: FilePath, report: Report, *, key_is_given: bool = False
) -> None:
    """Report files that cannot be used; `ssh` has only what the schema allows.

    + key_is_given: pyinfra was called with a key, or with its passphrase: the inventory's
      key need not stand by itself
    """
    for key, problem, allowed in (
        ("key", _key_problem, _KEY),
        ("known_hosts", _known_hosts_problem, _KNOWN_HOSTS),
        ("config", _config_problem, _CONFIG),
    ):
        if key not in ssh or (key == "key" and key_is_given):
            continue
        name = shown(ssh[key])
        try:
            path = FilePath(located(ssh[key], folder))
            name = shown(str(path))
            found = problem(path, ssh)
        except UnreadableFile as error:
            found = str(error)
        except FileNotFoundError:
            found = "does not exist"
        if found is not None:
            report((key,), f"{name}, which {found}", allowed, None)


_KEY = (
    "a private key on the controller without a passphrase (one with a passphrase: ssh-add it, and "
    "leave `ssh.key` out)"
)
_KNOWN_HOSTS = "a file on the controller with the hosts' public keys (ssh-keyscan HOST shows them)"
_CONFIG = "an ssh configuration file on the controller"


def _key_problem(path: FilePath, ssh: Mapping[str, Any]) -> str | None:
    # What pyinfra itself tries, in its order; imported late, it takes a while.
    import paramiko

    text = read_regular(path, LARGEST).decode("utf-8", "replace")
    for kind in (paramiko.RSAKey, paramiko.ECDSAKey, paramiko.Ed25519Key):
        try:
            kind.from_private_key(io.StringIO(text))
        except paramiko.PasswordRequiredException:
            return "is locked with a passphrase"
        except Exception:  # whatever a parser makes of bytes that are no key of this kind
            continue
        return None
    return "is no private key that can be used here (RSA, ECDSA, Ed25519)"


def _known_hosts_problem(path: FilePath, ssh: Mapping[str, Any]) -> str | None:
    try:
        read_regular(path, LARGEST)
    except FileNotFoundError:
        if ssh.get("host_key_checking") == "yes":
            return "does not exist, so that every host would be refused (host_key_checking: yes)"
        if not path.parent.is_dir():
            return "cannot be made: its folder does not exist"
        return None  # it is made with the first key that is accepted
    return None


def _config_problem(path: FilePath, ssh: Mapping[str, Any]) -> str | None:
    try:
        read_regular(path, LARGEST).decode("utf-8")
    except UnicodeDecodeError:
        return "is not UTF-8 text"
    return None
