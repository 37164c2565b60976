"""Operations that set up Prometheus, node_exporter and, where one is, Grafana on a host."""

from __future__ import annotations

import base64
import binascii
import time
from collections.abc import Callable, Sequence
from typing import Any

import gevent
from pyinfra.api import FunctionCommand, Host, State, StringCommand
from pyinfra.api.command import QuoteString
from pyinfra.context import host, state

from roles.host.managed import ManagedFile, change, changes, text_diff
from roles.host.operations import describe, write
from roles.monitoring import asking, files
from roles.monitoring.insertion import CannotInsert, with_items
from roles.monitoring.targets import NODE_PORT, Monitoring
from roles.remote.failing import HostFailed, checked, say
from roles.remote.limits import FACT_S
from roles.remote.operation import Commands, operation, read, show, will_fail
from roles.remote.snapshot import JSON, Input, for_connector, forget
from roles.remote.steps import run_step
from sglangctl.state.files import masked_text

EXPORTER, PROMETHEUS = "prometheus-node-exporter", "prometheus"
"""Debian's packages; program and unit have the same name."""
LISTENS = {EXPORTER: NODE_PORT, PROMETHEUS: files.PORT}
INSTALL = (
    "export DEBIAN_FRONTEND=noninteractive; apt-get update -q; apt-get install -q -y "
    '--no-install-recommends -o Dpkg::Options::=--force-confold "$@"'
)
INSTALL_S = 1200.0
SWAP = """
umask 077
beside="$(dirname -- "$1")/.$(basename -- "$1").new"
rm -f -- "$beside"; base64 -d >"$beside" || exit 1
if [ -e "$1" ]; then chown --reference="$1" "$beside" && chmod --reference="$1" "$beside" || exit 1
else chmod 0644 "$beside" || exit 1; fi
if promtool check "$2" "$beside" && sync "$beside" && mv -T -- "$beside" "$1"; then exit 0; fi
rm -f -- "$beside"; exit 1
"""
"""$1: the file; $2: what it is to promtool. Relative paths in it begin at its folder."""
RESTORE = "apt-get install --reinstall -o Dpkg::Options::=--force-confmiss prometheus"
RELOAD = (
    "if systemctl is-active --quiet prometheus; then systemctl reload prometheus; "
    "else systemctl enable --now prometheus; fi"
)
# SIGHUP ends a Prometheus that has just begun, and systemd takes that for an end as it should be.
RESTART = "systemctl enable prometheus && systemctl restart prometheus"
# What is left of a Grafana that was removed has no unit.
GRAFANA = "if systemctl is-active --quiet grafana-server; then systemctl restart grafana-server; fi"
SETTLE_S = 75.0
"""For the first answers of all that is asked every 15 s, and for a watch's file every 30 s."""
PAUSE_S = 3.0


@operation()
def packages(names: Sequence[str], request: JSON, sudo: bool, installed: list[str]) -> Commands:
    """
    Install packages of Debian where their programs are missing.

    + names: the packages, with a program of the same name each
    + request: what the probe is asked for, these programs too
    + sudo: whether the host needs it
    + installed: gets the names of those that were missing
    """
    there: dict[str, Any] = read(request).get("programs") or {}
    missing = [name for name in names if not there.get(name)]
    if not missing:
        host.noop(f"{', '.join(names)} is installed")
        return
    open_to_all = "to be installed; it listens on all addresses, without a password, at port"
    show([f"{name}: {open_to_all} {LISTENS[name]}" for name in missing])
    installed += missing

    def install(state: State, host: Host) -> None:
        command = StringCommand("sh", "-c", QuoteString(INSTALL), "sh", *map(QuoteString, missing))
        title = f"installing {' '.join(missing)}"
        then = f"next: apt-get install {' '.join(missing)}, on the host"
        run_step(host, title, command, sudo=sudo, limit_s=INSTALL_S, then=then)
        forget()

    yield FunctionCommand(checked(install), (), {})


