"""What a schema cannot say: rules between keys, SGLang's and NCCL's own rules."""

from __future__ import annotations

import ipaddress
import re
from typing import Any

from roles.spec import flag_names, flags, nccl
from roles.spec.errors import Path, closest, shown
from roles.spec.quoting import is_writable
from roles.spec.schema import Report
from sglangctl.masking import is_secret_name

EAGLE_FAMILY = ("EAGLE", "EAGLE3", "NEXTN", "STANDALONE")
OURS = {
    "CUDA_VISIBLE_DEVICES": "gpus",
    "HOME": "the engine's cache folder, which is its own",
    "PYTHONUNBUFFERED": "1, which the readiness check needs",
}
"""Variables that we set and that nobody else may."""


def check_engine(name: str, engine: dict[str, Any], report: Report) -> None:
    """Rules within one engine; `engine` has passed the schema, defaults are filled in."""
    _check_paths(engine, report)
    _check_listen(engine, report)
    if "drafter" in engine:
        _check_drafter(engine["drafter"], report)
    _check_gpus(engine, report)
    _check_flags(engine["flags"], report)
    _check_flag_names(engine, report)
    _check_environment(engine["environment"], report)
    _check_nccl(engine["nccl"], report)
    _check_install(engine, report)
    own = f"sglang-{name}.service"
    for index, unit in enumerate(engine["replaces"]):
        if unit == own:
            report(("replaces", index), shown(unit), "units of other engines", None)


