"""The log of 0.5.9 to 0.5.23: wording, prefixes, bars, ANSI codes, cut pieces."""

from __future__ import annotations

import pytest

from sglangctl.startup import loglines
from sglangctl.startup.fold import Startup
from tests.support.startup_events import UVICORN, feed, gpus, launch, log, raw

# Phase by phase; what the older and the newer versions write.
OLD = (
    ("connecting", "Init torch distributed begin."),
    ("connecting", "Init torch distributed ends. elapsed=1.02 s, mem usage=1.07 GB"),
    ("loading", "Load weight begin. avail mem=93.00 GB"),
    ("allocating", "Load weight end. elapsed=9 s, type=LlamaForCausalLM, avail mem=20 GB"),
    ("allocating", "KV Cache is allocated. #tokens: 880706, K size: 13.44 GB, V size: 13.44 GB"),
    ("allocating", "Memory pool end. avail mem=9.38 GB"),
    ("capturing", "Capture cuda graph begin. This can take up to several minutes. avail mem=9 GB"),
    ("capturing", "Capture cuda graph bs [1, 2, 4, 8]"),
    ("capturing", "Capture cuda graph end. Time elapsed: 9.00 s. mem usage=1 GB. avail mem=8 GB."),
    ("capturing", "Capture piecewise CUDA graph begin. avail mem=8.00 GB"),
    ("capturing", "Capture piecewise CUDA graph end. Time elapsed: 9.00 s. mem usage=1 GB."),
    ("binding", "max_total_num_tokens=880706, chunked_prefill_size=8192, context_len=8192"),
    ("binding", "INFO:     Started server process [2730]"),
    ("binding", "INFO:     Application startup complete."),
    ("warming", UVICORN),
    ("serving", "The server is fired up and ready to roll!"),
)
NEW = (
    ("connecting", "Init parallel begin."),
    ("connecting", "Init parallel ends. elapsed=0.02 s"),
    ("connecting", "Memory baseline taken. mem usage=0.00 GB"),
    ("loading", "Load weight begin. avail mem=93.00 GB"),
    ("allocating", "Load weight end. elapsed=9 s, type=LlamaForCausalLM, avail mem=20 GB"),
    ("allocating", "KV Cache is allocated. dtype: torch.bfloat16, #tokens: 8, K size: 1 GB"),
    ("allocating", "Memory pool end. avail mem=9.38 GB"),
    ("capturing", "Capture target prefill CUDA graph begin. backend=breakable, num_tokens=[4, 8]"),
    ("capturing", "Capture target prefill CUDA graph end. elapsed=14.38 s, mem usage=0.58 GB"),
    ("capturing", "Capture target decode CUDA graph begin. backend=full, bs=[1, 2, 4, 8]"),
    ("capturing", "Capture target decode CUDA graph end. elapsed=5.11 s, mem usage=0.12 GB"),
    ("binding", "max_total_num_tokens=880706, chunked_prefill_size=8192, context_len=8192"),
    ("binding", "Tree cache initialized: source=default impl=RadixCache"),
    ("binding", "Engine startup timings (s): load_weight=0.18, kv_cache_allocation=0.73"),
    ("warming", UVICORN),
    ("serving", "The server is fired up and ready to roll!"),
)
GATED = (
    *NEW[:2],
    ("connecting", "Gated launch control server started on 127.0.0.1:40001"),
    ("gated", "Gated launch waiting for activation. rank=0"),
    ("gated", "Gated launch still waiting for activation. rank=0 elapsed=10 s"),
    ("loading", "Gated launch activated. elapsed=12.01 s"),
    ("loading", NEW[2][1]),
    *NEW[3:],
)


@pytest.mark.parametrize("lines", [OLD, NEW, GATED], ids=["0.5.9", "0.5.23", "gated"])
@pytest.mark.parametrize("rank", ["", "TP0", "DP0 TP0", "DP1 PP0 TP3 EP3", "ATTN_CP0 MOE_DP0 TP0"])
def test_phases(lines: tuple[tuple[str, str], ...], rank: str) -> None:
    startup = Startup()
    assert feed(startup, launch()).phase == "launching"
    assert feed(startup, raw(1, "x.py:71: UserWarning: something\n")).phase == "importing"
    for t, (phase, text) in enumerate(lines):
        of_main = text.startswith(("INFO:", "The server", "Engine"))
        assert feed(startup, log(2 + t, text, "" if of_main else rank)).phase == phase, text


