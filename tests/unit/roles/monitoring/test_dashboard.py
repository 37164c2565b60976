"""The dashboard: what Prometheus is asked exists, in its own rules or in what is scraped."""

from __future__ import annotations

import json
import re

import yaml

from roles.monitoring import dashboard, files
from sglangctl.report.metrics import NAMES

NAME = re.compile(r"\b[a-z_]+(?::[a-z0-9_]+)+|\b(?:sglang|node)_[a-zA-Z_]+")


def test_every_name_is_recorded_or_written_by_us() -> None:
    groups = yaml.safe_load(files.rules().content)["groups"]
    recorded = {rule["record"] for group in groups for rule in group["rules"] if "record" in rule}
    used = {name for one in dashboard.expressions() for name in NAME.findall(one)}
    ours = {name for name in used if not name.startswith("node_")}
    assert ours <= recorded | set(NAMES)
    assert {"engine:generation_tokens:rate2m", "sglang_engine_outcome"} <= ours
    # What is recorded is shown, or is an alert's.
    alerts = " ".join(rule.get("expr", "") for group in groups for rule in group["rules"])
    assert all(name in used or name in alerts for name in recorded)


def test_rules_use_metrics_that_we_write() -> None:
    text = files.rules().content.decode()
    assert set(re.findall(r"\bsglang_(?:engine|gpu)_\w+", text)) <= set(NAMES)


def test_it_is_a_document_that_grafana_imports() -> None:
    document = json.loads(dashboard.rendered())
    panels = document["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels) == len(dashboard.PANELS)
    places = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels}
    assert len(places) == len(panels) and all(x + dashboard.WIDTH <= 24 for x, _ in places)
    assert {one["name"] for one in document["templating"]["list"]} == {"source", "host", "engine"}
    shown = [target["expr"] for panel in panels for target in panel["targets"]]
    assert len(shown) == len(dashboard.expressions())
    assert not any("$" in one for one in dashboard.expressions())


def test_what_grafana_reads_when_it_starts_is_yaml() -> None:
    source, provider = (yaml.safe_load(one.content) for one in files.grafana())
    assert source["datasources"][0]["url"] == "http://127.0.0.1:9090"
    assert provider["providers"][0]["options"]["path"] == files.DASHBOARDS
