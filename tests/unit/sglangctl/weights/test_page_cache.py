"""Weights are read into the page cache before a switch stops anything."""

from __future__ import annotations

import os
from itertools import count
from pathlib import Path

import pytest

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
    assert told == [(100, 2000), (300, 2000), (500, 2000)]


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
