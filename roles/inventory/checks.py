"""Rules that a schema cannot express: between keys, SGLang's and NCCL's own."""

from __future__ import annotations

import ipaddress
import re
from typing import Any

from roles.inventory import (
    credentials,
    environment,
    flag_checks,
    flag_files,
    flags,
    nccl,
    one_host,
    pins,
    places,
    ports,
    variables,
)
from roles.inventory.errors import Path, closest, shown
from roles.inventory.quoting import is_writable
from roles.inventory.schema import Report, is_secret_place
from roles.inventory.written import text_of
from sglangctl.preflight.catalog import CHECKS
from sglangctl.systemd.unit_names import engine_unit, slots

EAGLE_FAMILY = ("EAGLE", "EAGLE3", "NEXTN", "STANDALONE")


OLDEST = (0, 5, 9)
"""The oldest SGLang whose flags and log this was made with."""


def check_engine(name: str, engine: dict[str, Any], report: Report, warn: Report) -> None:
    """Rules within one engine; `engine` has passed the schema, defaults are filled in.

    + warn: takes what is no mistake for certain
    """
    _check_version(engine["version"], report)
    _check_paths(engine, report)
    _check_served_name(engine["model"], report)
    _check_listen(engine, report)
    if "drafter" in engine:
        _check_drafter(engine["drafter"], report)
    flag_checks.check(engine, report, warn)
    flag_files.check(engine["flags"], report)
    one_host.check(engine, report)
    environment.check(engine["environment"], report)
    variables.check(engine, warn)
    _check_nccl(engine["nccl"], report)
    pins.check(engine["install"], engine["version"], report)
    _check_git(engine["kernel"], report)
    _check_replaces(name, engine["replaces"], report)
    _check_ignored(engine["preflight"]["ignore"], report)


