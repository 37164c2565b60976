"""Releases: their digests, their files, and what systemd says to the units."""

from __future__ import annotations

import configparser
import dataclasses
import json
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from roles.inventory import EngineSpec
from roles.inventory.render import (
    Release,
    engine_config,
    engine_json,
    environment,
    host_json,
    logrotate,
    render,
    start_limit_interval_s,
    tmpfiles,
    unit_of_ours,
    venv_digest,
    venv_path,
)
from sglangctl.masking.masker import read_env
from sglangctl.state.config import ConfigError, load_engine, load_host
from sglangctl.state.paths import Paths
from sglangctl.state.release import FILES
from sglangctl.switch.configure import engine_of
from tests.support.inventory_case import engine, engine_text, load, only
from tests.support.tools import missing, which

PROGRAM = "/usr/local/lib/sglangctl/0123456789abcdef.pyz"


def rendered(body: str = "", **environ: str) -> Release:
    spec = engine(body, **environ)
    return render(spec, venv=venv_path(spec))


def settings(unit: bytes) -> dict[str, list[str]]:
    """`Section.Key` -> its values in their order."""
    found: dict[str, list[str]] = {}
    section = ""
    for line in unit.decode().splitlines():
        if line.startswith("["):
            section = line.strip("[]")
        elif line and not line.startswith("#"):
            key, _, value = line.partition("=")
            found.setdefault(f"{section}.{key}", []).append(value)
    return found


def test_the_same_inventory_gives_the_same_release() -> None:
    first, second = rendered(), rendered()
    assert first == second
    assert len(first.digest) == 64


@pytest.mark.parametrize(
    "body",
    [
        "port: 8000",
        "flags: {mem-fraction-static: 0.8}",
        "nccl: {overrides: {NCCL_PROTO: LL}}",
        "environment: {X: '1'}",
        "hardening: strict",
        "install: {python: python3.12}",
        "user: other",
    ],
)
def test_a_change_of_what_it_reads_is_another_release(body: str) -> None:
    assert rendered(body).digest != rendered().digest


@pytest.mark.parametrize(
    "body",
    ["replaces: [vllm.service]", "readiness: {expect: Paris}", "readiness: {limits: {kill_s: 3}}"],
)
def test_what_the_engine_does_not_read_leaves_its_release_alone(body: str) -> None:
    # Else a new limit of the host program would restart every engine.
    assert rendered(body).digest == rendered().digest


def test_a_changed_nccl_value_changes_one_file() -> None:
    first, second = rendered(), rendered("nccl: {overrides: {NCCL_PROTO: LL}}")
    changed = {name for name in first.files if first.files[name] != second.files[name]}
    assert changed == {"nccl.env", "manifest.json"}
    assert first.venv == second.venv


def test_the_venv_depends_on_what_is_installed_and_on_nothing_else() -> None:
    plain = venv_digest(engine())
    assert venv_digest(engine("port: 1\nflags: {page-size: 1}\nuser: other")) == plain
    for body in (
        "version: 0.5.16",
        "install: {python: python3.12}",
        "install: {packages: [a==1]}",
        "install: {pip_arguments: [--no-deps]}",
        "install: {system_site_packages: true}",
    ):
        assert venv_digest(engine(body)) != plain
    assert venv_path(engine()) == f"/opt/sglang/venvs/{plain[:16]}"


def test_sglang_is_installed_once_also_from_elsewhere() -> None:
    assert engine("install: {packages: [a==1]}").install.packages == ("sglang==0.5.23", "a==1")
    url = "sglang @ file:///srv/sglang-0.5.23-py3-none-any.whl"
    assert engine(f"install: {{packages: ['{url}']}}").install.packages == (url,)


def test_the_manifest_names_what_the_release_needs() -> None:
    release = rendered("drafter: {path: /d}")
    manifest = json.loads(release.files["manifest.json"])
    assert manifest == {
        "v": 1,
        "digest": release.digest,
        "engine": "e",
        "version": "0.5.23",
        "venv": release.venv,
        "packages": ["sglang==0.5.23"],
        "model": "/m",
        "drafter": "/d",
        "user": "sglang-e",
        "files": ["engine.env", "engine.yaml", "nccl.env", "sglang.service"],
    }


