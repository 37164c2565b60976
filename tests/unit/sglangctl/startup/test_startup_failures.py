"""`failed`: when it is certain, how soon it is said, and with which cause."""

from __future__ import annotations

from typing import Any

import pytest

from sglangctl.startup.fold import Startup
from tests.support.startup_events import (
    DETOKENIZER,
    MAIN,
    TP0,
    TP1,
    exit_,
    feed,
    generate,
    http,
    launch,
    log,
    process,
    processes,
    raw,
    serving,
    traceback,
)

OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
RESET = "RuntimeError: [gloo/transport/tcp/pair.cc:538] Read error: Connection reset by peer"


def loading(*more: dict[str, Any]) -> Startup:
    """Two ranks that load."""
    startup = Startup()
    feed(startup, launch(tensor_parallel=2))
    for rank in ("TP0", "TP1"):
        feed(startup, log(20, "Init torch distributed begin.", rank))
        feed(startup, log(25, "Load weight begin. avail mem=93.00 GB", rank))
    for t in (25, 26):
        feed(startup, processes(t, MAIN, TP0, TP1, DETOKENIZER))
    if more:
        feed(startup, *more)
    return startup


def test_a_zombie_rank_is_failed_within_two_seconds() -> None:
    startup = loading()
    # A zombie has no command line: it is known by its pid.
    feed(startup, processes(30, MAIN, TP0, process(3, "", "Z"), DETOKENIZER))
    due = startup.due
    assert due is not None and 30 < due < 32
    said = startup.tick(due)
    assert (said.outcome, said.cause) == ("failed", "rank-died")
    assert "sglang::scheduler_TP1 (pid 3) is a zombie" in said.evidence[0]


@pytest.mark.parametrize(("gone", "name"), [(TP1, "scheduler_TP1"), (DETOKENIZER, "detokenizer")])
def test_a_rank_or_the_detokenizer_that_is_gone(gone: dict[str, Any], name: str) -> None:
    startup = loading()
    left = [item for item in (MAIN, TP0, TP1, DETOKENIZER) if item is not gone]
    feed(startup, processes(30, *left))
    said = startup.tick(32)
    assert (said.outcome, said.cause) == ("failed", "rank-died")
    assert name in said.evidence[0]


def test_other_children_come_and_go() -> None:
    startup = loading()
    ninja, tracker = process(8, "ninja -v"), process(9, "python -B -c from multiprocessing")
    feed(startup, processes(30, MAIN, TP0, TP1, DETOKENIZER, ninja, tracker))
    feed(startup, processes(31, MAIN, TP0, TP1, DETOKENIZER, process(8, "", "Z")))
    assert startup.tick(40).outcome == "pending"


SPAWNED = "/opt/v/bin/python -B -c from multiprocessing.spawn import spawn_main; spawn_main("
TRACKER = process(
    9, "/opt/v/bin/python -B -c from multiprocessing.resource_tracker import main;main(5)"
)


def importing(world: int = 2) -> Startup:
    """Two ranks and the detokenizer, none of which has its title yet."""
    startup = Startup()
    feed(startup, launch(tensor_parallel=world))
    children = [process(pid, SPAWNED) for pid in (2, 3, 4)]
    feed(startup, processes(5, MAIN, TRACKER, *children), raw(6, "UserWarning: x\n"))
    return startup


def dead(pid: int, **fields: Any) -> dict[str, Any]:
    return {**process(pid, SPAWNED, "Z"), **fields}


def test_a_rank_that_dies_before_its_title_is_named_within_two_seconds() -> None:
    startup = importing()
    killed = dead(3, exit_code=-9)
    feed(startup, processes(10, MAIN, TRACKER, process(2, SPAWNED), killed, process(4, SPAWNED)))
    said = startup.tick(12)
    assert (said.outcome, said.cause) == ("failed", "rank-died")
    assert "had no title yet (pid 3) is a zombie (exit status -9)" in said.evidence[0]