def test_colours_and_milliseconds() -> None:
    startup = Startup()
    line = "\x1b[1;33m[2026-11-29 15:37:30.123 TP0] \x1b[0mInit parallel begin.\x1b[0m\r\n"
    assert feed(startup, launch(), raw(1, line)).phase == "connecting"


def test_a_message_behind_a_bar_on_the_same_line() -> None:
    startup = Startup()
    line = (
        "Multi-thread loading shards:   0% Completed | 0/14 [00:00<?, ?it/s]"
        "[2026-11-29 15:45:02 TP1] Scheduler hit an exception: Traceback (most recent call last):\n"
        "torch.AcceleratorError: CUDA error: invalid device ordinal\n"
    )
    said = feed(startup, launch(), raw(1, line))
    assert (said.outcome, said.cause) == ("failed", "too-few-gpus")


def test_an_unfinished_line_is_read_after_half_a_second() -> None:
    startup = Startup()
    feed(startup, launch(), raw(1, "[2026-11-29 15:37:30] Init parallel begin."))
    assert startup.phases.name == "launching"
    assert startup.tick(1.6).phase == "connecting"


def test_the_last_rank_ends_the_load() -> None:
    startup = Startup()
    feed(startup, launch(tensor_parallel=2))
    begin, end = "Load weight begin. avail mem=9 GB", "Load weight end. elapsed=1 s"
    assert feed(startup, log(1, begin, "TP1"), log(2, end, "TP1")).phase == "loading"
    assert feed(startup, log(3, begin, "TP0")).phase == "loading"
    assert feed(startup, log(4, end, "TP0")).phase == "allocating"


def test_a_second_load_is_the_drafters() -> None:
    startup = Startup()
    feed(startup, launch(drafter={"path": "/models/d", "algorithm": "EAGLE3"}))
    begin, end = "Load weight begin. avail mem=9 GB", "Load weight end. elapsed=1 s"
    bar = "Multi-thread loading shards:  50% Completed | 1/2 [00:00<00:00, 77.15it/s]\r"
    said = feed(startup, log(1, begin), raw(2, bar))
    assert said.progress == "target: 1 of 2 shards"
    assert feed(startup, log(3, end)).phase == "loading", "the drafter is still to come"
    said = feed(startup, log(4, begin), raw(5, bar))
    assert (said.phase, said.progress) == ("loading", "drafter: 1 of 2 shards")
    assert feed(startup, log(6, end)).phase == "allocating"


def test_older_versions_load_the_drafter_after_the_targets_graphs() -> None:
    startup = Startup()
    begin, end = "Load weight begin. avail mem=9 GB", "Load weight end. elapsed=1 s"
    feed(startup, launch(), log(1, begin), log(2, end))
    feed(startup, log(3, "Capture cuda graph begin. This can take"))
    feed(startup, log(4, "Capture cuda graph end. Time elapsed: 1 s."))
    assert feed(startup, log(5, begin)).phase == "loading"
    assert startup.phases.model == "drafter"


def test_gpu_memory_tells_the_phase_where_the_log_lags() -> None:
    startup = Startup()
    warning = "Ignore import error when loading sglang.srt.models.x: No module named 'y'"
    feed(startup, launch(), gpus(0.1, 4, 4), log(20, warning, "TP0"))
    assert feed(startup, gpus(30, 528, 40)).phase == "importing", "one context only"
    said = feed(startup, gpus(31, 1526, 1526))
    assert said.phase == "connecting"
    said = feed(startup, gpus(60, 77824, 77824))
    assert said.phase == "loading"
    assert any("GPU memory" in line for line in said.evidence)


