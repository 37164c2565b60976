"""Run in a pid namespace of its own: holders that exit while they are freed, their pids reused.

Prints one JSON object of counts.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time

from sglangctl.free.escalation import Escalation, Recorder
from sglangctl.free.model import Plan
from sglangctl.proc.pidfds import Identity, identify
from sglangctl.state.config import Limits

EARLY, LATE = 0, 1
"""Of four rounds, one in which the pid is reused before the freeing starts, one in which the
holder is ended by us, and two in which chance decides."""


class Item:
    """As much of a holder as the escalation's last rung reads."""

    class_, reason, uses, title = "engine", "made up", (0,), "VLLM::Worker"

    def __init__(self, identity: Identity) -> None:
        self.identity, self.pid = identity, identity.pid


def sleeper() -> int:
    """Fork a process that does nothing until it is signalled."""
    pid = os.fork()
    if pid == 0:
        while True:
            signal.pause()
    return pid


def one_round(number: int) -> dict[str, bool]:
    to_us, from_racer = os.pipe(), os.pipe()
    racer = os.fork()
    if racer == 0:
        race(number, to_us[0], from_racer[1])
    holder = int(os.read(from_racer[0], 20))
    identity = identify(holder)
    assert identity is not None
    sent: list[str] = []

    def emit(kind: str, **facts: object) -> None:
        if kind == "signal" and facts["signal"] != "SIGCONT":
            sent.append(str(facts["signal"]))

    plan = Plan(
        engine="kimi",
        policy="engines",
        stop=False,
        targets=None,
        processes_to_end=(Item(identity),),  # type: ignore[arg-type]
        limits=Limits(term_s=0.02, kill_s=0.5),
    )
    escalation = Escalation(plan, Recorder(lambda line: None, emit))
    if number % 4 == EARLY:
        os.write(to_us[1], b"go")
        assert os.read(from_racer[0], 1) == b"r"  # the pid is somebody else's by now
        escalation.run()
    elif number % 4 == LATE:
        escalation.run()
        os.write(to_us[1], b"go")
        assert os.read(from_racer[0], 1) == b"r"
    else:
        os.write(to_us[1], b"go")
        time.sleep(random.Random(number).choice([0, 0.0002, 0.0005, 0.001, 0.003]))
        escalation.run()
        assert os.read(from_racer[0], 1) == b"r"
    os.write(to_us[1], b"x")
    answer = json.loads(os.read(from_racer[0], 200))
    os.waitpid(racer, 0)
    for descriptor in (*to_us, *from_racer):
        os.close(descriptor)
    return {**answer, "sent": bool(sent)}


def race(number: int, commands: int, answers: int) -> None:
    """Kill the holder at some moment, let an innocent take its pid, see whether it lives."""
    holder = sleeper()
    os.write(answers, b"%d" % holder)
    os.read(commands, 2)
    if number % 4 not in (EARLY, LATE):
        time.sleep(random.Random(-number).choice([0, 0.0001, 0.0003, 0.001, 0.002]))
    os.kill(holder, signal.SIGKILL)
    _, status = os.waitpid(holder, 0)
    with open("/proc/sys/kernel/ns_last_pid", "w") as file:
        file.write(str(holder - 1))
    innocent = sleeper()
    os.write(answers, b"r")
    os.read(commands, 1)
    died, _ = os.waitpid(innocent, os.WNOHANG)
    if not died:
        os.kill(innocent, signal.SIGKILL)
        os.waitpid(innocent, 0)
    answer = {
        "reused": innocent == holder,
        "killed": bool(died),
        "by_us": os.WTERMSIG(status) == signal.SIGTERM,
    }
    os.write(answers, json.dumps(answer).encode())
    os._exit(0)


def main(rounds: int) -> None:
    found = [one_round(number) for number in range(rounds)]
    print(
        json.dumps(
            {
                "rounds": len(found),
                "reused": sum(one["reused"] for one in found),
                "innocents_killed": sum(one["killed"] for one in found),
                "ended_by_us": sum(one["by_us"] for one in found),
                "signalled_too_late": sum(not one["sent"] for one in found),
            }
        )
    )


if __name__ == "__main__":
    main(int(sys.argv[1]))