@operation()
def configured(
    monitoring: Monitoring, request: JSON, sudo: bool, installed: Sequence[str], told: list[str]
) -> Commands:
    """
    Tell Prometheus whom to ask, and the rules. Nothing that it does not take is put in place.

    + monitoring: what it is told
    + request: what the probe is asked for
    + sudo: whether the host needs it
    + installed: the packages that this run installs
    + told: gets what is changed
    """
    if monitoring.unknown:
        yield will_fail(
            f"{', '.join(monitoring.unknown)}: wrong in the inventory, and Prometheus would stop "
            "asking what is there; nothing was changed"
        )
        return
    facts = read(request)["files"]
    show([f"not asked: {one}" for one in monitoring.unseen])
    found = changes(files.targets(monitoring), facts)
    rules_file = files.rules()
    rules = change(rules_file, facts.get(files.RULES) or {"kind": "absent"})
    differs = [*found, *([rules] if rules else [])]
    for one in differs:
        if one.unreadable:
            yield will_fail(f"{one.item.path} cannot be looked at: {one.why}")
            return
    main = facts.get(files.MAIN) or {"kind": "absent"}
    by_hand = f"add this by hand, then deploy again\n{with_items('', files.ITEMS)}"
    if main["kind"] == "absent" and (state.is_executing or PROMETHEUS not in installed):
        yield will_fail(f"{files.MAIN} is not there, which Debian's package brings: {RESTORE}")
        return
    if main["kind"] not in ("file", "absent"):
        yield will_fail(
            f"{files.MAIN} is a {main['kind']}, which something else manages: {by_hand}"
        )
        return
    text = content_of(files.MAIN) if main["kind"] == "file" else ""
    if text is None:
        yield will_fail(f"{files.MAIN} is left alone, it cannot be read as text")
        return
    try:
        wanted = with_items(text, files.ITEMS)
    except CannotInsert as error:
        yield will_fail(f"{files.MAIN} is left alone, {error}: {by_hand}")
        return
    pending = (facts.get(files.PENDING) or {}).get("kind") == "file"
    reload = bool(rules or wanted != text or pending)
    if not differs and not reload:
        host.noop("Prometheus knows all of it")
        return
    # All of it before the first command: a plan asks for no more than that one.
    told += [one.item.path for one in found]
    told += [files.MAIN] if reload else []
    for one in differs:
        # Of the dashboard nobody reads the lines.
        show(describe([one], bool(state.config.DIFF) and one.item.path != files.DASHBOARD))
    if pending:
        show(["prometheus: told to read its configuration, an earlier deploy did not come to that"])
    if wanted != text:
        show([f"{files.MAIN}: lines of ours{'' if text else ', in what the package brings'}"])
        if state.config.DIFF:
            show(text_diff(files.MAIN, masked(text), masked(wanted)))
    for one in found:
        yield write(one.item)
    if reload:
        yield StringCommand("touch --", QuoteString(files.PENDING))
    if rules:
        yield swap(files.RULES, rules_file.content, "rules", sudo)
    if wanted != text:
        yield swap(files.MAIN, wanted.encode(), "config", sudo)
    if reload:
        tell = RESTART if PROMETHEUS in installed else RELOAD
        yield StringCommand(f"{{ {tell}; }} && rm -f --", QuoteString(files.PENDING))


@operation()
def grafana(request: JSON) -> Commands:
    """
    Give a Grafana that is on the host its data source and where the dashboard is.

    + request: what the probe is asked for
    """
    facts = read(request)["files"]
    if (facts.get(files.PROVISIONING) or {}).get("kind") != "directory":
        host.noop("no Grafana is here; the dashboard is a file for one elsewhere")
        return
    found = changes(files.grafana(), facts)
    if not found:
        host.noop("Grafana knows the dashboard")
        return
    show([*describe(found, bool(state.config.DIFF)), "grafana-server: restarted, if it runs"])
    for one in found:
        yield write(one.item)
    yield StringCommand(GRAFANA)


