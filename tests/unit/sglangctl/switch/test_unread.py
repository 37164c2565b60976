"""A release that differs only in settings that no process has read goes live without a start."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sglangctl.state import release
from sglangctl.state.files import link_atomic
from sglangctl.state.lock import Busy, locked
from sglangctl.state.paths import Paths
from sglangctl.state.release import State
from sglangctl.switch import unread
from sglangctl.util.errors import Failed

OLD, NEW = "a" * 64, "b" * 64
TIME = "20260101T000000Z"


@pytest.fixture
def host(paths: Paths) -> Paths:
    """OLD is live; NEW is staged and differs in the unit."""
    for digest in (OLD, NEW):
        folder = paths.releases("tiny") / digest
        folder.mkdir(parents=True)
        for name in release.FILES:
            (folder / name).write_text("{}")
        (folder / "sglang.service").write_text(f"StartLimitIntervalSec={digest[:1]}\n")
    link_atomic(paths.current("tiny"), f"releases/{OLD}")
    link_atomic(paths.engine_state("tiny") / "previous", "releases/before")
    release.write_state("tiny", State("live", to=OLD, time=TIME), paths)
    return paths


def live(paths: Paths) -> tuple[str | None, str | None, str | None]:
    state = release.read_state("tiny", paths)
    assert state is not None
    links = (release.link_target("tiny", link, paths) for link in ("current", "previous"))
    return (*links, state.to)  # type: ignore[return-value]


def test_it_goes_live_and_what_to_go_back_to_stays(host: Paths) -> None:
    unread.put_live("tiny", NEW, TIME, host)
    assert live(host) == (NEW, "before", NEW)
    unread.put_live("tiny", NEW, "another time", host)  # live already: nothing to compare


@pytest.mark.parametrize("file", ["engine.yaml", "engine.env", "nccl.env", "flag-chat-template"])
def test_what_a_process_has_read_needs_a_switch(host: Paths, file: str) -> None:
    (host.releases("tiny") / NEW / file).write_text("x")
    with pytest.raises(Failed, match="would have to be started again"):
        unread.put_live("tiny", NEW, TIME, host)
    assert live(host) == (OLD, "before", OLD)


@pytest.mark.parametrize("phase", ["switching", "failed", "stopped"])
def test_only_what_a_switch_has_kept(host: Paths, phase: str) -> None:
    state = release.read_state("tiny", host)
    assert state is not None
    release.write_state("tiny", replace(state, phase=phase), host)
    with pytest.raises(Failed, match="is not the live release"):
        unread.put_live("tiny", NEW, TIME, host)
    assert live(host)[0] == OLD


def test_who_came_between_is_said(host: Paths) -> None:
    with pytest.raises(Failed, match="came between"):
        unread.put_live("tiny", NEW, "20250101T000000Z", host)
    with locked(host, "other", "switch of other"), pytest.raises(Busy):
        unread.put_live("tiny", NEW, TIME, host)
    assert live(host)[0] == OLD
