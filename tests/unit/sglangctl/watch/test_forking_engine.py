"""Real processes under a rank's title that fork all the time: no alarm until one really dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from sglangctl.engine.processes import Collector, in_group_of
from sglangctl.proc import procfs
from sglangctl.startup.fold import Startup
from tests.support.startup_events import launch, processes

ENGINE = """
import subprocess, sys, time
ranks = [
    subprocess.Popen([title, "-c", sys.argv[1]], executable=sys.executable)
    for title in ("sglang::scheduler_TP0", "sglang::scheduler_TP1", "sglang::detokenizer")
]
print("up", flush=True)
time.sleep(600)
"""
RANK = """
import os, random, time
while True:
    if os.fork() == 0:
        time.sleep(random.choice((0.0, 0.02, 0.3)))
        os._exit(random.choice((0, 1)))
    time.sleep(random.choice((0.0, 0.05)))
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass
"""
LOOKS = 30


@pytest.fixture
def engine() -> Iterator[int]:
    command = [sys.executable, "-c", ENGINE, RANK]
    # Under another name a Python that was moved does not find its library.
    env = {**os.environ, "PYTHONHOME": sys.base_prefix}
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True, env=env) as main:
        assert main.stdout is not None
        main.stdout.readline()
        yield main.pid
        os.killpg(main.pid, signal.SIGKILL)


@pytest.mark.slow
def test_ranks_that_fork_all_the_time(engine: int) -> None:
    startup, collector = Startup(), Collector()
    startup.feed(launch(tensor_parallel=2))
    forked: set[int] = set()
    ranks: dict[str, int] = {}
    for t in range(LOOKS):
        found = collector.sample(in_group_of(engine))
        said = startup.feed(processes(t + 1, *(process.event() for process in found)))
        assert said.outcome == "pending", said.evidence
        assert startup.tick(t + 1.9).outcome == "pending"
        titled = [process for process in found if process.name.startswith("sglang::")]
        forked |= {process.pid for process in titled if process.ppid != engine}
        ranks |= {process.name: process.pid for process in titled if process.ppid == engine}
        time.sleep(0.02)
    assert len(ranks) == 3 and len(forked) >= 3, "no look saw a forked child: this proves nothing"
    dying = max(ranks.values())
    os.kill(dying, signal.SIGKILL)
    while (stat := procfs.stat(dying)) is not None and stat.state not in "ZX":
        time.sleep(0.01)
    found = collector.sample(in_group_of(engine))
    startup.feed(processes(LOOKS + 2, *(process.event() for process in found)))
    said = startup.tick(LOOKS + 4)
    assert (said.outcome, said.cause) == ("failed", "rank-died")
    assert f"(pid {dying}) is a zombie" in said.evidence[0]
