"""Who fills an environment: a user that is no engine's and whose files are root's afterwards."""

from __future__ import annotations

import configparser
import os
import pwd
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from sglangctl.state import build_user
from sglangctl.state.paths import Paths
from sglangctl.systemd import confined
from sglangctl.util.errors import Failed
from tests.conftest import THE_REAL_RUN

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives folders away")


@pytest.fixture
def root(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A host on which the build user is `nobody`, who is there already."""
    monkeypatch.setattr(build_user, "NAME", "nobody")
    monkeypatch.setattr(build_user, "run", THE_REAL_RUN)
    monkeypatch.setattr(confined.systemctl, "booted", lambda: False)
    with tempfile.TemporaryDirectory() as made:
        Path(made).chmod(0o755)
        yield Path(made)


def test_what_it_fills_is_roots_afterwards(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    venv, outside = root / "venv", root / "outside"
    outside.write_text("root's")
    monkeypatch.setenv("A_ROOT_SECRET", "hunter2")
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy")
    script = (
        f'id -un; env; cd "$1" && mkdir bin && cp /usr/bin/id bin && chmod 6777 bin bin/id && '
        f"ln -s {outside} link && touch ~/cached; echo x > {outside}"
    )
    ended = build_user.run(
        ["sh", "-c", script, "sh", str(venv)], Paths(root), limit_s=30, filled=[venv]
    )
    said = ended.stdout.decode()
    assert said.startswith("nobody\n") and "hunter2" not in said and "HTTPS_PROXY=" in said
    assert b"ermission denied" in ended.stderr and outside.read_text() == "root's"
    for path in (venv, venv / "bin", venv / "bin/id", venv / "link", outside):
        assert path.lstat().st_uid == 0, path
    for path in (venv, venv / "bin", venv / "bin/id"):
        assert not path.stat().st_mode & (stat.S_IWGRP | stat.S_IWOTH | stat.S_ISUID)
    assert (root / "var/cache/sglangctl/build/cached").stat().st_uid != 0


def test_a_second_filling_and_one_that_fails(root: Path) -> None:
    venv = root / "venv"
    for script in ("echo a > file", "echo b > file; exit 3"):
        ended = build_user.run(
            ["sh", "-c", f"cd {venv} && {script}"], Paths(root), limit_s=30, filled=[venv]
        )
    assert ended.returncode == 3 and (venv / "file").read_text() == "b\n"
    assert (venv / "file").stat().st_uid == 0


def test_the_way_to_a_private_index_is_handed_over(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = root / "of-root/pip.conf"
    config.parent.mkdir(mode=0o700)
    config.write_text("[global]\nindex-url = https://u:secret@index.example/\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(config))
    ended = build_user.run(["sh", "-c", 'cat "$PIP_CONFIG_FILE"'], Paths(root), limit_s=30)
    assert b"index.example" in ended.stdout
    copy = root / "var/cache/sglangctl/pip.conf"
    assert copy.stat().st_mode & 0o777 == 0o640 and copy.stat().st_uid == 0
    monkeypatch.setenv("PIP_CONFIG_FILE", "/nonexistent")
    build_user.run(["true"], Paths(root), limit_s=30)
    assert not copy.exists()


def test_settings_that_only_root_can_read_are_handed_over_and_merged_as_pip_does(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PIP_CONFIG_FILE", raising=False)
    home = root / pwd.getpwuid(0).pw_dir.strip("/") / ".config/pip"
    for folder, text in (
        (root / "etc", "[global]\nindex-url = https://u:secret@index.example/\ncert = /ca.pem\n"),
        (
            home,
            "[global]\ntimeout = 5\ncert = /own.pem\n[install]\nfind-links =\n    /a\n    /b%%\n",
        ),
    ):
        folder.mkdir(parents=True)
        (folder / "pip.conf").write_text(text)
        (folder / "pip.conf").chmod(0o600)
    ended = build_user.run(["sh", "-c", 'cat "$PIP_CONFIG_FILE"'], Paths(root), limit_s=30)
    parser = configparser.RawConfigParser()
    parser.read_string(ended.stdout.decode())
    assert dict(parser["global"]) == {
        "index-url": "https://u:secret@index.example/",
        "cert": "/own.pem",
        "timeout": "5",
    }
    assert parser["install"]["find-links"].split() == ["/a", "/b%%"]
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    ended = build_user.run(["sh", "-c", 'echo "$PIP_CONFIG_FILE"'], Paths(root), limit_s=30)
    assert ended.stdout == b"/dev/null\n"


def test_settings_that_are_none_are_a_sentence(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PIP_CONFIG_FILE", raising=False)
    (root / "etc").mkdir()
    (root / "etc/pip.conf").write_text("index-url = no section\n")
    with pytest.raises(Failed, match=r"etc/pip\.conf is no configuration of pip"):
        build_user.run(["true"], Paths(root), limit_s=30)


def test_a_build_user_that_is_root_is_refused(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build_user, "NAME", "root")
    with pytest.raises(Failed, match="is root"):
        build_user.run(["true"], Paths(root), limit_s=30)


def test_the_settings_that_choose_are_named(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    assert build_user.sources(Paths(root)) == []
    (root / "etc").mkdir()
    (root / "etc/pip.conf").write_text(
        "[global]\nindex-url = https://u:secret@h.example\ncert = /x\n[install]\nfind-links = /w\n"
    )
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_DEFAULT_TIMEOUT", "180")
    assert build_user.sources(Paths(root)) == ["find-links", "index-url", "no-index"]
