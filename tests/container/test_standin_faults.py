"""Every fault of the stand-in engine: the real wording, the real exit status, at the real moment."""

from __future__ import annotations

import http.server
import json
import os
import signal
import socket
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from sglangctl.proc import procfs
from tests.hosts.standins import model
from tests.hosts.standins.local import READY, Machine, Run

GENERIC = "Received sigquit from a child process. It usually means the child failed."


def fails(run: Run, code: int, *texts: str) -> None:
    """It ends with `code`, says all of `texts`, and leaves no process behind."""
    assert run.exit() == code, run.log
    for text in texts:
        assert text in run.log, f"{text!r} is not in:\n{run.log}"
    assert READY not in run.log
    run.until(lambda: not run.session(), "gone")


def shards(machine: Machine) -> list[Path]:
    return sorted(machine.model.glob("*.safetensors"))


# Found for real, before there are children


@pytest.mark.parametrize(
    ("flags", "code", "text"),
    [
        (
            ["--no-such-flag", "1"],
            2,
            "sglang serve: error: unrecognized arguments: --no-such-flag 1",
        ),
        (["--tp_size", "2"], 2, "unrecognized arguments: --tp_size 2"),
        (["--cuda-graph-max-bs", "8"], 2, "ambiguous option: --cuda-graph-max-bs could match"),
        (["--attention-backend", "flashy"], 2, "argument --attention-backend: invalid choice"),
        (["--port", "high"], 2, "argument --port: invalid int value: 'high'"),
        (["--model-path", "/models/none"], 1, "Repo id must be in the form 'repo_name' or"),
        (["--model-path", "org/none"], 1, "We couldn't connect to 'https://huggingface.co'"),
        (["--attention-backend", "trtllm_mla"], 1, "ValueError: TRTLLM MLA backend is only"),
        (["--speculative-algorithm", "EAGLE", "--speculative-num-steps", "3"], 1, "AssertionError"),
        (
            [
                "--speculative-algorithm",
                "EAGLE3",
                "--speculative-draft-model-path",
                "/models/no-draft",
            ],
            1,
            "'/models/no-draft'. Use `repo_type` argument if needed.",
        ),
    ],
)
def test_arguments(machine: Machine, flags: list[str], code: int, text: str) -> None:
    run = machine.start(*flags)
    fails(run, code, text)
    if code == 1:
        assert "Traceback (most recent call last):" in run.log
        assert "include_parent=False" in run.log


@pytest.mark.parametrize(
    ("line", "code", "text"),
    [
        ("no-such-flag: 1", 2, "unrecognized arguments: --no-such-flag 1"),
        ("tp_size: 2", 2, "unrecognized arguments: --tp_size 2"),
        (
            "disable-cuda-graph: true",
            1,
            "Unsupported config option 'disable_cuda_graph' with action",
        ),
        ("context-length: true", 2, "argument --context-length: invalid int value: 'true'"),
        ("enable-tf32-matmul: true", 1, "Unsupported config option"),
    ],
)
def test_config_file(machine: Machine, line: str, code: int, text: str) -> None:
    config = machine.folder / "engine.yaml"
    config.write_text(f"# ours\n{line}\n")
    fails(machine.start("--config", str(config)), code, text)


