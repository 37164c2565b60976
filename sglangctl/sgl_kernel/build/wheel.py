"""A built wheel made ready: named as the engine's version check wants it, with its provenance.

SGLang compares the installed distribution's name and version when it starts, so a wheel built
from an older source (sgl-kernel) gets the name that the engine asks for. The version is never
changed: it says which source this is.
"""

from __future__ import annotations

import base64
import hashlib
import re
import zipfile
from pathlib import Path

from sglangctl.sgl_kernel.library import metadata
from sglangctl.util.errors import Unusable


def finish(
    built: Path, folder: Path, distribution: str | None, minimum: str | None, provenance: str
) -> Path:
    """Write the final wheel into `folder`; returns its path.

    `distribution`: the wanted name (None: as built); `minimum`: the lowest version that the engine
    accepts; `provenance`: JSON that goes into the .dist-info.
    """
    said = metadata.from_wheel(built)
    if minimum and _numbers(said.version) < _numbers(minimum):
        raise Unusable(
            f"the source builds {said.distribution} {said.version}, the engine wants at least "
            f"{minimum}: take a newer kernel.git.commit"
        )
    name = distribution or said.distribution
    stem = f"{name.replace('-', '_')}-{said.version}"
    python, abi, platform = built.name[: -len(".whl")].split("-")[-3:]
    target = folder / f"{stem}-{python}-{abi}-{platform}.whl"
    # By hand, because `wheel unpack` and `wheel pack` keep a distribution's name.
    record = []
    with zipfile.ZipFile(built) as source, zipfile.ZipFile(target, "w") as result:
        old = metadata.dist_info_of(source.namelist())
        info = f"{stem}.dist-info"
        for item in source.infolist():
            if item.filename.endswith("/") or item.filename in (
                f"{old}/RECORD",
                f"{old}/{metadata.PROVENANCE}",
            ):
                continue
            path = item.filename
            if path.startswith(f"{old}/"):
                path = info + path[len(old) :]
            data = source.read(item)
            if path == f"{info}/METADATA":
                data = re.sub(rb"(?m)^Name:.*$", f"Name: {name}".encode(), data, count=1)
            record.append(_add(result, path, data, item.external_attr))
        record.append(
            _add(result, f"{info}/{metadata.PROVENANCE}", provenance.encode(), 0o644 << 16)
        )
        record.append(f"{info}/RECORD,,")
        text = "\n".join(record) + "\n"
        result.writestr(_entry(f"{info}/RECORD", 0o644 << 16), text)
    return target


def _add(archive: zipfile.ZipFile, path: str, data: bytes, attributes: int) -> str:
    archive.writestr(_entry(path, attributes), data)
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    quoted = f'"{path}"' if "," in path else path
    return f"{quoted},sha256={digest},{len(data)}"


def _entry(path: str, attributes: int) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(path, (1980, 1, 1, 0, 0, 0))
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.create_system = 3
    entry.external_attr = attributes
    return entry


def _numbers(version: str) -> tuple[int, ...]:
    """The release part of a version, for `at least`: 0.4.10+x -> (0, 4, 10)."""
    match = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(int(part) for part in match.group().split(".")) if match else ()
