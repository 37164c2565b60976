"""The gate `staged`: an engine's own parser and imports, and what is made of their answers."""

from __future__ import annotations

import copy
import json
import os
import pwd
import random
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from roles.inventory import render
from sglangctl.masking.masker import Masker
from sglangctl.preflight import asking, configs, in_venv, model, staged, toolchain
from sglangctl.preflight.asking import Answer
from sglangctl.proc import as_user, procfs
from sglangctl.state.config import EngineConfig, Preflight
from sglangctl.state.paths import Paths
from sglangctl.util.errors import Unusable
from tests.support.engine_config import ENGINE
from tests.support.holding import passable
from tests.support.inventory_case import engine as spec_of
from tests.support.safetensors_files import shards
from tests.support.waiting import until

CPU = replace(ENGINE, version="0.5.23", preflight=Preflight(device="cpu"))
VENV = "/opt/sglang/venvs/abc"
WHOLE = [
    {"step": "caches", "closed": []},
    {"step": "limits", "files": 1048576, "locked": -1},
    {"step": "version", "version": "0.5.23"},
    {"step": "arguments", "error": None},
    *({"step": "import", "wanted": name, "error": None} for name in in_venv.ENGINE),
    {"step": "end"},
]

CACHES = {"/var/cache/x": "/var/cache/x", "/var": "/var/y z"}

PARSER = """
import argparse
class ServerArgs:
    @staticmethod
    def add_cli_args(parser):
        parser.add_argument("--tp-size", type=int)
        parser.add_argument("--backend", choices=["triton"])
    @classmethod
    def from_cli_args(cls, args):
        raise RuntimeError("looks at the GPUs")
def prepare_server_args(argv):
    parser = argparse.ArgumentParser(prog="sglang serve")
    ServerArgs.add_cli_args(parser)
    if "--config" in argv:
        raise ValueError("Unsupported config option 'no_x_y' with action 'BooleanOptionalAction'")
    return ServerArgs.from_cli_args(parser.parse_args(argv))
"""


def said(*lines: dict[str, Any], **answer: Any) -> dict[str, Any]:
    """Finding's id -> finding, of what an environment answered over WHOLE's lines."""
    by_step = {json.dumps([one["step"], one.get("wanted")]): one for one in [*WHOLE, *lines]}
    found = staged.judge(
        CPU, VENV, Answer(list(by_step.values()), **answer), Masker(["sk-planted-0123"]), CACHES
    )
    return {one.id: one for one in found}


