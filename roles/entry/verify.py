"""sglang-verify: ask every engine of the inventory for the proof that it serves.

Runs deploys/verify.py and adds the exit status that pyinfra does not have: 0 all are ready (or
degraded, where that is accepted), 1 one is not, 2 none is known to be not ready and one could not
be checked (unreachable, not deployed, a mistake in the inventory). Takes pyinfra's own options
(--limit HOST, -v, ...).

--json: one document on standard output: {"v": 1, "status", "sentence", "verify": [{host, outcome,
messages, engines}]}; the texts for people go to standard error.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from roles.entry.project import environment, pyinfra
from roles.remote.failing import FORESEEN_VARIABLE

STANDARD_ERROR = 2


def main(given: Sequence[str] | None = None) -> int:
    """Run pyinfra, which prints what it finds; returns the exit status."""
    arguments = sys.argv[1:] if given is None else list(given)
    if arguments[:1] in (["-h"], ["--help"]):
        print(__doc__)
        return 0
    as_json = "--json" in arguments
    arguments = [one for one in arguments if one != "--json"]
    with tempfile.TemporaryDirectory(prefix="sglang-verify-") as folder:
        file = Path(folder, "told")
        env = environment(**{FORESEEN_VARIABLE: str(file)})
        more = {"stdout": STANDARD_ERROR} if as_json else {}
        done = pyinfra("verify", "-y", *arguments, env=env, **more)
        text = file.read_text(encoding="utf-8") if file.exists() else ""
    told = [json.loads(line) for line in text.splitlines()]
    document = next((one["report"] for one in told if "report" in one), None)
    status, sentence = judge(done.returncode, document)
    print(f"sglang-verify: {sentence}", file=sys.stderr)
    if as_json:
        errors = [one for one in told if "error" in one]
        found = {"v": 1, "status": status, "sentence": sentence, "verify": hosts(document, errors)}
        print(json.dumps(found))
    return status


def hosts(
    document: dict[str, Any] | None, told: Iterable[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """The report's hosts; where there is no report, or a host's failure is not in it, what was
    `told` of its errors."""
    keys = ("host", "outcome", "messages", "engines")
    found = {
        one["host"]: {key: one[key] for key in keys}
        for one in (document or {"report": []})["report"]
    }
    for one in told:
        empty = {"host": one["host"], "outcome": "unreachable", "messages": [], "engines": []}
        entry = found.setdefault(one["host"], empty)
        if one["error"] not in entry["messages"]:
            entry["messages"] = [*entry["messages"], one["error"]]
    return [found[name] for name in sorted(found)]


def judge(returncode: int, document: dict[str, Any] | None) -> tuple[int, str]:
    """(exit status, one sentence) from pyinfra's exit status and the run's report."""
    if document is None:
        return 2, "nothing could be checked, see the errors above"
    exits: dict[str, int] = {}
    for host in document["report"]:
        for engine in host["engines"]:
            status = engine["exit"]
            if status == 0 and engine["reachable"] is False:
                status = 1
            exits[f"{engine['engine']} on {host['host']}"] = status
        if host["outcome"] != "ok" and all(engine["exit"] == 0 for engine in host["engines"]):
            exits.setdefault(host["host"], 2)
    for status, word in ((1, "not ready"), (2, "could not be checked")):
        found = [name for name, exit_status in exits.items() if exit_status == status]
        if found:
            return status, f"{word}: {', '.join(found)}"
    if returncode != 0 or not exits:
        return 2, "nothing could be checked, see the errors above"
    return 0, f"ready: {', '.join(exits)}"
