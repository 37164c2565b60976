"""`sglangctl bundle`: complete where it can be, honest where it cannot, and without secrets."""

from __future__ import annotations

import errno
import json
import os
import stat
import tarfile
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglangctl import cli
from sglangctl.commands import bundle as command
from sglangctl.masking.scrub import scrub, scrub_event, scrub_file
from sglangctl.report import bundle, bundle_parts
from sglangctl.state.journal import Writer
from sglangctl.state.paths import Paths

PLANTED = "planted-api-key-4711"
STRAY = "hf_abcdefghijklmnopqrstuvwxyz"
FOREIGN = "someone-elses-key"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "host"
    monkeypatch.setenv("SGLANGCTL_ROOT", str(root))
    monkeypatch.chdir(tmp_path)
    return root


def deployed(root: Path) -> None:
    """A host with an engine, its key wherever one can turn up."""
    paths = Paths(root)
    release = paths.releases("kimi") / "abc"
    release.mkdir(parents=True)
    paths.current("kimi").symlink_to("releases/abc")
    (release / "engine.yaml").write_text(f'port: 30000\napi-key: "{PLANTED}"\n')
    (release / "engine.env").write_text(f'HF_TOKEN="{STRAY}"\nOMP_NUM_THREADS="8"\n')
    (release / "nccl.env").write_text('NCCL_PROTO="LL"\n')
    (release / "manifest.json").write_text(json.dumps({"v": 1, "venv": str(root / "venv")}))
    (root / "venv/lib/python3.11/site-packages/sglang-0.5.23.dist-info").mkdir(parents=True)
    for start in ("1-a", "2-b", "3-c", "4-d"):
        folder = paths.starts("kimi") / start
        folder.mkdir(parents=True)
        journal = Writer(folder / "journal.jsonl")
        journal.write(0, "launch", argv=["vllm", "--api-key", FOREIGN])
        journal.write(1, "log", data=f'api_key="{PLANTED}" and {{"token": "{FOREIGN}"}}\n')
    switches = paths.engine_state("kimi") / "switches"
    switches.mkdir()
    Writer(switches / "2026.jsonl").write(0, "step", name="switch", text=f"key {PLANTED}")
    log = paths.engine_log("kimi")
    log.parent.mkdir(parents=True)
    log.write_text(f"server_args=ServerArgs(api_key='{PLANTED}')\nBearer {FOREIGN}\n")
    paths.engines.mkdir(parents=True)
    paths.engine_json("kimi").write_text('{"v": 1, "name": "kimi"}')


def unpacked(file: Path) -> dict[str, str]:
    with tarfile.open(file) as archive:
        found = {}
        for member in archive.getmembers():
            assert member.isfile() and not member.name.startswith(("/", ".."))
            source = archive.extractfile(member)
            assert source is not None
            found[member.name.partition("/")[2]] = source.read().decode()
    return found


