"""The `environment` key of an engine: what may stand beside what the unit sets itself.

Whoever owns the inventory owns the host, so they decide what the engine is told: a library
may be preloaded (SGLang's own guide for processors asks for that). Refused is what takes effect
outside of the engine, where nobody would look for it:

- variables that the unit's other commands stand on (INVOCATION_ID marks a start in the log,
  `sglangctl wait` reads MAINPID), and those that this tool sets from another key;
- the dynamic loader's, where they name a place that the engine's own user can write: ExecStartPre
  runs nvidia-modprobe as root, outside of the sandbox, with the same environment, so that a
  model's code could become root at the next start.
"""

from __future__ import annotations

import re
from typing import Any

from roles.inventory import credentials, nccl, places
from roles.inventory.errors import shown
from roles.inventory.names import names
from roles.inventory.schema import Report
from roles.inventory.written import text_of
from sglangctl.masking.names import is_secret_name
from sglangctl.masking.scrub import scrub

OURS = {
    "CUDA_VISIBLE_DEVICES": "gpus",
    "HOME": "the engine's cache folder, which is its own",
    "PATH": "the virtual environment, CUDA_HOME and the system's folders, in this order",
    "PYTHONUNBUFFERED": "1, which the readiness check needs",
}
"""Variables that we set and that nobody else may."""

SYSTEMD = names(
    "CACHE_DIRECTORY CREDENTIALS_DIRECTORY INVOCATION_ID JOURNAL_STREAM LISTEN_FDNAMES LISTEN_FDS "
    "LISTEN_PID MAINPID NOTIFY_SOCKET SYSTEMD_EXEC_PID WATCHDOG_PID WATCHDOG_USEC"
)
"""systemd's own for each command of a unit; an EnvironmentFile would win over them."""

_PLACE = re.compile(r"/[^\s?&=@]*")
"""A path: a folder may be called sk-... or hf_..., and a key does not begin with a slash."""
_JOBS = ("a whole number above 0", re.compile(r"[1-9][0-9]{0,3}"))
_FOLDER = ("an absolute path without ..", re.compile(r"(?:/(?!\.\.(?:/|$))[^/]*)+"))
VALUES = {
    # `gpus` are nvidia-smi's indices, and the switch frees these; CUDA would count others.
    "CUDA_DEVICE_ORDER": ("PCI_BUS_ID, by which `gpus` counts", re.compile("PCI_BUS_ID")),
    "MAX_JOBS": _JOBS,
    **dict.fromkeys(
        names(
            "CUDA_HOME HF_HOME SGLANG_CACHE_DIR TORCHINDUCTOR_CACHE_DIR TRITON_CACHE_DIR "
            "FLASHINFER_WORKSPACE_BASE SGLANG_DG_CACHE_DIR XDG_CACHE_HOME"
        ),
        _FOLDER,
    ),
}
"""Variables that we set and that may be set otherwise -> what they can be."""

LOADER = {
    "GCONV_PATH": ":",
    "LD_AUDIT": ":",
    "LD_DEBUG_OUTPUT": "",
    "LD_LIBRARY_PATH": ":;",
    "LD_PRELOAD": ": ",
    "LD_PROFILE_OUTPUT": "",
    "MALLOC_TRACE": "",
    "MODPROBE_OPTIONS": "",
}
"""Variables of the C library, and of what nvidia-modprobe calls, that name what is loaded or written ->
what separates the names."""
BY_NAME = ("LD_AUDIT", "LD_PRELOAD")
"""Those that take a library's bare name, too: it is looked for in the system's folders."""
WRITABLE = names(
    "/dev /opt/sglang /proc /run /tmp /usr/tmp /var/cache/sglang /var/crash /var/lock /var/log/sglang "
    "/var/run /var/tmp"
)
"""Places in which the engine's user can make files (some are links on one distribution or other), and
that of the packages, whose code root never runs."""


def check(environment: dict[str, Any], report: Report) -> None:
    """Report what may not be set so; it has passed the schema."""
    for name, value in environment.items():
        if value is None:
            continue
        where = ("environment", name)
        text = "" if isinstance(value, dict) else text_of(value)
        if name in OURS:
            report(where, f"the variable {name}", f"it is set from {OURS[name]}", None)
        elif name in SYSTEMD or name.startswith("SGLANGCTL_"):
            what = "systemd" if name in SYSTEMD else "sglangctl"
            allowed = f"variables of the engine: this one is {what}'s, in the unit's other commands"
            report(where, f"the variable {name}", allowed, None)
        elif isinstance(value, dict):
            if not is_secret_name(name):
                allowed = (
                    "a value, or a name that says that it is a secret (HF_TOKEN, X_API_KEY, "
                    "X_PASSWORD): by the name it is kept out of diffs, logs and bundles"
                )
                report(where, "{file: ...} or {env: ...}", allowed, None)
        elif is_secret_name(name):
            allowed = "{file: ...} or {env: ...}: a secret is never written here"
            report(where, "a secret in clear (it is not shown)", allowed, None)
        elif credentials.in_variable(name, value):
            allowed = (
                "an address without a password (keep it in a file of root's, mode 0600, that a "
                "drop-in of the unit names with EnvironmentFile=)"
            )
            report(where, "an address with credentials (not shown)", allowed, None)
        elif not _PLACE.fullmatch(text) and scrub(text) != text:
            allowed = "no secrets here: every process of the engine's user can read them"
            report(where, "a value that looks like a secret (not shown)", allowed, None)
        elif name in VALUES and not VALUES[name][1].fullmatch(text):
            report(where, shown(value), VALUES[name][0], None)
        elif name in LOADER and (wrong := _unsafe(name, text)) is not None:
            allowed = (
                "absolute paths in places that only root can write: the unit runs nvidia-modprobe "
                "with it as root"
            )
            report(where, wrong, allowed, None)
        elif name.upper().startswith("NCCL_"):
            _check_nccl(name, report)


def _check_nccl(name: str, report: Report) -> None:
    where = ("environment", name)
    if name.upper() in nccl.KNOWN:
        report(where, f"the variable {name}", "set it in nccl.overrides", "nccl.overrides")
    elif near := nccl.suggestion(name):
        report(where, "an NCCL variable that is not known", "a known one", near)


def _unsafe(name: str, text: str) -> str | None:
    """The first part of a loader's variable that may not be in it, shown."""
    separators = LOADER[name]
    parts = re.split(f"[{separators}]", text) if separators else [text]
    for part in parts:
        if part == "" and " " in separators:
            continue  # LD_PRELOAD takes any number of spaces; elsewhere it is the current folder
        if "/" not in part and part and name in BY_NAME:
            continue
        absolute = part.startswith("/") and ".." not in part.split("/")
        if not absolute or "$" in part or places.within(part, WRITABLE):
            return shown(part)
    return None
