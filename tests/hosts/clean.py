"""Remove container hosts: `python3 -m tests.hosts.clean NAME ...`, or `--all` of this checkout and the images."""

from __future__ import annotations

import subprocess
import sys

from tests.hosts import host, images
from tests.hosts.say import main_guard, output, say


def main() -> int:
    names = sys.argv[1:]
    if not names:
        say(f"usage: python3 -m tests.hosts.clean NAME ... | --hosts | --all  ({__doc__})")
        return 2
    if not engine_answers():
        say("clean: no Docker engine answers, so no container host is running")
        return 0
    if names in (["--hosts"], ["--all"]):
        gone = host.remove_all()
        say(f"clean: {len(gone)} container hosts removed" + "".join(f" {name}" for name in gone))
        if names == ["--all"]:
            remove_images()
        return 0
    for name in names:
        found = host.exists(name)
        host.remove(name)
        say(f"clean: {name} is removed" if found else f"clean: there is no {name}")
    return 0


def engine_answers() -> bool:
    try:
        return subprocess.run(["docker", "info"], capture_output=True, timeout=30).returncode == 0
    except FileNotFoundError:
        return False


def remove_images() -> None:
    listed = output(["docker", "image", "ls", images.REPOSITORY, "--format", "{{.Tag}}"]).split()
    for tag in listed:
        output(["docker", "image", "rm", f"{images.REPOSITORY}:{tag}"])
    say(f"clean: {len(listed)} image tags removed")


if __name__ == "__main__":
    main_guard(main)
