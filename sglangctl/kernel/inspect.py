"""Is this kernel the right one? A wheel, a folder or an installed one, judged without importing it.

The verdict is about one GPU architecture and, where an environment is named, about its Python
and torch. What cannot be known (no cuobjdump, no GPU named) is listed in `unknown`, never guessed.
"""

from __future__ import annotations

import re
import tempfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from sglangctl.kernel import cubins, elf
from sglangctl.kernel.metadata import (
    Metadata,
    MetadataError,
    editable_source,
    from_folder,
    from_wheel,
    leftovers,
    missing,
    python_fits,
)
from sglangctl.kernel.venv import Torch, Venv, dist_infos

USABLE, UNKNOWN = "usable", "unknown"
VERDICTS = ("usable", "no-cubin", "abi-mismatch", "cuda-mismatch", "incomplete", "mixed", "unknown")
CUDA_LIBRARY = re.compile(r"lib(?:cudart|nvrtc|cublas|cublasLt)\.so\.(\d+)$")
TORCH_SYMBOL = re.compile(r"^_Z.*(?:2at|3c10|5torch)")


@dataclass(frozen=True)
class Library:
    """One .so: its size, what it needs, and the architectures inside (None: not looked)."""

    path: str
    bytes: int
    machine: str | None = None
    needed: tuple[str, ...] = ()
    archs: tuple[str, ...] | None = None
    ptx: tuple[str, ...] | None = None
    fault: str | None = None
    """Why it cannot be loaded: cut short, not ELF, ..."""
    unresolved: tuple[str, ...] = ()
    """torch's symbols that this environment's torch lacks."""


@dataclass(frozen=True)
class Inspection:
    """The document of `sglangctl kernel inspect --json`."""

    target: str
    verdict: str
    reason: str
    distribution: str | None = None
    version: str | None = None
    key: str | None = None
    """The key of our own build, None for a wheel of others."""
    torch_pin: str | None = None
    """The torch that the wheel's metadata demands, None when it does not say."""
    built_for: str | None = None
    """The torch that it was built for: from our provenance, else the pin, else None."""
    torch: str | None = None
    """The environment's torch."""
    cuda: int | None = None
    """CUDA's major version, from the needed libraries."""
    python: str | None = None
    """The wheel's Python tag."""
    sm: str | None = None
    loads: str | None = None
    """The file that sgl_kernel's loader chooses for this GPU."""
    files: tuple[Library, ...] = ()
    unknown: tuple[str, ...] = ()
    v: int = 1

    @property
    def exit_status(self) -> int:
        """0 usable, 1 not, 2 could not tell."""
        return {USABLE: 0, UNKNOWN: 2}.get(self.verdict, 1)

    def with_verdict(self, verdict: str, reason: str) -> Inspection:
        return replace(self, verdict=verdict, reason=reason)


