"""Build the images of the container hosts, once for each state of what they are made from.

    python3 -m tests.hosts.images base|engine|kernel|debian11|debian13

`base`: Debian 12 with systemd and sshd, no more than a bare server has; `debian11` and `debian13` are
the same of another release. `engine`: base plus what a
GPU cloud image carries (torch and SGLang's dependencies in the system's Python: the layer `python`)
and a tiny model. `kernel`: that layer with compilers, for kernel builds.
Tags carry the digest of the inputs; the plain tags name the newest.
"""

from __future__ import annotations

import fcntl
import hashlib
import io
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.hosts import pip_settings
from tests.hosts.say import CACHE, ROOT, Failure, main_guard, output, run, say

REPOSITORY = "sglang-provision-host"
IMAGE = Path(__file__).with_name("image")
SUITES = {"base": "bookworm", "debian11": "bullseye", "debian13": "trixie"}
"""What is made from nothing -> the release of Debian."""
LABEL = "sglang-provision.checkout"  # on every container and network, with the checkout's path
KEPT = 2  # images of a kind: this checkout's and that of the branch before
BASE = ("base.packages", "base.sh", "boot.sh")
INPUTS = {
    **dict.fromkeys(SUITES, BASE),
    "python": ("python.requirements", "python.constraints", "python.sh"),
    "engine": ("engine.sh", "make_model.py"),
    "kernel": ("kernel.sh",),
}
PARENT = {"python": "base", "engine": "python", "kernel": "python"}
TITLES = {
    "python": "Installing torch for CPUs and SGLang's dependencies into the image (about 2 min)",
    "engine": "Making a tiny model in the image (about 20 s)",
    "kernel": "Installing compilers into the image (about 1 min)",
}


def digest(kind: str) -> str:
    """Twelve hex digits over all that decides what is in the image."""
    total = hashlib.sha256(f"{kind} {SUITES.get(kind, SUITES['base'])}".encode())
    if kind in PARENT:
        total.update(digest(PARENT[kind]).encode())
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
            ensure_unlocked(kind)
    return name


def ensure_unlocked(kind: str) -> str:
    name = tag(kind)
    if not exists(name):  # another run may have built it while this one waited for the lock
        if kind in PARENT:
            build_on(kind, name)
        else:
            build_base(name, SUITES[kind])
        output(["docker", "tag", name, f"{REPOSITORY}:{kind}"])
        size = int(output(["docker", "image", "inspect", "-f", "{{.Size}}", name]))
        say(f"    image {name}: {size / 1e6:.0f} MB")
        prune(kind)
    return name


def prune(kind: str) -> None:
    """Drop all but the newest images of a kind; one that a container uses stays, Docker sees to it."""
    listed = output(["docker", "image", "ls", REPOSITORY, "--format", "{{.Tag}}"]).split()
    for old in [tag for tag in listed if tag.startswith(f"{kind}-")][KEPT:]:
        subprocess.run(["docker", "image", "rm", f"{REPOSITORY}:{old}"], capture_output=True)


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


def build_base(name: str, suite: str) -> None:
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
                suite,
                tar,
            ],
            f"Building the container host's image: Debian {suite} with sshd (about 30 s)",
        )
        # The boot script needs these two in the image: `docker import` starts from nothing.
        changes = ['CMD ["/usr/local/sbin/container-host-boot"]', "ENV container=docker"]
        argv = ["docker", "import", *(f"--change={change}" for change in changes), tar, name]
        output(argv, timeout=600)


def build_on(kind: str, name: str) -> None:
    """Run `<kind>.sh` in a container of the parent's image and keep that as the image."""
    parent = ensure_unlocked(PARENT[kind])
    settings = pip_settings.effective()
    cache = CACHE / "pip"
    cache.mkdir(parents=True, exist_ok=True)
    builder = f"sglang-provision-build-{digest(kind)}"
    subprocess.run(["docker", "rm", "--force", builder], capture_output=True)
    argv = ["docker", "create", f"--name={builder}", f"--volume={cache}:/build-cache"]
    argv.append(f"--label={LABEL}={ROOT}")
    # No AppArmor profile, as for the hosts: its tools may not be installed. This machine's own
    # network: its name server or proxy may listen on its loopback address.
    argv += ["--security-opt=apparmor=unconfined", "--network=host"]
    argv += [f"--volume={source}:{target}:ro" for source, target in settings.mounts]
    try:
        output([*argv, parent, "sleep", "infinity"])
        # Copied, not bound: a bind mount would leave an empty folder in the image.
        copy(builder, settings.config.encode(), "/etc/pip.conf")
        for source, target in settings.files:
            copy(builder, source.read_bytes(), target)
        for input_name in INPUTS[kind]:
            copy(builder, (IMAGE / input_name).read_bytes(), f"/build/{input_name}")
        output(["docker", "start", builder])
        run(["docker", "exec", builder, "sh", f"/build/{kind}.sh"], TITLES[kind])
        clean = f"rm -rf /build {pip_settings.FOLDER} /etc/pip.conf"
        output(["docker", "exec", builder, "sh", "-c", clean])
        output(["docker", "stop", "--time=0", builder])
        change = 'CMD ["/usr/local/sbin/container-host-boot"]'
        run(
            ["docker", "commit", f"--change={change}", builder, name],
            f"Keeping the {kind} image",
        )
    finally:
        subprocess.run(["docker", "rm", "--force", builder], capture_output=True)


def copy(container: str, data: bytes, target: str) -> None:
    """Put a file into a container that does not run yet; missing folders are made."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as tar:
        member = tarfile.TarInfo(target.strip("/"))
        member.size, member.mode = len(data), 0o644
        tar.addfile(member, io.BytesIO(data))
    done = subprocess.run(
        ["docker", "cp", "-", f"{container}:/"], input=buffer.getvalue(), capture_output=True
    )
    if done.returncode != 0:
        raise Failure(f"{container}: copying to {target}: {done.stderr.decode().strip()}")


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
