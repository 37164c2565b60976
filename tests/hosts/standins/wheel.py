"""Build the stand-in's wheel: a pure one, the same bytes from the same sources."""

from __future__ import annotations

import base64
import hashlib
import sys
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
VERSION = "0.5.23+standin"
GATED = "0.5.24+standin"
"""One by which a switch knows that the engine has a gate. (Each of them has it.)"""


def build(folder: Path, version: str = VERSION) -> Path:
    """Write `sglang-<version>-py3-none-any.whl` into `folder` and return its path."""
    info = f"sglang-{version}.dist-info"
    files = sources(version)
    files[f"{info}/METADATA"] = (
        f"Metadata-Version: 2.1\nName: sglang\nVersion: {version}\n"
        "Summary: A stand-in for SGLang, for tests\nRequires-Python: >=3.9\n"
    ).encode()
    files[f"{info}/WHEEL"] = (
        b"Wheel-Version: 1.0\nGenerator: standins\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    )
    files[f"{info}/entry_points.txt"] = b"[console_scripts]\nsglang = sglang.cli:main\n"
    files[f"{info}/RECORD"] = record(files, f"{info}/RECORD")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"sglang-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as wheel:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.create_system = 3
            entry.external_attr = 0o100644 << 16
            wheel.writestr(entry, files[name])
    return path


def sources(version: str) -> dict[str, bytes]:
    """The package's files by their names in the wheel."""
    files = {}
    for root, target in [(HERE / "engine", ""), (HERE / "shared", "sglang/_standin/shared/")]:
        for path in sorted(root.rglob("*.py")):
            files[target + path.relative_to(root).as_posix()] = path.read_bytes()
    if version == GATED:
        files["sglang/srt/distributed/gated_launch.py"] = b""
    files["sglang/version.py"] = f'__version__ = "{version}"\n'.encode()
    return files


def record(files: dict[str, bytes], itself: str) -> bytes:
    """The RECORD file of a wheel."""
    lines = []
    for name in sorted(files):
        digest = base64.urlsafe_b64encode(hashlib.sha256(files[name]).digest()).rstrip(b"=")
        lines.append(f"{name},sha256={digest.decode()},{len(files[name])}")
    return "\n".join([*lines, f"{itself},,", ""]).encode()


if __name__ == "__main__":
    print(build(Path(sys.argv[1]), *sys.argv[2:3]))