@dataclass
class Subject:
    """What is looked at: a folder with sgl_kernel/ in it, and what its metadata says."""

    target: str
    root: Path
    metadata: Metadata | None
    found: list[Library] = field(default_factory=list)


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
        with zipfile.ZipFile(path) as archive, tempfile.TemporaryDirectory() as folder:
            names = [name for name in archive.namelist() if is_library(name)]
            chosen = loaded_file(names, sm)
            subject = Subject(str(path), Path(folder), metadata)
            for name in names:
                size = archive.getinfo(name).file_size
                if not everything and name != chosen:
                    subject.found.append(Library(name, size))
                    continue
                # extract() keeps the member below `folder`, whatever its name says.
                unpacked = Path(archive.extract(name, folder))
                subject.found.append(look(unpacked, name, cuobjdump, venv))
                unpacked.unlink()
            return judge(subject, sm, cuobjdump, venv)
    except (zipfile.BadZipFile, MetadataError, EOFError) as error:
        return Inspection(str(path), "incomplete", f"not a whole wheel: {error}", sm=sm)


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
            target, "mixed", f"{both} are both installed over one folder; install one anew", sm=sm
        )
    try:
        metadata = from_folder(folders[0]) if folders else None
    except MetadataError as error:
        return Inspection(target, "incomplete", f"{folders[0].name}: {error}", sm=sm)
    if metadata:
        source = editable_source(folders[0])
        if source is not None:
            return _named(metadata, sm, target).with_verdict(
                "incomplete",
                f"an editable install of {source}: the loader looks there and finds no .so; "
                "build a wheel and install that",
            )
        strangers = leftovers(root, folders[0])
        if strangers:
            return _named(metadata, sm, target).with_verdict(
                "mixed",
                f"{strangers[0]} is not of {metadata.distribution} {metadata.version}: the "
                "leftover of another installation; install the kernel anew",
            )
        gone = missing(root, folders[0])
        if gone:
            return _named(metadata, sm, target).with_verdict(
                "incomplete", f"{gone[0]}; install the kernel anew"
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


def loaded_file(names: Sequence[str], sm: str | None) -> str | None:
    """The file that sgl_kernel's loader takes: capability 9.0 -> sm90/, everything else (120 too,
    and no GPU) -> sm100/, then sgl_kernel/common_ops.*; None: it finds none."""
    folder = "sm90" if sm and sm.rstrip("af") == "90" else "sm100"
    for start in (f"sgl_kernel/{folder}/common_ops.", "sgl_kernel/common_ops."):
        for name in sorted(names):
            if name.startswith(start):
                return name
    return None


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


def judge(subject: Subject, sm: str | None, cuobjdump: str | None, venv: Venv | None) -> Inspection:
    """The verdict on what was seen. Worst first: a fault that hides the others is named."""
    torch = venv.torch() if venv else None
    files = tuple(subject.found)
    chosen = loaded_file([item.path for item in files], sm)
    library = next((item for item in files if item.path == chosen), None)
    result = replace(
        _named(subject.metadata, sm, subject.target),
        torch=torch.version if torch else None,
        loads=chosen,
        files=files,
        cuda=_cuda_major(library),
    )
    if library is None:
        return result.with_verdict(
            "incomplete", "it holds no common_ops library: the loader will find none"
        )
    broken = library if library.fault else next((item for item in files if item.fault), None)
    if broken:
        return result.with_verdict("incomplete", f"{broken.path}: {broken.fault}")
    for verdict, reason in (
        ("abi-mismatch", _abi_fault(subject.metadata, library, venv, torch)),
        ("cuda-mismatch", _cuda_fault(result.cuda, torch)),
        ("no-cubin", _cubin_fault(library, sm)),
    ):
        if reason:
            return result.with_verdict(verdict, reason)
    unknown = []
    if library.archs is None:
        unknown.append(
            "which architectures it holds: there is no cuobjdump (install the CUDA toolkit, or: "
            "sglangctl kernel inspect --fetch-tools)"
        )
    if sm is None:
        unknown.append("whether it runs on this GPU: none was found or named (--sm 120)")
    if venv is None:
        note = "whether it fits an engine's torch and Python: no environment was named (--venv)"
        return replace(
            result.with_verdict(UNKNOWN if unknown else USABLE, _praise(library, sm, unknown)),
            unknown=(*unknown, note),
        )
    if torch is None:
        unknown.append(f"whether it fits torch: {venv.root} has none")
    verdict = UNKNOWN if unknown else USABLE
    return replace(
        result.with_verdict(verdict, _praise(library, sm, unknown)), unknown=tuple(unknown)
    )


def _abi_fault(
    metadata: Metadata | None, library: Library, venv: Venv | None, torch: Torch | None
) -> str | None:
    if venv is None:
        return None
    if library.machine != venv.machine:
        return f"{library.path} is for {library.machine}, this machine is {venv.machine}"
    if metadata and metadata.tags and not python_fits(metadata.tags, venv.version):
        return (
            f"the wheel is for Python {', '.join(sorted(set(metadata.tags)))}, the environment has "
            f"{venv.tag}; take the wheel for that Python"
        )
    if torch is None:
        return None
    pin = metadata.torch_pin if metadata else None
    built = metadata.built_for_torch if metadata else None
    meant = built or pin
    if library.unresolved:
        return (
            f"built for {'torch ' + meant if meant else 'another torch'}: torch {torch.version} "
            f"has no {library.unresolved[0]}; install the kernel of this torch or build one"
        )
    for wanted in (pin, built):
        if wanted and not _same_torch(wanted, torch.version):
            return (
                f"built for torch {wanted}, the environment has torch {torch.version}; install "
                "the kernel of this torch or build one"
            )
    return None


def _cuda_fault(cuda: int | None, torch: Torch | None) -> str | None:
    if torch is None or cuda is None:
        return None
    if torch.cuda_major is None:
        return f"it needs CUDA {cuda}, and torch {torch.version} was built without CUDA"
    if torch.cuda_major != cuda:
        return (
            f"it needs CUDA {cuda} (libcudart.so.{cuda}), and torch {torch.version} brings CUDA "
            f"{torch.cuda}; take the kernel for CUDA {torch.cuda_major} or build one"
        )
    return None


def _cubin_fault(library: Library, sm: str | None) -> str | None:
    if sm is None or library.archs is None:
        return None
    found = cubins.Architectures(dict.fromkeys(library.archs, 1), library.ptx or ())
    if cubins.fitting(found, sm):
        return None
    return (
        f"{library.path} has no code for sm_{sm} (it has {cubins.show(library.archs)}; PTX: "
        f"{cubins.show(library.ptx or ())}): every kernel would fail with 'no kernel image'"
    )


def _cuda_major(library: Library | None) -> int | None:
    for name in library.needed if library else ():
        match = CUDA_LIBRARY.match(name)
        if match:
            return int(match.group(1))
    return None


def _same_torch(wanted: str, installed: str) -> bool:
    """`2.14.1` is met by `2.14.1+cu130`; a wanted local part must be the same."""
    return wanted in (installed, installed.split("+")[0])


def _praise(library: Library, sm: str | None, unknown: Sequence[str]) -> str:
    if unknown:
        return "not known: " + "; ".join(unknown)
    found = cubins.Architectures(dict.fromkeys(library.archs or (), 1), library.ptx or ())
    fits = cubins.fitting(found, sm or "")
    return f"{library.path} has code for sm_{sm}: {cubins.show(fits)}"


def _named(metadata: Metadata | None, sm: str | None, target: str) -> Inspection:
    return Inspection(
        target,
        UNKNOWN,
        "",
        distribution=metadata.distribution if metadata else None,
        version=metadata.version if metadata else None,
        key=metadata.key if metadata else None,
        torch_pin=metadata.torch_pin if metadata else None,
        built_for=(metadata.built_for_torch or metadata.torch_pin) if metadata else None,
        python=", ".join(sorted(set(metadata.tags))) or None if metadata else None,
        sm=sm,
    )
