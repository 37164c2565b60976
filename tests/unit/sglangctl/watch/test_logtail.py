from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest

from sglangctl.masking.masker import Masker
from sglangctl.watch import logtail
from sglangctl.watch.logtail import MARK_PREFIX, Logtail, beginning_of_run, mark_end, safe_cut

RUN, NEXT, THIRD = "a" * 32, "b" * 32, "c" * 32
BAR = "\rCapturing batches:  50%|#####     | 3/6 [00:01<00:01,  2.0it/s]"
"""What a start that was killed leaves: no line end."""


def mark(run: str) -> str:
    """What the unit writes before a start."""
    return f"\n{MARK_PREFIX}{run}\n"


def text(tail: Logtail) -> str:
    return "".join(piece.text for piece in tail.poll())


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "engine.log"


def append(log: Path, data: bytes | str) -> None:
    with open(log, "ab") as file:
        file.write(data.encode() if isinstance(data, str) else data)


def test_from_the_end_and_then_what_is_new(log: Path) -> None:
    append(log, "old\n")
    tail = Logtail(log)
    assert text(tail) == ""
    append(log, "one\ntwo\nthr")
    assert text(tail) == "one\ntwo\n"
    append(log, "ee\n")
    assert text(tail) == "three\n"


def test_a_file_that_comes_later_is_read_from_its_beginning(log: Path) -> None:
    tail = Logtail(log)
    assert text(tail) == ""
    append(log, "first\n")
    assert text(tail) == "first\n"


def test_progress_bars_come_as_they_are_written(log: Path) -> None:
    append(log, "")
    tail = Logtail(log)
    tail.poll()
    append(log, "\rLoading:  50% 1/2")
    assert text(tail) == "\r"
    append(log, "\rLoading: 100% 2/2")
    assert text(tail) == "Loading:  50% 1/2\r"
    assert "".join(piece.text for piece in tail.drain()) == "Loading: 100% 2/2"


