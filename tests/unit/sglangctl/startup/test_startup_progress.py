"""Progress and estimates, with their errors."""

from __future__ import annotations

import pytest

from sglangctl.startup.fold import Startup
from sglangctl.startup.loglines import Bar
from sglangctl.startup.progress import Counter, Work
from sglangctl.state import journal
from tests.support import fuzz
from tests.support.startup_events import MAIN, feed, launch, log, processes, raw


def bar(t: float, done: int, total: int = 64) -> dict[str, object]:
    percent = done * 100 // total
    text = f"\rMulti-thread loading shards: {percent:3d}% Completed | {done}/{total} [00:00<?]"
    return raw(t, text)


def test_shards_and_their_pace() -> None:
    startup = Startup()
    feed(startup, launch(), log(50, "Load weight begin. avail mem=93.00 GB"))
    for done in range(17):
        said = feed(startup, bar(60 + done * 10, done))
    assert said.progress == "target: 16 of 64 shards"
    assert said.detail is not None
    assert (said.detail.what, said.detail.done, said.detail.total) == ("target", 16, 64)
    assert said.eta_s == pytest.approx(480, rel=0.02)
    assert said.eta_error_s == pytest.approx(246, rel=0.1)
    assert said.eta_until == "loading"


def test_an_uneven_pace_has_a_larger_error() -> None:
    even, bursty = Counter("target", "shards", 64), Counter("target", "shards", 64)
    t = 0.0
    for done in range(9):
        even.update(done * 10, done)
        bursty.update(t, done)
        t += 2.0 if done < 4 else 18.0
    one, two = even.eta(80), bursty.eta(t)
    assert one is not None and two is not None
    assert two[1] > 1.5 * one[1]
    assert abs(two[0] - 56 * 18) <= two[1] + 56 * 9


def test_a_late_shard_widens_the_estimate() -> None:
    counter = Counter("target", "shards", 64)
    for done in range(9):
        counter.update(done * 10, done)
    now, later = counter.eta(80), counter.eta(200)
    assert now is not None and later is not None
    assert later[1] > now[1] + 100


def test_no_estimate_without_two_steps() -> None:
    startup = Startup()
    feed(startup, launch(), log(50, "Load weight begin. avail mem=93.00 GB"))
    said = feed(startup, bar(60, 1))
    assert (said.progress, said.eta_s, said.eta_error_s) == ("target: 1 of 64 shards", None, None)


def test_bytes_where_no_shard_comes() -> None:
    startup = Startup()
    feed(startup, launch(weights_bytes={"target": 100 * 10**9}))
    feed(startup, processes(40, {**MAIN, "read_bytes": 3 * 10**9}))
    feed(startup, log(50, "Load weight begin. avail mem=93.00 GB"), bar(51, 0))
    for step in range(1, 11):
        read = 3 * 10**9 + step * 2 * 10**9
        said = feed(startup, processes(50 + step * 10, {**MAIN, "read_bytes": read}))
    assert said.progress == "target: 20.0 of 100.0 GB"
    assert said.eta_s == pytest.approx(400, rel=0.05)
    assert said.eta_error_s is not None and said.eta_error_s >= 0.15 * said.eta_s * 0.9


def test_bytes_between_bursts_of_shards() -> None:
    startup = Startup()
    feed(startup, launch(weights_bytes={"target": 100 * 10**9}))
    feed(startup, log(50, "Load weight begin. avail mem=93.00 GB"), bar(51, 0), bar(52, 30))
    said = feed(startup, processes(60, {**MAIN, "read_bytes": 48 * 10**9}))
    assert said.progress == "target: 30 of 64 shards"
    said = feed(startup, processes(90, {**MAIN, "read_bytes": 60 * 10**9}))
    assert said.progress == "target: 60.0 of 100.0 GB"
    assert feed(startup, bar(91, 55)).progress == "target: 55 of 64 shards"


def test_graphs() -> None:
    startup = Startup()
    feed(startup, launch(), log(50, "Capture target decode CUDA graph begin. backend=full"))
    for done in range(10):
        text = f"Capturing batches (bs=8 avail_mem=9 GB):  1%|█ | {done}/36 [00:00<00:00]\r"
        said = feed(startup, raw(51 + done, text))
    assert (said.phase, said.progress) == ("capturing", "target decode: 9 of 36 graphs")
    # Another kind of graph may follow: one bar does not tell when they are all captured.
    assert said.eta_s is None


