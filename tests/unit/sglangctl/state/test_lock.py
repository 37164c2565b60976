"""The host's lock, with two real processes: who meets it is told who has it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sglangctl.state import lock
from sglangctl.state.paths import Paths
from tests.support.holding import as_user, passable

HOLD = """
import sys
from pathlib import Path
from sglangctl.state.lock import locked
from sglangctl.state.paths import Paths
with locked(Paths(Path(sys.argv[1])), "chat", "switch of chat to release 0123456789ab"):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    (tmp_path / "run").mkdir()
    return Paths(tmp_path)


@contextmanager
def held(paths: Paths) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(paths.root)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "held\n"
        yield process
    finally:
        process.stdin.close()
        process.wait(10)
        process.stdout.close()


def test_who_meets_the_lock_is_told_who_has_it_and_what_to_do(paths: Paths) -> None:
    with held(paths) as process:
        with pytest.raises(lock.Busy) as busy, lock.locked(paths, "chat", "stop of chat"):
            raise AssertionError("two have the lock")
        found = lock.holder(paths)
        assert found is not None
        assert (found.pid, found.engine) == (process.pid, "chat")
        said = str(busy.value)
        assert said.startswith("nothing was changed. a switch of chat to release 0123456789ab runs")
        assert f"(pid {process.pid}, since {found.since})" in said
        assert "wait until it has ended" in said
        assert found.since.endswith("Z")
    assert lock.holder(paths) is None
    with lock.locked(paths, "chat", "stop of chat"):
        found = lock.holder(paths)
        assert found is not None
        assert found.pid == os.getpid()
    assert lock.holder(paths) is None


def test_a_failure_under_the_lock_lets_it_go(paths: Paths) -> None:
    with pytest.raises(ValueError), lock.locked(paths, "chat", "stop of chat"):
        raise ValueError
    assert lock.holder(paths) is None
    with lock.locked(paths, "chat", "stop of chat"):
        assert lock.holder(paths) is not None


def test_on_a_full_disk_the_lock_is_held_all_the_same(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(lock.os, "write", full)
    monkeypatch.setattr(lock, "WRITTEN_S", 0.0)
    with (
        lock.locked(paths, "chat", "stop of chat"),
        pytest.raises(lock.Busy, match="another sglangctl has this host's lock"),
        lock.locked(paths, "chat", "stop of chat"),
    ):
        raise AssertionError("two have the lock")


def test_what_a_killed_holder_left_is_no_holder(paths: Paths) -> None:
    with held(paths) as process:
        process.kill()
        process.wait(10)
    assert (paths.root / lock.LOCK).read_text() != ""
    assert lock.holder(paths) is None
    with lock.locked(paths, "chat", "stop of chat"):
        assert lock.holder(paths) is not None


def test_a_pid_that_another_process_has_now_is_no_holder(paths: Paths) -> None:
    with held(paths):
        document = json.loads((paths.root / lock.LOCK).read_text())
    document.update(pid=os.getpid(), start=1)
    (paths.root / lock.LOCK).write_text(json.dumps(document))
    assert lock.holder(paths) is None


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"what": 1}', '{"pid": "x"}', "null"])
def test_what_is_no_document_of_ours_is_no_holder(paths: Paths, text: str) -> None:
    (paths.root / lock.LOCK).write_text(text)
    assert lock.holder(paths) is None


def test_a_holder_that_has_not_said_who_it_is(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock, "WRITTEN_S", 0.0)
    with held(paths):
        (paths.root / lock.LOCK).write_text("")
        with (
            pytest.raises(lock.Busy, match="another sglangctl has this host's lock: wait"),
            lock.locked(paths, "chat", "stop of chat"),
        ):
            raise AssertionError("two have the lock")


TAKE = """
import fcntl, os, sys
fcntl.flock(os.open(sys.argv[1], os.O_RDONLY), fcntl.LOCK_EX)
print("taken", flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: another user's process")
@pytest.mark.parametrize("made_by_an_earlier_version", [False, True])
def test_another_user_cannot_take_the_lock(made_by_an_earlier_version: bool) -> None:
    with passable() as root:
        paths = Paths(root)
        (root / "run").mkdir(mode=0o755)
        if made_by_an_earlier_version:
            (root / lock.LOCK).touch(0o644)
        with lock.locked(paths, "chat", "stop of chat"):
            assert (root / lock.LOCK).stat().st_mode & 0o777 == 0o600
        stranger = subprocess.Popen(
            [*as_user(4242), sys.executable, "-c", TAKE, str(root / lock.LOCK)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd="/",
        )
        assert stranger.stdout
        try:
            assert stranger.stdout.readline() == b""
            with lock.locked(paths, "chat", "stop of chat"):
                pass
        finally:
            _, said = stranger.communicate(timeout=10)
        assert b"PermissionError" in said
