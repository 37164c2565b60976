"""What the system's journal says of a run: only what systemd itself wrote."""

from __future__ import annotations

import json

import pytest

from sglangctl.proc import command
from sglangctl.proc.command import Result
from sglangctl.systemd import unit_run

STOPPING = {"MESSAGE_ID": unit_run.UNIT_STOPPING, "INVOCATION_ID": "a1"}


def journalctl(entries: list[dict[str, str]], argv: list[str]) -> str:
    """Those that fit all fields; values of one field are alternatives."""
    wanted: dict[str, set[str]] = {}
    for word in argv:
        if not word.startswith("-") and "=" in word:
            name, _, value = word.partition("=")
            wanted.setdefault(name, set()).add(value)
    fitting = [one for one in entries if all(one.get(n) in v for n, v in wanted.items())]
    return "\n".join(map(json.dumps, fitting))


@pytest.mark.parametrize(
    ("trusted", "stopped"),
    [
        ({"_PID": "1", "_UID": "0", "_TRANSPORT": "journal"}, True),
        # What `logger --journald` leaves of a user, of root, of a service.
        ({"_PID": "812", "_UID": "1000", "_TRANSPORT": "journal"}, False),
        ({"_PID": "812", "_UID": "0", "_TRANSPORT": "journal"}, False),
        ({"_PID": "1", "_UID": "0", "_TRANSPORT": "stdout"}, False),
    ],
)
def test_a_stop_is_what_systemd_wrote(
    trusted: dict[str, str], stopped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(argv: list[str], timeout_s: float = 30.0) -> Result:
        if argv[0] == "systemctl":
            return Result(0, "", "")
        return Result(0, journalctl([{**STOPPING, **trusted}], argv[1:]), "")

    monkeypatch.setattr(command, "run", run)
    monkeypatch.setattr(unit_run.systemctl, "run", run)
    assert unit_run.being_stopped("sglang-e.service", "a1") is stopped
