"""A switch that is told to end by a signal. Whoever goes on after a failure must not go on after these."""

from __future__ import annotations

from sglangctl.util.errors import Failed


class Ended(Failed):
    """The switch was told to end."""


class Cancelled(Ended):
    """SIGTERM: the switch is to end, and goes back."""


class Stopped(Ended):
    """SIGUSR1, from `sglangctl stop`: the engine is to be down, and nothing is to be started."""
