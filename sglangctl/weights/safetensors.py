"""The header of a safetensors file, read without its tensors, and checked as its format asks.

A file is 8 bytes (the header's length, little endian), the header (JSON: tensor name -> dtype,
shape, data_offsets; offsets count from the header's end), and the tensors, without gap or overlap
to the file's last byte. Source: github.com/huggingface/safetensors, format description in its
README; the library's own reader checks the same, on every load.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from dataclasses import dataclass
from typing import Any

POINTER = b"version https://git-lfs"
"""Begins what Git leaves in the place of a large file that was not fetched."""
LARGEST_HEADER = 32 * 1024 * 1024
"""Bytes. The library takes 100 MB; the largest known model (91,000 tensors, DeepSeek-V3) would
need 12 MiB if all of it lay in one file, and what is parsed takes ten times that in memory."""
BITS = {
    **dict.fromkeys(("F4",), 4),
    **dict.fromkeys(("F6_E2M3", "F6_E3M2"), 6),
    **dict.fromkeys(("BOOL", "U8", "I8"), 8),
    **dict.fromkeys(("F8_E4M3", "F8_E5M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"), 8),
    **dict.fromkeys(("U16", "I16", "F16", "BF16"), 16),
    **dict.fromkeys(("U32", "I32", "F32"), 32),
    **dict.fromkeys(("U64", "I64", "F64", "C64"), 64),
}
"""dtype -> bits of one element."""


class Damaged(ValueError):
    """The file is not a whole safetensors file; the text says what is wrong, without its name."""


@dataclass(frozen=True)
class Header:
    """What one file says of itself."""

    tensors: dict[str, tuple[int, ...]]
    """Name -> shape, in the file's order."""
    data_bytes: int
    """Of the tensors alone; the header is not counted, as in an index's total_size."""


def read(path: str | os.PathLike[str]) -> Header:
    """The checked header of the file at `path`. Damaged or OSError.

    Only the header's bytes are read, so this takes as long for 10 GB as for 10 kB.
    """
    # O_NONBLOCK: a FIFO in place of a shard must not be waited for.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        size = os.fstat(descriptor).st_size
        if size < 8:
            raise Damaged(f"it has {size} bytes: not a safetensors file")
        length = int.from_bytes(os.pread(descriptor, 8, 0), "little")
        if length > LARGEST_HEADER:
            raise Damaged(_not_a_header(os.pread(descriptor, 64, 0), length))
        if length > size - 8:
            raise Damaged(f"it is truncated: its header has {length} bytes, the file has {size}")
        return check(_whole(descriptor, length), size - 8 - length)
    finally:
        os.close(descriptor)


def check(header: bytes, data_bytes: int) -> Header:
    """`header` (JSON) against the number of bytes that follow it in the file. Damaged."""
    try:
        document = json.loads(header.decode("utf-8"))
        if isinstance(document, dict) and header.count(b'"data_offsets"') > len(document):
            # More tensors than names (or a strange name): looked at closely, which takes longer.
            json.loads(header, object_pairs_hook=_no_name_twice)
    except (UnicodeDecodeError, RecursionError, ValueError) as error:
        if isinstance(error, Damaged):
            raise
        raise Damaged("its header is not JSON") from None
    if not isinstance(document, dict):
        raise Damaged("its header is not a JSON object")
    document.pop("__metadata__", None)
    spans = sorted((_span(name, entry), name) for name, entry in document.items())
    reached = 0
    for (begin, end), name in spans:
        if begin != reached:
            kind = "overlaps the tensor before it" if begin < reached else "leaves a gap before it"
            raise Damaged(f"tensor {shown(name)} {kind}")
        reached = end
    if reached > data_bytes:
        raise Damaged(
            f"it is truncated: {reached - data_bytes} of its {reached} bytes of tensors are missing"
        )
    if reached < data_bytes:
        raise Damaged(f"{data_bytes - reached} bytes follow its last tensor")
    return Header({name: tuple(document[name]["shape"]) for _, name in spans}, reached)


def shown(name: str) -> str:
    """A tensor's or file's name in a sentence: control characters written out, short."""
    text = name if len(name) <= 120 else f"{name[:119]}…"
    return repr(text)[1:-1] if not text.isprintable() else text


def _whole(descriptor: int, length: int) -> bytes:
    parts, at = [], 8
    while length:
        part = os.pread(descriptor, length, at)
        if not part:
            raise Damaged("it became shorter while it was read")
        parts.append(part)
        at, length = at + len(part), length - len(part)
    return b"".join(parts)


def _not_a_header(first: bytes, length: int) -> str:
    if first.startswith(POINTER):
        return "it is a Git LFS pointer, not the weights: git lfs pull, or download the file again"
    if first.lstrip().lower().startswith((b"<!doctype", b"<html", b"{")):
        return "it begins with text: an error page was downloaded, not the weights"
    return f"its header would have {length} bytes: not a safetensors file"


def _no_name_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        ((twice, _),) = Counter(name for name, _ in pairs).most_common(1)
        raise Damaged(f"{shown(twice)} is in its header twice")
    return found


def _span(name: str, entry: Any) -> tuple[int, int]:
    """(begin, end) of a tensor in bytes, once its shape and dtype agree with them."""
    if not isinstance(entry, dict) or not entry.keys() >= {"dtype", "shape", "data_offsets"}:
        raise Damaged(f"tensor {shown(name)} has no dtype, shape or data_offsets")
    bits = BITS.get(entry["dtype"]) if isinstance(entry["dtype"], str) else None
    if bits is None:
        raise Damaged(f"tensor {shown(name)} has the unknown dtype {shown(str(entry['dtype']))}")
    shape, offsets = entry["shape"], entry["data_offsets"]
    if not _sizes(shape) or not _sizes(offsets) or len(offsets) != 2:
        raise Damaged(f"tensor {shown(name)} has a shape or offsets that are not sizes")
    for size in shape:
        bits *= size
        if bits >= 1 << 64:
            raise Damaged(f"tensor {shown(name)} is larger than any file")
    begin, end = offsets
    if bits % 8 or bits // 8 != end - begin:
        raise Damaged(
            f"tensor {shown(name)} has {end - begin} bytes, and by its shape and dtype {bits // 8}"
        )
    return begin, end


def _sizes(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(size, int) and not isinstance(size, bool) and 0 <= size < 1 << 63
        for size in value
    )
