"""Whether an engine starts at boot is read from the disk, not from systemd's memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from sglangctl.probe.engines import starts_at_boot
from sglangctl.state.paths import Paths
from sglangctl.systemd.unit import Unit


@pytest.mark.parametrize(
    ("said", "link", "found"),
    [
        ("enabled", True, "enabled"),
        ("enabled", False, "disabled"),
        ("disabled", False, "disabled"),
        ("masked", True, "masked"),
    ],
)
def test_a_link_that_is_gone(tmp_path: Path, said: str, link: bool, found: str) -> None:
    paths = Paths(tmp_path)
    wants = paths.units / "multi-user.target.wants"
    wants.mkdir(parents=True)
    if link:
        (wants / "sglang-a.service").symlink_to("../sglang-a.service")
    about = starts_at_boot(Unit("sglang-a.service", {"UnitFileState": said}), paths)
    assert about and about["UnitFileState"] == found
    assert starts_at_boot(None, paths) is None
