"""Take away what demos and tests have left.

python3 -m tests.hosts.clean NAME ...   container hosts
python3 -m tests.hosts.clean --hosts    all of this checkout
python3 -m tests.hosts.clean --all      and the images
python3 -m tests.hosts.clean --strays   processes that a test of this checkout started (for CI)
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.hosts import host, images
from tests.hosts.say import ROOT, main_guard, output, say


def main() -> int:
    names = sys.argv[1:]
    if not names:
        say(__doc__ or "")
        return 2
    if names == ["--strays"]:
        for pid, title in strays():
            say(f"clean: ended {pid}, which a test left running: {title}")
        return 0
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


def strays() -> list[tuple[int, str]]:
    """End what tests of this checkout started and did not end; (pid, command line) of each.

    pytest puts the running test's name into the environment, so a person's own processes in this
    folder are not among them.
    """
    ended = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            ours = (folder / "cwd").resolve(strict=True).is_relative_to(ROOT)
            if not ours or b"PYTEST_CURRENT_TEST=" not in (folder / "environ").read_bytes():
                continue
            title = (
                (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
            )
            os.kill(int(folder.name), signal.SIGKILL)
        except (OSError, RuntimeError):  # gone meanwhile, or another user's
            continue
        ended.append((int(folder.name), "".join(c for c in title if c.isprintable())[:120]))
    return ended


def remove_images() -> None:
    listed = output(["docker", "image", "ls", images.REPOSITORY, "--format", "{{.Tag}}"]).split()
    for tag in listed:
        output(["docker", "image", "rm", f"{images.REPOSITORY}:{tag}"])
    say(f"clean: {len(listed)} image tags removed")


if __name__ == "__main__":
    main_guard(main)
