import os
import subprocess
from pathlib import Path

import pytest

from sglangctl.proc import cgroup, membership

V1 = "12:memory:/system.slice/a.service\n1:name=systemd:/system.slice/vllm-kimi.service\n0::/\n"
V2 = "0::/system.slice/system-sglang.slice/sglang-kimi.service/sub\n"
USER = "0::/user.slice/user-1000.slice/user@1000.service/app.slice/ollama.service\n"
HYBRID_IN_CONTAINER = "9:name=systemd:/\n8:pids:/\n1:cpu:/\n0::/system.slice/sglang-kimi.service\n"
DOCKER = "1:name=systemd:/docker/" + "a1" * 32 + "\n"


@pytest.mark.parametrize(
    ("text", "unit"),
    [
        (V1, "vllm-kimi.service"),
        (V2, "sglang-kimi.service"),
        (HYBRID_IN_CONTAINER, "sglang-kimi.service"),
        (USER, "ollama.service"),
        ("0::/init.scope\n", "init.scope"),
        ("0::/user.slice/user-0.slice/session-3.scope\n", "session-3.scope"),
    ],
)
def test_unit_is_the_innermost_service_or_scope(text: str, unit: str) -> None:
    assert membership.of_text(text).unit == unit


def test_container_id_of_docker() -> None:
    assert cgroup.container_in(DOCKER) == "a1" * 32
    assert cgroup.container_in(f"0::/system.slice/docker-{'b2' * 32}.scope\n") == "b2" * 32
    assert cgroup.container_in(V2) is None


def test_the_processes_of_a_cgroup_however_deep_and_whatever_goes(tmp_path: Path) -> None:
    """Its user may nest them (Delegate=yes), and one may be gone (or be threaded, and unreadable)
    when it is read."""
    (tmp_path / "cgroup.procs").write_text("1\n2\n")
    for name, text in (("b", "3\n"), ("c/d", "4\n")):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "cgroup.procs").write_text(text)
    (tmp_path / "a/cgroup.procs").mkdir(parents=True)  # cannot be read
    (tmp_path / "c/cgroup.procs").mkdir()
    here = os.open(".", os.O_RDONLY)
    os.chdir(tmp_path)
    try:
        for _ in range(1500):
            os.mkdir("x")
            os.chdir("x")
        os.fchdir(here)
        assert sorted(cgroup.pids_in(tmp_path)) == [1, 2, 3, 4]
    finally:
        os.fchdir(here)
        os.close(here)
        subprocess.run(["rm", "-rf", "--", str(tmp_path / "x")], check=True)
    assert cgroup.pids_in(tmp_path / "none") == []
