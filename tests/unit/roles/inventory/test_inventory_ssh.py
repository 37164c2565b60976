"""The files that `ssh` names on the controller."""

from __future__ import annotations

import os
from pathlib import Path

import paramiko
import pytest

from roles.inventory.document import parse
from roles.inventory.errors import Need
from roles.inventory.load import build


def mistakes(folder: Path, ssh: str, key_is_given: bool = False) -> list[str]:
    text = f"hosts: {{h: {{ssh: {ssh}, engines: {{e: {{model: {{path: /m}}}}}}}}}}"
    (entry,) = build(parse(text, "f"), folder, {}, key_is_given=key_is_given).hosts
    assert all(one.need == Need.HOST for one in entry.mistakes)
    return [line.split(": ", 2)[2] for line in entry.errors]


def test_a_key_that_can_be_used(tmp_path: Path) -> None:
    paramiko.RSAKey.generate(1024).write_private_key_file(str(tmp_path / "rsa"))
    paramiko.ECDSAKey.generate().write_private_key_file(str(tmp_path / "ecdsa"))
    for name in ("rsa", "ecdsa"):
        assert mistakes(tmp_path, f"{{key: {name}}}") == []


def test_keys_that_cannot(tmp_path: Path) -> None:
    paramiko.ECDSAKey.generate().write_private_key_file(str(tmp_path / "locked"), password="xyz12")
    (tmp_path / "public").write_text("ssh-ed25519 AAAA someone\n")
    (tmp_path / "empty").write_text("")
    (tmp_path / "bytes").write_bytes(bytes(range(256)))
    paramiko.ECDSAKey.generate().write_private_key_file(str(tmp_path / "cut"))
    (tmp_path / "cut").write_text((tmp_path / "cut").read_text()[:100])
    os.mkfifo(tmp_path / "pipe")
    for name, said in {
        "gone": "which does not exist",
        "locked": "which is locked with a passphrase",
        "public": "which is no private key that can be used here (RSA, ECDSA, Ed25519)",
        "empty": "which is no private key",
        "bytes": "which is no private key",
        "cut": "which is no private key",
        "pipe": "which is a pipe, a socket or a device",
        ".": "which cannot be read: Is a directory",
        "~nosuchuser/key": "which begins with the home folder of a user that does not exist",
    }.items():
        (error,) = mistakes(tmp_path, f"{{key: {name}}}")
        assert said in error, error
        assert "ssh-add it, and leave `ssh.key` out" in error
        assert mistakes(tmp_path, f"{{key: {name}}}", key_is_given=True) == []


def test_a_key_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paramiko.ECDSAKey.generate().write_private_key_file(str(tmp_path / "key"))

    def refused(*_: object) -> int:  # root, who runs the tests, may read everything
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("roles.inventory.reading.os.open", refused)
    (error,) = mistakes(tmp_path, "{key: key}")
    assert "which cannot be read: Permission denied" in error


def test_a_configuration_that_is_not_there_is_not_ignored(tmp_path: Path) -> None:
    (error,) = mistakes(tmp_path, "{config: gone}")
    assert f'"{tmp_path}/gone", which does not exist' in error
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    (error,) = mistakes(tmp_path, "{config: bytes}")
    assert "which is not UTF-8 text" in error
    (tmp_path / "good").write_text("Host *\n")
    assert mistakes(tmp_path, "{config: good}") == []


def test_known_hosts_may_be_made_and_must_be_there_where_every_other_host_is_refused(
    tmp_path: Path,
) -> None:
    assert mistakes(tmp_path, "{known_hosts: new}") == []
    (error,) = mistakes(tmp_path, "{known_hosts: gone/new}")
    assert "which cannot be made: its folder does not exist" in error
    (error,) = mistakes(tmp_path, "{known_hosts: new, host_key_checking: yes}")
    assert "which does not exist, so that every host would be refused" in error
    (error,) = mistakes(tmp_path, "{known_hosts: .}")
    assert "which cannot be read: Is a directory" in error
    (tmp_path / "there").touch()
    assert mistakes(tmp_path, "{known_hosts: there, host_key_checking: yes}") == []


def test_all_of_them_at_once(tmp_path: Path) -> None:
    assert len(mistakes(tmp_path, "{key: a, config: b, known_hosts: c/d, port: 0}")) == 4
