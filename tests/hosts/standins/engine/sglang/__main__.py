"""`python -m sglang`."""

from sglang.cli import main

if __name__ == "__main__":
    main()
