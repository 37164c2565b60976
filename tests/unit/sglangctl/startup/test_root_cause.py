"""Which cause a failure gets, at the edges between two of them; and the evidence for it."""

from __future__ import annotations

from typing import Any

import pytest

from sglangctl.startup import root_cause
from sglangctl.startup.failures import Crash
from sglangctl.startup.fold import Startup
from tests.support.startup_events import (
    UVICORN,
    exit_,
    feed,
    http,
    launch,
    log,
    raw,
    serving,
    timeout,
    traceback,
)

NO_TOKENIZER = "_fix_v5_add_bos_eos_token: failed to read tokenizer_config.json"
DISK_FULL = "OSError: [Errno 28] No space left on device"
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."


def started(*events: dict[str, Any]) -> Startup:
    startup = Startup()
    feed(startup, launch(), *events)
    return startup


@pytest.mark.parametrize(
    ("status", "code"),
    [(None, None), (0, 0), (1, 1), (128, 128), (129, -1), (137, -9), (192, -64), (193, 193)],
)
def test_a_shell_s_status_of_a_signal_is_that_signal(status: int | None, code: int | None) -> None:
    crash = Crash(1, "exit", "x", status)
    assert root_cause._code(Startup(), crash) == code
    # The process that died first goes before the main one's own status.
    assert root_cause._code(started(exit_(2, 3)), crash) == (3 if status is None else code)


@pytest.mark.parametrize(
    ("event", "cause"),
    [
        (exit_(20, 0), "killed"),
        (exit_(20, 128), "unknown"),
        (exit_(20, 143), "killed"),
        (exit_(20, -9, oom_kills=1), "host-out-of-memory"),
        (exit_(20, -9, oom=True), "host-out-of-memory"),
        (exit_(20, -9, oom=True, oom_kills=0), "killed"),
        (exit_(20, -9, xid=79), "gpu-fault"),
        (exit_(20, -7), "unknown"),
        (exit_(20, -7, shm_full=True), "shared-memory"),
    ],
)
def test_how_an_engine_that_served_ended(event: dict[str, Any], cause: str) -> None:
    startup = serving()
    feed(startup, event)
    assert startup.tick(30).cause == cause


def test_a_missing_tokenizer_is_the_cause_only_of_a_warm_up_that_fails() -> None:
    warned = log(4, f"{NO_TOKENIZER}: x", "TP0")
    warming = raw(5, f"{UVICORN}\n")
    for events, cause in (
        ((warned, warming), "tokenizer-missing"),
        ((warned,), "unknown"),
        ((warming,), "unknown"),
    ):
        startup = started(*events, exit_(6, 1))
        assert startup.tick(20).cause == cause, events


def test_the_evidence_of_an_unknown_failure_is_its_first_three_exceptions() -> None:
    startup = started(
        *(traceback(1, f"ValueError: number {n} of a kind") for n in range(1, 6)), exit_(2, 1)
    )
    said = startup.tick(20)
    assert said.cause == "unknown"
    shown = [line for line in said.evidence if "of a kind" in line and line.startswith("log: TP0")]
    assert [line.split("number ")[1][0] for line in shown] == ["1", "2", "3"]


def test_the_engine_s_own_health_check_is_evidence_where_it_failed() -> None:
    for probe, told in ((http(70, 503, 20.0), True), (timeout(70), False)):
        startup = serving()
        feed(startup, *({**probe, "t": t} for t in (40, 70, 100)))
        said = startup.tick(400)
        assert said.outcome == "unresponsive"
        assert any("own health check failed" in line for line in said.evidence) is told


def site(lines: int) -> Startup:
    """A .pth file's report of that many lines, the last of which would name a cause."""
    report = ["Error processing line 1 of /x/y.pth:", *["  at work"] * (lines - 1)]
    return started(raw(1, "\n".join([*report, f"  {DISK_FULL}"]) + "\n"))


def test_the_report_of_a_pth_file_names_no_cause_for_sixteen_lines() -> None:
    assert not site(16).failures.candidates
    assert [one.finding.cause for one in site(17).failures.candidates] == ["disk-full"]


BIND = "error while attempting to bind on address ('0.0.0.0', 980)"


def test_a_bind_fails_for_certain_only_where_the_line_says_so() -> None:
    bind = "error while attempting to bind on address ('0.0.0.0', 80): "
    for line, source in (
        (f"ERROR:    [Errno 98] {bind}address already in use", "bind"),
        ("OSError: [Errno 98] Address already in use", None),
        ("ERROR:    could not bind on any address out of [('10.9.8.7', 80)]", "bind"),
        (f"RuntimeError: while attempting to bind: {DISK_FULL}", None),
    ):
        crash = started(raw(1, f"{line}\n")).failures.crash
        assert (crash.source if crash else None) == source, line


