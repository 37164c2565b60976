"""Which hosts pyinfra connects to: a host with a wrong inventory is left out, and no other.

pyinfra has no word for "this host may not be connected to", and ends the whole run for all hosts
when a connection fails in a way that it did not foresee (an ssh configuration that cannot be read,
a key that is locked). Both become what it has a word for: a host that could not be connected to.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterable
from functools import wraps
from pathlib import PurePath
from typing import Any, ClassVar

import click
from pyinfra import logger
from pyinfra.api import Host, State
from pyinfra.api.exceptions import ConnectError
from pyinfra.api.state import BaseStateCallback

from roles.inventory.errors import Mistake, Need
from roles.inventory.model import HostSpec
from roles.remote.failing import MESSAGES, REFUSED, WRONG, remember, say, tell_plan
from roles.report import report
from roles.report.choice import Plan
from roles.report.report import report_once
from roles.stages.desired import CANNOT_RENDER, make_early
from roles.stages.existing import NEEDS

DEPLOYS = {"sglang.py": Need.FILES, **{f"{name}.py": need for name, need in NEEDS.items()}}
"""What our deploys need of the inventory."""
DATA = "sglang_mistakes"
"""Key of pyinfra's host data."""
GIVEN = ("engine", "prune", "restart")
"""The keys of --data that a deploy of ours reads."""


def called_with(option: str) -> Any:
    """What pyinfra's command was called with; None outside of it."""
    context = click.get_current_context(silent=True)
    return None if context is None else context.params.get(option)


def deploy_files() -> list[str]:
    """The names of the deploy files of this run; empty where it runs anything else."""
    operations = [str(one) for one in called_with("operations") or ()]
    deploys = [PurePath(one).name for one in operations if one.endswith(".py")]
    return deploys if len(deploys) == len(operations) else []


def needed() -> Need | None:
    """What this run needs of the inventory; None where its deploy file will say so itself."""
    deploys = deploy_files()
    if not deploys:
        return Need.HOST  # a command, a fact or debug-inventory
    if any(name not in DEPLOYS for name in deploys):
        return None
    return max(DEPLOYS[name] for name in deploys)


def mistakes_of(host: Host) -> list[Mistake]:
    """What is wrong with a host in the inventory; empty for a host of another inventory."""
    if host.name not in _Run.mistakes:
        found = [one for one in host.data.get(DATA) or () if isinstance(one, Mistake)]
        _Run.mistakes[host.name] = found + unrendered(host)
    return _Run.mistakes[host.name]


def unrendered(host: Host) -> list[Mistake]:
    """What a deploy would find while it renders what lands on the host: a template's mistakes."""
    spec = host.data.get("sglang_host")
    if _Run.need != Need.FILES or host.data.get(DATA) or not isinstance(spec, HostSpec):
        return []
    try:
        make_early(spec)
    except CANNOT_RENDER as error:
        return [Mistake(f"what it describes cannot be rendered: {error}", Need.FILES)]
    return []


def refusal(host: Host, need: Need | None) -> list[str]:
    """The mistakes for which the host is not connected to."""
    least = Need.HOST if need is None else need
    return [one.text for one in mistakes_of(host) if one.need <= least]


class _Run:
    """What this process does; found out where the inventory is read, because pyinfra connects in
    greenlets, in which click knows of no command."""

    need: Need | None = None
    deploy: str | None = None
    """The deploy of ours that runs, without .py; None where it is another file or a command."""
    told = False
    mistakes: ClassVar[dict[str, list[Mistake]]] = {}
    """By host's name: they are asked for more than once, and rendering takes a while."""


def guard() -> None:
    """Have every connection of this process made by the rules above."""
    _Run.need, _Run.told = needed(), False
    _Run.deploy = next((one[:-3] for one in deploy_files() if one in DEPLOYS), None)
    _Run.mistakes.clear()
    given = [str(one) for one in called_with("data") or ()]
    report.GIVEN[:] = [one for one in given if one.partition("=")[0] in GIVEN]
    Plan.dry = bool(called_with("dry"))
    without_colour()
    tell_before_asking()
    if hasattr(Host.connect, "__wrapped__"):
        return
    # Patched, because pyinfra calls nothing of ours before it connects to a host.
    original = Host.connect

    @wraps(original)
    def connect(self: Host, *arguments: Any, **options: Any) -> None:
        if self.connected:
            return
        if not _Run.told:
            _Run.told = True
            begin(self.state, _Run.need)
        wrong = refusal(self, _Run.need)
        if wrong:
            REFUSED.add(self.name)
            MESSAGES.setdefault(self.name, []).append("\n".join([WRONG, *wrong]))
            tell_plan(host=self.name, error="\n".join([WRONG, *wrong]))
            not_connected(self, "not connected to: the inventory is wrong, see above")
            return
        try:
            original(self, *arguments, **options)
        except ConnectError:
            raise  # its caller asked for it
        except Exception as error:
            remember(self, f"cannot be connected to: {sentence_of(error)}")
            logger.debug("connecting failed", exc_info=True)
            not_connected(self, "not connected to")

    Host.connect = connect  # type: ignore[method-assign]
    Host.disconnect = parting(Host.disconnect)  # type: ignore[method-assign]


