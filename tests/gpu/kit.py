"""What a GPU machine without a network needs to become a host: `python -m tests.gpu.kit FOLDER`.

Made on a machine with package registries, for Ubuntu 24.04 or Debian 12 with Python 3.12 and torch 2.11 (CUDA 13):

FOLDER/kit      Debian packages of systemd and sshd, the controller's wheels, ensurepip
FOLDER/part0..  the engine's wheels (pins.txt), at most PART_BYTES each, to be carried one by one

About 900 MB are downloaded. Already there is not fetched again.
"""

from __future__ import annotations

import ensurepip
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterable
from pathlib import Path

from tests.hosts.say import Failure, main_guard, say

HERE = Path(__file__).parent
PART_BYTES = 50_000_000
PYTHON = "3.12"
CONTROLLER = ("pyinfra>=3.10,<4", "jinja2", "pyyaml", "jsonschema", "requests")
DEBIAN = """
systemd libsystemd-shared systemd-sysv dbus dbus-daemon dbus-bin dbus-system-bus-common
dbus-session-bus-common libdbus-1-3 libapparmor1 libkmod2 libexpat1 openssh-server
openssh-sftp-server openssh-client libwrap0 libip4tc2 libfdisk1 libnsl2 libtirpc3 libcrypt1
libseccomp2 logrotate libfido2-1 libcbor0.8 libedit2 libbsd0 libmd0 libgssapi-krb5-2 libkrb5-3
libk5crypto3 libcom-err2 libkrb5support0 libkeyutils1 libselinux1 libtinfo6 psmisc procps
"""
# FlashAttention 3: 1.1 GB unpacked, and `attention-backend: triton` does without.
LEFT_OUT = {"sglang_kernel": "flash_ops.abi3.so"}
GLIBC = (39, 38, 36, 35, 34, 31, 28, 27, 26, 24, 17, 12)


def main() -> int:
    if len(sys.argv) != 2:
        say(str(__doc__))
        return 2
    out = Path(sys.argv[1]).resolve()
    kit, wheels = out / "kit", out / "wheels"
    for folder in (kit / "debs", kit / "controller", wheels):
        folder.mkdir(parents=True, exist_ok=True)
    say("Debian packages")
    _run(["apt-get", "download", "-q", *DEBIAN.split()], cwd=kit / "debs")
    say("The controller's wheels")
    download(kit / "controller", list(CONTROLLER), dependencies=True)
    shutil.copytree(Path(ensurepip.__file__).parent, kit / "ensurepip", dirs_exist_ok=True)
    pins = (HERE / "pins.txt").read_text().split()
    missing = [pin for pin in pins if not find(wheels, pin)]
    say(f"{len(missing)} of {len(pins)} wheels of the engine")
    if missing:
        download(wheels, missing, dependencies=False)
    for path in sorted(wheels.glob("*.whl")):
        without = LEFT_OUT.get(path.name.split("-")[0])
        if without:
            trim(path, without)
    for number, part in enumerate(parts(wheels.glob("*.whl"), PART_BYTES)):
        folder = out / f"part{number}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for path in part:
            os.link(path, folder / path.name)
        size = sum(path.stat().st_size for path in part)
        say(f"{folder}: {len(part)} wheels, {size / 1e6:.0f} MB")
    return 0


def download(folder: Path, requirements: list[str], dependencies: bool) -> None:
    """Wheels for the GPU machine's Python and for any glibc up to its own."""
    argv = [sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check"]
    argv += ["--only-binary=:all:", f"--python-version={PYTHON}", "--implementation=cp"]
    argv += [f"--platform=manylinux_2_{minor}_x86_64" for minor in GLIBC]
    argv += ["--platform=manylinux2014_x86_64", "--platform=manylinux1_x86_64", "--platform=any"]
    argv += [] if dependencies else ["--no-deps"]
    _run([*argv, f"--dest={folder}", *requirements])


def find(folder: Path, pin: str) -> list[Path]:
    """The wheels of a pin `name==version` in a folder."""
    name, _, version = pin.partition("==")
    return list(folder.glob(f"{name.replace('-', '_')}-{version}-*.whl"))


def trim(path: Path, without: str) -> None:
    """Write a wheel anew, compressed harder, without the files of that name."""
    with zipfile.ZipFile(path) as source:
        kept = [item for item in source.infolist() if not item.filename.endswith(without)]
        if len(kept) == len(source.infolist()):
            return
        new = path.with_suffix(".new")
        with zipfile.ZipFile(new, "w", compression=zipfile.ZIP_LZMA) as target:
            for item in kept:
                target.writestr(item.filename, source.read(item))
    new.replace(path)


def parts(paths: Iterable[Path], limit: int) -> list[list[Path]]:
    """The files in parts of at most `limit` bytes, the largest first; one above it is a part alone."""
    made: list[tuple[int, list[Path]]] = []
    for path in sorted(paths, key=lambda path: (-path.stat().st_size, path.name)):
        size = path.stat().st_size
        for index, (total, part) in enumerate(made):
            if total + size <= limit:
                made[index] = (total + size, [*part, path])
                break
        else:
            made.append((size, [path]))
    return [part for _, part in made]


def _run(argv: list[str], cwd: Path | None = None) -> None:
    done = subprocess.run(argv, cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Failure(f"{' '.join(argv[:4])} ...: {done.stderr.strip()[-800:]}")


if __name__ == "__main__":
    main_guard(main)
