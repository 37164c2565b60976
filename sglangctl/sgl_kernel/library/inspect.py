"""Is this kernel the right one? A wheel, a folder or an installed one, judged without importing it.

The verdict is about one GPU architecture and, where an environment is named, about its Python
and torch. What cannot be known (no cuobjdump, no GPU named) is listed in `unknown`, never guessed.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

from sglangctl.sgl_kernel.library import archive, cubins, elf
from sglangctl.sgl_kernel.library.judging import (
    Inspection,
    Library,
    Subject,
    judge,
    loaded_file,
    named,
)
from sglangctl.sgl_kernel.library.metadata import (
    MetadataError,
    editable_source,
    from_folder,
    from_wheel,
    leftovers,
    missing,
)
from sglangctl.sgl_kernel.venv import Venv, dist_infos
from sglangctl.util import lazy_re

TORCH_SYMBOL = lazy_re.compile(r"^_Z.*(?:2at|3c10|5torch)")


def inspect_wheel(
    path: Path,
    sm: str | None,
    cuobjdump: str | None,
    venv: Venv | None = None,
    everything: bool = True,
) -> Inspection:
    """Judge a wheel file. `everything`: also libraries that this GPU does not load (FA3 is over
    1 GB unpacked; its .so are unpacked one at a time into the temporary folder)."""
    try:
        metadata = from_wheel(path)
        with archive.opened(path) as found, tempfile.TemporaryDirectory() as folder:
            os.chmod(folder, 0o755)
            names = [name for name in found.namelist() if is_library(name)]
            chosen = loaded_file(names, sm)
            subject = Subject(str(path), Path(folder), metadata)
            for name in names:
                size = found.getinfo(name).file_size
                if not everything and name != chosen:
                    subject.found.append(Library(name, size))
                    continue
                unpacked = Path(folder) / "library.so"
                with found.open(name) as source, open(unpacked, "wb") as out:
                    shutil.copyfileobj(source, out, 1 << 20)
                # cuobjdump may run as another user.
                unpacked.chmod(0o644)
                subject.found.append(look(unpacked, name, cuobjdump, venv))
                unpacked.unlink()
            return judge(subject, sm, cuobjdump, venv)
    except (*archive.BROKEN, MetadataError) as error:
        return Inspection(str(path), "incomplete", f"not a complete wheel: {error}", sm=sm)


def inspect_folder(
    root: Path,
    sm: str | None,
    cuobjdump: str | None,
    venv: Venv | None = None,
    everything: bool = True,
) -> Inspection:
    """Judge an unpacked or installed kernel: `root` holds sgl_kernel/ (or is that folder)."""
    if root.name == "sgl_kernel" and not (root / "sgl_kernel").exists():
        root = root.parent
    target = str(root / "sgl_kernel")
    infos = dist_infos(root)
    folders = [folder for several in infos.values() for folder in several]
    if len(folders) > 1:
        both = ", ".join(folder.name[: -len(".dist-info")] for folder in folders)
        return Inspection(
            target,
            "mixed",
            f"{both} are both installed over one folder; reinstall one of them",
            sm=sm,
        )
    try:
        metadata = from_folder(folders[0]) if folders else None
    except MetadataError as error:
        return Inspection(target, "incomplete", f"{folders[0].name}: {error}", sm=sm)
    if metadata:
        source = editable_source(folders[0])
        if source is not None:
            return named(metadata, sm, target).with_verdict(
                "incomplete",
                f"an editable install of {source}: the loader looks there and finds no .so; "
                "build a wheel and install that",
            )
        unknown = leftovers(root, folders[0])
        if unknown:
            return named(metadata, sm, target).with_verdict(
                "mixed",
                f"{unknown[0]} is not of {metadata.distribution} {metadata.version}: the "
                "leftover of another installation; reinstall the kernel",
            )
        gone = missing(root, folders[0])
        if gone:
            return named(metadata, sm, target).with_verdict(
                "incomplete", f"{gone[0]}; reinstall the kernel"
            )
    elif not (root / "sgl_kernel").is_dir():
        return Inspection(target, "incomplete", "no kernel is installed here", sm=sm)
    names = sorted(
        str(path.relative_to(root))
        for path in (root / "sgl_kernel").rglob("*")
        if is_library(path.name)
    )
    chosen = loaded_file(names, sm)
    subject = Subject(target, root, metadata)
    for name in names:
        looked_at = everything or name == chosen
        size = (root / name).stat().st_size
        subject.found.append(
            look(root / name, name, cuobjdump, venv) if looked_at else Library(name, size)
        )
    return judge(subject, sm, cuobjdump, venv)


def inspect_installed(
    venv: Venv, sm: str | None, cuobjdump: str | None, everything: bool = True
) -> Inspection:
    """Judge the kernel that `import sgl_kernel` takes in this environment."""
    return inspect_folder(venv.kernel_site(), sm, cuobjdump, venv, everything)


def is_library(name: str) -> bool:
    """Whether a file name is that of a shared object (`.so`, `.so.0`)."""
    return bool(re.search(r"\.so(\.\d+)*$", name))


def look(path: Path, name: str, cuobjdump: str | None, venv: Venv | None) -> Library:
    """Read one .so: whole or not, what it needs, what runs in it."""
    size = path.stat().st_size
    try:
        with elf.SharedObject(path) as shared:
            needed, machine = tuple(shared.needed()), shared.machine
            torch = venv.torch() if venv else None
            lacking: list[str] = []
            if torch and "common_ops" in name:
                symbols = [one for one in shared.undefined() if TORCH_SYMBOL.match(one)]
                lacking = elf.unresolved(symbols, torch.library_files())
    except (elf.ElfError, OSError) as error:
        return Library(name, size, fault=str(error))
    library = Library(name, size, machine, needed, unresolved=tuple(lacking[:10]))
    if cuobjdump is None:
        return library
    try:
        found = cubins.read(path, cuobjdump)
    except cubins.CubinError as error:
        return replace(library, fault=f"cuobjdump cannot read it: {error}")
    return replace(library, archs=tuple(found.cubins), ptx=found.ptx)
