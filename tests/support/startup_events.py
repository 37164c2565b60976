"""Events of a start, in words: what the tests of the phase machine are written in."""

from __future__ import annotations

from typing import Any

from sglangctl.startup.assessment import Assessment
from sglangctl.startup.fold import Startup

ARGV = ["python", "-m", "sglang.launch_server", "--model-path", "/models/m", "--port", "30000"]
UVICORN = "INFO:     Uvicorn running on http://0.0.0.0:30000 (Press CTRL+C to quit)"


def launch(t: float = 0.0, **fields: Any) -> dict[str, Any]:
    return {"t": t, "kind": "launch", "argv": ARGV, **fields}


def raw(t: float, data: str) -> dict[str, Any]:
    return {"t": t, "kind": "log", "data": data}


def log(t: float, text: str, rank: str = "") -> dict[str, Any]:
    """One message of the engine's logger."""
    return raw(t, f"[2026-11-29 15:37:30{' ' + rank if rank else ''}] {text}\n")


def http(t: float, status: int | None, seconds: float = 1.0, **fields: Any) -> dict[str, Any]:
    error = None if status is not None else "ConnectionRefusedError"
    event = {"t": t, "kind": "http", "path": "/health", "status": status, "error": error}
    return {**event, "seconds": seconds, **fields}


def timeout(t: float, seconds: float = 20.0, **fields: Any) -> dict[str, Any]:
    return http(t, None, seconds, error="TimeoutError", **fields)


def process(pid: int, name: str, state: str = "S", cpu_s: float = 1.0) -> dict[str, Any]:
    item = {"pid": pid, "name": name, "state": state, "cpu_s": cpu_s}
    return {**item, "read_bytes": 1000, "rss_mib": 100}


def processes(t: float, *listed: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"t": t, "kind": "process", "processes": list(listed), **fields}


MAIN = process(1, "python -m sglang.launch_server --model-path /models/m")
TP0 = process(2, "sglang::scheduler_TP0")
TP1 = process(3, "sglang::scheduler_TP1")
DETOKENIZER = process(4, "sglang::detokenizer")


def gpus(t: float, *used_mib: float, busy: float = 0.0) -> dict[str, Any]:
    listed = [
        {
            "index": index,
            "memory_used_mib": used,
            "memory_total_mib": 97887,
            "utilization_pct": busy,
            "power_w": 80,
        }
        for index, used in enumerate(used_mib)
    ]
    return {"t": t, "kind": "gpu", "gpus": listed}


def generate(t: float, **fields: Any) -> dict[str, Any]:
    return {"t": t, "kind": "generate", "status": 200, "seconds": 0.5, "text_ok": True, **fields}


def exit_(t: float, returncode: int | None, **fields: Any) -> dict[str, Any]:
    return {"t": t, "kind": "exit", "returncode": returncode, **fields}


def socket(t: float, owner_pid: int | None, ours: bool | None) -> dict[str, Any]:
    return {"t": t, "kind": "socket", "port": 30000, "owner_pid": owner_pid, "ours": ours}


def traceback(t: float, *lines: str, rank: str = "TP0") -> dict[str, Any]:
    """The engine's own report that a scheduler ends with an exception."""
    text = "Scheduler hit an exception: Traceback (most recent call last):\n"
    frames = '  File "scheduler.py", line 1, in run\n    run()\n    ^^^^^\n'
    event = log(t, text.rstrip("\n"), rank)
    return {**event, "data": event["data"] + frames + "\n".join(lines) + "\n"}


def feed(startup: Startup, *events: dict[str, Any]) -> Assessment:
    """Feed all events; the last assessment."""
    for event in events:
        said = startup.feed(event)
    return said


def serving(t: float = 10.0, **fields: Any) -> Startup:
    """A start that serves since `t`, known by its own log."""
    startup = Startup()
    feed(startup, launch(**fields), log(t - 2, UVICORN), http(t, 200))
    return startup
