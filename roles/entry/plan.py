"""sglang-plan: a dry run of deploys/sglang.py, with a diff, and with an exit status.

0 nothing to do, 2 changes pending, 1 an error, or the deploy would fail. Takes pyinfra's own
options (--limit HOST, -v, ...).

--json: one document on standard output: {"v": 1, "status", "plan": [{host, engines, operations,
errors}]}; the texts for people go to standard error.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from roles.entry.project import asks_for_yes, environment, pyinfra
from roles.remote.failing import FORESEEN_VARIABLE
from roles.report.choice import DUE
from sglangctl.util.terminal import escaped


def main(given: Sequence[str] | None = None) -> int:
    """Run pyinfra and print its plan; returns the exit status."""
    arguments = sys.argv[1:] if given is None else list(given)
    if arguments[:1] in (["-h"], ["--help"]):
        print(__doc__)
        return 0
    if asks_for_yes(arguments):
        print("sglang-plan does not take -y: with it pyinfra shows no plan", file=sys.stderr)
        return 1
    as_json = "--json" in arguments
    arguments = [one for one in arguments if one != "--json"]
    with tempfile.TemporaryDirectory(prefix="sglang-plan-") as folder:
        file = Path(folder, "foreseen")
        env = environment(**{FORESEEN_VARIABLE: str(file)})
        env.pop("PYINFRA_YES", None)
        done = pyinfra(
            "sglang", "--dry", "--diff", "--json", *arguments, env=env, stdout=subprocess.PIPE
        )
        text = file.read_text(encoding="utf-8") if file.exists() else ""
    lines_told = map(json.loads, text.splitlines())
    told = [one for one in lines_told if "host" in one]
    foreseen = [one for one in told if "text" in one]
    due = [f"{one['host']}: {one['choice']['engine']}" for one in told if is_due(one)]
    status, lines = judge(done.returncode, done.stdout, foreseen, due)
    print("\n".join(lines), file=sys.stderr if as_json else sys.stdout)
    if as_json:
        print(json.dumps(document(status, done.stdout, told)))
    return status


def document(status: int, stdout: bytes, told: Iterable[Mapping[str, Any]] = ()) -> dict[str, Any]:
    """The plan for programs, by host: its engines (see roles/report/choice.py), the names of the
    operations with a change, and the errors. `told`: see roles.remote.failing.FORESEEN_VARIABLE."""
    hosts: dict[str, dict[str, Any]] = {}

    def of(name: str) -> dict[str, Any]:
        empty = {"host": name, "engines": [], "operations": [], "errors": []}
        return hosts.setdefault(name, empty)

    for one in told:
        if "choice" in one:
            of(one["host"])["engines"].append(one["choice"])
        else:
            of(one["host"])["errors"].append(one.get("text", one.get("error")))
    try:
        for operation in json.loads(stdout)["plan"]:
            for name in operation["hosts_with_change"]:
                of(name)["operations"].append(operation["name"])
    except (ValueError, KeyError, TypeError):
        pass  # no plan, for which the status is 1
    return {"v": 1, "status": status, "plan": [hosts[name] for name in sorted(hosts)]}


def is_due(told: Mapping[str, Any]) -> bool:
    return bool("choice" in told and told["choice"]["action"] == DUE)


def judge(
    returncode: int,
    stdout: bytes,
    foreseen: Iterable[Mapping[str, str]] = (),
    due: Sequence[str] = (),
) -> tuple[int, list[str]]:
    """(exit status, lines to print) from pyinfra's exit status and its --json output.

    A host that failed is nowhere in pyinfra's plan, and all of them failed is no plan at all: the
    exit status has to be looked at too. What the plan foresees is {host, text} each; `due` is what
    `restart: never` leaves.
    """
    try:
        operations = json.loads(stdout)["plan"]
        pending = [
            (operation["name"], sorted(operation["hosts_with_change"]))
            for operation in operations
            if operation["hosts_with_change"]
        ]
    except (ValueError, KeyError, TypeError):
        return 1, ["sglang-plan: there is no plan, see the errors above"]
    if not operations:
        return 1, ["sglang-plan: no host was looked at (is the name after --limit right?)"]
    lines: list[str] = []
    failures = [
        escaped(f"{one['host']} will fail: {line}")
        for one in foreseen
        for line in one["text"].splitlines()
    ]
    if failures:
        lines += [*failures, "sglang-plan: the deploy would fail"]
    if returncode != 0:
        lines.append("sglang-plan: a host failed, see the errors above")
    if returncode != 0 or failures:
        return 1, lines
    lines += [f"{one}: a restart is due" for one in due]
    if pending or due:
        operations = f"{len(pending)} operation{'' if len(pending) == 1 else 's'} pending"
        named = "; ".join(name for name, _ in pending) or "none"
        return 2, [*lines, f"sglang-plan: {operations} ({named}), {len(due)} due"]
    return 0, ["sglang-plan: nothing to do"]