def check_texts(value: Any, report: Report, where: Path = ()) -> None:
    """No text, keys included, may hold what cannot be written into a file."""
    if isinstance(value, str) and not is_writable(value):
        allowed = "text without NUL, lone surrogates and noncharacters"
        found = "a text (it is not shown)" if is_secret_place(where) else shown(value)
        report(where, found, allowed, None)
    elif isinstance(value, dict):
        for key, item in value.items():
            if not is_writable(key):
                check_texts(key, report, where)
            check_texts(item, report, (*where, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            check_texts(item, report, (*where, index))


def check_host(engines: dict[str, dict[str, Any]], report: Report) -> None:
    """Rules between the engines of one host; a port or GPUs that are wrong are not there."""
    ports.check(engines, report)
    owners = {unit: name for name in engines for unit in _own_units(name)}
    before: dict[str, str] = {}
    for name, engine in sorted(engines.items()):
        was = engine.get("was")
        if was in engines:
            found = f"{shown(was)}, {'its own name' if was == name else 'an engine of this host'}"
            report(("engines", name, "was"), found, "a name that no engine of the host has", None)
        elif was is not None and before.setdefault(was, name) != name:
            found = f"{shown(was)}, which engine {before[was]} was, too"
            report(("engines", name, "was"), found, "one engine with this name before", None)
        for index, unit in enumerate(engine["replaces"]):
            sibling = owners.get(unit, name)
            if sibling != name:
                found = f"{shown(unit)}, engine {sibling} of the same host"
                report(("engines", name, "replaces", index), found, _OTHERS, None)
    _check_shared_gpus(engines, report)


def _check_shared_gpus(engines: dict[str, dict[str, Any]], report: Report) -> None:
    cards: dict[int, str] = {}
    everything: str | None = None
    lists: list[str] = []
    for name, engine in sorted(engines.items()):
        if "gpus" not in engine or engine["flags"].get("device") == "cpu":
            continue
        where = ("engines", name, "gpus")
        other = everything or (lists[0] if engine["gpus"] == "all" and lists else None)
        if other:
            found = "all" if engine["gpus"] == "all" else f"GPU {_numbers(engine['gpus'])}"
            has = "all of them" if everything else f"GPU {_numbers(engines[other]['gpus'])}"
            allowed = "GPUs of its own for each engine (or the flag `device: cpu`)"
            report(where, f"{found}, while engine {other} has {has}", allowed, None)
        if engine["gpus"] == "all":
            everything = everything or name
            continue
        lists.append(name)
        taken: dict[str, list[int]] = {}
        for card in engine["gpus"]:
            other = cards.setdefault(card, name)
            if other != name:
                taken.setdefault(other, []).append(card)
        for other, shared in taken.items():
            found = f"GPU {_numbers(shared)}, which engine {other} has, too"
            report(where, found, "GPUs of its own for each engine", None)


def _numbers(cards: list[int]) -> str:
    return ", ".join(map(str, cards))


_OTHERS = "units of other engines, which this one takes over from"


def _own_units(name: str) -> tuple[str, ...]:
    return engine_unit(name), *slots(name)


def _check_replaces(name: str, units: list[str], report: Report) -> None:
    for index, unit in enumerate(units):
        where = ("replaces", index)
        if unit in _own_units(name):
            report(where, f"{shown(unit)}, this engine's own", _OTHERS, None)
        elif what := places.not_replaceable(unit):
            report(where, f"{shown(unit)}, {what}", _OTHERS, None)


def _check_ignored(ids: list[str], report: Report) -> None:
    for index, id in enumerate(ids):
        if id not in CHECKS:
            allowed = "the id of a check (docs/preflight.md lists them)"
            report(("preflight", "ignore", index), shown(id), allowed, closest(id, CHECKS))


def _check_git(kernel: dict[str, Any], report: Report) -> None:
    if credentials.in_address(kernel["git"]["url"]):
        allowed = "an address without a password (the build host's git credentials may hold it)"
        report(("kernel", "git", "url"), "an address with credentials (not shown)", allowed, None)
    for index, argument in enumerate(kernel["cmake_args"]):
        if credentials.in_address(argument):
            where = ("kernel", "cmake_args", index)
            allowed = "an address without a password: every user of the host sees arguments"
            report(where, "an address with credentials (not shown)", allowed, None)


def _check_paths(engine: dict[str, Any], report: Report) -> None:
    for part in ("model", "drafter"):
        path = engine.get(part, {}).get("path")
        if path is not None and ".." in path.split("/"):
            report((part, "path"), shown(path), "an absolute path without ..", None)
        elif path is not None and not path.strip("/"):
            report((part, "path"), shown(path), "a folder below /", None)
        elif path is not None and (own := places.within(path, places.OUR_FOLDERS)):
            allowed = (
                f"a folder outside of {own}: remove.py would delete it, keep weights elsewhere"
            )
            report((part, "path"), shown(path), allowed, None)


def _check_version(version: str, report: Report) -> None:
    release = re.split(r"[^0-9.]", version)[0]  # 0.5.10rc1: 0.5.10
    numbers = tuple(int(part) for part in release.split(".") if part)
    if numbers < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        report(("version",), shown(version), f"{oldest} or newer", None)


_HASH = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


def _check_served_name(model: dict[str, Any], report: Report) -> None:
    """SGLang's own rules, and that a client can use it."""
    where = ("model", "served_name")
    path = [part for part in (model.get("path") or "").split("/") if part not in ("", ".")]
    name = model.get("served_name", path[-1] if path else "")
    found = (
        shown(name) if "served_name" in model else f"nothing, and the path ends in {shown(name)}"
    )
    if name.startswith("-"):
        report(where, found, "a name that does not begin with - (it would be an option)", None)
    elif _HASH.fullmatch(name):
        # A hub cache has .../models--ORG--NAME/snapshots/HASH.
        repository = next((part for part in path if part.startswith("models--")), "")
        meant = repository.rpartition("--")[2] or None
        report(where, found, "a name, not a snapshot's hash, which changes with the weights", meant)
    elif ":" in name:
        report(where, found, "a name without : (in SGLang it begins the name of a LoRA)", None)


def _check_listen(engine: dict[str, Any], report: Report) -> None:
    if engine["listen"] == "localhost":
        return
    try:
        ipaddress.ip_address(engine["listen"])
    except ValueError:
        allowed = "an IPv4 or IPv6 address, or localhost"
        report(("listen",), shown(engine["listen"]), allowed, None)


def _check_drafter(drafter: dict[str, Any], report: Report) -> None:
    algorithm = drafter["algorithm"]
    shape = [key for key in ("steps", "topk", "draft_tokens") if key in drafter]
    if algorithm in ("EAGLE3", "STANDALONE") and "path" not in drafter:
        # SGLang starts without one and loads the target a second time (sglang#36528).
        report(("drafter", "path"), "nothing", f"a draft model's folder ({algorithm})", None)
    if algorithm in EAGLE_FAMILY and len(shape) in (1, 2):
        found = f"only {' and '.join(shape)}"
        report(("drafter",), found, "steps, topk and draft_tokens: all three or none", None)
    elif algorithm in EAGLE_FAMILY and shape and drafter["topk"] == 1:
        # SGLang changes it silently but for a warning, and `as declared` would not hold.
        right = drafter["steps"] + 1
        if drafter["draft_tokens"] != right:
            found = str(drafter["draft_tokens"])
            allowed = f"{right}: with topk 1 it is steps + 1"
            report(("drafter", "draft_tokens"), found, allowed, None)


def secret_references(engine: dict[str, Any]) -> dict[Path, dict[str, str]]:
    """Where an engine names a secret of the controller, and how: {file: ...} or {env: ...}."""
    found: dict[Path, dict[str, str]] = {}
    if engine.get("api_key"):
        found[("api_key",)] = engine["api_key"]
    for name, value in engine["flags"].items():
        if flags.is_secret(name) and flag_checks.is_reference(value):
            found[("flags", name)] = value
    for name, value in engine["environment"].items():
        if flag_checks.is_reference(value):
            found[("environment", name)] = value
    return found


def _check_nccl(settings: dict[str, Any], report: Report) -> None:
    given = settings["overrides"]
    for name, value in given.items():
        where = ("nccl", "overrides", name)
        full = nccl.full_name(name)
        if full not in nccl.KNOWN:
            allowed = "a variable that NCCL reads (one that no list knows: in environment)"
            report(where, "an NCCL variable that is not known", allowed, nccl.suggestion(full))
        elif name != full and full in given:
            report(where, f"{full} twice, with and without its prefix", "once", None)
        elif value is not None:
            text = text_of(value)
            if wanted := nccl.allowed_value(full, text):
                report(where, shown(value), wanted, nccl.meant_value(full, text))
