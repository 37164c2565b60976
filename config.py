"""pyinfra's settings for this checkout."""

from pyinfra import config

# The oldest release with everything that we use; the next major one changes what
# operations report.
config.REQUIRE_PYINFRA_VERSION = ">=3.10,<4"
# One host that fails must not stop the others before they are done.
config.FAIL_PERCENT = 100
