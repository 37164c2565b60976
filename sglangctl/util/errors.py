"""How a command fails: one sentence for the operator, and the exit status."""

from __future__ import annotations


class Failed(Exception):
    """It could not be done; the text names the cause and the next step, `status` is the exit's.

    Only cli.main prints it: a text of several lines is a sentence and what is to be seen below it.
    """

    status = 1

    def __init__(self, text: str, status: int | None = None) -> None:
        super().__init__(text)
        if status is not None:
            self.status = status


class Unusable(Failed):
    """What was named or handed over (a name, a configuration, a file, an environment) cannot be
    used; nothing was changed."""

    status = 2
