"""Every way in which a start goes, on the stand-in engine under systemd: outcome, cause, times, and
nothing left behind. With RECORD_TRACES=FOLDER each journal is kept there, with the verdict that it must get.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sglangctl.state.config import Limits
from tests.container.conftest import HostFactory
from tests.container.engine_unit import EngineUnit, Event, poll, prepare
from tests.hosts.host import Host

pytestmark = [pytest.mark.container, pytest.mark.timeout(300)]

TRACES = Path(os.environ.get("RECORD_TRACES", ""))
RECORD = bool(os.environ.get("RECORD_TRACES"))
ONCE = "[Service]\nRestart=no\n"
QUICK = {"START_S": 8.0 if RECORD else 2.5, "SCALE": 0.2}
"""The engine's own waits at a fifth of their real length ..."""
LIMITS: dict[str, float] = (
    {} if RECORD else {"http_timeout_s": 6.0, "unresponsive_idle_s": 8.0, "rank_stopped_s": 6.0}
)
"""... and so are ours."""
UP = ("serving", "ready", "degraded")


def configured(engine: EngineUnit, **more: Any) -> None:
    standin = {**QUICK, **more.pop("standin", {})}
    more.setdefault("unit_lines", ONCE)
    engine.configure(standin=standin, **more)


def started(engine: EngineUnit, **more: Any) -> None:
    configured(engine, **more)
    engine.start()


def first(engine: EngineUnit, found: Callable[[Event], bool]) -> float:
    """The t of the first event like this."""
    return next(float(event["t"]) for event in engine.events() if found(event))


def said(engine: EngineUnit, words: str) -> float:
    return first(engine, lambda event: event["kind"] == "log" and words in event["data"])


