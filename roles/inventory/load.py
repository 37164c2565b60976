"""From a file to hosts: read, merge, validate, build. A host with errors fails alone."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path as FilePath
from typing import Any

from roles.inventory import (
    checks,
    fallbacks,
    flag_files,
    kernel,
    locked,
    pins,
    pruning,
    schema,
    ssh,
)
from roles.inventory.build import build_engine
from roles.inventory.document import Document, read
from roles.inventory.errors import InventoryError, Mistake, Need, Path, closest, shown
from roles.inventory.merge import deep_merge, has_path
from roles.inventory.model import EngineSpec, HostEntry, HostSpec, Inventory, Kernel
from roles.inventory.problems import Problems
from roles.inventory.secret import Secret, SecretError, read_secret
from sglangctl.util.values import mapping

CONNECTORS = ("docker", "dockerssh", "local", "ssh")
"""pyinfra connectors of hosts that this tool can deploy to (`@docker/NAME`)."""

METRICS = "enable-metrics"
"""The flag with which SGLang answers at /metrics. null or false in the inventory is kept."""


def load_inventory(
    path: str | FilePath, environ: Mapping[str, str] | None = None, *, key_is_given: bool = False
) -> Inventory:
    """Read an inventory and the secrets that it names.

    InventoryError only where no host can be told from another: a file that cannot be read, is
    not YAML, or has no hosts. Everything else is an error of the hosts that it concerns.

    + key_is_given: pyinfra was called with an ssh key or its passphrase (--ssh-key)
    """
    path = FilePath(path)
    environ = os.environ if environ is None else environ
    return build(read(path), path.parent, environ, key_is_given=key_is_given)


def build(
    document: Document,
    folder: FilePath,
    environ: Mapping[str, str],
    *,
    key_is_given: bool = False,
) -> Inventory:
    """An inventory from a document; `folder` is where relative paths on the controller start."""
    general = Problems(document)
    content = document.content
    known = ("engines", "hosts", "monitoring", "rollout")
    for key in content:
        if key not in known:
            allowed = "engines, hosts, monitoring and rollout"
            general.add((key,), "an unknown key", allowed, closest(key, known))
    hosts = content.get("hosts")
    if not isinstance(hosts, dict) or not hosts:
        found = shown(hosts) if "hosts" in content else "nothing"
        general.add(("hosts",), found, "a mapping of host names with at least one host", None)
        raise InventoryError("\n".join(mistake.text for mistake in general.mistakes))
    bases = content.get("engines") or {}
    if not isinstance(bases, dict):
        general.add(("engines",), shown(bases), "a mapping of engine names", None)
        bases = {}
    first = _one_host(content, "rollout", "first", hosts, general)
    prometheus = _one_host(content, "monitoring", "prometheus", hosts, general)
    entries = []
    used: set[str] = set()
    for name, given in hosts.items():
        problems = Problems(document)
        host = _Host(name, given, bases, problems, folder, environ, prometheus)
        entry = host.entry(general.mistakes, key_is_given)
        used |= host.used
        entries.append(entry)
    unused = _unused(document, bases, used)
    return Inventory(document.file, tuple(entries), unused, first, prometheus)


def _one_host(
    content: dict[str, Any], part: str, only: str, hosts: dict[str, Any], problems: Problems
) -> str | None:
    """The host that a mapping at the top names, whose `only` key that is."""
    given = content.get(part)
    if given is None:
        return None
    if not isinstance(given, dict):
        problems.add((part,), shown(given), f"a mapping with the key {only}", None)
        return None
    for key in given:
        if key != only:
            problems.add((part, key), "an unknown key", only, closest(key, [only]))
    name = given.get(only)
    if name is not None and name not in list(hosts):
        meant = closest(name, hosts) if isinstance(name, str) else None
        problems.add((part, only), shown(name), "the name of a host below `hosts`", meant)
        return None
    return name


def _unused(document: Document, bases: dict[str, Any], used: set[str]) -> tuple[str, ...]:
    """Mistakes in bases that no host uses: no host fails for them, and they are not hidden."""
    problems = Problems(document)
    for name in bases:
        if name not in used:
            problems.validate("engine", bases[name], ("engines", name))
    return tuple(mistake.text for mistake in problems.mistakes)


_HOST = re.compile(r"[A-Za-z0-9._:%@/-]+")
"""Nothing that a shell, or --limit (`*`, `,`), makes something else of: commands for people name a host."""
_LOGIN = re.compile(r"(?:([^@:/]+)@)?([^@:/]+)(?::([0-9]+))?")
"""user@host:port, without either of them, too; an IPv6 address has more than one colon."""


def _without_login(found: re.Match[str]) -> tuple[str, str]:
    """Where the parts of user@host:port belong, and the name that was meant."""
    user, host, port = found.groups()
    keys = [f"{key}: {value}" for key, value in (("user", user), ("port", port)) if value]
    allowed = "the name alone" + (f", and the key ssh: {{{', '.join(keys)}}}" if keys else "")
    return allowed, host


class _Host:
    """One host on its way from a mapping to a spec."""

    def __init__(
        self,
        name: str,
        given: Any,
        bases: dict[str, Any],
        problems: Problems,
        folder: FilePath,
        environ: Mapping[str, str],
        prometheus: str | None,
    ) -> None:
        self.name = name
        self.prometheus = prometheus
        self.where: Path = ("hosts", name)
        self.given = given
        self.keys: dict[str, Any] = given if isinstance(given, dict) else {}
        self.bases = bases
        self.problems = problems
        self.folder = folder
        self.environ = environ
        self.used: set[str] = set()
        self.warnings = Problems(problems.document)

    def entry(self, general: list[Mistake], key_is_given: bool) -> HostEntry:
        """The host's entry; `general` are mistakes that concern all hosts."""
        self.check_name()
        self.problems.validate("host", self.without_engines(), self.where)
        checks.check_texts(self.without_engines(), self.report)
        if self.keys.get("engines") == {} and self.name != self.prometheus:
            self.report(("engines",), "{}", "a mapping with at least one engine", None)
        way = self.right_ssh()
        ssh.check(
            way,
            self.folder,
            lambda inner, *rest: self.report(("ssh", *inner), *rest),
            key_is_given=key_is_given,
        )
        engines = {
            name: self.checked(name, engine)
            for name, engine in sorted(self.merged_engines().items())
        }
        checks.check_host(engines, self.report)
        files = {name: self.files(name, engine) for name, engine in engines.items()}
        others = {name: self.fallbacks(name, engine) for name, engine in engines.items()}
        mistakes = (*general, *self.problems.mistakes)
        names = tuple(filter(schema.is_engine_name, sorted(self.given_engines())))
        data = ssh.data(self.right_ssh(), self.folder)
        if self.keys.get("sudo") is True:
            data["_sudo"] = True
        warnings = tuple(mistake.text for mistake in self.warnings.mistakes)
        if any(mistake.need < Need.FILES for mistake in mistakes):
            return HostEntry(self.name, data, None, names, mistakes, warnings)
        spec = HostSpec(
            self.name,
            tuple(
                build_engine(name, engine, *files[name], others[name])
                for name, engine in engines.items()
            ),
            tuple(self.keys.get("protected") or ()),
            tuple(self.keys.get("containers") or ()),
            self.keys.get("prune") or "ask",
        )
        return HostEntry(self.name, data, spec, names, mistakes, warnings)

    def check_name(self) -> None:
        name = self.name
        text = _HOST.fullmatch(name) is not None
        connector, _, argument = name[1:].partition("/")
        if not name.startswith("@"):
            good = text and not name.startswith("-") and "/" not in name
        else:
            good = text and connector in CONNECTORS and bool(argument) != (connector == "local")
            # docker and ssh would take it for an option.
            good = good and not any(part.startswith("-") for part in argument.split(":"))
            # pyinfra ends the whole run on a name that its connector cannot read.
            good = good and (connector != "dockerssh" or all(argument.partition(":")))
        if not good:
            allowed = "a host name, @local, @docker/NAME, @dockerssh/HOST:NAME or @ssh/HOST"
            meant = closest(connector, CONNECTORS) if name.startswith("@") else None
            where = self.where
            self.problems.add(where, f"the host name {shown(name)}", allowed, meant)
        elif (found := _LOGIN.fullmatch(name.removeprefix("@ssh/"))) and (found[1] or found[3]):
            self.problems.add(self.where, f"the host name {shown(name)}", *_without_login(found))

    def without_engines(self) -> Any:
        """What the host's own schema looks at: the engines are validated after the merge."""
        if isinstance(self.keys.get("engines"), dict):
            return {**self.keys, "engines": dict.fromkeys(self.keys["engines"])}
        return self.given

    def right_ssh(self) -> dict[str, Any]:
        """The `ssh` key without what is wrong: pyinfra ends the whole run on a wrong type."""
        wrong = {problem.where for problem in self.problems.found}
        return {
            key: value
            for key, value in mapping(self.keys.get("ssh")).items()
            if (*self.where, "ssh", key) not in wrong
        }

    def given_engines(self) -> dict[str, Any]:
        return mapping(self.keys.get("engines"))

    def merged_engines(self) -> dict[str, dict[str, Any]]:
        merged: dict[str, dict[str, Any]] = {}
        for name, override in self.given_engines().items():
            base = self.base(name)
            self.used.add(base)
            found = self.bases.get(base, {})
            if base != name and base not in self.bases:
                allowed = "the name of a base in `engines` at the top"
                where = ("engines", name, "base")
                self.report(where, shown(base), allowed, closest(base, self.bases))
            result = found if override is None else deep_merge(found, override)
            if isinstance(result, dict):
                if isinstance(found, dict) and "base" in found:
                    allowed = "nothing: only an engine of a host takes a base"
                    self.problems.add(
                        ("engines", base, "base"), shown(found["base"]), allowed, None
                    )
                merged[name] = result
            else:
                allowed = "a mapping; {} takes the base of this name as it is"
                self.report(("engines", name), shown(result), allowed, None)
        return merged

    def base(self, name: str | int) -> str:
        """The base of an engine: its own name's, or another one's."""
        given = self.given_engines().get(str(name))
        base = given.get("base") if isinstance(given, dict) else None
        return base if isinstance(base, str) else str(name)

    def checked(self, name: str, engine: dict[str, Any]) -> dict[str, Any]:
        """Report what is wrong with a merged engine; it, without that and with its defaults.

        What is right is looked at further, so that one round tells everything.
        """
        wrong: list[Path] = []

        def report(inner: Path, found: str, allowed: str, meant: str | None) -> None:
            wrong.append(inner)
            self.report(("engines", name, *inner), found, allowed, meant)

        schema.validate("engine", engine, report)
        checks.check_texts(engine, report)
        model = engine.get("model")
        if model is None or (isinstance(model, dict) and model.get("path") is None):
            allowed = "the folder of the model's weights on the host"
            meant = closest(name, self.bases) if name not in self.bases else None
            report(("model", "path"), "nothing", allowed, meant)
        right = schema.filled(schema.definition("engine"), pruning.pruned(engine, wrong))
        right.pop("base", None)  # it has been merged over it
        if self.prometheus is not None and METRICS not in mapping(engine.get("flags")):
            right["flags"] = {**right["flags"], METRICS: True}
        taken_out = tuple(wrong)
        further = pruning.untouched(report, taken_out)
        checks.check_engine(
            name,
            right,
            further,
            lambda inner, *rest: self.warnings.add(
                self.written_at(("engines", name, *inner)), *rest
            ),
        )
        hosts = self.problems.document.content.get("hosts") or {}
        kernel.check(right["kernel"], [str(host) for host in hosts], further)
        if all(place[:1] == (fallbacks.KEY,) for place in taken_out):
            fallbacks.check(name, right, further)
        return pruning.comparable(right, taken_out)

    def report(
        self, inner: Path, found: str, allowed: str, meant: str | None, need: Need | None = None
    ) -> None:
        """Report a mistake at the place in the file that it came from: the host, or a base."""
        self.problems.add(self.written_at(inner), found, allowed, meant, need)

    def written_at(self, inner: Path) -> Path:
        """The place in the file that a place below the host came from: there, or a base."""
        where = (*self.where, *inner)
        if inner[:1] == ("engines",) and not has_path(self.problems.document.content, where):
            base: Path = ("engines", self.base(str(inner[1])), *inner[2:])
            if len(inner) > 2 and has_path(self.problems.document.content, base):
                where = base
        return where

    def fallbacks(self, name: str, engine: dict[str, Any]) -> dict[str, EngineSpec]:
        """The specs of the engine's fallbacks, in their order."""
        return {
            fallback: build_engine(
                name, whole, *self.files(name, whole, partial(fallbacks.place, fallback, override))
            )
            for fallback, override, whole in fallbacks.merged(engine)
            if whole.keys() >= {"port", "gpus"}
        }

    def files(
        self,
        name: str,
        engine: dict[str, Any],
        written: Callable[[Path], Path] = lambda inner: inner,
    ) -> tuple[dict[Path, Secret], Kernel, dict[str, bytes], locked.Locked | None, FilePath]:
        """The engine's secrets by their places in it, its kernel with its patches, what its flags
        ship, and its lock, read, and where that lies; `written` says where in the engine a place was written."""

        def report(inner: Path, found: str, allowed: str, meant: str | None) -> None:
            self.report(("engines", name, *written(inner)), found, allowed, meant, Need.FILES)

        secrets: dict[Path, Secret] = {}
        for place, source in checks.secret_references(engine).items():
            try:
                secrets[place] = read_secret(source, self.folder, self.environ)
            except SecretError as error:
                report(place, str(error), "a secret that can be read", None)
                secrets[place] = Secret("", missing=str(error))
        patched = kernel.read(engine["kernel"], self.folder, report)
        shipped = flag_files.read(engine["flags"], self.folder, report)
        lock = locked.read(name, pins.all_of(engine), self.folder, report)
        return secrets, patched, shipped, lock, locked.path_of(name, self.folder)
