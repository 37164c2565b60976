"""`python3 -m sglangctl` and the zipapp's entry."""

from __future__ import annotations

import sys

from sglangctl.cli import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