def record(engine: EngineUnit, name: str, expected: dict[str, Any]) -> None:
    """Keep the journal of this run, with the verdict that it must get."""
    if not RECORD:
        return
    if expected["outcome"] == "serving":
        # The first good answer belongs to the evidence; "ready to roll" comes a little before it.
        assert poll(
            lambda: any(e["kind"] == "http" and e["status"] == 200 for e in engine.events()), 20
        )
    folder = TRACES / f"{engine.kind}-{name}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "journal.jsonl").write_text(engine.dump())
    (folder / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


def failed(engine: EngineUnit, name: str, cause: str, seconds: float = 60.0) -> Event:
    """The run fails with this cause, at most 2 s after its main process or its log said so."""
    verdict = engine.until("failed", seconds)
    last = poll(lambda: engine.verdicts()[-1] if engine.events()[-1] else None, 1)
    ended = poll(lambda: [e for e in engine.events() if e["kind"] == "exit"], 20)
    assert last["cause"] == cause, (last, engine.tail())
    if ended:
        assert verdict["t"] <= ended[0]["t"] + 2.0
    by = verdict["t"] + 2.0
    record(engine, name, {"engine": "sglang", "outcome": "failed", "cause": cause, "by_s": by})
    return verdict


def test_good_start(engine: EngineUnit) -> None:
    started(engine)
    ready = engine.until("ready")
    assert poll(lambda: engine.show("ActiveState") == "active", 10)
    events = engine.events()
    serving = next(e["t"] for e in events if e["kind"] == "verdict" and e["outcome"] in UP)
    # The stand-in warms up until it says so; /health then takes 1.0 s, as the real one's does.
    rolled = said(engine, "ready to roll")
    assert serving <= rolled + 2.0
    generate = next(e for e in events if e["kind"] == "generate")
    assert generate["text_ok"] is True and generate["tokens"] > 0
    socket = [e for e in events if e["kind"] == "socket"][-1]
    assert socket["ours"] is True and socket["owner_pid"] == engine.main_pid()
    done = engine.host.exec("sglangctl", "verify", engine.name, check=False)
    assert done.returncode == 0 and f"{engine.name} is ready" in done.stdout
    window = {"not_before_s": 0.5, "by_s": serving + 1.0}
    record(engine, "good", {"engine": "sglang", "outcome": "serving", **window})
    assert ready["cause"] is None


def test_two_ranks(engine: EngineUnit) -> None:
    started(engine, flags={"device": "cuda"}, tensor_parallel=2)
    engine.until("ready")
    last = [e for e in engine.events() if e["kind"] == "process"][-1]
    titles = [process["name"] for process in last["processes"]]
    assert "sglang::scheduler_TP0" in titles and "sglang::scheduler_TP1" in titles
    assert not any("wait" in title for title in titles)
    serving = first(engine, lambda e: e["kind"] == "verdict" and e["outcome"] in UP)
    window = {"not_before_s": 0.5, "by_s": serving + 1.0}
    record(engine, "tp2", {"engine": "sglang", "outcome": "serving", **window})


def test_api_key_is_used_and_kept_out_of_sight(
    engine: EngineUnit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLANTED_KEY", "sk-planted-0123456789")
    started(engine, api_key={"env": "PLANTED_KEY"})
    engine.until("ready")
    assert "sk-planted" not in engine.dump()
    assert "sk-planted" in engine.host.exec("cat", engine.log).stdout  # the engine itself logs it
    assert engine.host.exec("sglangctl", "verify", engine.name).returncode == 0
    serving = first(engine, lambda e: e["kind"] == "verdict" and e["outcome"] in UP)
    window = {"not_before_s": 0.5, "by_s": serving + 1.0}
    record(engine, "api-key", {"engine": "sglang", "outcome": "serving", **window})


def test_journal_is_readable_by_the_engine_s_group_only(engine: EngineUnit) -> None:
    started(engine)
    engine.until("serving")
    script = f"stat -L -c '%a %U %G' {engine.state}/starts/latest/journal.jsonl"
    assert engine.host.exec("sh", "-c", script).stdout == "640 root sglang\n"
    assert engine.host.exec(
        "sh", "-c", f"ls {engine.state}/starts", user="nobody", check=False
    ).returncode


@pytest.mark.parametrize(
    ("name", "title"),
    [("scheduler", "sglang::scheduler"), ("detokenizer", "sglang::detokenizer")],
)
def test_kill_9_of_a_child(engine: EngineUnit, name: str, title: str) -> None:
    started(engine)
    ready = engine.until("ready")
    killed = engine.signal("KILL", title)
    verdict = engine.until("failed")
    assert verdict["cause"] == "rank-died"
    shown = first(
        engine,
        lambda e: (
            e["t"] > ready["t"]
            and (
                (e["kind"] == "log" and "crashed with exit code" in e["data"])
                or (e["kind"] == "process" and any(p["state"] == "Z" for p in e["processes"]))
            )
        ),
    )
    assert shown - 0.5 <= verdict["t"] <= shown + 2.0
    assert verdict["t"] <= killed + 5.0
    ended = poll(lambda: any(e["kind"] == "exit" for e in engine.events()), 40 * engine.patience)
    assert ended
    after = [{"state": "failed", "after_s": killed - 1.0, "by_s": verdict["t"] + 2.0}]
    serving = first(engine, lambda e: e["kind"] == "verdict" and e["outcome"] in UP)
    record(
        engine,
        f"kill9-{name}",
        {"engine": "sglang", "outcome": "serving", "by_s": serving + 1.0, "after": after},
    )


def test_kill_9_of_the_parent(engine: EngineUnit) -> None:
    started(engine)
    engine.until("ready")
    engine.host.exec("kill", "-KILL", str(engine.main_pid()))
    killed = engine.now()
    verdict = engine.until("failed")
    assert verdict["t"] <= killed + 2.0
    assert verdict["cause"] == "killed"
    ended = next(e for e in engine.events() if e["kind"] == "exit")
    assert ended["returncode"] == -9 and ended["oom"] is False
    after = [{"state": "failed", "after_s": killed - 1.0, "by_s": verdict["t"] + 2.0}]
    serving = first(engine, lambda e: e["kind"] == "verdict" and e["outcome"] in UP)
    record(
        engine,
        "kill9-parent",
        {"engine": "sglang", "outcome": "serving", "by_s": serving + 1.0, "after": after},
    )


@pytest.mark.parametrize(
    ("name", "title"),
    [("scheduler", "sglang::scheduler"), ("detokenizer", "sglang::detokenizer")],
)
def test_sigstop_of_a_child(engine: EngineUnit, name: str, title: str) -> None:
    started(engine)
    engine.until("ready")
    stopped = engine.signal("STOP", title)
    verdict = engine.until("unresponsive")
    assert verdict["cause"] == "rank-stopped"
    assert any(title in line for line in verdict["evidence"])
    seen = first(
        engine,
        lambda e: e["kind"] == "process" and any(p["state"] == "T" for p in e["processes"]),
    )
    assert verdict["t"] <= seen + 5.0 and verdict["t"] <= stopped + 7.0
    assert engine.host.exec("sglangctl", "verify", engine.name, check=False).returncode == 1
    engine.signal("CONT", title)
    assert poll(lambda: engine.verdicts()[-1]["outcome"] in UP, 40), engine.verdicts()[-1]
    after = [{"state": "unresponsive", "after_s": stopped - 1.0, "by_s": verdict["t"] + 5.0}]
    serving = first(engine, lambda e: e["kind"] == "verdict" and e["outcome"] in UP)
    record(
        engine,
        f"sigstop-{name}",
        {"engine": "sglang", "outcome": "serving", "by_s": serving + 1.0, "after": after},
    )


def test_sigstop_of_a_rank_while_loading(engine: EngineUnit) -> None:
    started(engine, flags={"device": "cuda"}, tensor_parallel=2, standin={"LOADING_S": 60})
    engine.until_phase("loading")
    assert poll(lambda: "sglang::scheduler_TP1" in json.dumps(engine.events()[-30:]), 20)
    stopped = engine.signal("STOP", "sglang::scheduler_TP1")
    verdict = engine.until("stalled")
    assert verdict["cause"] == "rank-stopped" and verdict["phase"] == "loading"
    assert verdict["t"] <= stopped + 7.0
    window = {"not_before_s": stopped - 1.0, "by_s": verdict["t"] + 5.0}
    record(
        engine,
        "sigstop-rank-while-loading",
        {"engine": "sglang", "outcome": "stalled", "cause": "rank-stopped", **window},
    )


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("sglang", "/opt/sglang/venvs/standin/bin/python -m sglang.launch_server "
                   "--model-path /models/tiny --port 8000 --device cpu"),
        ("httpd", "/usr/bin/python3 -m http.server 8000"),
    ],
)  # fmt: skip
def test_port_is_held(engine: EngineUnit, name: str, command: str, listening_s: float = 20) -> None:
    """First as a start goes; then with the finding ignored: how it fails by itself is looked at."""
    configured(engine, limits={"port_held_s": 1.0})
    engine.host.exec(
        "systemd-run", "--unit=other-server", "--collect", "--setenv=STANDIN_START_S=0.5",
        "--setenv=HOME=/root", *command.split(),
    )  # fmt: skip
    try:
        listening = f"ss -ltn | grep -q :{engine.port}"
        assert poll(
            lambda: engine.host.exec("sh", "-c", listening, check=False).returncode == 0,
            listening_s,
        )
        engine.start()
        assert poll(lambda: engine.show("ActiveState") == "failed", 60 * engine.patience)
        assert engine.show("ExecMainPID") == "0", "it was loaded although its port is taken"
        said = engine.host.exec("sglangctl", "status", engine.name, check=False).stdout
        assert f"port {engine.port} is held by" in said and "other-server.service" in said
        configured(engine, preflight={"ignore": ["port-taken"]})
        engine.start()
        verdict = engine.until("failed")
        assert verdict["cause"] == "port-taken"
        # At the bind, or before it: who holds it is known from the beginning.
        assert verdict["t"] <= Limits().port_held_s + 5.0 * engine.patience
        assert "is held by" in verdict["evidence"][0] or "already in use" in verdict["evidence"][0]
        assert not any(item["outcome"] in UP for item in engine.verdicts())
        assert poll(lambda: engine.show("ActiveState") == "failed", 60 * engine.patience)
        expected = {"engine": "sglang", "outcome": "failed", "cause": "port-taken"}
        record(engine, f"port-held-by-{name}", {**expected, "by_s": verdict["t"] + 2.0})
    finally:
        engine.host.exec("systemctl", "stop", "other-server", check=False)


