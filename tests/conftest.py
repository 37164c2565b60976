"""For all tests: stand-in engines, and no time limits of property tests on a machine that may be busy."""

from hypothesis import HealthCheck, settings

from tests.hosts.standins.fixtures import machine, site

__all__ = ["machine", "site"]

settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")
