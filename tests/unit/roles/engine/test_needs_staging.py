"""When a release is written: a live one that is as it should be is left as it is."""

from __future__ import annotations

from typing import Any

from roles.engine.desired import desired_engine
from roles.engine.operations import needs_staging
from tests.support.host_facts import facts_of
from tests.support.inventory_case import engine

WANTED = desired_engine(engine())
DIGEST = WANTED.release.digest


def facts(staged: bool = True, live: bool = True, **file: Any) -> dict[str, Any]:
    current = DIGEST if live else "b" * 64
    releases = {"current": current, "staged": [DIGEST] if staged else []}
    found = facts_of(WANTED, releases=releases)
    path = f"{WANTED.spec.current}/nccl.env"
    found["files"][path] = {**found["files"][path], **file}
    return found


def test_what_is_missing_or_edited_is_written() -> None:
    assert not needs_staging(WANTED, facts())
    assert needs_staging(WANTED, facts(staged=False)) and needs_staging(WANTED, facts(False, False))
    assert needs_staging(WANTED, facts(sha256="0" * 64))
    assert not needs_staging(WANTED, facts(live=False, sha256="0" * 64))


def test_a_wrong_mode_alone_is_no_reason() -> None:
    """A host does not count it among the staged ones then. Written again, the release would be newer than
    the process, and the engine restart."""
    assert not needs_staging(WANTED, facts(staged=False, mode="0777"))
    assert needs_staging(WANTED, facts(mode="0777", sha256="0" * 64))