def test_no_secret_gets_out_and_the_rest_does(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    deployed(root)
    assert cli.main(["bundle", "kimi", "-o", "evidence.tar.gz"]) == 0
    files = unpacked(Path("evidence.tar.gz"))
    for name, text in files.items():
        for secret in (PLANTED, STRAY, FOREIGN):
            assert secret not in text, name
    assert stat.S_IMODE(os.stat("evidence.tar.gz").st_mode) == 0o600
    assert "port: 30000" in files["release/engine.yaml"] and "***" in files["release/engine.yaml"]
    assert 'OMP_NUM_THREADS="8"' in files["release/engine.env"]
    assert files["release/nccl.env"] == 'NCCL_PROTO="LL"\n'
    assert "sglang==0.5.23" in json.loads(files["versions.json"])["distributions"]
    assert {name for name in files if name.startswith("journal/")} == {
        f"journal/{start}.jsonl" for start in ("2-b", "3-c", "4-d")
    }
    events = [json.loads(line) for line in files["journal/4-d.jsonl"].splitlines()]
    assert events[0]["argv"] == ["vllm", "--api-key", "***"]
    assert json.loads(files["switches/2026.jsonl"])["text"] == "key ***"
    assert "server_args=ServerArgs" in files["engine.log"]


def test_what_was_masked_is_said_inside_and_outside_and_its_owner_is_asked_to_look(
    root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    deployed(root)
    stray = "a-secret-of-a-drop-in"
    monkeypatch.setattr(command, "secrets_of_process", lambda unit: [stray])
    with open(Paths(root).engine_log("kimi"), "a") as log:
        log.write(f"{stray}\nDB_PASS=x9x9x9\nGET http://u:pw@h/?sig=abcdef\n")
    assert cli.main(["bundle", "kimi", "-o", "b.tar.gz"]) == 0
    files = unpacked(Path("b.tar.gz"))
    assert stray not in files["engine.log"] and "x9x9x9" not in files["engine.log"]
    masked = json.loads(files["MANIFEST.json"])["masked"]
    assert masked["engine.log"] == {
        "known by value": 2,
        "by name": 1,
        "by shape": 1,
        "in an address": 2,
    }
    assert "release/nccl.env" not in masked and set(masked) <= set(files)
    printed = capsys.readouterr().out
    assert "masked in engine.log: 2 known by value, 1 by name" in printed
    assert "look through it before you publish it: tar -xOzf b.tar.gz" in printed


def test_units_of_others_are_not_in_it(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    deployed(root)
    source = "[Service]\nEnvironment=VLLM_OPTS=hunter2\nExecStart=/opt/theirs/serve --code 4711\n"
    Paths(root).state_json("kimi").write_text(
        json.dumps(
            {
                "v": 1,
                "foreign": [{"unit": "vllm.service", "sources": {"/etc/x/vllm.service": source}}],
            }
        )
    )
    assert cli.main(["bundle", "kimi", "-o", "b.tar.gz"]) == 0
    text = unpacked(Path("b.tar.gz"))["config/state.json"]
    assert "hunter2" not in text and "4711" not in text
    (foreign,) = json.loads(text)["foreign"]
    assert foreign == {"unit": "vllm.service", "sources": ["/etc/x/vllm.service"]}


def test_secrets_that_a_process_was_given_from_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    import subprocess
    import sys

    environment = {"MY_DB_PASS": "drop-in-secret", "SGLANG_INIT_NEW_TOKEN_RATIO": "0.7"}
    with subprocess.Popen(
        [sys.executable, "-c", "print(flush=True); input()"],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as child:
        assert child.stdout is not None and child.stdout.readline()
        monkeypatch.setattr(bundle_parts, "processes_of", lambda unit: [child.pid])
        found = bundle_parts.secrets_of_process("sglang-kimi.service")
        child.communicate(b"\n")
    assert found == ["drop-in-secret"]


def test_what_is_missing_is_said_inside_and_outside(
    root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(root / "nothing-here"))
    Paths(root).engine_state("kimi").mkdir(parents=True)
    assert cli.main(["bundle", "kimi", "-o", "b.tar.gz"]) == 0
    files = unpacked(Path("b.tar.gz"))
    manifest = json.loads(files["MANIFEST.json"])
    assert manifest["v"] == 1 and manifest["engine"] == "kimi"
    assert set(manifest["parts"]) == set(files) - {"MANIFEST.json"}
    printed = capsys.readouterr().out
    for part in ("journal", "engine.log", "release/engine.yaml", "nvidia-smi-q.txt", "stacks.txt"):
        assert manifest["missing"][part]
        assert f"without {part}: " in printed
    assert "nvidia-smi is not installed" in manifest["missing"]["nvidia-smi-q.txt"]
    assert "py-spy" in manifest["missing"]["stacks.txt"]


def test_stacks_by_py_spy(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    deployed(root)
    program = root / "bin/py-spy"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho "$@"; echo "frame in {PLANTED}"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setattr(bundle_parts, "processes_of", lambda unit: [11, 12])
    assert cli.main(["bundle", "kimi", "-o", "b.tar.gz"]) == 0
    stacks = unpacked(Path("b.tar.gz"))["stacks.txt"]
    assert "== 11\ndump --nonblocking --pid 11\nframe in ***" in stacks and "== 12" in stacks


def test_a_defect_in_one_part_does_not_lose_the_others(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    deployed(root)
    monkeypatch.setattr(bundle_parts, "log_text", lambda file: str(1 // 0))
    assert cli.main(["bundle", "kimi", "-o", "b.tar.gz"]) == 0
    files = unpacked(Path("b.tar.gz"))
    assert "release/engine.yaml" in files and "engine.log" not in files
    assert "ZeroDivisionError" in json.loads(files["MANIFEST.json"])["missing"]["engine.log"]


def test_an_interrupted_bundle_leaves_nothing(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted() -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr(bundle_parts, "host_text", interrupted)
    deployed(root)
    Path("out").mkdir()
    assert cli.main(["bundle", "kimi", "-o", "out/b.tar.gz"]) == 130
    assert list(Path("out").iterdir()) == []


def test_large_logs_are_cut_at_a_line(tmp_path: Path) -> None:
    file = tmp_path / "log"
    file.write_text("".join(f"line {number}\n" for number in range(1000)))
    assert bundle_parts.end_of(file, 25) == "line 998\nline 999\n"
    assert bundle_parts.end_of(file, 1 << 20).startswith("line 0\n")


def test_bad_names(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["bundle", "../../etc"]) == 2
    deployed(root)
    assert cli.main(["bundle", "nope", "-o", "b.tar.gz"]) == 2
    assert not Path("b.tar.gz").exists() and "deploy" in capsys.readouterr().err


def test_where_it_cannot_be_written(
    root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    deployed(root)
    Path("folder").mkdir()
    for target, words in (
        ("no/such/folder/b.tar.gz", "there is no folder no/such/folder"),
        ("folder", "folder is a folder: name a file with -o"),
    ):
        assert cli.main(["bundle", "kimi", "-o", target]) == 1
        assert words in capsys.readouterr().err

    def full(archive: object, name: str, text: str) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    before = sorted(path.name for path in Path().iterdir())
    monkeypatch.setattr(bundle, "add", full)
    assert cli.main(["bundle", "kimi", "-o", "b.tar.gz"]) == 1
    said = capsys.readouterr().err
    assert said == (
        "sglangctl bundle: b.tar.gz cannot be written: the disk is full (df .); free some room, or "
        "name another place with -o\n"
    )
    assert sorted(path.name for path in Path().iterdir()) == before


@pytest.mark.parametrize("kind", ["nothing", "link", "pipe"])
def test_what_lies_beside_the_target_is_neither_written_nor_waited_for(
    root: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a folder that everybody may write, by a name that was to be foreseen."""
    deployed(root)
    victim = Path("victim")
    victim.write_text("precious")
    folder = Path("everybodys")
    folder.mkdir()
    folder.chmod(0o1777)
    for name in (".b.tar.gz.new", "b.tar.gz"):
        if kind == "link":
            (folder / name).symlink_to("../victim")
        elif kind == "pipe":
            os.mkfifo(folder / name)
    assert cli.main(["bundle", "kimi", "-o", "everybodys/b.tar.gz"]) == 0
    capsys.readouterr()
    assert victim.read_text() == "precious"
    made = folder / "b.tar.gz"
    assert stat.S_ISREG(made.lstat().st_mode) and stat.S_IMODE(made.lstat().st_mode) == 0o600
    assert "MANIFEST.json" in unpacked(made)
    assert [path for path in folder.iterdir() if path.name.startswith(".sglangctl")] == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("serve --api-key abc123 --port 1", "serve --api-key *** --port 1"),
        ("--hf-token=abc123", "--hf-token=***"),
        ("OPENAI_API_KEY=abcd1234 HOME=/root", "OPENAI_API_KEY=*** HOME=/root"),
        ("password: hunter22", "password: ***"),
        ("https://user:pa55@mirror.example/simple", "https://***@mirror.example/simple"),
        ("redis://:pa55@cache.example:6379/0", "redis://***@cache.example:6379/0"),
        ("ssh://git@host.example/x", "ssh://git@host.example/x"),
        ("Authorization: Bearer abc.def-ghi", "Authorization: Bearer ***"),
        ("    Serial Number                 : 1320123456789", None),
        ("max_total_num_tokens=2031616, token usage: 0.01", "max_total_num_tokens=2031616, token"),
        ("tokenizer_path='/models/kimi'", "tokenizer_path='/models/kimi'"),
        ("bos_token_id=1 pad_token=None", "bos_token_id=1 pad_token=None"),
        ("eos_token='</s>' port=1", "eos_token='</s>' port=1"),
        ("argument --api-key: expected one argument", "argument --api-key: expected one argument"),
        ("/run/secret: Permission denied", "/run/secret: Permission denied"),
        ("--api-key-file /etc/k --port 1", "--api-key-file *** --port 1"),
        ('{"token":null,"port":1}', '{"token":null,"port":1}'),
    ],
)
def test_scrub(text: str, expected: str | None) -> None:
    if expected is None:
        assert "1320123456789" not in scrub(text)
    else:
        assert scrub(text).startswith(expected)


@pytest.mark.parametrize(
    "text",
    [
        'serve /m --api-key "%s" --port 8000',
        "serve /m --api-key '%s' --port 8000",
        "serve /m --api-key='%s' --port 8000",
        "serve /m --api-key first %s --port 8000",
        "serve /m --api-key first,%s --port 8000",
        "serve /m -api-key %s --port 8000",
        "serve /m --api-key \\\n  %s --port 8000",
        "serve /m --token first \\\n \\\n %s \\\n --port 8000",
        "serve /m --token %s --port 8000",
        "serve /m --api-key\0%s\0--port 8000",
        "serve /m --api-key --%s --port 8000",
        "sh -c 'exec serve /m --api-key %s' --port 8000",
        "x-api-key: %s\nserve /m --port 8000",
        "{'x-api-key': '%s'} /m --port 8000",
        "pip https://%s@mirror.example/m --port 8000 /m",
        "api_key='one %s' model=/m --port 8000",
        "api_key=['%s'] model=/m --port 8000",
        'api_key=["one", "%s"], model=/m --port 8000',
        "api_key = %s /m --port 8000",
        '{"api_key": "one\\"%s", "model": "/m --port 8000"}',
        '{\\"api_key\\": \\"%s\\", \\"model\\": \\"/m --port 8000\\"}',
        '["serve", "/m", "--api-key", "one", "%s", "--port 8000"]',
        "['serve', '/m', '--api-key', '%s', '--port 8000']",
        "curl -u user:%s http://h/m --port 8000",
        "curl --user=user:%s http://h/m --port 8000",
        "Authorization: Basic %s\n/m --port 8000",
        'curl -H "Authorization: Bearer %s" http://h/m --port 8000',
        "{'authorization': 'Digest %s'} /m --port 8000",
        "/m --port 8000 glpat-%sabcdefghij-0123",
    ],
)
def test_scrub_takes_the_secret_and_leaves_the_rest(text: str) -> None:
    for scrubbed in (
        scrub(text % "S3CRET"),
        scrub_file("state.json", json.dumps({"sources": {"/u": text % "S3CRET"}})),
        scrub_event(json.dumps({"argv": ["sh", "-c", "cd /; " + text % "S3CRET"]})),
    ):
        assert "S3CRET" not in scrubbed
        assert "/m" in scrubbed
        assert "port" in scrubbed and "8000" in scrubbed


SLOW = [
    "-", "apikey", "apikey=", "--api-key ", "api_key='", "api_key='\\", '"--api-key", ', "api_key=[",
    "api_key=['a',", "token", "=a:", "://", "a://", "http://a:", "https://", "eyJ-", "sk-", "gl",
    "bearer ", "authorization: ", "token=\\\"", "serial number ", "?a", "&a", "-u curl", "\\",
    "api_key=\\\n", "\\\n", "-----BEGIN A-----", "-----BEGIN A-----\nAA\n", "%3D", "%25", "Environment=", "Environment=A=\\\n",
    "?key=", "&sig=", "?a=?", "login a password ", "password  ", "cookie: [", "$6$", "sshpass -p",
    "curl -b a=", "SG.aaaaaaaaaaaaaaaaa", "Aa1", "a://b:c/", "//hooks.a/", "A_KEY=", "auth={", " ",
]  # fmt: skip


@pytest.mark.parametrize("piece", SLOW)
def test_scrub_takes_time_in_proportion_to_the_text(piece: str) -> None:
    text = piece * (60_000 // len(piece))
    for whole in (text, f"token='{text}", f"token={text}"):
        began = time.process_time()
        scrub(whole)
        assert time.process_time() - began < 1


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_scrubbed_json_stays_json(value: object) -> None:
    json.loads(scrub_event(json.dumps(value)))
    json.loads(scrub_file("x.json", json.dumps(value)))


def test_scrubbed_deep_json_does_not_raise() -> None:
    assert scrub_event("[" * 100_000)
    assert "secret-1" not in scrub_event("[" * 200 + '{"token": "secret-1"}' + "]" * 200)
