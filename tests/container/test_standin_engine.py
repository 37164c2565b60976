"""The stand-in engine's good starts, answers and ends, against what was measured."""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path

import pytest

from sglangctl.proc import procfs
from tests.hosts.standins import model, wheel
from tests.hosts.standins.local import READY, Machine, unpacked

CSV = "--format=csv,noheader,nounits"


def test_good_start_in_the_real_order(machine: Machine) -> None:
    begin = time.monotonic()
    run = machine.start("--enable-metrics", STANDIN_START_S="2").ready()
    assert time.monotonic() - begin < 10
    lines = [
        "UserWarning: 'python -m sglang.launch_server'",
        "server_args={",
        "Init parallel begin.",
        "Init parallel ends. elapsed=",
        "Load weight begin. avail mem=",
        "\rMulti-thread loading shards:   0% Completed | 0/6 [00:00<?, ?it/s]",
        "\rMulti-thread loading shards: 100% Completed | 6/6 [",
        "Load weight end. elapsed=",
        "KV Cache is allocated.",
        "Capture target decode CUDA graph begin.",
        "\rCapturing batches (bs=48 avail_mem=",
        "Capture target decode CUDA graph end.",
        "max_total_num_tokens=",
        "INFO:     Started server process [",
        "INFO:     Application startup complete.",
        "INFO:     Uvicorn running on http://127.0.0.1:",
        READY,
    ]
    places = [run.log_file.read_bytes().decode().find(line) for line in lines]
    assert -1 not in places and places == sorted(places), list(zip(lines, places, strict=True))
    assert re.search(r"^\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\] Init parallel begin", run.log, re.M)


def test_process_tree_titles_and_devices(machine: Machine) -> None:
    run = machine.start("--tp-size", "2").ready()
    lines = run.session()
    assert " -m sglang.launch_server --model-path " in lines[run.pid]
    scheduler, detokenizer = run.titled("sglang::scheduler_TP0"), run.titled("sglang::detokenizer")
    other = run.titled("sglang::scheduler_TP1")
    assert any("multiprocessing.resource_tracker" in line for line in lines.values())
    assert len(lines) == 5
    stat = procfs.stat(scheduler)
    assert stat and stat.comm == "sglang::schedul" and stat.ppid == run.pid
    assert machine.holders(0) == {run.pid, scheduler, detokenizer}
    assert machine.holders(1) == {run.pid, other, detokenizer}
    apps = machine.smi("--query-compute-apps=pid,used_memory", CSV).stdout.splitlines()
    assert [int(row.split(",")[0]) for row in apps] == [scheduler, other]
    assert all(50_000 < int(row.split(",")[1]) < 97_887 for row in apps)
    assert " TP1] Init parallel begin." in run.log


def test_one_rank_has_no_prefix_and_a_cpu_engine_no_gpu(machine: Machine) -> None:
    run = machine.start("--device", "cpu").ready()
    run.titled("sglang::scheduler")
    assert not machine.holders(0) and not machine.holders(1)
    assert "TP0" not in run.log


def test_children_have_multiprocessings_title_until_their_imports_end(machine: Machine) -> None:
    run = machine.start(STANDIN_IMPORTING_S="20")
    run.spawned()
    run.process.terminate()
    assert run.exit() == -signal.SIGTERM
    # Nothing ties them to their parent yet: they stay.
    time.sleep(0.5)
    assert sum("multiprocessing.spawn" in line for line in run.session().values()) == 2


def test_orphans_of_an_interrupted_start_hold_the_device(machine: Machine) -> None:
    run = machine.start(STANDIN_IMPORTING_S="3")
    run.spawned()
    run.process.terminate()
    run.exit()
    run.until(lambda: "sglang::scheduler" in run.session().values(), "titled")
    run.until(lambda: len(machine.holders(0)) == 2, "held by scheduler and detokenizer")
    assert "sglang::detokenizer" in run.session().values()


def test_port_is_closed_while_loading_and_health_waits_for_the_warm_up(machine: Machine) -> None:
    run = machine.start(STANDIN_LOADING_S="1.0", STANDIN_WARMING_S="2.0", STANDIN_HEALTH_S="1.0")
    run.until(lambda: "Load weight begin" in run.log, "loading")
    assert not run.serves()
    run.until(run.serves, "bound")
    assert [run.get(path)[0] for path in ["/health", "/health_generate", "/ready"]] == [503] * 3
    assert [run.get(path)[0] for path in ["/v1/models", "/model_info"]] == [200] * 2
    assert run.get("/server_info")[0] == 200
    assert run.get("/metrics")[0] == 404
    run.ready()
    begin = time.monotonic()
    assert run.get("/health") == (200, "")
    assert time.monotonic() - begin >= 1.0
    assert run.get("/ready")[0] == 200