UNCHECKED = {
    "ignore": ["model-config", "tokenizer-missing", "weights-corrupt", "weights-missing"],
}
"""The unit starts the engine all the same: how it fails by itself is what is looked at."""
BROKEN = [
    ("shard-truncated", "truncate -s 60% {shard}", "weights-corrupt"),
    ("shard-zero-bytes", ": > {shard}", "weights-corrupt"),
    ("shard-missing", "rm {shard}", "weights-missing"),
    ("tokenizer-missing", "rm -f {model}/tokenizer*", "tokenizer-missing"),
]


@pytest.mark.parametrize(("name", "script", "cause"), BROKEN, ids=[item[0] for item in BROKEN])
def test_broken_model(engine: EngineUnit, name: str, script: str, cause: str) -> None:
    model = f"/models/{name}"
    shard = f'"$(ls {model}/*.safetensors | sed -n 3p)"'
    engine.host.exec("sh", "-c", f"rm -rf {model} && cp -r {engine.model} {model}")
    # truncate knows no percentages.
    script = script.replace(
        "truncate -s 60% {shard}", 'f={shard}; truncate -s $(($(stat -c %s "$f")*6/10)) "$f"'
    )
    engine.host.exec("sh", "-c", script.format(model=model, shard=shard))
    started(engine, model={"path": model, "served_name": "tiny"}, preflight=UNCHECKED)
    failed(engine, name, cause)
    assert poll(lambda: engine.show("ActiveState") == "failed", 30 * engine.patience)