def test_config_file_values(machine: Machine) -> None:
    config = machine.folder / "engine.yaml"
    config.write_text(
        'served-model-name: "a \\"b\\" #c"\ntrust-remote-code: true\nskip-server-warmup: false\n'
        'context-length: 512\nlog-requests-target: ["stdout"]\nrandom-seed: 7\n'
    )
    run = machine.start("--random-seed", "8", "--config", str(config)).ready()
    entry = run.get("/v1/models")[1]["data"][0]
    assert entry["id"] == 'a "b" #c' and entry["max_model_len"] == 512
    info = run.get("/server_info")[1]
    assert info["trust_remote_code"] is True and info["skip_server_warmup"] is False
    assert info["log_requests_target"] == ["stdout"]
    assert info["random_seed"] == 8, "the command line beats the file"
    words = " ".join(procfs.cmdline(run.pid))
    assert "--config" in words and "512" not in words


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"auto_map": {"AutoConfig": "x.Y"}}, "`trust_remote_code=True` to allow custom code"),
        ({"model_type": "starfish"}, "has model type `starfish` but Transformers does not"),
        ({"num_attention_heads": 15}, "(256) is not a multiple of the number of attention heads"),
    ],
)
def test_configuration_of_the_model(machine: Machine, change: dict[str, Any], text: str) -> None:
    model.make(machine.model, **change)
    fails(machine.start(), 1, text)


def test_custom_code_is_fine_when_it_is_trusted(machine: Machine) -> None:
    model.make(machine.model, auto_map={"AutoConfig": "x.Y"}, model_type="starfish")
    machine.start("--trust-remote-code").ready()


def test_files_of_the_model(machine: Machine) -> None:
    (machine.model / "tokenizer.json").unlink()
    fails(machine.start(), 1, "Can't load tokenizer for")
    (machine.model / "config.json").write_text("{")
    fails(machine.start(), 1, "is not a valid JSON file")
    (machine.model / "config.json").unlink()
    fails(machine.start(), 1, "does not appear to have a file named config.json")


def test_cache_not_writable(machine: Machine) -> None:
    run = machine.start(SGLANG_CACHE_DIR="/proc/nowhere/cache")
    fails(run, 1, "FileNotFoundError: [Errno 2] No such file or directory: '/proc/nowhere'")
    assert ", in makedirs" in run.log


def test_cache_on_a_full_disk(machine: Machine) -> None:
    # /dev/full answers every write as a full disk does.
    cache = machine.folder / "cache"
    cache.mkdir()
    run = machine.start(STANDIN_CAPTURING_S="0.1", STANDIN_JIT_S="1.5")
    run.until(lambda: "Memory pool end" in run.log, "allocated")
    scheduler = run.titled("sglang::scheduler")
    (cache / f"kernel-{scheduler}.so").symlink_to("/dev/full")
    fails(run, -9, "OSError: [Errno 28] No space left on device", GENERIC)


def test_no_gpu_at_all_and_too_few(machine: Machine) -> None:
    fails(machine.start("--tp-size", "3"), -9, "CUDA error: invalid device ordinal", GENERIC)
    run = machine.start("--tp-size", "2", CUDA_VISIBLE_DEVICES="1")
    fails(run, -9, "GPU device may be out of range, do you have enough GPUs?")
    machine.devices(0)
    fails(machine.start(), 1, "RuntimeError: No accelerator (CUDA, XPU")


def test_chosen_gpus(machine: Machine) -> None:
    run = machine.start(CUDA_VISIBLE_DEVICES="1").ready()
    assert machine.holders(0) == set() and run.pid in machine.holders(1)


# Found for real, in a rank


