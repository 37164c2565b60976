"""A start's journal as its watch writes it: with a verdict on every change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sglangctl.startup.fold import Startup
from sglangctl.state.config import Limits
from sglangctl.state.journal import Writer
from sglangctl.watch.recorder import Recorder


class Watched:
    """Takes the place of a Writer."""

    def __init__(
        self, file: Path, limits: Limits | None = None, launched: str | None = None
    ) -> None:
        self.path = file
        self._recorder = Recorder(Startup(limits), Writer(file))
        if launched is not None:
            self.write(0, "launch", v=1, engine="sglang", port=30000, time=launched)

    def write(self, t: float, kind: str, **fields: Any) -> None:
        self._recorder.record(t, kind, **fields)

    def tick(self, t: float) -> None:
        """Time passes, and the watch lives."""
        self._recorder.tick(t)
