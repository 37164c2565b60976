"""report.html in a real browser: Chromium without a screen."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from roles.report.page import page
from tests.support.report_document import document

pytestmark = [pytest.mark.real, pytest.mark.timeout(120)]


def test_the_page_is_drawn_and_nothing_in_it_runs(tmp_path: Path) -> None:
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    assert browser, "install the package chromium"
    file = tmp_path / "report.html"
    file.write_text(page(document()), encoding="utf-8")
    argv = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--window-size=1100,1800"]
    argv.append(f"--user-data-dir={tmp_path / 'profile'}")
    shot = tmp_path / "report.png"
    subprocess.run([*argv, f"--screenshot={shot}", file.as_uri()], check=True, timeout=60)
    assert shot.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n" and shot.stat().st_size > 20_000
    done = subprocess.run(
        [*argv, "--dump-dom", file.as_uri()], check=True, timeout=60, capture_output=True, text=True
    )
    assert "<title>sglang 2026-11-30T11:30:00Z</title>" in done.stdout  # a script would change it
    assert len(re.findall(r"<svg ", done.stdout)) == 3
    assert len(re.findall(r'<rect class="dark0"', done.stdout)) == 2
    assert len(re.findall(r'<circle class="kept"', done.stdout)) == 4
    assert len(re.findall(r'<circle class="unkept"', done.stdout)) == 2
