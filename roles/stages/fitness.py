"""Whether anything can be done on a host: nothing wrong in the inventory, root, systemd."""

from __future__ import annotations

from typing import Any

from pyinfra.context import host, state

from roles.inventory.errors import Need
from roles.remote.failing import WRONG, fail_host
from roles.report.report import report_once
from roles.stages.deploy_file import as_module

NO_ENGINE = "no engine of the inventory is on this host"


def inventory_is_right(deploy: str, need: Need) -> bool:
    """Whether nothing that is needed is wrong in the inventory; else the host has failed."""
    report_once(deploy)
    as_module(state.current_deploy_filename)
    mistakes = host.data.get("sglang_mistakes")
    if mistakes is None:
        fail_host(
            "this host has no engines in the inventory: use inventory.py of this checkout, or give "
            "the host its data with roles.entry.hosts"
        )
        return False
    errors = [mistake.text for mistake in mistakes if mistake.need <= need]
    if errors:
        fail_host("\n".join([WRONG, *errors]))
    return not errors


def host_is_fit(facts: dict[str, Any] | None, deploy: str) -> bool:
    """Whether something can be done on this host; else it has failed."""
    if facts is None:
        return False
    unfit = why_unfit(facts, deploy)
    if unfit:
        fail_host("\n".join(unfit))
    return not unfit


def why_unfit(facts: dict[str, Any], deploy: str) -> list[str]:
    """Why nothing can be done on this host, a sentence each; empty when something can."""
    found = []
    if facts.get("uid") != 0:
        found.append(
            f"{deploy} needs root on the host: set `ssh: {{user: root}}` or `sudo: true` for it"
        )
    if facts.get("systemd") is None:
        reason = (facts.get("reasons") or {}).get("systemd", "it does not answer")
        found.append(f"{deploy} needs a host that is run by systemd: {reason}")
    if deploy in ("verify", "collective") and facts.get("program") is None:
        found.append("nothing was deployed to this host yet (no sglangctl): deploys/sglang.py does")
    return found
