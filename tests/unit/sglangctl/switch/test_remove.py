"""What removal leaves alone. systemctl is a program here that writes down how it was called."""

from __future__ import annotations

import os
import pwd
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from sglangctl.state import ownership, release
from sglangctl.state.config import ConfigError
from sglangctl.state.files import link_atomic
from sglangctl.state.paths import Paths
from sglangctl.switch import forecast, remove
from sglangctl.util.errors import Failed
from tests.support.unit_files import OURS, make
from tests.support.units import unit


def calls(paths: Paths) -> str:
    return (paths.root.parent / "tools/calls").read_text()


def test_a_unit_of_somebody_else_stays_and_goes_on_running(paths: Paths) -> None:
    unit = make(paths, "etc/systemd/system/sglang-kimi.service", "[Unit]\nDescription=mine\n")
    with pytest.raises(Failed, match="not made by sglang-provision"):
        remove.remove("kimi", paths, print)
    assert unit.exists()
    assert not (paths.root.parent / "tools/calls").exists()


def test_without_its_configuration_an_engine_is_still_stopped_before_its_unit_goes(
    paths: Paths,
) -> None:
    unit = make(paths, "etc/systemd/system/sglang-kimi.service", OURS)
    remove.remove("kimi", paths, print)
    assert not unit.exists()
    assert "stop -- sglang-kimi.service" in calls(paths)
    assert "disable --quiet -- sglang-kimi.service" in calls(paths)


@pytest.mark.parametrize("text", ["{cut", '{"v": 1}', '{"v": 1, "engines": "kimi"}', "[]"])
def test_a_broken_host_json_is_one_sentence(paths: Paths, text: str) -> None:
    make(paths, "etc/sglangctl/engines/qwen.json", "{}")
    make(paths, "etc/sglangctl/host.json", text)
    with pytest.raises(ConfigError, match=r"host\.json.*deploy again"):
        remove.remove("kimi", paths, print)


def test_weights_and_what_others_put_into_our_folders_stay(paths: Paths) -> None:
    make(paths, "etc/systemd/system/sglang-kimi.service", OURS)
    stays = [
        make(paths, "var/cache/sglang/kimi/huggingface/hub/m/w.safetensors"),
        make(paths, "var/log/sglang/other/x.log"),
        make(paths, "opt/sglang/venvs/mine/bin/python"),
        make(paths, "usr/local/bin/sglangctl", "#!/bin/sh\n"),
        make(paths, "etc/systemd/system/sglang-watch@.service", "[Unit]\n"),
    ]
    goes = [
        make(paths, f"opt/sglang/venvs/ours/{ownership.MARKER}"),
        make(paths, "var/log/sglang/kimi/engine.log"),
        make(paths, "usr/local/lib/sglangctl/0123456789abcdef.pyz"),
    ]
    remove.remove("kimi", paths, print)
    assert [path for path in stays if not path.exists()] == []
    assert [path for path in goes if path.exists()] == []


def test_the_last_engine_takes_our_program_with_it(paths: Paths) -> None:
    program = make(paths, "usr/local/lib/sglangctl/0123456789abcdef.pyz")
    paths.program_link.parent.mkdir(parents=True)
    link_atomic(paths.program_link, str(program))
    remove.remove("kimi", paths, print)
    assert not paths.program_link.is_symlink()
    assert not paths.programs.exists()
    remove.remove("kimi", paths, print)


def test_another_engine_keeps_what_is_shared(paths: Paths) -> None:
    make(paths, "etc/sglangctl/engines/other.json", "{}")
    host = make(paths, "etc/sglangctl/host.json", '{"v": 1, "engines": ["kimi", "other"]}')
    program = make(paths, "usr/local/lib/sglangctl/0123456789abcdef.pyz")
    remove.remove("kimi", paths, print)
    assert program.exists()
    assert '"other"' in host.read_text()
    assert '"kimi"' not in host.read_text()


def test_an_engine_that_is_only_staged_keeps_what_is_shared(paths: Paths) -> None:
    program = make(paths, "usr/local/lib/sglangctl/0123456789abcdef.pyz")
    make(paths, f"var/lib/sglangctl/talk/releases/{'a' * 64}/manifest.json", "{}")
    remove.remove("kimi", paths, print)
    assert program.exists()


