"""A file that the log calls missing, and that is there."""

from __future__ import annotations

import os
import pwd
import time
from pathlib import Path

import pytest

from sglangctl.proc import as_user
from sglangctl.startup.fold import Startup
from sglangctl.watch import missing_files
from sglangctl.watch.missing_files import closed
from tests.support.startup_events import feed, launch, log, traceback

USER = "nobody"
SAID = "FileNotFoundError: No such file or directory: {}"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    if os.geteuid() != 0:
        pytest.skip("only root sees what others cannot")
    for folder in (tmp_path, *list(tmp_path.parents)[:-2]):
        folder.chmod(folder.stat().st_mode | 0o005)
    folder = tmp_path / "m"
    folder.mkdir(mode=0o755)
    folder.chmod(0o755)
    (folder / "a.safetensors").write_bytes(b"x")
    (folder / "a.safetensors").chmod(0o600)
    return folder


def test_a_file_that_is_closed(model: Path) -> None:
    file = str(model / "a.safetensors")
    found = closed(SAID.format(file), [str(model)], USER)
    assert list(found) == [file]
    assert "the file" in found[file] and "0600" in found[file] and USER in found[file]


def test_a_folder_that_is_closed(model: Path) -> None:
    (model / "a.safetensors").chmod(0o644)
    model.chmod(0o700)
    found = closed(f"OSError: Repo id must be in the form 'a/b': '{model}'.", [str(model)], USER)
    assert "the folder" in found[str(model)] and "0700" in found[str(model)]


def test_one_that_its_owner_can_read_or_that_is_not_there(model: Path) -> None:
    file = model / "a.safetensors"
    os.chown(file, pwd.getpwnam(USER).pw_uid, 0)
    assert closed(SAID.format(file), [str(model)], USER) == {}
    assert closed(SAID.format(model / "b.safetensors"), [str(model)], USER) == {}


def test_nothing_outside_of_the_model_is_looked_at(model: Path) -> None:
    file = str(model / "a.safetensors")
    assert closed(SAID.format(file), ["/models/other", f"{model}x", "/"], USER) == {}
    assert closed(SAID.format(file), [str(model)], "no-such-user") == {}
    assert closed(f"loading {file}", [str(model)], USER) == {}


@pytest.mark.parametrize(("looked_at", "cause"), [(True, "unreadable"), (False, "missing")])
def test_the_verdict(looked_at: bool, cause: str) -> None:
    path = "/models/m/model-00001-of-00014.safetensors"
    startup = Startup()
    feed(startup, launch(), log(20, "Load weight begin. avail mem=93.00 GB", "TP0"))
    if looked_at:
        why = f"it is there: the file {path} (mode 0600, owner 0:0) is closed to sglang"
        feed(startup, {"t": 30, "kind": "file", "path": path, "readable": False, "why": why})
    said = feed(startup, traceback(30, SAID.format(path)))
    assert (said.outcome, said.cause) == ("failed", f"weights-{cause}")
    assert not looked_at or "mode 0600" in said.evidence[1]


@pytest.mark.timeout(20)
def test_a_folder_whose_server_is_dead_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The watch hung, and with it every verdict on the start."""
    monkeypatch.setattr(missing_files, "_why", lambda *_: time.sleep(60))
    monkeypatch.setattr(missing_files, "LIMIT_S", 0.3)
    with pytest.raises(as_user.NoAnswer):
        closed(SAID.format(tmp_path / "a.safetensors"), [str(tmp_path)], USER)
