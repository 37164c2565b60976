"""A filter of pyinfra's log: what it says at the end of a failed run, in a form that helps."""

from __future__ import annotations

import logging
import re

COUNTED = re.compile(r"Error: (?:\x1b\[[0-9;]*m)*executed \d+ commands")
PLACE = re.compile(r"(pyinfra error) in .+? line \d+")
NOBODY = ("No hosts remaining", "% of hosts failed (100%)")


class Quiet(logging.Filter):
    """A failed host is "Failed", and an error names no line of the code.

    Once the last screen is printed (`told`), pyinfra's own last line is left out: it says less. With
    --fail-percent it says why the hosts that did not fail were left alone, and stays.
    """

    told = False

    def filter(self, record: logging.LogRecord) -> bool:
        if not isinstance(record.msg, str):
            return True
        if self.told and "-->" in record.msg and any(one in record.msg for one in NOBODY):
            return False
        record.msg = PLACE.sub(r"\1", COUNTED.sub("Failed", record.msg))
        return True