@pytest.mark.parametrize("ended", [[], [dead(3)], [dead(3, exit_code=0)]])
def test_one_that_is_gone_without_a_word_is_missed_in_time(ended: list[dict[str, Any]]) -> None:
    startup = importing()
    for t in range(10, 21):
        feed(startup, processes(t, MAIN, TRACKER, process(2, SPAWNED), *ended, TP1))
        if t < 20:
            assert startup.tick(t + 0.9).outcome == "pending", t
    said = startup.tick(22)
    assert (said.outcome, said.cause) == ("failed", "rank-died")


def test_a_helper_s_end_is_no_rank_s() -> None:
    """All ranks have shown themselves: what else was spawned may come and go."""
    startup = importing()
    everyone = (MAIN, TRACKER, TP0, TP1, DETOKENIZER)
    feed(startup, processes(10, *everyone, process(20, SPAWNED)))
    for t in range(11, 40):
        feed(startup, processes(t, *everyone, dead(20, exit_code=1)))
    assert startup.tick(40).outcome == "pending"


def test_ranks_that_get_their_titles_are_not_missed() -> None:
    startup = importing()
    feed(startup, processes(10, MAIN, TP0, process(3, SPAWNED), process(4, SPAWNED)))
    for t in range(11, 40):
        feed(startup, processes(t, MAIN, TP0, TP1, DETOKENIZER))
    assert startup.tick(40).outcome == "pending"


def test_the_logs_own_cause_is_waited_for() -> None:
    startup = loading()
    feed(startup, processes(30, MAIN, TP0, DETOKENIZER))
    assert startup.tick(31).outcome == "pending"
    said = feed(startup, traceback(31.2, OOM, rank="TP1"))
    assert (said.outcome, said.cause) == ("failed", "gpu-out-of-memory")
    assert said.evidence == (f"log: TP1: {OOM}",)


def test_a_cause_that_comes_late_replaces_rank_died_for_two_seconds_only() -> None:
    early, late = loading(), loading()
    for startup, t in ((early, 31.9), (late, 32.5)):
        crash = "Subprocess scheduler_1 (pid=3) crashed with exit code -9. Triggering SIGQUIT"
        assert feed(startup, log(30, crash)).cause == "rank-died"
        feed(startup, traceback(t, OOM, rank="TP0"))
    assert early.tick(33).cause == "gpu-out-of-memory"
    assert late.tick(33).cause == "rank-died"


def test_the_engines_own_report_is_said_at_once() -> None:
    for text in (
        "Subprocess scheduler_0 (pid=24140) crashed with exit code -9. Triggering SIGQUIT",
        "Rank 1 scheduler is dead. Please check if there are relevant logs.",
        "Scheduler or DataParallelController 24140 terminated with -9",
        "SIGQUIT received. signum=None, frame=None. It usually means one child failed.",
        "Received sigquit from a child process. It usually means the child failed.",
    ):
        said = feed(loading(), log(30, text))
        assert (said.outcome, said.cause) == ("failed", "rank-died"), text


def test_an_exit_with_the_last_words_of_the_main_process() -> None:
    startup = Startup()
    lines = 'Traceback (most recent call last):\n  File "x.py", line 1\n    run()\n'
    feed(startup, launch(), raw(10, lines), raw(10, "OSError: Can't load tokenizer for '/m'.\n"))
    assert startup.tick(15).outcome == "pending", "a traceback alone is not a failure"
    said = feed(startup, exit_(18, 1))
    assert (said.outcome, said.cause) == ("failed", "tokenizer-missing")


def test_frames_of_the_traceback_tell_what_was_being_done() -> None:
    denied = "PermissionError: [Errno 13] Permission denied: '/x'"
    no_json = "json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)"
    refused = "unsupported-configuration"
    for frame, line, cause in (
        ("    os.makedirs(folder)", denied, "cache-not-writable"),
        ('  File "tokenization_utils.py", line 9, in x', no_json, "tokenizer-missing"),
        ('  File "other.py", line 9, in x', no_json, "unknown"),
        ('  File "/x/srt/server_args.py", line 9, in check', "AssertionError", refused),
        ('  File "/x/arg_groups/spec.py", line 9, in check', "ValueError: no such pair", refused),
        ('  File "/x/arg_groups/spec.py", line 9, in check', "KeyError: 'x'", "unknown"),
        ('  File "other.py", line 9, in x', "AssertionError", "unknown"),
    ):
        text = f"Traceback (most recent call last):\n{frame}\n{line}\n"
        assert feed(Startup(), launch(), raw(5, text), exit_(6, 1)).cause == cause


