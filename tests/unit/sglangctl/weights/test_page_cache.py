"""Weights are read into the page cache before a switch stops anything."""

from __future__ import annotations

import os
import pwd
import shutil
import tempfile
import time
from itertools import count
from pathlib import Path

import pytest

from sglangctl.proc import as_user
from sglangctl.util import heartbeat
from sglangctl.weights import page_cache
from sglangctl.weights.page_cache import Warmed, files_of, warm


@pytest.fixture
def model(tmp_path: Path) -> Path:
    for number in (2, 1):
        (tmp_path / f"model-{number}.safetensors").write_bytes(b"x" * 1000)
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "folder.safetensors").mkdir()
    return tmp_path


def nothing(read: int, total: int) -> None: ...


def test_all_weights_are_read_in_the_order_of_their_names(model: Path) -> None:
    files = files_of([str(model), "/nowhere", "an/id-of-the-hub"])
    assert [path.name for path, _ in files] == ["model-1.safetensors", "model-2.safetensors"]
    assert warm(files, 10_000, 60, nothing) == Warmed(2000, 2000)


def test_no_more_than_there_is_memory_for(model: Path) -> None:
    assert warm(files_of([str(model)]), 1500, 60, nothing) == Warmed(
        1500, 2000, "there is no more memory for it"
    )
    assert warm(files_of([str(model)]), -5, 60, nothing).read == 0


def test_no_longer_than_its_limit_and_with_progress(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_cache, "CHUNK", 100)
    ticks = count(step=4)
    told: list[tuple[int, int]] = []
    done = warm(
        files_of([str(model)]), 10_000, 30, lambda *at: told.append(at), lambda: next(ticks)
    )
    assert done.why == "it took longer than 30 s"
    assert 0 < done.read < 2000
    assert told == [(0, 2000), (100, 2000), (300, 2000), (500, 2000)]


def test_a_file_that_cannot_be_read_ends_it_without_an_error(model: Path) -> None:
    files = [(model / "gone.safetensors", 10), *files_of([str(model)])]
    assert warm(files, 10_000, 60, nothing).why == (
        "gone.safetensors cannot be read: No such file or directory"
    )


def test_a_pipe_in_a_file_s_place_is_not_waited_for(model: Path) -> None:
    files = files_of([str(model)])
    files[0][0].unlink()
    os.mkfifo(files[0][0])
    assert warm(files, 10_000, 60, nothing).why == (
        "model-1.safetensors cannot be read: it is no plain file"
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has rights to give up")
def test_nothing_is_read_that_the_engine_s_user_cannot_read() -> None:
    """As root a link to /proc/kcore or to a tracing pipe was read, too."""
    folder = Path(tempfile.mkdtemp(dir="/var/tmp"))
    try:
        folder.chmod(0o755)
        secret = folder / "secret"
        secret.write_bytes(b"x" * 1000)
        secret.chmod(0o600)
        (folder / "model.safetensors").symlink_to(secret)
        done = page_cache.warm_as("nobody", [str(folder)], 10_000, 60, print)
        assert done.read == 0 and done.why and "Permission denied" in done.why
        secret.chmod(0o644)
        assert page_cache.warm_as("nobody", [str(folder)], 10_000, 60, print) == Warmed(1000, 1000)
    finally:
        shutil.rmtree(folder)


@pytest.mark.timeout(20)
def test_a_read_that_never_ends_is_left_behind(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that is dead: the switch hung with the host's lock, for its limit was looked at
    between two reads alone."""
    monkeypatch.setattr(page_cache, "LATE_S", 0.2)
    monkeypatch.setattr(page_cache, "descriptor", lambda path: time.sleep(60))
    me = pwd.getpwuid(os.geteuid()).pw_name
    with pytest.raises(as_user.NoAnswer):
        page_cache.warm_as(me, [str(model)], 10_000, 0.2, print)


def test_how_far_it_is_comes_from_the_process_that_reads(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heartbeat, "BEAT_S", 0.05)
    real = page_cache.descriptor

    def slow(path: Path) -> int:
        time.sleep(0.3)
        return real(path)

    monkeypatch.setattr(page_cache, "descriptor", slow)
    said: list[str] = []
    me = pwd.getpwuid(os.geteuid()).pw_name
    page_cache.warm_as(me, [str(model)], 10_000, 60, said.append)
    assert "0.0 GB of 0.0 GB" in said[0] and "of at most 60 s" in said[0]
