"""deploys/monitoring.py with Debian's own Prometheus and node_exporter, asking the real engine."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from roles.monitoring import dashboard, files
from tests.container.conftest import HostFactory
from tests.container.deploying import changed, deploy, ssh_data, write_inventory
from tests.container.real_engine import WANTED
from tests.hosts.host import Host
from tests.support.waiting import until

pytestmark = [pytest.mark.real, pytest.mark.timeout(1500)]

ASK = """
import json, sys, urllib.parse, urllib.request
for one in json.loads(sys.stdin.read()):
    url = "http://127.0.0.1:9090/api/v1/query?" + urllib.parse.urlencode({"query": one})
    try:
        answer = json.load(urllib.request.urlopen(url, timeout=20))["data"]["result"]
    except urllib.error.HTTPError as error:
        answer = error.read().decode()
    print(json.dumps(answer))
"""
LOAD = """
import json, urllib.request
for number in range(8):
    body = {"model": "tiny", "prompt": f"Tell me about number {number}.", "max_tokens": 24, "stream": True,
        "ignore_eos": True}
    request = urllib.request.Request("http://127.0.0.1:30000/v1/completions", json.dumps(body).encode(),
        {"Content-Type": "application/json", "Authorization": "Bearer of-the-test"})
    urllib.request.urlopen(request, timeout=120).read()
"""
# Of what a CPU, an engine without a drafter, and one that nobody has measured, do not have.
NOT_HERE = ("sglang_gpu_", "engine:accept_length", "sglang_engine_accepted", "ALERTS")


def asked(host: Host, expressions: list[str]) -> list[Any]:
    """Prometheus' answers."""
    done = host.exec("python3", "-c", ASK, input=json.dumps(expressions))
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def host(module_host_factory: HostFactory) -> Host:
    return module_host_factory("monitoring", image="engine")


