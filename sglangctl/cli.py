"""The command line: a table of commands, each imported only when it is asked for.

Start-up time counts (`probe` runs on every deploy), so this module imports no command and
nothing heavy; a command is a module with `add_arguments(parser)` and `run(args) -> int`.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from sglangctl.util.errors import Failed
from sglangctl.util.terminal import escaped

TRACEBACK = "SGLANGCTL_TRACEBACK"
"""Environment variable: show the whole traceback of an internal error."""


UMASK = 0o022
"""Of a login it may be 027 or 077, and the engine's user must be able to read what is made.
What others must not read gets its rights explicitly."""


@dataclass(frozen=True)
class Command:
    """One subcommand: its module is imported when it is chosen."""

    name: str
    summary: str
    operator: bool = True
    """True: shown by `sglangctl --help`; False: plumbing, shown by `sglangctl help all`."""
    os_error: int = 2
    """Exit status where the operating system refuses something (an OSError)."""
    umask: int | None = UMASK
    """None: that of the unit which runs it."""

    @property
    def module(self) -> str:
        return f"sglangctl.commands.{self.name.replace('-', '_')}"


COMMANDS = (
    Command("status", "what each engine is doing: phase, outcome, cause"),
    Command("logs", "the engine's own log (-f follows it)"),
    Command("journal", "what the watch saw (-f follows it)"),
    Command("holders", "who uses the GPUs, and the class of each process"),
    Command("free", "free an engine's GPUs"),
    Command("rollback", "put the release before the live one live again", os_error=1),
    Command("stop", "stop an engine, and keep it down", os_error=1),
    Command(
        "bench",
        "how fast an engine answers, beside what was accepted: 0 as fast, 1 slower, 2 unknown",
    ),
    Command("metrics", "the engines as metrics, for Prometheus"),
    Command("verify", "prove that an engine serves: 0 ready, 1 not, 2 unknown"),
    Command("preflight", "what would stop a deploy: 0 nothing, 1 something, 2 unknown"),
    Command(
        "collective",
        "prove that its GPUs add up, while it is down: 0 right, 1 wrong, 2 not possible, 4 hung",
    ),
    Command("weights", "is a model complete: 0 yes, 1 no, 2 unknown"),
    Command("bundle", "one tar.gz of evidence, its secrets masked"),
    Command("kernel", "inspect, check and build sgl-kernel"),
    Command("replay", "judge a recorded journal again"),
    Command("probe", "one JSON document about this host", operator=False),
    Command("watch", "write an engine's journal", operator=False, umask=None),
    Command("wait", "wait until an engine serves or has failed", operator=False, umask=None),
    Command("switch", "make a staged release live", operator=False, os_error=1),
    Command("resume", "after a boot: undo or finish an interrupted switch", operator=False),
    Command("configure", "write an engine's configuration", operator=False, os_error=1),
    Command("stage", "write a release next to the others", operator=False, os_error=1),
    Command("prune-programs", "delete unused versions of this", operator=False),
    Command("confine", "run code of others with a user's rights", operator=False),
    Command("fill", "install packages into a new environment", operator=False, os_error=1),
    Command("compiled", "what an engine has compiled, between hosts", operator=False),
    Command("remove", "remove an engine", operator=False, os_error=1),
)


def usage(everything: bool = False) -> str:
    """The list of commands as text; `everything` adds the plumbing."""
    shown = [command for command in COMMANDS if everything or command.operator]
    width = max(len(command.name) for command in shown)
    lines = ["usage: sglangctl COMMAND [options]   (sglangctl COMMAND --help for one command)", ""]
    lines += [f"  {command.name:<{width}}  {command.summary}" for command in shown]
    if not everything:
        lines += ["", "sglangctl help all: the internal commands too"]
    return "\n".join(lines)


def main(argv: Sequence[str]) -> int:
    """Run one command; returns its exit status (2: wrong usage, as argparse has it).

    The one place where an exception becomes a sentence and an exit status.
    """
    name = argv[0] if argv else "help"
    command = next((command for command in COMMANDS if command.name == name), None)
    try:
        status = _run(command, argv)
        sys.stdout.flush()
        return status
    except BrokenPipeError:
        # The reader (head, a closed pager) has seen enough: not an error.
        sys.stderr.close()
        return 0
    except KeyboardInterrupt:
        return 130
    except Failed as error:
        status, sentence = error.status, str(error)
    except OSError as error:
        from sglangctl.util import os_errors

        status, sentence = command.os_error if command else 2, os_errors.sentence(error)
    except Exception as error:
        if os.environ.get(TRACEBACK):
            raise
        status, sentence = 2, _internal_error(error, name)
    first, *more = sentence.split("\n")
    print("\n".join(map(escaped, (f"sglangctl {name}: {first}", *more))), file=sys.stderr)
    _forget_output()
    return status


def _run(command: Command | None, argv: Sequence[str]) -> int:
    if not argv or argv[0] in ("-h", "--help", "help"):
        print(usage(everything=list(argv[1:2]) == ["all"]))
        return 0 if argv else 2
    if argv[0] == "--version":
        from sglangctl import __version__

        print(__version__)
        return 0
    if command is None:
        print(f"sglangctl: there is no command {argv[0]!r}; see: sglangctl --help", file=sys.stderr)
        return 2
    if command.umask is not None:
        os.umask(command.umask)
    module = importlib.import_module(command.module)
    parser = argparse.ArgumentParser(
        prog=f"sglangctl {command.name}",
        description=module.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    module.add_arguments(parser)
    words = list(argv[1:])
    if getattr(module, "TAKES_COMMAND", False):
        # argparse gives what follows `--` to whichever positional still has room.
        place = words.index("--") if "--" in words else len(words)
        args = parser.parse_args(words[:place])
        args.command = words[place + 1 :]
    else:
        args = parser.parse_args(words)
    return int(module.run(args))


def _internal_error(error: Exception, name: str) -> str:
    """What nobody has thought of, in one sentence."""
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    code = frame.tb_frame.f_code if frame is not None else None
    place = f" ({code.co_filename}:{frame.tb_lineno})" if code is not None and frame else ""
    message = escaped(f"{type(error).__name__}: {error}{place}")
    return (
        f"internal error: {message}; please report it with what "
        f"{TRACEBACK}=1 sglangctl {name} ... prints"
    )


def _forget_output() -> None:
    """What could not be written must not be tried again at the interpreter's end."""
    try:
        sys.stdout.flush()
    except OSError:
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())
