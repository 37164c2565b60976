"""The one fact: what `sglangctl probe` says about a host, read once a phase.

One round trip, not thirty. On a host without this version of the program a second one sends it
through standard input, so that a first dry run sees everything and writes nothing. Prepare and
execute each read it for themselves: between the plan and its confirmation the host may change.
"""

from __future__ import annotations

import json
from typing import Any

import gevent
from pyinfra.api import FactBase, StringCommand
from pyinfra.api.command import QuoteString
from pyinfra.api.exceptions import FactProcessError
from pyinfra.context import host, state
from typing_extensions import override

from roles.remote import program, shape
from roles.remote.failing import fail_host
from roles.remote.limits import FACT_S
from roles.remote.shape import WrongShape

JSON = shape.JSON
KEY = "sglang_provision_snapshot"
ABSENT = "program_is_absent"
RUNS = "program_runs"
"""In the document: whether this version of the program is on the host and starts."""


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
            document = shape.parsed("\n".join(output))
            if document == {ABSENT: True}:
                return {ABSENT: True}
            shape.check_time(shape.check(document, shape.PROBE)["time"])
        except WrongShape as error:
            raise FactProcessError(
                f"what runs as sglangctl probe {error}; is python3 on this host a real one?"
            ) from None
        return dict(document)


def snapshot(request: JSON) -> JSON | None:
    """The host's state in this phase; None when it could not be read (the host has failed then)."""
    phase = "execute" if state.is_executing else "prepare"
    cached: JSON = host.connector_data.setdefault(KEY, {})
    if phase not in cached:
        # The failure is cached too: otherwise every operation asks a dead host again.
        wanted = json.dumps(request)
        document = read(_stdin=Input([wanted]))
        absent = document is not None and ABSENT in document
        if absent:
            document = read(from_input=True, _stdin=Input([program.loader(wanted)]))
        if document is not None and not answers(document, request):
            fail_host("sglangctl probe did not answer what it was asked for: deploy again")
            document = None
        if document is not None:
            document[RUNS] = not absent
        cached[phase] = document
    found: JSON | None = cached[phase]
    return found


def read(**arguments: Any) -> JSON | None:
    """The fact; None when the host has failed over it. A host that never ends a command fails too."""
    try:
        with gevent.Timeout(FACT_S + 10, TimeoutError):
            document: JSON | None = host.get_fact(HostProbe, _timeout=FACT_S, **arguments)
    except TimeoutError:
        fail_host(f"sglangctl probe did not end within {FACT_S} s: look at the host (top, dmesg)")
        return None
    return document or None  # a probe that printed nothing, too


def answers(document: JSON, request: JSON) -> bool:
    """Whether every path that was asked for is in the document: they are looked up by name."""
    files = document.get("files") or {}
    return ABSENT not in document and all(path in files for path in request.get("files") or ())


def forget() -> None:
    """After a change that later operations must see: the next one reads the host again."""
    if state.is_executing:
        host.connector_data.get(KEY, {}).pop("execute", None)


def engine_facts(facts: JSON, name: str) -> JSON:
    """The probe's part about one engine; empty where it knows none."""
    engines: JSON = facts.get("engines") or {}
    return dict(engines.get(name) or {})
