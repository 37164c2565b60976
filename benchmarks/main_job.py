"""The main job's numbers: `make demo` twice in a clean clone of this checkout.

    python3 -m benchmarks.main_job [--cold] [--evidence]

Seconds of the first run, with all its set-up, and of the second, which must change nothing. What of
the set-up this machine has already (a Docker engine with the images) is said; --cold takes the
images away first, whoever made them. The limit of the first is 900 s on 2 cores. Exit status 0
within it, 1 not.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks import evidence
from tests.hosts.images import REPOSITORY

ROOT = Path(__file__).resolve().parents[1]
LIMIT_S = 900.0


def demo(clone: Path) -> tuple[float, str]:
    """Seconds and output of one `make demo`; SystemExit with its last lines when it fails."""
    began = time.monotonic()
    done = subprocess.run(
        ["make", "demo"], cwd=clone, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    seconds = time.monotonic() - began
    if done.returncode != 0:
        raise SystemExit("\n".join((done.stdout + done.stderr).splitlines()[-30:]))
    return seconds, done.stdout + done.stderr


def images() -> list[str]:
    """Names of the container hosts' images, with their tags."""
    listing = ["docker", "image", "ls", "--format={{.Repository}}:{{.Tag}}", REPOSITORY]
    return subprocess.run(listing, capture_output=True, text=True, check=True).stdout.split()


def remove_images() -> None:
    for name in images():
        subprocess.run(["docker", "image", "rm", "--force", name], check=True, capture_output=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cold", action="store_true", help="remove the container images first")
    parser.add_argument(evidence.OPTION, action="store_true")
    args = parser.parse_args()
    docker = subprocess.run(["docker", "info"], capture_output=True).returncode == 0
    if docker and args.cold:
        remove_images()
    there = sorted(images()) if docker else []
    with tempfile.TemporaryDirectory(prefix="main-job-") as folder:
        clone = Path(folder) / "clone"
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
        try:
            first, _ = demo(clone)
            second, said = demo(clone)
        finally:
            # Not `make clean`: images and engine may be in use by others on this machine.
            subprocess.run(["make", "clean-demo"], cwd=clone, check=False)
    figures: dict[str, Any] = {
        "docker_engine_was_running": docker,
        "images_were_there": there,
        "limit_s": LIMIT_S,
        "demo_s": round(first, 1),
        "second_demo_s": round(second, 1),
        "second_demo_changed_nothing": bool(re.search(r"(?i)nothing changed", said)),
    }
    evidence.keep("main-job", figures, args.evidence)
    return 0 if first <= LIMIT_S and figures["second_demo_changed_nothing"] else 1


if __name__ == "__main__":
    sys.exit(main())