def test_a_broken_model_is_not_even_started(engine: EngineUnit) -> None:
    """SGLang itself may serve with tensors missing (0.5.16)."""
    model = f"/models/{BROKEN[2][0]}-before"
    script = f"rm -rf {model} && cp -r {engine.model} {model} && cd {model} && rm "
    engine.host.exec("sh", "-c", script + '"$(ls *.safetensors | sed -n 3p)"')
    started(engine, model={"path": model, "served_name": "tiny"})
    assert poll(lambda: engine.show("ActiveState") == "failed", 30 * engine.patience)
    assert engine.starts() == [] and engine.show("ExecMainPID") == "0"
    assert "sglangctl weights: " in engine.tail() and "is missing" in engine.tail()
    done = engine.host.exec("sglangctl", "status", engine.name, check=False)
    assert done.returncode == 1 and "its model is not complete" in done.stdout
    # Put right, it starts.
    engine.host.exec("sh", "-c", f"cp {engine.model}/*.safetensors {model}/")
    engine.start()
    engine.until("ready")


def test_missing_model(engine: EngineUnit) -> None:
    # The unit's RequiresMountsFor and systemd have nothing against a folder that does not exist.
    nowhere = {"path": "/models/nowhere", "served_name": "tiny"}
    started(engine, model=nowhere, preflight=UNCHECKED)
    failed(engine, "model-missing", "model-not-found")


def test_unknown_flag_is_not_tried_again(engine: EngineUnit) -> None:
    started(engine, raw_flags="no-such-flag: 1\n", unit_lines="")
    failed(engine, "unknown-flag", "unknown-flag")
    assert poll(lambda: engine.show("ActiveState") == "failed", 30 * engine.patience)
    time.sleep(1)
    assert len(engine.starts()) == 1  # RestartPreventExitStatus=2


