"""An engine's configuration as it holds for the release that is live."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sglangctl.state.config import ConfigError, Drafter, load_engine
from sglangctl.state.files import link_atomic
from sglangctl.state.paths import Paths
from tests.support.engine_host import write_config


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths(tmp_path)


WANTED, PLAIN = "a" * 64, "b" * 64


@pytest.mark.parametrize(("live", "drafts"), [(WANTED, True), (PLAIN, False), (None, True)])
def test_a_fallback_that_is_live_has_its_overrides(
    paths: Paths, live: str | None, drafts: bool
) -> None:
    plain = {"name": "plain", "release": PLAIN, "instead_of": WANTED, "drafter": None}
    write_config(paths.root, 8000, drafter={"path": "/d"}, fallbacks=[plain])
    if live:
        paths.engine_state("tiny").mkdir(parents=True)
        link_atomic(paths.current("tiny"), f"releases/{live}")
    found = load_engine("tiny", paths)
    assert found.drafter == (Drafter(path="/d") if drafts else None)
    assert [one.name for one in found.fallbacks] == ["plain"]


@pytest.mark.parametrize(
    "wrong", ["x", ["x"], [{"name": "x"}], [{"name": 1, "release": PLAIN, "instead_of": WANTED}]]
)
def test_what_is_no_fallback_is_said(paths: Paths, wrong: Any) -> None:
    write_config(paths.root, 8000, fallbacks=wrong)
    with pytest.raises(ConfigError, match=r"tiny\.json.*deploy again"):
        load_engine("tiny", paths)


def test_a_configuration_of_before_is_read_without_its_old_fields(paths: Paths) -> None:
    """A sibling of the engine that is switched has it until its own turn comes."""
    old = {"prefill_attention": "fa3", "decode_graphs": None, "mem_fraction": 0.9}
    write_config(paths.root, 8000, preflight=old)
    assert load_engine("tiny", paths).preflight.mem_fraction == 0.9
    write_config(paths.root, 8000, preflight={"prefil_attention": "fa3"})
    with pytest.raises(ConfigError, match="unknown keys prefil_attention"):
        load_engine("tiny", paths)
