"""Whether this version of the program is on a host as it should be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from roles.host.operations import PROGRAM_MODE, program_is_wrong
from roles.remote import program
from roles.remote.snapshot import RUNS
from sglangctl.state.files import describe

GOOD = {"kind": "other", "mode": PROGRAM_MODE, "owner": "root", "group": "root"}


@pytest.mark.parametrize(
    ("fact", "runs", "said"),
    [
        (GOOD, True, ""),
        ({**GOOD, "kind": "file", "sha256": "x"}, True, ""),
        ({"kind": "absent"}, False, "new"),
        (GOOD, False, "damaged"),
        ({**GOOD, "kind": "directory"}, False, "damaged"),
        ({**GOOD, "mode": "0750"}, True, "mode 0750 -> 0755"),
        ({**GOOD, "owner": "bob"}, True, "owner bob -> root"),
    ],
)
def test_why_it_is_written(fact: dict[str, Any], runs: bool, said: str) -> None:
    assert program_is_wrong({"files": {program.path(): fact}, RUNS: runs}) == said


def test_the_probe_describes_this_program_as_one_that_is_right(tmp_path: Path) -> None:
    """What it says of so large a file is no other kind of thing."""
    file = tmp_path / "program.pyz"
    file.write_bytes(program.archive())
    file.chmod(int(PROGRAM_MODE, 8))
    fact = {**describe(str(file)), "owner": "root", "group": "root"}
    assert program_is_wrong({"files": {program.path(): fact}, RUNS: True}) == ""
