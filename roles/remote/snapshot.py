"""The one fact: what `sglangctl probe` says about a host, read once a phase.

One round trip, not thirty. On a host without this version of the program a second one sends it
through standard input, so that a first dry run sees everything and writes nothing. Where somebody
confirms the plan, execute reads it again: in between the host may have changed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, cast

import gevent
from paramiko import SSHException
from pyinfra.api import FactBase, Host, State, StringCommand
from pyinfra.api.arguments import CONNECTOR_ARGUMENT_KEYS, pop_global_arguments
from pyinfra.api.command import QuoteString
from pyinfra.api.exceptions import FactProcessError
from pyinfra.connectors.util import CommandOutput
from pyinfra.context import ctx_config, host, state
from typing_extensions import override

from roles.remote import program, shape
from roles.remote.asking import PASSWORD
from roles.remote.failing import fail_host
from roles.remote.limits import FACT_S, TooMuchOutput
from roles.remote.shape import WrongShape

JSON = shape.JSON
KEY = "sglang_provision_snapshot"
ABSENT = "program_is_absent"
BEGINS = "== sglangctl probe"
"""The line before the answer."""
RUNS = "program_runs"
"""In the document: whether this version of the program is on the host and starts."""
CHANGED = "changed_since"
"""Beside the documents: this run changed the host after the first one."""
STDIN = "_stdin"
"""pyinfra's name of what a command reads: another for each host."""
SHOWN = 5
"""Last lines of an error that is shown as it is."""
NO_TERMINAL = "sudo on this host wants a terminal: remove `Defaults requiretty` there"
NO_SUDO = "sudo is not on this host: install it, or set `ssh: {user: root}` and no `sudo`"
SIGNS = {
    "sudo: a password is required": PASSWORD,
    "sudo-rs: interactive authentication is required": PASSWORD,
    "sudo: a terminal is required": NO_TERMINAL,
    "sudo: sorry, you must have a tty": NO_TERMINAL,
    "ModuleNotFoundError: ": (
        "python3 of this host lacks a part of its standard library: apt-get install python3 (not "
        "python3-minimal alone)"
    ),
    "sudo: not found": NO_SUDO,
    "sudo: command not found": NO_SUDO,
}
"""What another program says -> the sentence."""


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
        # and a command line is public. The login shell may have printed something before.
        python = StringCommand(
            "command -v python3 >/dev/null 2>&1 ||",
            "{ echo 'python3 is missing on this host: apt-get install python3' >&2; exit 1; };",
            f"printf '\\n{BEGINS}\\n';",
        )
        if from_input:
            return StringCommand(python, "exec python3 -I -B - probe --request -")
        file = QuoteString(program.path())
        return StringCommand(
            python,
            "[ -s",
            file,
            # What is sent is read to its end: its writer takes a closed pipe for a lost link.
            f"] || {{ cat >/dev/null; echo '{{\"{ABSENT}\": true}}'; exit 0; }};",
            "exec python3 -I -B -S",
            file,
            "probe --request -",
        )

    @override
    def process(self, output: list[str]) -> JSON:
        if not any(output):
            raise FactProcessError("sglangctl probe printed nothing: deploy again")
        begins = max((n for n, line in enumerate(output) if line == BEGINS), default=-1)
        try:
            document = shape.parsed("\n".join(output[begins + 1 :]))
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
    fresh = "prepare" in cached and CHANGED not in cached
    if phase not in cached and not state.check_for_changes and fresh:
        # Without a plan that somebody reads first (-y), the host is as it was a moment ago.
        cached[phase] = cached["prepare"]
    if phase not in cached:
        # The failure is cached too: otherwise every operation asks a dead host again.
        wanted = json.dumps(request)
        document = read(stdin=wanted)
        absent = document is not None and ABSENT in document
        if absent:
            document = read(from_input=True, stdin=program.loader(wanted))
        if document is not None and not answers(document, request):
            fail_host("sglangctl probe did not answer what it was asked for: deploy again")
            document = None
        if document is not None:
            document[RUNS] = not absent
        cached[phase] = document
    found: JSON | None = cached[phase]
    return found


def prepared(target: Host) -> JSON | None:
    """What the host said before anything was done; None where it was not asked, or said nothing."""
    found: JSON | None = target.connector_data.get(KEY, {}).get("prepare")
    return found


