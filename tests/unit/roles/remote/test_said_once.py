"""What an operation prints: with the plan where there is one, else while it executes."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from roles.remote import look, operation


@pytest.mark.parametrize(
    ("plan", "said"),
    [(True, ["stop vllm.service", "back to vllm.service"]), (False, ["stop vllm.service"])],
)
def test_each_line_is_printed_once(
    monkeypatch: pytest.MonkeyPatch, plan: bool, said: list[str]
) -> None:
    """The host says `back to` itself while it switches: with -y that is the only time."""
    found: list[str] = []
    monkeypatch.setattr(operation, "host", None)
    monkeypatch.setattr(look, "host", SimpleNamespace(connector_data={}))
    monkeypatch.setattr(operation, "say", lambda host, line, fg: found.append(line))
    for executing in (False, True):
        state = SimpleNamespace(check_for_changes=plan, is_executing=executing)
        monkeypatch.setattr(operation, "state", state)
        operation.show(["stop vllm.service", *operation.planned(["back to vllm.service"])])
    assert found == said
