"""Which file is damaged: safetensors does not say."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from sglangctl.startup.fold import Startup
from sglangctl.watch.damaged_files import damages
from sglangctl.weights import check
from tests.support.safetensors_files import shards

LINE = "safetensors_rust.SafetensorError: Error while deserializing header: incomplete metadata\n"


def test_the_shard_is_named_once_the_log_says_that_one_is_damaged(tmp_path: Path) -> None:
    shards(tmp_path)
    assert damages(LINE, [str(tmp_path)]) == []
    shard = sorted(tmp_path.glob("*.safetensors"))[-1]
    shard.write_bytes(shard.read_bytes()[:-10])
    ((folder, what),) = damages(LINE, [str(tmp_path)])
    assert folder == str(tmp_path) and what.startswith(shard.name)
    assert damages("Loading safetensors checkpoint shards\n", [str(tmp_path)]) == []


def test_it_is_the_first_line_of_the_evidence() -> None:
    start = Startup()
    start.feed({"t": 0, "kind": "launch", "engine": "sglang", "port": 1})
    start.feed({"t": 5, "kind": "file", "path": "/m", "damage": "b.safetensors: 10 bytes short"})
    traceback = 'Traceback (most recent call last):\n  File "a.py", line 1, in f\n    g()\n'
    start.feed({"t": 5, "kind": "log", "data": traceback + LINE})
    said = start.feed({"t": 6, "kind": "exit", "returncode": 1})
    assert said.cause == "weights-corrupt"
    assert said.evidence[0] == "/m: b.safetensors: 10 bytes short"
    assert "SafetensorError" in said.evidence[1]


def test_a_folder_that_hangs_costs_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = threading.Event()

    def hang(folder: Path, **options: bool) -> check.Model:
        answer.wait(60)
        return check.Model(str(folder))

    monkeypatch.setattr(check, "check", hang)
    assert damages(LINE, ["/nfs"], limit_s=0.1) == []
    answer.set()