def test_wrong_drafter_path(engine: EngineUnit) -> None:
    drafter = {
        "path": "/models/no-drafter",
        "algorithm": "EAGLE3",
        "steps": 3,
        "topk": 1,
        "draft_tokens": 4,
    }
    started(engine, drafter=drafter, preflight=UNCHECKED)
    failed(engine, "drafter-path-wrong", "drafter-not-found")


@pytest.mark.parametrize(
    ("length", "outcome"), [("2.6", "ready"), ("1.0", "degraded")], ids=["good", "useless"]
)
def test_drafter(engine: EngineUnit, length: str, outcome: str) -> None:
    drafter = {
        "path": "/models/tiny-eagle3",
        "algorithm": "EAGLE3",
        "steps": 3,
        "topk": 1,
        "draft_tokens": 4,
    }
    started(engine, drafter=drafter, standin={"ACCEPT_LENGTH": length})
    engine.until(outcome)
    generate = next(e for e in engine.events() if e["kind"] == "generate")
    assert abs(generate["accept_length"] - float(length)) < 0.5
    done = engine.host.exec("sglangctl", "verify", engine.name, "--json", check=False)
    assert done.returncode == 0  # degraded commits by default
    assert json.loads(done.stdout)["verify"]["outcome"] == outcome
    serving = first(engine, lambda e: e["kind"] == "verdict" and e["outcome"] in UP)
    window = {"not_before_s": 0.5, "by_s": serving + 1.0}
    record(engine, f"drafter-{outcome}", {"engine": "sglang", "outcome": "serving", **window})


@pytest.mark.parametrize("bad", ["nul", "replacement", "repeat", "empty"])
def test_bad_text_is_not_ready(engine: EngineUnit, bad: str) -> None:
    started(engine, standin={"BAD_TEXT": bad})
    engine.until("serving")
    generate = poll(lambda: [e for e in engine.events() if e["kind"] == "generate"], 30)
    assert generate[0]["text_ok"] is False
    time.sleep(1)
    assert engine.verdicts()[-1]["outcome"] == "serving"
    done = engine.host.exec("sglangctl", "verify", engine.name, check=False)
    assert done.returncode == 1 and f"{engine.name} is not ready: the answer " in done.stdout


def test_disk_full(engine: EngineUnit) -> None:
    # The compile cache on a file system of its own, full.
    cache = f"/var/cache/sglang/{engine.name}"
    configured(engine, standin={"CACHE_KIB": 4096})
    engine.host.exec("mount", "-t", "tmpfs", "-o", "size=1m,uid=0,mode=1777", "none", cache)
    try:
        engine.start()
        failed(engine, "disk-full", "disk-full")
    finally:
        engine.host.exec("systemctl", "stop", engine.unit)
        engine.host.exec("umount", cache)


PHASES = [
    "importing",
    "connecting",
    "loading",
    "allocating",
    "capturing",
    "binding",
    "warming",
    "serving",
]


@pytest.mark.parametrize("phase", PHASES)
def test_systemctl_stop_in_each_phase(engine: EngineUnit, phase: str) -> None:
    gpu = {"flags": {"device": "cuda"}} if phase == "capturing" else {}
    standin = {} if phase == "serving" else {f"{phase.upper()}_S": 30}
    # While it warms up it does not end by itself: then systemd does it, after two minutes else.
    lines = f"{ONCE}TimeoutStopSec=6\n"
    started(engine, standin=standin, unit_lines=lines, **gpu)
    stopped_in(engine, phase)