def test_api_key(machine: Machine) -> None:
    config = machine.folder / "engine.yaml"
    config.write_text('api-key: "sk-planted"\nserved-model-name: "tiny"\nenable-metrics: true\n')
    run = machine.start("--config", str(config)).ready()
    closed = ["/v1/models", "/model_info", "/server_info", "/ping", "/", "/docs"]
    assert [run.get(path)[0] for path in closed] == [401] * len(closed)
    assert run.get("/v1/models")[1] == {"error": "Unauthorized"}
    assert [run.get(path)[0] for path in ["/health", "/ready", "/metrics"]] == [200] * 3
    assert run.get("/v1/models", key="sk-planted")[1]["data"][0]["id"] == "tiny"
    assert "'api_key': 'sk-planted'" in run.log
    assert not any("sk-planted" in line for line in run.session().values())


def test_generations(machine: Machine) -> None:
    run = machine.start("--served-model-name", "tiny").ready()
    messages = [{"role": "user", "content": "Name the capital of France"}]
    body = {"model": "tiny", "messages": messages, "max_tokens": 64}
    status, answer = run.get("/v1/chat/completions", body)
    assert status == 200
    assert "Paris" in answer["choices"][0]["message"]["content"]
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert answer["usage"]["completion_tokens"] > 5
    assert "meta_info" not in answer["choices"][0]
    _, streamed = run.get("/v1/chat/completions", {**body, "stream": True})
    events = [line for line in streamed.splitlines() if line.startswith("data: ")]
    assert len(events) > 5 and events[-1] == "data: [DONE]"
    sampling = {"max_new_tokens": 30, "ignore_eos": True}
    _, generated = run.get("/generate", {"text": "x", "sampling_params": sampling})
    assert generated["meta_info"]["completion_tokens"] == 30
    assert "spec_accept_length" not in generated["meta_info"]
    assert run.get("/v1/chat/completions", {"model": "tiny"})[0] == 400


def test_speculative_decoding_is_told(machine: Machine) -> None:
    draft = model.drafter(machine.folder / "models/draft")
    flags = ["--speculative-algorithm", "EAGLE3", "--speculative-draft-model-path", str(draft)]
    flags += ["--speculative-num-steps", "3", "--speculative-eagle-topk", "1"]
    flags += ["--speculative-num-draft-tokens", "4", "--enable-metrics"]
    run = machine.start(*flags, STANDIN_ACCEPT_LENGTH="2.5").ready()
    assert run.log.count("Load weight end") == 2
    assert "type=LlamaForCausalLMEagle3" in run.log
    assert "Capture draft decode CUDA graph end" in run.log
    sampling = {"max_new_tokens": 100, "ignore_eos": True}
    _, generated = run.get("/generate", {"text": "x", "sampling_params": sampling})
    assert 2.3 < generated["meta_info"]["spec_accept_length"] < 2.7
    state = run.get("/server_info")[1]["internal_states"][0]
    assert 2.0 < state["avg_spec_accept_length"] < 2.7
    assert "sglang:spec_accept_length{" in run.get("/metrics")[1]


def test_bad_text(machine: Machine) -> None:
    run = machine.start(STANDIN_BAD_TEXT="repeat").ready()
    _, answer = run.get("/v1/completions", {"prompt": "x", "max_tokens": 5})
    assert answer["choices"][0]["text"] == " the" * 5


def test_long_prefill_answers_health_only_between_chunks(machine: Machine) -> None:
    run = machine.start(
        "--chunked-prefill-size",
        "1000",
        STANDIN_PREFILL_TOKENS_PER_S="1000",
        STANDIN_HEALTH_S="0.2",
    ).ready()
    run.until(lambda: run.get("/health")[0] == 200, "healthy")
    begin = time.monotonic()
    run.get("/v1/completions", {"prompt": "word " * 1992, "max_tokens": 1})
    assert 1.8 < time.monotonic() - begin < 10
    assert run.log.count("#new-token: 1000") == 2


def test_old_wording(machine: Machine, tmp_path: Path) -> None:
    machine.site = unpacked(tmp_path / "old", "0.5.9+standin")
    run = machine.start("--tp-size", "2").ready()
    for line in [
        "server_args=ServerArgs(",
        " TP0] Init torch distributed begin.",
        "Loading safetensors checkpoint shards: 100% Completed | 6/6",
        "Capture cuda graph begin. This can take up to several minutes.",
    ]:
        assert line in run.log
    assert run.get("/ready")[0] == 404
    # Old versions served with random values in place of a lost shard.
    next(machine.model.glob("model-00003*")).unlink()
    machine.start().ready()


