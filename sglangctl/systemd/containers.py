"""Containers through their own engine's command: docker, podman or nerdctl."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sglangctl.proc import command

COMMANDS = ("docker", "podman", "nerdctl")
TIMEOUT_S = 10.0


@dataclass(frozen=True)
class Container:
    """One container. `restart` is its restart policy (`no`, `always`, ...), "" if unknown."""

    id: str
    name: str
    command: str
    restart: str = ""


def names(wanted: Mapping[str, str | None]) -> dict[str | None, str]:
    """Id -> name of those that an engine on this host knows."""
    return {found.id: found.name for found in inspect(wanted).values()}


def inspect(wanted: Mapping[str, str | None]) -> dict[str, Container]:
    """Id -> container, for ids with the command that probably knows them (None: try all)."""
    found: dict[str, Container] = {}
    for program in COMMANDS:
        ids = [key for key, engine in wanted.items() if key not in found]
        ids = [key for key in ids if wanted[key] in (None, program)]
        if ids and shutil.which(program):
            # An unknown id makes the status 1, and the others are still printed.
            result = command.run([program, "inspect", "--type=container", "--", *ids], TIMEOUT_S)
            for container in parse(result.stdout, program):
                found[container.id] = container
    return found


def parse(text: str, command: str) -> list[Container]:
    """The answer of `inspect`; docker, podman and nerdctl agree on these fields."""
    try:
        documents = json.loads(text or "[]")
    except ValueError:
        return []
    found = []
    for document in documents if isinstance(documents, list) else []:
        if not isinstance(document, dict) or not isinstance(document.get("Id"), str):
            continue
        host = _part(_part(document, "HostConfig"), "RestartPolicy")
        found.append(
            Container(
                id=document["Id"],
                name=str(document.get("Name", "")).lstrip("/"),
                command=command,
                restart=str(host.get("Name") or "no"),
            )
        )
    return found


def stop(container: Container, seconds: int, timeout_s: float) -> command.Result:
    """`docker stop`: SIGTERM, after `seconds` SIGKILL; its restart policy does not bring it back
    before the engine itself restarts."""
    argv = [container.command, "stop", f"--time={seconds}", "--", container.id]
    return command.run(argv, timeout_s)


def start(program: str, identity: str, timeout_s: float) -> command.Result:
    """`docker start` (or podman, nerdctl) of a container that was stopped."""
    return command.run([program, "start", "--", identity], timeout_s)


def start_later(program: str, identity: str) -> command.Result:
    """The same in a unit of its own, which a boot does not wait for: it follows the container
    engine's daemon, and stays `failed` where the start fails."""
    argv = ["systemd-run", "--quiet", "--no-block", f"--unit=sglangctl-start-{identity[:12]}"]
    argv += ["--property=Type=oneshot", "--property=After=docker.service containerd.service"]
    return command.run([*argv, "--", program, "start", "--", identity])


def _part(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = document.get(name)
    return part if isinstance(part, dict) else {}
