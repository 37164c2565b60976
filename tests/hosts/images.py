"""Build the images of the container hosts, once for each state of what they are made from.

    python3 -m tests.hosts.images base|engine

`base`: Debian 12 with systemd and sshd, no more than a bare server has. `engine`: base plus what a
GPU cloud image carries (torch and SGLang's dependencies in the system's Python) and a tiny model.
Tags carry the digest of the inputs; the plain tags name the newest.
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.hosts.say import CACHE, Failure, main_guard, output, run, say

REPOSITORY = "sglang-provision-host"
IMAGE = Path(__file__).with_name("image")
SUITE = "bookworm"
INPUTS = {
    "base": ("base.packages", "base.sh", "boot.sh"),
    "engine": ("engine.requirements", "engine.sh", "make_model.py"),
}


def digest(kind: str) -> str:
    """Twelve hex digits over all that decides what is in the image."""
    total = hashlib.sha256(f"{kind} {SUITE}".encode())
    if kind != "base":
        total.update(digest("base").encode())
    for name in INPUTS[kind]:
        total.update(f"{name}\n".encode() + (IMAGE / name).read_bytes())
    return total.hexdigest()[:12]


def tag(kind: str) -> str:
    return f"{REPOSITORY}:{kind}-{digest(kind)}"


def ensure(kind: str) -> str:
    """The image's tag, built first where it is missing."""
    name = tag(kind)
    if not exists(name):
        with lock():
            if not exists(name):  # another run may have built it while this one waited
                {"base": build_base, "engine": build_engine}[kind](name)
                output(["docker", "tag", name, f"{REPOSITORY}:{kind}"])
                size = int(output(["docker", "image", "inspect", "-f", "{{.Size}}", name]))
                say(f"    image {name}: {size / 1e6:.0f} MB")
    return name


def exists(name: str) -> bool:
    done = subprocess.run(["docker", "image", "inspect", name], capture_output=True)
    return done.returncode == 0


@contextmanager
def lock() -> Iterator[None]:
    """One build at a time on this machine: two checkouts may share one Docker engine."""
    with (Path(tempfile.gettempdir()) / "sglang-provision-images.lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("==> waiting for another build of the container image")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def packages() -> list[str]:
    text = (IMAGE / "base.packages").read_text()
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def build_base(name: str) -> None:
    if not shutil.which("mmdebstrap"):
        raise Failure("mmdebstrap is missing, so no image can be built: apt-get install mmdebstrap")
    CACHE.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as folder:
        tar = f"{folder}/base.tar"
        run(
            [
                "mmdebstrap",
                "--variant=apt",
                f"--include={','.join(packages())}",
                f"--customize-hook={IMAGE / 'base.sh'}",
                "--skip=check/empty",
                SUITE,
                tar,
            ],
            "Building the container host's image: Debian 12 with systemd and sshd (about 30 s)",
        )
        # The boot script needs these two in the image: `docker import` starts from nothing.
        changes = ['CMD ["/usr/local/sbin/container-host-boot"]', "ENV container=docker"]
        argv = ["docker", "import", *(f"--change={change}" for change in changes), tar, name]
        output(argv, timeout=600)


def build_engine(name: str) -> None:
    raise Failure("not built yet")


def main() -> int:
    kinds = sys.argv[1:]
    if not kinds or any(kind not in INPUTS for kind in kinds):
        say(f"usage: python3 -m tests.hosts.images {'|'.join(INPUTS)} ...")
        return 2
    for kind in kinds:
        say(f"image {ensure(kind)} is there")
    return 0


if __name__ == "__main__":
    main_guard(main)
