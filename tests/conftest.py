"""For all tests: stand-in engines, and property tests without time limits on a machine that may be busy.

`make check` looks at few examples of each, `make test` at many (--hypothesis-profile=thorough).
No test makes the user that installs packages on the machine that it runs on.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from sglangctl.state import build_user
from sglangctl.systemd import confined
from tests.hosts.standins.fixtures import machine, site

__all__ = ["machine", "site"]

settings.register_profile(
    "quick", deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=25
)
settings.register_profile("thorough", settings.get_profile("quick"), max_examples=200)
settings.load_profile("quick")


THE_REAL_RUN = build_user.run


@pytest.fixture(autouse=True, scope="session")
def no_build_user() -> Iterator[None]:
    """What would run as that user runs as oneself; tests/unit/sglangctl/state/test_build_user.py has
    the function itself."""

    def as_oneself(argv, paths, *, limit_s, filled=(), streamed=False):  # type: ignore[no-untyped-def]
        for folder in filled:
            Path(folder).mkdir(parents=True, exist_ok=True)
        return confined.run(argv, None, limit_s=limit_s, environment=os.environ, streamed=streamed)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build_user, "run", as_oneself)
        yield
