"""Units as systemd would show them."""

from __future__ import annotations

from sglangctl.systemd.unit import Unit


def unit(
    active: str = "active",
    sub: str = "running",
    result: str = "success",
    invocation_id: str = "aa",
    restarts: int = 0,
    job: bool = False,
    exit_status: int | None = None,
    name: str = "sglang-tiny.service",
    **more: str,
) -> Unit:
    """A unit that is loaded; `exit_status` of its last main process, None: none has ended."""
    properties = {
        "Id": name,
        "LoadState": "loaded",
        "ActiveState": active,
        "SubState": sub,
        "Result": result,
        "InvocationID": invocation_id,
        "NRestarts": str(restarts),
        "Job": "4711" if job else "",
    }
    if exit_status is not None:
        properties |= {
            "ExecMainPID": "7",
            "ExecMainCode": "2" if exit_status < 0 else "1",
            "ExecMainStatus": str(abs(exit_status)),
            "ExecMainExitTimestampMonotonic": "1000000",
        }
    return Unit(name, {**properties, **more})


def watch(active: str = "active") -> Unit:
    """The watch's unit."""
    return unit(active, name="sglang-watch@tiny.service")
