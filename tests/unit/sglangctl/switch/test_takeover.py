"""An engine under a new name: what it takes the place of, and what is handed over."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from sglangctl.free import planning
from sglangctl.state.config import HostConfig
from sglangctl.state.paths import Paths
from sglangctl.switch import takeover
from sglangctl.switch.ended import Cancelled, Ended, Stopped
from sglangctl.switch.takeover import Takeover, hand_over
from tests.support.free_plans import KIMI, QWEN, holder, plan

OLD = replace(QWEN, name="old", unit="sglang-old_a.service", gpus=(1,), port=9000)
FAR = replace(QWEN, name="far", unit="sglang-far.service", gpus=(3,), port=9001)
ME = pwd.getpwuid(os.geteuid()).pw_name
OWNER = f"{os.geteuid()}:{os.getegid()}"


def test_who_was_renamed_is_replaced_wherever_it_runs() -> None:
    engine, siblings = Takeover(was="far").of(KIMI, [OLD, FAR, QWEN])
    assert engine.replaces == ("vllm-kimi.service", "sglang-far.service")
    assert siblings == [OLD, QWEN]
    assert Takeover().of(KIMI, [OLD]) == (KIMI, [OLD])
    assert Takeover(was="nobody").of(KIMI, [OLD]) == (KIMI, [OLD])


def test_who_is_gone_is_replaced_only_where_it_is_in_the_way() -> None:
    engine, siblings = Takeover(gone=("old", "far")).of(KIMI, [OLD, FAR])
    assert engine.replaces[1:] == ("sglang-old_a.service",), "the unit that it is in now"
    assert siblings == [FAR], "it is removed later, and its processes are not touched here"
    same_port = replace(FAR, port=KIMI.port)
    assert Takeover(gone=("far",)).of(KIMI, [same_port])[1] == []


def test_a_refusal_tells_how_to_rename_or_remove_and_nothing_else() -> None:
    """It was a circle: take it out of `replaces`; name it in `replaces`."""
    held = holder(5, "sibling", (0,), system_unit=QWEN.unit, memory_mib={0: 5000})
    known = plan(held, host=HostConfig(engines=("kimi", "qwen")))
    gone = plan(held, host=HostConfig(engines=("kimi",)))
    assert "different `gpus`" in known.refused[0].allow
    assert "`was: qwen`" in gone.refused[0].allow and "prune=yes" in gone.refused[0].allow
    named = replace(KIMI, replaces=(QWEN.unit,))
    refused = plan(engine=named, host=HostConfig(engines=("kimi",))).refused
    assert any("`was: qwen`" in one.allow for one in refused)
    assert planning.overlap(None, {1})


def test_caches_journals_and_speeds_are_handed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths, said = Paths(tmp_path), list[str]()
    caches = tmp_path / "var/cache/sglang"
    for name in ("old", "kimi"):
        (caches / name).mkdir(parents=True)
        paths.starts(name).mkdir(parents=True)
    (caches / "old/triton").mkdir()
    (caches / "old/triton/kernel.so").write_text("compiled")
    (caches / "old/link").symlink_to("/etc/passwd")
    (paths.starts("old") / "1-aa").mkdir()
    paths.accepted("old").write_text(json.dumps({"v": 1}))
    (caches / "kimi").chmod(0o750)
    real = takeover.as_root
    monkeypatch.setattr(takeover, "as_root", lambda _, *folders: real(OWNER, *folders))
    old, new = replace(OLD, user=ME), replace(KIMI, user=ME)
    hand_over(old, new, paths, said.append)
    assert (caches / "kimi/triton/kernel.so").read_text() == "compiled"
    assert (caches / "kimi/link").is_symlink(), "what a link points to is nobody's to copy"
    assert (caches / "kimi").stat().st_mode & 0o777 == 0o750
    assert (paths.starts("kimi") / "1-aa").is_dir() and paths.accepted("kimi").is_file()
    assert (caches / "old/triton/kernel.so").exists(), "going back needs it"
    assert len(said) == 2 and not list(caches.glob(".*"))
    (caches / "old/more").write_text("later")
    hand_over(old, new, paths, said.append)
    assert len(said) == 2 and not (caches / "kimi/more").exists(), "only where nothing is yet"


def test_weights_and_what_cannot_be_copied_are_said_and_fail_nothing(
    tmp_path: Path,
) -> None:
    paths, said = Paths(tmp_path), list[str]()
    for name in ("old", "kimi"):
        (tmp_path / "var/cache/sglang" / name).mkdir(parents=True)
    (tmp_path / "var/cache/sglang/old/model.safetensors").write_text("")
    hand_over(OLD, KIMI, paths, said.append)
    assert "there are weights in it" in said[0]
    (tmp_path / "var/cache/sglang/old/model.safetensors").unlink()
    hand_over(replace(OLD, user=ME), replace(KIMI, user="no-such-user"), paths, said.append)
    assert "is not handed over" in said[1] and "no-such-user" in said[1]
    assert not any((tmp_path / "var/cache/sglang/kimi").iterdir())
    paths.accepted("old").parent.mkdir(parents=True)
    paths.accepted("old").write_text("{}")
    hand_over(OLD, KIMI, paths, said.append)
    assert "accepted.json is not handed over" in said[-1], "the new engine has no folder"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has rights to give up")
def test_a_folder_that_its_user_cannot_read_is_said() -> None:
    """What was said was that an empty stream is no archive."""
    base, said = Path(tempfile.mkdtemp(dir="/var/tmp")), list[str]()
    try:
        base.chmod(0o755)
        for name, mode in (("old", 0o700), ("kimi", 0o755)):
            (base / "var/cache/sglang" / name).mkdir(parents=True)
            (base / "var/cache/sglang" / name).chmod(mode)
        (base / "var/cache/sglang/old/kernel.so").write_text("compiled")
        users = replace(OLD, user="daemon"), replace(KIMI, user="nobody")
        hand_over(*users, Paths(base), said.append)
        assert "user daemon cannot read all of it" in said[0] and "ermission denied" in said[0]
    finally:
        shutil.rmtree(base)


@pytest.mark.parametrize("kind", [Stopped, Cancelled])
def test_a_stop_while_caches_are_copied_ends_the_switch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[Ended]
) -> None:
    """It was told as a copy that failed, and the switch went on: both signals come only once."""

    def told(*_: object) -> str:
        raise kind("it was told to end")

    monkeypatch.setattr(takeover, "copied", told)
    with pytest.raises(kind):
        hand_over(OLD, KIMI, Paths(tmp_path), lambda line: None)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has rights to give up")
def test_a_folder_that_becomes_a_link_meanwhile_leads_nowhere() -> None:
    """The old engine serves while its cache is copied. As root, cp went on through the link: the new
    engine's user got /etc/shadow."""
    base = Path(tempfile.mkdtemp(dir="/var/tmp"))
    base.chmod(0o755)
    caches, secrets = base / "var/cache/sglang", base / "of-root"
    try:
        (caches / "old/d").mkdir(parents=True)
        (caches / "kimi").mkdir()
        secrets.mkdir(mode=0o700)
        (secrets / "shadow").write_text("root:hash")
        with (caches / "old/d/a-large-one").open("wb") as file:
            for _ in range(64):
                file.write(os.urandom(1 << 20))
        (caches / "old/d/shadow").write_text("a name")
        for path in (caches / "kimi", caches / "old", *(caches / "old").rglob("*")):
            shutil.chown(path, "daemon")
        over = threading.Event()

        def swap() -> None:
            while not list(caches.glob(".kimi*/d/a-large-one")) and not over.is_set():
                time.sleep(0.001)
            (caches / "old/d").rename(caches / "old/e")
            (caches / "old/d").symlink_to(secrets)

        swapping = threading.Thread(target=swap)
        swapping.start()
        hand_over(
            replace(OLD, user="daemon"),
            replace(KIMI, user="daemon"),
            Paths(base),
            lambda line: None,
        )
        over.set()
        swapping.join()
        taken = [path.read_text() for path in (caches / "kimi").rglob("shadow")]
        assert taken in ([], ["a name"])
    finally:
        shutil.rmtree(base)
