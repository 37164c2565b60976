"""Writes the traces seed-*: three states of real starts on eight 97 GB GPUs that people took
for a hang, as a watcher sees them. Run it again after a change; the result is committed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
RANKS = 8
TOTAL_MIB = 97887
ARGV = [
    *("/opt/engine/venv/bin/python", "-m", "sglang.launch_server"),
    *("--model-path", "/models/target", "--tp-size", "8", "--port", "8000"),
    *("--mem-fraction-static", "0.85"),
]


def event(t: float, kind: str, **fields: Any) -> dict[str, Any]:
    return {"t": round(t, 2), "kind": kind, **fields}


def gpus(t: float, used_mib: int) -> dict[str, Any]:
    return event(
        t,
        "gpu",
        gpus=[
            {
                "index": index,
                "memory_used_mib": used_mib,
                "memory_total_mib": TOTAL_MIB,
                "utilization_pct": 0,
                "power_w": 84,
            }
            for index in range(RANKS)
        ],
    )


def processes(t: float, cpu_s: float, read_bytes: int, state: str, titled: bool) -> dict[str, Any]:
    main = {"pid": 4000, "name": " ".join(ARGV), "state": "S", "cpu_s": 31.0}
    listed: list[dict[str, Any]] = [{**main, "read_bytes": 210_000_000, "rss_mib": 1040}]
    for rank in range(RANKS):
        name = f"sglang::scheduler_TP{rank}" if titled else "python -B -c from multiprocessing"
        listed.append(
            {
                "pid": 4100 + rank,
                "name": name,
                "state": state,
                "cpu_s": cpu_s,
                "read_bytes": read_bytes,
                "rss_mib": 2300,
            }
        )
    return event(t, "process", processes=listed)


def stamp(t: float, rank: int | None = None) -> str:
    where = "" if rank is None else f" TP{rank}"
    return f"[2026-11-29 15:{40 + int(t) // 60:02d}:{int(t) % 60:02d}{where}] "


def refused(t: float) -> dict[str, Any]:
    return event(
        t, "http", path="/health", status=None, error="ConnectionRefusedError", seconds=0.0
    )


def begin(until: float) -> list[dict[str, Any]]:
    """Imports of the main process, then of the ranks."""
    events = [event(0, "launch", v=1, argv=ARGV), gpus(0.1, 2)]
    t = 1.0
    while t < until:
        events += [refused(t), gpus(t + 0.1, 2)]
        events.append(processes(t + 0.2, t, int(t * 1e7), "R", False))
        t += 5.0
    return events


def load(events: list[dict[str, Any]], t: float) -> float:
    """Rendezvous and the beginning of the load."""
    for rank in range(RANKS):
        events.append(event(t, "log", data=stamp(t, rank) + "Init torch distributed begin.\n"))
    t += 6.0
    events.append(gpus(t, 1600))
    for rank in range(RANKS):
        events.append(
            event(t, "log", data=stamp(t, rank) + "Load weight begin. avail mem=93.41 GB\n")
        )
    return t


def bar(t: float, done: int) -> dict[str, Any]:
    text = (
        f"\rLoading safetensors checkpoint shards: {done * 100 // 64:3d}% Completed "
        f"| {done}/64 [00:00<?, ?it/s]"
    )
    return event(t, "log", data=text)


def silence(events: list[dict[str, Any]], t: float, until: float, used: int, cpu: float) -> None:
    """Everything flat, all processes asleep; the probes go on."""
    while t < until:
        events += [refused(t), gpus(t + 0.1, used), processes(t + 0.2, cpu, 70 * 10**9, "S", True)]
        t += 10.0
    events.sort(key=lambda item: item["t"])


def one_of_64() -> tuple[list[dict[str, Any]], dict[str, Any]]:
    events = begin(40.0)
    t = load(events, 42.0)
    events += [bar(t + 1, 0), bar(t + 20, 1)]
    for step in range(1, 39):
        used = 1600 + step * 2006
        events += [gpus(t + 20 + step * 3, used)]
        events += [processes(t + 20.1 + step * 3, 50.0 + step, step * 18 * 10**8, "R", True)]
    t += 20 + 39 * 3
    silence(events, t, t + 240, 77824, 88.0)
    expected = {
        "engine": "sglang",
        "outcome": "pending",
        "phase": "loading",
        "until_s": t + 240,
        "stalled_by_s": t + 310,
        "why": "1 of 64 shards in the log, 76 of 97 GB used on each of 8 GPUs at 0 %",
    }
    return events, expected


def all_of_64() -> tuple[list[dict[str, Any]], dict[str, Any]]:
    events = begin(40.0)
    t = load(events, 42.0)
    for done in range(65):
        t += 4.0
        events += [bar(t, done), gpus(t + 0.1, 1600 + done * 1190)]
        events += [processes(t + 0.2, 50.0 + done * 3, done * 11 * 10**8, "R", True)]
    silence(events, t + 1, t + 240, 77760, 245.0)
    expected = {
        "engine": "sglang",
        "outcome": "pending",
        "phase": "loading",
        "until_s": t + 240,
        "stalled_by_s": t + 310,
        "why": "64 of 64 shards, then 4 minutes of silence",
    }
    return events, expected


def debug_log() -> tuple[list[dict[str, Any]], dict[str, Any]]:
    events = begin(40.0)
    t = 42.0
    for name in ("midashenglm", "inkling", "falcon_mamba", "mamba"):
        text = f"Ignore import error when loading sglang.srt.models.{name}: No module named 'x'\n"
        for rank in range(RANKS):
            events.append(event(t, "log", data=stamp(t, rank) + text))
        t += 1.0
    for step in range(1, 39):
        events += [gpus(t + step * 3, step * 2048)]
        events += [processes(t + 0.1 + step * 3, 50.0 + step, step * 18 * 10**8, "R", True)]
    t += 39 * 3
    silence(events, t, t + 240, 77824, 88.0)
    expected = {
        "engine": "sglang",
        "outcome": "pending",
        "phase": "loading",
        "until_s": t + 240,
        "stalled_by_s": t + 310,
        "why": "a debug log that ends in import warnings, 8 x 76 GB, 0 %, all processes asleep",
    }
    return events, expected


def main() -> None:
    for name, (events, expected) in {
        "seed-1-of-64-shards": one_of_64(),
        "seed-64-of-64-then-silence": all_of_64(),
        "seed-import-warnings-then-silence": debug_log(),
    }.items():
        folder = HERE / name
        folder.mkdir(exist_ok=True)
        lines = [json.dumps(item, separators=(",", ":")) for item in events]
        (folder / "journal.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
        (folder / "expected.json").write_text(json.dumps(expected, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
