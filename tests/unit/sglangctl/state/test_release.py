from __future__ import annotations

import base64
import json
import os
import pwd
import shutil
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from sglangctl.proc import command
from sglangctl.state import release
from sglangctl.state.files import link_atomic
from sglangctl.state.ownership import MARKER
from sglangctl.state.paths import Paths
from sglangctl.state.release import State
from sglangctl.switch.transaction import commit
from sglangctl.systemd import systemctl
from sglangctl.util.errors import Failed
from tests.support.tools import missing

DIGEST = "ab" * 32
UNIT = b"[Unit]\nDescription=x\n\n[Service]\nExecStart=/bin/true\n"
needs_systemd = pytest.mark.skipif(
    missing("systemd-analyze"), reason="systemd-analyze is not installed"
)
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="changes owners")


def whole(folder: Path) -> None:
    folder.mkdir(parents=True)
    for file in release.FILES:
        (folder / file).write_text("{}")


def document(**changes: bytes) -> dict[str, object]:
    files = {name: b"{}" for name in release.FILES}
    files["sglang.service"] = UNIT
    files.update({name.replace("__", "."): data for name, data in changes.items()})
    return {
        "digest": DIGEST,
        "user": pwd.getpwuid(os.geteuid()).pw_name,
        "files": {name: base64.b64encode(data).decode() for name, data in files.items()},
    }


@needs_systemd
@needs_root
def test_a_release_is_staged_whole_with_its_rights(tmp_path: Path) -> None:
    paths = Paths(tmp_path)
    assert release.stage("kimi", document(), paths) == DIGEST
    folder = paths.releases("kimi") / DIGEST
    assert {path.name for path in folder.iterdir()} == set(release.FILES)
    assert oct((folder / "engine.yaml").stat().st_mode)[-3:] == "640"
    assert release.staged("kimi", paths) == [DIGEST]
    assert release.stage("kimi", document(), paths) == DIGEST


@needs_systemd
@needs_root
def test_a_file_that_a_flag_names_is_shipped_as_protected_as_the_flags(tmp_path: Path) -> None:
    paths = Paths(tmp_path)
    sent = document(**{"flag-chat-template__jinja": b"{{ messages }}"})
    assert release.stage("kimi", sent, paths) == DIGEST
    file = paths.releases("kimi") / DIGEST / "flag-chat-template.jinja"
    assert file.read_bytes() == b"{{ messages }}" and oct(file.stat().st_mode)[-3:] == "640"
    file.write_bytes(b"edited")
    release.stage("kimi", sent, paths)
    assert file.read_bytes() == b"{{ messages }}"


@pytest.mark.parametrize("name", ["../x", "flag-/x", "other", "flag-x.y/z", "flag-X"])
def test_no_other_file_is_staged(tmp_path: Path, name: str) -> None:
    sent = document()
    sent["files"][name] = ""  # type: ignore[index]
    with pytest.raises(Failed, match="a release has"):
        release.stage("kimi", sent, Paths(tmp_path))


@needs_systemd
@needs_root
@pytest.mark.parametrize("damage", ["gone", "edited", "rights", "closed", "empty"])
def test_a_damaged_release_is_written_again(tmp_path: Path, damage: str) -> None:
    paths = Paths(tmp_path)
    release.stage("kimi", document(), paths)
    folder = paths.releases("kimi") / DIGEST
    file = folder / "engine.yaml"
    if damage == "gone":
        file.unlink()
        assert release.staged("kimi", paths) == []
    elif damage == "edited":
        file.write_text("{} # by hand")
    elif damage == "rights":
        file.chmod(0o644)
    elif damage == "closed":  # made under a umask of 027 by an earlier version
        folder.chmod(0o750)
        assert release.staged("kimi", paths) == [DIGEST]
    else:
        shutil.rmtree(folder)
        folder.mkdir()
    assert (damage == "edited") == (release.sound("kimi", paths) == [DIGEST])
    release.stage("kimi", document(), paths)
    assert release.sound("kimi", paths) == [DIGEST]
    assert file.read_bytes() == b"{}"
    assert oct(file.stat().st_mode)[-3:] == "640"
    assert [path.name for path in paths.releases("kimi").iterdir()] == [DIGEST]


