"""The names of our units on a host. NAME is the engine's name."""

from __future__ import annotations

from sglangctl.util import lazy_re

RESUME = "sglangctl-resume.service"
"""At boot: puts back what ran before a switch that did not come to its end."""
RESUME_AT_BOOT = f"/etc/systemd/system/multi-user.target.wants/{RESUME}"
"""The link for which systemd starts it at boot."""
SWITCH = "sglangctl-switch.service"
"""Transient, of a switch that was started with --detach."""
SWITCH_DROP_IN = "50-sglangctl-switch.conf"
"""Of an engine's unit, while a switch is under way."""
_HELPER = lazy_re.compile(r"sglang-watch@.+\.service|sglangctl-[^/]+\.service")


def engine_unit(name: str) -> str:
    """The engine's own."""
    return f"sglang-{name}.service"


def slots(name: str) -> tuple[str, str]:
    """The two units that an engine takes turns in, when one starts beside the other: which one it is
    now, state/slots.py knows. No engine's name has an underscore: `chat-a` may be another engine."""
    return f"sglang-{name}_a.service", f"sglang-{name}_b.service"


def watch_unit(name: str = "") -> str:
    """Its watch; without a name the template of all watches."""
    return f"sglang-watch@{name}.service"


def build_unit(key: str) -> str:
    """Transient, of a kernel build; its name is the lock of this key on this host."""
    return f"sglangctl-build-{key}.service"


def build_work_unit(key: str) -> str:
    """Transient: what the build user does of that build."""
    return f"sglangctl-build-{key}-work.service"


def preflight_unit(name: str) -> str:
    """For a moment: the staged engine's parser and imports, in the engine's own sandbox."""
    return f"sglangctl-preflight-{name}.service"


def collective_unit(name: str) -> str:
    """For some minutes: all-reduces on the engine's GPUs, by its own torch."""
    return f"sglangctl-collective-{name}.service"


def is_helper(unit: str) -> bool:
    """Whether a unit is one of sglangctl's own that is no engine."""
    return _HELPER.fullmatch(unit) is not None
