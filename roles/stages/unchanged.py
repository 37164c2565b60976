"""A host on which a deploy has nothing to do costs one operation instead of fourteen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from pyinfra import logger
from pyinfra.context import host, state

from roles.remote.failing import contained
from roles.remote.look import looking
from roles.remote.operation import Commands, operation, show_now
from roles.stages.desired import DesiredHost
from roles.stages.prepare import prepare_engines, prepare_host, prepare_kernels
from roles.stages.readiness import wait_until_serving
from roles.stages.switch import remove_gone, switch_engines

STAGES = (
    prepare_host,
    prepare_engines,
    prepare_kernels,
    switch_engines,
    wait_until_serving,
    remove_gone,
)
"""Of deploys/sglang.py, in its order."""


@contained
def nothing_to_do(desired: DesiredHost) -> bool:
    """
    Whether the whole deploy would change nothing on this host; it then gets one operation that says so.

    Only without a plan that somebody reads (-y): the host is then as it was a moment ago, so that an
    operation finds now what it would find while executing. False also where that cannot be told.

    + desired: the host
    """
    if state.check_for_changes:
        return False
    with looking() as look:
        try:
            for stage in STAGES:
                # Without pyinfra's decorator: it names operations, and none is added.
                cast("Callable[[DesiredHost], None]", cast("Any", stage)._inner)(desired)
                if look.busy:
                    return False
        except Exception:
            logger.debug("the operations will tell", exc_info=True)
            return False
    show_now(look.lines)
    left_as_it_is(name="nothing to do", engines=[one.name for one in desired.engines])
    return True


@operation()
def left_as_it_is(engines: list[str]) -> Commands:
    """
    Say that nothing is done on this host; a restart can be due (`restart: never`).

    + engines: their names
    """
    host.noop(f"{', '.join(engines) or 'the host'}: left as it is")
    yield from ()
