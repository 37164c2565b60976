"""After a boot every engine is looked at, whatever another one's files look like."""

from __future__ import annotations

from pathlib import Path

import pytest

from sglangctl import cli
from sglangctl.state import release
from sglangctl.state.paths import Paths
from sglangctl.state.release import State
from tests.support.engine_host import write_config


def test_an_engine_that_cannot_be_read_does_not_stop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SGLANGCTL_ROOT", str(tmp_path))
    paths = Paths()
    write_config(tmp_path, 30000)
    (paths.engines / "another.json").write_text("{}")
    for name, text in (("another", "{"), ("tiny", None)):
        paths.engine_state(name).mkdir(parents=True)
        if text is not None:
            paths.state_json(name).write_text(text)
    release.write_state("tiny", State("switching", to="a" * 64, step="freeing"), paths)
    assert cli.main(["resume"]) == 1
    said = capsys.readouterr()
    assert "sglangctl resume: another: " in said.err and "state.json cannot be read" in said.err
    assert "tiny: a reboot interrupted the switch, and nothing ran before it" in said.out
    paths.state_json("another").unlink()
    assert cli.main(["resume"]) == 0
    assert capsys.readouterr().out == "", "what is done is not done again"
