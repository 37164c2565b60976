"""pyinfra's settings for this checkout."""

from pyinfra import config

# The oldest release with everything that we use; the next major one changes what
# operations report.
config.REQUIRE_PYINFRA_VERSION = ">=3.10,<4"
