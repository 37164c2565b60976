"""Debian's Prometheus with our configuration, asking what a real engine and a real node_exporter have said.

engine.prom is of SGLang 0.5.23 on a CPU (the series that rules use), node.prom of the host's node_exporter
with what the engine's watch wrote (the processors' series are shortened).
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from roles.monitoring import dashboard, files
from roles.monitoring.insertion import with_items
from roles.monitoring.targets import Monitoring, Target
from sglangctl.report import metrics
from tests.support.prometheus import program
from tests.support.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

HERE = Path(__file__).parent
GPU = {
    "index": 0,
    "memory_used_mib": 9,
    "memory_total_mib": 10,
    "utilization_pct": 5,
    "power_w": 70.0,
}
NOT_THERE = {
    'ALERTS{alertname=~"Sglang.*",alertstate="firing"}',
    'engine:accept_length:avg{host=~".*",engine=~".*"}',  # without a drafter
}


@contextmanager
def serving(text: str) -> Iterator[str]:
    """An address whose /metrics is the text; as the real engine's it has other names in OpenMetrics."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked = "openmetrics" in self.headers.get("Accept", "")
            body = text.replace("\nsglang:", "\nsglang_") if asked else text
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture
def prometheus(tmp_path: Path) -> Iterator[str]:
    """Its address, once it answers."""
    labels = {"engine": "tiny"}
    more = [*metrics.of_gpus(labels, [GPU])]
    more.append(("sglang_engine_accepted_tokens_per_second", {**labels, "concurrency": "1"}, 76.0))
    node = (HERE / "node.prom").read_text() + metrics.text(more)
    with serving((HERE / "engine.prom").read_text()) as engine, serving(node) as exporter:
        fleet = Monitoring("g1", (Target(engine, "g1", "tiny"),), (Target(exporter, "g1"),), (), ())
        for one in (*files.targets(fleet), files.rules()):
            if isinstance(one, files.ManagedFile):
                (tmp_path / Path(one.path).name).write_bytes(one.content)
        text = with_items("global:\n  evaluation_interval: 1s\n", files.ITEMS)
        for was, now in ((files.FOLDER, str(tmp_path)), ("15s", "1s"), ("10s", "1s")):
            text = text.replace(was, now)
        (tmp_path / "prometheus.yml").write_text(text)
        with running(tmp_path) as address:
            yield address


@contextmanager
def running(folder: Path) -> Iterator[str]:
    with serving("") as free:  # a port that nobody has
        address = free
    process = subprocess.Popen(
        [
            program("prometheus"),
            f"--config.file={folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address={address}",
        ],
        stderr=(folder / "log").open("w"),
        env={**os.environ, "GOMAXPROCS": "1"},
    )
    try:
        until(lambda: answers(address) or process.poll() is not None, 60, every_s=0.2)
        assert process.poll() is None, (folder / "log").read_text()
        yield address
    finally:
        process.kill()
        process.wait()


def answers(address: str) -> bool:
    try:
        return bool(get(address, "status/config"))
    except (OSError, urllib.error.URLError):
        return False


def get(address: str, path: str, **query: str) -> Any:
    url = f"http://{address}/api/v1/{path}?{urllib.parse.urlencode(query)}"
    with urllib.request.urlopen(url, timeout=20) as answer:
        return json.load(answer)["data"]


def test_every_expression_and_every_rule_is_answered(prometheus: str) -> None:
    def unanswered() -> set[str]:
        asked = dashboard.expressions()
        return {one for one in asked if not get(prometheus, "query", query=one)["result"]}

    until(lambda: unanswered() == NOT_THERE, 60, every_s=0.5)
    groups = get(prometheus, "rules")["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert {rule["health"] for rule in rules} == {"ok"} and len(rules) == 29
    (up,) = get(prometheus, "query", query='up{job="sglang"}')["result"]
    assert up["metric"]["host"] == "g1" and up["metric"]["engine"] == "tiny"