@pytest.fixture
def ask(tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Run the program on a package `sglang` of these files: step -> answer."""

    def run(
        *words: str,
        files: dict[str, str] | None = None,
        what: str = in_venv.ALL,
        **environment: str,
    ) -> dict[str, Any]:
        package = tmp_path / "sglang/srt"
        for name, text in {"server_args.py": PARSER, **(files or {})}.items():
            path = package / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        done = subprocess.run(
            [sys.executable, in_venv.__file__, what, *words],
            cwd=tmp_path,
            env={"PATH": os.environ["PATH"], **environment},
            capture_output=True,
            text=True,
            timeout=60,
        )
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        return {one.get("wanted") or one["step"]: one for one in lines}

    return run


def test_the_parser_is_asked_and_goes_no_further(ask: Any) -> None:
    """from_cli_args would look at GPUs and model; it is not called."""
    assert ask("--tp-size", "2")["arguments"] == {"step": "arguments", "error": None}


def test_what_is_left_to_the_launch_gate_is_not_asked(ask: Any) -> None:
    broken = {"server_args.py": "raise SystemExit(3)"}
    found = ask("--tp-sise", "2", files=broken, what=in_venv.AROUND)
    assert list(found) == ["caches", "limits", "version", "end"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--tp-sise", "2"], "unrecognized arguments: --tp-sise 2"),
        (["--backend", "tritn"], "argument --backend: invalid choice: 'tritn'"),
        (["--config", "x.yaml"], "Unsupported config option 'no_x_y'"),
    ],
)
def test_what_the_parser_refuses_is_its_own_sentence(
    ask: Any, words: list[str], sentence: str
) -> None:
    answer = ask(*words)["arguments"]
    assert answer["error"] == "refused"
    assert answer["text"].startswith(sentence)


def test_what_is_missing_is_named_with_the_file_that_wants_it(ask: Any) -> None:
    files = {"entrypoints/http_server.py": "print('loud')\nimport gguf_that_is_not_there\n"}
    answer = ask(files=files)[in_venv.ENGINE[0]]
    assert (answer["error"], answer["missing"]) == ("ModuleNotFoundError", "gguf_that_is_not_there")
    assert answer["file"].endswith("entrypoints/http_server.py")


def test_an_engine_without_a_parser_is_said_to_be_none(ask: Any) -> None:
    answer = ask(files={"server_args.py": "ServerArgs = object"})["arguments"]
    assert answer["error"] == "unknown" and "prepare_server_args" in answer["text"]


def test_a_closed_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """As somebody else where the tests run as root, who writes everywhere."""
    user = "nobody" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name
    for name in in_venv.CACHES:
        monkeypatch.delenv(name, raising=False)
    with passable() as folder:
        closed, open_ = folder / "closed", folder / "open"
        closed.mkdir(mode=0o555)
        open_.mkdir()
        open_.chmod(0o777)
        monkeypatch.setenv("HOME", str(closed / "cache"))
        monkeypatch.setenv("HF_HOME", str(open_ / "cache"))
        assert as_user.ask(user, in_venv.closed_caches, 30) == [str(closed)]


def test_a_healthy_engine_has_no_finding() -> None:
    assert said() == {}


def test_refused_arguments_fail_with_the_next_step_and_without_the_secret() -> None:
    words = "unrecognized arguments: --api-kee sk-planted-0123"
    found = said({"step": "arguments", "error": "refused", "text": words})["engine-arguments"]
    assert found.level == "fail" and "--api-kee" in found.seen
    assert "sk-planted" not in found.seen
    words = "Unsupported config option 'no_enable_x' with action 'BooleanOptionalAction'"
    found = said({"step": "arguments", "error": "refused", "text": words})["engine-arguments"]
    assert "flag enable-x with the value false" in found.fix
    unknown = said({"step": "arguments", "error": "unknown", "text": "no parser"})
    assert [one.level for one in unknown.values()] == ["info"]


@pytest.mark.parametrize(
    ("error", "text", "fix"),
    [
        ("ModuleNotFoundError", "No module named 'gguf'", "install"),
        (
            "ImportError",
            "libcudart.so.12: cannot open shared object file",
            "kernel check --engine kimi",
        ),
        ("ImportError", "/v/x.abi3.so: undefined symbol: _ZN3c105Error", ""),
    ],
)
def test_an_import_that_fails_is_named(error: str, text: str, fix: str) -> None:
    line = {"step": "import", "wanted": in_venv.ENGINE[0], "error": error, "text": text}
    found = said({**line, "missing": "gguf", "file": "/v/x.py"})["engine-imports"]
    assert found.level == "fail" and text in found.seen and "/v/x.py" in found.seen
    assert found.fix and fix in found.fix and "NAME" not in found.fix


def test_an_engine_of_another_layout_is_not_called_broken() -> None:
    line = {"step": "import", "wanted": in_venv.ENGINE[0], "error": "ModuleNotFoundError"}
    found = said({**line, "text": "No module", "missing": "sglang.srt.entrypoints", "file": ""})
    assert {id: one.level for id, one in found.items()} == {"engine-unchecked": "info"}


def test_another_version_is_a_warning_and_a_closed_cache_a_failure() -> None:
    found = said(
        {"step": "version", "version": "0.5.22"}, {"step": "caches", "closed": ["/var/cache/x"]}
    )
    assert found["engine-version"].level == "warn" and "0.5.22" in found["engine-version"].seen
    assert "engine-version" not in said({"step": "version", "version": "0.5.23+cu130"})
    assert "chown sglang /var/cache/x" in found["cache-not-writable"].fix


@pytest.mark.parametrize(
    ("ranks", "device", "limits", "words"),
    [
        (2, "cuda", (1048576, -1), []),
        (1, "cuda", (20000, 8 << 20), []),  # as containers have it, and engines serve
        (1, "cpu", (4096, -1), ["open 4096 files"]),
        (2, "cuda", (1048576, 8 << 20), ["lock 8192 KiB"]),
        (2, "cpu", (1048576, 8 << 20), []),
        (2, "cuda", (-1, -1), []),
        (2, "cuda", (None, "x"), []),
    ],
)
def test_limits_that_the_host_does_not_give(
    ranks: int, device: str, limits: tuple[Any, Any], words: list[str]
) -> None:
    engine = replace(CPU, tensor_parallel=ranks, preflight=Preflight(device=device))
    line = {"step": "limits", "files": limits[0], "locked": limits[1]}
    lines = [one for one in WHOLE if one["step"] != "limits"]
    found = list(staged.judge(engine, VENV, Answer([line, *lines]), Masker([]), {}))
    assert [one.level for one in found] == ["warn" for _ in words]
    assert all(word in one.seen for word, one in zip(words, found))


def test_the_limits_are_those_that_it_runs_under(ask: Any) -> None:
    found = ask()["limits"]
    assert found["files"] == resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    assert found["locked"] == resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]


def test_imports_that_end_without_an_answer() -> None:
    crash = said(
        ended=False, result="core-dump", text="x\nFatal Python error: Segmentation fault\n"
    )
    assert (
        crash["engine-imports"].level == "fail" and "Segmentation" in crash["engine-imports"].seen
    )
    slow = said(ended=False, result="timeout", text="")
    assert slow["engine-unchecked"].level == "warn"


def test_a_closed_cache_is_one_of_the_release() -> None:
    """An environment said that it is /etc/shadow: root was told to give that to the engine's user."""
    lie = {"step": "caches", "closed": ["/etc/shadow", "/", "/var/cache/x; id"]}
    assert "cache-not-writable" not in said(lie)
    found = said({"step": "caches", "closed": ["/var"]})["cache-not-writable"]
    assert "cannot write to /var," in found.seen
    assert found.fix.startswith("install -d -o sglang '/var/y z', or")


def test_a_cache_that_root_sees_and_its_user_does_not_is_closed() -> None:
    """The engine's user names the last folder that it can see (a home of mode 0700, ProtectHome)."""
    found = said({"step": "caches", "closed": ["/var/cache"]})["cache-not-writable"]
    assert found.level == "fail" and "cannot reach /var/cache/x," in found.seen
    assert "`environment`" in found.fix and "chown" not in found.fix


@pytest.mark.slow
def test_mutated_answers_are_findings_too() -> None:
    """An environment's packages write them."""
    odd: tuple[Any, ...] = (
        *(None, True, 0, 10**30, 1e308, "", "x", "\x1b[31m", "\ud800", "refused", "unknown"),
        *([], {}, [None], [[]], {"a": 1}, ["x" * 70_000], ["/c"] * 1000),
    )
    whole = [
        {"step": "caches", "closed": ["/c"]},
        {"step": "limits", "files": 1024, "locked": 65536},
        {"step": "version", "version": "0.1"},
        {"step": "arguments", "error": "ImportError", "text": "t", "missing": "m", "file": "/f"},
        {"step": "import", "wanted": "a.b", "error": "OSError", "text": "x", "missing": "a"},
        {"step": "end"},
    ]
    random_ = random.Random(7)
    for _ in range(3000):
        lines: list[dict[str, Any]] = copy.deepcopy(whole)
        for line in random_.choices(lines, k=random_.randint(1, 4)):
            line[random_.choice(list(line))] = copy.deepcopy(random_.choice(odd))
        answer = Answer(lines, "a\n", random_.random() < 0.5, "timeout")
        found = list(staged.judge(CPU, VENV, answer, Masker([]), CACHES))
        assert len(json.dumps([one.to_json() for one in found])) < 20_000


def test_the_asking_unit_is_the_engines_own_but_for_what_it_starts() -> None:
    engine = spec_of('hardening: strict\nflags: {chat-template: "a\'b $c %d"}\n')
    release = render.render(engine, venv=VENV)
    text = release.files["sglang.service"].decode()
    folder, digest = Path("/run/ask"), release.digest
    base = "/var/lib/sglangctl/e"
    unit = asking.derived(
        text, f"{base}/current/", f"{base}/releases/{digest}/", VENV, folder, 300.0
    )
    lines = unit.split("\n")
    for line in (
        "User=sglang-e",
        f"EnvironmentFile={base}/releases/{digest}/engine.env",
        "ProtectSystem=strict",
        "SystemCallFilter=~@privileged",
        "Type=oneshot",
        "TimeoutStartSec=300",
    ):
        assert line in lines
    (start,) = [line for line in lines if line.startswith("Exec")]
    assert start.startswith(f"ExecStart={VENV}/bin/python /run/ask/ask.py all --config ")
    assert f"{base}/releases/{digest}/engine.yaml" in start
    assert "Restart" not in unit and "engine.log" not in unit and "/current/" not in unit
    with pytest.raises(Unusable):
        asking.derived(text, "/c/", "/r/", "/another/venv", folder, 300.0)


def test_answers_are_read_with_a_limit_and_as_data(tmp_path: Path) -> None:
    lines = ['{"step": "end"}', "[1]", "not json", '{"deep": ' + "[" * 100_000]
    (tmp_path / "answer").write_text("\n".join(lines))
    with open(tmp_path / "text", "wb") as file:
        file.truncate(10**10)
    answer = asking.read(tmp_path, "success")
    assert answer.lines == [{"step": "end"}] and answer.ended
    assert len(answer.text) == asking.LARGEST
    assert asking.read(tmp_path / "none", "timeout") == Answer([], "", False, "timeout")


@pytest.fixture
def a_release(tmp_path: Path) -> Paths:
    paths = Paths(tmp_path)
    folder = paths.releases("kimi") / ("a" * 64)
    folder.mkdir(parents=True)
    venv = tmp_path / "venv"
    (venv / "lib/python3.11/site-packages").mkdir(parents=True)
    for name in ("sglang.service", "nccl.env", "engine.env", "engine.yaml"):
        (folder / name).write_text("")
    (folder / "manifest.json").write_text(json.dumps({"venv": str(venv)}))
    return paths


def engine_in(paths: Paths) -> EngineConfig:
    """With a whole model of its own, read as root: the folders of a test are closed to others."""
    shards(paths.root / "model")
    return replace(CPU, model=str(paths.root / "model"), user="root")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root remembers")
def test_the_probes_that_follow_read_no_header_of_weights_that_did_not_change(
    a_release: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = engine_in(a_release)
    assert staged.findings(engine, "a" * 64, a_release, lambda *_: Answer(list(WHOLE))) == []
    read: list[str] = []
    real = as_user.ask
    monkeypatch.setattr(as_user, "within", lambda limit_s, question: question())
    monkeypatch.setattr(as_user, "ask", lambda *words: read.append(words[0]) or real(*words))  # type: ignore[func-returns-value]
    looked = model.look(engine, a_release)
    assert not any(one.level == "fail" for one in model.judge(engine, looked)) and not read
    assert configs.of(looked[0].model)["architectures"]  # which needs no second look at the folder
    (memory,) = (a_release.root / "var/cache/sglangctl/weights").iterdir()
    document = json.loads(memory.read_text())
    del document["model"]["config"]  # as an older version wrote it
    memory.write_text(json.dumps(document))
    assert configs.of(model.look(engine, a_release)[0].model)["architectures"] and read
    assert staged.findings(engine, "a" * 64, a_release, lambda *_: Answer(list(WHOLE))) == []
    read.clear()
    (a_release.root / "model/model-00002-of-00003.safetensors").unlink()
    assert (
        any(one.level == "fail" for one in model.judge(engine, model.look(engine, a_release)))
        and read
    )


def test_weights_that_broke_since_the_first_gate_stop_the_deploy(a_release: Paths) -> None:
    engine = engine_in(a_release)
    (a_release.root / "model/model-00002-of-00003.safetensors").unlink()
    found = staged.findings(engine, "a" * 64, a_release, lambda *_: Answer(list(WHOLE)))
    assert [(one.id, one.level) for one in found] == [("weights-missing", "fail")]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root remembers")
def test_what_had_no_fault_is_not_asked_again_until_something_changes(a_release: Paths) -> None:
    asked = []

    def ask(*words: Any) -> Answer:
        asked.append(words)
        return Answer(list(WHOLE))

    def look() -> list[Any]:
        return staged.findings(engine_in(a_release), "a" * 64, a_release, ask)

    assert look() == [] and look() == []
    assert len(asked) == 1
    (a_release.root / "venv/lib/python3.11/site-packages/new").mkdir()
    assert look() == [] and len(asked) == 2
    assert len(list(a_release.asked.iterdir())) == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="only root remembers")
def test_what_was_left_to_the_gate_is_asked_when_the_switch_is_plain_after_all(
    a_release: Paths,
) -> None:
    asked = []

    def ask(*words: Any) -> Answer:
        asked.append(words[-1])
        return Answer([one for one in WHOLE if one["step"] not in ("arguments", "import")])

    def look(at_gate: bool) -> list[Any]:
        engine = engine_in(a_release)
        return staged.findings(engine, "a" * 64, a_release, ask, at_gate=at_gate)

    assert look(at_gate=True) == look(at_gate=False) == look(at_gate=True) == []
    assert asked == ["around", "all"], "the whole answer is remembered, and enough for both"


def test_what_had_a_fault_is_asked_again(a_release: Paths) -> None:
    wrong = {"step": "arguments", "error": "refused", "text": "unrecognized arguments: --x"}
    engine, answer = engine_in(a_release), Answer([wrong, {"step": "end"}])
    for _ in range(2):
        found = staged.findings(engine, "a" * 64, a_release, lambda *_: answer)
        assert [one.id for one in found] == ["engine-arguments"]


def test_a_host_without_systemd_is_a_warning(
    a_release: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking.systemctl, "booted", lambda: False)
    (found,) = staged.findings(engine_in(a_release), "a" * 64, a_release)
    assert (found.id, found.level) == ("engine-unchecked", "warn") and "systemd" in found.seen


def tools(folder: Path, *names: str) -> str:
    folder.mkdir()
    for name in names:
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)
    return str(folder)


