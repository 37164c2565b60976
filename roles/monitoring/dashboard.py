"""The dashboard for Grafana: every expression is in PANELS. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

UID = "sglang-provision"
CHOSEN = 'host=~"$host",engine=~"$engine"'
"""The variables at the top of the dashboard."""
OURS = f'job="sglang-node",{CHOSEN}'
"""What the watches write: another job may read the same node_exporter."""
SOURCE = {"type": "prometheus", "uid": "${source}"}
WIDTH, HEIGHT = 8, 7
"""Of a panel, in Grafana's grid of 24 columns."""


@dataclass(frozen=True)
class Panel:
    """A title, a unit of Grafana's, and (expression, legend) each; `kind` is Grafana's type."""

    title: str
    unit: str
    shows: tuple[tuple[str, str], ...]
    kind: str = "timeseries"
    description: str = ""


ENGINE = "{{host}} {{engine}}"


def each(*series: str, among: str = CHOSEN) -> tuple[tuple[str, str], ...]:
    """(expression, legend) of what each engine has: a metric, and a word for it where there are more."""
    words = [one.partition(", ") for one in series]
    return tuple((f"{name}{{{among}}}", f"{ENGINE}{comma}{word}") for name, comma, word in words)


PANELS = (
    Panel(
        "Outcome",
        "none",
        ((f"sglang_engine_outcome{{{OURS}}} == 1", "{{host}} {{engine}}: {{outcome}}"),),
        "stat",
        "What the watch says of each engine: docs/troubleshooting.md has the words.",
    ),
    Panel(
        "Alerts",
        "none",
        (
            (
                'ALERTS{alertname=~"Sglang.*",alertstate="firing"}',
                "{{alertname}} {{host}} {{engine}}",
            ),
        ),
        "stat",
    ),
    Panel(
        "Live release",
        "none",
        ((f"sglang_engine_info{{{OURS}}}", "{{host}} {{engine}}: {{version}} {{release}}"),),
        "stat",
    ),
    Panel("Generated tokens per second", "none", each("engine:generation_tokens:rate2m")),
    Panel(
        "Prompt tokens per second",
        "none",
        (
            (f"engine:prompt_tokens:rate2m{{{CHOSEN}}}", ENGINE),
            (
                f"engine:prompt_tokens:rate2m{{{CHOSEN}}} * engine:prompt_tokens_cached:ratio5m{{{CHOSEN}}}",
                f"{ENGINE}, cached",
            ),
        ),
    ),
    Panel("Requests per second", "reqps", each("engine:requests:rate2m")),
    Panel(
        "Requests at work and waiting",
        "none",
        each("engine:running_requests:sum, at work", "engine:queued_requests:sum, waiting"),
    ),
    Panel(
        "Time to first token",
        "s",
        each(
            "engine:first_token_seconds:p50_5m, median", "engine:first_token_seconds:p95_5m, 95 %"
        ),
    ),
    Panel("Time between tokens, 95 %", "s", each("engine:inter_token_seconds:p95_5m")),
    Panel("Time of a request, 95 %", "s", each("engine:request_seconds:p95_5m")),
    Panel("Key/value cache in use", "percentunit", each("engine:cache_usage:max")),
    Panel(
        "Answers with an error of the engine",
        "percentunit",
        each("engine:server_errors:ratio5m"),
        description="Status 5xx among all answers.",
    ),
    Panel(
        "Tokens accepted from the drafter",
        "none",
        each("engine:accept_length:avg"),
        description="1.0: it does not help.",
    ),
    Panel(
        "Speed of the last proof beside the accepted one",
        "none",
        (
            (f"sglang_engine_proof_tokens_per_second{{{OURS}}}", f"{ENGINE}, proof"),
            (
                f'sglang_engine_accepted_tokens_per_second{{{OURS},concurrency="1"}}',
                f"{ENGINE}, accepted",
            ),
        ),
    ),
    Panel(
        "Phases of the last start",
        "s",
        ((f"sglang_engine_phase_seconds{{{OURS}}}", f"{ENGINE} {{{{phase}}}}"),),
        "bargauge",
    ),
    Panel(
        "Restarts and alarms",
        "none",
        each("sglang_engine_restarts, restarts", "sglang_engine_alarms, alarms", among=OURS),
    ),
    Panel(
        "GPU memory",
        "percentunit",
        (
            (
                f"sglang_gpu_memory_used_bytes{{{OURS}}} / sglang_gpu_memory_total_bytes{{{OURS}}}",
                "{{host}} GPU {{gpu}}",
            ),
        ),
    ),
    Panel(
        "GPU utilization",
        "percentunit",
        ((f"sglang_gpu_utilization_ratio{{{OURS}}}", "{{host}} GPU {{gpu}}"),),
    ),
    Panel(
        "GPU power",
        "watt",
        ((f"sglang_gpu_power_watts{{{OURS}}}", "{{host}} GPU {{gpu}}"),),
    ),
    Panel(
        "Processors of the host",
        "percentunit",
        (
            (
                '1 - avg by (host) (rate(node_cpu_seconds_total{job="sglang-node",mode="idle",host=~"$host"}[2m]))',
                "{{host}}",
            ),
        ),
    ),
    Panel(
        "Memory available on the host",
        "bytes",
        (('node_memory_MemAvailable_bytes{job="sglang-node",host=~"$host"}', "{{host}}"),),
    ),
)


def document() -> dict[str, Any]:
    """What Grafana imports."""
    return {
        "uid": UID,
        "title": "SGLang",
        "description": "Written by sglang-provision: changes here are overwritten.",
        "schemaVersion": 38,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {
            "list": [
                {"name": "source", "type": "datasource", "query": "prometheus", "label": "Source"},
                variable("host", 'label_values(up{job="sglang-node"}, host)'),
                variable("engine", 'label_values(sglang_engine_info{host=~"$host"}, engine)'),
            ]
        },
        "panels": [panel(number, one) for number, one in enumerate(PANELS)],
    }


def variable(name: str, query: str) -> dict[str, Any]:
    return {
        "name": name,
        "label": name.capitalize(),
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": query, "refId": name},
        "definition": query,
        "refresh": 2,
        "includeAll": True,
        "multi": True,
        "current": {"text": "All", "value": "$__all"},
    }


def panel(number: int, one: Panel) -> dict[str, Any]:
    across = 24 // WIDTH
    # What is shown as text says it in its legend.
    instant = one.kind != "timeseries"
    options = {"textMode": "name"} if one.kind == "stat" else {}
    return {
        "id": number + 1,
        "type": one.kind,
        "title": one.title,
        "description": one.description,
        "datasource": SOURCE,
        "gridPos": {
            "x": number % across * WIDTH,
            "y": number // across * HEIGHT,
            "w": WIDTH,
            "h": HEIGHT,
        },
        "fieldConfig": {"defaults": {"unit": one.unit, "min": 0}, "overrides": []},
        "options": options,
        "targets": [
            {
                "refId": chr(ord("A") + index),
                "datasource": SOURCE,
                "expr": expression,
                "legendFormat": legend,
                "instant": instant,
                "range": not instant,
            }
            for index, (expression, legend) in enumerate(one.shows)
        ],
    }


def expressions() -> list[str]:
    """Every expression of the dashboard, with all hosts and engines chosen."""
    found = [expression for one in PANELS for expression, _ in one.shows]
    return [one.replace("$host", ".*").replace("$engine", ".*") for one in found]


def rendered() -> bytes:
    return (json.dumps(document(), indent=1) + "\n").encode()
