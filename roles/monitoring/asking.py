"""What node_exporter and Prometheus say of themselves, asked on their own host. Pure but for the command."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from pyinfra.api import StringCommand
from pyinfra.api.command import QuoteString

from roles.monitoring.files import PORT
from roles.monitoring.targets import NODE_PORT, Target
from sglangctl.state.paths import Paths
from sglangctl.util.values import json_object, mapping, mappings

NODE = f"http://127.0.0.1:{NODE_PORT}/metrics"
TARGETS = f"http://127.0.0.1:{PORT}/api/v1/targets?state=active"
GET = "import sys, urllib.request; sys.stdout.buffer.write(urllib.request.urlopen(sys.argv[1], timeout=10).read())"
OWN_FILE = re.compile(r'node_textfile_mtime_seconds\{file="(?:[^"]*/)?sglang-([a-z0-9-]+)\.prom"\}')
FAULT = re.compile(r"^node_textfile_scrape_error 1$", re.MULTILINE)


@dataclass(frozen=True)
class Found:
    """`settled`: asking again is of no use; `lines` for people; `fault`: the sentence of a failure."""

    settled: bool
    lines: tuple[str, ...] = ()
    fault: str | None = None


def get(url: str) -> StringCommand:
    """GET it on the host; python3 is there, curl may not be."""
    return StringCommand("python3 -I -c", QuoteString(GET), QuoteString(url))


def start(unit: str) -> StringCommand:
    return StringCommand("systemctl enable --now", QuoteString(unit))


def exporter(said: str, engines: Sequence[str]) -> Found:
    """Whether node_exporter serves the file of each engine."""
    if not said:
        return Found(
            False,
            fault=f"node_exporter does not answer at {NODE}: journalctl -u prometheus-node-exporter; "
            "with another --web.listen-address (/etc/default/prometheus-node-exporter) Prometheus does "
            f"not find it: it is asked at port {NODE_PORT}",
        )
    served = set(OWN_FILE.findall(said))
    missing = [name for name in engines if name not in served]
    lines = [f"{name}: its metrics are at {NODE}" for name in engines if name in served]
    if FAULT.search(said):
        fault = "node_exporter cannot read a file of its textfile folder: journalctl -u prometheus-node-exporter"
        return Found(False, tuple(lines), fault)
    lines += [
        f"{name}: not at {NODE} yet. Is it deployed, and is --collector.textfile.directory in "
        f"/etc/default/prometheus-node-exporter, if it is there, {Paths().textfile(name).parent}?"
        for name in missing
    ]
    return Found(not missing, tuple(lines))


def targets(said: str, wanted: Sequence[Target]) -> Found:
    """Whether Prometheus has asked all of `wanted`, and who does not answer."""
    active = mappings(mapping(json_object(said).get("data")).get("activeTargets"))
    if not active:
        return Found(
            False,
            fault=f"its configuration is in place, and Prometheus does not answer at 127.0.0.1:{PORT}: "
            "journalctl -u prometheus; with another --web.listen-address look at its page Targets",
        )
    states: dict[tuple[str, str], tuple[str, str]] = {}
    for one in active:
        labels = mapping(one.get("labels"))
        key = (str(labels.get("job")), str(labels.get("instance")))
        states[key] = (str(one.get("health")), str(one.get("lastError") or ""))
    lines = []
    seen: set[str] = set()
    for target in wanted:
        job = "sglang-node" if target.engine is None else "sglang"
        health, error = states.get((job, target.address), ("unknown", ""))
        seen.add(health)
        name = f"{target.engine} on {target.host}" if target.engine else target.host
        shown = "is asked" if health == "up" else f"does not answer ({error or health})"
        lines.append(f"{name} {shown}: {target.address}")
    fault = None
    if "unknown" in seen:
        fault = "Prometheus has not asked all of them: journalctl -u prometheus on its host"
    return Found(seen <= {"up"}, tuple(lines), fault)
