from __future__ import annotations

import re
import sys
import threading
from pathlib import Path

import pytest

from sglangctl.state.paths import Paths
from sglangctl.switch import stop
from sglangctl.util import heartbeat
from tests.support.waiting import until

BEAT = r"waiting for it: \d s of at most 30 s"


def test_a_wait_says_what_it_is_for_until_it_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "BEAT_S", 0.05)
    said: list[str] = []
    with heartbeat.heartbeat(said.append, lambda: "it", 30):
        until(lambda: len(said) >= 2)
    assert all(re.fullmatch(BEAT, line) for line in said)
    assert not [thread for thread in threading.enumerate() if thread.name == "heartbeat"]


def test_a_short_wait_says_nothing() -> None:
    said: list[str] = []
    with heartbeat.heartbeat(said.append, "it", 30):
        pass
    assert said == []


def test_systemctl_that_takes_its_time_is_not_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heartbeat, "BEAT_S", 0.05)
    slow = tmp_path / "systemctl"
    slow.write_text(
        f"#!{sys.executable}\nimport sys, time\ntime.sleep(0.3 * ('stop' in sys.argv))\n"
    )
    slow.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    said: list[str] = []
    stop.stop_by_name("chat", Paths(), said.append, limit_s=20)
    waits = [line for line in said if line.startswith("waiting for systemctl stop -- sglang-chat")]
    assert len(waits) >= 2
