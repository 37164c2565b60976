"""An engine at its gate: what its unit has of its own until it is let in, its log, and its port."""

from __future__ import annotations

import os
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from sglangctl.state import slots
from sglangctl.state.config import Preflight
from sglangctl.state.paths import Paths
from sglangctl.switch import cutover_facts, gate
from sglangctl.switch.gate import Gate
from sglangctl.util.errors import Failed
from tests.support.engine_config import ENGINE
from tests.support.unit_files import OURS, make

UNIT = """# Made by sglang-provision for the engine kimi.
[Unit]
Description=SGLang engine kimi

[Service]
Type=exec
EnvironmentFile=/s/current/nccl.env
EnvironmentFile=/s/current/engine.env
ExecStartPre=-/usr/bin/printf x
ExecStartPre=/usr/local/bin/sglangctl weights --engine kimi --start
ExecStart=/venv/bin/python -m sglang.launch_server --config /s/current/engine.yaml
ExecStartPost=/usr/local/bin/sglangctl wait kimi
StandardOutput=append:/log/engine.log
Restart=always

[Install]
WantedBy=multi-user.target
"""


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths(tmp_path)


def test_until_it_is_let_in_it_has_its_own_release_and_log_and_is_not_restarted() -> None:
    found = gate.drop_in(UNIT, "/s/current/", "/s/releases/aa/", Path("/log/gate.log"), 40001)
    assert found.splitlines()[1:] == [
        "[Service]",
        "Restart=no",
        "EnvironmentFile=",
        "EnvironmentFile=/s/releases/aa/nccl.env",
        "EnvironmentFile=/s/releases/aa/engine.env",
        "ExecStart=",
        "ExecStart=/venv/bin/python -m sglang.launch_server --config /s/releases/aa/engine.yaml "
        "--gated-launch-port 40001",
        "ExecStartPre=",
        "ExecStartPre=-/usr/bin/printf x",
        "ExecStartPre=/usr/local/bin/sglangctl weights --engine kimi --start --at-gate",
        "StandardOutput=append:/log/gate.log",
        "StandardError=append:/log/gate.log",
    ]


def test_its_log_becomes_the_engines_and_the_old_one_is_kept(paths: Paths) -> None:
    log = paths.engine_log("kimi")
    log.parent.mkdir(parents=True)
    gate.take_log("kimi", paths)  # killed between the two moves, once more: nothing is to be done
    log.write_text("old\n")
    log.with_name("engine.log.1").write_text("older\n")
    waiting = gate.gate_log("kimi", paths)
    waiting.write_text("new\n")
    inode = waiting.stat().st_ino
    gate.take_log("kimi", paths)
    gate.take_log("kimi", paths)
    assert (log.read_text(), log.stat().st_ino) == ("new\n", inode), "the engine goes on writing it"
    gate.keep_old_log("kimi", paths)
    gate.keep_old_log("kimi", paths)
    assert log.with_name("engine.log.1").read_text() == "older\nold\n"
    assert sorted(path.name for path in log.parent.iterdir()) == ["engine.log", "engine.log.1"]


@pytest.mark.parametrize("listen", ["127.0.0.1", "0.0.0.0", "", "localhost"])
def test_its_port_is_free(listen: str) -> None:
    port = gate.free_port(listen)
    with socket.socket() as there:
        there.bind(("127.0.0.1", port))


def test_an_address_of_another_host_has_no_port() -> None:
    with pytest.raises(Failed, match=r"no port can be had at 192\.0\.2\.1"):
        gate.free_port("192.0.2.1")


def test_the_state_names_it_and_what_is_no_gate_is_none() -> None:
    way = Gate("sglang-kimi_a.service", "sglang-kimi.service", 40001)
    assert Gate.of(way.document()) == way and way.waits
    assert not replace(way, port=0).waits
    for found in (None, {}, [], {"unit": 1, "before": "x"}):
        assert Gate.of(found) is None


def test_what_speaks_against_it_on_a_host(paths: Paths) -> None:
    def said(*shipped: str, **more: object) -> list[str]:
        engine = replace(ENGINE, **more)  # type: ignore[arg-type]
        return cutover_facts.hindrances(engine, shipped, paths)

    assert said() == []
    (why,) = said("flag-template.jinja")
    assert "flag-template.jinja" in why
    (why,) = said(preflight=Preflight(derived_ports=(8233, 8234)))
    assert "8233, 8234" in why
    make(paths, "etc/systemd/system/sglang-kimi_b.service.d/override.conf")
    (why,) = said()
    assert "a drop-in changes its unit" in why
    link = slots.alias("kimi", paths)
    link.parent.mkdir(parents=True)
    link.write_text("[Unit]\n")
    assert said()[1] == f"{link} is somebody else's"
    link.unlink()
    make(paths, "etc/systemd/system/sglang-kimi_a.service", OURS)
    link.symlink_to(paths.units / "sglang-kimi_a.service")
    assert len(said()) == 1
    other = make(
        paths, "etc/systemd/system/sglang-kimi_b.service", "[Service]\nExecStart=/bin/true\n"
    )
    assert said()[1] == f"{other} is somebody else's"


def test_a_usr_that_is_read_only_has_no_alias(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = paths.root / "usr/local"
    folder.mkdir(parents=True)
    monkeypatch.setattr(os, "access", lambda path, mode: path != folder)
    (why,) = cutover_facts.hindrances(ENGINE, (), paths)
    assert f"{folder} cannot be written" in why


@pytest.mark.parametrize(
    ("now", "unit", "before"),
    [
        ("sglang-kimi.service", "sglang-kimi_b.service", "sglang-kimi_a.service"),
        ("sglang-kimi_a.service", "sglang-kimi_b.service", "sglang-kimi_a.service"),
        ("sglang-kimi_b.service", "sglang-kimi_a.service", "sglang-kimi_b.service"),
    ],
)
def test_it_is_between_the_two_slots(paths: Paths, now: str, unit: str, before: str) -> None:
    made = gate.made(replace(ENGINE, unit=now), paths)
    assert (made.unit, made.before) == (unit, before)
