"""Whether this version of the program is on a host as it should be."""

from __future__ import annotations

from typing import Any

import pytest

from roles.host.operations import PROGRAM_MODE, program_is_wrong
from roles.remote import program
from roles.remote.snapshot import RUNS

GOOD = {"kind": "file", "sha256": "x", "mode": PROGRAM_MODE, "owner": "root", "group": "root"}


@pytest.mark.parametrize(
    ("fact", "runs", "said"),
    [
        (GOOD, True, ""),
        ({"kind": "absent"}, False, "new"),
        (GOOD, False, "damaged"),
        ({**GOOD, "kind": "directory"}, False, "damaged"),
        ({**GOOD, "mode": "0750"}, True, "mode 0750 -> 0755"),
        ({**GOOD, "owner": "bob"}, True, "owner bob -> root"),
    ],
)
def test_why_it_is_written(fact: dict[str, Any], runs: bool, said: str) -> None:
    assert program_is_wrong({"files": {program.path(): fact}, RUNS: runs}) == said
