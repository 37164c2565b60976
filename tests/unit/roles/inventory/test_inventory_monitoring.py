"""`monitoring`: all engines answer at /metrics, and which host's Prometheus asks them."""

from __future__ import annotations

import pytest

from roles.inventory.render import render
from tests.support.inventory_case import load, only

ENGINE = "{model: {path: /m}}"
HOSTS = f"hosts: {{a: {{engines: {{e: {ENGINE}}}}}, b: {{engines: {{}}}}}}\n"


def flags(body: str, more: str = "monitoring: {prometheus: h}\n") -> object:
    entry = only(load(f"hosts: {{h: {{engines: {{e: {{model: {{path: /m}}, {body}}}}}}}}}\n{more}"))
    assert entry.errors == () and entry.spec is not None
    (engine,) = entry.spec.engines
    config = render(engine, venv="/v").files["engine.yaml"].decode()
    assert ("enable-metrics: true" in config) == (engine.flags.get("enable-metrics") is True)
    return engine.flags.get("enable-metrics"), [
        one.flags.get("enable-metrics") for one in engine.fallbacks.values()
    ]


def test_every_engine_gets_the_flag_where_there_is_monitoring() -> None:
    assert flags("") == (True, [])
    assert flags("", more="") == (None, [])
    assert flags("", more="monitoring: {}\n") == (None, [])


@pytest.mark.parametrize(("written", "kept"), [("false", False), ("null", None), ("true", True)])
def test_what_the_inventory_says_of_the_flag_is_kept(written: str, kept: object) -> None:
    assert flags(f"flags: {{enable-metrics: {written}}}") == (kept, [])


def test_a_fallback_has_it_too_unless_it_says_otherwise() -> None:
    other = "fallbacks: {a: {flags: {page-size: 1}}, b: {flags: {enable-metrics: false}}}"
    assert flags(other) == (True, [True, False])


def test_the_prometheus_host_alone_may_have_no_engine() -> None:
    found = load(HOSTS + "monitoring: {prometheus: b}\n")
    assert found.prometheus == "b"
    assert [entry.errors for entry in found.hosts] == [(), ()]
    for text in (HOSTS, HOSTS + "monitoring: {prometheus: a}\n"):
        good, empty = load(text).hosts
        assert good.errors == ()
        (error,) = empty.errors
        assert "hosts.b.engines: found {}; allowed: a mapping with at least one engine" in error


@pytest.mark.parametrize(
    ("monitoring", "said"),
    [
        ("3", "monitoring: found 3; allowed: a mapping"),
        ("{prometeus: a}", 'an unknown key; allowed: prometheus; did you mean "prometheus"?'),
        ("{prometheus: c}", "monitoring.prometheus: found c"),
        ("{prometheus: [a]}", "monitoring.prometheus: found"),
    ],
)
def test_a_mistake_in_it_is_every_host_s(monitoring: str, said: str) -> None:
    for entry in load(f"{HOSTS.replace('b: {engines: {}}', '')}monitoring: {monitoring}\n").hosts:
        (error,) = entry.errors
        assert said in error.replace('"c"', "c")
        assert entry.spec is None
