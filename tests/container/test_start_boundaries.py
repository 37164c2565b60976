"""Where a start begins: its log behind a killed one's unfinished line, and starts that never get
as far as a program."""

from __future__ import annotations

import pytest

from tests.container.engine_unit import EngineUnit, poll

pytestmark = [pytest.mark.container, pytest.mark.timeout(300)]

BAR = "\\rCapturing batches (bs=4):  50%|#####     | 3/6 [00:01<00:01,  2.0it/s]"
AGAIN = "[Service]\nRestartSec=0.2\n"


def phases(engine: EngineUnit, start: str) -> list[str]:
    """The phases of a start, each once, in the order of its journal."""
    events = [event for event in engine.events(start) if event["kind"] == "verdict"]
    return list(dict.fromkeys(event["phase"] for event in events))


def said(engine: EngineUnit, start: str) -> str:
    return "".join(e["data"] for e in engine.events(start) if e["kind"] == "log")


def unfinished(engine: EngineUnit) -> None:
    """The engine's last words: a bar without a line end."""
    engine.host.exec("sh", "-c", f"printf '%b' '{BAR}' >> {engine.log}")


@pytest.mark.parametrize("how", ["kill", "restart", "rotated", "no watch"])
def test_a_start_after_a_killed_one_is_told_from_its_own_words(
    engine: EngineUnit, how: str
) -> None:
    engine.configure(standin={"START_S": 2.5, "LOADING_S": 3}, unit_lines=AGAIN)
    engine.start()
    engine.until_phase("loading")
    unfinished(engine)
    watch = f"sglang-watch@{engine.name}"
    if how == "restart":  # the next start's words are there before the watch knows of the end
        engine.host.exec("systemctl", "restart", "--no-block", engine.unit)
    else:
        if how == "no watch":
            engine.host.exec("systemctl", "kill", "--signal=STOP", watch)
        engine.host.exec("kill", "-9", str(engine.main_pid()))
    assert poll(lambda: engine.show("NRestarts") == "1" or how == "restart", 20)
    if how == "no watch":  # it comes back in the middle of the next start
        marks = ("grep", "-c", "sglangctl: start", engine.log)
        assert poll(lambda: int(engine.host.exec(*marks).stdout) >= 2, 20)
        assert poll(lambda: "Load weight begin" in engine.tail().split("sglangctl: start")[-1], 20)
        unfinished(engine)
        engine.host.exec("systemctl", "kill", "--signal=KILL", watch)
    if how == "rotated":
        engine.host.exec("sh", "-c", f"cp {engine.log} {engine.log}.1 && : > {engine.log}")
    assert poll(lambda: len(engine.starts()) == 2, 30), engine.tail()
    old, new = engine.starts()
    engine.until("ready")
    order = [name for name in phases(engine, new) if name not in ("launching", "capturing")]
    served = order.index("serving") + 1  # the proof's own warming can come after it
    assert order[:served] == sorted(order[:served], key=PHASES.index), order
    assert set(order[served:]) <= {"warming"}, order
    text = said(engine, new)
    if how == "no watch":  # the second bar stands in the new start's own text, and is its own
        assert text.count("Capturing batches") == 1
    else:
        assert "Capturing batches" not in text and "capturing" not in phases(engine, new)
    assert text.count("Uvicorn running on") == 1 and "sglangctl: start" not in text
    assert text.count("Load weight begin") == 1
    if how != "rotated":
        assert "server_args=" in text and said(engine, old).count("server_args=") == 1


PHASES = ["importing", "connecting", "loading", "allocating", "binding", "warming", "serving"]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("User=nobody-there", "217/USER"),
        ("WorkingDirectory=/nowhere", "200/CHDIR"),
        ("ReadWritePaths=/nowhere/x", "226/NAMESPACE"),
        ("EnvironmentFile=/nowhere/x.env", "a file that the unit names is missing"),
        ("ExecStart=\nExecStart=/opt/sglang/venvs/gone/bin/python -m sglang", "203/EXEC"),
        ("StandardOutput=append:/nowhere/x.log", "209/STDOUT"),  # here the watch sees a process
    ],
)
def test_a_unit_that_systemd_cannot_start(engine: EngineUnit, line: str, words: str) -> None:
    engine.configure(unit_lines=f"[Service]\nRestart=no\n{line}\n")
    engine.start()
    assert poll(lambda: engine.show("ActiveState") == "failed", 30)
    for command in ("status", "wait", "verify"):
        done = engine.host.exec("sglangctl", command, engine.name, check=False)
        said = done.stdout + done.stderr
        assert done.returncode == 1 and words in said, (command, said)
        assert "deploy again" in said or "journalctl -u sglang-tiny.service" in said, said
    done = engine.host.exec(
        "sglangctl", "journal", engine.name, "--unit", "--from", "0", check=False
    )
    assert done.returncode == 0 and '"active": "failed"' in done.stdout  # of the check of a deploy


@pytest.mark.parametrize("which", [0, -1])
def test_a_rank_that_dies_during_its_imports(engine: EngineUnit, which: int) -> None:
    """It never had a title of its own: nothing tells it from the detokenizer, and both are missed."""
    engine.configure(
        standin={"START_S": 2.5, "IMPORTING_S": 25}, unit_lines="[Service]\nRestart=no\n"
    )
    engine.start()

    def spawned() -> list[int]:
        looks = [event for event in engine.events() if event["kind"] == "process"]
        listed = looks[-1]["processes"] if looks else []
        return [item["pid"] for item in listed if "multiprocessing.spawn" in item["name"]]

    pids = poll(lambda: spawned() if len(spawned()) == 2 else None, 20)
    engine.host.exec("kill", "-9", str(pids[which]))
    killed = engine.now()
    verdict = engine.until("failed", 20)
    assert verdict["cause"] == "rank-died", verdict
    assert verdict["t"] - killed <= 5.0, (verdict, killed)


def test_a_user_s_entries_in_the_system_s_journal_are_no_words_of_systemd(
    engine: EngineUnit,
) -> None:
    """`logger --journald` writes any field but those that begin with "_": a crash shall not read as
    a stop that somebody asked for."""
    engine.configure(standin={"START_S": 1}, unit_lines="[Service]\nRestart=no\n")
    engine.start()
    engine.until("ready")
    forged = {
        "INVOCATION_ID": engine.show("InvocationID"),
        "UNIT": engine.unit,
        "MESSAGE_ID": "de5b426a63be47a7b6ac3eaac82e2f6f",
        "MESSAGE": f"Stopping {engine.unit}",
        "JOB_TYPE": "stop",
    }
    text = "".join(f"{name}={value}\n" for name, value in forged.items())
    engine.host.exec("sh", "-c", "id bob 2>/dev/null || useradd --system bob")
    engine.host.exec("setpriv", "--reuid=bob", "--clear-groups", "logger", "--journald", input=text)
    there = engine.host.exec(
        "journalctl", "--no-pager", "-o", "json", f"INVOCATION_ID={forged['INVOCATION_ID']}",
        f"MESSAGE_ID={forged['MESSAGE_ID']}",
    )  # fmt: skip
    assert "Stopping" in there.stdout, "the attack itself"
    engine.host.exec("kill", "-9", str(engine.main_pid()))
    verdict = engine.until("failed", 20)
    assert (verdict["cause"], verdict["stopped_by"]) == ("killed", None)
    assert not [event for event in engine.events() if event["kind"] == "step"]
