"""sglangctl as one file: the same bytes for the same sources, named by their digest.

Bytecode of the controller's Python goes in beside the sources: where the host runs the same minor
version nothing is compiled at start; elsewhere Python falls back to the sources. The digest is
that of the sources alone, so that two controllers with different Pythons agree.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import io
import marshal
import zipfile
from functools import cache
from pathlib import Path

import sglangctl

SOURCE = Path(sglangctl.__file__).parent
# The program keeps its own file open and imports through that: it goes on undisturbed while the
# link is moved to another version and its own file is deleted.
MAIN = b"""\
import os, sys
if sys.version_info < (3, 9):
    sys.exit("python3 of this host is %d.%d, and 3.9 or newer is needed" % sys.version_info[:2])
sys.path[0] = "/proc/self/fd/%d" % os.open(sys.path[0], os.O_RDONLY)
from sglangctl.cli import main
sys.exit(main(sys.argv[1:]))
"""
SHEBANG = b"#!/usr/bin/env -S python3 -I -S\n"
FOLDER = "/usr/local/lib/sglangctl"
LINK = "/usr/local/bin/sglangctl"
PYTHON = ("python3", "-I", "-S")
"""Before the program's path, on a host."""

# Run as `python3 -I - ARGUMENTS < this`: the program lives in memory, nothing is written.
LOADER = """\
import base64, io, os, sys
if sys.version_info < (3, 9):
    sys.exit("python3 of this host is %d.%d, and 3.9 or newer is needed" % sys.version_info[:2])
sys.stdin = io.StringIO(base64.b64decode("{stdin}").decode())
fd = os.memfd_create("sglangctl")
os.write(fd, base64.b64decode("{program}"))
sys.path.insert(0, "/proc/self/fd/%d" % fd)
sys.argv[0] = "sglangctl"
from sglangctl.cli import main
sys.exit(main(sys.argv[1:]))
"""


@cache
def sources() -> dict[str, bytes]:
    """Name in the archive -> content, sorted by name."""
    files = {
        f"sglangctl/{path.relative_to(SOURCE).as_posix()}": path.read_bytes()
        for path in SOURCE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    return {"__main__.py": MAIN, **dict(sorted(files.items()))}


@cache
def digest() -> str:
    """What the program is called on a host: 16 hex digits of the sha256 over all its sources."""
    total = hashlib.sha256()
    for name, content in sources().items():
        total.update(f"{name}\0{len(content)}\0".encode() + content)
    return total.hexdigest()[:16]


def path() -> str:
    """Where this version lies on a host."""
    return f"{FOLDER}/{digest()}.pyz"


def argv(*words: str) -> list[str]:
    """What calls this version on a host."""
    return [*PYTHON, path(), *words]


@cache
def archive() -> bytes:
    """The zipapp."""
    buffer = io.BytesIO()
    buffer.write(SHEBANG)
    with zipfile.ZipFile(buffer, "a", zipfile.ZIP_DEFLATED, compresslevel=9) as target:
        for name, content in sources().items():
            _add(target, name, content)
            if name.endswith(".py"):
                _add(target, f"{name}c", _bytecode(name, content))
    return buffer.getvalue()


def loader(stdin: str = "") -> str:
    """The program as a script for `python3 -I -`; arguments follow the dash, and `stdin` is what
    it finds on its standard input."""
    return LOADER.format(program=_encoded(), stdin=base64.b64encode(stdin.encode()).decode())


@cache
def _encoded() -> str:
    return base64.b64encode(archive()).decode()


def _add(target: zipfile.ZipFile, name: str, content: bytes) -> None:
    entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
    entry.create_system = 3
    entry.external_attr = 0o644 << 16
    entry.compress_type = zipfile.ZIP_DEFLATED
    target.writestr(entry, content)


def _bytecode(name: str, content: bytes) -> bytes:
    """An unchecked hash-based .pyc (PEP 552): zipimport takes it without looking at times."""
    code = compile(content, name, "exec", dont_inherit=True, optimize=0)
    hashed = importlib.util.source_hash(content)
    return importlib.util.MAGIC_NUMBER + (1).to_bytes(4, "little") + hashed + marshal.dumps(code)
