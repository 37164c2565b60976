"""A tool that `make test` should have installed is a failure there, not a test less."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hosts.say import ROOT
from tests.support import tools


def test_only_make_test_counts_on_every_tool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv(tools.ALL_ARE_HERE, raising=False)
    assert tools.missing("no-such-tool")
    monkeypatch.setenv(tools.ALL_ARE_HERE, "1")
    assert not tools.missing("no-such-tool")
    assert f"\ntest: export {tools.ALL_ARE_HERE} = 1\n" in (ROOT / "Makefile").read_text()


def test_what_the_machine_lacks_is_a_failure_under_make_test_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(tools.ALL_ARE_HERE, raising=False)
    with pytest.raises(pytest.skip.Exception, match="no IPv6"):
        tools.leave_out("no IPv6")
    monkeypatch.setenv(tools.ALL_ARE_HERE, "1")
    with pytest.raises(pytest.fail.Exception, match="no IPv6"):
        tools.leave_out("no IPv6")
