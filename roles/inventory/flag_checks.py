"""The `flags` key of an engine: names, values, and what SGLang would refuse after minutes.

The names and values are those of one release (flag_names.py). For another one, only what holds for all
of them is told.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from roles.inventory import contradictions, credentials, flag_files, flag_names, flags, pins
from roles.inventory.errors import Path, closest, shown
from roles.inventory.schema import Report

RENAMED = {
    "cuda-graph-bs": "cuda-graph-bs-decode",
    "cuda-graph-max-bs": "cuda-graph-max-bs-decode",
    "disable-piecewise-cuda-graph": "cuda-graph-backend-prefill: disabled",
    "dsa-prefill-cp-mode": "cp-strategy",
    "elastic-ep-rejoin": "elastic-ep-join-mode: recover",
    "enable-breakable-cuda-graph": "cuda-graph-backend-prefill: breakable",
    "enable-dsa-prefill-context-parallel": "enable-prefill-cp",
    "enable-expert-distribution-metrics": "expert-balancedness-report-mode: prometheus",
    "enable-nsa-prefill-context-parallel": "enable-prefill-cp",
    "enable-prefill-context-parallel": "enable-prefill-cp",
    "keep-mm-feature-on-device": "mm-feature-transport: cuda_ipc",
    "mamba-scheduler-strategy": "mamba-radix-cache-strategy",
    "nsa-decode-backend": "dsa-decode-backend",
    "nsa-prefill-backend": "dsa-prefill-backend",
    "nsa-prefill-cp-mode": "cp-strategy",
    "piecewise-cuda-graph-max-tokens": "cuda-graph-max-bs-prefill",
    "piecewise-cuda-graph-tokens": "cuda-graph-bs-prefill",
    "prefill-cp-mode": "cp-strategy",
    "speculative-dflash-draft-window-size": "speculative-draft-window-size",
    "stream-output": "incremental-streaming-output",
}
"""Flags that VERSION no longer has -> what replaced them, by the texts of the parser of 0.5.16."""
DEPRECATED = {
    "disable-cuda-graph": "cuda-graph-backend-decode: disabled and cuda-graph-backend-prefill: disabled",
    "enable-dp-attention": "attn-dp-size: N instead of data-parallel-size: N",
    "enable-flashinfer-allreduce-fusion": "flashinfer-allreduce-fusion-backend: auto",
}
"""Flags that VERSION still has, and says that it will not have for ever."""
WITHOUT_EFFECT = {"num-continuous-decode-steps": "no code of SGLang 0.5.23 reads it"}

_WHOLE = re.compile(r"[-+]?[0-9]+")
_SIZE = re.compile(r"[-+]?[0-9]+|[0-9]+(?:\.[0-9]+)?[kMGT]|[0-9]+[KMGT]i")
_NUMBER = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")
_SWITCH = {"yes": "true", "on": "true", "true": "true", "1": "true"} | dict.fromkeys(
    ("no", "off", "false", "0"), "false"
)


def check(engine: Mapping[str, Any], report: Report, warn: Report) -> None:
    """Report what is wrong with an engine's flags; warn of what may be."""
    _check_flags(engine["flags"], report)
    if is_known_release(engine):
        for name, value in engine["flags"].items():
            if _told(name):
                continue
            _check_name(name, report, warn)
            if value is None or flags.is_secret(name) or flag_files.is_shipped(name, value):
                continue
            _check_value(name, value, bool(engine["install"]["packages"]), report)
    contradictions.check(engine, report, warn)


def is_known_release(engine: Mapping[str, Any]) -> bool:
    """Whether the engine is the release whose names are known, as it was published."""
    elsewhere = any(pins.distribution(pin) == "sglang" for pin in engine["install"]["packages"])
    return engine["version"] == flag_names.VERSION and not elsewhere


def _told(name: str) -> bool:
    """Whether _check_flags has something to say about the name."""
    return bool(
        flags.owner(name)
        or flags.short_for_secret(name)
        or flags.ends_at_once(name)
        or flags.off_form_of(name)
    )


def _check_name(name: str, report: Report, warn: Report) -> None:
    where: Path = ("flags", name)
    if name in flag_names.GONE or (name in RENAMED and name not in flag_names.FLAGS):
        found = f"the flag --{name}, which SGLang {flag_names.VERSION} no longer has"
        new = RENAMED.get(name)
        allowed = f"its replacement: {new}" if new else "nothing: it has no replacement"
        report(where, found, allowed, new)
    elif name not in flag_names.FLAGS:
        allowed = f"a flag that SGLang {flag_names.VERSION} has"
        found = f"the unknown flag --{name}"
        off = f"disable-{name[3:]}" if name.startswith("no-") else None
        near = off if off in flag_names.FLAGS else closest(name, flag_names.FLAGS)
        report(where, found, allowed, near)
    elif name in DEPRECATED:
        warn(where, f"the deprecated flag --{name}", DEPRECATED[name], None)
    elif name in WITHOUT_EFFECT:
        warn(where, f"the flag --{name}", f"nothing: {WITHOUT_EFFECT[name]}", None)


