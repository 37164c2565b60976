"""Operation that proves that an engine's GPUs add up. It changes nothing but what is kept of that."""

from __future__ import annotations

import json
from typing import Any

from pyinfra.api import Host
from pyinfra.context import host

from roles.engine.profiles import uses_auto
from roles.inventory import auto_profile
from roles.inventory.model import EngineSpec
from roles.remote import program
from roles.remote.failing import HostFailed, say
from roles.remote.link import Answer, Link
from roles.remote.operation import Commands, operation
from roles.remote.over_link import over_link
from roles.remote.steps import signs_of_life
from roles.report.result import keep
from sglangctl.util.values import json_object, mapping, texts, whole

LIMIT_S = 2 * 3600.0
"""For all arms: sglangctl ends each world itself long before."""


@operation(is_idempotent=False)
def added_up(
    engine: EngineSpec, sudo: bool = False, ctl: tuple[str, ...] = (program.LINK,)
) -> Commands:
    """
    Run all-reduces on an engine's GPUs, with the profiles that `nccl.profile: auto` chooses from.

    Fails this host where the engine's own setting is not right, and where somebody has a GPU.

    + engine: it must be down
    + sudo: whether sglangctl needs it on this host
    + ctl: how sglangctl is called on the host
    """
    if engine.tensor_parallel < 2:
        host.noop(f"{engine.name} has one rank: nothing to add up")
        return
    profiles = auto_profile.candidates(engine.nccl) if uses_auto(engine) else {}

    def run(link: Link) -> None:
        argv = [*ctl, "collective", engine.name, "--json", "--profiles=-"]
        with signs_of_life(link.host, f"{engine.name}: all-reduces"):
            answer = link.run(*argv, wait_s=LIMIT_S, stdin=json.dumps(profiles))
        conclude(link.host, engine, answer)

    yield over_link(run, sudo, interrupted(engine.name))


def conclude(target: Host, engine: EngineSpec, answer: Answer) -> None:
    """Print and keep what was found out; HostFailed where it is not right."""
    found = document(answer)
    lines = texts(found.get("lines"))
    if not lines:
        raise HostFailed("\n".join(answer.errors) or f"{engine.name}: sglangctl gave no answer")
    keep(target, f"{engine.name}: collective", lines)
    if whole(found.get("exit")) != 0:
        raise HostFailed("\n".join(lines))
    for number, line in enumerate(lines):
        say(target, line, fg=None if number else "green")
    if uses_auto(engine):
        say(target, f"{engine.name}: the next deploy chooses nccl.profile by this")


def document(answer: Answer) -> dict[str, Any]:
    """What sglangctl said; empty where that is no document."""
    return mapping(json_object("\n".join(answer.lines)).get("collective"))


def interrupted(name: str) -> str:
    """What Ctrl-C says."""
    return (
        "interrupted: the all-reduces go on on the host and are kept; see what comes of them with: "
        f"sglangctl collective {name} --show"
    )
