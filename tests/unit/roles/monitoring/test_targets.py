"""Where Prometheus asks, as seen from its host."""

from __future__ import annotations

import json

import pytest

from roles.monitoring.targets import Monitoring, file_sd, monitoring_of
from tests.support.inventory_case import load


def found(hosts: str, prometheus: str = "p") -> Monitoring:
    result = monitoring_of(load(f"monitoring: {{prometheus: '{prometheus}'}}\nhosts: {hosts}\n"))
    assert result is not None
    return result


def engines(body: str, prometheus: str = "p", name: str = "g") -> tuple[list[str], tuple[str, ...]]:
    engine = f"{{engines: {{e: {{model: {{path: /m}}, port: 8000, {body}}}}}, ssh: {{user: root}}}}"
    other = "" if prometheus == name else ", p: {engines: {}}"
    result = found(f"{{'{name}': {engine}{other}}}", prometheus)
    return [one.address for one in result.engines], result.unseen


def test_without_monitoring_there_is_nothing() -> None:
    assert monitoring_of(load("hosts: {g: {engines: {e: {model: {path: /m}}}}}\n")) is None


@pytest.mark.parametrize(
    ("listen", "there", "here"),
    [
        ("0.0.0.0", "g:8000", "127.0.0.1:8000"),
        ("'::'", "g:8000", "[::1]:8000"),
        ("10.0.0.7", "10.0.0.7:8000", "10.0.0.7:8000"),
        ("'fd00::7'", "[fd00::7]:8000", "[fd00::7]:8000"),
        ("127.0.0.1", None, "127.0.0.1:8000"),
        ("localhost", None, "localhost:8000"),
        ("'::1'", None, "[::1]:8000"),
    ],
)
def test_an_engine_is_asked_where_it_listens(listen: str, there: str | None, here: str) -> None:
    addresses, unseen = engines(f"listen: {listen}")
    assert addresses == ([there] if there else [])
    assert bool(unseen) == (there is None)
    assert engines(f"listen: {listen}", prometheus="g") == ([here], ())


def test_an_engine_without_metrics_is_named_and_not_asked() -> None:
    addresses, (unseen,) = engines("listen: 0.0.0.0, flags: {enable-metrics: false}")
    assert addresses == [] and unseen == "e on g has no /metrics (flags.enable-metrics)"


@pytest.mark.parametrize(
    ("name", "address"),
    [("@ssh/g2", "g2:9100"), ("@docker/g", None), ("@local", None), ("fd00::2", "[fd00::2]:9100")],
)
def test_a_host_is_asked_at_its_own_address(name: str, address: str | None) -> None:
    engine = "{engines: {e: {model: {path: /m}}}}"
    result = found(f"{{'{name}': {engine}, p: {{engines: {{}}}}}}")
    expected = ["127.0.0.1:9100"] if address is None else [address, "127.0.0.1:9100"]
    assert sorted(one.address for one in result.nodes) == sorted(expected)
    assert any("has no address" in one for one in result.unseen) == (address is None)


def test_ssh_hostname_is_the_address() -> None:
    engine = "{ssh: {hostname: 10.0.0.9}, engines: {e: {model: {path: /m}, listen: 0.0.0.0}}}"
    result = found(f"{{g: {engine}, p: {{engines: {{}}}}}}")
    assert [one.address for one in result.engines] == ["10.0.0.9:30000"]
    assert json.loads(file_sd(result.engines)) == [
        {"targets": ["10.0.0.9:30000"], "labels": {"host": "g", "engine": "e"}}
    ]


def test_a_host_that_is_wrong_in_the_inventory_is_not_forgotten() -> None:
    """Prometheus would stop asking its engines."""
    result = found("{g: {engines: {e: {model: {path: m}}}}, p: {engines: {}}}")
    assert result.unknown == ("g",) and result.engines == ()