def check_texts(value: Any, report: Report, where: Path = ()) -> None:
    """No text, keys included, may hold what cannot be written into a file."""
    if isinstance(value, str) and not is_writable(value):
        allowed = "text without NUL, lone surrogates and noncharacters"
        report(where, shown(value), allowed, None)
    elif isinstance(value, dict):
        for key, item in value.items():
            if not is_writable(key):
                check_texts(key, report, where)
            check_texts(item, report, (*where, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            check_texts(item, report, (*where, index))


def check_host(engines: dict[str, dict[str, Any]], report: Report) -> None:
    """Rules between the engines of one host."""
    ports: dict[int, str] = {}
    cards: dict[int, str] = {}
    for name, engine in sorted(engines.items()):
        other = ports.setdefault(engine["port"], name)
        if other != name:
            found = f"{engine['port']}, which engine {other} has, too"
            report(("engines", name, "port"), found, "a port of its own for each engine", None)
        if engine["gpus"] == "all":
            continue
        taken: dict[str, list[int]] = {}
        for card in engine["gpus"]:
            other = cards.setdefault(card, name)
            if other != name:
                taken.setdefault(other, []).append(card)
        for other, shared in taken.items():
            found = f"GPU {', '.join(map(str, shared))}, which engine {other} has, too"
            report(("engines", name, "gpus"), found, "GPUs of its own for each engine", None)


def _check_paths(engine: dict[str, Any], report: Report) -> None:
    for part in ("model", "drafter"):
        path = engine.get(part, {}).get("path")
        if path is not None and ".." in path.split("/"):
            report((part, "path"), shown(path), "an absolute path without ..", None)
        elif path is not None and not path.strip("/"):
            report((part, "path"), shown(path), "a folder below /", None)


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


def _check_gpus(engine: dict[str, Any], report: Report) -> None:
    cards = engine["gpus"]
    needed = engine["tensor_parallel"]
    if cards != "all" and len(cards) < needed:
        allowed = f"at least {needed}, as tensor_parallel asks for"
        report(("gpus",), f"{len(cards)} GPUs", allowed, None)


def _check_flags(given: dict[str, Any], report: Report) -> None:
    for name, value in given.items():
        where: Path = ("flags", name)
        owned = flags.owner(name)
        if owned is not None:
            flag, key = owned
            found = f"the flag --{name}" + (f", short for --{flag}" if flag != name else "")
            allowed = f"set it with the key {key}" if key != "flags" else "flags in `flags` itself"
            report(where, found, allowed, key if key != "flags" else None)
        elif flags.is_secret(name):
            if not _is_reference(value):
                allowed = "a secret is never written here: {file: ...} or {env: ...}"
                report(where, "a value in clear (it is not shown)", allowed, None)
        elif value == "--":
            report(where, '"--"', "a value; SGLang cannot be given this one", None)
        elif isinstance(value, list):
            for index, item in enumerate(value):
                if isinstance(item, str) and item.startswith("-"):
                    # argparse would end the list there; a list has no --key=value form.
                    allowed = "a text that does not begin with -"
                    report((*where, index), shown(item), allowed, None)


def _check_flag_names(engine: dict[str, Any], report: Report) -> None:
    """Flags that the engine's release does not have, where we know its flags."""
    elsewhere = any(distribution(pin) == "sglang" for pin in engine["install"]["packages"])
    if engine["version"] != flag_names.VERSION or elsewhere:
        return  # the deploy asks the installed engine itself before anything is stopped
    for name in engine["flags"]:
        if name not in flag_names.FLAGS and flags.owner(name) is None:
            allowed = f"a flag that SGLang {flag_names.VERSION} has"
            found = f"the unknown flag --{name}"
            report(("flags", name), found, allowed, closest(name, flag_names.FLAGS))


def _is_reference(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and len(value) == 1
        and set(value) <= {"file", "env"}
        and all(isinstance(item, str) and item for item in value.values())
    )


def _check_environment(environment: dict[str, Any], report: Report) -> None:
    for name in environment:
        where = ("environment", name)
        if name in OURS:
            report(where, f"the variable {name}", f"it is set from {OURS[name]}", None)
        elif is_secret_name(name):
            allowed = "no secrets here: every process of the engine's user can read them"
            report(where, "a variable for a secret", allowed, None)
        elif name.upper().startswith("NCCL_"):
            if name.upper() in nccl.KNOWN:
                report(where, f"the variable {name}", "set it in nccl.overrides", "nccl.overrides")
            elif near := nccl.suggestion(name):
                report(where, "an NCCL variable that is not known", "a known one", near)


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
            allowed_value = nccl.allowed_value(full, number_text(value))
            if allowed_value:
                choices = re.findall(r"[A-Za-z0-9]+", allowed_value)
                near = closest(value, choices)
                report(where, shown(value), allowed_value, near)


def _check_install(engine: dict[str, Any], report: Report) -> None:
    install = engine["install"]
    seen: dict[str, int] = {}
    for index, pin in enumerate(install["packages"]):
        where = ("install", "packages", index)
        name = distribution(pin)
        if seen.setdefault(name, index) != index:
            report(where, shown(pin), f"one pin for {name}", None)
        version = pin.partition("==")[2].lstrip("=") if " @ " not in pin else None
        if name == "sglang" and version is not None and version != engine["version"]:
            allowed = f"sglang=={engine['version']}, as the key version says"
            report(where, shown(pin), allowed, None)
        if name == "sgl-kernel":
            _check_kernel_name(pin, where, report)
    for index, argument in enumerate(install["pip_arguments"]):
        if re.search(r"://[^/\s]*@", argument):
            where = ("install", "pip_arguments", index)
            allowed = "an address without a password: every user sees it (use pip.conf or netrc)"
            report(where, "an address with credentials (not shown)", allowed, None)


def _check_kernel_name(pin: str, where: Path, report: Report) -> None:
    version = pin.partition("==")[2].lstrip("=")
    if version and _numbers(version) >= (0, 4):
        # Renamed in 0.4.0; the import name stayed sgl_kernel.
        report(where, shown(pin), "sglang-kernel, as it is called since 0.4.0", "sglang-kernel")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])


def distribution(pin: str) -> str:
    """The normalised name of what a pin installs (PEP 503)."""
    name = re.match(r"[A-Za-z0-9._-]+", pin)
    return re.sub(r"[-_.]+", "-", name[0]).lower() if name else pin


def number_text(value: str | int | float) -> str:
    """A value of an environment variable as text: 8 and 8.0 are both 8."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return str(value)
