"""The one fact: what `sglangctl probe` says about a host, read once a phase.

One round trip, not thirty. On a host without this version of the program a second one sends it
through standard input, so that a first dry run sees everything and writes nothing. Prepare and
execute each read it for themselves: between the plan and its confirmation the host may change.
"""

from __future__ import annotations

import json
from typing import Any

from pyinfra.api import FactBase, StringCommand
from pyinfra.api.command import QuoteString
from pyinfra.api.exceptions import FactProcessError
from pyinfra.context import host, state
from typing_extensions import override

from roles.remote import program

JSON = dict[str, Any]
KEY = "sglang_provision_snapshot"
ABSENT = "program_is_absent"
RUNS = "program_runs"
"""In the document: whether this version of the program is on the host and starts."""
SHAPE: dict[str, type] = {
    "v": int,
    "time": str,
    "files": dict,
    "users": dict,
}
"""What a probe's document always has."""


class Input(list[str]):
    """Lines for standard input that are not printed."""

    @override
    def __str__(self) -> str:
        return "sglangctl"

    __repr__ = __str__


class HostProbe(FactBase[JSON]):
    """Returns the document of `sglangctl probe`, see there for its fields."""

    @override
    def command(self, from_input: bool = False) -> StringCommand:
        # The request comes through standard input: it has digests of files with secrets in them,
        # and a command line is public.
        python = StringCommand(
            "command -v python3 >/dev/null 2>&1 ||",
            "{ echo 'python3 is missing on this host: apt-get install python3' >&2; exit 1; };",
        )
        if from_input:
            return StringCommand(python, "exec python3 -I -B - probe --request -")
        run = StringCommand("python3 -I -B -S", QuoteString(program.path()))
        return StringCommand(
            python,
            # A file that a power cut left empty or short is as good as none.
            run,
            f"--version >/dev/null 2>&1 </dev/null || {{ echo '{{\"{ABSENT}\": true}}'; exit 0; }};",
            "exec",
            run,
            "probe --request -",
        )

    @override
    def process(self, output: list[str]) -> JSON:
        try:
            document = json.loads("\n".join(output))
        except ValueError as error:
            raise FactProcessError(f"sglangctl probe did not answer with JSON: {error}") from None
        if not isinstance(document, dict):
            raise FactProcessError("sglangctl probe did not answer with an object")
        wrong = [key for key, kind in SHAPE.items() if not isinstance(document.get(key), kind)]
        if wrong and ABSENT not in document:
            raise FactProcessError(
                f"what answers as sglangctl probe is something else (without {', '.join(wrong)}): "
                "is python3 on this host a real one?"
            )
        return document


def snapshot(request: JSON) -> JSON | None:
    """The host's state in this phase; None when it could not be read (the host has failed then)."""
    phase = "execute" if state.is_executing else "prepare"
    cached: JSON = host.connector_data.setdefault(KEY, {})
    if phase not in cached:
        # The failure is cached too: otherwise every operation asks a dead host again.
        wanted = json.dumps(request)
        document = host.get_fact(HostProbe, _stdin=Input([wanted]))
        absent = document is not None and ABSENT in document
        if absent:
            document = host.get_fact(
                HostProbe, from_input=True, _stdin=Input([program.loader(wanted)])
            )
        if document is not None:
            document[RUNS] = not absent
        cached[phase] = document
    found: JSON | None = cached[phase]
    return found


def forget() -> None:
    """After a change that later operations must see: the next one reads the host again."""
    if state.is_executing:
        host.connector_data.get(KEY, {}).pop("execute", None)


def engine_facts(facts: JSON, name: str) -> JSON:
    """The probe's part about one engine; empty where it knows none."""
    engines: JSON = facts.get("engines") or {}
    return dict(engines.get(name) or {})
