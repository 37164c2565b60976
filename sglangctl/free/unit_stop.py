"""Stopping units through systemd: the request before the wait, and the clean-up after it."""

from __future__ import annotations

from collections.abc import Sequence

from sglangctl.free.model import UnitStep
from sglangctl.systemd import systemctl


def begin(step: UnitStep) -> str | None:
    """Ask systemd to disable and stop; None, or why it will not."""
    if step.disable:
        from sglangctl.free import disabling

        failed = disabling.disable(step.unit)
        if failed:
            return failed
    # Also of a unit that is not active: a stop cancels a restart that is waiting.
    result = systemctl.call("stop", "--no-block", "--", step.unit)
    if not result.ok and "not loaded" not in result.stderr:
        return f"systemctl stop {step.unit} failed: {result.stderr.strip()}"
    return None


def reset_failed(steps: Sequence[UnitStep]) -> None:
    """A stop by SIGKILL leaves `failed` behind; this end was wanted. Not loaded: nothing to do."""
    failed = [step.unit for step in steps]
    if failed:
        systemctl.call("reset-failed", "--", *failed)