def test_the_host_program_knows_every_file_and_keeps_the_secrets_close() -> None:
    assert set(rendered().files) == set(FILES)
    assert FILES["engine.yaml"] == FILES["engine.env"] == 0o640
    assert FILES["sglang.service"] == 0o644


def test_a_venv_path_that_would_need_quoting_is_refused() -> None:
    with pytest.raises(ValueError, match="virtual environment"):
        render(engine(), venv="/opt/a b")


def test_the_unit_is_what_the_design_promises() -> None:
    release = rendered("drafter: {path: /d}\nreadiness: {limits: {start_s: 1800}}")
    unit = settings(release.files["sglang.service"])
    assert unit["Service.Type"] == ["exec"]
    assert unit["Service.ExecStart"] == [
        f"{release.venv}/bin/python -m sglang.launch_server --config "
        "/var/lib/sglangctl/e/current/engine.yaml"
    ]
    assert unit["Service.EnvironmentFile"] == [
        "/var/lib/sglangctl/e/current/nccl.env",
        "/var/lib/sglangctl/e/current/engine.env",
    ]
    assert unit["Service.ExecStartPost"] == ["/usr/local/bin/sglangctl wait e"]
    assert unit["Service.TimeoutStartSec"] == ["infinity"]
    assert unit["Service.KillMode"] == ["mixed"]
    assert unit["Service.TimeoutStopSec"] == ["120"]
    assert unit["Service.Restart"] == ["always"]
    assert unit["Service.RestartPreventExitStatus"] == ["2"]
    assert "Service.SuccessExitStatus" not in unit
    assert unit["Service.StandardOutput"] == ["append:/var/log/sglang/e/engine.log"]
    assert unit["Service.StandardError"] == unit["Service.StandardOutput"]
    assert unit["Service.LimitMEMLOCK"] == ["infinity"]
    assert {"Service.LimitNOFILE", "Service.TasksMax", "Service.OOMScoreAdjust"} <= set(unit)
    mounts = unit["Unit.RequiresMountsFor"][0].split()
    assert {"/m", "/d", release.venv, "/var/cache/sglang/e"} <= set(mounts)
    assert unit["Unit.StartLimitBurst"] == ["3"]
    assert int(unit["Unit.StartLimitIntervalSec"][0]) > 3 * (1800 + 120 + 10)
    assert "sglang-watch@e.service" in unit["Unit.Wants"][0]
    for wanted in ("network-online.target", "nvidia-persistenced.service"):
        assert wanted in unit["Unit.After"][0]
    assert unit["Install.WantedBy"] == ["multi-user.target"]


@pytest.mark.parametrize("hardening", ["baseline", "strict"])
def test_the_sandbox_never_takes_what_the_engine_needs(hardening: str) -> None:
    unit = settings(rendered(f"hardening: {hardening}").files["sglang.service"])
    for key in [
        "MemoryDenyWriteExecute",
        "PrivateDevices",
        "DevicePolicy",
        "DeviceAllow",
        "IPAddressDeny",
        "ProtectClock",
        "ProcSubset",
        "RemoveIPC",
        "PrivateNetwork",
    ]:
        assert f"Service.{key}" not in unit
    families = unit.get("Service.RestrictAddressFamilies", ["AF_NETLINK"])
    assert all("AF_NETLINK" in value.split() for value in families)
    assert ("Service.SystemCallFilter" in unit) == (hardening == "strict")


def test_the_window_of_starts_follows_the_budget_of_a_start() -> None:
    spec = engine("readiness: {limits: {start_s: 100}}")
    assert start_limit_interval_s(spec) == 3 * (100 + 120 + 10) + 60