def test_an_unfinished_last_line_counts_at_the_exit() -> None:
    startup = Startup()
    line = "launch_server.py: error: unrecognized arguments: --no-such"
    said = feed(startup, launch(), raw(10, line), exit_(10.1, 2))
    assert (said.outcome, said.cause) == ("failed", "unknown-flag")


def test_complaints_that_the_start_survived_are_not_its_cause() -> None:
    startup = Startup()
    feed(startup, launch(), raw(5, "ImportError: libcuda.so.1: cannot open shared object file\n"))
    for rank in ("TP0", "TP1"):
        feed(startup, log(20, "Init torch distributed begin.", rank))
    crash = "Subprocess scheduler_1 (pid=3) crashed with exit code -11. Triggering SIGQUIT"
    assert feed(startup, log(30, crash)).cause == "rank-died"


def test_an_import_warning_is_never_a_cause() -> None:
    startup = Startup()
    feed(startup, launch())
    for index in range(150):
        text = "Ignore import error when loading sglang.srt.models.x: undefined symbol: _ZN3c10"
        feed(startup, log(5 + index / 10, text, "TP0"))
        lines = "Traceback (most recent call last):\n  File x\nImportError: no module\n"
        feed(startup, raw(5 + index / 10, lines))
    assert startup.tick(25).outcome == "pending"
    assert feed(startup, exit_(26, 1)).cause == "unknown"


def test_a_ranks_own_exception_goes_before_what_its_peers_say() -> None:
    startup = loading()
    feed(startup, traceback(30, RESET, rank="TP0"))
    said = feed(startup, traceback(30.5, OOM, rank="TP1"))
    assert (said.outcome, said.cause) == ("failed", "gpu-out-of-memory")


def test_a_ranks_end_goes_before_a_complaint_that_was_handled() -> None:
    startup = loading()
    handled = (
        'Traceback (most recent call last):\n  File "x.py", line 1\nOSError: [Errno 24] Too many'
    )
    feed(startup, raw(29, handled + " open files\n"))
    assert feed(startup, traceback(30, OOM)).cause == "gpu-out-of-memory"


def test_a_complaint_of_long_ago_is_not_the_cause() -> None:
    for age, cause in ((100, "too-many-files"), (130, "unknown")):
        startup = Startup()
        feed(startup, launch(), raw(5, "OSError: [Errno 24] Too many open files\n"))
        assert feed(startup, exit_(5 + age, 1)).cause == cause


def test_a_peers_complaint_alone_means_that_a_rank_died() -> None:
    said = feed(loading(), traceback(30, RESET, rank="TP0"))
    assert (said.outcome, said.cause) == ("failed", "rank-died")


def test_unknown_shows_the_first_exception_of_the_first_rank_that_died() -> None:
    startup = loading()
    lines = 'Traceback (most recent call last):\n  File "x.py", line 1\n'
    feed(startup, raw(28, lines + "RuntimeError: a handled one\n"))
    feed(startup, traceback(30, "IndexError: list index out of range", rank="TP1"))
    feed(startup, traceback(30.2, "ZeroDivisionError: division by zero", rank="TP0"))
    said = feed(startup, log(30.3, "Received sigquit from a child process."), exit_(31, -9))
    assert (said.outcome, said.cause) == ("failed", "unknown")
    assert said.evidence[:2] == (
        "log: TP1: IndexError: list index out of range",
        "log: TP0: ZeroDivisionError: division by zero",
    )


