"""A report of two hosts, as report.json has it: one replaced vLLM's engine, one went back."""

from __future__ import annotations

from typing import Any


def measured(day: str, single: float, together: float) -> dict[str, Any]:
    """An accepted load."""
    speeds = [
        {"concurrency": 1, "tokens_per_s": single, "first_p50_s": 0.28, "pace_p50_s": 1 / single},
        {"concurrency": 8, "tokens_per_s": together, "first_p50_s": 0.4, "pace_p50_s": 0.016},
    ]
    time = f"{day}T10:00:00+00:00"
    return {"time": time, "version": "0.5.23", "release": "b98a0910319b77", "speeds": speeds}


def document() -> dict[str, Any]:
    switched = [
        {"t": 0.1, "text": "recorded vllm-kimi.service: active, enabled, ports 8000, serves kimi"},
        {"t": 0.4, "step": "freeing"},
        {"t": 1.0, "text": "vllm-kimi.service: stopped, 5.8 s"},
        {"t": 6.4, "step": "moving"},
        {"t": 6.6, "step": "starting"},
        {"t": 7.0, "step": "following"},
        {"t": 118.0, "step": "committing"},
        {"t": 119.0, "text": "chat is ready: release b98a0910319b is kept"},
    ]
    speeds = [
        {"concurrency": 1, "tokens_per_s": 82.5, "first_p50_s": 0.3, "pace_p50_s": 0.012},
        {"concurrency": 8, "tokens_per_s": 402.5, "first_p50_s": 0.5, "pace_p50_s": 0.02},
    ]
    ready = {
        "engine": "chat",
        "outcome": "ready",
        "exit": 0,
        "sentence": "chat is ready",
        "phases": {"launching": 0.6, "importing": 31.0, "loading": 34.0, "capturing": 20.8},
        "served_after_s": 86.4,
        "gpu_memory": [(t, min(780000.0, t * 22000.0)) for t in range(1, 112, 2)],
        "generate": {
            "tokens_per_s": 82.5,
            "ttft_s": 0.31,
            "accept_length": 2.71,
            "acceptance": {
                "speeds": speeds,
                "worse": ["one at a time 82.5 tokens/s instead of 101.0"],
                "compared_with": "2026-11-29T10:00:00Z",
                "kept": False,
                "before": {
                    "who": "vllm-kimi.service",
                    "speeds": [{"concurrency": 1, "tokens_per_s": 63.6, "first_p50_s": 0.4}],
                },
                "answers": {"said": "6 of 6 answers begin as before, 0.004 nats a token"},
            },
        },
        "history": [measured("2026-11-27", 96.0, 500.0), measured("2026-11-29", 101.0, 520.5)],
        "checks": [{"name": "main process", "passed": True, "detail": "runs"}],
        "evidence": [],
        "next_step": None,
    }
    back = [
        {"t": 0.2, "step": "freeing"},
        {"t": 2.5, "step": "starting"},
        {"t": 2.7, "step": "following"},
        {"t": 8.0, "text": "going back: it failed while importing"},
        {"t": 40.0, "text": "release 02a018ea3939 of chat serves again"},
    ]
    failed = {
        "engine": "chat",
        "outcome": "failed",
        "exit": 1,
        "sentence": "it failed while importing: the model's folder is not there",
        "phases": {"launching": 0.6, "importing": 4.6},
        "served_after_s": None,
        "gpu_memory": [],
        "generate": None,
        "checks": [],
        "evidence": ["log: OSError: <script>document.title='ran'</script> \x1b[31m&"],
        "next_step": "compare `model.path` with the host",
    }
    plan = {"engine": "chat", "ends": [], "fails": [], "notes": []}
    return {
        "v": 1,
        "deploy": "sglang",
        "time": "2026-11-30T11:30:00Z",
        "report": [
            {
                "host": "gpu1",
                "outcome": "ok",
                "messages": [],
                "operations": [{"name": "Host | sglangctl", "success": True, "changed": True}],
                "engines": [ready],
                "lists": {
                    "restart of chat": ["-max-total-tokens: 8192", "+max-total-tokens: 4096"]
                },
                "choices": [{**plan, "action": "REPLACE", "reasons": ["no release is live yet"]}],
                "switches": {"chat": switched},
            },
            {
                "host": "gpu2",
                "outcome": "failed",
                "messages": [
                    "chat: it failed while importing\n> log: <img src=x onerror=alert(1)>"
                ],
                "operations": [{"name": "Readiness | chat", "success": None, "changed": None}],
                "engines": [failed],
                "lists": {},
                "choices": [{**plan, "action": "RESTART", "reasons": ["path /a -> /b"]}],
                "switches": {"chat": back},
            },
        ],
    }