def test_memory_that_was_used_before_is_someone_elses() -> None:
    startup = Startup()
    feed(startup, launch(), gpus(0.1, 77824, 77824), raw(1, "a warning\n"))
    assert feed(startup, gpus(30, 77824, 77824)).phase == "importing"


def test_memory_that_is_still_being_freed_was_left_over() -> None:
    startup = Startup()
    feed(startup, launch(), gpus(0.1, 77824, 77824), raw(1, "a warning\n"), gpus(6, 4, 4))
    assert startup.phases.name == "importing"
    assert feed(startup, gpus(60, 40000, 40000)).phase == "loading"


def test_our_own_share_of_the_memory_decides_where_it_is_known() -> None:
    startup = Startup()
    feed(startup, launch(), raw(1, "a warning\n"))
    event = gpus(30, 90000)
    event["gpus"][0]["ours_mib"] = 0
    assert feed(startup, event).phase == "importing"
    event["gpus"][0]["ours_mib"] = 60000
    assert feed(startup, event).phase == "loading"


BARS = {
    "Multi-thread loading shards:  57% Completed | 8/14 [00:00<00:00, 77.15it/s]": (8, 14),
    "Loading safetensors checkpoint shards: 100% Completed | 64/64 [10:09<00:00,  9.5s/it]": (
        64,
        64,
    ),
    "Capturing batches (bs=8 avail_mem=109.55 GB):  89%|████████▉ | 32/36 [00:03<00:00]": (32, 36),
    "  0%|          | 0/58 [00:00<?, ?it/s]": (0, 58),
}


@pytest.mark.parametrize("text", BARS)
def test_bars(text: str) -> None:
    label = text.partition("%")[0].rstrip("0123456789").strip(" :")
    assert loglines.bar(text) == loglines.Bar(label, *BARS[text])


@pytest.mark.parametrize("text", ["50% of 3/4", "9/3 [", "100%", "1% | 5/3 [00:00<?]", "% 1/2 ["])
def test_no_bars(text: str) -> None:
    assert loglines.bar(text) is None


def test_the_tail_is_bounded() -> None:
    splitter = loglines.Splitter()
    for t in range(100):
        assert splitter.feed(t, "x" * 5000) == []
    assert len(splitter.tail) <= loglines.TAIL_LIMIT
    assert len(splitter.feed(101, "\n")) == 1


FRAGMENT = "Capturing batches (bs=4):  50%|#####     | 3/6 [00:01<00:01,  2.0it/s]"
"""The last state of a bar of a start that was killed: its line has no end."""
SHARDS = "Loading safetensors checkpoint shards:  50% Completed | 3/6 [00:01<00:01,  2.0it/s]"


@pytest.mark.parametrize("fragment", [FRAGMENT, SHARDS, "RuntimeError: no line end"])
@pytest.mark.parametrize("pieces", [1, 2, 3])
@pytest.mark.parametrize(
    "first",
    [
        "[2026-11-29 15:37:30] server_args={'model_path': '/models/m'}\n",
        "/opt/x.py:71: UserWarning: something\n",
        "\n[2026-11-29 15:37:30] something\n",
    ],
)
def test_what_a_killed_start_left_is_no_evidence(fragment: str, pieces: int, first: str) -> None:
    startup = Startup()
    feed(startup, launch())
    whole = fragment + first
    if pieces == 1:
        feed(startup, raw(1, whole))
    elif pieces == 2:
        feed(
            startup, raw(1, fragment), raw(2, first)
        )  # it lies there for longer than half a second
    else:
        feed(startup, raw(1, fragment[:20]), raw(1.1, whole[20:60]), raw(1.2, whole[60:]))
    said = feed(startup, raw(9, "more\n"))
    assert (said.phase, said.progress) == ("importing", None)
    assert not startup.failures.exceptions
    assert feed(startup, log(10, "Init parallel begin.")).phase == "connecting"


def test_a_bar_of_its_own_counts_from_the_first_one_on() -> None:
    startup = Startup()
    said = feed(startup, launch(), raw(1, f"\r{SHARDS}"))
    assert (said.phase, said.progress) == ("loading", "target: 3 of 6 shards")