def test_an_unfinished_line_is_given_out_after_a_while(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(logtail.time, "monotonic", lambda: now[0])
    append(log, "")
    tail = Logtail(log)
    tail.poll()
    append(log, "RuntimeError: no newline")
    assert text(tail) == ""
    now[0] = logtail.PARTIAL_S - 0.1
    assert text(tail) == ""
    now[0] = logtail.PARTIAL_S
    assert text(tail) == "RuntimeError: no newline"
    append(log, " here\n")
    assert text(tail) == " here\n"


def test_copytruncate(log: Path) -> None:
    append(log, "a" * 100 + "\n")
    tail = Logtail(log, offset=0)
    assert len(text(tail)) == 101
    append(log, "last\n")
    os.truncate(log, 0)  # logrotate loses what it did not copy; so do we
    append(log, "new\n")
    assert text(tail) == "new\n"


def test_renamed_and_made_anew(log: Path) -> None:
    append(log, "one\n")
    tail = Logtail(log, offset=0)
    assert text(tail) == "one\n"
    append(log, "two\n")
    log.rename(log.with_suffix(".1"))
    assert text(tail) == "two\n"
    append(log, "three\n")
    assert text(tail) == "three\n"


def test_the_old_file_is_read_to_its_end_first(log: Path) -> None:
    append(log, "one\n")
    tail = Logtail(log, offset=0)
    tail.poll()
    append(log, "last words without end")
    log.rename(log.with_suffix(".1"))
    append(log, "new\n")
    assert text(tail) == "last words without endnew\n"


def test_links_and_pipes_are_not_followed(log: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x\n")
    log.symlink_to(tmp_path / "secret")
    tail = Logtail(log, offset=0)
    assert text(tail) == ""
    log.unlink()
    os.mkfifo(log)
    assert text(tail) == ""
    log.unlink()
    append(log, "now\n")
    assert text(tail) == "now\n"


def test_huge_lines_and_bytes_that_are_no_text(log: Path) -> None:
    append(log, "")
    tail = Logtail(log)
    tail.poll()
    append(log, b"\xff\x00" + b"x" * 500_000 + b"\n")
    got = text(tail)
    for _ in range(20):
        got += text(tail)
    assert got == "\\xff\0" + "x" * 500_000 + "\n"


def test_one_poll_does_not_read_for_ever(log: Path) -> None:
    append(log, "x" * 99 + "\n")
    tail = Logtail(log, offset=0)
    tail.poll()
    append(log, ("y" * 99 + "\n") * 20_000)
    assert len(text(tail)) <= logtail.POLL_LIMIT
    assert sum(len(piece.text) for piece in tail.drain()) > 0


def test_no_secret_is_cut_in_two(log: Path) -> None:
    secret = "sk-" + "s3cr3t" * 5
    generator = random.Random(7)
    mask = Masker([secret]).mask
    append(log, "")
    tail = Logtail(log, mask=mask)
    tail.poll()
    whole = ""
    for _ in range(60):
        whole += "x" * generator.randrange(3000) + secret
    append(log, whole + "\n")
    pieces = [piece.text for piece in tail.drain()]
    assert len(pieces) > 1
    assert "".join(pieces) == mask(whole + "\n")
    assert all("s3cr3ts3cr3t" not in piece for piece in pieces)


def test_safe_cut_moves_before_a_secret() -> None:
    mask = Masker(["abcdef"]).mask
    assert safe_cut("xxxabcdefxxx", 6, mask) == 3
    assert safe_cut("xxxabcdefxxx", 9, mask) == 9


def test_an_offset_beyond_the_end_means_that_all_is_new(log: Path) -> None:
    append(log, "after the rotation\n")
    assert text(Logtail(log, offset=10_000)) == "after the rotation\n"


def test_offsets_lead_back_to_the_same_place(log: Path) -> None:
    append(log, "one\ntwo\nthree")
    tail = Logtail(log, offset=0)
    (piece,) = tail.poll()
    append(log, " and four\n")
    again = Logtail(log, offset=piece.offset)
    assert text(again) == "three and four\n"


def test_where_a_run_begins_in_an_old_log(log: Path) -> None:
    now = int(time.time())

    def line(at: float, words: str) -> str:
        return time.strftime("[%Y-%m-%d %H:%M:%S TP0] ", time.localtime(at)) + words + "\n"

    old = line(now - 100, "old") + "no stamp\n"
    append(log, old + line(now - 10, "new") + line(now, "newer"))
    assert beginning_of_run(log, RUN, now - 50) == len(old)
    assert beginning_of_run(log, RUN, now - 10 + 0.7) == len(old)  # stamps are whole seconds
    assert beginning_of_run(log, RUN, now + 50) == log.stat().st_size
    with pytest.raises(FileNotFoundError):
        beginning_of_run(log.with_suffix(".gone"), RUN, now)


def test_a_run_s_text_ends_before_the_mark_of_the_next(log: Path) -> None:
    append(log, "")
    tail = Logtail(log)
    tail.poll()
    tail.fence(RUN, over=lambda: True)
    append(log, mark(RUN) + "one\n" + BAR + mark(NEXT) + "[2026-11-29 10:00:00] two\n")
    got = "".join(piece.text for piece in tail.drain())
    assert got.startswith("\n") and got.endswith("one\n" + BAR + "\n")
    assert text(tail) == "" and tail.drain() == []  # what comes behind is the next one's
    tail.fence(NEXT, over=lambda: True)
    tail.go_on()
    assert text(tail) == "[2026-11-29 10:00:00] two\n"
    append(log, "three\n")
    assert text(tail) == "three\n"


def test_go_on_leaves_what_is_unfinished_behind(log: Path) -> None:
    append(log, "")
    tail = Logtail(log)
    tail.poll()
    append(log, BAR)
    assert text(tail) == "\r"
    tail.go_on()
    append(log, "[2026-11-29 10:00:00] Init parallel begin.\n")
    assert text(tail) == "[2026-11-29 10:00:00] Init parallel begin.\n"


def test_a_mark_that_the_engine_wrote_itself_ends_nothing(log: Path) -> None:
    append(log, "")
    tail = Logtail(log)
    tail.poll()
    tail.fence(RUN, over=lambda: False)
    append(log, mark(NEXT) + "on it goes\n")
    assert text(tail).endswith("on it goes\n")


def test_a_mark_of_a_run_that_there_never_was_ends_nothing(log: Path) -> None:
    append(log, "")
    tail = Logtail(log)
    tail.poll()
    tail.fence(RUN, over=lambda: True, later=lambda: {NEXT})
    append(log, mark(THIRD) + "RuntimeError: last words\n" + mark(NEXT) + "two\n")
    got = "".join(piece.text for piece in tail.drain())
    assert got.endswith("RuntimeError: last words\n\n")
    tail.fence(NEXT, over=lambda: True, later=lambda: set())
    tail.go_on()
    assert text(tail) == "two\n"


def test_a_run_begins_behind_its_mark(log: Path) -> None:
    before = "[2026-11-29 10:00:00] old\n" + BAR + mark(THIRD) + "died\n" + mark(RUN)
    append(log, before + "import warning\n" + BAR)
    assert mark_end(log, RUN) == len(before) == beginning_of_run(log, RUN, time.time())
    assert mark_end(log, NEXT) is None
    assert mark_end(log, "pid1-2") is None
    os.truncate(log, 0)
    append(log, "later\n")
    assert mark_end(log, RUN) is None


def test_without_a_mark_a_run_begins_at_its_stamp_behind_a_bar_too(log: Path) -> None:
    now = int(time.time())
    old = time.strftime("[%Y-%m-%d %H:%M:%S] old\n", time.localtime(now - 100)) + BAR
    append(log, old + time.strftime("[%Y-%m-%d %H:%M:%S] new\n", time.localtime(now)))
    assert beginning_of_run(log, RUN, now - 50) == len(old)


def test_the_file_is_truncated_behind_a_fence(log: Path) -> None:
    append(log, "")
    tail = Logtail(log)
    tail.poll()
    append(log, "x" * 500 + mark(RUN))
    tail.drain()
    os.truncate(log, 0)
    append(log, "rest of a line\r")
    tail.go_on()
    assert text(tail) == "rest of a line\r"


def test_a_hole_is_skipped(log: Path) -> None:
    append(log, "one\nunfinished")
    tail = Logtail(log, offset=0)
    assert text(tail) == "one\n"
    os.truncate(log, 64 << 30)
    append(log, "\nlast\n")
    found = "".join(piece.text for piece in tail.drain()).replace("\0", "")
    assert found.startswith("unfinished")
    assert "bytes of the log are skipped\n" in found
    assert found.endswith("\nlast\n")
    append(log, "more\n")
    assert text(tail) == "more\n"


def test_a_hole_up_to_the_end_is_skipped(log: Path) -> None:
    append(log, "one\n")
    tail = Logtail(log, offset=0)
    os.truncate(log, 64 << 30)
    found = "".join(piece.text for piece in tail.drain())
    assert found.replace("\0", "").startswith("one\n")
    append(log, "last\n")
    assert text(tail).replace("\0", "") == "last\n"


def test_of_too_much_the_end_is_read(log: Path) -> None:
    append(log, "one\n")
    tail = Logtail(log, offset=0)
    assert text(tail) == "one\n"
    with open(log, "ab") as file:
        for _ in range(64):
            file.write(b"a line of a log that runs away\n" * 20_000)
    append(log, "RuntimeError: the last words\n")
    pieces = tail.drain()
    found = "".join(piece.text for piece in pieces)
    assert found.startswith("sglangctl: ") and "bytes of the log are skipped" in found[:80]
    assert found.endswith("RuntimeError: the last words\n")
    assert len(found) <= logtail.BACKLOG
    assert pieces[-1].offset == log.stat().st_size
