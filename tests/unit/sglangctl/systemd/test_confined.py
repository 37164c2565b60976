"""Code of others with one user's rights; the unit itself is in tests/container/test_confined_on_host.py."""

from __future__ import annotations

import os
import pty
import pwd
import re
import shutil
import subprocess
import sys
import tempfile
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


STRAY = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        file = open("left", "w", 1)
        print(os.getpid(), file=file)
        time.sleep(0.6)
        file.write("changed")
        time.sleep(30)
    os._exit(0)
while not (os.path.exists("left") and os.path.getsize("left")):
    time.sleep(0.01)
"""


@needs_root
def test_nothing_runs_on_where_there_is_no_unit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A package's daemon wrote into the environment after root had taken that."""
    monkeypatch.setattr(confined.systemctl, "booted", lambda: False)
    folder = Path(tempfile.mkdtemp(dir="/var/tmp"))
    os.chown(folder, pwd.getpwnam("nobody").pw_uid, -1)
    try:
        script = f"import os; os.chdir({str(folder)!r})\n{STRAY}"
        ended = confined.run(["/usr/bin/python3", "-I", "-c", script], "nobody", limit_s=20)
        assert ended.returncode == 0, ended.stderr
        pid = int((folder / "left").read_text().split()[0])
        assert not Path(f"/proc/{pid}").exists()
        assert "changed" not in (folder / "left").read_text()
    finally:
        shutil.rmtree(folder)


@needs_root
def test_roots_terminal_is_not_handed_over() -> None:
    """It read what root typed next, and could steer the terminal."""
    code = (
        "import os\n"
        "os.write(1, b'READY\\n')\n"
        "try: said = os.read(2, 100)\n"
        "except OSError: said = b'nothing'\n"
        "os.write(1, b'READ ' + said + b'\\x1b]0;evil\\x07' + b'\\nEND\\n')\n"
    )
    command = ["confine", "--user=nobody", "--", "/usr/bin/python3", "-I", "-c", code]
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(ROOT)
        call = f"from sglangctl import cli; cli.main({command!r})"
        os.execv(sys.executable, [sys.executable, "-c", call])
    shown, end = b"", time.monotonic() + 20
    try:
        while b"END" not in shown and time.monotonic() < end:
            try:
                shown += os.read(terminal, 1000)
            except OSError:
                break
            if b"READY" in shown and b"typed" not in shown:
                os.write(terminal, b"typed-by-root\n")
    finally:
        os.close(terminal)
        os.waitpid(child, 0)
    assert b"READ nothing" in shown, shown
    assert b"\x1b" not in shown and b"\\x1b]0;evil\\x07" in shown


@needs_root
def test_a_reader_that_went_away_is_no_success(monkeypatch: pytest.MonkeyPatch) -> None:
    """`confine ... && use it`: the command was ended in its midst."""
    monkeypatch.setattr(confined.systemctl, "booted", lambda: False)
    call = "import sys; from sglangctl import cli; sys.exit(cli.main(sys.argv[1:]))"
    argv = [sys.executable, "-c", call, "confine", "--user=nobody", "--", "yes"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, cwd=ROOT) as process:
        assert process.stdout
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(30) == 141


@needs_root
def test_a_package_that_prints_for_ever_is_ended(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """`found=$(confine ...)` of the venv's check: root's shell took all memory, and the engine that
    serves was the first to be killed for it."""
    monkeypatch.setattr(confined.systemctl, "booted", lambda: False)
    monkeypatch.setattr(confined, "COPIED", 1 << 16)
    assert cli.main(["confine", "--user=nobody", "--limit=20", "--", "yes"]) == 1
    said = capfd.readouterr()
    assert len(said.out) <= 1 << 16 and "printed more than" in said.err
    assert "--property=OOMScoreAdjust=900" in confined.properties("nobody", [], 1.0)
