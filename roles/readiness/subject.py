"""What has to be known of one engine."""

from __future__ import annotations

from dataclasses import dataclass, field

from roles.inventory.model import EngineSpec
from roles.inventory.secret import Secret
from roles.remote import program
from sglangctl.state.config import Limits


@dataclass(frozen=True)
class Subject:
    """An engine to be followed and proved.

    `reachable_at` is the address that clients use (`http://host:port`, None: not checked from
    here); `api_key` is only for that request and never leaves the controller's memory. It may be
    one that could not be read: that is told where it is asked for.
    """

    name: str
    unit: str
    served_name: str
    port: int
    limits: Limits = field(default_factory=Limits)
    reachable_at: str | None = None
    api_key: Secret | None = field(default=None, repr=False)
    program: tuple[str, ...] = (program.LINK,)
    """How sglangctl is called on the host."""


def subject_of(spec: EngineSpec) -> Subject:
    """Of an engine of the inventory."""
    return Subject(
        name=spec.name,
        unit=spec.unit,
        served_name=spec.model.served_name,
        port=spec.port,
        limits=spec.limits,
        reachable_at=spec.readiness.reachable_at,
        api_key=spec.api_key,
    )
