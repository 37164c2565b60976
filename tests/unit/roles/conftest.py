"""For the unit tests of the controller: no test sees the run of another one."""

from collections.abc import Iterator

import pytest
from pyinfra.context import ctx_host, ctx_state


@pytest.fixture(autouse=True)
def no_run_is_left() -> Iterator[None]:
    """pyinfra's `ctx_state.use` does not put back what was there after an exception."""
    yield
    ctx_state.reset()
    ctx_host.reset()
