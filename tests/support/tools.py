"""Programs that some tests need. `make test` installs them (tests/hosts/packages.sh): there a test fails
without its program; elsewhere it is left out."""

from __future__ import annotations

import os
import shutil

ALL_ARE_HERE = "SGLANG_TESTS_HAVE_ALL_TOOLS"
"""Set by `make test`."""


def which(name: str) -> str | None:
    """Its path, as for root: a user's PATH may lack /usr/sbin."""
    return shutil.which(name, path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin")


def missing(name: str) -> bool:
    """Whether the tests that need it are left out."""
    return ALL_ARE_HERE not in os.environ and which(name) is None