def test_history_gives_an_estimate_to_serving() -> None:
    history = {"importing": 25.0, "loading": 400.0, "capturing": 60.0, "serving": 9000.0}
    startup = Startup()
    said = feed(startup, launch(history=history), raw(5, "a warning\n"))
    assert (said.eta_s, said.eta_until) == (485.0, "serving")
    feed(startup, log(50, "Load weight begin. avail mem=93.00 GB"))
    for done in range(17):
        said = feed(startup, bar(60 + done * 10, done))
    assert said.eta_s == pytest.approx(480 + 60, rel=0.02)
    assert said.eta_error_s is not None and said.eta_error_s > 72


def test_the_estimate_shrinks_with_the_clock() -> None:
    startup = Startup()
    feed(startup, launch(history={"importing": 30.0}), raw(5, "a warning\n"))
    assert startup.tick(15).eta_s == 20.0
    # Overdue: "0 s left" for minutes would be a lie.
    assert startup.tick(60).eta_s is None


def test_nothing_is_counted_after_it_serves() -> None:
    startup = Startup()
    feed(startup, launch(), bar(5, 3), log(9, "INFO:     Uvicorn running on http://h:30000"))
    said = feed(startup, log(10, "The server is fired up and ready to roll!"))
    assert (said.outcome, said.progress, said.eta_s) == ("serving", None, None)


def test_as_dict_is_json() -> None:
    import json

    startup = Startup()
    feed(startup, launch(), log(50, "Load weight begin. avail mem=93.00 GB"))
    document = feed(startup, bar(60, 1)).as_dict()
    assert json.loads(json.dumps(document))["detail"] == {
        "what": "target",
        "unit": "shards",
        "done": 1,
        "total": 64,
    }


@pytest.mark.slow
def test_the_range_covers_the_truth_in_nine_of_ten_samples_of_recorded_starts() -> None:
    """Or no estimate is shown."""
    covered = shown = 0
    for path in sorted(fuzz.TRACES.glob("*/journal.jsonl")):
        startup = Startup()
        said = []
        ends: dict[str, float] = {}
        phase = "launching"
        for event in journal.read(path):
            if event["kind"] in ("injected", "verdict"):
                continue
            now = startup.feed(event)
            if now.phase != phase:
                ends[phase], phase = now.t, now.phase
            if now.outcome in ("serving", "ready", "degraded"):
                ends.setdefault("serving", now.t)
            elif now.eta_s is not None:
                said.append(now)
        for item in said:
            end = ends.get(item.eta_until or "")
            if end is not None and end >= item.t and item.eta_s is not None:
                shown += 1
                covered += abs(end - item.t - item.eta_s) <= (item.eta_error_s or 0.0)
    assert shown > 100
    assert covered >= 0.9 * shown, (covered, shown)


def counted(*steps: tuple[float, int], total: int = 64) -> Counter:
    counter = Counter("target", "shards", total)
    for t, done in steps:
        counter.update(t, done)
    return counter


def test_a_bar_that_is_complete_does_not_tell_how_long_its_phase_goes_on() -> None:
    assert counted((0, 0), (10, 1), (20, 2), total=2).eta(21) is None
    assert Counter("target", "shards", 2).last_t == 0.0


def test_the_estimate_falls_second_by_second_until_the_next_step_is_due() -> None:
    counter = counted(*((done * 10.0, done) for done in range(9)))
    now, later = counter.eta(80), counter.eta(85)
    assert now is not None and later is not None
    assert (now[0], later[0]) == (560.0, 555.0) and now[1] == later[1]


def work(weights: int | None = 1000) -> Work:
    made = Work()
    if weights is not None:
        made.weights_bytes = {"target": weights}
    made.read(0, 500)
    made.loading(10, "target")
    return made


def test_bytes_count_only_where_the_size_is_known_and_something_was_read() -> None:
    unknown = work(None)
    unknown.read(20, 10**9)
    assert unknown.best(20, "loading") is None
    known = work()
    assert known.best(10, "loading") is None
    known.read(20, 400)  # fewer than before: another process's counter
    assert known.best(20, "loading") is None
    known.read(30, 600)
    best = known.best(30, "loading")
    assert best is not None and (best.unit, best.done) == ("bytes", 100)


def shard(done: int) -> Bar:
    return Bar("Loading shards", done, 64)


def test_shards_are_shown_from_the_second_on_until_bytes_are_twenty_seconds_ahead() -> None:
    made = work()
    made.feed(20, "target", "shards", shard(1))
    made.read(21, 600)
    for done, read_at, unit in ((1, 21, "bytes"), (2, 42, "shards"), (2, 43, "bytes")):
        made.feed(22, "target", "shards", shard(done))
        made.read(read_at, 600 + read_at)
        best = made.best(read_at, "loading")
        assert best is not None and best.unit == unit, (done, read_at)
