"""A small reader of ELF shared objects: what a kernel library needs, and what is missing for it.

Pure reading (mmap), no tools: readelf is not on every host. 64-bit little-endian files only,
which is what NVIDIA's platforms (x86_64, aarch64) use. Layout: the ELF gABI and, for the symbol
hash, the GNU hash section as the dynamic loader reads it.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from sglangctl.util.plain_files import descriptor

MACHINES = {62: "x86_64", 183: "aarch64"}
PT_LOAD, PT_DYNAMIC = 1, 2
DT_NEEDED, DT_HASH, DT_STRTAB, DT_SYMTAB, DT_GNU_HASH = 1, 4, 5, 6, 0x6FFFFEF5
GLOBAL = 1
SYMBOL_BYTES = 24
ENTRIES, SYMBOLS, LONGEST = 4096, 1 << 22, 1 << 16
"""Of the dynamic section, before the first hashed one, of a name: far beyond real libraries'."""


class ElfError(Exception):
    """Not a usable shared object; the text says what is wrong with it."""


@dataclass(frozen=True)
class Segment:
    """One program header: where a part of the file lies in memory."""

    kind: int
    offset: int
    address: int
    size: int


class SharedObject:
    """One file, mapped; use it as a context manager.

    ElfError when it is no shared object for this machine or is truncated (a cut file is what kills an
    engine with SIGBUS, exit -7, without a line in its log); OSError when it cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with open(descriptor(path), "rb") as file:
            try:
                self._data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            except ValueError:
                raise ElfError("empty file") from None
        try:
            self.machine, self._segments = self._header()
            self._dynamic = self._entries()
        except ElfError:
            self._data.close()
            raise

    def __enter__(self) -> SharedObject:
        return self

    def __exit__(self, *_: object) -> None:
        self._data.close()

    def needed(self) -> list[str]:
        """The libraries of its DT_NEEDED entries, in the loader's order."""
        return [self._text(value) for tag, value in self._dynamic if tag == DT_NEEDED]

    def undefined(self) -> list[str]:
        """The symbols that another library must provide (strong ones: a weak one may be absent)."""
        table = self._address(DT_SYMTAB)
        names = []
        count = self._symbol_count()
        if count > SYMBOLS:
            raise ElfError(f"damaged: it says that it has {count} symbols")
        for index in range(1, count):
            name, info, _, section = self._read("<IBBH", table + index * SYMBOL_BYTES)
            if section == 0 and info >> 4 == GLOBAL:
                names.append(self._text(name))
        return names

    def defines(self, name: str, hashed: int | None = None) -> bool:
        """Whether it exports `name` (through its GNU hash; False without one)."""
        start = self._address(DT_GNU_HASH)
        if not start:
            return False
        value = gnu_hash(name) if hashed is None else hashed
        buckets, first, blooms, _ = self._read("<4I", start)
        bucket_at = start + 16 + 8 * blooms
        chain_at = bucket_at + 4 * buckets
        if not buckets:
            return False
        (index,) = self._read("<I", bucket_at + 4 * (value % buckets))
        if index < first:
            return False
        table = self._address(DT_SYMTAB)
        while True:
            (entry,) = self._read("<I", chain_at + 4 * (index - first))
            if entry | 1 == value | 1:
                offset, _, _, section = self._read("<IBBH", table + index * SYMBOL_BYTES)
                if section and self._text(offset) == name:
                    return True
            if entry & 1:
                return False
            index += 1

    def _read(self, form: str, at: int) -> tuple[int, ...]:
        try:
            return struct.unpack_from(form, self._data, at)
        except (struct.error, OverflowError):
            raise ElfError(f"truncated at {len(self._data)} bytes") from None

    def _header(self) -> tuple[str, list[Segment]]:
        data, size = self._data, len(self._data)
        if size < 6:
            raise ElfError(f"truncated at {size} bytes")
        if data[:4] != b"\x7fELF":
            raise ElfError("not an ELF file")
        if data[4] != 2 or data[5] != 1:
            raise ElfError("not a 64-bit little-endian ELF file")
        (machine,) = self._read("<H", 18)
        program_at, section_at = self._read("<QQ", 32)
        entry_bytes, count, section_bytes, sections = self._read("<4H", 54)
        end = section_at + section_bytes * sections
        segments = []
        for index in range(count):
            at = program_at + index * entry_bytes
            kind, _, offset, address, _, length = self._read("<IIQQQQ", at)
            segments.append(Segment(kind, offset, address, length))
            if kind == PT_LOAD:
                end = max(end, offset + length)
        if end > size:
            raise ElfError(f"truncated: {size} of at least {end} bytes")
        return MACHINES.get(machine, f"machine {machine}"), segments

    def _entries(self) -> list[tuple[int, int]]:
        found = next((item for item in self._segments if item.kind == PT_DYNAMIC), None)
        if found is None:
            raise ElfError("not a shared object: it has no dynamic section")
        entries = []
        for at in range(found.offset, found.offset + min(found.size, 16 * ENTRIES), 16):
            tag, value = self._read("<qQ", at)
            if tag == 0:
                break
            entries.append((tag, value))
        return entries

    def _address(self, tag: int) -> int:
        value = next((value for known, value in self._dynamic if known == tag), 0)
        return self._offset(value) if value else 0

    def _offset(self, address: int) -> int:
        for segment in self._segments:
            start = segment.address
            if segment.kind == PT_LOAD and start <= address < start + segment.size:
                return address - start + segment.offset
        raise ElfError(f"damaged: address {address:#x} lies in no segment")

    def _text(self, offset: int) -> str:
        start = self._address(DT_STRTAB) + offset
        end = self._data.find(b"\0", start, start + LONGEST)
        if end < 0:
            raise ElfError("damaged: a name does not end")
        return self._data[start:end].decode("utf-8", "backslashreplace")

    def _symbol_count(self) -> int:
        start = self._address(DT_HASH)
        if start:
            return int(self._read("<I", start + 4)[0])
        start = self._address(DT_GNU_HASH)
        # Undefined symbols are not hashed: they come before the first hashed one.
        return int(self._read("<I", start + 4)[0]) if start else 0


def gnu_hash(name: str) -> int:
    """The hash of DT_GNU_HASH (djb2, 32 bits)."""
    value = 5381
    for byte in name.encode():
        value = (value * 33 + byte) & 0xFFFFFFFF
    return value


def unresolved(names: Iterable[str], libraries: Iterable[Path]) -> list[str]:
    """Those of `names` that none of `libraries` exports (a library that is unreadable: none)."""
    left = {name: gnu_hash(name) for name in names}
    for path in libraries:
        try:
            with SharedObject(path) as library:
                left = {
                    name: value for name, value in left.items() if not library.defines(name, value)
                }
        except (ElfError, OSError):
            continue
    return list(left)
