"""Follows the demo engine to its end and writes down every event that arrived, by host."""

from __future__ import annotations

import json
import os
from collections.abc import Generator
from pathlib import Path

from pyinfra.api import FunctionCommand, operation
from pyinfra.context import host

from roles.readiness import operations
from roles.readiness.subject import Subject
from roles.remote import link
from roles.remote.failing import say
from roles.remote.link import Link
from roles.report.report import report_once
from sglangctl.startup.summary import Summary

link.GIVE_UP_S = float(os.environ.get("TEST_GIVE_UP_S", link.GIVE_UP_S))
SUBJECT = Subject("demo", "sglang-demo.service", "demo-model", 8000)
arrived: dict[int, list[str]] = {}
feed = Summary.feed


def feed_and_keep(self: Summary, event: dict[str, object]) -> bool:
    arrived.setdefault(id(self), []).append(f"{event['kind']} {event.get('data', '')}".strip())
    return feed(self, event)


Summary.feed = feed_and_keep  # type: ignore[method-assign]


@operation(is_idempotent=False)
def kept(subject: Subject, folder: Path) -> Generator[FunctionCommand, None, None]:
    def run(connection: Link) -> None:
        target = connection.host
        followed = operations.follow_start(connection, subject, lambda line: say(target, line))
        document = {"word": followed.reason, "arrived": arrived[id(followed.summary)]}
        (folder / f"{target.name.removeprefix('@docker/')}.json").write_text(json.dumps(document))

    yield operations.proving(run, [subject], sudo=bool(host.data.get("needs_sudo")))


@operation(is_idempotent=False)
def slow(seconds: int, folder: Path) -> Generator[FunctionCommand, None, None]:
    """One long command, as `sglangctl verify` is: only the kernel notices that its link is dead."""

    def run(connection: Link) -> None:
        target = connection.host
        say(target, "demo: a long command")
        answer = connection.run("sh", "-c", f"sleep {seconds}; echo done", wait_s=600)
        (folder / f"{target.name}.json").write_text(json.dumps(answer.lines))

    yield operations.proving(run, [SUBJECT], sudo=False)


report_once("follow")
if os.environ.get("TEST_SLOW"):
    slow(name="Slow", seconds=8, folder=Path(os.environ["TEST_FOLDER"]))
else:
    kept(name="Follow demo", subject=SUBJECT, folder=Path(os.environ["TEST_FOLDER"]))
