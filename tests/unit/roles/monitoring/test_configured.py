"""What a deploy does to Prometheus' configuration, from what the host says of it."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pyinfra.api import FunctionCommand
from pyinfra.context import host

from roles.host.managed import ManagedFile
from roles.monitoring import files, operations
from roles.monitoring.insertion import with_items
from roles.monitoring.targets import Monitoring, Target
from roles.remote import look
from tests.support.on_this_machine import deploying

OWN = "scrape_configs:\n- job_name: mine\n  basic_auth: {username: me, password: s3cret}\n"
FLEET = Monitoring("g", (Target("127.0.0.1:8000", "g", "chat"),), (), (), ())


@dataclass
class All(look.Look):
    """A look that has each operation give all of its commands."""

    commands: list[Any] = field(default_factory=list)

    def ask(self, function: Callable[..., Iterator[Any]], *arguments: Any, **named: Any) -> None:
        self.commands += function(*arguments, **named)


TOUCH = f"touch -- {files.PENDING}"


def told_by(command: str) -> str:
    return f"{{ {command}; }} && rm -f -- {files.PENDING}"


def fact(item: Any) -> dict[str, Any]:
    kind = "file" if isinstance(item, ManagedFile) else "directory"
    sha256 = {"sha256": item.sha256} if isinstance(item, ManagedFile) else {}
    return {"kind": kind, "mode": item.mode, "owner": "root", "group": "root", **sha256}


def current() -> dict[str, Any]:
    """The files of a host on which all is as it should be."""
    wanted = [*files.targets(FLEET), files.rules()]
    return {**{one.path: fact(one) for one in wanted}, files.MAIN: {"kind": "file"}}


@dataclass
class Result:
    commands: list[str]
    said: str
    told: list[str]


@pytest.fixture
def configure(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Result]]:
    with deploying() as state:

        def run(
            facts: dict[str, Any],
            text: str | None = None,
            fleet: Monitoring = FLEET,
            installed: tuple[str, ...] = (),
        ) -> Result:
            monkeypatch.setattr(operations, "read", lambda request: {"files": facts})
            monkeypatch.setattr(operations, "content_of", lambda path: text)
            found = host.connector_data[look.KEY] = All()
            told: list[str] = []
            failures: list[str] = []
            monkeypatch.setattr(operations, "will_fail", lambda text: failures.append(text) or text)
            operations.configured(
                monitoring=fleet, request={}, sudo=False, installed=installed, told=told
            )
            commands = [
                "function" if isinstance(one, FunctionCommand) else str(one)
                for one in found.commands
            ]
            return Result(commands, "\n".join([*found.lines, *failures]), told)

        state.config.DIFF = True
        yield run


def test_nothing_is_done_where_all_is_there(configure: Any) -> None:
    assert configure(current(), with_items(OWN, files.ITEMS)) == Result([], "", [])


def test_lines_are_added_and_prometheus_reads_them(configure: Any) -> None:
    found = configure(current(), OWN)
    assert found.commands == [TOUCH, "function", told_by(operations.RELOAD)]
    assert "+- job_name: sglang-node" in found.said and "s3cret" not in found.said
    assert found.told == [files.MAIN]


def test_other_rules_are_read_again_and_other_targets_by_prometheus_itself(configure: Any) -> None:
    text = with_items(OWN, files.ITEMS)
    found = configure({**current(), files.RULES: {"kind": "absent"}}, text)
    assert found.commands == [TOUCH, "function", told_by(operations.RELOAD)]
    found = configure({**current(), files.ENGINES: {"kind": "absent"}}, text)
    assert len(found.commands) == 1 and files.ENGINES in found.commands[0]
    assert found.told == [files.ENGINES]


def test_a_prometheus_that_was_not_told_is_told_by_the_next_deploy(configure: Any) -> None:
    """The files were in place, and the link was lost: all of it looked as it should be."""
    facts = {**current(), files.PENDING: {"kind": "file"}}
    found = configure(facts, with_items(OWN, files.ITEMS))
    assert found.commands == [TOUCH, told_by(operations.RELOAD)]
    assert "an earlier deploy did not come to that" in found.said
    assert found.told == [files.MAIN], "and who answers is looked at"
    assert files.PENDING in operations.asked_for(FLEET, True)["files"]


@pytest.mark.parametrize("works", [True, False])
def test_the_mark_stays_until_prometheus_was_told(tmp_path: Path, works: bool) -> None:
    pending = tmp_path / "pending"
    pending.touch()
    (tmp_path / "systemctl").write_text(f"#!/bin/sh\nexec {str(works).lower()}\n")
    (tmp_path / "systemctl").chmod(0o755)
    for command in (operations.RELOAD, operations.RESTART):
        done = subprocess.run(
            ["sh", "-c", told_by(command).replace(files.PENDING, str(pending))],
            env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
        )
        assert (done.returncode == 0) == works
        assert pending.exists() != works
        if works:
            pending.touch()


def test_a_prometheus_that_has_just_begun_is_started_anew(configure: Any) -> None:
    absent = {files.MAIN: {"kind": "absent"}}
    found = configure(absent, installed=(operations.PROMETHEUS,))
    assert found.commands[-1] == told_by(operations.RESTART)
    assert "in what the package brings" in found.said


@pytest.mark.parametrize(
    ("main", "text", "said"),
    [
        ({"kind": "link"}, OWN, "is a link, which something else manages"),
        ({"kind": "absent"}, None, "apt-get install --reinstall"),
        ({"kind": "file"}, None, "cannot be read as text"),
        ({"kind": "file"}, "scrape_configs: []\n", "scrape_configs is no list with an item a line"),
        ({"kind": "file"}, "password: s3cret: x", "it is not YAML"),
    ],
)
def test_what_cannot_be_changed_is_left_alone(
    configure: Any, main: dict[str, Any], text: str | None, said: str
) -> None:
    found = configure({**current(), files.MAIN: main}, text)
    (command,) = found.commands
    assert said in command and "s3cret" not in command and found.told == []


def test_no_engine_is_forgotten_over_a_mistake_in_the_inventory(configure: Any) -> None:
    wrong = Monitoring("g", (), (), (), ("gpu2",))
    (command,) = configure(current(), OWN, wrong).commands
    assert "gpu2: wrong in the inventory" in command


def test_who_cannot_be_asked_is_named(configure: Any) -> None:
    unseen = Monitoring("g", FLEET.engines, (), ("chat on b listens on 127.0.0.1 only",), ())
    found = configure(current(), with_items(OWN, files.ITEMS), unseen)
    assert "not asked: chat on b listens on 127.0.0.1 only" in found.said
