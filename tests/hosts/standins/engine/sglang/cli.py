"""`sglang serve`: the recommended entry."""

from __future__ import annotations

import sys


def main() -> None:
    """Only `serve` and `--version` are played."""
    words = sys.argv[1:]
    if words == ["--version"]:
        from sglang.version import __version__

        print(__version__)
    elif words[:1] == ["serve"]:
        from sglang._standin.launcher import main as launch

        launch(words[1:])
    else:
        sys.exit("usage: sglang serve [options]")


if __name__ == "__main__":
    main()