def test_a_venv_that_was_never_finished_goes_with_the_last_engine(paths: Paths) -> None:
    half = make(paths, "opt/sglang/venvs/6f5ae0123456789a/bin/python")
    mine = make(paths, "opt/sglang/venvs/mine/bin/python")
    remove.remove("kimi", paths, print)
    assert not half.exists()
    assert mine.exists()


def deep(folder: Path, *files: str) -> Path:
    """Folders in `folder`, nested deeper than Python's stack and the longest path."""
    folder.mkdir(parents=True)
    here = os.open(".", os.O_RDONLY)
    try:
        os.chdir(folder)
        for _ in range(2500):
            os.mkdir("a")
            os.chdir("a")
        for name in files:
            Path(name).symlink_to("blob")
    finally:
        os.fchdir(here)
        os.close(here)
    return folder


@pytest.fixture
def cache(paths: Paths) -> Iterator[Path]:
    """The cache of the engine kimi, which its own user writes; pytest cannot delete such a one."""
    folder = paths.root / "var/cache/sglang/kimi"
    yield folder
    subprocess.run(["rm", "-rf", "--", str(folder)], check=True)


def test_a_cache_as_deep_as_its_user_likes_goes(paths: Paths, cache: Path) -> None:
    make(paths, "etc/systemd/system/sglang-kimi.service", OURS)
    deep(cache / "nested")
    assert any(f"remove {cache}" in line for line in forecast.removal("kimi", paths)["lines"])
    said: list[str] = []
    remove.remove("kimi", paths, said.append)
    assert not cache.exists()
    assert f"removed {cache}" in said and said[-1] == "kimi is removed"


def test_weights_in_the_deep_stay(paths: Paths, cache: Path) -> None:
    deep(cache / "nested", "\x1b[31m.safetensors")
    said: list[str] = []
    remove.deletion(cache).do(said.append)
    (line,) = said
    assert "stays: there are weights in it" in line and "\x1b" not in line
    assert cache.exists()


def test_what_cannot_be_removed_is_a_failure_with_its_reason(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = make(paths, "var/log/sglang/kimi/engine.log")
    tool = paths.root.parent / "tools/rm"
    tool.write_text("#!/bin/sh\necho 'rm: cannot remove x: Read-only file system' >&2\nexit 1\n")
    tool.chmod(0o755)
    with pytest.raises(Failed, match=r"cannot be removed: rm: .* Read-only .* run it again"):
        remove.deletion(log.parent).do(print)
    tool.unlink()
    tool = tool.with_name("find")
    tool.write_text("#!/bin/sh\necho 'find: x: Input/output error' >&2\nexit 1\n")
    tool.chmod(0o755)
    with pytest.raises(Failed, match=r"cannot be searched for weights .*Input/output error"):
        remove.deletion(log.parent).do(print)
    assert "Input/output" in forecast.removal("kimi", paths)["refused"]
    assert log.exists()


def test_only_users_that_were_written_down_are_removed(tmp_path: Path) -> None:
    """Each user can call itself ours (chfn): the comment is no proof. A name that is somebody else's
    by now is not removed either."""
    paths = Paths(tmp_path)
    paths.users.mkdir(parents=True)
    uid = pwd.getpwnam("nobody").pw_uid
    assert ownership.users(paths) == []
    (paths.users / "nobody").write_text(f"nobody:x:{uid}:1:sglang-provision:/:/x\n")
    assert ownership.users(paths) == ["nobody"]
    (paths.users / "nobody").write_text("nobody:x:4711:1:sglang-provision:/:/x\n")
    (paths.users / "root").write_text("root:x:0:0:sglang-provision:/:/x\n")
    (paths.users / "no-such-user").write_text("no-such-user:x:1:1:::\n")
    (paths.users / "daemon").write_text("")
    assert ownership.users(paths) == []


def test_only_what_is_still_there_is_named_as_a_way_back(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An engine that a deploy has removed since (`prune`) has no unit to be enabled."""
    ran = {"active_state": "active", "unit_file_state": "enabled"}
    foreign = tuple({"unit": f"{name}.service", **ran} for name in ("vllm", "pruned"))
    paths.engine_state("tiny").mkdir(parents=True)
    release.write_state("tiny", release.State("live", foreign=foreign), paths)
    monkeypatch.setattr(remove, "find", lambda name: unit() if "vllm" in name else None)
    (line,) = remove.ran_before("tiny", paths)
    assert line.endswith("systemctl enable --now vllm.service")
