"""The verdict on a kernel, from what was seen in it. Pure.

Worst first: a fault that hides the others is the one that is named.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from sglangctl.sgl_kernel.library import cubins
from sglangctl.sgl_kernel.library.metadata import Metadata, python_fits
from sglangctl.sgl_kernel.venv import Torch, Venv
from sglangctl.util import lazy_re

USABLE, UNKNOWN = "usable", "unknown"
CUDA_LIBRARY = lazy_re.compile(r"lib(?:cudart|nvrtc|cublas|cublasLt)\.so\.(\d+)$")


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


def loaded_file(names: Sequence[str], sm: str | None) -> str | None:
    """The file that sgl_kernel's loader takes: capability 9.0 -> sm90/, everything else (120 too,
    and no GPU) -> sm100/, then sgl_kernel/common_ops.*; None: it finds none."""
    folder = "sm90" if sm and sm.rstrip("af") == "90" else "sm100"
    for start in (f"sgl_kernel/{folder}/common_ops.", "sgl_kernel/common_ops."):
        for name in sorted(names):
            if name.startswith(start):
                return name
    return None


def judge(subject: Subject, sm: str | None, cuobjdump: str | None, venv: Venv | None) -> Inspection:
    """The verdict on what was seen. Worst first: a fault that hides the others is named."""
    torch = venv.torch() if venv else None
    files = tuple(subject.found)
    chosen = loaded_file([item.path for item in files], sm)
    library = next((item for item in files if item.path == chosen), None)
    result = replace(
        named(subject.metadata, sm, subject.target),
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


def named(metadata: Metadata | None, sm: str | None, target: str) -> Inspection:
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
