"""For all tests: stand-in engines, and property tests without time limits on a machine that may be busy.

`make check` looks at few examples of each, `make test` at many (--hypothesis-profile=thorough).
"""

from hypothesis import HealthCheck, settings

from tests.hosts.standins.fixtures import machine, site

__all__ = ["machine", "site"]

settings.register_profile(
    "quick", deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=25
)
settings.register_profile("thorough", settings.get_profile("quick"), max_examples=200)
settings.load_profile("quick")