def test_rights_alone_are_put_back_in_place(tmp_path: Path) -> None:
    paths = Paths(tmp_path)
    release.stage("kimi", document(), paths)
    folder = paths.releases("kimi") / DIGEST
    before = {file.name: file.stat().st_mtime_ns for file in folder.iterdir()}
    folder.chmod(0o750)
    (folder / "nccl.env").chmod(0o600)
    release.stage("kimi", document(), paths)
    assert {file.name: file.stat().st_mtime_ns for file in folder.iterdir()} == before
    assert release.sound("kimi", paths) == [DIGEST]


def test_unused_venvs_are_ours_and_named_by_no_release(tmp_path: Path) -> None:
    paths = Paths(tmp_path)
    for name, marker in (("used", True), ("old", True), ("somebodys", False)):
        (paths.venvs / name).mkdir(parents=True)
        if marker:
            (paths.venvs / name / MARKER).touch()
    folder = paths.releases("kimi") / ("a" * 64)
    whole(folder)
    (folder / "manifest.json").write_text(json.dumps({"venv": str(paths.venvs / "used")}))
    assert release.unused_venvs(paths) == [paths.venvs / "old"]
    assert release.unused_venvs(paths, without="kimi") == [
        paths.venvs / "old",
        paths.venvs / "used",
    ]


@needs_systemd
@needs_root
def test_a_misspelt_key_in_the_unit_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    bad = document(sglang__service=UNIT.replace(b"ExecStart=", b"LimitNOFLE=1\nExecStart="))
    with pytest.raises(Failed, match="LimitNOFLE"):
        release.stage("kimi", bad, Paths(tmp_path))
    assert list(Paths(tmp_path).releases("kimi").iterdir()) == []


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        {},
        {**document(), "digest": "../../etc"},
        {**document(), "files": {"../x": ""}},
        {**document(), "files": {"engine.yaml": "%%%"}},
    ],
)
def test_what_is_not_a_release_is_refused(tmp_path: Path, wrong: object) -> None:
    with pytest.raises(Failed):
        release.stage("kimi", wrong, Paths(tmp_path))
    assert not (tmp_path / "etc").exists()


def test_prune_keeps_what_a_link_or_the_state_names(tmp_path: Path) -> None:
    paths = Paths(tmp_path)
    for letter in "abcdef":
        whole(paths.releases("kimi") / (letter * 64))
    for link, letter in (("current", "a"), ("previous", "b"), ("known-good", "c")):
        link_atomic(paths.engine_state("kimi") / link, f"releases/{letter * 64}")
    release.write_state("kimi", State("switching", to="d" * 64, came_from="a" * 64), paths)
    assert release.prune("kimi", paths) == ["e" * 64, "f" * 64]
    assert release.staged("kimi", paths) == [letter * 64 for letter in "abcd"]


def test_what_another_deploy_has_just_prepared_stays(tmp_path: Path) -> None:
    paths = Paths(tmp_path)
    for number, letter in enumerate("abc"):
        whole(paths.releases("kimi") / (letter * 64))
        os.utime(paths.releases("kimi") / (letter * 64), (1000 + number, 1000 + number))
        marker = paths.venvs / (letter * 16) / MARKER
        marker.parent.mkdir(parents=True)
        marker.touch()
        os.utime(marker, (1000 + number, 1000 + number))
    link_atomic(paths.engine_state("kimi") / "current", f"releases/{'b' * 64}")
    commit("kimi", "b" * 64, paths)
    assert release.staged("kimi", paths) == ["b" * 64, "c" * 64]
    assert sorted(path.name for path in paths.venvs.iterdir()) == ["b" * 16, "c" * 16]


def test_state_survives_a_round_trip_and_is_for_root_alone(tmp_path: Path) -> None:
    paths = Paths(tmp_path)
    paths.engine_state("kimi").mkdir(parents=True)
    state = State("live", to=DIGEST, foreign=({"unit": "vllm.service"},))
    release.write_state("kimi", state, paths)
    assert release.read_state("kimi", paths) == state
    assert oct(paths.state_json("kimi").stat().st_mode)[-3:] == "600"


WHOLE: dict[str, Any] = {"phase": "back", "to": "a" * 64}