def test_the_exception_line_may_come_later_than_its_traceback() -> None:
    startup = loading()
    head = log(30, "Scheduler hit an exception: Traceback (most recent call last):", "TP0")
    assert feed(startup, head).outcome == "pending"
    assert feed(startup, raw(30.4, '  File "x.py", line 1, in f\n    f()\n')).outcome == "pending"
    assert feed(startup, raw(30.8, OOM + "\n")).cause == "gpu-out-of-memory"


def test_a_chain_of_exceptions_is_blamed_on_its_first() -> None:
    startup = loading()
    said = feed(
        startup,
        traceback(
            30,
            "safetensors._safetensors_rust.SafetensorError: Error while deserializing header",
            "",
            "The above exception was the direct cause of the following exception:",
            "",
            "Traceback (most recent call last):",
            '  File "loader.py", line 2, in load',
            "RuntimeError: cannot be used",
        ),
    )
    assert said.cause == "weights-corrupt"


@pytest.mark.parametrize("code", [-15, -9, -2, -1, 143, 137])
def test_ended_from_outside(code: int) -> None:
    startup = Startup()
    said = feed(startup, launch(), log(5, "server_args={}"), exit_(8, code))
    assert (said.outcome, said.cause) == ("failed", "terminated")
    assert feed(serving(), exit_(20, code)).cause == "killed"


def test_ended_from_outside_after_a_handled_complaint() -> None:
    startup = Startup()
    feed(startup, launch(), raw(5, "ImportError: libnvrtc.so.12: cannot open shared object file\n"))
    assert feed(startup, exit_(8, -15)).cause == "terminated"


def test_stop_takes_the_ranks_with_it() -> None:
    """systemctl stop: the ranks die with the main process, whichever is seen first."""
    startup = loading()
    feed(startup, processes(30, MAIN))
    said = feed(startup, exit_(30.9, -15))
    assert (said.outcome, said.cause) == ("failed", "terminated")


def test_exit_zero_before_it_served_is_not_a_success() -> None:
    said = feed(Startup(), launch(), exit_(8, 0))
    assert (said.outcome, said.cause) == ("failed", "unknown")
    assert feed(serving(), exit_(20, 0)).cause == "killed"


@pytest.mark.parametrize("fields", [{"oom": True}, {"oom_kills": 1}])
def test_exit_nine_is_the_oom_killers_only_by_the_cgroup_or_the_kernel_log(
    fields: dict[str, Any],
) -> None:
    said = feed(Startup(), launch(), exit_(8, -9, **fields))
    assert (said.outcome, said.cause) == ("failed", "host-out-of-memory")
    assert feed(Startup(), launch(), exit_(8, -9, oom=False)).cause == "terminated"


def test_a_rank_killed_by_the_oom_killer() -> None:
    startup = loading()
    said = feed(startup, processes(30, MAIN, TP0, DETOKENIZER, oom_kills=1))
    assert (said.outcome, said.cause) == ("failed", "host-out-of-memory")


def test_an_oom_kill_of_a_compiler_does_not_explain_another_exit() -> None:
    startup = loading(processes(29, MAIN, TP0, TP1, DETOKENIZER, oom_kills=1))
    assert feed(startup, exit_(30, 1)).cause != "host-out-of-memory"


def test_an_oom_kill_of_long_ago_does_not_explain_this_death() -> None:
    startup = loading(processes(29, MAIN, TP0, TP1, DETOKENIZER, oom_kills=1))
    feed(startup, processes(300, MAIN, TP0, TP1, DETOKENIZER, oom_kills=1))
    assert feed(startup, exit_(301, -9, oom_kills=1, oom=True)).cause == "terminated"
    again = loading(processes(29, MAIN, TP0, TP1, DETOKENIZER, oom_kills=1))
    assert feed(again, exit_(301, -9, oom_kills=2, oom=True)).cause == "host-out-of-memory"


SIGBUS = (
    ("importing", "kernel-broken"),
    ("connecting", "shared-memory"),
    ("loading", "weights-corrupt"),
    ("capturing", "shared-memory"),
)