@pytest.mark.parametrize(
    ("said", "cause"),
    [
        (f"[Errno 98] {BIND}", "port-taken"),
        (f"{BIND}: address already in use", "port-taken"),
        (f"[Errno 13] {BIND}: permission denied", "unsupported-configuration"),
        (f"[Errno 99] {BIND}: cannot assign requested address", "unsupported-configuration"),
        ("could not bind on any address out of [('0.0.0.0', 980)]", "unsupported-configuration"),
        (f"[Errno 28] {BIND}: no space left on device", "unknown"),
        (f"[Errno 105] {BIND}: no buffer space available", "unknown"),
    ],
)
def test_a_failed_bind_ends_the_start_with_the_cause_that_its_errno_names(
    said: str, cause: str
) -> None:
    startup = started(raw(1, f"ERROR:    {said}\n"))
    verdict = startup.tick(startup.limits.failed_cause_s + 2)
    assert (verdict.outcome, verdict.cause) == ("failed", cause)
    assert any(said in line for line in verdict.evidence)


def test_a_rank_s_message_ends_it_only_where_it_says_that_it_hit_an_exception() -> None:
    port = "RuntimeError: Port 30000 is already in use"
    for text, found in ((f"Scheduler hit an exception: {port}", 1), (f"Trying again: {port}", 0)):
        assert len(started(log(1, text, "TP0")).failures.candidates) == found, text


def test_of_many_candidates_the_first_and_the_last_are_kept() -> None:
    startup = started(*(raw(t, f"{DISK_FULL}\n") for t in range(1, 101)))
    kept = [one.t for one in startup.failures.candidates]
    assert kept == [*range(1, 33), *range(69, 101)]


def test_a_report_as_long_as_a_page_is_cut() -> None:
    startup = started(log(1, "Scheduler hit an exception: " + "x" * 9000, "TP0"))
    crash = startup.failures.crash
    assert crash is not None and len(crash.text) == len("TP0: ") + 4000


@pytest.mark.parametrize(
    "bar",
    [
        "Loading safetensors checkpoint shards:  50% Completed | 3/6 [00:01<?]",
        "Capturing batches (bs=8):  50%|#####| 3/6 [00:01<?]",
    ],
)
def test_what_was_said_before_a_bar_moved_is_no_cause(bar: str) -> None:
    startup = started(raw(1, f"{OOM}\n"))
    assert startup.failures.candidates
    feed(startup, raw(2, f"\r{bar}"))
    assert not startup.failures.candidates


@pytest.mark.parametrize(
    "line",
    [
        "torch.distributed.DistBackendError: NCCL error in: NCCLUtils.cpp:77, remote process "
        "exited or there was a network error, ncclRemoteError",
        "RuntimeError: [gloo/transport/tcp/pair.cc:538] Read error: Connection reset by peer",
    ],
)
def test_that_a_peer_is_gone_is_no_cause_where_a_line_says_why(line: str) -> None:
    first, later = traceback(10, line), traceback(11, OOM, rank="TP1")
    assert feed(started(), first, later, exit_(12, 1)).cause == "gpu-out-of-memory"


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("RuntimeError: No CUDA GPUs are available", "too-few-gpus"),
        ("torch._inductor.exc.InductorError: CppCompileError: C++ compile error", "jit-toolchain"),
        ("RuntimeError: Ninja build failed. Ninja output:", "jit-toolchain"),
    ],
)
def test_that_something_failed_is_no_cause_where_a_line_says_why(line: str, cause: str) -> None:
    said = traceback(10, line)
    assert feed(started(), said, exit_(12, 1), exit_(30, 1)).cause == cause
    assert feed(started(), said, traceback(11, DISK_FULL), exit_(12, 1)).cause == "disk-full"


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        (DISK_FULL, "disk-full"),
        ("RuntimeError: CUDA error: invalid device ordinal", "too-few-gpus"),
        ("OSError: [Errno 98] Address already in use", "port-taken"),
    ],
)
def test_a_line_that_says_why_counts_beside_an_exception_that_does_not(
    line: str, cause: str
) -> None:
    unknown = traceback(11, "ValueError: whatever")
    assert feed(started(), raw(10, f"{line}\n"), unknown, exit_(12, 1)).cause == cause
