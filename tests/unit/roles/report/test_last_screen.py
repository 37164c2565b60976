"""The last screen of a failure says what failed, what serves, the way back and the evidence."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from typing import Any

import pytest

from roles.report import last_screen
from roles.report.quiet import Quiet

MESSAGE = (
    "chat: it failed while loading: the disk is full (disk-full)\nsomething\n> OSError: [Errno 28]"
)
NOON = 1796000000.0
FAILED = last_screen.Failure(
    host="gpu1",
    deploy="sglang",
    messages=[MESSAGE, "a later one"],
    touched=True,
    engines=[{"name": "chat", "outcome": "failed", "active": "failed", "sub": "failed"}],
)


def told(failure: last_screen.Failure) -> list[str]:
    found = last_screen.lines(failure, "reports/1/report.json")
    assert len(found) == 4
    return found


def engine(**fields: Any) -> list[dict[str, Any]]:
    return [{"name": "chat", **fields}]


def test_the_deciding_line_stands_beside_what_failed() -> None:
    what = told(FAILED)[0]
    assert "disk-full" in what and "OSError: [Errno 28]" in what and "a later one" not in what


def test_a_heading_takes_its_first_line_along() -> None:
    wrong = replace(FAILED, messages=["the inventory is wrong, nothing was changed:\nprot: typo"])
    assert "prot: typo" in told(wrong)[0]


def test_what_would_end_who_is_in_the_way_is_the_way_back() -> None:
    refused = "chat: refused: python (pid 7) uses GPU 0 of chat\n  7 python\n    allowed by: {}"
    by_command = refused.format("on the host: sglangctl free chat --policy engines")
    failure = replace(FAILED, messages=[by_command], touched=False)
    assert "python (pid 7)" in told(failure)[0]
    assert "on gpu1: sglangctl free chat --policy engines, then: pyinfra" in told(failure)[2]
    alone = f"{by_command}\n{last_screen.LEFT_ALONE}"
    # Another operation of the run had changed something (the program): that engine was not touched.
    assert "--policy engines, then: " in told(replace(failure, messages=[alone], touched=True))[2]
    assert "--policy engines" not in told(replace(failure, touched=True))[2], (
        "it is down: first that"
    )
    by_inventory = refused.format("no policy ends it: `was: embed`, or --data prune=yes")
    assert "`was: embed`" in told(replace(failure, messages=[by_inventory]))[2]


def test_what_a_host_says_cannot_write_to_the_terminal() -> None:
    hostile = replace(FAILED, messages=["\x1b[2J"], engines=engine(active="\x1b]0;x\x07"))
    assert not any("\x1b" in line or "\x07" in line for line in told(hostile))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"outcome": "ready", "active": "active", "since": NOON}, ["chat since 2026-11-30"]),
        ({"outcome": "ready", "active": "failed", "sub": "failed"}, ["no engine", "not try again"]),
        (
            {"sub": "auto-restart", "restarts": 0, "tries": 3, "retry": "10s"},
            ["no engine of ours", "systemd tries again (2 of 3, 10s after its end)"],
        ),
        (
            {"sub": "auto-restart", "restarts": 2, "tries": 3, "retry": "10s"},
            ["no engine of ours", "systemd tries once more at most"],
        ),
        ({"active": "activating", "sub": "auto-restart", "restarts": "x"}, ["tries again"]),
        ({"since": 1e300}, ["an unknown time"]),
    ],
)
def test_what_serves_now(
    fields: dict[str, Any], words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "time", lambda: NOON + 1e7)
    now = told(replace(FAILED, engines=engine(**fields)))[1]
    for word in words:
        assert word in now


def test_the_way_back() -> None:
    assert "no release before" in told(FAILED)[2]
    assert "deploys/rollback.py --limit gpu1" in told(replace(FAILED, before=["chat"]))[2]
    serving = replace(FAILED, engines=engine(outcome="ready", active="active"), before=["chat"])
    assert "none is needed: every engine serves" in told(serving)[2]
    # A first deploy that failed while it prepared: no engine is there, so none serves.
    first = told(replace(FAILED, engines=[]))
    assert "no engine of ours" in first[1] and "serves" not in first[2] and "fix it" in first[2]
    assert "deploys/verify.py --limit gpu1" in told(replace(FAILED, engines=None))[2]
    assert "deploys/stop.py --limit gpu1" in told(replace(FAILED, deploy="stop"))[2]


def test_an_engine_that_was_down_already_is_no_engine_that_serves() -> None:
    """Seen with one that was stopped by hand, and a listener on its port: "none is needed"."""
    refused = replace(FAILED, touched=False, engines=None, before=["chat"])
    assert "none is needed" in told(refused)[2] and "down" not in told(refused)[1]
    _, now, way, _ = told(replace(refused, down=["chat"]))
    assert "nothing was changed; chat was down already" in now
    assert "none is needed" not in way and "fix it, then: pyinfra" in way


@pytest.mark.parametrize("deploy", ["collective", "monitoring"])
def test_what_touches_no_engine_takes_no_release_back(deploy: str) -> None:
    stopped = replace(FAILED, deploy=deploy, engines=engine(active="inactive"))
    way = told(replace(stopped, before=["chat"]))[2]
    assert "none is needed; fix it, then: " in way and f"deploys/{deploy}.py" in way


def test_the_way_back_of_one_engine_leaves_the_others_alone() -> None:
    # deploys/rollback.py takes all engines of the host back, also the one that serves.
    two = [*engine(active="failed"), {"name": "embed", "outcome": "ready", "active": "active"}]
    mixed = replace(FAILED, engines=two, before=["chat", "embed"])
    assert told(mixed)[2].endswith("on gpu1: sglangctl rollback chat")
    # And a second one takes those forward again that went back.
    assert told(replace(mixed, deploy="rollback"))[2].endswith("on gpu1: sglangctl rollback chat")
    serving = replace(mixed, deploy="rollback", engines=two[1:])
    assert told(serving)[2].endswith("on gpu1: sglangctl rollback NAME")
    untouched = replace(mixed, deploy="rollback", touched=False)
    assert "again: pyinfra inventory.py deploys/rollback.py --limit gpu1" in told(untouched)[2]


def test_what_others_ran_before_serves_again() -> None:
    back = replace(FAILED, others={"chat": ["vllm.service serves", "container box runs"]})
    _, now, way, _ = told(back)
    assert "vllm.service serves again; container box runs again; chat is failed" in now
    assert "no engine of ours" not in now
    assert "none is needed: vllm.service serves again, container box runs again" in way
    assert "deploys/sglang.py --limit gpu1" in way
    both = [*engine(active="failed"), {"name": "code", "active": "failed"}]
    assert "no release before" in told(replace(back, engines=both))[2], "code has no way back"
    nothing = replace(FAILED, others={"chat": []})
    assert "no engine of ours" in told(nothing)[1] and "no release before" in told(nothing)[2]


def test_what_failed_before_the_switch_stopped_nothing_of_others() -> None:
    """Seen on two H200s: vLLM served on, and "no engine of ours" was all that was said."""
    alone = f"the engine cannot be imported: no gguf\n{last_screen.LEFT_ALONE}"
    first = replace(FAILED, messages=[alone], engines=engine(active="inactive", sub="dead"))
    _, now, way, _ = told(first)
    assert "what served before was left alone; chat is inactive/dead" in now
    assert "no engine of ours" not in now and "since" not in now
    assert "none is needed: what runs now was left alone" in way and "no release before" not in way
    assert "deploys/rollback.py" in told(replace(first, before=["chat"]))[2]


def test_nothing_was_begun() -> None:
    before = told(replace(FAILED, touched=False, engines=None))
    assert "nothing was changed" in before[1] and "none is needed" in before[2]


def test_the_way_back_does_no_more_than_the_run_that_failed() -> None:
    # A removal of one engine that failed named the command that removes all of them.
    for deploy, touched in (("remove", True), ("sglang", False)):
        failed = replace(
            FAILED, deploy=deploy, touched=touched, given=["engine=old", "restart=a b"]
        )
        assert told(failed)[2].endswith("--limit gpu1 --data engine=old --data 'restart=a b'")


def test_the_evidence() -> None:
    line = told(FAILED)[3]
    assert "reports/1/report.json" in line and "on gpu1: sglangctl bundle chat" in line
    assert "see above" in last_screen.lines(replace(FAILED, engines=None), None)[3]


def passed(quiet: Quiet, text: str) -> str | None:
    record = logging.LogRecord("x", logging.ERROR, "", 0, text, (), None)
    return record.msg if quiet.filter(record) else None


def test_pyinfra_names_no_line_of_the_code_and_counts_no_commands() -> None:
    quiet = Quiet()
    crash = "--> pyinfra error in /a/b c.py line 12: No hosts remaining!"
    assert passed(quiet, crash) == "--> pyinfra error: No hosts remaining!"
    styled = "[gpu1] \x1b[31mError: \x1b[0mexecuted 0 commands"
    assert passed(quiet, styled) == "[gpu1] \x1b[31mFailed"
    quiet.told = True
    assert passed(quiet, crash) is None
    assert passed(quiet, "--> pyinfra error: Over 0% of hosts failed (100%)") is None
    assert passed(quiet, "--> pyinfra error: Over 10% of hosts failed (50%)") is not None
    assert passed(quiet, "--> pyinfra error: something else") is not None
