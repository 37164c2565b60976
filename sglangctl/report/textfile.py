"""The metrics of one engine as a file for node_exporter's textfile collector, written by its watch."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

from sglangctl.report import metrics, status
from sglangctl.state.config import load_engine
from sglangctl.state.files import write_atomic
from sglangctl.state.paths import Paths
from sglangctl.util import os_errors
from sglangctl.util.errors import Failed
from sglangctl.util.terminal import escaped

EVERY_S = 30.0


class Writer:
    """Writes in a thread of its own, which nothing waits for: a slow disk stops no watch."""

    def __init__(self, name: str, paths: Paths) -> None:
        self._name, self._paths = name, paths
        self._over = threading.Event()
        self._trouble: str | None = None

    def start(self) -> None:
        threading.Thread(target=self._run, name="textfile", daemon=True).start()

    def stop(self) -> None:
        self._over.set()

    def _run(self) -> None:
        while True:
            self.write()
            if self._over.wait(EVERY_S):
                return

    def write(self) -> None:
        """Once, where node_exporter's folder is. What fails is said once, and tried again."""
        file = self._paths.textfile(self._name)
        if not file.parent.is_dir():
            return
        trouble = None
        try:
            write(self._name, file, self._paths)
        except (Failed, OSError) as error:
            trouble = os_errors.describe(error)
        if trouble is not None and trouble != self._trouble:
            print(f"{self._name}: no metrics in {file}: {escaped(trouble)}", file=sys.stderr)
        self._trouble = trouble


def write(name: str, file: Path, paths: Paths) -> None:
    """The engine's metrics, in one move. Failed or OSError where they cannot be told or written."""
    config = load_engine(name, paths)
    samples = metrics.of_engine(config, status.look(config, paths, closer=False), paths)
    write_atomic(file, metrics.text(samples).encode(), 0o644)