@pytest.mark.parametrize(
    ("names", "nvcc", "torch", "capability", "wanted"),
    [
        (("ninja", "g++"), "13.0", 13, "12.0", {}),
        (("ninja", "g++"), "12.9", 12, "12.0", {}),
        (("ninja", "g++"), "12.8", 12, "12.0", {"toolchain-nvcc": "fail"}),
        (("ninja", "g++"), "12.8", 12, "9.0", {}),
        (("ninja", "g++"), "12.9", 13, "9.0", {"toolchain-nvcc": "warn"}),
        (("ninja", "g++"), None, 13, "9.0", {"toolchain-nvcc": "fail"}),
        (("g++",), "13.0", 13, "9.0", {"toolchain-ninja": "fail"}),
        (("ninja",), "13.0", None, "9.0", {"toolchain-compiler": "fail"}),
    ],
)
def test_the_toolchain_on_the_units_path(
    tmp_path: Path,
    names: tuple[str, ...],
    nvcc: str | None,
    torch: int | None,
    capability: str,
    wanted: dict[str, str],
) -> None:
    path = tools(tmp_path / "bin", *names)
    engine = replace(ENGINE, version="0.5.23")
    found = list(toolchain.judge(engine, path, nvcc, 15, 12, torch, [capability]))
    assert {one.id: one.level for one in found} == wanted
    older = replace(ENGINE, version="0.5.9")
    levels = {one.level for one in toolchain.judge(older, path, nvcc, 11, 12, torch, ["9.0"])}
    assert levels <= {"warn"}
    assert toolchain.look(CPU, VENV, tmp_path) == []


