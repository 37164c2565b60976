"""What lands on a host for the examples, whole, so that a change of it is seen in review.

A wanted change: python -m pytest tests/golden --snapshot-update
"""

from __future__ import annotations

from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion
from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode

from roles.inventory import EngineSpec, HostSpec, load_inventory
from roles.inventory.render import (
    engine_json,
    host_json,
    logrotate,
    render,
    tmpfiles,
    unit_of_ours,
    venv_path,
)

INVENTORY = Path(__file__).parents[2] / "inventory"
EXAMPLES = {
    "minimal": "minimal.example.yml",
    "kimi": "kimi-8x-rtx-pro-6000.example.yml",
}


class TextFile(SingleFileSnapshotExtension):
    """One readable file a snapshot."""

    _write_mode = WriteMode.TEXT
    file_extension = "txt"


@pytest.fixture
def snapshot(snapshot: SnapshotAssertion) -> SnapshotAssertion:
    return snapshot.use_extension(TextFile)


def example(name: str) -> tuple[HostSpec, EngineSpec]:
    (entry,) = load_inventory(INVENTORY / EXAMPLES[name]).hosts
    assert entry.spec is not None
    (engine,) = entry.spec.engines
    return entry.spec, engine


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_release(name: str, snapshot: SnapshotAssertion) -> None:
    _, engine = example(name)
    release = render(engine, venv=venv_path(engine))
    for file, content in release.files.items():
        assert content.decode() == snapshot(name=f"{name}-{file}")


@pytest.mark.parametrize("name", ["kimi"])
def test_the_strict_unit(name: str, snapshot: SnapshotAssertion) -> None:
    import dataclasses

    _, engine = example(name)
    strict = dataclasses.replace(engine, hardening="strict")
    release = render(strict, venv=venv_path(strict))
    assert release.files["sglang.service"].decode() == snapshot(
        name=f"{name}-strict-sglang.service"
    )


@pytest.mark.parametrize("name", EXAMPLES)
def test_what_the_host_program_reads(name: str, snapshot: SnapshotAssertion) -> None:
    host, engine = example(name)
    assert host_json(host).decode() == snapshot(name=f"{name}-host.json")
    assert engine_json(engine).decode() == snapshot(name=f"{name}-engine.json")


def test_what_surrounds_the_engine(snapshot: SnapshotAssertion) -> None:
    _, engine = example("kimi")
    assert tmpfiles(engine).decode() == snapshot(name="kimi-tmpfiles.conf")
    assert logrotate(engine).decode() == snapshot(name="kimi-logrotate")
    unit = unit_of_ours("sglang-watch@.service", "/usr/local/lib/sglangctl/0123456789abcdef.pyz")
    assert unit.decode() == snapshot(name="sglang-watch@.service")