def test_sigterm_while_serving(machine: Machine) -> None:
    on_processor = machine.start("--device", "cpu").ready()
    on_gpu = machine.start().ready()
    for run, code in [(on_processor, 0), (on_gpu, -9)]:
        run.process.terminate()
        assert run.exit() == code
        assert "Draining requests and shutting down..." in run.log
        assert "Gracefully exiting... Remaining number of requests 0." in run.log
        run.until(lambda run=run: not run.session(), "gone")  # type: ignore[misc]


def test_sigterm_before_the_first_request_is_answered_by_two_minutes_of_nothing(
    machine: Machine,
) -> None:
    run = machine.start(STANDIN_BINDING_S="20", STANDIN_SCALE="0.02")
    run.until(lambda: "Waiting for application startup." in run.log, "binding")
    begin = time.monotonic()
    run.process.terminate()
    run.until(lambda: "Waiting for application shutdown." in run.log, "told")
    assert not run.serves()
    assert run.exit() == -signal.SIGKILL
    assert 119 * 0.02 <= time.monotonic() - begin < 20
    assert "Initialization failed. warmup error: Traceback" in run.log
    assert "Draining" not in run.log
    run.until(lambda: not run.session(), "gone")


def test_sigterm_while_it_warms_up_is_not_obeyed(machine: Machine) -> None:
    run = machine.start(STANDIN_WARMING_S="30")
    run.until(lambda: "GET /model_info" in run.log, "warming")
    time.sleep(0.2)
    run.process.terminate()
    run.until(lambda: "Draining requests and shutting down..." in run.log, "told")
    time.sleep(1.5)
    assert run.process.poll() is None
    run.titled("sglang::scheduler")


def test_sigterm_waits_for_requests_in_flight(machine: Machine) -> None:
    run = machine.start("--device", "cpu", STANDIN_PREFILL_TOKENS_PER_S="1000").ready()
    with pytest.raises(TimeoutError):
        run.get("/v1/completions", {"prompt": "word " * 1500, "max_tokens": 1}, timeout=0.2)
    run.process.terminate()
    assert run.exit() == 0
    assert "Remaining number of requests 1." in run.log


def test_kill_9_of_the_launcher(machine: Machine) -> None:
    run = machine.start("--tp-size", "2").ready()
    # A stopped process cannot end by itself: only PDEATHSIG ends it.
    for title in ["sglang::scheduler_TP0", "sglang::scheduler_TP1", "sglang::detokenizer"]:
        os.kill(run.titled(title), signal.SIGSTOP)
    begin = time.monotonic()
    os.kill(run.pid, signal.SIGKILL)
    run.exit()
    run.until(lambda: not run.session(), "gone")
    assert time.monotonic() - begin < 5


def test_environment_file_changes_a_deployed_engine(machine: Machine) -> None:
    (machine.folder / "env").write_text("# a comment\nSTANDIN_FAULT=unknown\n")
    run = machine.start()
    assert run.exit() == -9
    assert "Scheduler hit an exception" in run.log


def test_versions_are_comparable() -> None:
    assert wheel.VERSION.startswith("0.5.23")


TRACES = Path(__file__).parents[1] / "traces"


def test_replay_of_a_good_start(machine: Machine) -> None:
    journal = TRACES / "h200-eagle3/journal.jsonl"
    run = machine.start("--tp-size", "2", STANDIN_REPLAY=str(journal), STANDIN_REPLAY_S="2")
    run.until(lambda: "Capturing batches (bs=48 avail_mem=" in run.log, "capturing")
    run.titled("sglang::scheduler_TP1")
    run.ready()
    recorded = "Init torch distributed ends. elapsed=0.87 s, mem usage=1.07 GB"
    assert run.log.count(recorded) == 1 and "Init parallel begin" not in run.log
    assert f"Uvicorn running on http://127.0.0.1:{run.port} (" in run.log
    run.until(lambda: run.get("/health")[0] == 200, "healthy")
    assert run.get("/generate", {"text": "France"})[1]["text"]


@pytest.mark.parametrize(
    ("trace", "code", "text"),
    [
        ("h200-too-few-gpus", -9, "CUDA error: invalid device ordinal"),
        ("cpu-09-unknown-flag", 2, "unrecognized arguments: --no-such-flag"),
        ("cpu-01-port-in-use-by-sglang", 3, READY),
        ("h200-sigstop-tp1-in-nccl-init", -15, "Init torch distributed begin."),
    ],
)
def test_replay_of_a_start_that_failed(machine: Machine, trace: str, code: int, text: str) -> None:
    journal = TRACES / trace / "journal.jsonl"
    run = machine.start("--tp-size", "2", STANDIN_REPLAY=str(journal), STANDIN_REPLAY_S="1")
    assert run.exit() == code
    assert text in run.log
    run.until(lambda: not run.session(), "gone")