def test_the_environment_of_an_engine() -> None:
    spec = engine("gpus: [5, 2]\nenvironment: {MAX_JOBS: 16, CUDA_HOME: /opt/cuda, X: 'a b'}")
    values = environment(spec, "/v")
    assert values["CUDA_VISIBLE_DEVICES"] == "5,2"
    assert values["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    assert values["MAX_JOBS"] == "16"
    assert values["PATH"].startswith("/v/bin:/opt/cuda/bin:/usr/local/sbin:")
    assert values["HOME"] == "/var/cache/sglang/e"
    assert values["PYTHONUNBUFFERED"] == "1"
    for name, value in values.items():
        if "CACHE" in name or name in ("HF_HOME", "FLASHINFER_WORKSPACE_BASE"):
            assert value.startswith("/var/cache/sglang/e")
    assert "CUDA_VISIBLE_DEVICES" not in environment(engine(), "/v")


def test_a_profile_brings_variables_and_flags_and_the_inventory_wins(tmp_path: Path) -> None:
    body = (
        "nccl: {profile: safe, overrides: {CUMEM_ENABLE: 1, NCCL_P2P_DISABLE: null, DEBUG: INFO}}"
    )
    spec = engine(body)
    assert spec.nccl.environment == {"NCCL_CUMEM_ENABLE": "1", "NCCL_DEBUG": "INFO"}
    assert spec.flags == {"disable-custom-all-reduce": True}
    off = engine("nccl: {profile: safe}\nflags: {disable-custom-all-reduce: false}")
    assert off.flags == {"disable-custom-all-reduce": False}
    gone = engine("nccl: {profile: safe}\nflags: {disable-custom-all-reduce: null}")
    assert gone.flags == {}
    path = tmp_path / "nccl.env"
    path.write_bytes(render(spec, venv="/v").files["nccl.env"])
    assert read_env(path) == spec.nccl.environment


def test_hostile_text_stays_text() -> None:
    path = '/models/a b%h$HOME"\\;`id`'
    body = """
        drafter: {path: '/d/%n $x'}
        flags: {chat-template: "--x; $(id) %h ${HOME}", weight-version: "a\\nExecStart=/bin/id"}
        environment: {X: '"; $(id) `id` \\'}
        """
    from tests.support.inventory_case import engine_text, load, only

    entry = only(load(engine_text(body, json.dumps({"path": path}))))
    assert entry.errors == ()
    release = render(entry.spec.engines[0], venv="/v")
    unit = settings(release.files["sglang.service"])
    assert len(unit["Service.ExecStart"]) == 1
    assert unit["Service.ExecStart"][0].endswith('"--chat-template=--x; $$(id) %%h $${HOME}"')
    assert unit["Unit.RequiresMountsFor"][0].startswith(
        '"/models/a b%%h$HOME\\"\\\\;`id`" "/d/%%n $x" /v '
    )
    config = yaml.safe_load(release.files["engine.yaml"])
    assert config["model-path"] == path
    assert config["weight-version"] == "a\nExecStart=/bin/id"
    assert b'X="\\"; \\$(id) \\`id\\` \\\\"' in release.files["engine.env"]


def test_the_host_program_reads_its_files(tmp_path: Path) -> None:
    body = (
        "drafter: {path: /d}\ngpus: [0, 1]\nreplaces: [a.service]\n"
        "readiness: {limits: {kill_s: 3}, reachable_at: 'http://h:1'}"
    )
    spec = only(load(engine_text(body))).spec
    assert spec is not None
    paths = Paths(tmp_path)
    paths.engines.mkdir(parents=True)
    paths.host_json.write_bytes(host_json(spec))
    paths.engine_json("e").write_bytes(engine_json(spec.engines[0]))
    assert load_engine("e", paths) == engine_config(spec.engines[0])
    assert load_engine("e", paths).limits.kill_s == 3.0
    # Not used on the host, yet a change of it must make a deploy look again.
    assert load_engine("e", paths).readiness.reachable_at == "http://h:1"
    assert load_host(paths).engines == ("e",)


def test_a_configuration_of_before_can_be_gone_back_to() -> None:
    spec = engine("gpus: [0]")
    before = {**json.loads(engine_json(spec)), "fallbacks": []}
    assert engine_of("e", json.dumps(before), Paths()) == engine_config(spec)
    with pytest.raises(ConfigError, match="unknown keys other"):
        engine_of("e", json.dumps({**before, "other": 1}), Paths())


def test_folders_that_root_fills_are_roots() -> None:
    lines = [line.split() for line in tmpfiles(engine("user: kimi")).decode().splitlines()]
    folders = {line[1]: (line[2], line[3], line[4]) for line in lines if line[0] == "d"}
    assert folders["/var/log/sglang/e"] == ("2750", "root", "kimi")
    assert folders["/var/lib/sglangctl/e/starts"] == ("2750", "root", "kimi")
    assert folders["/var/cache/sglang/e"] == ("0750", "kimi", "kimi")
    assert all(
        owner == "root" for path, (_, owner, _) in folders.items() if "cache/sglang/" not in path
    )


def run(*argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(argv, capture_output=True, text=True, check=False)


def system_root(root: Path, spec: EngineSpec, unit: bytes) -> Path:
    """A tree in which the units' programs are there, beside systemd's own units."""
    units = root / "etc/systemd/system"
    units.mkdir(parents=True)
    (units / spec.unit).write_bytes(unit)
    (units / "sglang-watch@.service").write_bytes(unit_of_ours("sglang-watch@.service", PROGRAM))
    shutil.copytree("/usr/lib/systemd/system", root / "usr/lib/systemd/system", symlinks=True)
    for path in (f"{venv_path(spec)}/bin/python", "/usr/local/bin/sglangctl", "/usr/bin/python3"):
        program = root / path[1:]
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
    return root


needs_systemd = pytest.mark.skipif(
    missing("systemd-analyze"), reason="systemd-analyze is not installed"
)


def verify(root: Path, *units: str) -> list[str]:
    """What systemd says to the units. Its exit status is 0 for a misspelt key (systemd 252)."""
    done = run("systemd-analyze", "verify", "--man=no", f"--root={root}", *units)
    return [line for line in (done.stdout + done.stderr).splitlines() if "sglang" in line]


@needs_systemd
@pytest.mark.parametrize("hardening", ["baseline", "strict"])
def test_systemd_has_nothing_to_say(tmp_path: Path, hardening: str) -> None:
    body = f"hardening: {hardening}\nflags: {{chat-template: '--a b%h $x \"', disable-cuda-graph: true}}"
    spec = engine(body)
    unit = render(spec, venv=venv_path(spec)).files["sglang.service"]
    root = system_root(tmp_path, spec, unit)
    assert verify(root, spec.unit, "sglang-watch@e.service") == []
    # The check would see a misspelt key, a bad value and a program that does not exist.
    path = root / "etc/systemd/system" / spec.unit
    for right, wrong in (
        (b"TasksMax=", b"TaskMax="),
        (b"KillMode=mixed", b"KillMode=mixd"),
        (b"/usr/local/bin/sglangctl", b"/usr/local/bin/gone"),
    ):
        path.write_bytes(unit.replace(right, wrong))
        assert verify(root, spec.unit) != []


@needs_systemd
@pytest.mark.parametrize(("hardening", "limit"), [("baseline", 5.2), ("strict", 2.0)])
def test_exposure_stays_what_the_readme_says(tmp_path: Path, hardening: str, limit: float) -> None:
    spec = engine(f"hardening: {hardening}")
    path = tmp_path / spec.unit
    path.write_bytes(render(spec, venv=venv_path(spec)).files["sglang.service"])
    done = run("systemd-analyze", "security", "--offline=true", "--no-pager", str(path))
    exposure = float(done.stdout.split("Overall exposure level for")[1].split(": ")[1].split()[0])
    assert exposure <= limit


@pytest.mark.skipif(missing("logrotate"), reason="logrotate is not installed")
def test_logrotate_accepts_its_file(tmp_path: Path) -> None:
    path = tmp_path / "sglang-e"
    path.write_bytes(logrotate(engine()))
    path.chmod(0o644)
    done = run(which("logrotate") or "logrotate", "--debug", str(path))
    assert done.returncode == 0
    assert "error" not in done.stderr.lower()


def test_the_units_are_ini_files_without_repeated_sections() -> None:
    for unit in (
        rendered().files["sglang.service"],
        unit_of_ours("sglang-watch@.service", PROGRAM),
    ):
        parser = configparser.RawConfigParser(strict=False, allow_no_value=False)
        parser.optionxform = str  # type: ignore[assignment, method-assign]
        parser.read_string(unit.decode())
        assert parser.sections()[:2] == ["Unit", "Service"]


def test_specs_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        engine().port = 1  # type: ignore[misc]
