"""What systemd 247 says of keys that came later is expected; a misspelt key is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from sglangctl.proc import command
from sglangctl.state import release
from sglangctl.systemd import systemctl
from sglangctl.systemd.unit_keys import SINCE, number, unknown_to

OLD = "247.3-7+deb11u7"
LINE = "{folder}/sglang-a.service:61: Unknown key name '{key}' in section 'Service', ignoring."


@pytest.mark.parametrize(
    ("version", "found"), [("252.39-1~deb12u1", 252), (OLD, 247), ("257", 257), (None, None)]
)
def test_versions(version: str | None, found: int | None) -> None:
    assert number(version) == found


def test_which_keys_an_old_one_leaves_out() -> None:
    assert unknown_to(OLD) == ["PrivateIPC"]
    assert unknown_to("248.1") == unknown_to(None) == []


@pytest.mark.parametrize(
    ("version", "key", "counts"),
    [(OLD, "PrivateIPC", False), (OLD, "PrivateIPCs", True), ("252.1", "PrivateIPC", True)],
)
def test_a_release_is_staged_on_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, key: str, counts: bool
) -> None:
    unit = tmp_path / "sglang.service"
    unit.write_text("[Service]\n")
    said = LINE.format(folder=tmp_path / ".verify", key=key)
    monkeypatch.setattr(systemctl, "version", lambda: version)
    monkeypatch.setattr(command, "run", lambda argv, timeout_s: command.Result(0, "", said + "\n"))
    assert release.verify_unit(unit, "sglang-a.service") == ([said] if counts else [])


def test_the_templates_have_these_keys() -> None:
    template = Path("templates/sglang.service.j2").read_text(encoding="utf-8")
    assert all(f"\n{key}=" in template for key in SINCE)
