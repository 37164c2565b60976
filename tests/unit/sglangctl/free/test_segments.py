"""What root deletes in /dev/shm for an ended process: only what that process's user could delete."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sglangctl.free import leftovers
from tests.support.holding import as_user, passable

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: another user's processes")

USER, OTHER = 4242, 4243
MAP = """
import mmap, os, sys
with open(sys.argv[1], "r+b") as file:
    area = mmap.mmap(file.fileno(), 4096)
{after}
print("ready", flush=True)
sys.stdin.read()
"""


@contextmanager
def mapping(path: Path | str, *before: str, user: int = USER, after: str = "") -> Iterator[int]:
    """A process of `user` that has the file mapped (and not open); `before`: what starts it."""
    if not before:
        before = tuple(as_user(user))
    child = subprocess.Popen(
        [*before, sys.executable, "-c", MAP.format(after=after), str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd="/",
    )
    assert child.stdin and child.stdout
    try:
        assert child.stdout.readline() == b"ready\n"
        yield child.pid
    finally:
        child.stdin.close()
        child.wait(10)
        child.stdout.close()


def made(path: Path, user: int, mode: int = 0o600) -> Path:
    """A file of that user with one page in it."""
    path.write_bytes(bytes(4096))
    path.chmod(mode)
    os.chown(path, user, user)
    return path


@pytest.fixture
def shm() -> Iterator[Path]:
    """The beginning of a name in /dev/shm; what has it is taken away afterwards."""
    prefix = Path("/dev/shm") / f"sglangctl-test-{os.getpid()}"
    yield prefix
    for path in prefix.parent.glob(prefix.name + "*"):
        if path.is_dir() and not path.is_symlink():
            for inner in path.iterdir():
                inner.unlink()
            path.rmdir()
        else:
            path.unlink()


@pytest.fixture
def theirs() -> Iterator[Path]:
    """A folder of the user's that is called .../dev/shm."""
    with passable() as folder:
        inner = folder / "dev/shm"
        inner.mkdir(parents=True)
        os.chown(inner, USER, USER)
        yield inner


def test_the_segment_of_a_dead_process_is_removed(shm: Path) -> None:
    segment = made(shm, USER)
    with mapping(segment) as pid:
        belongings = leftovers.collect([pid])
        (left,) = leftovers.remove(belongings)
        assert (left.what, left.removed) == (str(segment), False)
        assert f"in use by {pid}" in left.reason
    (left,) = leftovers.remove(belongings)
    assert (left.what, left.removed) == (str(segment), True)
    assert not segment.exists()


def test_a_path_that_only_contains_dev_shm_is_no_segment(theirs: Path, shm: Path) -> None:
    """Another user's segment, by a file of the same name that the process made elsewhere."""
    bobs = made(shm, OTHER)
    with mapping(made(theirs / shm.name, USER)) as pid:
        belongings = leftovers.collect([pid])
    assert leftovers.remove(belongings) == []
    assert bobs.exists()


def test_a_link_in_dev_shm_leads_nowhere(theirs: Path, shm: Path, tmp_path: Path) -> None:
    """Root would delete a file that the process's user chose."""
    victim = made(tmp_path / "shadow", 0)
    (theirs / shm.name).mkdir()
    os.chown(theirs / shm.name, USER, USER)
    shm.symlink_to(victim.parent)
    with mapping(made(theirs / shm.name / victim.name, USER)) as pid:
        belongings = leftovers.collect([pid])
    assert leftovers.remove(belongings) == []
    assert victim.exists()


def test_what_lies_deeper_is_left_alone(shm: Path) -> None:
    """The folder is its owner's, who may put a link to elsewhere in its place at any time."""
    shm.mkdir(mode=0o755)
    inside = made(shm / "inside", USER)
    with mapping(inside) as pid:
        belongings = leftovers.collect([pid])
    assert leftovers.remove(belongings) == []
    assert inside.exists()


def test_a_name_that_becomes_a_link_or_another_file_is_left_alone(shm: Path) -> None:
    segment = made(shm, USER)
    with mapping(segment) as pid:
        belongings = leftovers.collect([pid])
    kept = shm.with_name(f"{shm.name}-kept")
    segment.rename(kept)  # so that its inode is not given out again
    segment.symlink_to(kept)
    assert leftovers.remove(belongings) == []
    segment.unlink()
    made(segment, OTHER)
    assert leftovers.remove(belongings) == []
    assert segment.exists()


def test_a_segment_of_another_user_is_left_alone(shm: Path) -> None:
    """Everybody may write it, so the process could map it: it is not the process's all the same."""
    bobs = made(shm, OTHER, 0o666)
    with mapping(bobs) as pid:
        belongings = leftovers.collect([pid])
    assert leftovers.remove(belongings) == []
    assert bobs.exists()


def test_a_dev_shm_of_its_own_says_nothing_of_the_hosts(shm: Path) -> None:
    """In a mount namespace with a tmpfs of its own: the host's file of that name is another one."""
    hosts = made(shm, 0)
    make = f'mount -t tmpfs tmpfs /dev/shm && head -c 4096 /dev/zero >{shm} && exec "$@"'
    with mapping(shm, "unshare", "--mount", "--propagation=private", "sh", "-c", make, "sh") as pid:
        belongings = leftovers.collect([pid])
    assert leftovers.remove(belongings) == []
    assert hosts.exists()


def test_who_has_it_at_another_path_has_it(shm: Path, tmp_path: Path) -> None:
    """A container that has the host's /dev/shm elsewhere."""
    segment, at = made(shm, 0), tmp_path / "at"
    at.touch()
    with mapping(segment, "env") as pid:
        belongings = leftovers.collect([pid])
    bind = f'mount --bind {segment} {at} && exec "$@"'
    with mapping(at, "unshare", "--mount", "--propagation=private", "sh", "-c", bind, "sh") as pid:
        (left,) = leftovers.remove(belongings)
    assert not left.removed and f"in use by {pid}" in left.reason
    assert segment.exists()
