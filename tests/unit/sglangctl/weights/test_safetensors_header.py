"""The reader of safetensors headers, against files that the safetensors library writes."""

from __future__ import annotations

import json
import os
import random
import resource
from pathlib import Path

import pytest
import safetensors as library
from hypothesis import given
from hypothesis import strategies as st

from sglangctl.weights import safetensors
from sglangctl.weights.safetensors import Damaged
from tests.support.safetensors_files import SIZES, content

TENSORS = st.dictionaries(
    st.text(min_size=1, max_size=20).filter(lambda name: name != "__metadata__"),
    st.tuples(st.sampled_from(sorted(SIZES)), st.lists(st.integers(0, 5), max_size=3)),
    min_size=1,
    max_size=6,
)


def taken(path: Path, data: bytes) -> safetensors.Header:
    path.write_bytes(data)
    return safetensors.read(path)


def a_file(tensors: dict[str, object], data: int | None = None) -> bytes:
    """A file with this header, whatever is wrong with it."""
    header = json.dumps(tensors).encode()
    ends = [entry["data_offsets"][1] for entry in tensors.values()]  # type: ignore[index]
    return len(header).to_bytes(8, "little") + header + bytes(max(ends) if data is None else data)


def entry(begin: int, end: int, shape: object = None, dtype: object = "U8") -> dict[str, object]:
    return {
        "dtype": dtype,
        "shape": [end - begin] if shape is None else shape,
        "data_offsets": [begin, end],
    }


@given(TENSORS, st.text(max_size=10))
def test_what_the_library_writes_is_whole(
    tmp_path_factory: pytest.TempPathFactory, tensors: dict[str, tuple[str, list[int]]], note: str
) -> None:
    data = content(tensors, note)
    header = taken(tmp_path_factory.getbasetemp() / "a", data)
    assert {name: list(shape) for name, shape in header.tensors.items()} == {
        name: shape for name, (_, shape) in tensors.items()
    }
    assert header.data_bytes == len(data) - 8 - int.from_bytes(data[:8], "little")


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "0 bytes"),
        (b"short", "5 bytes"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n", "Git LFS pointer"),
        (b"<!DOCTYPE html><html>not found", "error page"),
        ((1 << 62).to_bytes(8, "little") + b"{}", "not a safetensors file"),
        ((100).to_bytes(8, "little") + b"{}", "truncated"),
        ((2).to_bytes(8, "little") + b"[]", "not a JSON object"),
        ((2).to_bytes(8, "little") + b"{\xff", "not JSON"),
        ((30000).to_bytes(8, "little") + b"[" * 30000, "not JSON"),
        (a_file({"a": entry(0, 8), "b": entry(8, 16)}, data=15), "1 of its 16 bytes"),
        (a_file({"a": entry(0, 8)}, data=9), "1 bytes follow"),
        (a_file({"a": entry(0, 8), "b": entry(9, 16)}), "b leaves a gap"),
        (a_file({"a": entry(0, 8), "b": entry(7, 16)}), "b overlaps"),
        (a_file({"a": entry(1, 8)}), "a leaves a gap"),
        (a_file({"a": entry(0, 8, [2, 3])}), "8 bytes, and by its shape and dtype 6"),
        (a_file({"a": entry(0, 8, [8], "F32")}), "by its shape and dtype 32"),
        (a_file({"a": entry(0, 8, [1 << 40, 1 << 40])}), "larger than any file"),
        (a_file({"a": entry(0, 1, [1], "F4")}), "by its shape and dtype"),
        (a_file({"a": entry(0, 8, [-8])}), "not sizes"),
        (a_file({"a": entry(0, 8, [True])}), "not sizes"),
        (a_file({"a": entry(0, 8, dtype="F7")}), "unknown dtype F7"),
        (a_file({"a": entry(0, 8, dtype=["F32"])}), "unknown dtype"),
        (a_file({"a\x1b[2J": entry(0, 8, dtype="F7")}), "a\\x1b[2J"),
    ],
)
def test_what_is_not_whole(tmp_path: Path, data: bytes, said: str) -> None:
    with pytest.raises(Damaged) as damaged:
        taken(tmp_path / "a", data)
    assert said in str(damaged.value)
    assert str(damaged.value).isprintable()


def test_a_tensor_twice(tmp_path: Path) -> None:
    one = json.dumps(entry(0, 8))
    header = f'{{"a": {one}, "a": {one}}}'.encode()
    with pytest.raises(Damaged, match="a is in its header twice"):
        taken(tmp_path / "a", len(header).to_bytes(8, "little") + header + bytes(8))


def test_a_fifo_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a")
    with pytest.raises(Damaged):
        safetensors.read(tmp_path / "a")


def test_only_the_header_is_read(tmp_path: Path) -> None:
    """A sparse file of 1 TiB is judged as quickly as a small one."""
    header = json.dumps({"a": entry(0, 1 << 40)}).encode()
    with open(tmp_path / "a", "wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        file.truncate(8 + len(header) + (1 << 40))
    assert safetensors.read(tmp_path / "a").data_bytes == 1 << 40


def mutated(data: bytes, chance: random.Random) -> bytes:
    """One change of the kinds that disks, links and bad tools make; never the same bytes."""
    kind = chance.randrange(6)
    at = chance.randrange(len(data))
    if kind == 0:
        return data[:at]
    if kind == 1:
        return data + bytes(chance.randrange(1, 50))
    if kind == 2:
        return data[:at] + data[at + 1 :]
    if kind == 3:
        return data[:at] + bytes([chance.randrange(256)]) + data[at:]
    if kind == 4:
        return bytes([data[0] ^ (1 << chance.randrange(8))]) + data[1:]
    return (chance.getrandbits(64)).to_bytes(8, "little") + data[8:]


@pytest.mark.parametrize("count", [1_000, pytest.param(10_000, marks=pytest.mark.slow)])
def test_mutations_are_judged_as_the_library_does(tmp_path: Path, count: int) -> None:
    """Cut, lengthened, shifted and scrambled files: never an exception of another kind, never
    whole for us and broken for the library, and no memory that grows."""
    chance = random.Random(20261130)
    whole = content({"a": ("float32", [3, 5]), "b": ("bfloat16", [7]), "c": ("uint8", [0])}, "n")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    refused = 0
    for _ in range(count):
        data = mutated(whole, chance)
        try:
            taken(tmp_path / "a", data)
        except Damaged:
            refused += 1
        else:
            library.deserialize(data)  # raises where the library would refuse it
    # What is left are changes inside of names and metadata, which no format can notice.
    assert refused > 0.95 * count
    grown_mib = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    assert grown_mib < 100
