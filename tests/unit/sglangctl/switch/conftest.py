"""A made-up host, whose systemctl is a program that writes down how it was called."""

from __future__ import annotations

from pathlib import Path

import pytest

from sglangctl.state.paths import Paths


@pytest.fixture
def paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Paths:
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "systemctl").write_text(f'#!/bin/sh\necho "$@" >> {tools}/calls\n')
    (tools / "systemctl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:/usr/bin:/bin")
    # Of commands that are called as a user calls them, too: not of the machine that runs the test.
    monkeypatch.setenv("SGLANGCTL_ROOT", str(tmp_path / "root"))
    paths = Paths(tmp_path / "root")
    for folder in (paths.units, paths.engines, paths.root / "run", paths.programs):
        folder.mkdir(parents=True)
    return paths
