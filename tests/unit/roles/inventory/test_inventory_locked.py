"""locks/ENGINE.txt: what is accepted as a lock, and that another lock is another environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from roles.inventory import locked, render
from tests.support.inventory_case import engine, engine_errors

HASH = "    --hash=sha256:" + "a" * 64
GOOD = f"""\
numpy==2.3.5 ; python_full_version < '3.13' \\
{HASH} \\
{HASH}
numpy==2.4.6 ; python_full_version >= '3.13' \\
{HASH}
sglang==0.5.23 \\
{HASH}
"""


def folder_with(tmp_path: Path, content: bytes) -> Path:
    path = locked.path_of("e", tmp_path)
    path.parent.mkdir()
    path.write_bytes(content)
    return tmp_path


def test_a_lock_is_read_and_decides_the_environment(tmp_path: Path) -> None:
    without = engine()
    folder = folder_with(tmp_path, locked.written(["sglang==0.5.23"], GOOD))
    found = engine(folder=folder)
    assert found.install.locked is not None
    assert [one.partition(" ;")[0] for one in found.install.locked.packages] == [
        *("numpy==2.3.5", "numpy==2.4.6", "sglang==0.5.23")
    ]
    assert render.venv_digest(found) != render.venv_digest(without)
    path = locked.path_of("e", folder)
    path.write_bytes(path.read_bytes().replace(b"2.4.6", b"2.4.7"))
    assert render.venv_digest(engine(folder=folder)) != render.venv_digest(found)


def test_an_engine_without_a_lock_keeps_its_environment() -> None:
    # As the version before locks wrote it: a deploy with this version restarts nothing.
    digest = "98e7959256516ada"
    assert render.venv_digest(engine("version: 0.5.23"))[:16] == digest


def test_a_lock_for_other_pins_is_a_mistake(tmp_path: Path) -> None:
    folder = folder_with(
        tmp_path, locked.written(["sglang==0.5.22"], GOOD.replace("0.5.23", "0.5.22"))
    )
    (told,) = engine_errors("", folder=folder)
    assert "for other pins (sglang==0.5.22)" in told and "run sglang-lock" in told


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("--index-url https://elsewhere.example", "line 3"),
        ("-r other.txt", "line 3"),
        ("evil @ https://elsewhere.example/evil.whl \\", "line 3"),
        (f"sglang==0.5.23 \\\n{HASH.replace('sha256', 'md5')}", "line 4"),
        (f"sglang==0.5.23 \\\n{HASH[:-1]}", "line 4"),
        (f"{HASH}\nsglang==0.5.23 \\\n{HASH}", "line 3"),
        (f"sglang==0.5.23 --global-option=x \\\n{HASH}", "line 3"),
        ("sglang==0.5.23", "line 3"),
        ("sglang==0.5.23 \\", "has no hash"),
        (f"torch==2.14.0 \\\nsglang==0.5.23 \\\n{HASH}", "line 4"),
        ("", "no packages"),
        (f"sglang==0.5.9 \\\n{HASH}", "sglang 0.5.9, and sglang==0.5.23"),
        (f"sglang==0.5.23 ; python_version < '3' \\\n{HASH}\nSGLang==0.5.9 \\\n{HASH}", "0.5.9"),
        (f"torch==2.14.0 \\\n{HASH}", "sglang==0.5.23 is not in it"),
    ],
)
def test_only_requirements_with_hashes_are_a_lock(tmp_path: Path, line: str, word: str) -> None:
    head = b'# Made by sglang-lock.\n# pins: ["sglang==0.5.23"]\n'
    folder = folder_with(tmp_path, head + line.encode() + b"\n")
    (told,) = engine_errors("", folder=folder)
    assert word in told and "sglang-lock --upgrade e" in told


@pytest.mark.parametrize("content", [b"\xff\xfe", b"", b"# pins: {}\n", b"# pins: [1]\n"])
def test_what_is_no_lock_at_all(tmp_path: Path, content: bytes) -> None:
    (told,) = engine_errors("", folder=folder_with(tmp_path, content))
    assert "sglang-lock --upgrade e" in told
