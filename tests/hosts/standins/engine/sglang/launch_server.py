"""`python -m sglang.launch_server`: the engine's entry."""

from __future__ import annotations

import sys

if __name__ == "__main__":
    from sglang._standin.launcher import main

    main(sys.argv[1:])
