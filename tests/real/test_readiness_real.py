"""The matrix of readiness on the real engine (SGLang on a processor), under systemd.

By hand or nightly: `make test-real`. The cases are those of the stand-in's matrix, with the real
engine's waits; and a prompt whose prefill takes longer than any probe waits, never called frozen.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.container import test_readiness_matrix as matrix
from tests.container.conftest import HostFactory
from tests.container.engine_unit import poll
from tests.container.real_engine import VENV, RealEngine, prepared

pytestmark = [pytest.mark.real, pytest.mark.timeout(1500)]

LONG = "/models/long"
# A model whose prefill is slow: 16 layers of 1024, 32,768 positions, weights at random.
MAKE_LONG = f"""
import json, shutil, torch
from pathlib import Path
from transformers import AutoTokenizer, Qwen3Config, Qwen3ForCausalLM
torch.manual_seed(0)
tokenizer = AutoTokenizer.from_pretrained("/models/tiny-qwen3")
config = Qwen3Config(
    vocab_size=1024, hidden_size=1024, intermediate_size=3072, num_hidden_layers=16,
    num_attention_heads=16, num_key_value_heads=4, head_dim=64, max_position_embeddings=32768,
    eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id, bos_token_id=None,
)
Qwen3ForCausalLM(config).to(torch.bfloat16).save_pretrained("{LONG}")
tokenizer.model_max_length = 32768
tokenizer.save_pretrained("{LONG}")
for file in Path("{LONG}").iterdir():
    file.chmod(0o644)
