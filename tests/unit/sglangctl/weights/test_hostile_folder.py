"""A folder of weights that a local user made, looked at by root: nothing in it is waited for."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from sglangctl.weights import hashes


@pytest.mark.timeout(20)
def test_pipes_and_devices_are_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.safetensors")
    (tmp_path / "zero.safetensors").symlink_to("/dev/zero")
    (tmp_path / "whole.safetensors").write_bytes(b"x")
    wanted = {path.name: hashlib.sha256(b"x").hexdigest() for path in tmp_path.iterdir()}
    found = hashes.verify(tmp_path, wanted, {}, lambda progress: None, lambda: None)
    assert sorted(one.seen.split(":")[0].rsplit("/", 1)[1] for one in found) == [
        "pipe.safetensors",
        "zero.safetensors",
    ]
    assert all("no plain file" in one.seen for one in found)


@pytest.mark.timeout(20)
def test_the_hubs_own_list_neither(tmp_path: Path) -> None:
    folder = tmp_path / hashes.HUB
    folder.mkdir(parents=True)
    os.mkfifo(folder / "pipe.metadata")
    (folder / "zero.metadata").symlink_to("/dev/zero")
    (folder / "good.safetensors.metadata").write_text(f"c\n{'a' * 64}\n1.0\n")
    assert hashes.from_hub(tmp_path) == {"good.safetensors": "a" * 64}
