"""A port that somebody else has: said after ten seconds, not after the whole load."""

from __future__ import annotations

from typing import Any

from sglangctl.startup.fold import Startup

OTHER = {"port": 8000, "owner_pid": 812, "ours": False, "owner": "nginx (pid 812, nginx.service)"}


def started(**socket: Any) -> Startup:
    start = Startup()
    start.feed({"t": 0, "kind": "launch", "engine": "sglang", "port": 8000})
    start.feed({"t": 0.4, "kind": "socket", **socket})
    return start


def test_the_holder_is_named_and_the_start_given_up() -> None:
    start = started(**OTHER)
    assert start.tick(10).outcome == "pending" and start.due is not None and start.due < 10.5
    said = start.tick(10.5)
    assert (said.outcome, said.cause) == ("failed", "port-taken")
    assert said.evidence == ("port 8000 is held by nginx (pid 812, nginx.service)",)
    # It was ended for that: this is no end from outside.
    ended = start.feed({"t": 20, "kind": "exit", "returncode": -15})
    assert (ended.cause, ended.evidence) == (said.cause, said.evidence)


def test_who_goes_in_time_was_the_last_start() -> None:
    start = started(**OTHER)
    start.feed({"t": 9, "kind": "socket", "port": 8000, "owner_pid": None})
    start.feed({"t": 12, "kind": "socket", **OTHER})
    assert start.tick(21).outcome == "pending"
    assert start.tick(22.1).outcome == "failed"


def test_our_own_process_and_an_unknown_one_are_no_reason() -> None:
    assert started(port=8000, owner_pid=7, ours=True).tick(60).outcome != "failed"
    assert started(port=8000, owner_pid=7).tick(60).outcome == "pending"
    assert started(port=8000, owner_pid=None).tick(60).outcome == "pending"
    assert started(**{**OTHER, "port": 8001}).tick(60).outcome == "pending"


def test_beside_an_engine_that_has_bound_it_it_is_none() -> None:
    start = started(port=8000, owner_pid=7, ours=True)
    start.feed({"t": 30, "kind": "socket", **OTHER})
    assert start.tick(60).cause != "port-taken"


def test_a_bind_that_fails_before_that_names_the_holder_too() -> None:
    start = started(**OTHER)
    line = "ERROR:    [Errno 98] error while attempting to bind on address ('0.0.0.0', 8000): "
    said = start.feed({"t": 5, "kind": "log", "data": f"{line}address already in use\n"})
    assert said.cause == "port-taken" and said.evidence[0].endswith("(pid 812, nginx.service)")
    assert "Errno 98" in said.evidence[1]
