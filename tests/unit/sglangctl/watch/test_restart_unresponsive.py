"""restart_unresponsive: an engine that compiles is left alone, and for its full time afterwards."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from sglangctl.state.config import Limits
from sglangctl.systemd import systemctl
from sglangctl.watch import stacks
from sglangctl.watch.follow_run import Follow


def test_one_that_compiles_is_left_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    clock = [0.0]
    asked: list[tuple[str, ...]] = []

    def call(*words: str) -> SimpleNamespace:
        asked.append(words)
        return SimpleNamespace(ok=True)

    monkeypatch.setattr(systemctl, "call", call)
    monkeypatch.setattr(stacks, "take", lambda *given: [])
    recorder = SimpleNamespace(compiling=True, record=lambda *given, **fields: None)
    follow = SimpleNamespace(
        config=SimpleNamespace(
            name="tiny",
            unit="sglang-tiny.service",
            limits=Limits(restart_unresponsive_s=60.0),
            readiness=SimpleNamespace(restart_unresponsive=True),
        ),
        run=SimpleNamespace(folder=tmp_path, main_pid=1, t=lambda: clock[0]),
        paths=SimpleNamespace(current=lambda name: tmp_path),
        file=tmp_path / "journal.jsonl",
        _recorder=recorder,
        _collection=SimpleNamespace(stopping=lambda by: None, processes=[]),
        _unresponsive_t=0.0,
        _restarted=False,
        _show=lambda text: None,
    )
    for clock[0] in range(0, 500, 10):
        Follow._restart_if_due(cast(Follow, follow))
    assert asked == []
    recorder.compiling = False
    for clock[0] in range(500, 550, 10):
        Follow._restart_if_due(cast(Follow, follow))
    assert asked == []
    clock[0] = 551.0
    Follow._restart_if_due(cast(Follow, follow))
    assert asked == [("restart", "--no-block", "--", "sglang-tiny.service")]