def stopped_in(engine: EngineUnit, phase: str, name: str = "", held: bool = False) -> None:
    """Stop the unit as soon as the engine is in that phase: ended as wanted, nothing left.

    `held`: it is held there with SIGSTOP.
    """
    engine.until_phase(phase)
    if phase == "serving":
        engine.until("ready")
    time.sleep(0.5)
    before = engine.now()
    engine.host.exec("systemctl", "stop", engine.unit, timeout=150)
    assert engine.processes() == []
    verdict = engine.until("failed", 10)
    blamed = {item["cause"] for item in engine.verdicts() if item["outcome"] == "failed"}
    assert blamed == {"killed" if phase == "serving" else "terminated"}
    steps = [e for e in engine.events() if e["kind"] == "step" and e["step"] == "stop"]
    assert steps, "that the stop was wanted was not noticed"
    ended = first(engine, lambda e: e["kind"] == "exit")
    if phase != "serving":
        # `wait` takes SIGTERM as a success; the engine may kill itself, or outstay its time.
        assert engine.show("Result") in ("success", "signal", "timeout")
        assert verdict["t"] <= ended + 2.0
    record(
        engine,
        f"stop-while-{name or phase}",
        {
            "engine": "sglang",
            "outcome": "failed" if phase != "serving" else "serving",
            **({"cause": "terminated"} if phase != "serving" else {}),
            "by_s": max(verdict["t"], ended) + 2.0 if phase != "serving" else before,
            **({"stopped_by_us_s": before} if phase == "serving" else {}),
            **({"held": True} if held else {}),
        },
    )


def test_every_start_has_its_own_journal_and_the_third_failure_is_the_last(
    engine: EngineUnit,
) -> None:
    started(
        engine,
        model={"path": "/models/nowhere", "served_name": "tiny"},
        preflight=UNCHECKED,
        unit_lines="[Service]\nRestartSec=0.2\n",
    )
    assert poll(lambda: engine.show("Result") == "start-limit-hit" or len(engine.starts()) == 3, 60)
    assert poll(lambda: engine.show("ActiveState") == "failed", 30 * engine.patience)
    assert len(engine.starts()) == 3
    for start in engine.starts():
        events = engine.events(start)
        verdict = [e for e in events if e["kind"] == "verdict"][-1]
        assert (verdict["outcome"], verdict["cause"]) == ("failed", "model-not-found"), start
        ended = [e for e in events if e["kind"] == "exit"]
        assert len(ended) == 1 and ended[0]["returncode"] == 1, start
        text = "".join(e["data"] for e in events if e["kind"] == "log")
        # Each journal has its own start's log, once, and nothing of ours in it.
        assert text.count("Repo id must be in the form") == 1, start
        assert "sglangctl wait" not in text
    log = engine.host.exec("cat", engine.log).stdout
    assert "sglangctl wait: tiny " in log and "next: " in log


def test_the_watch_dies_and_the_engine_does_not(engine: EngineUnit) -> None:
    started(engine, standin={"LOADING_S": 4})
    engine.until_phase("loading")
    engine.host.exec("systemctl", "kill", "--signal=KILL", f"sglang-watch@{engine.name}")
    engine.until("ready")
    assert len(engine.starts()) == 1
    assert engine.show("NRestarts") == "0" and engine.show("ActiveState") == "active"
    text = "".join(e["data"] for e in engine.events() if e["kind"] == "log")
    assert text.count("Load weight begin") == 1 and text.count("Uvicorn running on") == 1


def test_without_a_watch_the_unit_starts_all_the_same(engine: EngineUnit) -> None:
    configured(engine)
    engine.host.exec("systemctl", "mask", "--runtime", f"sglang-watch@{engine.name}.service")
    try:
        engine.start()
        assert poll(lambda: engine.show("ActiveState") == "active", 30), engine.tail()
        assert engine.starts() == []
    finally:
        engine.host.exec("systemctl", "unmask", "--runtime", f"sglang-watch@{engine.name}.service")


