"""For all tests: stand-in engines, and property tests without time limits on a machine that may be busy.

`make check` looks at few examples of each, `make test` at many (--hypothesis-profile=thorough).
No test makes the user that installs packages on the machine that it runs on.
"""

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from sglangctl.state import build_user
from tests.hosts.standins.fixtures import machine, site
from tests.support import own_rights

__all__ = ["machine", "site"]

settings.register_profile(
    "quick", deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=25
)
settings.register_profile("thorough", settings.get_profile("quick"), max_examples=200)
settings.load_profile("quick")


THE_REAL_RUN, THE_REAL_THEIRS = build_user.run, build_user.theirs


@pytest.fixture(autouse=True, scope="session")
def no_build_user() -> Iterator[None]:
    """What would run as that user runs as oneself; tests/unit/sglangctl/state/test_build_user.py has
    the function itself."""

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build_user, "run", own_rights.run)
        patch.setattr(build_user, "theirs", own_rights.theirs)
        yield
