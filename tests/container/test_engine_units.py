"""The rendered unit under the real systemd: hostile text stays text, and the sandbox holds.

The engine is a program that writes down what it was given, so nothing here depends on SGLang.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from subprocess import CompletedProcess

import pytest

from roles.inventory import EngineSpec
from roles.inventory.render import (
    engine_json,
    environment,
    host_json,
    logrotate,
    render,
    tmpfiles,
    unit_of_ours,
    venv_path,
)
from roles.remote import program
from sglangctl.state.release import FILES
from tests.hosts.host import Host
from tests.hosts.standins.install import install_into
from tests.support.inventory_case import engine_text, load, only

pytestmark = [pytest.mark.container, pytest.mark.timeout(900)]

MODEL = '/models/a b%h$HOME"\\;`id`'
NOTE = "--x; $(id) %h ${HOME} $$ 'q' \"d\" \\ \u00e9\U0001f600"
FLAGS = f"""
flags:
  chat-template: {json.dumps(NOTE)}
  lora-paths: ["a b=/x", ";=/y", "%n=/z"]
  disable-cuda-graph: true
  weight-version: "a\\nExecStart=/bin/id"
environment:
  X: {json.dumps(NOTE)}
  EMPTY: ""
user: engine-user
"""
KEY = "sk-planted-0123456789"
IDLE = "/usr/local/lib/sglangctl/idle.py"

ENGINE = """\
#!/usr/bin/python3
import json, os, sys, time
def attempt(action):
    try:
        action()
        return "yes"
    except OSError as error:
        return error.strerror
def write(path):
    open(path, "w").close()
    os.unlink(path)
import socket
status = dict(line.split(":\\t", 1) for line in open("/proc/self/status") if ":\\t" in line)
report = {
    "argv": sys.argv[1:],
    "env": dict(os.environ),
    "config": open(sys.argv[sys.argv.index("--config") + 1]).read(),
    "uid": os.getuid(),
    "status": {key: status[key].strip() for key in ("NoNewPrivs", "Seccomp", "CapBnd", "CapEff")},
    "etc": attempt(lambda: write("/etc/written")),
    "usr": attempt(lambda: write("/usr/written")),
    "var": attempt(lambda: write("/var/tmp/../lib/written")),
    "tmp": attempt(lambda: write("/tmp/written")),
    "shm": attempt(lambda: write("/dev/shm/written")),
    "cache": attempt(lambda: write("/var/cache/sglang/e/written")),
    "netlink": attempt(lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0).close()),
    "packet": attempt(lambda: socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, 0).close()),
    "log": attempt(lambda: open("/var/log/sglang/e/engine.log").close()),
    "starts": attempt(lambda: os.listdir("/var/lib/sglangctl/e/starts")),
    "other": len([pid for pid in os.listdir("/proc") if pid.isdigit()]),
}
path = "/var/cache/sglang/e/report.json"
with open(path + ".new", "w") as file:
    json.dump(report, file)
os.rename(path + ".new", path)
print("engine line", flush=True)
if os.path.exists("/models/exit"):
    sys.exit(int(open("/models/exit").read()))
while True:
    time.sleep(0.2)
    print("tick", flush=True)
"""


# A watch that says that it watches, and does nothing.
WATCHES = """\
import os, socket, time
with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
    address = os.environ["NOTIFY_SOCKET"]
    notify.connect("\\0" + address[1:] if address.startswith("@") else address)
    notify.send(b"READY=1")
