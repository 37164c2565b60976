"""The lock that a deploy makes with an environment: by the real uv, once, and nothing restarts by it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

from roles.engine import locking
from roles.engine.desired import desired_engine
from roles.inventory import locked
from roles.inventory.locking import chosen, keep
from tests.support.inventory_case import engine
from tests.support.wheels import wheel

if TYPE_CHECKING:
    from pyinfra.api import Host

HOST = cast("Host", None)


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    found: list[str] = []
    monkeypatch.setattr(locking, "say", lambda host, text, **options: found.append(text))
    return found


@pytest.fixture
def body(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """An engine whose index is a folder."""
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    index = tmp_path / "index"
    index.mkdir()
    wheel(index, "sglang", "0.5.23", "torch>=2.14")
    wheel(index, "torch", "2.14.0")
    return f"install: {{python: python3.11, pip_arguments: [--no-index, '--find-links={index}']}}"


def test_it_is_made_once_and_is_the_one_of_every_host(
    body: str, tmp_path: Path, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = desired_engine(engine(body, tmp_path))
    first = locking.with_lock(HOST, wanted.venv.install, wanted.venv.digest)
    path = locked.path_of("e", tmp_path)
    assert str(path) in said[-1] and "version control" in said[-1]
    wheel(tmp_path / "index", "torch", "2.14.1")
    monkeypatch.setattr(locking.locking, "chosen", None)  # not called again
    second = locking.with_lock(HOST, wanted.venv.install, wanted.venv.digest)
    assert first.locked is not None and second.locked == first.locked
    assert set(first.locked.packages) == {"sglang==0.5.23", "torch==2.14.0"}


def test_what_runs_is_not_restarted_by_it(body: str, tmp_path: Path, said: list[str]) -> None:
    before = desired_engine(engine(body, tmp_path))
    locking.with_lock(HOST, before.venv.install, before.venv.digest)
    after = desired_engine(engine(body, tmp_path))
    assert after.venv.locked is not None, "who makes the environment anew gets these packages"
    assert after.venv.path == before.venv.path and after.release == before.release


def test_for_another_environment_it_counts_for_nothing_and_is_made_anew(
    body: str, tmp_path: Path, said: list[str]
) -> None:
    before = desired_engine(engine(body, tmp_path))
    locking.with_lock(HOST, before.venv.install, before.venv.digest)
    index = tmp_path / "index"
    wheel(index, "torch", "2.14.1")
    wheel(index, "sglang", "0.5.24", "torch>=2.14")
    for other in ("version: 0.5.24\n" + body, body.replace("3.11", "3.12")):
        wanted = desired_engine(engine(other, tmp_path))
        assert wanted.venv.locked is None
        again = locking.with_lock(HOST, wanted.venv.install, wanted.venv.digest)
        assert again.locked is not None and "torch==2.14.0" in again.locked.packages
    assert desired_engine(engine(body, tmp_path)).venv.locked is None


def test_sglang_locks_own_one_stays_what_decides(body: str, tmp_path: Path) -> None:
    before = desired_engine(engine(body, tmp_path))
    install = before.venv.install
    keep(locked.path_of("e", tmp_path), install, chosen(install))
    after = desired_engine(engine(body, tmp_path))
    assert after.venv.path != before.venv.path and after.venv.locked is not None


def test_where_none_can_be_made_pip_chooses_and_it_is_said(
    body: str, tmp_path: Path, said: list[str]
) -> None:
    (tmp_path / "index/torch-2.14.0-py3-none-any.whl").unlink()
    wanted = desired_engine(engine(body, tmp_path))
    assert locking.with_lock(HOST, wanted.venv.install, wanted.venv.digest).locked is None
    assert "pip chooses" in said[-1] and "torch" in said[-1]
    assert not locked.path_of("e", tmp_path).exists()


def test_a_choice_that_failed_is_not_made_again_for_the_next_host(
    body: str, tmp_path: Path, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def chosen(*_: object, **__: object) -> str:
        asked.append(1)
        raise locking.CannotLock("uv did not answer")

    monkeypatch.setattr(locking.locking, "chosen", chosen)
    venv = desired_engine(engine(body, tmp_path)).venv
    for _ in range(2):
        assert locking.with_lock(HOST, venv.install, venv.digest).locked is None
        assert "uv did not answer" in said[-1], "each host says why"
    assert len(asked) == 1
    locking.with_lock(HOST, venv.install, "f" * 64)
    assert len(asked) == 2, "another environment is another choice"


@pytest.mark.parametrize(
    ("body", "facts", "word"),
    [
        ("", {}, None),
        ("", {"pip_sources": []}, None),
        ("", {"pip_sources": ["index-url"]}, "index-url"),
        ("install: {system_site_packages: true}", {}, "system_site_packages"),
        ("install: {pip_arguments: [--no-deps]}", {}, "--no-deps"),
        ("install: {packages: ['x @ https://h.example/x.whl']}", {}, "no hash"),
    ],
)
def test_why_a_deploy_makes_none(body: str, facts: dict[str, object], word: str | None) -> None:
    install = desired_engine(engine(body)).venv.install
    found = locking.why_none(install, facts)
    assert found is None if word is None else word in (found or "")
    whole = replace(install, locked=locked.Locked((), b""))
    assert locking.why_none(whole, facts) is None
