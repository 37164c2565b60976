"""From a file to hosts: read, merge, validate, build. A wrong host fails alone."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path as FilePath
from typing import Any

from roles.spec import checks, kernel, schema
from roles.spec.build import build_engine
from roles.spec.document import Document, read
from roles.spec.errors import InventoryError, Path, Problem, closest, dotted, shown
from roles.spec.merge import deep_merge, has_path
from roles.spec.model import EngineSpec, HostEntry, HostSpec, Inventory
from roles.spec.reading import UnreadableFile, expanded
from roles.spec.secret import Secret, SecretError, read_secret

CONNECTORS = ("docker", "dockerssh", "local", "ssh")
"""pyinfra connectors of hosts that this tool can deploy to (`@docker/NAME`)."""


def load_inventory(path: str | FilePath, environ: Mapping[str, str] | None = None) -> Inventory:
    """Read an inventory and the secrets that it names.

    InventoryError only where no host can be told from another: a file that cannot be read, is
    not YAML, or has no hosts. Everything else is an error of the hosts that it concerns.
    """
    path = FilePath(path)
    return build(read(path), path.parent, os.environ if environ is None else environ)


def build(document: Document, folder: FilePath, environ: Mapping[str, str]) -> Inventory:
    """An inventory from a document; `folder` is where relative paths on the controller start."""
    general = _Problems(document)
    content = document.content
    known = ("engines", "hosts")
    for key in content:
        if key not in known:
            general.add((key,), "an unknown key", "engines and hosts", closest(key, known))
    hosts = content.get("hosts")
    if not isinstance(hosts, dict) or not hosts:
        found = shown(hosts) if "hosts" in content else "nothing"
        general.add(("hosts",), found, "a mapping of host names with at least one host", None)
        raise InventoryError("\n".join(general.lines))
    bases = content.get("engines") or {}
    if not isinstance(bases, dict):
        general.add(("engines",), shown(bases), "a mapping of engine names", None)
        bases = {}
    entries = []
    used: set[str] = set()
    for name, given in hosts.items():
        problems = _Problems(document)
        host = _Host(name, given, bases, problems, folder, environ)
        entry = host.entry(general.lines)
        used |= host.used
        entries.append(entry)
    return Inventory(document.file, tuple(entries), _unused(document, bases, used))


def _unused(document: Document, bases: dict[str, Any], used: set[str]) -> tuple[str, ...]:
    """Mistakes in bases that no host uses: no host fails for them, and they are not hidden."""
    problems = _Problems(document)
    for name in bases:
        if name not in used:
            problems.validate("engine", bases[name], ("engines", name))
    return tuple(problems.lines)


class _Problems:
    """Collects mistakes; each with the file, the line and the place that a person wrote."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.found: list[Problem] = []

    @property
    def lines(self) -> list[str]:
        ordered = sorted(self.found, key=lambda item: (item.line or 0, dotted(item.where)))
        return list(dict.fromkeys(map(str, ordered)))

    def add(self, where: Path, found: str, allowed: str, meant: str | None) -> None:
        line = self.document.line(where)
        self.found.append(Problem(self.document.file, line, where, found, allowed, meant))

    def validate(self, definition: str, value: Any, where: Path) -> None:
        schema.validate(
            definition,
            value,
            lambda inner, *rest: self.add((*where, *inner), *rest),
        )


