"""reports/<UTC time>/report.json: what a run did and found, on the controller; report.html beside it.

pyinfra's own JSON leaves failed hosts' messages out, and is empty when every host has failed.

{"v": 1, "deploy", "time", "report": [{host, outcome, messages, operations, engines, lists, choices,
switches}]}; outcome is ok, failed or unreachable; engines holds one Result each, and `fallback` {name,
cause} of the switch where one serves; lists, what the screen has folded; choices, what the plan said of
each engine; switches, the events of each switch.
"""

from __future__ import annotations

import atexit
import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from pyinfra import logger
from pyinfra.api import Host, State
from pyinfra.api.state import BaseStateCallback
from pyinfra.context import ctx_state, state

from roles.remote import failing
from roles.remote.serving import engines_now
from roles.remote.shape import JSON, bounded
from roles.remote.snapshot import prepared
from roles.report import choice, last_screen
from roles.report.page import page
from roles.report.quiet import Quiet
from roles.report.result import BACK, FALLBACKS, LISTS, RESULTS, SWITCHES

VERSION = 1
FOLDER_VARIABLE = "SGLANG_REPORTS"
"""Another folder than reports/ below the current one."""
GIVEN: list[str] = []
"""What of --data this run was called with, of the keys that a deploy of ours reads."""


class Report(BaseStateCallback):
    """Writes the report when the last host is disconnected: pyinfra disconnects from every host,
    also after it gave up because none was left.

    Where that fails for one, the end of the program is the time.
    """

    def __init__(self, state: State, deploy: str) -> None:
        self.state, self.deploy = state, deploy
        self.gone: set[Host] = set()
        self.now: dict[str, list[JSON] | None] = {}
        """Host -> what it said of its engines after its failure."""
        self.quiet = Quiet()
        logger.addFilter(self.quiet)
        atexit.register(self.finish)

    def host_disconnect(self, state: State, host: Host) -> None:  # type: ignore[override]
        self.gone.add(host)
        if self.gone >= set(state.activated_hosts):
            self.finish()

    def operation_host_error(  # type: ignore[override]
        self, state: State, host: Host, op_hash: str, retry_count: int = 0, max_retries: int = 0
    ) -> None:
        self.now[host.name] = engines_now(state, host)

    def finish(self) -> None:
        """Write it, once, and print the last screen of the hosts that failed."""
        atexit.unregister(self.finish)
        if choice.Plan.dry:
            choice.Plan.print_all()
        if not (self.state.is_executing or failing.MESSAGES or choice.Plan.dry):
            return  # whoever was asked has said no
        for host in self.state.inventory:
            if host.name in self.now and host.name not in failing.MESSAGES:
                failing.MESSAGES[host.name] = [of_a_command(self.state, host)]
        file = None
        try:
            content = document(self.state, self.deploy)
            failing.tell_plan(report=content)
            file = new_folder(Path(os.environ.get(FOLDER_VARIABLE, "reports"))) / "report.json"
            write(file, json.dumps(content, indent=2) + "\n")
            write(file.with_suffix(".html"), page(content))
        except OSError as error:
            file = None
            logger.error(f"the report cannot be written: {error}")
        except Exception as error:  # each failed host is still owed its last screen
            logger.error(f"the report is not whole: {failing.internal_error(error)}")
        for host in self.state.inventory:
            if host.name in failing.MESSAGES:
                try:
                    self.say_last(host, None if file is None else str(file))
                except Exception as error:
                    logger.error(f"--> {host.name}: {failing.internal_error(error)}")

    def say_last(self, host: Host, file: str | None) -> None:
        self.quiet.told = True
        if host.name in failing.REFUSED:
            logger.error(f"--> {host.name}: the inventory is wrong, see above; nothing was changed")
            return
        engines = (prepared(host) or {}).get("engines") or {}
        before = {
            name: one
            for name, one in engines.items()
            if (one.get("releases") or {}).get("current") is not None
        }
        failure = last_screen.Failure(
            host=host.name,
            deploy=self.deploy,
            messages=failing.MESSAGES[host.name],
            touched=host.name in self.now,
            engines=self.now.get(host.name),
            given=GIVEN,
            others=BACK.get(host.name, {}),
            before=list(before),
            down=[
                name
                for name, one in before.items()
                if (one.get("unit") or {}).get("ActiveState") in ("inactive", "failed")
            ],
        )
        logger.error(f"--> {host.name} failed")
        for line in last_screen.lines(failure, file):
            logger.info(line)


def of_a_command(state: State, host: Host) -> str:
    """What is told of a host whose operation failed by a command of its own: the last thing it said.
    pyinfra prints that, and keeps it where no report finds it."""
    for op_hash in state.get_op_order():
        data = state.ops[host].get(op_hash)
        meta = data and data.operation_meta
        if meta and meta.is_complete() and not meta.did_succeed():
            name = ", ".join(sorted(state.get_op_meta(op_hash).names))
            said = [line for line in (*meta.stdout_lines, *meta.stderr_lines) if line.strip()]
            return f"{name}: {said[-1].strip() if said else 'a command failed, see above'}"
    return "an operation failed, see above"


def report_once(deploy: str) -> None:
    """Have this run reported, under the name of its deploy; called once per host."""
    if not any(isinstance(handler, Report) for handler in state.callback_handlers):
        state.add_callback_handler(Report(ctx_state.get(), deploy))


def new_folder(base: Path) -> Path:
    """base/<UTC time>, with a number behind it where two runs begin in the same second."""
    name = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    number = 1
    while True:
        folder = base / (name if number == 1 else f"{name}-{number}")
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            number += 1
        else:
            return folder


def write(file: Path, text: str) -> None:
    beside = file.with_name(file.name + ".new")
    beside.write_text(text, encoding="utf-8")
    os.replace(beside, file)


def document(state: State, deploy: str) -> dict[str, Any]:
    """The report as it stands."""
    order = state.get_op_order()
    return {
        "v": VERSION,
        "deploy": deploy,
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "report": [of_host(state, host, order) for host in state.inventory],
    }


def of_host(state: State, host: Host, order: Sequence[str]) -> dict[str, Any]:
    outcome = "ok"
    if host in state.failed_hosts:
        tried = host in state.activated_hosts or host.name in failing.REFUSED
        outcome = "failed" if tried else "unreachable"
    found = {
        "host": host.name,
        "outcome": outcome,
        "messages": failing.MESSAGES.get(host.name, []),
        "operations": operations(state, host, order),
        "engines": [
            {**vars(result), "fallback": FALLBACKS.get(host.name, {}).get(name)}
            for name, result in RESULTS.get(host.name, {}).items()
        ],
        "lists": LISTS.get(host.name, {}),
        "choices": [vars(one) for one in choice.CHOICES.get(host.name, [])],
        "switches": SWITCHES.get(host.name, {}),
    }
    return cast("dict[str, Any]", bounded(found))  # most of it is what the host said


def operations(state: State, host: Host, order: Sequence[str]) -> list[dict[str, Any]]:
    """Every operation in its order: its name, and whether it changed something (None: it did
    not get its turn)."""
    found = []
    for op_hash in order:
        data = state.ops[host].get(op_hash)
        if data is None:
            continue
        meta = data.operation_meta
        done = meta.is_complete()
        found.append(
            {
                "name": ", ".join(sorted(state.get_op_meta(op_hash).names)),
                "success": meta.did_succeed() if done else None,
                "changed": meta.did_change() if done else None,
            }
        )
    return found
