"""What an engine compiles belongs to the environment that it was compiled in."""

from __future__ import annotations

import getpass
from dataclasses import replace
from pathlib import Path

import pytest

from roles.inventory.render import environment, venv_path
from sglangctl.state import compiled
from sglangctl.state.paths import Paths
from tests.support.engine_config import ENGINE
from tests.support.inventory_case import engine

CACHES = (
    *("SGLANG_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"),
    *("FLASHINFER_WORKSPACE_BASE", "SGLANG_DG_CACHE_DIR", "XDG_CACHE_HOME"),
)


def test_another_torch_gets_other_caches_and_other_flags_get_the_same() -> None:
    before, flags, torch = (
        environment(spec, venv_path(spec))
        for spec in (
            engine(),
            engine("flags: {disable-radix-cache: true}"),
            engine("install: {packages: ['torch==2.13.0']}"),
        )
    )
    for name in CACHES:
        assert before[name] == flags[name]
        assert before[name] != torch[name]


def test_what_no_release_names_goes_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths, used, old = Paths(tmp_path), "a" * 16, "b" * 16
    config = replace(ENGINE, user=getpass.getuser())
    folder = paths.cache(config.name) / compiled.FOLDER
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "kept").touch()
    for name in (used, old, f"{used}.incoming", "notes"):
        (folder / name).mkdir(parents=True)
        (folder / name / "kernel.so").touch()
    (folder / old / "link").symlink_to(elsewhere)
    (folder / ("c" * 16)).symlink_to(elsewhere)
    monkeypatch.setattr(compiled.release, "staged", lambda name, paths: ["d"])
    monkeypatch.setattr(
        compiled.release, "venv", lambda name, digest, paths: f"/opt/sglang/venvs/{used}"
    )
    monkeypatch.setattr(compiled, "load_engine", lambda name, paths: config)
    compiled.forget_unused(config.name, paths)
    assert sorted(one.name for one in folder.iterdir()) == [used, "c" * 16, "notes"]
    assert (elsewhere / "kept").exists()


def test_a_damaged_release_hides_what_is_used_and_fails_no_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = Paths(tmp_path)
    config = replace(ENGINE, user=getpass.getuser())
    unused = paths.cache(config.name) / compiled.FOLDER / ("b" * 16)
    unused.mkdir(parents=True)
    compiled.forget_unused(config.name, paths)
    assert unused.exists(), "no configuration: as whom it would be deleted is not known"
    damaged = paths.releases(config.name) / ("d" * 64)
    damaged.mkdir(parents=True)
    (damaged / "manifest.json").write_text("{")
    monkeypatch.setattr(compiled, "load_engine", lambda name, paths: config)
    monkeypatch.setattr(compiled.release, "staged", lambda name, paths: [damaged.name])
    compiled.forget_unused(config.name, paths)
    assert unused.exists()
