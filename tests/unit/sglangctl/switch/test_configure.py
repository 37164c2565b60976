"""What a host knows of an engine is written under the lock, and only by what was decided."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from sglangctl.cli import main
from sglangctl.state import lock, release
from sglangctl.state.config import ConfigError
from sglangctl.state.paths import Paths
from sglangctl.state.release import State
from sglangctl.switch import configure
from sglangctl.util.errors import Failed
from tests.support.engine_host import write_config

TIME = "20261129T210411Z"


@pytest.fixture
def paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Paths:
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "systemctl").write_text(f'#!/bin/sh\necho "$@" >> {tools}/calls\n')
    (tools / "systemctl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:/usr/bin:/bin")
    monkeypatch.setenv("SGLANGCTL_ROOT", str(tmp_path))
    (tmp_path / "run").mkdir()
    write_config(tmp_path, 30000)
    found = Paths(tmp_path)
    found.engine_state("tiny").mkdir(parents=True)
    release.write_state("tiny", State("live", to="a" * 64, time=TIME), found)
    return found


def text(paths: Paths, **changes: object) -> str:
    document = {**json.loads(paths.engine_json("tiny").read_text()), **changes}
    return json.dumps(document, indent=2) + "\n"


def call(monkeypatch: pytest.MonkeyPatch, config: str, *arguments: str) -> int:
    monkeypatch.setattr("sys.stdin", io.StringIO(config))
    return main(["configure", "tiny", *arguments])


def calls(paths: Paths) -> list[str]:
    file = paths.root / "tools/calls"
    return file.read_text().splitlines() if file.exists() else []


def test_it_is_written_as_it_was_sent_and_the_watch_reads_it(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = text(paths, port=30001)
    assert call(monkeypatch, sent, f"--seen={TIME}", "--restart-watch") == 0
    assert paths.engine_json("tiny").read_text() == sent
    assert oct(paths.engine_json("tiny").stat().st_mode)[-3:] == "644"
    assert calls(paths) == ["daemon-reload", "restart -- sglang-watch@tiny.service"]


@pytest.mark.parametrize("seen", ["-", "20200101T000000Z"])
def test_what_was_switched_since_is_left_alone(
    paths: Paths,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    seen: str,
) -> None:
    before = text(paths)
    paths.engine_json("tiny").write_text(before)
    assert call(monkeypatch, text(paths, port=30001), f"--seen={seen}", "--restart-watch") == 1
    said = capsys.readouterr().err
    assert "nothing was changed. tiny is not as it was when this deploy looked" in said
    assert f"a switch to aaaaaaaaaaaa ({TIME}) came between): deploy again" in said
    assert paths.engine_json("tiny").read_text() == before
    assert calls(paths) == []


def test_under_the_lock_of_another_nothing_is_written(
    paths: Paths, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = paths.engine_json("tiny").read_text()
    with lock.locked(paths, "tiny", "switch of tiny to release aaaaaaaaaaaa"):
        assert call(monkeypatch, text(paths, port=30001), "--restart-watch") == 1
    assert "a switch of tiny to release aaaaaaaaaaaa runs on this host" in capsys.readouterr().err
    assert paths.engine_json("tiny").read_text() == before
    assert calls(paths) == []


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        ("{", "is not JSON"),
        ("[]", "is not of version 1"),
        ('{"v": 2}', "is not of version 1"),
        ('{"v": 1, "name": "tiny"}', "deploy again"),
    ],
)
def test_what_is_no_configuration_is_refused(paths: Paths, sent: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        configure.engine_of("tiny", sent, paths)


def test_another_engines_configuration_is_refused(paths: Paths) -> None:
    with pytest.raises(ConfigError, match="that of tiny, not of other"):
        configure.engine_of("other", text(paths), paths)


def test_the_first_state_of_an_engine_is_none(tmp_path: Path) -> None:
    paths = Paths(tmp_path)
    release.check_unchanged("tiny", "-", paths)
    paths.engine_state("tiny").mkdir(parents=True)
    release.write_state("tiny", State("stopped", to="a" * 64, time=TIME), paths)
    with pytest.raises(Failed, match="it was stopped"):
        release.check_unchanged("tiny", "-", paths)


def test_a_release_whose_environment_is_gone_is_not_switched_to(tmp_path: Path) -> None:
    paths = Paths(tmp_path)
    folder = paths.releases("tiny") / ("a" * 64)
    folder.mkdir(parents=True)
    for file in release.FILES:
        (folder / file).write_text("{}")
    (folder / "manifest.json").write_text('{"venv": "/opt/sglang/venvs/0123456789abcdef"}')
    with pytest.raises(Failed, match="is gone: deploy again"):
        release.check_whole("tiny", "a" * 64, paths)
    (paths.venvs / "0123456789abcdef").mkdir(parents=True)
    release.check_whole("tiny", "a" * 64, paths)
