"""The causes that a fallback can help: a closed list, like that of the causes."""

from __future__ import annotations

from sglangctl.diagnosis.causes import CAUSES
from sglangctl.diagnosis.overrides import DOES_NOT_HELP, HELPS


def test_every_cause_is_judged_once() -> None:
    assert HELPS.keys() | DOES_NOT_HELP.keys() == CAUSES.keys()
    assert not HELPS.keys() & DOES_NOT_HELP.keys()