def parting(original: Callable[[Host], None]) -> Any:
    """Disconnecting that raises nothing: pyinfra would end with a traceback after all work is done."""

    @wraps(original)
    def disconnect(self: Host) -> None:
        try:
            original(self)
        except Exception as error:
            logger.debug("disconnecting failed", exc_info=True)
            say(self, f"note: disconnecting failed: {error!r}", fg="yellow")
            self.state.trigger_callbacks("host_disconnect", self)

    return disconnect


def tell_before_asking() -> None:
    """Have the end of the plan stand right above pyinfra's question: its own table and remarks, which
    come before that, fill a terminal."""
    # Not imported: it patches Python's own modules (gevent), and only its own process has it.
    cli: Any = sys.modules.get("pyinfra_cli.cli")
    original = getattr(cli, "_do_confirm", None)
    if original is None or hasattr(original, "__wrapped__"):
        return

    @wraps(original)
    def confirm(text: str) -> bool:
        if text.startswith("Detected changes"):
            Plan.print_all()
        return bool(original(text))

    cli._do_confirm = confirm
    Plan.before_asking = True


def without_colour() -> None:
    """NO_COLOR (no-color.org): pyinfra leaves colours out in a pipe only."""
    if not os.environ.get("NO_COLOR"):
        return
    for handler in logger.handlers:
        if handler.formatter is not None and not isinstance(handler.formatter, _Plain):
            handler.setFormatter(_Plain(handler.formatter))
    context = click.get_current_context(silent=True)
    if context is not None:
        context.color = False


class _Plain(logging.Formatter):
    """Another formatter's text, without its colours."""

    def __init__(self, other: logging.Formatter) -> None:
        super().__init__()
        self.other = other

    def format(self, record: logging.LogRecord) -> str:
        return click.unstyle(self.other.format(record))


class Unreachable(BaseStateCallback):
    """Names the hosts that pyinfra itself could not connect to: it keeps that to its log."""

    def host_connect_error(  # type: ignore[override]
        self, state: State, host: Host, error: Exception
    ) -> None:
        if host.name not in MESSAGES:
            text = f"cannot be connected to: {sentence_of(error)}"
            tell_plan(host=host.name, error=text)
            MESSAGES[host.name] = [text]


def not_connected(host: Host, text: str) -> None:
    say(host, text, fg="red")
    host.state.trigger_callbacks("host_connect_error", host, ConnectError(text))


def sentence_of(error: Exception) -> str:
    """An unforeseen error of a connection, with what can be done."""
    text = str(error) or type(error).__name__
    return (
        f"{text}; check `ssh` of this host in the inventory and ssh's own configuration: "
        "`ssh -v` shows what is used (traceback: --debug)"
    )


def begin(state: State, need: Need | None) -> None:
    """Before the first connection: all mistakes of all hosts of this run."""
    if state.should_raise_failed_hosts and not (sys.stdin and sys.stdin.isatty()):
        # pyinfra would ask whether to go on without the hosts that failed, and end with a
        # traceback where nobody can answer. The run fails for them alone, as with -y.
        state.should_raise_failed_hosts = lambda state: False
    state.add_callback_handler(Unreachable())
    if _Run.deploy is not None:
        # Here, because a deploy file is not run where no host can be connected to.
        report_once(_Run.deploy)
    for host in state.inventory:
        if state.is_host_in_limit(host):
            print_mistakes(host, mistakes_of(host), need)


def print_mistakes(host: Host, mistakes: Iterable[Mistake], need: Need | None) -> None:
    """A host's mistakes that matter to this run, and that there are others."""
    found = list(mistakes)
    matters = [one for one in found if need is None or one.need <= need]
    if matters:
        say(host, "the inventory is wrong:", fg="red")
        for one in matters:
            say(host, one.text, fg="red")
    if len(found) > len(matters):
        number = len(found) - len(matters)
        what = "a mistake" if number == 1 else f"{number} mistakes"
        note = f"note: {what} in the inventory left alone, deploys/sglang.py --dry tells which"
        say(host, note, fg="yellow")