@pytest.fixture(scope="module")
def inventory(host: Host, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("monitoring")
    (folder / "key").write_text("of-the-test\n")
    engine = {**WANTED, "api_key": {"file": "key"}}
    found = {host.ip: {"ssh": ssh_data(host), "engines": {"tiny": engine}}}
    return write_inventory(folder / "hosts.yml", found, monitoring={"prometheus": host.ip})


def test_the_engine_is_deployed_with_its_metrics(host: Host, inventory: Path) -> None:
    done = deploy(inventory, "-y")
    assert done.returncode == 0, done.stdout + done.stderr
    config = host.exec("cat", "/var/lib/sglangctl/tiny/current/engine.yaml").stdout
    assert "enable-metrics: true" in config


def test_a_plan_shows_all_of_it_and_changes_nothing(host: Host, inventory: Path) -> None:
    done = deploy(inventory, "--dry", "--diff", script="monitoring")
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert "prometheus: to be installed" in said and "port 9090" in said
    assert "+  - job_name: sglang-node" in said and "+      - alert: SglangEngineDown" in said
    assert '"gridPos"' not in said
    assert host.exec("test", "-e", "/etc/prometheus", check=False).returncode == 1


def test_prometheus_asks_the_engine_and_the_host(host: Host, inventory: Path) -> None:
    done = deploy(inventory, "-y", script="monitoring")
    said = done.stdout + done.stderr
    print(said)
    assert done.returncode == 0, said
    assert "tiny: its metrics are at http://127.0.0.1:9100/metrics" in said
    assert f"tiny on {host.ip} is asked: 127.0.0.1:30000" in said
    theirs = host.exec("cat", files.MAIN).stdout
    assert "localhost:9090" in theirs and files.RULES in theirs


def test_a_second_run_changes_nothing(host: Host, inventory: Path) -> None:
    before = host.exec("sha256sum", files.MAIN, files.RULES, files.ENGINES).stdout
    done = deploy(inventory, "-y", "--json", script="monitoring")
    assert done.returncode == 0, done.stdout + done.stderr
    assert changed(done) == {}
    assert host.exec("sha256sum", files.MAIN, files.RULES, files.ENGINES).stdout == before


def test_every_expression_of_the_dashboard_is_answered(host: Host) -> None:
    host.exec("python3", "-c", LOAD, timeout=600)
    expressions = dashboard.expressions()

    def unanswered() -> list[str]:
        answers = asked(host, expressions)
        assert not [one for one in answers if isinstance(one, str)], answers
        return [
            expression
            for expression, found in zip(expressions, answers, strict=True)
            if not found and not any(name in expression for name in NOT_HERE)
        ]

    with suppress(AssertionError):
        until(lambda: not unanswered(), 150, every_s=5)
    assert unanswered() == []
    (outcome,) = asked(host, ['sglang_engine_outcome{job="sglang-node"} == 1'])[0]
    assert outcome["metric"]["outcome"] == "ready" and outcome["metric"]["host"] == host.ip

    def tokens() -> float:
        (found,) = asked(host, ["sum(sglang:generation_tokens_total)"])[0]
        return float(found["value"][1])

    until(lambda: tokens() >= 8 * 24, 60, every_s=3)


def test_the_names_that_rules_use_are_the_engines_own(host: Host) -> None:
    engine = host.exec("curl", "-s", "http://127.0.0.1:30000/metrics").stdout
    exporter = host.exec("curl", "-s", "http://127.0.0.1:9100/metrics").stdout
    names = set(
        re.findall(r"\b(sglang:[a-z0-9_]+|node_[a-z0-9_]+)\b(?=\{)", files.rules().content.decode())
    )
    # With a drafter, or once a request was retracted.
    later = {"sglang:spec_accept_length", "sglang:num_retracted_requests_total"}
    assert {name for name in names if f"\n{name}" not in engine + exporter} <= later
    assert "sglang:num_queue_reqs" in names and "node_textfile_mtime_seconds" in names


def test_an_engine_that_hangs_raises_its_alert(host: Host) -> None:
    host.exec("pkill", "-STOP", "-f", "^sglang::scheduler")

    def firing() -> bool:
        (found,) = asked(host, ['ALERTS{alertstate="firing",alertname="SglangEngineDown"}'])
        return [one["metric"]["outcome"] for one in found] == ["unresponsive"]

    try:
        until(firing, 240, every_s=3)
    finally:
        host.exec("pkill", "-CONT", "-f", "^sglang::scheduler")


def test_what_promtool_refuses_is_not_put_in_place(host: Host, inventory: Path) -> None:
    host.exec("sh", "-c", f"echo 'nonsense: here' >> {files.MAIN}; rm {files.RULES}")
    before = host.exec("cat", files.MAIN).stdout
    host.exec("sed", "-i", "s/sglang-node/sglang-nodes/", files.MAIN)
    done = deploy(inventory, "-y", script="monitoring")
    said = done.stdout + done.stderr
    assert done.returncode == 1 and "promtool refuses" in said and "nonsense" in said
    assert host.exec("cat", files.MAIN).stdout == before.replace("sglang-node", "sglang-nodes")
    host.exec("sh", "-c", f"sed -i '/nonsense/d' {files.MAIN}")
    assert deploy(inventory, "-y", script="monitoring").returncode == 0


def test_a_grafana_gets_its_data_source_and_the_dashboard(host: Host, inventory: Path) -> None:
    deploy(inventory, "-y", script="monitoring")
    host.exec(
        "mkdir", "-p", *(f"{files.PROVISIONING}/{one}" for one in ("datasources", "dashboards"))
    )
    unit = "[Service]\\nExecStart=/bin/sleep infinity\\n"
    host.exec("sh", "-c", f"printf '{unit}' >/etc/systemd/system/grafana-server.service")
    host.exec("systemctl", "start", "grafana-server")

    def run() -> str:
        return host.exec("systemctl", "show", "-p", "InvocationID", "grafana-server").stdout

    before = run()
    done = deploy(inventory, "-y", "--json", script="monitoring")
    assert done.returncode == 0 and set(changed(done)) == {"Monitoring | Grafana"}
    assert run() != before
    for kind in ("datasources", "dashboards"):
        text = host.exec("cat", f"{files.PROVISIONING}/{kind}/sglang-provision.yaml").stdout
        assert '"apiVersion": 1' in text
    assert json.loads(host.exec("cat", files.DASHBOARD).stdout)["panels"]
    # One that was removed leaves its folders, and no unit.
    host.exec("systemctl", "stop", "grafana-server")
    host.exec("sh", "-c", f"rm /etc/systemd/system/grafana-server.service {files.PROVISIONING}/*/*")
    assert deploy(inventory, "-y", script="monitoring").returncode == 0
