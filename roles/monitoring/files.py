"""The files of ours on the host of Prometheus. Pure but for reading the rules."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from roles.host.managed import Managed, ManagedDirectory, ManagedFile
from roles.inventory.shipped import TEMPLATES
from roles.monitoring import dashboard
from roles.monitoring.targets import Monitoring, file_sd

MAIN = "/etc/prometheus/prometheus.yml"
FOLDER = "/etc/prometheus/sglang"
RULES = f"{FOLDER}/rules.yml"
ENGINES, NODES = f"{FOLDER}/engines.json", f"{FOLDER}/nodes.json"
DASHBOARDS = f"{FOLDER}/grafana"
DASHBOARD = f"{DASHBOARDS}/sglang.json"
PENDING = f"{FOLDER}/.reload"
"""Is there from before the first change of what Prometheus reads when it is told to, until it was told."""
PROVISIONING = "/etc/grafana/provisioning"
PORT = 9090
"""Of Debian's Prometheus."""


def job(name: str, file: str) -> dict[str, Any]:
    # The timeout too: a longer one of all jobs may not be above the interval.
    return {
        "job_name": name,
        "scrape_interval": "15s",
        "scrape_timeout": "10s",
        "file_sd_configs": [{"files": [file]}],
    }


NAMES_AS_THEY_ARE = {
    "metric_relabel_configs": [
        {
            "source_labels": ["__name__"],
            "regex": "sglang_(.+)",
            "target_label": "__name__",
            "replacement": "sglang:$1",
        }
    ]
}
"""To a Prometheus that asks for OpenMetrics, SGLang writes `sglang_...` for `sglang:...` (seen with 0.5.23
and Debian 12's Prometheus 2.42); to others it does not."""
ITEMS: Mapping[str, Sequence[Any]] = {
    "rule_files": [RULES],
    "scrape_configs": [{**job("sglang", ENGINES), **NAMES_AS_THEY_ARE}, job("sglang-node", NODES)],
}
"""What prometheus.yml gets. Targets are files, which Prometheus reads again by itself."""


def rules() -> ManagedFile:
    """The rules, which promtool looks at before they are put in place."""
    return ManagedFile(RULES, (TEMPLATES / "monitoring" / "rules.yml").read_bytes())


def targets(monitoring: Monitoring) -> tuple[Managed, ...]:
    """What is asked, and the dashboard, for a Grafana anywhere."""
    return (
        ManagedDirectory(FOLDER),
        ManagedDirectory(DASHBOARDS),
        ManagedFile(ENGINES, file_sd(monitoring.engines)),
        ManagedFile(NODES, file_sd(monitoring.nodes)),
        ManagedFile(DASHBOARD, dashboard.rendered()),
    )


def grafana() -> tuple[ManagedFile, ...]:
    """What a Grafana on the same host reads when it starts. JSON, which is YAML."""
    source = {
        "name": "sglang-prometheus",
        "uid": "sglang-prometheus",
        "type": "prometheus",
        "access": "proxy",
        "url": f"http://127.0.0.1:{PORT}",
        "editable": False,
    }
    provider = {
        "name": "sglang-provision",
        "type": "file",
        "folder": "SGLang",
        "options": {"path": DASHBOARDS},
    }
    return (
        provisioning("datasources", {"datasources": [source]}),
        provisioning("dashboards", {"providers": [provider]}),
    )


def provisioning(kind: str, content: dict[str, Any]) -> ManagedFile:
    text = "# Written by sglang-provision.\n" + json.dumps({"apiVersion": 1, **content}, indent=2)
    return ManagedFile(f"{PROVISIONING}/{kind}/sglang-provision.yaml", f"{text}\n".encode())