"""


def test_good_start(engine: RealEngine) -> None:
    matrix.test_good_start(engine)


@pytest.mark.parametrize("name", ["scheduler", "detokenizer"])
def test_kill_9_of_a_child(engine: RealEngine, name: str) -> None:
    matrix.test_kill_9_of_a_child(engine, name, f"sglang::{name}")


def test_kill_9_of_the_parent(engine: RealEngine) -> None:
    matrix.test_kill_9_of_the_parent(engine)


@pytest.mark.parametrize("name", ["scheduler", "detokenizer"])
def test_sigstop_of_a_child(engine: RealEngine, name: str) -> None:
    matrix.test_sigstop_of_a_child(engine, name, f"sglang::{name}")


def test_frozen_from_outside_the_container(engine: RealEngine) -> None:
    matrix.test_frozen_from_outside_the_container(engine)


@pytest.mark.parametrize(
    ("name", "command"),
    [
        (
            "sglang",
            f"{VENV}/bin/python -m sglang.launch_server --model-path /models/tiny-qwen3"
            " --model-impl transformers --device cpu --attention-backend torch_native"
            " --disable-cuda-graph --max-total-tokens 8192 --port 8000",
        ),
        ("httpd", "/usr/bin/python3 -m http.server 8000"),
    ],
)
def test_port_is_held(engine: RealEngine, name: str, command: str) -> None:
    matrix.test_port_is_held(engine, name, command, listening_s=300)


@pytest.mark.parametrize(("name", "script", "cause"), matrix.BROKEN)
def test_broken_model(engine: RealEngine, name: str, script: str, cause: str) -> None:
    matrix.test_broken_model(engine, name, script, cause)


def test_missing_model(engine: RealEngine) -> None:
    matrix.test_missing_model(engine)


def test_unknown_flag_is_not_tried_again(engine: RealEngine) -> None:
    matrix.test_unknown_flag_is_not_tried_again(engine)


def test_wrong_drafter_path(engine: RealEngine) -> None:
    matrix.test_wrong_drafter_path(engine)


def test_api_key(engine: RealEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    matrix.test_api_key_is_used_and_kept_out_of_sight(engine, monkeypatch)


def test_two_ranks(engine: RealEngine) -> None:
    matrix.started(
        engine,
        tensor_parallel=2,
        environment={
            "SGLANG_CPU_OMP_THREADS_BIND": "0|1",
            "TORCHDYNAMO_DISABLE": "1",  # the image has no C++ compiler
        },
    )
    engine.until("ready")
    last = [event for event in engine.events() if event["kind"] == "process"][-1]
    titles = [process["name"] for process in last["processes"]]
    assert "sglang::scheduler_TP0" in titles and "sglang::scheduler_TP1" in titles
    serving = matrix.first(engine, lambda e: e["kind"] == "verdict" and e["outcome"] in matrix.UP)
    window = {"not_before_s": 0.5, "by_s": serving + 1.0}
    matrix.record(engine, "tp2", {"engine": "sglang", "outcome": "serving", **window})


STOPS = [
    ("importing", "importing", ""),
    ("connecting", "connecting", "Init parallel begin"),
    ("loading", "loading", "Load weight begin"),
    ("allocating", "allocating", "Load weight end"),
    ("binding", "binding", "Waiting for application startup"),
    # Bound, and the warm-up has not asked for anything yet: it takes two minutes to end.
    ("bound", "warming", "Uvicorn running on"),
    ("warming", "warming", "Prefill batch"),
    ("serving", "serving", ""),
]
"""Name, phase, the log line that begins it. On a processor no CUDA graph is captured."""


@pytest.mark.parametrize(("name", "phase", "line"), STOPS, ids=[stop[0] for stop in STOPS])
def test_systemctl_stop(engine: RealEngine, name: str, phase: str, line: str) -> None:
    if line:
        hold_at(engine, line)
    matrix.started(engine)
    matrix.stopped_in(engine, phase, name, held=bool(line))


def hold_at(engine: RealEngine, line: str) -> None:
    """Have the engine stopped as soon as its log has this line: here such a phase lasts for
    moments. systemd continues what it ends, so that the stop finds it in that phase."""
    script = (
        f"until grep -qF '{line}' {engine.log}; do sleep 0.01; done; "
        f"exec systemctl kill --kill-whom=all --signal=STOP {engine.unit}"
    )
    # What an earlier test's engine wrote is not meant.
    engine.host.exec("sh", "-c", f"if [ -e {engine.log} ]; then : > {engine.log}; fi")
    engine.host.exec("systemd-run", "--collect", "sh", "-c", script)


def test_out_of_memory_by_the_container_s_limit(host_factory: HostFactory, tmp_path: Path) -> None:
    host = prepared(host_factory("oom", image="engine", memory="900m"))
    engine = RealEngine(host, tmp_path)
    matrix.started(engine)
    matrix.failed(engine, "host-out-of-memory", "host-out-of-memory", 60)
    ended = next(event for event in engine.events() if event["kind"] == "exit")
    assert ended["oom"] is True and ended["oom_kills"] >= 1
    engine.stop()
    assert poll(lambda: not engine.processes(), 20), engine.processes()


# Without a GPU the engine compiles nothing. What it still writes while it starts is a model's own
# code, copied to the cache.
MAKE_OWN_CODE = """
set -e
rm -rf /models/own-code && cp -r /models/tiny-qwen3 /models/own-code && cd /models/own-code
printf 'from transformers import Qwen3Config\\n\\n\\nclass OwnConfig(Qwen3Config):\\n    pass\\n' > own.py
python3 -c 'import json
config = json.load(open("config.json"))
config["auto_map"] = {"AutoConfig": "own.OwnConfig"}
json.dump(config, open("config.json", "w"))'
"""


def test_disk_full(engine: RealEngine) -> None:
    engine.host.exec("sh", "-c", MAKE_OWN_CODE)
    matrix.configured(
        engine,
        model={"path": "/models/own-code", "served_name": "tiny"},
        flags={"trust-remote-code": True},
    )
    cache = f"/var/cache/sglang/{engine.name}"
    engine.host.exec("mount", "-t", "tmpfs", "-o", "size=64k,mode=1777", "none", cache)
    try:
        engine.host.exec("sh", "-c", f"! dd if=/dev/zero of={cache}/full 2>/dev/null")
        engine.start()
        matrix.failed(engine, "disk-full", "disk-full")
    finally:
        engine.host.exec("systemctl", "stop", engine.unit)
        engine.host.exec("umount", cache)


def test_a_long_prefill_is_not_a_hang(engine: RealEngine) -> None:
    engine.host.exec("python3", "-c", MAKE_LONG, timeout=600)
    matrix.started(
        engine,
        model={"path": LONG, "served_name": "tiny"},
        flags={"max-total-tokens": 32768, "chunked-prefill-size": 512},
        readiness={"max_tokens": 8},
    )
    # Weights at random repeat themselves: it serves, and is rightly not called ready.
    engine.until("serving")
    assert poll(lambda: any(e["kind"] == "generate" for e in engine.events()), 300)
    begun = engine.now()
    ask = (
        "import json, time, urllib.request as u;"
        "text = 'the river and the road to the north of the town ' * 500;"
        "body = json.dumps({'model': 'tiny', 'max_tokens': 4,"
        " 'messages': [{'role': 'user', 'content': text}]}).encode();"
        "q = u.Request('http://127.0.0.1:8000/v1/chat/completions', body,"
        " {'Content-Type': 'application/json'});"
        "began = time.monotonic();"
        "usage = json.load(u.urlopen(q, timeout=1000))['usage'];"
        "print(time.monotonic() - began, usage['prompt_tokens'])"
    )
    done = engine.host.exec("python3", "-c", ask, timeout=1100)
    seconds, tokens = done.stdout.split()
    assert float(seconds) > 25.0, f"{tokens} tokens took only {seconds} s: no test of anything"
    time.sleep(10)
    since = [e for e in engine.events() if e["t"] >= begun]
    assert any(e["kind"] == "http" and e["status"] != 200 for e in since), "no probe was delayed"
    said = {e["outcome"] for e in since if e["kind"] == "verdict"}
    assert said <= set(matrix.UP), said
    matrix.record(
        engine,
        "long-prefill",
        {"engine": "sglang", "outcome": "serving", "by_s": begun},
    )