@pytest.mark.parametrize("content", ["", "[]", "null", "[" * 100_000, '{"venv": [7]}'])
def test_a_damaged_manifest_names_no_environment(tmp_path: Path, content: str) -> None:
    paths = Paths(tmp_path)
    release.stage("kimi", document(), paths)
    file = paths.releases("kimi") / DIGEST / "manifest.json"
    file.write_text(content)
    assert release.venv_of(file) is None
    if content == '{"venv": [7]}':
        assert release.venv("kimi", DIGEST, paths) is None
    else:
        with pytest.raises(Failed, match="deploy again"):
            release.manifest("kimi", DIGEST, paths)
    file.unlink()
    os.mkfifo(file)
    assert release.venv_of(file) is None


@pytest.mark.parametrize(
    "content",
    [
        *("", "{", "[]", "null", "[" * 100_000, '{"phase": "live", "v": ' + "9" * 5000 + "}"),
        *({**WHOLE, field.name: [7e300]} for field in fields(State)),
        *({**WHOLE, field.name: {"a": None}} for field in fields(State) if field.name != "gate"),
        *({**WHOLE, "to": text} for text in ("", "../../x" * 4, "\ud800\0", "/" + "a" * 64)),
        {**WHOLE, "fallback": {"instead_of": 3}},
        {**WHOLE, "foreign": [{"unit": None}]},
        {**WHOLE, "containers": [{"id": "1", "name": "box"}]},
        {**WHOLE, "more": 1},
    ],
    ids=lambda content: str(content)[:40],
)
def test_a_damaged_state_is_one_sentence(tmp_path: Path, content: Any) -> None:
    paths = Paths(tmp_path)
    paths.engine_state("kimi").mkdir(parents=True)
    text = content if isinstance(content, str) else json.dumps(content)
    paths.state_json("kimi").write_text(text)
    with pytest.raises(Failed, match="move it away and deploy again"):
        release.read_state("kimi", paths)


@needs_systemd
@needs_root
def test_every_file_has_the_rights_that_its_readers_need(tmp_path: Path) -> None:
    paths = Paths(tmp_path)
    release.stage("kimi", document(), paths)
    folder = paths.releases("kimi") / DIGEST
    rights = {path.name: oct(path.stat().st_mode)[-3:] for path in folder.iterdir()}
    secret = {"engine.env", "engine.yaml"}
    assert rights == {name: "640" if name in secret else "644" for name in rights}
    assert rights.keys() == release.FILES.keys()
    before = (folder / "engine.yaml").stat().st_ino
    release.stage("kimi", document(), paths)
    assert (folder / "engine.yaml").stat().st_ino == before  # whole: not written again


def test_a_release_as_old_as_the_deploy_is_another_s(tmp_path: Path) -> None:
    paths = Paths(tmp_path)
    whole(paths.releases("kimi") / DIGEST)
    staged_at = release.staged_at("kimi", DIGEST, paths)
    assert release.prune("kimi", paths, before=staged_at) == []
    assert release.prune("kimi", paths, before=staged_at + 0.01) == [DIGEST]


@pytest.mark.parametrize(
    ("line", "counts"),
    [
        ("sglang-watch@a.service: Command /x is not executable", True),
        ("/lib/systemd/system/others.service:7: Unknown key name 'Typo'", False),
    ],
)
def test_what_systemd_says_of_others_units_is_no_complaint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, counts: bool
) -> None:
    unit = tmp_path / "unit"
    unit.write_text("[Service]\n")
    monkeypatch.setattr(systemctl, "version", lambda: None)
    monkeypatch.setattr(command, "run", lambda argv, limit_s: command.Result(0, "", f"{line}\n"))
    assert release.verify_unit(unit, "a.service") == ([line] if counts else [])


@needs_systemd
@needs_root
def test_a_live_release_that_is_written_again_owes_a_start(tmp_path: Path) -> None:
    paths = Paths(tmp_path)
    release.stage("kimi", document(), paths)
    file = paths.releases("kimi") / DIGEST / "nccl.env"
    release.write_state("kimi", State("live", to=DIGEST), paths)

    def owes() -> str | None:
        file.write_text("edited")
        release.stage("kimi", document(), paths)
        assert file.read_bytes() == b"{}"
        state = release.read_state("kimi", paths)
        assert state is not None and state.phase == "live"
        return state.owes

    assert owes() is None, "nothing runs from it"
    link_atomic(paths.current("kimi"), f"releases/{DIGEST}")
    assert owes() == "its live release was written again"
