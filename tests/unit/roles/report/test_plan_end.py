"""What a plan ends with beside its engines: what the host itself will fail for."""

from __future__ import annotations

import pytest

from roles.remote import failing
from roles.report import choice
from roles.report.choice import RESTART, Choice


def test_what_the_host_fails_for_comes_before_its_engines(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # A full /etc: the plan's end said that the engine restarts, and the run touched nothing.
    engine = Choice("chat", RESTART, ("port 1 -> 2",), fails=("port 2 is held by nginx",))
    monkeypatch.setattr(choice, "CHOICES", {"gpu1": [engine]})
    told = [
        "no room is left for: /etc/sglangctl\nnothing was touched",
        "port 2 is held by nginx\nx",
    ]
    monkeypatch.setattr(failing, "FORESEEN", {"gpu1": told, "gpu2": ["another host's"]})
    with caplog.at_level("INFO", logger="pyinfra"):
        choice.print_plan("gpu1")
    text = "\n".join(caplog.messages)
    assert text.index("will fail  no room is left for") < text.index("RESTART")
    assert text.count("port 2 is held") == 1 and "another host" not in text