def read(from_input: bool = False, stdin: str = "") -> JSON | None:
    """The probe's document; None when the host has failed over it.

    Not pyinfra's get_fact: that names one of our classes and no next step.
    """
    probe = HostProbe()
    try:
        # A host that never ends a command fails, too.
        with gevent.Timeout(FACT_S + 10, TimeoutError):
            ok, output = run(probe.command(from_input), stdin)
        document = probe.process(output.stdout_lines) if ok else None
    except TimeoutError:
        fail_host(f"sglangctl probe did not end within {FACT_S} s: check the host (top, dmesg)")
        return None
    except (TooMuchOutput, FactProcessError) as error:
        fail_host(str(error))
        return None
    except (OSError, EOFError, SSHException) as error:
        fail_host(
            f"the link to the host was lost ({str(error) or type(error).__name__}): deploy again"
        )
        return None
    if not ok and not from_input and is_damaged(output):
        return {ABSENT: True}
    if not ok:
        fail_host(why_not_read(output.stderr_lines, output.stdout_lines))
    return document


def run(command: StringCommand, stdin: str) -> tuple[bool, CommandOutput]:
    """Run a command with the arguments (sudo, ...) that pyinfra would give to a fact."""
    given: dict[str, Any] = dict(host.current_op_global_arguments or {})
    given.update(_timeout=FACT_S, **({STDIN: Input([stdin])} if stdin else {}))
    return host.run_shell_command(
        command,
        print_output=state.print_fact_output,
        print_input=state.print_fact_input,
        **for_connector(host.state, host, given),
    )


ARGUMENTS: dict[str, dict[str, Any]] = {}
"""By all that they come from. pyinfra looks their types up anew for each host, and most hosts of a fleet
have the same ones."""


def for_connector(state: State, target: Host, given: dict[str, Any]) -> dict[str, Any]:
    """`given`, and what else (sudo, ...) a command of this host gets from the inventory."""
    own = {key: value for key, value in given.items() if key == STDIN}
    asked = {key: value for key, value in given.items() if key != STDIN}
    config = ctx_config.get() if ctx_config.isset() else state.config
    data = target.data.dict()
    settings = {key: data[key] for key in CONNECTOR_ARGUMENT_KEYS if key in data}
    known = repr(
        (settings, asked, target.current_deploy_kwargs, cast("Any", config).get_current_state())
    )
    if known not in ARGUMENTS:
        found: dict[str, Any] = dict(pop_global_arguments(state, target, asked)[0])
        ARGUMENTS[known] = {key: found[key] for key in CONNECTOR_ARGUMENT_KEYS if key in found}
    return {**ARGUMENTS[known], **own}


def is_damaged(output: CommandOutput) -> bool:
    """Whether Python was started and the program was not: a power cut left its file short, say."""
    return BEGINS in output.stdout_lines and not any(
        line.startswith("sglangctl ") for line in output.stderr_lines
    )


def why_not_read(errors: Sequence[str], lines: Sequence[str]) -> str:
    """One sentence from what a probe said that failed; the host's own words behind it."""
    said = [line for line in errors if line.strip()]
    for sign, sentence in SIGNS.items():
        if any(sign in line for line in said):
            return sentence
    if not said and BEGINS not in lines:
        quoted = next((line for line in lines if line.strip()), "nothing")
        return (
            f"the login shell of this host ran no command and said: {quoted[:200]}; its user needs a "
            "shell such as /bin/bash (look at /etc/passwd, ~/.bashrc and ~/.profile)"
        )
    return "\n".join(said[-SHOWN:]) or "sglangctl probe ended without output: deploy again"


def answers(document: JSON, request: JSON) -> bool:
    """Whether all that was asked for is in the document: it is looked up by name."""
    asked = [(kind, one) for kind in ("files", "venvs") for one in request.get(kind) or ()]
    return ABSENT not in document and all(one in (document.get(kind) or {}) for kind, one in asked)


def forget() -> None:
    """After a change that later operations must see: the next one reads the host again."""
    if state.is_executing:
        cached = host.connector_data.setdefault(KEY, {})
        cached.pop("execute", None)
        cached[CHANGED] = True


def read_again() -> None:
    """Before anything was done, and after what is wanted changed by what the host said: the next
    request is another one."""
    host.connector_data.get(KEY, {}).pop("prepare", None)


def engine_facts(facts: JSON, name: str, part: str = "engines") -> JSON:
    """What the probe says of one engine, or, in the part `plans`, `stops` or `removals`, of what
    would be done for it (lines, refused); empty where it knows none."""
    engines: JSON = facts.get(part) or {}
    return dict(engines.get(name) or {})


def releases(facts: JSON, name: str) -> JSON:
    """An engine's releases on the host: current, staged, known_good, previous."""
    return engine_facts(facts, name).get("releases") or {}
