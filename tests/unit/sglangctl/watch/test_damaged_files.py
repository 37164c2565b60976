"""Which file is damaged: safetensors does not say."""

from __future__ import annotations

import os
import pwd
import shutil
import tempfile
import threading
from pathlib import Path

import pytest

from sglangctl.startup.fold import Startup
from sglangctl.watch.damaged_files import Damages
from sglangctl.weights import check
from tests.support.safetensors_files import shards

ME = pwd.getpwuid(os.geteuid()).pw_name
LINE = "safetensors_rust.SafetensorError: Error while deserializing header: incomplete metadata\n"


def test_the_shard_is_named_once_the_log_says_that_one_is_damaged(tmp_path: Path) -> None:
    shards(tmp_path)
    assert Damages([str(tmp_path)], ME).named(LINE) == []
    shard = sorted(tmp_path.glob("*.safetensors"))[-1]
    shard.write_bytes(shard.read_bytes()[:-10])
    looking = Damages([str(tmp_path)], ME)
    assert looking.named("Loading safetensors checkpoint shards\n") == []
    ((folder, what),) = looking.named(LINE)
    assert folder == str(tmp_path) and what.startswith(f"{shard}: ")


@pytest.mark.parametrize("damage", ["b.safetensors: 10 bytes short", "/m/b.st: 10 bytes short"])
def test_it_is_the_first_line_of_the_evidence(damage: str) -> None:
    start = Startup()
    start.feed({"t": 0, "kind": "launch", "engine": "sglang", "port": 1})
    start.feed({"t": 5, "kind": "file", "path": "/m", "damage": damage})
    traceback = 'Traceback (most recent call last):\n  File "a.py", line 1, in f\n    g()\n'
    start.feed({"t": 5, "kind": "log", "data": traceback + LINE})
    said = start.feed({"t": 6, "kind": "exit", "returncode": 1})
    assert said.cause == "weights-corrupt"
    assert said.evidence[0] == (damage if damage[0] == "/" else f"/m: {damage}")
    assert "SafetensorError" in said.evidence[1]


def test_a_folder_that_hangs_costs_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = threading.Event()

    def hang(folder: Path, **options: bool) -> check.Model:
        answer.wait(60)
        return check.Model(str(folder))

    monkeypatch.setattr(check, "check", hang)
    assert Damages(["/nfs"], ME, limit_s=0.1).named(LINE) == []
    answer.set()


@pytest.mark.parametrize("damaged", [False, True])
def test_the_folders_are_looked_at_once_a_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damaged: bool
) -> None:
    """Eight ranks say it, each in a piece of its own, and the watch waits for each look."""
    shards(tmp_path)
    if damaged:
        (tmp_path / "model-00001-of-00003.safetensors").write_bytes(b"")
    looks = tmp_path / "looks"  # in a process of its own
    real = check.check

    def counted(folder: Path, **options: bool) -> check.Model:
        with looks.open("a") as file:
            print(folder, file=file)
        return real(folder, **options)

    monkeypatch.setattr(check, "check", counted)
    looking = Damages([str(tmp_path)], ME)
    found = [bool(looking.named(LINE)) for _ in range(8)]
    assert found == [damaged, *[False] * 7] and looks.read_text() == f"{tmp_path}\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has rights to give up")
def test_a_link_to_a_file_of_roots_shows_nothing_of_it() -> None:
    """Its first eight bytes were in the journal, as the length of a header."""
    folder = Path(tempfile.mkdtemp(dir="/var/tmp"))
    try:
        folder.chmod(0o755)
        (folder / "secret").write_bytes(b"hunter2!" * 9)
        (folder / "secret").chmod(0o600)
        (folder / "model.safetensors").symlink_to(folder / "secret")
        (folder / "config.json").write_text("{}")
        assert Damages([str(folder)], "nobody").named(LINE) == []
        (folder / "secret").chmod(0o644)
        ((_, what),) = Damages([str(folder)], "nobody").named(LINE)
        assert str(int.from_bytes(b"hunter2!", "little")) in what
    finally:
        shutil.rmtree(folder)
