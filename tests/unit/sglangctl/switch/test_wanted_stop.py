"""An end that somebody asked for is told as one, by whoever tells of it, with who asked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from roles.readiness import results
from roles.readiness.follow import FollowResult
from roles.readiness.subject import Subject
from roles.switch.decision import decide
from sglangctl import cli
from sglangctl.report import status, verify
from sglangctl.startup.fold import Startup
from sglangctl.startup.summary import Summary
from sglangctl.state import lock
from sglangctl.state.config import load_engine
from sglangctl.state.journal import Writer, read
from sglangctl.state.paths import Paths
from sglangctl.watch import follow_run
from sglangctl.watch.recorder import Recorder
from tests.support.engine_host import write_config
from tests.support.startup_events import exit_, feed, launch, log, processes, serving, traceback
from tests.support.units import unit, watch

SWITCH = "a switch of tiny to release 78cc653cada7"
SYSTEMD = "stopped by systemd (systemctl stop or restart, or the host went down)"
FAILED = unit("failed", "failed", "signal", exit_status=-9)
START = "20261129T101000Z-aa"


def stop(t: float, **fields: Any) -> dict[str, Any]:
    return {"t": t, "kind": "step", "step": "stop", **fields}


@pytest.mark.parametrize(
    ("by", "said"), [(SWITCH, SWITCH), ("systemd", "systemd"), (None, "systemd")]
)
def test_the_fold_says_who_asked(by: str | None, said: str) -> None:
    asked = {"by": by} if by else {}
    served = feed(serving(10), stop(20, **asked), exit_(21, -9))
    assert (served.outcome, served.cause, served.stopped_by) == ("failed", "killed", said)
    early = feed(Startup(), launch(), stop(20, **asked), exit_(21, -15))
    assert (early.outcome, early.cause, early.stopped_by) == ("failed", "terminated", said)


def test_what_nobody_asked_for_is_no_stop() -> None:
    killed = feed(serving(10), exit_(21, -9))
    assert (killed.outcome, killed.cause, killed.stopped_by) == ("failed", "killed", None)
    # A SIGTERM that somebody sent by hand: the engine says so, and nobody knows who it was.
    text = "SIGTERM received. signum=None frame=None. Draining requests and shutting down..."
    ended = feed(serving(10), log(20, text), exit_(21, 0))
    assert (ended.cause, ended.stopped_by) == ("killed", None)


def test_a_failure_before_the_stop_stays_one() -> None:
    startup = Startup()
    feed(startup, launch(), traceback(5, "RuntimeError: what nobody knows"))
    assert startup.tick(20).outcome == "failed"
    said = feed(startup, stop(30, by=SWITCH), exit_(31, -9))
    assert (said.outcome, said.stopped_by) == ("failed", None)


@pytest.fixture
def paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Paths:
    monkeypatch.setenv("SGLANGCTL_ROOT", str(tmp_path))
    (tmp_path / "run").mkdir()
    write_config(tmp_path, 30000)
    return Paths(tmp_path)


def stopped_start(paths: Paths, by: str) -> None:
    """The journal of a start that served and was stopped, as the watch writes it."""
    folder = paths.starts("tiny") / START
    folder.mkdir(parents=True)
    (paths.starts("tiny") / "latest").symlink_to(START)
    recorder = Recorder(Startup(), Writer(folder / "journal.jsonl"))
    for event in (launch(), log(5, "x"), processes(6), stop(20, by=by), exit_(21, -9)):
        fields = {key: value for key, value in event.items() if key not in ("t", "kind")}
        recorder.record(event["t"], event["kind"], **fields)


def test_journal_list(paths: Paths, capsys: pytest.CaptureFixture[str]) -> None:
    stopped_start(paths, SWITCH)
    assert cli.main(["journal", "tiny", "--list"]) == 0
    assert capsys.readouterr().out == f"{START} stopped by {SWITCH}\n"


def test_status(
    paths: Paths,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stopped_start(paths, "systemd")
    monkeypatch.setattr(status, "with_watch", lambda name, unit: (FAILED, watch()))
    assert cli.main(["status", "tiny"]) == 1
    said = capsys.readouterr().out
    assert said.splitlines()[1].startswith("tiny    stopped  ")
    assert f"tiny: {SYSTEMD}, 21 s after its launch" in said
    assert "systemd calls it failed because SGLang ends itself by SIGKILL when stopped" in said
    assert "systemctl enable --now sglang-tiny.service" in said
    for word in ("terminated", "killed", "  failed", "|"):
        assert word not in said
    assert cli.main(["status", "tiny", "--json"]) == 1
    (one,) = json.loads(capsys.readouterr().out)["status"]
    assert (one["outcome"], one["stopped_by"]) == ("failed", "systemd")


def test_verify(paths: Paths) -> None:
    stopped_start(paths, SWITCH)
    report = verify.not_running(load_engine("tiny", paths), paths, FAILED)
    assert (report.status, report.stopped_by) == (1, SWITCH)
    assert f"(sglang-tiny.service is failed/failed): it was stopped by {SWITCH}" in report.sentence


def test_the_deploy_that_followed_it(paths: Paths) -> None:
    stopped_start(paths, SWITCH)
    summary = Summary()
    for event in read(paths.latest_journal("tiny")):
        summary.feed(event)
    subject = Subject("tiny", "sglang-tiny.service", "tiny", 8000)
    unit = {"active": "inactive", "sub": "dead", "result": "success"}
    result = results.of_start(subject, FollowResult("verdict", summary, unit, START))
    assert (result.exit, result.stopped_by) == (1, SWITCH)
    lines = results.lines(result)
    assert lines[0] == "tiny: stopped after 21 s"
    assert f"  it was stopped by {SWITCH}" in lines
    assert lines[-1].startswith("  next step: deploy it again, or on the host: systemctl start")
    assert not any(word in line for line in lines for word in ("terminated", "killed", "failed"))


def test_the_proof_of_an_engine_that_was_stopped() -> None:
    found = {"outcome": "failed", "cause": "killed", "status": 1, "sentence": "tiny does not run"}
    document = {"v": 1, "verify": {**found, "stopped_by": SWITCH}}
    subject = Subject("tiny", "sglang-tiny.service", "tiny", 8000)
    lines = results.lines(results.of_verify(subject, [json.dumps(document)]))
    assert lines[0] == "tiny: stopped"
    assert lines[1] == "  tiny does not run"
    assert "killed" not in "\n".join(lines)


def test_the_next_plan_says_why_the_unit_is_down() -> None:
    engine = {
        "releases": {"current": "a"},
        "unit": {"ActiveState": "failed", "UnitFileState": "enabled"},
        "last": {"outcome": "failed", "stopped_by": "systemd"},
    }
    assert decide(engine, "a", [], False).reasons == (f"the unit is failed: it was {SYSTEMD}",)


@pytest.mark.parametrize(("engine", "by"), [("tiny", "a stop of tiny"), ("other", "systemd")])
def test_who_holds_the_lock_is_who_asked(paths: Paths, engine: str, by: str) -> None:
    follow = object.__new__(follow_run.Follow)
    follow.config, follow.paths = load_engine("tiny", paths), paths
    assert follow._who_stops() == "systemd"
    with lock.locked(paths, engine, f"stop of {engine}"):
        assert follow._who_stops() == by
