"""uv, in the one version that we know: its wheel from the index, compared with our own hash by root.

None of the wheel's code runs for that: root takes the one program out of it.
"""

from __future__ import annotations

import hashlib
import io
import os
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

from sglangctl.packages import options
from sglangctl.state import build_user
from sglangctl.state.files import write_atomic
from sglangctl.state.paths import Paths
from sglangctl.systemd import confined

VERSION = "0.13.9"
WHEELS = {
    "x86_64": "d7f459fe4fd247d830351c75686d3996ace3c6f3f728eb0e85a30b7ada0cef19",
    "aarch64": "5435c5ce14a56431208ca0996416d310f1598e8c2c8ba707688985a16bb82dbe",
}
"""Machine -> sha256 of the wheel for manylinux 2.17, which every host has that has systemd 247."""
PROGRAM = f"uv-{VERSION}.data/scripts/uv"
LIMIT_S = 300.0
LARGEST = 256 * 1024 * 1024


class NoUv(Exception):
    """Why uv cannot be had, or used; pip does it then."""


def ready(pip: Sequence[str], arguments: Sequence[str], paths: Paths) -> Path:
    """The program, fetched where it is not there; NoUv.

    + pip: how the new environment's pip is called
    + arguments: the inventory's, of `pip install`
    """
    found = paths.tools / f"uv-{VERSION}/uv"
    if found.is_file():
        return found
    wanted = WHEELS.get(os.uname().machine)
    if wanted is None:
        raise NoUv(f"there is no uv for {os.uname().machine}")
    paths.tools.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=paths.tools, prefix=".uv-") as folder:
        os.chmod(folder, 0o755)
        requirement = Path(folder, "uv.txt")
        requirement.write_text(f"uv=={VERSION} --hash=sha256:{wanted}\n", encoding="utf-8")
        made = Path(folder, "wheel")
        argv = [*pip, "download", "--no-input", "--disable-pip-version-check", "--no-deps"]
        argv += ["--only-binary=:all:", "--require-hashes", "--dest", str(made)]
        argv += [*options.for_download(arguments), "--requirement", str(requirement)]
        done = build_user.run(argv, paths, limit_s=LIMIT_S, filled=[made])
        if done.returncode != 0:
            raise NoUv(f"pip cannot get uv {VERSION}: {confined.refusal(done)}")
        # Somebody else chose what lies there.
        wheels = [one for one in made.glob("*.whl") if one.is_file() and not one.is_symlink()]
        if len(wheels) != 1 or wheels[0].stat().st_size > LARGEST:
            raise NoUv(f"pip downloaded {len(wheels)} wheels for uv {VERSION}")
        program = taken_out(wheels[0].read_bytes(), wanted)
        found.parent.mkdir(exist_ok=True)
        write_atomic(found, program, 0o755)
    return found


def taken_out(wheel: bytes, sha256: str) -> bytes:
    """The program in the wheel; NoUv where it is another wheel."""
    if hashlib.sha256(wheel).hexdigest() != sha256:
        raise NoUv(f"the wheel of uv {VERSION} has another hash than it should")
    with zipfile.ZipFile(io.BytesIO(wheel)) as archive:
        return archive.read(PROGRAM)