@operation(is_idempotent=False)
def exported(engines: Sequence[str], after: Sequence[str], sudo: bool) -> Commands:
    """
    Look whether node_exporter serves what the engines' watches write; only after a change.

    + engines: their names
    + after: what was changed
    + sudo: whether the host needs it
    """
    if not after:
        host.noop("nothing of it was changed")
        return

    def look(state: State, host: Host) -> None:
        done = run_checked(host, asking.start(EXPORTER), sudo)
        if done:
            raise HostFailed(f"{EXPORTER} does not run: {done}; journalctl -u {EXPORTER}")
        names = list(engines)
        patient(host, sudo, lambda said: asking.exporter(said, names), asking.NODE)

    yield FunctionCommand(checked(look), (), {})


@operation(is_idempotent=False)
def scraped(monitoring: Monitoring, after: Sequence[str], sudo: bool) -> Commands:
    """
    Look whether Prometheus asks all of them, and name who does not answer; only after a change.

    + monitoring: what it was told
    + after: what was changed
    + sudo: whether the host needs it
    """
    if not after:
        host.noop("nothing of it was changed")
        return

    def look(state: State, host: Host) -> None:
        wanted = [*monitoring.engines, *monitoring.nodes]
        patient(host, sudo, lambda said: asking.targets(said, wanted), asking.TARGETS)

    yield FunctionCommand(checked(look), (), {})


def patient(host: Host, sudo: bool, judge: Callable[[str], asking.Found], url: str) -> None:
    """Ask until `judge` finds it settled or the time is over, and say what it found; HostFailed with its
    fault."""
    began = time.monotonic()
    while True:
        ok, output = host.run_shell_command(
            asking.get(url), print_output=False, _sudo=sudo, _timeout=FACT_S
        )
        found = judge("\n".join(output.stdout_lines) if ok else "")
        if found.settled or time.monotonic() - began > SETTLE_S:
            break
        gevent.sleep(PAUSE_S)
    for line in found.lines:
        say(host, line)
    if found.fault:
        raise HostFailed(found.fault)


def run_checked(host: Host, command: StringCommand, sudo: bool) -> str:
    """What a command said that failed; empty where it did not."""
    ok, output = host.run_shell_command(command, _sudo=sudo, _timeout=FACT_S)
    return "" if ok else " ".join(output.stderr_lines) or "it said nothing"


def swap(path: str, content: bytes, kind: str, sudo: bool) -> FunctionCommand:
    """Put a file in place once promtool has nothing against it; else HostFailed, and the old one stays."""

    def put(state: State, host: Host) -> None:
        ok, output = host.run_shell_command(
            StringCommand("sh", "-c", QuoteString(SWAP), "sh", QuoteString(path), kind),
            print_output=False,
            _sudo=sudo,
            _stdin=Input([base64.b64encode(content).decode()]),
            _timeout=FACT_S,
        )
        if not ok:
            said = [line.strip() for line in output.output_lines if line.strip()]
            raise HostFailed(
                "\n".join(
                    [f"{path} was not changed, promtool refuses what it would be:", *said[-8:]]
                )
            )

    return FunctionCommand(checked(put), (), {})


def content_of(path: str) -> str | None:
    """A file of the host as it is, secrets too: it is written again, and never printed. None where it
    cannot be read, or is no text."""
    given = {**dict(host.current_op_global_arguments or {}), "_timeout": FACT_S}
    ok, output = host.run_shell_command(
        StringCommand("base64 -w0 --", QuoteString(path)),
        print_output=False,
        **for_connector(host.state, host, given),
    )
    try:
        return (
            base64.b64decode("".join(output.stdout_lines), validate=True).decode() if ok else None
        )
    except (binascii.Error, UnicodeDecodeError):
        return None


def masked(text: str) -> str:
    return masked_text(text.encode()) or ""


def asked_for(monitoring: Monitoring | None, here: bool) -> JSON:
    """What the probe is asked for."""
    programs = [EXPORTER, *([PROMETHEUS] if here else [])]
    if not here or monitoring is None:
        return {"programs": programs}
    wanted = [*files.targets(monitoring), files.rules(), *files.grafana()]
    paths: dict[str, str | None] = {
        one.path: one.sha256 if isinstance(one, ManagedFile) else None for one in wanted
    }
    others = (files.MAIN, files.PENDING, files.PROVISIONING)
    return {"programs": programs, "files": {**paths, **dict.fromkeys(others)}}
