"""What a wheel or an installed distribution says of itself: METADATA, WHEEL, RECORD, direct_url."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from sglangctl.sgl_kernel.library import archive
from sglangctl.sgl_kernel.venv import DISTRIBUTIONS
from sglangctl.util import lazy_re
from sglangctl.util.errors import Unusable
from sglangctl.util.plain_files import text_of
from sglangctl.util.values import digits, json_object, mapping

TORCH_PIN = lazy_re.compile(r"^torch\s*(?:\(\s*)?={2,3}\s*([0-9][^;,\s)]*)")
PROVENANCE = "sglangctl-provenance.json"
"""Our builds carry this file in their .dist-info: it names the torch that they were built for."""


class MetadataError(Unusable):
    """A wheel without usable metadata; the text says what is missing."""


@dataclass(frozen=True)
class Metadata:
    """Of one distribution. `tags` are its Python-ABI tags, e.g. `cp310-abi3`."""

    distribution: str
    version: str
    torch_pin: str | None
    tags: tuple[str, ...]
    built_for_torch: str | None = None
    """From our own provenance file; None for wheels of others."""
    key: str | None = None
    """The key of our build; None for wheels of others."""


def from_wheel(path: Path) -> Metadata:
    """The metadata of a wheel file; MetadataError when it is none of the two kernels' names."""
    with archive.opened(path) as found:
        folder = dist_info_of(found.namelist())
        names = ("METADATA", "WHEEL", PROVENANCE)
        return _parse(*(archive.text(found, f"{folder}/{name}") for name in names))


def dist_info_of(names: Iterable[str]) -> str:
    """The folder of METADATA among a wheel's files; MetadataError where there is none."""
    for name in names:
        if re.fullmatch(r"[^/]+\.dist-info/METADATA", name):
            return name.split("/")[0]
    raise MetadataError("it has no .dist-info/METADATA")


def from_folder(dist_info: Path) -> Metadata:
    """The metadata of an installed distribution (missing files count as empty)."""

    stem, _, version = dist_info.name[: -len(".dist-info")].partition("-")
    metadata, *others = (text_of(dist_info / name) for name in ("METADATA", "WHEEL", PROVENANCE))
    return _parse(metadata or f"Name: {stem}\nVersion: {version}\n", *others)


def normalized(name: str) -> str:
    """A distribution's name as PyPI compares it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def python_fits(tags: Sequence[str], version: tuple[int, int]) -> bool:
    """Whether a wheel with these Python-ABI tags is for Python `version`.

    `cpXY-abi3`: this one or later; `cpXY-cpXY`: exactly; `py3-none`: any.
    """
    for tag in tags:
        python, _, abi = tag.partition("-")
        match = re.fullmatch(r"cp(\d)(\d{1,3})", python)
        if python == "py3":
            return True
        if match:
            wanted = (int(match.group(1)), int(match.group(2)))
            if wanted == version or (abi == "abi3" and wanted <= version):
                return True
    return False


def record(dist_info: Path) -> Iterator[tuple[str, int | None]]:
    """(path, bytes) of each line of RECORD, as far as it can be read."""
    try:
        for row in csv.reader(text_of(dist_info / "RECORD").splitlines()):
            if len(row) >= 3:
                yield row[0], digits(row[2])
    except csv.Error:
        return  # a field longer than any name


def leftovers(site: Path, dist_info: Path) -> list[str]:
    """The .so under sgl_kernel/ that RECORD does not list: another installation's remains."""
    known = {path for path, _ in record(dist_info)}
    if not known:
        return []
    return sorted(
        name
        for path in (site / "sgl_kernel").rglob("*.so")
        if (name := str(path.relative_to(site))) not in known
    )


def missing(site: Path, dist_info: Path) -> list[str]:
    """What RECORD lists under sgl_kernel/ and does not exist, or has another size."""
    found = []
    for name, size in record(dist_info):
        if not name.startswith("sgl_kernel/") or name.endswith(".pyc"):
            continue
        try:
            actual = (site / name).stat().st_size
        except OSError:
            found.append(f"{name} is missing")
            continue
        if size is not None and size != actual:
            found.append(f"{name} has {actual} bytes instead of {size}")
    return sorted(found, key=lambda text: ".so" not in text)


def editable_source(dist_info: Path) -> str | None:
    """The source folder of an editable install, None for a real one."""
    document = json_object(text_of(dist_info / "direct_url.json"))
    if mapping(document.get("dir_info")).get("editable"):
        return str(document.get("url", "a source tree"))
    names = [name for name, _ in record(dist_info)]
    if any(re.match(r"_\w+_editable\.(?:py|pth)$|__editable__", name) for name in names):
        return "a source tree"
    return None


def _parse(metadata: str, wheel: str, provenance: str) -> Metadata:
    from email.parser import (
        HeaderParser,
    )  # 10 ms, and most of who imports this asks for no metadata

    headers = HeaderParser().parsestr(metadata)
    name, version = normalized(headers.get("Name") or ""), headers.get("Version") or ""
    if name not in DISTRIBUTIONS:
        raise MetadataError(f"it is {name or 'nameless'}, not {' or '.join(DISTRIBUTIONS)}")
    pins = [match for line in headers.get_all("Requires-Dist") or [] if (match := _pin(line))]
    tags = HeaderParser().parsestr(wheel).get_all("Tag") or []
    document = json_object(provenance)
    built, key = mapping(document.get("inputs")).get("torch"), document.get("key")
    return Metadata(
        distribution=name,
        version=version,
        torch_pin=pins[0] if pins else None,
        tags=tuple("-".join(tag.split("-")[:2]) for tag in tags),
        built_for_torch=str(built) if built else None,
        key=str(key) if key else None,
    )


def _pin(line: str) -> str | None:
    match = TORCH_PIN.match(line.strip())
    return match.group(1) if match else None
