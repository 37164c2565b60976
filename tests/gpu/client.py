"""A client of the port that asks 5 times a second who serves: python client.py PORT FILE

One line an answer: seconds since the epoch, the served model's id or `-`. Until it is ended.
"""

from __future__ import annotations

import json
import sys
import time
import urllib.request

EVERY_S = 0.2


def served(port: int) -> str:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/models", timeout=2) as answer:
            return str(json.load(answer)["data"][0]["id"])
    except (OSError, ValueError, KeyError, IndexError):
        return "-"


def main() -> None:
    port, path = int(sys.argv[1]), sys.argv[2]
    with open(path, "w", buffering=1, encoding="utf-8") as file:
        while True:
            file.write(f"{time.time():.2f} {served(port)}\n")
            time.sleep(EVERY_S)


if __name__ == "__main__":
    main()
