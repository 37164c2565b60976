"""What packages leave in an environment, looked at by root: nothing is waited for, nothing raises."""

from __future__ import annotations

import os
import random
import shutil
from contextlib import suppress
from pathlib import Path

import pytest

from sglangctl.sgl_kernel.library import elf, metadata, stamp
from sglangctl.sgl_kernel.survey import survey
from sglangctl.sgl_kernel.venv import load
from tests.kernel import sites


@pytest.mark.timeout(30)
def test_pipes_of_a_package_are_not_waited_for(tmp_path: Path) -> None:
    """The probe looks into the environment as root, and packages may have left anything there."""
    root = tmp_path / "venv"
    site = sites.venv(root)
    sites.install(site, sites.files())
    venv = load(root)
    info = next(site.glob("sglang_kernel-*.dist-info"))
    seen = (
        lambda: venv.torch(),
        venv.required_kernel,
        venv.pinned_kernel,
        lambda: load(root),
        lambda: stamp.read(load(root)),
        lambda: survey(root, "120"),
    )
    for path in (
        site / "torch/version.py",
        site / "sglang/srt/entrypoints/engine.py",
        site / "sglang-0.5.23.dist-info/METADATA",
        site / "a.pth",
        root / "pyvenv.cfg",
        root / stamp.NAME,
        *(info / name for name in ("METADATA", "WHEEL", "RECORD", metadata.PROVENANCE)),
        info / "direct_url.json",
        site / "sgl_kernel/sm100/common_ops.abi3.so",
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        os.mkfifo(path)
        for look in seen:
            look()


@pytest.mark.slow
def test_damaged_libraries_are_an_answer(tmp_path: Path) -> None:
    """1,000 mutations of a real library: an ElfError, or an answer; soon."""
    whole, made = sites.LIBRARY.read_bytes(), tmp_path / "x.so"
    chance = random.Random(20261130)
    for _ in range(1000):
        data = bytearray(whole)
        # The tables are at the beginning: that is where a change leads far away.
        for _ in range(chance.randint(1, 12)):
            at = chance.randrange(len(data) if chance.random() < 0.2 else 4096)
            data[at] = chance.choice((0, 0xFF, 0x7F, chance.randrange(256)))
        made.write_bytes(data[: chance.randrange(len(data))] if chance.random() < 0.1 else data)
        with suppress(elf.ElfError), elf.SharedObject(made) as shared:
            shared.needed()
            names = shared.undefined()
            shared.defines(names[0] if names else "x")


DEEP = "[" * 100_000
LONG = "a" * 300


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.pth", f"{LONG}\n"),
        ("a.pth", "a\0b\n"),
        ("INFO/RECORD", f'"{LONG * 1000}",sha256=x,1\n'),
        ("INFO/METADATA", "Name: other\n"),
        (f"INFO/{metadata.PROVENANCE}", DEEP),
        ("INFO/direct_url.json", DEEP),
        (f"../../../{stamp.NAME}", DEEP),
        ("sgl_kernel/sm100/common_ops.abi3.so", Path("common_ops.abi3.so")),
        ("INFO/RECORD", Path(LONG)),
        ("sgl_kernel", Path(LONG)),
        ("sgl_kernel", Path("sgl_kernel")),
        ("torch", Path(LONG)),
    ],
    ids=lambda value: str(value)[:24],
)
def test_a_survey_answers_whatever_packages_left(
    name: str, content: str | Path, tmp_path: Path
) -> None:
    """It is a part of the probe: an exception would fail the host, with all its other engines."""
    root = tmp_path / "venv"
    site = sites.venv(root)
    sites.install(site, sites.files())
    info = next(site.glob("sglang_kernel-*.dist-info"))
    path = Path(os.path.normpath(site / name.replace("INFO", info.name)))
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    if isinstance(content, Path):
        path.symlink_to(content)
    else:
        path.write_text(content)
    assert survey(root, "120")["v"] == 1
