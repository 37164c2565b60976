"""inspect finds the deploy file's module at once: what pyinfra asks it for, per host and operation."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from types import FrameType

import pytest

from roles.stages.deploy_file import PREFIX, as_module


def frame_of(file: str) -> FrameType:
    """A frame of code that pyinfra would have run from `file`."""
    found: dict[str, FrameType] = {}
    exec(compile("import sys; found['frame'] = sys._getframe()", file, "exec"), {"found": found})
    return found["frame"]


def test_inspect_knows_the_module_of_a_deploy_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text("")
    frame = frame_of("mine.py")
    assert inspect.getmodule(frame, "mine.py") is None
    as_module("mine.py")
    module = inspect.getmodule(frame, "mine.py")
    assert module is sys.modules[PREFIX + "mine"]
    as_module("mine.py")
    assert sys.modules.pop(PREFIX + "mine") is module
    # From now on it is found without a look at the modules: what costs.
    assert inspect.modulesbyfile[str(tmp_path / "mine.py")] == PREFIX + "mine"


def test_a_run_without_a_file_has_none() -> None:
    before = dict(sys.modules)
    as_module(None)
    as_module("")
    assert sys.modules == before
