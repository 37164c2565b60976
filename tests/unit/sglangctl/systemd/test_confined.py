"""Code of others with one user's rights; the unit itself is in tests/container/test_confined_on_host.py."""

from __future__ import annotations

import os
import pwd
import re
import time
from pathlib import Path

import pytest

from sglangctl import cli
from sglangctl.systemd import confined

ROOT = Path(__file__).resolve().parents[4]
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root has rights to give up")


def test_the_sandbox_is_that_of_strict() -> None:
    """One list: a restriction of the engine's unit is one of others' code, too."""
    template = (ROOT / "templates/sglang.service.j2").read_text()
    strict = re.sub(r"(?s){% else %}.*?{% endif %}", "", template)
    keys: dict[str, list[str]] = {}
    for name, value in re.findall(r"(?m)^([A-Z]\w+)=(.*)$", strict):
        keys.setdefault(name, []).append(value)
    after = strict[strict.index("NoNewPrivileges=") :]
    names = set(re.findall(r"(?m)^([A-Z]\w+)=", after)) - {"WantedBy", "PrivateIPC"}
    assert names | {"LimitCORE"} == set(confined.SANDBOX)
    assert {name: tuple(keys[name]) for name in confined.SANDBOX} == confined.SANDBOX


@needs_root
def test_rights_environment_and_status(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confined.systemctl, "booted", lambda: False)
    monkeypatch.setenv("A_ROOT_SECRET", "hunter2")
    script = "id -u; grep NoNewPrivs /proc/self/status; env; touch ~/x && kill -BUS $$"
    ended = confined.run(["sh", "-c", script], "nobody", limit_s=10)
    said = ended.stdout.decode()
    assert said.split()[0] == str(pwd.getpwnam("nobody").pw_uid)
    assert "NoNewPrivs:\t1" in said and "hunter2" not in said
    assert ended.returncode == -7


def test_what_never_ends_is_ended_and_what_prints_for_ever_is_cut(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(confined, "LARGEST", 1 << 16)
    began = time.monotonic()
    ended = confined.run(["sh", "-c", "echo first; yes; sleep 60"], None, limit_s=1)
    assert ended.returncode is None and time.monotonic() - began < 10
    assert len(ended.stdout) <= 1 << 16 and b"first" not in ended.stdout


@needs_root
def test_command(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(confined.systemctl, "booted", lambda: False)
    start = ["confine", "--user", "nobody"]
    assert cli.main([*start, "--", "sh", "-c", "id -un; exit 3"]) == 3
    assert capfd.readouterr().out == "nobody\n"
    assert cli.main([*start, "--", "sh", "-c", "kill $$"]) == 143
    assert cli.main([*start, "--limit=0.2", "--", "sleep", "9"]) == 124
    assert cli.main(["confine", "--user", "no-such-user", "--", "true"]) == 2
    assert "no user no-such-user" in capfd.readouterr().err
