"""A folder of weights that a local user made, looked at by root: nothing in it is waited for."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import pwd
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

from sglangctl.preflight import model
from sglangctl.probe import document
from sglangctl.proc import as_user
from sglangctl.state.paths import Paths
from sglangctl.weights import check, hashes, look
from tests.support.engine_config import ENGINE


@pytest.mark.timeout(20)
def test_pipes_and_devices_are_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.safetensors")
    (tmp_path / "zero.safetensors").symlink_to("/dev/zero")
    (tmp_path / "whole.safetensors").write_bytes(b"x")
    wanted = {path.name: hashlib.sha256(b"x").hexdigest() for path in tmp_path.iterdir()}
    found = hashes.verify(tmp_path, wanted, {}, lambda progress: None, lambda: None)
    assert sorted(one.seen.split(":")[0].rsplit("/", 1)[1] for one in found) == [
        "pipe.safetensors",
        "zero.safetensors",
    ]
    assert all("no plain file" in one.seen for one in found)


@pytest.mark.timeout(20)
def test_the_hubs_own_list_neither(tmp_path: Path) -> None:
    folder = tmp_path / hashes.HUB
    folder.mkdir(parents=True)
    os.mkfifo(folder / "pipe.metadata")
    (folder / "zero.metadata").symlink_to("/dev/zero")
    (folder / "good.safetensors.metadata").write_text(f"c\n{'a' * 64}\n1.0\n")
    assert hashes.from_hub(tmp_path) == {"good.safetensors": "a" * 64}


@pytest.mark.timeout(20)
def test_a_configuration_that_is_a_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "config.json")
    (tmp_path / "model.safetensors").write_bytes(b"x")
    assert not check.check(tmp_path).complete


@pytest.mark.timeout(30)
def test_a_dead_server_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every call that touches the folder hangs, as on an NFS mount whose server is gone."""
    dead = tmp_path / "dead"
    dead.mkdir()
    for name in ("stat", "lstat", "listdir", "scandir", "statvfs", "readlink", "open"):
        real = getattr(os, name)

        def hang(path: object = ".", *rest: object, real: Any = real, **named: object) -> object:
            if str(path).startswith(str(dead)):
                time.sleep(60)
            return real(path, *rest, **named)

        monkeypatch.setattr(os, name, hang)
    monkeypatch.setattr(look, "LIMIT_S", 0.3)
    monkeypatch.setattr(model, "TIMES_S", 0.3)
    monkeypatch.setattr(document, "DISK_S", 0.3)
    user = pwd.getpwuid(os.geteuid()).pw_name
    began = time.monotonic()
    with pytest.raises(as_user.NoAnswer, match="may hang"):
        look.model(dead / "model", user, paths=Paths(tmp_path))
    engine = dataclasses.replace(ENGINE, model=str(dead / "model"), drafter=None)
    facts = {"engines": {engine.name: {"unit": {"started": 1.0, "ActiveState": "active"}}}}
    (found,) = model.changed(engine, facts)
    assert found.id == "weights-unchecked" and "may hang" in found.seen
    said = document.probe({"paths": [str(dead)]}, Paths(tmp_path))
    assert said.disks[str(dead)] is None and "may hang" in said.reasons[f"disks {dead}"]
    assert time.monotonic() - began < 20


@pytest.mark.timeout(20)
def test_names_that_promise_many_parts_are_counted_not_listed(tmp_path: Path) -> None:
    """300 empty files promised 30 million names: gigabytes of root's memory."""
    for number in range(300):
        (tmp_path / f"a{number:03}-00002-of-99999.safetensors").touch()
    began = time.monotonic()
    found = [one.seen for one in check.check(tmp_path).findings if one.id == "weights-missing"]
    assert time.monotonic() - began < 5
    first = "a000-00001-of-99999.safetensors, a000-00003-of-99999.safetensors"
    assert found == [
        f"files missing: {first}, a000-00004-of-99999.safetensors and {300 * 99998 - 3} more"
    ]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has rights to give up")
def test_root_is_not_told_to_open_what_a_link_leads_to() -> None:
    """A folder's owner planted a link to a file of root's: the next step opened that to everybody."""
    base = Path(tempfile.mkdtemp(dir="/var/tmp"))
    try:
        base.chmod(0o755)
        folder, theirs = base / "model", base / "of root"
        folder.mkdir()
        theirs.mkdir(mode=0o700)
        (theirs / "key").write_text("secret")
        (folder / "config.json").write_text("{}")
        (folder / "a.safetensors").symlink_to(theirs / "key")
        (folder / "b; id.safetensors").write_bytes(b"x")
        (folder / "b; id.safetensors").chmod(0o600)
        found = look.model(folder, "nobody", paths=Paths(base))
        link, own = [one for one in found.findings if one.id == "weights-unreadable"]
        assert f"it is a link to {theirs}/key" in link.seen
        assert link.fix.startswith("if that is a file of the model: as root: chmod o+rX '")
        assert own.fix.startswith(f"as root: chmod o+rX '{folder}/b; id.safetensors'")
    finally:
        shutil.rmtree(base)