@pytest.mark.parametrize(
    ("newest", "gcc", "wanted"),
    [(15, 15, {}), (14, 15, {"toolchain-compiler": "fail"}), (None, 15, {}), (14, None, {})],
)
def test_a_compiler_that_is_too_new_for_nvcc(
    tmp_path: Path, newest: int | None, gcc: int | None, wanted: dict[str, str]
) -> None:
    path = tools(tmp_path / "bin", "ninja", "g++")
    engine = replace(ENGINE, version="0.5.23")
    found = list(toolchain.judge(engine, path, "13.0", newest, gcc, 13, ["12.0"]))
    assert {one.id: one.level for one in found} == wanted
    assert all("g++-14" in one.fix for one in found)


HOST_CONFIG = """\
#if defined(__GNUC__)

#if __GNUC__ > 15

#error -- unsupported GNU version! gcc versions later than 15 are not supported!

#endif /* __GNUC__ > 15 */
"""
"""Of CUDA 13.0."""


def test_what_nvcc_takes_at_most(tmp_path: Path) -> None:
    assert toolchain.newest_gcc(tmp_path) is None
    file = tmp_path / "include/crt/host_config.h"
    file.parent.mkdir(parents=True)
    file.write_text(HOST_CONFIG)
    assert toolchain.newest_gcc(tmp_path) == 15
    file.write_text("#if __GNUC__ > x\n")
    assert toolchain.newest_gcc(tmp_path) is None


