"""What some tests need of the machine. Where `make test` runs, programs (tests/hosts/packages.sh), mounts,
namespaces and IPv6 are there: there a test fails without them; elsewhere it is left out."""

from __future__ import annotations

import os
import shutil
from typing import NoReturn

import pytest

ALL_ARE_HERE = "SGLANG_TESTS_HAVE_ALL_TOOLS"
"""Set by `make test`."""


def which(name: str) -> str | None:
    """Its path, as for root: a user's PATH may lack /usr/sbin."""
    return shutil.which(name, path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin")


def missing(name: str) -> bool:
    """Whether the tests that need it are left out."""
    return ALL_ARE_HERE not in os.environ and which(name) is None


def leave_out(reason: str) -> NoReturn:
    """Ends a test whose machine lacks what it needs: left out, but failed under `make test`."""
    if ALL_ARE_HERE in os.environ:
        pytest.fail(f"`make test` must not leave this out: {reason}", pytrace=False)
    pytest.skip(reason)
