"""The benchmark of "nothing to do": Ansible's side checks what ours does, and limits are limits."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from benchmarks import converge
from benchmarks.converging import ansible, plots
from roles.stages.desired import make
from tests.support.inventory_case import engine_text, load, only


def test_the_playbook_has_all_that_a_deploy_compares(tmp_path: Path) -> None:
    entry = only(load(engine_text("port: 8000\n")))
    assert entry.spec is not None
    desired = make(entry.spec)
    found: dict[str, Any] = ansible.variables(tmp_path, desired)
    listed = {one["path"] for one in [*found["folders"], *found["files"]]}
    # Asked for by other means: the program, and units that the engine is not on this host.
    (engine,) = desired.engines
    slots = {f"/etc/systemd/system/{unit}" for unit in engine.unit_files} - listed
    items = [*desired.managed, *engine.managed, engine.config, *engine.live_files.values()]
    assert listed >= {item.path for item in items} and len(slots) == 2
    assert all(Path(one["source"]).is_file() for one in found["files"])
    used = set(re.findall(r"{{ (\w+)", ansible.PLAYBOOK.read_text())) - {"item"}
    assert used == set(found)


def test_figures_over_their_limits_are_named() -> None:
    good = {"hosts": 10, "remote_commands": 1, "noop_vs_exec": 1.5, "noop_vs_ansible": None}
    assert converge.over(good) == []
    assert len(converge.over({**good, "hosts": 1})) == 1
    slow = [{"hosts": 500, "processor_s": 7.0}, {"hosts": 1000, "processor_s": 7.0}]
    bad = {**good, "remote_commands": 3, "noop_vs_ansible": 0.1, "fleet": slow}
    found = converge.over(bad)
    assert [line.split(":")[0] for line in found] == [
        "remote_commands",
        "noop_vs_ansible",
        "500 hosts",
    ]


def test_the_pictures_have_every_figure_that_is_kept() -> None:
    sides = {"noop": 1.0, "exec": 0.8}
    fleet = [{"hosts": n, "processor_s": n / 100, "exec_processor_s": 1.0} for n in (1, 100, 500)]
    time, processor = plots.lines(
        [
            {"hosts": 1, "median_s": {**sides, "ansible": 9.0}, "fleet": fleet},
            {"hosts": 10, "median_s": {**sides, "noop": 2.0}},
        ]
    )
    assert time[plots.NAMES["noop"]] == [(1, 1.0), (10, 2.0)]
    assert time[plots.NAMES["ansible"]] == [(1, 9.0)]
    assert [y for _, y in processor[plots.NAMES["noop"]]] == [0.01, 1.0, 5.0]
    for drawn, log in ((time, True), (processor, False)):
        found = ElementTree.fromstring(plots.picture("a & b", drawn, log))
        dots = found.findall("{http://www.w3.org/2000/svg}circle")
        assert len(dots) == sum(len(line) for line in drawn.values())
        places = [(float(dot.get("cx", "")), float(dot.get("cy", ""))) for dot in dots]
        assert all(0 < x < plots.WIDTH and 0 < y < plots.HEIGHT for x, y in places)