class _Host:
    """One host on its way from a mapping to a spec."""

    def __init__(
        self,
        name: str,
        given: Any,
        bases: dict[str, Any],
        problems: _Problems,
        folder: FilePath,
        environ: Mapping[str, str],
    ) -> None:
        self.name = name
        self.where: Path = ("hosts", name)
        self.given = given
        self.bases = bases
        self.problems = problems
        self.folder = folder
        self.environ = environ
        self.used: set[str] = set()

    def entry(self, general: list[str]) -> HostEntry:
        """The host's entry; `general` are mistakes that concern all hosts."""
        self.check_name()
        self.problems.validate("host", self.without_engines(), self.where)
        checks.check_texts(self.without_engines(), self.report)
        engines = self.merged_engines()
        complete = {name: engine for name, engine in engines.items() if self.check(name, engine)}
        checks.check_host(complete, self.report)
        specs = tuple(self.engine(name, engine) for name, engine in sorted(complete.items()))
        errors = (*general, *self.problems.lines)
        data = self.data()
        if errors:
            return HostEntry(self.name, data, None, errors)
        spec = HostSpec(
            self.name,
            specs,
            tuple(self.given.get("protected") or ()),
            tuple(self.given.get("containers") or ()),
        )
        return HostEntry(self.name, data, spec)

    def check_name(self) -> None:
        name = self.name
        text = name.isascii() and name.isprintable() and " " not in name and '"' not in name
        connector, _, argument = name[1:].partition("/")
        if not name.startswith("@"):
            good = text and not name.startswith("-") and not any(mark in name for mark in "/\\$`'")
        else:
            good = text and connector in CONNECTORS and bool(argument) != (connector == "local")
        if not good:
            allowed = "a host name, @local, @docker/NAME, @dockerssh/HOST:NAME or @ssh/HOST"
            meant = closest(connector, CONNECTORS) if name.startswith("@") else None
            where = self.where
            self.problems.add(where, f"the host name {shown(name)}", allowed, meant)

    def without_engines(self) -> Any:
        """What the host's own schema looks at: the engines are validated after the merge."""
        engines = self.given.get("engines") if isinstance(self.given, dict) else None
        if isinstance(engines, dict):
            return {**self.given, "engines": dict.fromkeys(engines)}
        return self.given

    def merged_engines(self) -> dict[str, dict[str, Any]]:
        given = self.given.get("engines") if isinstance(self.given, dict) else None
        merged: dict[str, dict[str, Any]] = {}
        for name, override in (given if isinstance(given, dict) else {}).items():
            base = self.bases.get(name, {})
            self.used.add(name)
            result = base if override is None else deep_merge(base, override)
            if isinstance(result, dict):
                merged[name] = result
            else:
                allowed = "a mapping; {} takes the base of this name as it is"
                self.report(("engines", name), shown(result), allowed, None)
        return merged

    def check(self, name: str, engine: dict[str, Any]) -> bool:
        """Report what is wrong with a merged engine; whether it can be built."""
        before = len(self.problems.found)
        where: Path = ("engines", name)

        def report(inner: Path, found: str, allowed: str, meant: str | None) -> None:
            self.report((*where, *inner), found, allowed, meant)

        schema.validate("engine", engine, report)
        checks.check_texts(engine, report)
        model = engine.get("model")
        if model is None or (isinstance(model, dict) and model.get("path") is None):
            allowed = "the folder of the model's weights on the host"
            meant = closest(name, self.bases) if name not in self.bases else None
            report(("model", "path"), "nothing", allowed, meant)
        if len(self.problems.found) == before:
            engine.update(schema.filled(schema.definition("engine"), engine))
            for key in [key for key, value in engine.items() if value is None]:
                del engine[key]
            checks.check_engine(name, engine, report)
            hosts = self.problems.document.content.get("hosts") or {}
            kernel.check(engine["kernel"], [str(host) for host in hosts], report)
        return len(self.problems.found) == before

    def reporter(self, where: Path) -> schema.Report:
        """Reports mistakes below `where`."""

        def report(inner: Path, found: str, allowed: str, meant: str | None) -> None:
            self.report((*where, *inner), found, allowed, meant)

        return report

    def report(self, inner: Path, found: str, allowed: str, meant: str | None) -> None:
        """Report a mistake at the place in the file that it came from: the host, or a base."""
        where = (*self.where, *inner)
        if inner[:1] == ("engines",) and not has_path(self.problems.document.content, where):
            base: Path = ("engines", *inner[1:])
            if len(inner) > 2 and has_path(self.problems.document.content, base):
                where = base
        self.problems.add(where, found, allowed, meant)

    def secret(self, source: Mapping[str, Any], where: Path) -> Secret:
        try:
            return read_secret(source, self.folder, self.environ)
        except SecretError as error:
            self.report(where, str(error), "a secret that can be read", None)
            return Secret("")

    def engine(self, name: str, engine: dict[str, Any]) -> EngineSpec:
        """The spec of an engine that passed all checks; reads its secrets and patches."""
        where: Path = ("engines", name)
        return build_engine(
            name,
            engine,
            read_secret=lambda source, *inner: self.secret(source, (*where, *inner)),
            kernel=kernel.read(engine["kernel"], self.folder, self.reporter((*where, "kernel"))),
        )

    def data(self) -> dict[str, Any]:
        """pyinfra's host data; of a host with mistakes, only what is certainly right.

        pyinfra ends the whole run on a value of the wrong type, so it must not see one.
        """
        given = self.given if isinstance(self.given, dict) else {}
        data: dict[str, Any] = {}
        wrong = {problem.where for problem in self.problems.found}
        ssh = given.get("ssh")
        for key, value in (ssh if isinstance(ssh, dict) else {}).items():
            if key in _SSH_DATA and (*self.where, "ssh", key) not in wrong:
                path = key in ("key", "known_hosts", "config")
                data[_SSH_DATA[key]] = (
                    os.path.abspath(self.folder / _home(value)) if path else value
                )
        if given.get("sudo") is True:
            data["_sudo"] = True
        return data


_SSH_DATA = {
    "hostname": "ssh_hostname",
    "user": "ssh_user",
    "port": "ssh_port",
    "key": "ssh_key",
    "known_hosts": "ssh_known_hosts_file",
    "config": "ssh_config_file",
    "host_key_checking": "ssh_strict_host_key_checking",
}


def _home(path: str) -> FilePath:
    try:
        return expanded(path)
    except UnreadableFile:  # ~nobody: ssh will say that the file is not there
        return FilePath(path)
