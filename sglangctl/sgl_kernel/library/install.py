"""Install a kernel wheel into an environment, after what other installations left there.

`sgl-kernel` and `sglang-kernel` own the same folder. pip knows them as two distributions, so one
over the other leaves a mixture; here the folder is emptied first.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sglangctl.sgl_kernel.library import metadata
from sglangctl.sgl_kernel.library.unpack import unpack
from sglangctl.sgl_kernel.venv import Venv, dist_infos
from sglangctl.state import build_user
from sglangctl.state.paths import Paths
from sglangctl.util.errors import Unusable

OWNED = ("sgl_kernel",)
"""Folders that only a kernel has; triton_kernels and deep_gemm may belong to others and go by
RECORD alone."""
BINARY = ("--no-deps", "--only-binary=:all:")
PIP_S = 1800.0
PIP = ("--disable-pip-version-check", "--no-input")


@dataclass(frozen=True)
class Installed:
    """What was done: paths taken away, and the wheel that is there now."""

    removed: tuple[str, ...]
    wheel: str


def install(venv: Venv, wheel: Path) -> Installed:
    """Take the old kernel away, install `wheel` without its dependencies. Unusable leaves the
    environment without a kernel rather than with a mixed one: the next deploy installs it."""
    metadata.from_wheel(wheel)
    removed = clean(venv)
    unpack(wheel, venv.site_packages)
    return Installed(tuple(removed), wheel.name)


def clean(venv: Venv) -> list[str]:
    """Remove both distributions and what they left in their folder; returns what was there."""
    site = venv.site_packages
    found = dist_infos(site)
    removed = [folder.name for folders in found.values() for folder in folders]
    for folder in (folder for folders in found.values() for folder in folders):
        _remove_recorded(site, folder)
        shutil.rmtree(folder, ignore_errors=True)
    for name in OWNED:
        if (site / name).exists():
            removed.append(f"{name}/ (leftovers)")
            shutil.rmtree(site / name)
    for pattern in (
        "_sgl_kernel_editable*",
        "_sglang_kernel_editable*",
        "__editable__*sgl*kernel*",
    ):
        for path in site.glob(pattern):
            removed.append(path.name)
            path.unlink()
    return removed


def fetch_stock(
    venv: Venv,
    distribution: str,
    version: str | None,
    folder: Path,
    pip_arguments: Sequence[str] = (),
) -> Path:
    """Download the stock wheel for this environment's Python; Unusable."""
    wanted = f"{distribution}=={version}" if version else distribution
    with tempfile.TemporaryDirectory(dir=folder, prefix="download-") as made:
        download = ["download", *PIP, *BINARY, "--dest", made, *pip_arguments, "--", wanted]
        pip(venv, download, f"pip cannot download {wanted}", [Path(made)])
        # Somebody else chose what lies there: plain files, or nothing.
        wheels = [path for path in sorted(Path(made).glob("*.whl")) if not path.is_symlink()]
        if len(wheels) != 1 or not wheels[0].is_file():
            raise Unusable(f"pip downloaded {len(wheels)} wheels for {wanted}: deploy again")
        return Path(shutil.move(str(wheels[0]), str(folder)))


def pip(venv: Venv, arguments: Sequence[str], sentence: str, filled: Sequence[Path] = ()) -> None:
    """Run the environment's pip, not as root; Unusable with its last line.

    + filled: the folders that it writes to
    """
    done = build_user.run(venv.pip(*arguments), Paths(), limit_s=PIP_S, filled=filled)
    if done.returncode != 0:
        text = done.stderr.decode("utf-8", "backslashreplace")
        lines = [line for line in text.splitlines() if line.strip()]
        errors = [line for line in lines if line.startswith("ERROR")] or lines[-1:]
        raise Unusable(f"{sentence}: {(errors or ['no reason given'])[0][:300]}")


def _remove_recorded(site: Path, dist_info: Path) -> None:
    root = site.resolve()
    folders = set()
    for name, _ in metadata.record(dist_info):
        path = (site / name).parent.resolve() / Path(name).name
        # RECORD is a file of others: nothing outside of site-packages is touched.
        if root not in path.parents:
            continue
        path.unlink(missing_ok=True)
        folders.add(path.parent)
    for folder in sorted(folders, key=lambda item: -len(item.parts)):
        for one in (folder, *folder.parents):
            if one == root or root not in one.parents:
                break
            shutil.rmtree(one / "__pycache__", ignore_errors=True)
            try:
                one.rmdir()
            except OSError:
                break
