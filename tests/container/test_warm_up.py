"""A stand-in that compiles for long when a prompt comes again: `ready` only afterwards."""

from __future__ import annotations

import pytest

from tests.container.engine_unit import EngineUnit, poll
from tests.hosts.host import Host

pytestmark = [pytest.mark.container, pytest.mark.timeout(300)]

COMPILE_S = 25.0
"""The two minutes of a real one, and below the limits to match."""
LIMITS = {"http_timeout_s": 6.0, "unresponsive_idle_s": 8.0, "unresponsive_busy_s": 20.0}


def test_ready_only_after_the_compile_of_the_second_request(host: Host, engine: EngineUnit) -> None:
    standin = {"START_S": 2.5, "SCALE": 0.2, "JIT_AGAIN_S": COMPILE_S}
    engine.configure(standin=standin, readiness={"restart_unresponsive": True})
    engine.start()
    engine.until_phase("warming")
    shown = poll(lambda: compiling(host), 20)
    assert "the same prompt again" in shown and " warming " in shown, engine.verdicts()
    ready = engine.until("ready")
    verdicts = engine.verdicts()
    served = next(one["t"] for one in verdicts if one["outcome"] == "serving")
    assert ready["t"] - served >= COMPILE_S
    assert {one["outcome"] for one in verdicts} == {"pending", "serving", "ready"}, verdicts
    assert len(engine.starts()) == 1  # nor was it restarted
    (proof,) = [event for event in engine.events() if event["kind"] == "generate"]
    first = proof["warm"]["paths"][0]
    assert first["first_s"] >= COMPILE_S and first["again_s"] < 1.0
    assert "degraded" not in ready["outcome"] and ready["phase"] == "serving"
    report = host.exec("sglangctl", "verify", engine.name).stdout
    assert "slowest at first: the same prompt again" in report


def compiling(host: Host) -> str:
    shown = host.exec("sglangctl", "status", "tiny", check=False).stdout
    return shown if "compiling for" in shown and "cicc" in shown else ""


def test_a_path_that_stays_slow_degrades(engine: EngineUnit) -> None:
    standin = {"START_S": 2.5, "SCALE": 0.2, "PREFILL_TOKENS_PER_S": 200}
    engine.configure(standin=standin, readiness={"first_token_s": 0.1, "warm": "short"})
    engine.start()
    said = engine.until("degraded")
    assert "first_token_s is 0.1" in said["evidence"][0]
