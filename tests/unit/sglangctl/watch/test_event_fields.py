"""Found things as event fields: what is unknown is left out."""

from __future__ import annotations

from pathlib import Path

import pytest

from sglangctl.engine.port_owner import Owner
from sglangctl.gpu.gpus import Gpu
from sglangctl.proc import cgroup, procfs
from sglangctl.watch import event_fields

GONE = 1 << 22
"""A pid that no process has: the highest is one below it (PID_MAX_LIMIT)."""


def gpu(index: int, used: int | None, processes: tuple[tuple[int, int | None], ...]) -> Gpu:
    return Gpu(index, "", "", "", "12.0", used, 97887, None, 30.0, None, processes)


def test_only_the_engine_s_gpus_and_its_own_share() -> None:
    found = [
        gpu(0, 5000, ((10, 3000), (11, 1500), (99, 400))),
        gpu(1, 7000, ((10, None),)),
        gpu(2, None, ()),
    ]
    fields = event_fields.gpu(found, (0, 1), {10, 11})
    assert fields["gpus"] == [
        {"index": 0, "memory_used_mib": 5000, "memory_total_mib": 97887, "power_w": 30.0,
         "ours_mib": 4500},
        {"index": 1, "memory_used_mib": 7000, "memory_total_mib": 97887, "power_w": 30.0},
    ]  # fmt: skip
    everything = event_fields.gpu(found, "all", set())["gpus"]
    assert [entry["index"] for entry in everything] == [0, 1, 2]
    assert "memory_used_mib" not in everything[2]


@pytest.mark.parametrize(
    ("owner", "fields"),
    [
        (None, {"port": 8000, "owner_pid": None}),
        (Owner(8000, 7, True), {"port": 8000, "owner_pid": 7, "ours": True}),
        (Owner(8000, GONE, False), {"port": 8000, "owner_pid": GONE, "ours": False}),
        # Somebody listens who cannot be seen: a null would say that nobody does.
        (Owner(8000, None, None), {"port": 8000}),
    ],
)
def test_the_port_s_owner(owner: Owner | None, fields: dict[str, object]) -> None:
    assert event_fields.socket(8000, owner) == fields


def test_the_end() -> None:
    known = event_fields.exit(-9, 2, 0.0, {1})
    assert (known["returncode"], known["oom"], known["oom_kills"]) == (-9, True, 2)
    unknown = event_fields.exit(None, None, 1e9, {1})
    assert "returncode" not in unknown and "oom_kills" not in unknown
    assert unknown.get("oom") in (None, False)


def test_frozen_on_v2(tmp_path: Path) -> None:
    events = tmp_path / "cgroup.events"
    events.write_text("populated 1\nfrozen 0\n")
    assert not event_fields.frozen(tmp_path, 1)
    events.write_text("populated 1\nfrozen 1\n")
    assert event_fields.frozen(tmp_path, 1)


def test_frozen_on_v1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(procfs, "PROC", str(tmp_path / "proc"))
    monkeypatch.setattr(cgroup, "CGROUP", tmp_path)
    (tmp_path / "proc/7").mkdir(parents=True)
    (tmp_path / "proc/7/cgroup").write_text("9:name=systemd:/a\n6:freezer:/jobs/x\n0::/a\n")
    state = tmp_path / "freezer/jobs/x/freezer.state"
    state.parent.mkdir(parents=True)
    for text, frozen in (("THAWED\n", False), ("FREEZING\n", True), ("FROZEN\n", True)):
        state.write_text(text)
        assert event_fields.frozen(tmp_path / "no-such-cgroup", 7) is frozen
    assert not event_fields.frozen(None, 99)
