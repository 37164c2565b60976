"""What the controller takes for a probe's answer."""

from __future__ import annotations

import json

import pytest
from pyinfra.api.exceptions import FactProcessError

from roles.remote import snapshot
from roles.remote.limits import TooMuchOutput
from roles.remote.snapshot import HostProbe

GOOD = {"v": 1, "time": "2026-11-29T12:00:00Z", "files": {}, "users": {}}


def test_a_probe_s_document() -> None:
    assert HostProbe().process([json.dumps(GOOD)]) == GOOD
    assert HostProbe().process(['{"program_is_absent": true}']) == {"program_is_absent": True}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("hello", "did not answer with JSON"),
        ("[1]", "did not answer with an object"),
        ("{}", "the document is not as it must be .required"),
        (json.dumps({**GOOD, "files": None}), "files is not as it must be"),
        (json.dumps({**GOOD, "users": []}), "users is not as it must be"),
    ],
)
def test_anything_else_fails_its_own_host_alone(text: str, said: str) -> None:
    with pytest.raises(FactProcessError, match=said):
        HostProbe().process([text])


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (TooMuchOutput("the host sent more than 64 MiB"), "the host sent more than 64 MiB"),
        (ConnectionResetError("reset by peer"), "link to the host was lost (reset by peer)"),
        (EOFError(), "link to the host was lost (EOFError)"),
        (TimeoutError(), "did not end within"),
    ],
)
def test_what_ends_a_probe_is_named(
    error: Exception, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed: list[str] = []

    def run(*_: object) -> None:
        raise error

    monkeypatch.setattr(snapshot, "run", run)
    monkeypatch.setattr(snapshot, "fail_host", failed.append)
    assert snapshot.read() is None
    (text,) = failed
    assert said in text and ("link" in text) == ("link" in said)
