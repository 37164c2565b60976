"""`--data restart=never`: what a run asks for beside the inventory."""

from __future__ import annotations

import pytest

from roles.inventory.model import HostSpec
from roles.stages.asked import for_this_run
from tests.support.inventory_case import engine


def asked(**data: str) -> HostSpec:
    return for_this_run(HostSpec("h", (engine(), engine("restart: never"))), data.get)


def test_the_run_goes_before_the_inventory() -> None:
    assert [one.restart for one in asked().engines] == ["auto", "never"]
    assert [one.restart for one in asked(restart="never").engines] == ["never", "never"]
    assert [one.restart for one in asked(restart="auto").engines] == ["auto", "auto"]


@pytest.mark.parametrize("value", ["", "Never", "no"])
def test_what_the_inventory_could_not_say_is_refused(value: str) -> None:
    with pytest.raises(ValueError, match=r"--data restart=.*auto or never"):
        asked(restart=value)