def _check_value(name: str, value: Any, extended: bool, report: Report) -> None:
    """Whether the release's parser takes a value. `extended`: other packages may add choices."""
    where: Path = ("flags", name)
    text = value if isinstance(value, str) else str(value)
    if name in flag_names.SWITCHES | flag_names.OFF_FORMS:
        if not isinstance(value, bool):
            report(where, shown(value), "true or false", _SWITCH.get(text.lower()))
    elif name in flag_names.FLAGS and isinstance(value, bool):
        report(where, shown(value), _ALLOWED.get(_kind(name), "a value"), None)
    elif name in flag_names.JSON | flag_names.LISTS or name not in flag_names.FLAGS:
        return
    elif isinstance(value, list):
        report(where, "a list", "a single value", None)
    elif isinstance(value, dict):
        if _kind(name) != "TEXTS" or name in flag_names.CHOICES:
            report(where, "a mapping", _ALLOWED.get(_kind(name), "a single value"), None)
    elif (pattern := _PATTERNS.get(_kind(name))) and not pattern.fullmatch(text):
        whole = isinstance(value, float) and value.is_integer() and abs(value) < 1e15
        report(where, shown(value), _ALLOWED[_kind(name)], str(int(value)) if whole else None)
    elif name in flag_names.CHOICES and text not in flag_names.CHOICES[name]:
        near = closest(text, flag_names.CHOICES[name])
        if near or not extended:
            report(where, shown(value), ", ".join(flag_names.CHOICES[name]), near)


_PATTERNS = {"WHOLE": _WHOLE, "SIZES": _SIZE, "NUMBERS": _NUMBER}
_ALLOWED = {
    "WHOLE": "a whole number",
    "SIZES": "a whole number, or one with k, M, Ki or Mi",
    "NUMBERS": "a number",
    "LISTS": "a value or a list of them",
    "JSON": "a mapping or a list",
}


def _kind(name: str) -> str:
    for kind in ("WHOLE", "SIZES", "NUMBERS", "LISTS", "JSON"):
        if name in getattr(flag_names, kind):
            return kind
    return "TEXTS"


def _check_flags(given: dict[str, Any], report: Report) -> None:
    for name, value in given.items():
        where: Path = ("flags", name)
        owned = flags.owner(name)
        if owned is not None:
            flag, key = owned
            found = f"the flag --{name}" + (f", short for --{flag}" if flag != name else "")
            allowed = f"set it with the key {key}" if key != "flags" else "flags in `flags` itself"
            report(where, found, allowed, key if key != "flags" else None)
        elif full := flags.short_for_secret(name):
            found = f"the flag --{name}, short for --{full} (its value is not shown)"
            allowed = "the flag's full name, with {file: ...} or {env: ...}"
            report(where, found, allowed, full)
        elif (on := flags.off_form_of(name)) is not None:
            # SGLang's reader of the --config file refuses all of them.
            report(where, f"the flag --{name}", f"the positive name: {on}: false", f"{on}: false")
        elif flags.ends_at_once(name):
            allowed = "flags of a server: with this one it prints something and ends"
            report(where, f"the flag --{name}", allowed, None)
        elif flags.is_secret(name):
            if not is_reference(value):
                allowed = "a secret is never written here: {file: ...} or {env: ...}"
                report(where, "a value in clear (it is not shown)", allowed, None)
        elif (inner := flags.secret_inside(value)) is not None:
            allowed = (
                "no secrets within a flag's value: they cannot be kept out of diffs and logs (what "
                "the flag configures may take them from a file of root's or the environment)"
            )
            report(where, f"a secret {shown(inner)} (its value is not shown)", allowed, None)
        elif credentials.in_value(value):
            allowed = "an address without a password: secrets are never written here"
            report(where, "an address with credentials (not shown)", allowed, None)
        elif value == "--":
            report(where, '"--"', "a value; SGLang cannot be given this one", None)
        elif isinstance(value, list):
            if any(isinstance(item, dict) for item in value) and not flags.takes_mappings(name):
                allowed = "a list of strings and numbers (a mapping alone is passed as JSON)"
                report(where, "a list with mappings", allowed, None)
            for index, item in enumerate(value):
                if isinstance(item, str) and item.startswith("-") and name not in flags.JSON_LISTS:
                    # argparse would end the list there; a list has no --key=value form.
                    allowed = "a text that does not begin with -"
                    report((*where, index), shown(item), allowed, None)


def is_reference(value: Any) -> bool:
    """Whether a value names a secret of the controller."""
    return (
        isinstance(value, dict)
        and len(value) == 1
        and set(value) <= {"file", "env"}
        and all(isinstance(item, str) and item for item in value.values())
    )