def test_the_version_of_the_compiler_on_the_path(tmp_path: Path) -> None:
    for words, found in (("13.3.0", 13), ("clang", None), ("", None)):
        folder = Path(tools(tmp_path / f"bin-{words}", "g++"))
        (folder / "g++").write_text(f"#!/bin/sh\necho '{words}'\n")
        with passable() as place:
            shutil.copy(folder / "g++", place / "g++")
            assert toolchain._gcc(str(place), "nobody") == found
    assert toolchain._gcc(str(tmp_path), "nobody") is None


def test_an_environment_without_torch_compiles_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "engine.env").write_text(f'PATH="{tmp_path}"\n')
    engine = replace(ENGINE, version="0.5.23")
    assert toolchain.look(engine, str(tmp_path / "no-venv"), tmp_path) == []
    torch = toolchain.Torch("2.14.1", "13.0", tmp_path)
    monkeypatch.setattr(toolchain, "_torch", lambda venv: torch)
    assert {one.id for one in toolchain.look(engine, VENV, tmp_path)} > {"toolchain-ninja"}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has rights to give up")
def test_compilers_of_an_environment_are_asked_as_its_engine(tmp_path: Path) -> None:
    """As nobody, one ended what else of the host runs as nobody: `kill -9 -1`."""
    victim = subprocess.Popen(["setpriv", "--reuid=nobody", "--clear-groups", "sleep", "60"])
    folder = Path(tempfile.mkdtemp(dir="/var/tmp"))
    try:
        until(lambda: procfs.uid(victim.pid) == pwd.getpwnam("nobody").pw_uid)
        folder.chmod(0o755)
        (folder / "g++").write_text("#!/bin/sh\nkill -9 -1\n")
        (folder / "g++").chmod(0o755)
        release = tmp_path / "release"
        release.mkdir()
        (release / "engine.env").write_text(f'PATH="{folder}:/usr/bin:/bin"\n')
        venv = tmp_path / "venv"
        site = venv / "lib/python3.11/site-packages/torch"
        site.mkdir(parents=True)
        (site / "version.py").write_text("__version__ = '2.9'\ncuda = '13.0'\n")
        (venv / "bin").mkdir()
        (venv / "bin/python").symlink_to(sys.executable)
        engine = replace(CPU, user="daemon", preflight=Preflight())
        assert toolchain._torch(str(venv)) is not None
        toolchain.look(engine, str(venv), release)
        assert victim.poll() is None
    finally:
        shutil.rmtree(folder)
        victim.kill()
        victim.wait()
