"""Time for tests of what waits: it passes only when the code sleeps."""

from __future__ import annotations


class Clock:
    """Takes the place of the module `time` in one module: `monkeypatch.setattr(settling, "time", Clock())`."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
