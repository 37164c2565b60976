"""What many hosts have in common is rendered once."""

from __future__ import annotations

from roles.engine.desired import desired_engine
from tests.support.inventory_case import engine

SMALL, GRAPHS = (
    f"{{flags: {{{flag}}}}}" for flag in ("max-running-requests: 8", "disable-cuda-graph: true")
)
FALLBACKS = f"fallbacks: {{small: {SMALL}, graphs: {GRAPHS}}}"
TURNED = f"fallbacks: {{graphs: {GRAPHS}, small: {SMALL}}}"


def test_engines_that_are_the_same_are_rendered_once() -> None:
    first, second = engine(FALLBACKS), engine(FALLBACKS)
    assert first is not second
    assert desired_engine(first) is desired_engine(second)


def test_the_order_of_fallbacks_and_a_secret_make_it_another() -> None:
    order, other = desired_engine(engine(FALLBACKS)), desired_engine(engine(TURNED))
    assert order.config.content != other.config.content
    key = "api_key: {env: KEY}"
    one, two = (desired_engine(engine(key, KEY=value * 8)) for value in ("ab", "cd"))
    assert one.release.digest != two.release.digest
    assert desired_engine(engine(key, KEY="ab" * 8)).release.digest == one.release.digest
