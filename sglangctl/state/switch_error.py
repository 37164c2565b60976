"""How a switch, a stop or a removal fails."""

from __future__ import annotations


class SwitchError(Exception):
    """It did not come to its end; the text names cause and next step, `status` the exit."""

    def __init__(self, text: str, status: int = 1) -> None:
        super().__init__(text)
        self.status = status