@pytest.mark.parametrize(("phase", "cause"), SIGBUS)
def test_sigbus(phase: str, cause: str) -> None:
    startup = Startup()
    feed(startup, launch(), raw(2, "a warning\n"))
    if phase != "importing":
        feed(startup, log(5, "Init torch distributed begin.", "TP0"))
    if phase in ("loading", "capturing"):
        feed(startup, log(6, "Load weight begin. avail mem=9 GB", "TP0"))
    if phase == "capturing":
        feed(startup, log(7, "Load weight end. elapsed=1 s", "TP0"))
        feed(startup, log(8, "Capture cuda graph begin. This can take up to minutes.", "TP0"))
    assert startup.phases.name == phase
    said = feed(startup, exit_(9, -7))
    assert (said.outcome, said.cause) == ("failed", cause)


def test_sigbus_of_a_rank_is_told_by_its_exit_code() -> None:
    startup = loading()
    lines = 'Traceback (most recent call last):\n  File "engine.py", line 1\n    raise\n'
    died = "RuntimeError: Rank 1 scheduler died during initialization (exit code: -7). If\n"
    said = feed(startup, raw(30, lines + died))
    assert (said.outcome, said.cause) == ("failed", "weights-corrupt")


def test_sigbus_while_it_serves() -> None:
    assert feed(serving(), exit_(20, -7)).cause == "unknown"
    assert feed(serving(), exit_(20, -7, shm_full=True)).cause == "shared-memory"


def test_an_xid_explains_what_follows_from_it() -> None:
    said = feed(serving(), exit_(20, -6, xid=79))
    assert (said.cause, said.evidence[0]) == ("gpu-fault", "kernel log: Xid 79")
    startup = Startup()
    feed(startup, launch(), raw(5, "x.py: error: unrecognized arguments: --y\n"))
    assert feed(startup, exit_(6, 2, xid=79)).cause == "unknown-flag"


def test_warm_up() -> None:
    startup = Startup()
    head = "Initialization failed. warmup error: Traceback (most recent call last):"
    said = feed(startup, launch(), log(50, head), raw(50, "  File x\nAssertionError: <Response>\n"))
    assert (said.outcome, said.cause) == ("failed", "warmup-failed")
    assert any("AssertionError: <Response>" in line for line in said.evidence)


def test_the_hard_watchdog_is_a_failure_the_soft_one_is_not() -> None:
    text = "Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft={})"
    assert feed(serving(), log(20, text.format("True"), "TP0")).outcome == "serving"
    said = feed(serving(), log(20, text.format("False"), "TP0"))
    assert (said.outcome, said.cause) == ("failed", "watchdog")


def test_failed_is_final() -> None:
    startup = loading()
    feed(startup, log(30, "Received sigquit from a child process. It"), exit_(31, -9))
    said = feed(startup, http(40, 200), generate(41), processes(42, MAIN, TP0, TP1, DETOKENIZER))
    assert (said.outcome, said.cause) == ("failed", "rank-died")


def test_an_exit_without_a_status() -> None:
    said = feed(Startup(), launch(), exit_(5, None))
    assert (said.outcome, said.cause) == ("failed", "unknown")


def test_evidence_is_printable_whatever_the_log_holds() -> None:
    startup = loading()
    evil = "ValueError: \x1b[2J\x07 tp must be divisible \x00\u202e by \ud800" + "x" * 5000
    said = feed(startup, traceback(30, evil))
    assert said.cause == "unsupported-configuration"
    assert all(line.isprintable() and len(line) < 400 for line in said.evidence)


@pytest.mark.parametrize("code", ["--5", "²", "9" * 5000, "-" + "9" * 5000, "", "-"])
def test_an_exit_code_that_is_no_number_raises_nothing(code: str) -> None:
    startup = loading()
    feed(startup, log(30, "Subprocess scheduler (pid=3) crashed with exit code -9"))
    for line in (
        f"Exit code: {code}",
        f"Subprocess scheduler (pid=3) crashed with exit code {code}",
        f"Scheduler or DataParallelController 0 terminated with {code}",
        f"Rank 0 scheduler died during initialization (exit code: {code}). Look above.",
    ):
        said = feed(startup, log(30.1, line))
    assert said.t == 30.1
