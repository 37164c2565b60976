"""A host that is asked after its failure: nothing that it does ends the run of the others."""

from __future__ import annotations

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
