"""Where a path leads, by the mounts, without a look behind any that is not local."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sglangctl.proc import mounts, procfs

TEXT = """\
20 1 8:1 / / rw - ext4 /dev/sda1 rw
21 20 0:30 / /home rw - autofs systemd-1 rw
22 21 0:31 / /home rw - nfs4 server:/home rw
23 20 0:32 / /mnt/a\\040b rw shared:1 - fuse.sshfs x rw
24 20 0:33 / /var/cache rw master:2 - xfs /dev/sdb rw
"""


@pytest.fixture
def seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> mounts.Mounts:
    folder = tmp_path / "proc/7"
    folder.mkdir(parents=True)
    (folder / "mountinfo").write_text(TEXT)
    (folder / "fdinfo").mkdir()
    (folder / "fdinfo/3").write_text("pos:\t0\nflags:\t02\nmnt_id:\t22\nino:\t9\n")
    (folder / "fdinfo/4").write_text("pos:\t0\nmnt_id:\t99\n")
    monkeypatch.setattr(procfs, "PROC", str(tmp_path / "proc"))
    monkeypatch.setattr(os, "readlink", links)
    return mounts.Mounts(7)


def links(path: str) -> str:
    """/link leads to /home/x, /near to var/cache, /self to itself."""
    assert not path.startswith(("/home", "/mnt/a b")), f"{path} was looked at"
    known = {"/link": "/home/x", "/near": "var/cache", "/self": "/self", "/up": "../.."}
    if path in known:
        return known[path]
    raise FileNotFoundError(path)


@pytest.mark.parametrize(
    ("path", "resolved", "kind"),
    [
        ("/opt/x", "/opt/x", "ext4"),
        ("/", "/", "ext4"),
        ("/home/u/.cache", "/home/u/.cache", "nfs4"),
        ("/link/.cache", "/home/x/.cache", "nfs4"),
        ("/near/k", "/var/cache/k", "xfs"),
        ("/near/../k", "/var/k", "ext4"),
        ("/mnt/a b/c", "/mnt/a b/c", "fuse.sshfs"),
        ("/opt//./../../near", "/var/cache", "xfs"),
        ("/up/opt", "/opt", "ext4"),
    ],
)
def test_where_it_leads(seen: mounts.Mounts, path: str, resolved: str, kind: str) -> None:
    found = seen.place(path)
    assert (found.path, found.kind) == (resolved, kind)
    assert found.local == (kind in ("ext4", "xfs"))


def test_a_loop_of_links_is_not_local(seen: mounts.Mounts) -> None:
    assert not seen.place("/self/x").local


def test_of_an_open_file(seen: mounts.Mounts) -> None:
    assert mounts.kind_of_open(7, "3", seen) == "nfs4"
    assert mounts.kind_of_open(7, "4", seen) == "unknown"
    assert mounts.kind_of_open(7, "5", seen) is None