def test_unresponsive_is_restarted_where_the_inventory_wants_it(engine: EngineUnit) -> None:
    started(
        engine,
        readiness={"restart_unresponsive": True},
        limits={"restart_unresponsive_s": 2.0},
        unit_lines="[Service]\nRestartSec=0.2\nTimeoutStopSec=5\n",
    )
    engine.until("ready")
    start = engine.starts()[0]
    engine.signal("STOP", "sglang::scheduler")
    assert poll(lambda: len(engine.starts()) == 2, 60)
    steps = [e for e in engine.events(start) if e["kind"] == "step"]
    assert [step["step"] for step in steps] == ["stacks", "stop"]
    engine.until("ready")


FREEZER = Path("/sys/fs/cgroup/freezer")


@pytest.mark.skipif(
    not FREEZER.is_dir(), reason="no cgroup v1 freezer: a machine with cgroup v2 alone has none"
)
def test_frozen_from_outside_the_container(engine: EngineUnit) -> None:
    started(engine)
    engine.until("ready")
    titles = ("sglang::scheduler", "sglang::detokenizer")
    inside = {engine.main_pid(), *(engine.pid(title) for title in titles)}
    cgroup = FREEZER / f"{engine.host.name}-frozen"
    cgroup.mkdir()
    pids = pids_outside(engine.host, inside)
    try:
        homes = {pid: freezer_of(pid) for pid in pids}
        for pid in pids:
            (cgroup / "cgroup.procs").write_text(str(pid))
        (cgroup / "freezer.state").write_text("FROZEN")
        frozen = engine.now()
        verdict = engine.until("unresponsive", 90)
        # No process is in state T: only that nothing answers tells.
        assert verdict["t"] <= frozen + (15.0 if "http_timeout_s" in engine.limits else 31.0)
        looks = [e for e in engine.events() if e["kind"] == "process" and e["t"] > frozen + 1.5]
        states = {p["state"] for p in looks[-1]["processes"] if p["name"].startswith("sglang::")}
        assert "T" not in states
    finally:
        (cgroup / "freezer.state").write_text("THAWED")
        for pid in pids:
            (homes[pid] / "cgroup.procs").write_text(str(pid))
        cgroup.rmdir()
    assert poll(lambda: engine.verdicts()[-1]["outcome"] in UP, 60), engine.verdicts()[-1]
    after = [{"state": "unresponsive", "after_s": frozen - 1.0, "by_s": verdict["t"] + 2.0}]
    serving = first(engine, lambda e: e["kind"] == "verdict" and e["outcome"] in UP)
    record(
        engine,
        "frozen",
        {"engine": "sglang", "outcome": "serving", "by_s": serving + 1.0, "after": after},
    )


def pids_outside(host: Host, inside: set[int]) -> list[int]:
    """This machine's pids of processes that have the pids `inside` in the container."""
    done = subprocess.run(
        ["docker", "top", host.name, "-eo", "pid"], capture_output=True, text=True, check=True
    )
    found = []
    for word in done.stdout.split()[1:]:
        status = Path(f"/proc/{word}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("NSpid:"))
        if int(line.split()[-1]) in inside:
            found.append(int(word))
    assert len(found) == len(inside)
    return found


def freezer_of(pid: int) -> Path:
    """The freezer cgroup of a process of this machine."""
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "freezer":
            return FREEZER / path.lstrip("/")
    raise AssertionError(f"process {pid} has no freezer cgroup")


def test_out_of_memory_by_the_container_s_limit(host_factory: HostFactory, tmp_path: Path) -> None:
    host = host_factory("oom", gpus=2, memory="400m")
    prepare(host)
    engine = EngineUnit(host, tmp_path)
    started(engine, standin={"HOST_MEMORY_MIB": 700, "LOADING_S": 4})
    verdict = failed(engine, "host-out-of-memory", "host-out-of-memory", 60)
    assert verdict["phase"] == "loading"
    ended = next(e for e in engine.events() if e["kind"] == "exit")
    assert ended["oom"] is True and ended["oom_kills"] >= 1
    engine.stop()
    assert poll(lambda: not engine.processes(), 10)
