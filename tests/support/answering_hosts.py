"""pyinfra's hosts without a network: each is connected to at once, and answers the probe of deploys/sglang.py
as a host on which nothing is to be done. For an inventory file of a test; `among` plants what goes wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from pyinfra.api import StringCommand
from pyinfra.connectors.ssh import SSHConnector
from pyinfra.connectors.util import CommandOutput, OutputLine

from roles.inventory.model import HostSpec
from roles.remote import program
from roles.remote.snapshot import BEGINS
from roles.stages.desired import DesiredHost, make
from sglangctl.systemd.unit_names import RESUME_AT_BOOT
from tests.support.host_facts import as_it_should_be, facts_of


def answer(desired: DesiredHost) -> dict[str, Any]:
    """What the probe says of a host that is as `desired`."""
    rights = {"mode": "0755", "owner": "root", "group": "root"}
    files: dict[str, Any] = {item.path: as_it_should_be(item) for item in desired.managed}
    files[program.FOLDER] = {"kind": "directory", **rights}
    files[program.path()] = {"kind": "other", **rights}
    files[program.LINK] = {"kind": "link", "target": program.path()}
    files[RESUME_AT_BOOT] = {"kind": "link", "target": "x"}
    document: dict[str, Any] = {"v": 1, "uid": 0, "systemd": "252", "engines": {}}
    for engine in desired.engines:
        unit = {"ActiveState": "active", "UnitFileState": "enabled", "InvocationID": "a1"}
        about = facts_of(
            engine,
            unit={**unit, "NeedDaemonReload": "no", "started": 1.8e9},
            watch={"ActiveState": "active", "started": 1.8e9},
            last={"start": "1-a1", "outcome": "ready"},
            releases={"current": engine.release.digest, "staged": [engine.release.digest]},
        )
        files.update(about["files"])
        document["engines"].update(about["engines"])
        document["time"] = about["time"]
    return {
        **document,
        "files": files,
        "users": {one.spec.user: {"group": one.spec.user} for one in desired.engines},
        "venvs": {one.venv.path: {"wrong": None, "starts": True} for one in desired.engines},
    }


def among(
    connect: Callable[[str], None] = lambda name: None,
    answered: Callable[[str], None] = lambda name: None,
    disconnect: Callable[[str], None] = lambda name: None,
) -> None:
    """From now on in this process. Each is called with a host's name, and may raise."""

    def said(self: SSHConnector, command: StringCommand, **_: Any) -> tuple[bool, CommandOutput]:
        answered(self.host.name)
        spec: HostSpec = self.host.data.get("sglang_host")
        lines = [BEGINS, json.dumps(answer(make(spec)))]
        return True, CommandOutput([OutputLine("stdout", line) for line in lines])

    SSHConnector.connect = lambda self: connect(self.host.name)
    SSHConnector.disconnect = lambda self: disconnect(self.host.name)
    SSHConnector.run_shell_command = said