@pytest.mark.parametrize(
    ("damage", "text"),
    [
        ("truncated", "incomplete metadata, file not fully covered"),
        ("empty", "header too small"),
        ("garbage", "header too large"),
    ],
)
def test_shard_is_damaged(machine: Machine, damage: str, text: str) -> None:
    shard = shards(machine)[2]
    data = shard.read_bytes()
    damaged = {"truncated": data[: len(data) // 2], "empty": b"", "garbage": b"\xff" * 4096}
    shard.write_bytes(damaged[damage])
    run = machine.start()
    fails(run, -9, f"SafetensorError: Error while deserializing header: {text}", GENERIC)
    assert "Scheduler hit an exception: Traceback (most recent call last):" in run.log
    assert "2/6" in run.log and "3/6" not in run.log


def test_shard_is_missing(machine: Machine) -> None:
    shards(machine)[2].unlink()
    run = machine.start("--tp-size", "2")
    fails(run, -9, "model.safetensors.index.json references 1 shard file(s) missing from", GENERIC)


def test_architecture_is_unknown(machine: Machine) -> None:
    model.make(machine.model, architectures=["StarfishForCausalLM"])
    fails(machine.start(), -9, "Cannot find model module. 'StarfishForCausalLM' is not")


def test_drafter_of_another_size(machine: Machine) -> None:
    draft = model.drafter(machine.folder / "draft", hidden_size=128)
    flags = ["--speculative-algorithm", "EAGLE3", "--speculative-draft-model-path", str(draft)]
    run = machine.start(*flags)
    fails(run, -9, "AssertionError: Attempted to load weight (torch.Size([128]))")
    assert run.log.count("Load weight begin") == 2 and run.log.count("Load weight end") == 1


def test_ranks_on_a_processor(machine: Machine) -> None:
    flags = ["--device", "cpu", "--tp-size", "2"]
    fails(machine.start(*flags), -9, "AssertionError: SGLANG_CPU_OMP_THREADS_BIND is not set")
    machine.start(*flags, SGLANG_CPU_OMP_THREADS_BIND="0|1").ready().titled("sglang::scheduler_TP1")


def test_nccl_interface(machine: Machine) -> None:
    run = machine.start("--tp-size", "2", NCCL_SOCKET_IFNAME="ib77")
    fails(run, -9, "Bootstrap : no socket interface found", "NCCL error: invalid usage")
    run = machine.start("--tp-size", "2", NCCL_DEBUG="INFO", NCCL_PROTO="LL").ready()
    assert "NCCL INFO NCCL_PROTO set by environment to LL" in run.log


# By STANDIN_FAULT


@pytest.mark.parametrize(
    ("fault", "code", "text"),
    [
        ("kernel-broken", 1, "CRITICAL: Could not load any common_ops library!"),
        ("kernel-abi", 1, "undefined symbol: _ZN3c104cuda"),
        ("kernel-cuda", 1, "libnvrtc.so.12: cannot open shared object file"),
        ("kernel-no-driver", 1, "libcuda.so.1: cannot open shared object file"),
        ("driver-mismatch", 1, "Error 803: system has unsupported display driver"),
        ("driver-too-old", 1, "The NVIDIA driver on your system is too old"),
        ("unsupported-configuration", 1, "Please use a different backend."),
        ("nccl-error", -9, "NCCL error: unhandled system error"),
        ("gpu-memory-unbalanced", -9, "The memory capacity is unbalanced."),
        ("gpu-out-of-memory", -9, "torch.OutOfMemoryError: CUDA out of memory."),
        ("gpu-out-of-memory-kv", -9, "Please try to increase --mem-fraction-static."),
        ("gpu-out-of-memory-weights", -9, "Loaded weights leave no GPU memory for the KV cache"),
        ("gpu-out-of-memory-capture", -9, "Capture cuda graph failed: CUDA out of memory."),
        ("no-kernel-image", -9, "no kernel image is available for execution on the device"),
        ("gpu-fault", -9, "uncorrectable ECC error encountered"),
        ("unsupported-model-impl", -9, "BloomForCausalLM has no SGlang implementation and the"),
        ("too-many-files", -9, "OSError: [Errno 24] Too many open files"),
        ("shared-memory", -9, "Error while creating shared memory segment /dev/shm/nccl-"),
        ("disk-full", -9, "OSError: [Errno 28] No space left on device"),
        ("drafter-mismatch", -9, "AssertionError: Attempted to load weight"),
        ("unknown", -9, "RuntimeError: the moon is in the wrong house"),
        ("warmup-failed", -9, "Initialization failed. warmup error: Traceback"),
        ("nccl-timeout", 1, "Watchdog caught collective operation timeout: WorkNCCL("),
        ("nccl-abort", 1, "Rank 0 scheduler died during initialization (exit code: -6)"),
        ("shared-memory-sigbus", 1, "Rank 0 scheduler died during initialization (exit code: -7)"),
        ("weights-sigbus", 1, "Rank 0 scheduler died during initialization (exit code: -7)"),
        ("host-out-of-memory", 1, "Rank 0 scheduler died during initialization (exit code: -9)"),
        ("rank-died", 1, "Rank 1 scheduler died during initialization (exit code: -9)"),
    ],
)
def test_fault(machine: Machine, fault: str, code: int, text: str) -> None:
    run = machine.start("--tp-size", "2", "--dist-timeout", "4", STANDIN_FAULT=fault)
    fails(run, code, text)


def test_kernel_file_is_cut(machine: Machine) -> None:
    run = machine.start(STANDIN_FAULT="kernel-sigbus")
    fails(run, -signal.SIGBUS)
    assert "Traceback" not in run.log and "server_args" not in run.log


def test_fault_in_another_phase_and_rank(machine: Machine) -> None:
    fault = "nccl-error@capturing"
    run = machine.start("--tp-size", "2", STANDIN_FAULT=fault, STANDIN_FAULT_RANK="1")
    fails(run, -9, " TP1] Scheduler hit an exception", "KV Cache is allocated")
    assert " TP0] Scheduler hit" not in run.log


def test_unknown_fault_is_refused(machine: Machine) -> None:
    run = machine.start(STANDIN_FAULT="gremlins")
    fails(run, 1, "STANDIN_FAULT=gremlins is not one of: ")


def test_hang_and_a_stopped_rank_stand_still(machine: Machine) -> None:
    hanging = machine.start(STANDIN_FAULT="hang")
    stopped = machine.start("--tp-size", "2", STANDIN_FAULT="rank-stopped@connecting")
    stopped.until(lambda: "sglang::scheduler_TP1" in stopped.session().values(), "titled")
    victim = stopped.titled("sglang::scheduler_TP1")
    stopped.until(lambda: state(victim) == "T", "stopped")
    hanging.until(lambda: "Init parallel begin." in hanging.log, "connecting")
    stopped.until(lambda: "sglang is using nccl" in stopped.log, "connecting")
    sizes = [len(run.log) for run in (hanging, stopped)]
    time.sleep(1.5)
    assert [len(run.log) for run in (hanging, stopped)] == sizes
    assert hanging.process.poll() is None and stopped.process.poll() is None
    assert " TP0] Init parallel ends" not in stopped.log
    os.kill(victim, signal.SIGCONT)
    stopped.ready()


def state(pid: int) -> str:
    stat = procfs.stat(pid)
    return stat.state if stat else ""


def test_hang_after_some_shards(machine: Machine) -> None:
    run = machine.start(STANDIN_FAULT="hang@loading", STANDIN_SHARDS="64", STANDIN_HANG_AFTER="1")
    run.until(lambda: "| 1/64 [" in run.log, "one shard")
    time.sleep(0.5)
    assert "| 2/64 [" not in run.log


def test_rank_killed_while_loading(machine: Machine) -> None:
    run = machine.start("--tp-size", "2", STANDIN_LOADING_S="20")
    run.until(lambda: " TP1] Load weight begin" in run.log, "loading")
    os.kill(run.titled("sglang::scheduler_TP1"), signal.SIGKILL)
    fails(run, 1, "Rank 1 scheduler died during initialization (exit code: -9). If exit code is")


def test_host_memory_is_really_taken(machine: Machine) -> None:
    run = machine.start(STANDIN_HOST_MEMORY_MIB="200").ready()
    stat = procfs.stat(run.titled("sglang::scheduler"))
    assert stat and stat.rss_mib > 200


def test_compiler_is_a_child(machine: Machine) -> None:
    run = machine.start(STANDIN_JIT_S="5")
    run.until(lambda: any(t.startswith("cicc ") for t in run.session().values()), "compiling")
    assert "Capture target" not in run.log


# The port


def test_port_taken_by_another_sglang(machine: Machine) -> None:
    first = machine.start().ready()
    second = machine.start("--port", str(first.port))
    assert second.exit() == 3
    bind = second.log.find("[Errno 98] error while attempting to bind on address ('127.0.0.1',")
    assert 0 < bind < second.log.find(READY), "it says that it is ready, after it failed to bind"
    assert "Uvicorn running on" not in second.log
    assert first.get("/health")[0] == 200


def test_port_taken_by_another_server(machine: Machine) -> None:
    other = http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler)
    threading.Thread(target=other.serve_forever, args=(0.05,), daemon=True).start()
    run = machine.start("--port", str(other.server_address[1]), STANDIN_SCALE="0.02")
    run.until(lambda: "[Errno 98]" in run.log, "failed to bind")
    begin = time.monotonic()
    run.process.terminate()
    run.titled("sglang::scheduler")
    fails(run, -9, "Initialization failed. warmup error: Traceback", "AssertionError: res=<Resp")
    assert time.monotonic() - begin > 1.5, "it hung, and SIGTERM did nothing"
    other.shutdown()
    other.server_close()


def test_port_taken_by_a_server_that_does_not_speak_http(machine: Machine) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        run = machine.start("--port", str(other.getsockname()[1]), STANDIN_SCALE="0.001")
        run.until(lambda: "[Errno 98]" in run.log, "failed to bind")
        time.sleep(0.5)
        assert run.process.poll() is None


# While it serves


def test_scheduler_killed(machine: Machine) -> None:
    run = machine.start(STANDIN_SCALE="0.4").ready()
    scheduler = run.titled("sglang::scheduler")
    os.kill(scheduler, signal.SIGKILL)
    begin = time.monotonic()
    run.until(lambda: f"Subprocess scheduler_0 (pid={scheduler}) crashed" in run.log, "noticed")
    assert time.monotonic() - begin < 5
    assert run.hangs("/health") and run.hangs("/v1/models")
    fails_after_serving(run, -9, "crashed with exit code -9. Triggering SIGQUIT for cleanup...")
    assert 2 <= time.monotonic() - begin < 15


def fails_after_serving(run: Run, code: int, *texts: str) -> None:
    assert run.exit() == code
    assert not [text for text in texts if text not in run.log]
    run.until(lambda: not run.session(), "gone")


def test_detokenizer_killed(machine: Machine) -> None:
    run = machine.start().ready()
    os.kill(run.titled("sglang::detokenizer"), signal.SIGKILL)
    begin = time.monotonic()
    run.until(lambda: "Subprocess detokenizer (pid=" in run.log, "noticed")
    assert run.hangs("/v1/models")
    fails_after_serving(run, -9, "Waiting 60.0 seconds for CUDA coredumps before exiting.")
    # 5 + 60 s at scale 0.05.
    assert time.monotonic() - begin > 3


def test_one_of_two_schedulers_killed(machine: Machine) -> None:
    run = machine.start("--tp-size", "2").ready()
    os.kill(run.titled("sglang::scheduler_TP1"), signal.SIGKILL)
    fails_after_serving(run, -9, "Subprocess scheduler_1 (pid=")


@pytest.mark.parametrize("title", ["sglang::scheduler_TP0", "sglang::detokenizer"])
def test_stopped_and_continued(machine: Machine, title: str) -> None:
    run = machine.start("--tp-size", "2", STANDIN_HEALTH_TIMEOUT_S="1.5").ready()
    run.until(lambda: run.get("/health")[0] == 200, "healthy")
    victim = run.titled(title)
    os.kill(victim, signal.SIGSTOP)
    assert run.get("/ready")[0] == 200, "only as fresh as the last /health"
    begin = time.monotonic()
    assert run.get("/health")[0] == 503
    assert time.monotonic() - begin >= 1.5
    assert "Health check failed. Server couldn't get a response from detokenizer" in run.log
    assert run.get("/ready")[0] == 503
    assert run.get("/v1/models")[0] == 200 and run.get("/model_info")[0] == 200
    assert run.hangs("/server_info") is (title != "sglang::detokenizer")
    with pytest.raises(TimeoutError):
        run.get("/v1/completions", {"prompt": "x"}, timeout=0.7)
    os.kill(victim, signal.SIGCONT)
    run.until(lambda: run.get("/health")[0] == 200, "healthy again")


def test_stopped_follower_hangs_generations_too(machine: Machine) -> None:
    run = machine.start("--tp-size", "2", STANDIN_HEALTH_TIMEOUT_S="1.0").ready()
    victim = run.titled("sglang::scheduler_TP1")
    os.kill(victim, signal.SIGSTOP)
    assert run.get("/health")[0] == 503
    os.kill(victim, signal.SIGCONT)
    run.until(lambda: run.get("/health")[0] == 200, "healthy again")


def test_server_info_hides_a_stopped_detokenizer(machine: Machine) -> None:
    run = machine.start(STANDIN_HEALTH_TIMEOUT_S="3", STANDIN_HEALTH_S="0.5").ready()
    os.kill(run.titled("sglang::detokenizer"), signal.SIGSTOP)
    answers: list[int] = []
    asking = threading.Thread(target=lambda: answers.append(run.get("/health")[0]))
    asking.start()
    time.sleep(0.2)
    assert run.get("/server_info")[0] == 200
    asking.join()
    assert answers == [200]
    with pytest.raises(TimeoutError):
        run.get("/v1/completions", {"prompt": "x"}, timeout=0.7)


def test_sigterm_with_a_stopped_scheduler(machine: Machine) -> None:
    run = machine.start(STANDIN_HEALTH_TIMEOUT_S="0.5", STANDIN_SCALE="0.02").ready()
    os.kill(run.titled("sglang::scheduler"), signal.SIGSTOP)
    assert run.get("/health")[0] == 503
    run.process.terminate()
    fails_after_serving(
        run,
        -9,
        "Signal SIGTERM received while health check failed. Force exiting.",
        "Schedulers still alive 15s after ShutdownReq, killing them before they released: [",
    )


def test_crash_and_watchdog_while_serving(machine: Machine) -> None:
    after = {"STANDIN_FAULT_AFTER_S": "0.5"}
    crash = machine.start(STANDIN_FAULT="gpu-fault@serving", **after)
    watchdog = machine.start("--watchdog-timeout", "20", STANDIN_FAULT="watchdog", **after)
    crash.until(lambda: READY in crash.log, "ready")
    fails_after_serving(crash, -9, "uncorrectable ECC error", "SIGQUIT received. signum=None")
    text = "Scheduler watchdog timeout (self.watchdog_timeout=20.0, self.soft=False)"
    fails_after_serving(watchdog, -9, text, "SIGQUIT received. signum=None")


def test_metrics_are_json_free_numbers(machine: Machine) -> None:
    run = machine.start("--enable-metrics").ready()
    run.get("/generate", {"text": "x", "sampling_params": {"max_new_tokens": 4}})
    rows = dict(line.rsplit(" ", 1) for line in run.get("/metrics")[1].splitlines())
    name = json.dumps(str(machine.model))
    assert float(rows[f"sglang:generation_tokens_total{{model_name={name}}}"]) >= 4


def test_readme_lists_every_fault(site: Path) -> None:
    from tests.hosts.standins.local import STANDINS

    names: dict[str, Any] = {}
    source = STANDINS / "engine/sglang/_standin/errors.py"
    exec(compile(source.read_text(), str(source), "exec"), names)
    readme = (STANDINS / "README.md").read_text()
    found_for_real = {"cpu-ranks", "too-few-gpus", "unsupported-model", "weights-corrupt"}
    found_for_real |= {"weights-missing", "weights-unreadable"}
    assert [n for n in names["ALL"] if f"| `{n}` |" not in readme and n not in found_for_real] == []
