"""A host that is asked after its failure: nothing that it does ends the run of the others."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from roles.remote import serving


@pytest.mark.parametrize(
    "error", [AttributeError("no connection"), EOFError(), OSError("gone"), ValueError("odd")]
)
def test_a_link_that_is_gone_is_no_answer(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Gone:
        def run_shell_command(self, *_: Any, **__: Any) -> Any:
            raise error

    monkeypatch.setattr(serving, "for_connector", lambda *_: {})
    assert serving.engines_now(None, Gone()) is None  # type: ignore[arg-type]


HOSTILE: tuple[Any, ...] = (
    *(
        None,
        [],
        {"status": {}},
        {"status": 1},
        {"v": 1},
        {"status": [1]},
        {"status": [{"name": 3}]},
    ),
    {"status": [{"name": "a", "outcome": ["ready"]}]},
    {"status": [{"name": "a", "outcome": "ready", "active": {"x": 1}}]},
    {"status": [{"name": "a; rm -rf ~"}]},
    {"status": [{"name": "a\n"}]},
    {"status": [{"name": "a", "since": "now"}]},
)


def answered(document: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    host = SimpleNamespace(
        run_shell_command=lambda *_, **__: (
            False,
            SimpleNamespace(stdout_lines=[json.dumps(document)]),
        )
    )
    monkeypatch.setattr(serving, "for_connector", lambda *_: {})
    return serving.engines_now(None, host)  # type: ignore[arg-type]


@pytest.mark.parametrize("document", HOSTILE, ids=str)
def test_another_shape_is_no_answer(document: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would raise where the last screens of all hosts are printed."""
    assert answered(document, monkeypatch) is None


def test_an_answer_in_its_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = {"name": "chat", "outcome": "ready", "active": "active", "since": 1.5, "more": [1]}
    assert answered({"status": [engine]}, monkeypatch) == [engine]
