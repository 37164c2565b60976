"""pytest plugin of `make test-real`: the result of the run as docs/evidence/<date>.json, or under the
name in EVIDENCE (`make test-hosts`: hosts.json).

{"v": 1, "date", "commit", "modified", "machine": {...}, "images": {...}, "seconds",
"counts": {"passed": n, ...}, "tests": [{"name", "outcome", "seconds", "measured": {...}}]}.
Times are in seconds; `measured` holds what a test gave to pytest's record_property. A run of a
selection (-k, a single test) is no evidence and writes nothing.
"""

from __future__ import annotations

import json
import os
import platform
import time
from collections import Counter
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from tests.hosts import images
from tests.hosts.say import ROOT, Failure, output, write_atomically


class Evidence:
    """Collects one entry a test, and writes them all at the end."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.start = time.time()
        self.entries: dict[str, dict[str, Any]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        entry = self.entries.setdefault(
            report.nodeid, {"name": report.nodeid, "outcome": "passed", "seconds": 0.0}
        )
        entry["seconds"] = round(entry["seconds"] + report.duration, 1)
        if report.failed:
            entry["outcome"] = "failed" if report.when == "call" else "error"
            entry["why"] = _reason(report)
        elif report.skipped:
            entry["outcome"] = "skipped"
            entry["why"] = _reason(report)
        if report.when == "call" and report.user_properties:
            entry["measured"] = dict(report.user_properties)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        terminal = session.config.pluginmanager.getplugin("terminalreporter")
        terminal.ensure_newline()
        reason = why_not(session.config, self.entries)
        if reason:
            terminal.write_line(f"evidence: nothing written, {reason}")
            return
        name = os.environ.get("EVIDENCE") or f"{datetime.now(timezone.utc):%Y-%m-%d}"
        path = self.folder / f"{name}.json"
        text = json.dumps(self.document(), indent=1, ensure_ascii=False) + "\n"
        write_atomically(path, text.encode())
        terminal.write_line(f"evidence: {path}")

    def document(self) -> dict[str, Any]:
        return {
            "v": 1,
            "date": f"{datetime.now(timezone.utc):%Y-%m-%dT%H:%M:%SZ}",
            "commit": _asked("git", "rev-parse", "HEAD"),
            "modified": _asked("git", "status", "--porcelain") != "",
            "machine": machine(),
            "images": {kind: images.tag(kind) for kind in images.INPUTS},
            "seconds": round(time.time() - self.start, 1),
            "counts": dict(Counter(entry["outcome"] for entry in self.entries.values())),
            "tests": list(self.entries.values()),
        }


def why_not(config: pytest.Config, entries: dict[str, Any]) -> str:
    """Why this run is no evidence; empty where it is."""
    if config.option.keyword or any("::" in argument for argument in config.args):
        return "only a selection of the tests was run"
    if not entries:
        return "no test was run"
    return ""


def machine() -> dict[str, Any]:
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "cores": os.cpu_count(),
        "memory_gib": round(memory / 2**30, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "docker": _asked("docker", "version", "--format", "{{.Server.Version}}"),
    }


def _asked(*argv: str) -> str | None:
    """A command's answer; None where it has none."""
    try:
        return output(["env", "-C", str(ROOT), *argv])
    except Failure:
        return None


def _reason(report: pytest.TestReport) -> str:
    """The first line of what an assertion or a skip said."""
    crash = getattr(report.longrepr, "reprcrash", None)
    if crash is not None:
        text = str(crash.message)
    elif isinstance(report.longrepr, tuple):  # of a skip: file, line, reason
        text = str(report.longrepr[2])
    else:
        text = report.longreprtext
    return next((line.strip()[:300] for line in text.splitlines() if line.strip()), "")


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # side by side, one process collects for all
        config.pluginmanager.register(Evidence(ROOT / "docs/evidence"))
