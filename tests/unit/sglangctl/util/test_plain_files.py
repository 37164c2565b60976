"""Files that others may have put there: read within limits, and never waited for."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sglangctl.util import plain_files


@pytest.mark.timeout(20)
def test_what_is_no_plain_file_is_an_error(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/dev/zero")
    for path in (tmp_path / "pipe", tmp_path / "link", tmp_path, tmp_path / "none"):
        with pytest.raises(OSError):
            plain_files.read_text(path)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(9):
        with pytest.raises(OSError, match="no plain file"):
            plain_files.descriptor(tmp_path / "pipe")
    assert len(os.listdir("/proc/self/fd")) == before


def test_the_limit(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"\xffab")
    assert plain_files.read_bytes(tmp_path / "file", 3) == b"\xffab"
    assert plain_files.read_text(tmp_path / "file") == "\\xffab"
    with pytest.raises(OSError, match="more than 2 bytes"):
        plain_files.read_bytes(tmp_path / "file", 2)
