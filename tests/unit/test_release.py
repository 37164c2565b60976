import base64
import os
import pwd
import shutil
from pathlib import Path

import pytest

from sglangctl import release
from sglangctl.files import link_atomic
from sglangctl.paths import Paths
from sglangctl.release import ReleaseError, State

DIGEST = "ab" * 32
UNIT = b"[Unit]\nDescription=x\n\n[Service]\nExecStart=/bin/true\n"
needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed"
)
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="changes owners")


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
def test_a_misspelt_key_in_the_unit_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    bad = document(sglang__service=UNIT.replace(b"ExecStart=", b"LimitNOFLE=1\nExecStart="))
    with pytest.raises(ReleaseError, match="LimitNOFLE"):
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
    with pytest.raises(ReleaseError):
        release.stage("kimi", wrong, Paths(tmp_path))
    assert not (tmp_path / "etc").exists()


def test_prune_keeps_what_a_link_or_the_state_names(tmp_path: Path) -> None:
    paths = Paths(tmp_path)
    for letter in "abcdef":
        (paths.releases("kimi") / (letter * 64)).mkdir(parents=True)
    for link, letter in (("current", "a"), ("previous", "b"), ("known-good", "c")):
        link_atomic(paths.engine_state("kimi") / link, f"releases/{letter * 64}")
    release.write_state("kimi", State("switching", to="d" * 64, came_from="a" * 64), paths)
    assert release.prune("kimi", paths) == ["e" * 64, "f" * 64]
    assert release.staged("kimi", paths) == [letter * 64 for letter in "abcd"]


def test_state_survives_a_round_trip_and_is_for_root_alone(tmp_path: Path) -> None:
    paths = Paths(tmp_path)
    paths.engine_state("kimi").mkdir(parents=True)
    state = State("live", to=DIGEST, foreign=({"unit": "vllm.service"},))
    release.write_state("kimi", state, paths)
    assert release.read_state("kimi", paths) == state
    assert oct(paths.state_json("kimi").stat().st_mode)[-3:] == "600"
    paths.state_json("kimi").write_text("{")
    with pytest.raises(ReleaseError, match="deploy again"):
        release.read_state("kimi", paths)