time.sleep(1000)
"""


def spec_of(hardening: str) -> EngineSpec:
    body = FLAGS + f"hardening: {hardening}\napi_key: {{env: K}}\n"
    entry = only(load(engine_text(body, json.dumps({"path": MODEL})), K=KEY))
    assert entry.errors == ()
    assert entry.spec is not None
    return entry.spec.engines[0]


@pytest.fixture(scope="module")
def host(module_host_factory) -> Iterator[Host]:
    host = module_host_factory("units", pip=False)
    host.exec("useradd", "--system", "--user-group", "--no-create-home", "engine-user")
    for hardening in ("baseline", "strict"):
        spec = spec_of(hardening)
        host.copy_in(ENGINE.encode(), f"{venv_path(spec)}/bin/python", mode=0o755)
    host.copy_in(b"#!/bin/sh\nexit 0\n", "/usr/local/bin/sglangctl", mode=0o755)
    host.copy_in(WATCHES.encode(), IDLE, mode=0o755)
    host.exec("mkdir", "-p", MODEL)
    yield host


def put_live(host: Host, spec: EngineSpec, watch: str = IDLE) -> None:
    """What the switch does, in small: folders, release, unit, daemon-reload."""
    release = render(spec, venv=venv_path(spec))
    host.copy_in(tmpfiles(spec), "/etc/tmpfiles.d/sglang-e.conf")
    host.exec("systemd-tmpfiles", "--create", "sglang-e.conf")
    folder = f"{spec.state}/releases/{release.digest}"
    for name, content in release.files.items():
        host.copy_in(content, f"{folder}/{name}", mode=FILES[name])
        host.exec("chown", f"root:{spec.group}", f"{folder}/{name}")
    host.exec("ln", "-sfn", folder, spec.current)
    host.copy_in(release.files["sglang.service"], f"/etc/systemd/system/{spec.unit}")
    host.copy_in(
        unit_of_ours("sglang-watch@.service", watch), "/etc/systemd/system/sglang-watch@.service"
    )
    host.exec("systemctl", "daemon-reload")
    host.exec("rm", "-f", "/models/exit", f"{spec.cache}/report.json")


def wait_for(look: Callable[[], CompletedProcess[str]]) -> None:
    """Until a command succeeds; the engine writes a moment after systemd has started it."""
    end = time.monotonic() + 60
    while look().returncode != 0:
        assert time.monotonic() < end
        time.sleep(0.2)


def stop(host: Host, spec: EngineSpec) -> None:
    host.exec("systemctl", "stop", spec.unit)
    host.exec("systemctl", "reset-failed", spec.unit, check=False)


@pytest.mark.parametrize("hardening", ["baseline", "strict"])
def test_what_the_engine_is_given_and_may_do(host: Host, hardening: str) -> None:
    spec = spec_of(hardening)
    put_live(host, spec)
    done = host.exec("systemd-analyze", "verify", "--man=no", f"/etc/systemd/system/{spec.unit}")
    assert "sglang" not in done.stdout + done.stderr
    try:
        host.exec("systemctl", "start", spec.unit)
        wait_for(lambda: host.exec("test", "-e", f"{spec.cache}/report.json", check=False))
        report = json.loads(host.exec("cat", f"{spec.cache}/report.json").stdout)
    finally:
        stop(host, spec)

    assert report["argv"] == [
        "-m",
        "sglang.launch_server",
        "--config",
        "/var/lib/sglangctl/e/current/engine.yaml",
        f"--chat-template={NOTE}",
        "--disable-cuda-graph",
        "--lora-paths",
        "a b=/x",
        ";=/y",
        "%n=/z",
    ]
    wanted = environment(spec, venv_path(spec))
    assert {name: report["env"].get(name) for name in wanted} == wanted
    assert f'api-key: "{KEY}"' in report["config"]
    assert KEY not in json.dumps([report["argv"], report["env"]])

    assert report["uid"] != 0
    assert report["status"]["NoNewPrivs"] == "1"
    assert int(report["status"]["CapBnd"], 16) == int(report["status"]["CapEff"], 16) == 0
    for place in ("cache", "tmp", "shm", "log", "starts", "netlink"):
        assert report[place] == "yes", place
    read_only = "Read-only file system"
    assert report["etc"] == report["usr"] == read_only
    if hardening == "strict":
        assert report["status"]["Seccomp"] == "2"
        assert report["var"] == read_only
        assert report["packet"] != "yes"
        # ProtectProc: of all the host's processes only its own.
        assert report["other"] <= 2
    else:
        assert report["var"] == "Permission denied"


def test_the_log_is_the_groups_alone_and_rotates_under_a_running_engine(host: Host) -> None:
    spec = spec_of("baseline")
    put_live(host, spec)
    host.exec("rm", "-f", spec.log)
    host.copy_in(logrotate(spec), "/etc/logrotate.d/sglang-e")
    try:
        host.exec("systemctl", "start", spec.unit)
        stat = host.exec("stat", "--format=%a %U %G", spec.log, spec.log_folder).stdout.split("\n")
        assert stat[0] == "640 root engine-user"
        assert stat[1] == "2750 root engine-user"
        wait_for(lambda: host.exec("grep", "-q", "engine line", spec.log, check=False))
        host.exec("logrotate", "--force", "/etc/logrotate.d/sglang-e")
        rotated = host.exec("cat", f"{spec.log}.1").stdout
        run = host.exec("systemctl", "show", "--property=InvocationID", "--value", spec.unit)
        assert rotated.startswith(f"\nsglangctl: start {run.stdout.strip()}\nengine line\n")
        end = time.monotonic() + 60
        while not host.exec("cat", spec.log).stdout.startswith("tick\n"):
            assert time.monotonic() < end, "the engine no longer writes into its log"
            time.sleep(0.2)
    finally:
        stop(host, spec)


def test_a_log_that_the_engine_made_huge_does_not_hold_up_logrotate(host: Host) -> None:
    """ftruncate(1, 15 TiB) by the engine: a hole that logrotate would copy for days."""
    spec = spec_of("baseline")
    host.exec("systemd-tmpfiles", "--create", check=False)
    host.exec("sh", "-c", f"mkdir -p {spec.log_folder} && echo before > {spec.log}")
    host.copy_in(logrotate(spec), "/etc/logrotate.d/sglang-e")
    host.exec("sh", "-c", f"truncate -s 15T {spec.log} && echo last words >> {spec.log}")
    try:
        host.exec("timeout", "60", "logrotate", "--force", "/etc/logrotate.d/sglang-e")
        assert host.exec("tail", "-n", "1", f"{spec.log}.cut").stdout.endswith("last words\n")
        size = host.exec("stat", "--format=%s", spec.log).stdout.strip()
        assert size == "0", "what is written now is new"
    finally:
        host.exec("sh", "-c", f"rm -f {spec.log}*")


def test_a_wrong_flag_is_not_tried_again(host: Host) -> None:
    spec = spec_of("baseline")
    put_live(host, spec)
    host.copy_in(b"2", "/models/exit")
    try:
        host.exec("systemctl", "start", spec.unit, check=False)
        end = time.monotonic() + 60
        while show(host, spec, "ActiveState") != "failed":
            assert time.monotonic() < end
            time.sleep(0.2)
        assert show(host, spec, "NRestarts") == "0"
    finally:
        stop(host, spec)


def test_an_engine_that_dies_in_each_start_stays_down_after_the_third(host: Host) -> None:
    spec = spec_of("baseline")
    put_live(host, spec)
    host.copy_in(b"1", "/models/exit")
    host.exec("rm", "-f", spec.log)
    # RestartSec is 10; here a start dies at once, so the third one is some 20 s away.
    try:
        host.exec("systemctl", "start", "--no-block", spec.unit)
        end = time.monotonic() + 300
        while show(host, spec, "ActiveState") != "failed":
            assert time.monotonic() < end
            time.sleep(0.5)
        assert host.exec("cat", spec.log).stdout.count("engine line") == 3
        assert show(host, spec, "SubState") == "failed"
        time.sleep(12)
        assert show(host, spec, "ActiveState") == "failed"
    finally:
        stop(host, spec)


@pytest.fixture(scope="module")
def real_host(module_host_factory) -> Host:
    """A host with the real sglangctl and the stand-in engine, installed as wheels are."""
    host = module_host_factory("real", pip=False)
    install_into(host, gpus=0)
    host.exec("useradd", "--system", "--user-group", "--no-create-home", "engine-user")
    host.copy_in(program.archive(), program.path(), mode=0o755)
    host.exec("ln", "-sfn", program.path(), program.LINK)
    return host


@pytest.mark.parametrize("hardening", ["baseline", "strict"])
def test_active_means_serving_in_the_sandbox(real_host: Host, hardening: str) -> None:
    wheels = ("--no-index", "--find-links=/opt/standins/wheels")
    body = "flags: {device: cpu}\nenvironment: {STANDIN_START_S: 3}\n"
    serves(real_host, hardening, "/models/tiny", body, wheels, timeout_s=300)


@pytest.mark.real
@pytest.mark.timeout(900)
def test_the_real_engine_serves_in_the_strict_sandbox(module_host_factory) -> None:
    host = module_host_factory("engine", image="engine")
    host.exec("useradd", "--system", "--user-group", "--no-create-home", "engine-user")
    host.copy_in(program.archive(), program.path(), mode=0o755)
    host.exec("ln", "-sfn", program.path(), program.LINK)
    body = (
        "flags: {device: cpu, model-impl: transformers, attention-backend: torch_native,\n"
        "  disable-cuda-graph: true, max-total-tokens: 8192}\n"
        "install: {system_site_packages: true}\n"
    )
    serves(host, "strict", "/models/tiny-qwen3", body, ("--no-deps",), timeout_s=600)


def serves(
    host: Host, hardening: str, model: str, body: str, pip: tuple[str, ...], timeout_s: float
) -> None:
    """Start an engine under the real watch and wait; it must come up, and go without a rest."""
    body += f"hardening: {hardening}\nuser: engine-user\napi_key: {{env: K}}\n"
    entry = only(load(engine_text(body, f"{{path: {model}}}"), K=KEY))
    assert entry.spec is not None, entry.errors
    (spec,) = entry.spec.engines
    venv = venv_path(spec)
    if host.exec("test", "-d", venv, check=False).returncode != 0:
        site = ("--system-site-packages",) if spec.install.system_site_packages else ()
        host.exec("python3", "-m", "venv", *site, venv)
        host.exec(f"{venv}/bin/pip", "install", "--quiet", *pip, "sglang==0.5.23")
    put_live(host, spec, program.path())
    host.copy_in(engine_json(spec), "/etc/sglangctl/engines/e.json")
    host.copy_in(host_json(entry.spec), "/etc/sglangctl/host.json", mode=0o600)
    try:
        host.exec("systemctl", "start", "--no-block", spec.unit)
        states: list[str] = []
        end = time.monotonic() + timeout_s
        while not states or states[-1] in ("inactive", "activating"):
            assert time.monotonic() < end, states
            states.append(show(host, spec, "ActiveState"))
            time.sleep(0.2)
        log = host.exec("cat", spec.log).stdout
        assert states[-1] == "active", log[-2000:]
        assert "activating" in states
        assert "The server is fired up and ready to roll!" in log
        journal = host.exec("cat", f"{spec.state}/starts/latest/journal.jsonl").stdout
        events = [json.loads(line) for line in journal.split("\n")[:-1]]
        outcomes = [event["outcome"] for event in events if event["kind"] == "verdict"]
        assert outcomes[-1] in ("serving", "ready")
        assert KEY not in journal
        for pid in host.exec("pgrep", "-u", spec.user).stdout.split():
            assert KEY not in host.exec("cat", f"/proc/{pid}/cmdline").stdout
    finally:
        host.exec("systemctl", "stop", spec.unit)
        host.exec("systemctl", "reset-failed", spec.unit, check=False)
    # SGLang ends itself with SIGKILL when stopped; nobody of its user is left.
    assert host.exec("pgrep", "-u", spec.user, check=False).stdout == ""


def show(host: Host, spec: EngineSpec, name: str) -> str:
    done = host.exec("systemctl", "show", "--value", f"--property={name}", spec.unit)
    return done.stdout.strip()
