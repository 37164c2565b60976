"""From what an environment said to a result: it is data, whoever wrote it."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from sglangctl.collective.answers import (
    HUNG,
    MOST_BYTES,
    NOT_POSSIBLE,
    RIGHT,
    STATUS,
    WRONG,
    Result,
    judge,
)
from sglangctl.collective.arms import (
    CONFIGURED,
    SIZES,
    WITHOUT_P2P,
    Arm,
    arms,
    profiles_from,
    request,
    worlds,
)
from sglangctl.state.config import Preflight
from sglangctl.systemd.confined import Ended
from sglangctl.util.errors import Unusable

PLAIN = Preflight()
ARMS = arms({}, {}, PLAIN)
MEASURED = [[size, 1e-5 + size / 1e10] for size in SIZES]


def line(**fields: Any) -> bytes:
    return json.dumps(fields).encode() + b"\n"


def world(arm: str, ranks: int, **fields: Any) -> bytes:
    found = {"outcome": "right", "sizes": MEASURED, "about": {"nccl": "2.28.9"}, **fields}
    return line(step="begin", arm=arm, world=ranks) + line(
        step="world", arm=arm, world=ranks, **found
    )


BEGUN = line(step="import") + line(step="torch", torch="2.14.0")
WELL = b"".join(world(arm.name, ranks) for arm in ARMS for ranks in (2, 4))


def result(stdout: bytes, code: int | None = 0, stderr: bytes = b"") -> Result:
    return judge(Ended(code, stdout, stderr), ARMS, (2, 4))


def test_all_right() -> None:
    found = result(BEGUN + WELL + line(step="end"), stderr=b"NCCL WARN of no interest\n")
    assert (found.outcome, found.status, found.torch, found.nccl) == (RIGHT, 0, "2.14.0", "2.28.9")
    assert [arm.name for arm in found.arms] == [CONFIGURED, WITHOUT_P2P]
    assert [one.world for one in found.arms[0].worlds] == [2, 4] and not found.evidence
    last = found.arms[0].worlds[1].sizes[-1]
    assert last.bytes == 64 << 20
    assert last.algbw_gbps == pytest.approx(last.bytes / last.median_s / 1e9)
    assert last.busbw_gbps == pytest.approx(last.algbw_gbps * 2 * 3 / 4)
    assert json.loads(json.dumps(found.to_json()))["exit"] == 0


def test_each_outcome_has_a_status_of_its_own() -> None:
    assert sorted(STATUS.values()) == [0, 1, 2, 4] and 3 not in STATUS.values()


@pytest.mark.parametrize(
    ("stdout", "code", "outcome", "words"),
    [
        (
            world(CONFIGURED, 2, outcome="wrong", text="rank 1: 3 sums"),
            0,
            WRONG,
            "2 ranks: rank 1: 3",
        ),
        (world(CONFIGURED, 2, outcome="hung", text="no end"), 0, HUNG, "2 ranks: no end"),
        (world(CONFIGURED, 2, outcome="hung", text="x", left=[7]), 0, HUNG, "could not be killed"),
        (world(CONFIGURED, 2, outcome="failed", text="NCCL error"), 0, NOT_POSSIBLE, "NCCL error"),
        (world(CONFIGURED, 2, outcome={"a": 1}), 0, NOT_POSSIBLE, "no reason was given"),
        (line(step="begin", arm=CONFIGURED, world=2), None, HUNG, "its unit was ended"),
        (line(step="begin", arm=CONFIGURED, world=2), 1, NOT_POSSIBLE, "ended with 1: no room"),
        (b"", 0, NOT_POSSIBLE, "it was not run"),
        # It says right, and leaves out what was not.
        (world(CONFIGURED, 2, sizes=MEASURED[:-1]), 0, NOT_POSSIBLE, "not all sizes"),
        (world(CONFIGURED, 2, sizes=[[4, -1.0]]), 0, NOT_POSSIBLE, "not all sizes"),
        (
            world(CONFIGURED, 2, sizes=[[4, float("nan")], *MEASURED[1:]]),
            0,
            NOT_POSSIBLE,
            "not all",
        ),
    ],
)
def test_what_is_not_right(stdout: bytes, code: int | None, outcome: str, words: str) -> None:
    found = result(BEGUN + stdout, code, b"no room\n")
    assert found.outcome == outcome and found.status == STATUS[outcome]
    assert words in found.arms[0].sentence and len(found.arms[0].worlds) == 1
    assert found.evidence == ("no room",)


def test_what_python_says_of_a_pth_file_is_no_evidence() -> None:
    """Of two H200s, where nothing else was printed: it stood below a rank that hung."""
    noise = b"Error processing line 1 of /v/site-packages/x.pth:\n\n  ImportError: No module\n\n"
    noise += b"Remainder of file ignored\n"
    hung = BEGUN + world(CONFIGURED, 2, outcome="hung", text="no end")
    assert result(hung, 0, noise * 2).evidence == ()
    assert result(hung, 0, noise + b"NCCL WARN x\n").evidence == ("NCCL WARN x",)


def test_the_engine_s_own_setting_decides_not_the_others() -> None:
    hung = line(step="begin", arm=WITHOUT_P2P, world=2) + world(WITHOUT_P2P, 2, outcome="hung")
    both = b"".join(world(CONFIGURED, ranks) for ranks in (2, 4))
    found = result(BEGUN + both + hung + line(step="end"))
    assert (found.outcome, found.arms[1].outcome) == (RIGHT, HUNG)


def test_without_torch() -> None:
    error = b"Traceback\nModuleNotFoundError: No module named 'torch'\n"
    found = result(line(step="import"), 1, error)
    assert found.outcome == NOT_POSSIBLE
    assert "importing torch failed: ModuleNotFoundError" in found.arms[0].sentence
    assert "did not end in time" in result(line(step="import"), None).arms[0].sentence


def test_a_flood_is_no_answer() -> None:
    found = result(BEGUN + WELL + b"x" * MOST_BYTES)
    assert found.outcome == NOT_POSSIBLE and "more than an answer" in found.arms[0].sentence


def test_what_it_says_is_masked_cut_and_fit_for_a_terminal() -> None:
    told = world(CONFIGURED, 2, outcome="wrong", text="key s3cret \x1b[31m" + "x" * 9000)
    found = judge(
        Ended(0, BEGUN + told, b"Error: s3cret\n"),
        ARMS,
        (2,),
        lambda text: text.replace("s3cret", "***"),
    )
    text = json.dumps(found.to_json())
    assert "s3cret" not in text and "\\u001b" not in text and len(text) < 5000


def test_nothing_that_it_says_is_a_crash_or_right_by_accident() -> None:
    seed = BEGUN + b"".join(world(arm.name, ranks) for arm in ARMS for ranks in (2,))
    chance = random.Random(11)
    for _ in range(300):
        at, end = sorted(chance.choices(range(len(seed)), k=2))
        mutated = (
            seed[:at] + chance.randbytes(chance.randrange(9)) + seed[chance.choice((at, end)) :]
        )
        found = judge(Ended(0, mutated, mutated), ARMS, (2, 4))
        assert found.outcome != RIGHT
        json.dumps(found.to_json(), allow_nan=False)
    deep = b"[" * 100_000 + b"\n" + BEGUN
    assert result(deep).outcome == NOT_POSSIBLE


@pytest.mark.parametrize(
    ("ranks", "wanted"),
    [(1, ()), (2, (2,)), (3, (2, 3)), (4, (2, 4)), (6, (2, 4, 6)), (8, (2, 4, 8))],
)
def test_worlds(ranks: int, wanted: tuple[int, ...]) -> None:
    assert worlds(ranks) == wanted


def test_arms_have_what_sglang_sets_itself_and_none_is_run_twice() -> None:
    profiles = {
        "none": {},
        "safe": {"NCCL_P2P_DISABLE": "1", "NCCL_CUMEM_ENABLE": "0"},
        "latency": {"NCCL_PROTO": "LL"},
    }
    found = arms({}, profiles, PLAIN)
    assert [arm.name for arm in found] == [CONFIGURED, WITHOUT_P2P, "latency"]
    assert found[0].environment == {"NCCL_CUMEM_ENABLE": "0", "NCCL_NVLS_ENABLE": "0"}
    assert [arm.peer_to_peer for arm in found] == [True, False, True]
    (first, *others) = arms({"NCCL_P2P_DISABLE": "1", "NCCL_CUMEM_ENABLE": "1"}, profiles, PLAIN)
    assert first.environment["NCCL_CUMEM_ENABLE"] == "1"
    # With the variables of the unit's file gone, not with both.
    assert [arm.name for arm in others] == ["none", "safe", "latency"]
    assert "NCCL_P2P_DISABLE" not in others[0].environment


@pytest.mark.parametrize(
    ("settings", "given", "cumem", "nvls"),
    [
        ({}, {}, "0", "0"),
        ({}, {"NCCL_CUMEM_ENABLE": "1", "NCCL_NVLS_ENABLE": "2"}, "1", "2"),
        # Whatever the environment says: symmetric memory needs both.
        ({"symmetric_memory": True}, {"NCCL_CUMEM_ENABLE": "0"}, "1", "1"),
        ({"nvls": True}, {"NCCL_NVLS_ENABLE": "0"}, "0", "1"),
        ({"cumem": True}, {}, "1", "0"),
        ({"cumem": True}, {"NCCL_CUMEM_ENABLE": "0"}, "0", "0"),
    ],
)
def test_flags_of_sglang_that_change_nccl_s_variables(
    settings: dict[str, bool], given: dict[str, str], cumem: str, nvls: str
) -> None:
    for arm in arms(given, {"none": {**given}}, Preflight(**settings)):
        assert arm.environment["NCCL_CUMEM_ENABLE"] == cumem
        assert arm.environment["NCCL_NVLS_ENABLE"] == nvls


def test_a_request_is_what_the_program_reads() -> None:
    asked = json.loads(json.dumps(request("cuda", (Arm("a", {"NCCL_X": "1"}),), 8, 120.0)))
    assert asked["worlds"] == [2, 4, 8] and asked["sizes"][0] == 4
    assert asked["sizes"][-1] == 64 << 20 and all(size % 4 == 0 for size in asked["sizes"])
    assert asked["arms"] == [{"name": "a", "environment": {"NCCL_X": "1"}}]


@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", "[" * 99_999, '{"a": 1}', '{"A B": {}}', '{"a": {"PATH": "/x"}}'),
        *('{"a": {"NCCL_X": 1}}', '{"a": {"NCCL_X": "a\\u0000b"}}'),
    ],
)
def test_profiles_that_are_none(text: str) -> None:
    with pytest.raises(Unusable, match="profiles"):
        profiles_from(text)


def test_profiles() -> None:
    assert profiles_from('{"none": {}, "b": {"NCCL_X": "1"}}') == {"none": {}, "b": {"NCCL_X": "1"}}
