"""Which of the engine's processes are ranks: what a rank forks has its title, and is none."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglangctl.startup import ranks
from sglangctl.startup.fold import Startup
from tests.support.startup_events import (
    DETOKENIZER,
    MAIN,
    TP0,
    TP1,
    exit_,
    feed,
    http,
    launch,
    log,
    process,
    processes,
    serving,
    socket,
)

SPAWNED = "/opt/v/bin/python -B -c from multiprocessing.spawn import spawn_main; spawn_main("
ALL = (MAIN, TP0, TP1, DETOKENIZER)
BARE = process(2, "sglang::scheduler")
CHILD = process(77, "sglang::scheduler_TP0", "R", 0.0)


def up(*listed: dict[str, Any], world: int = 2) -> Startup:
    """Everybody was seen twice."""
    startup = Startup()
    feed(startup, launch(tensor_parallel=world), log(2, "Load weight begin.", "TP0"))
    feed(startup, processes(3, *(listed or ALL)), processes(4, *(listed or ALL)))
    return startup


def parents(parent: int, item: dict[str, Any], start: int | None = None) -> dict[str, Any]:
    return {**item, "ppid": parent, "start": 1000 + item["pid"] if start is None else start}


TOLD = (
    parents(0, MAIN),
    parents(1, TP0),
    parents(1, TP1),
    parents(1, DETOKENIZER),
)


def quiet(startup: Startup, t: float, *listed: dict[str, Any]) -> None:
    """From `t` on these are there, and nothing is said of it for a minute."""
    for later in range(60):
        said = feed(startup, processes(t + later, *listed))
        assert said.outcome == "pending", (t + later, said.evidence)
        assert startup.tick(t + later + 0.99).outcome == "pending"


@pytest.mark.parametrize("looks", [1, 2, 30])
def test_a_forked_child_with_its_parents_title_comes_and_goes(looks: int) -> None:
    """Trace cpu-forked-child-with-its-parents-title: one look; a slow machine shows it longer."""
    startup = up()
    for t in range(5, 5 + looks):
        feed(startup, processes(t, *ALL, CHILD))
    quiet(startup, 5 + looks, *ALL)


@pytest.mark.parametrize("code", [0, 1, -9])
def test_a_forked_child_s_end_is_not_a_rank_s(code: int) -> None:
    startup = up()
    feed(startup, processes(5, *ALL, CHILD))
    zombie = {**process(77, "sglang::schedul", "Z"), "exit_code": code}
    quiet(startup, 6, *ALL, zombie)


def test_a_lone_rank_s_child_has_the_same_title() -> None:
    everyone = (MAIN, BARE, DETOKENIZER)
    startup = up(*everyone, world=1)
    feed(startup, processes(5, *everyone, process(77, "sglang::scheduler", "R")))
    quiet(startup, 6, *everyone)
    feed(startup, processes(70, MAIN, DETOKENIZER))
    said = startup.tick(72)
    assert (said.outcome, said.cause) == ("failed", "rank-died")
    assert said.evidence[0] == "sglang::scheduler (pid 2) is gone"


def test_a_title_seen_once_on_a_process_of_no_past_is_no_rank() -> None:
    """The look fell between the fork and the parent's own new title."""
    startup = up(MAIN, process(2, SPAWNED), DETOKENIZER, world=1)
    feed(startup, processes(5, MAIN, process(2, SPAWNED), process(9, "sglang::scheduler"), TP1))
    quiet(startup, 6, MAIN, BARE, DETOKENIZER)


def test_one_that_was_spawned_before_its_title_is_a_rank_at_once() -> None:
    spawned = [process(pid, SPAWNED) for pid in (2, 3, 4)]
    startup = up(MAIN, *spawned)
    feed(startup, processes(5, *ALL))
    feed(startup, processes(6, MAIN, TP0, DETOKENIZER))
    said = startup.tick(8)
    assert (said.outcome, said.cause) == ("failed", "rank-died")
    assert "sglang::scheduler_TP1 (pid 3) is gone" in said.evidence[0]


def test_a_look_that_misses_a_rank_is_corrected_by_the_next() -> None:
    startup = up()
    assert feed(startup, processes(5, MAIN, TP0, DETOKENIZER)).outcome == "pending"
    quiet(startup, 6, *ALL)
    # A real end still is said within two seconds.
    feed(startup, processes(70, MAIN, TP0, DETOKENIZER))
    assert startup.tick(71.5).outcome == "failed"


def test_a_missed_rank_and_an_old_complaint_in_the_log_are_no_failure() -> None:
    startup = up()
    complaint = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
    feed(startup, log(5, f"one request failed: {complaint}", "TP0"))
    assert feed(startup, processes(6, MAIN, TP0, DETOKENIZER)).outcome == "pending"
    quiet(startup, 7, *ALL)


def test_with_the_parent_told_a_child_is_none_however_long_it_lives() -> None:
    startup = up(*TOLD)
    child = parents(2, CHILD)
    for t in range(5, 40):
        feed(startup, processes(t, *TOLD, child))
    quiet(startup, 40, *TOLD)
    # Its parent dies, and it has the title still: that is no living rank.
    left = [item for item in TOLD if item["pid"] != 2]
    feed(startup, processes(101, *left, parents(1, child)))
    said = startup.tick(103)
    assert (said.outcome, said.cause) == ("failed", "rank-died")
    assert "pid 2" in said.evidence[0]


def test_the_replicas_controller_is_the_parent_of_ranks() -> None:
    controller = parents(1, process(5, "sglang::data_parallel_controller"))
    ranks = [parents(5, process(pid, f"sglang::scheduler_DP{pid - 6}_TP0")) for pid in (6, 7)]
    startup = up(parents(0, MAIN), controller, *ranks, parents(1, DETOKENIZER), world=1)
    feed(startup, processes(8, parents(0, MAIN), controller, ranks[0], parents(1, DETOKENIZER)))
    said = startup.tick(10)
    assert (said.outcome, said.cause) == ("failed", "rank-died")
    assert "scheduler_DP1_TP0 (pid 7) is gone" in said.evidence[0]


def test_a_controller_that_was_spawned_titles_itself_after_its_children_began() -> None:
    main, detokenizer = parents(0, MAIN), parents(1, DETOKENIZER)
    early = (main, parents(1, process(5, SPAWNED)), parents(5, process(6, SPAWNED)))
    startup = up(*early, detokenizer, world=1)
    late = (main, parents(1, process(5, "sglang::data_parallel_controller")))
    rank = parents(5, process(6, "sglang::scheduler_DP0_TP0"))
    feed(startup, processes(5, *late, rank, detokenizer))
    feed(startup, processes(6, *late, detokenizer), processes(7, *late, detokenizer))
    assert startup.tick(9).cause == "rank-died"


def test_a_pid_that_another_process_got_is_not_the_rank() -> None:
    startup = up(*TOLD)
    reused = parents(1, process(3, "/bin/sh -c nvcc"), start=5000)
    feed(startup, processes(5, TOLD[0], TOLD[1], reused, TOLD[3]))
    said = startup.tick(7)
    assert (said.outcome, said.cause) == ("failed", "rank-died")
    assert "sglang::scheduler_TP1 (pid 3) is gone" in said.evidence[0]


def test_a_journal_that_an_older_watch_began_goes_on() -> None:
    """Its events tell neither parents nor start times; the ones after its update do."""
    startup = up()
    quiet(startup, 5, *TOLD)


def test_a_spawned_process_s_own_child_is_not_missed() -> None:
    """An import runs a program: for a moment it has the command line of its parent."""
    early = (MAIN, process(2, SPAWNED), process(3, SPAWNED), process(4, SPAWNED))
    startup = up(*early)
    feed(startup, processes(5, *early, process(77, SPAWNED, "R")))
    failed = {**process(77, "which", "Z"), "exit_code": 1}
    feed(startup, processes(6, *early, failed))
    quiet(startup, 7, *early)


def test_a_spawned_process_s_own_child_by_its_parent() -> None:
    early = (parents(0, MAIN), parents(1, process(2, SPAWNED)), parents(1, process(3, SPAWNED)))
    startup = up(*early, world=2)  # the third is still to come
    feed(startup, processes(5, *early, parents(2, process(77, SPAWNED, "R"))))
    quiet(startup, 6, *early, {**parents(2, process(77, "which", "Z")), "exit_code": 1})


def test_forked_children_do_not_count_as_ranks_alive() -> None:
    startup = serving(10, tensor_parallel=2)
    for t in (11, 12):
        feed(startup, processes(t, MAIN, TP0, CHILD, DETOKENIZER))
    assert startup.ranks.alive == 1


def test_an_exit_decides_at_once() -> None:
    startup = up()
    feed(startup, processes(5, MAIN, TP0, DETOKENIZER))
    assert feed(startup, exit_(5.2, -9)).outcome == "failed"


def test_one_look_at_another_owner_of_the_port_is_no_alarm() -> None:
    startup = serving(10)
    feed(startup, socket(11, 1, True), http(12, 200))
    feed(startup, socket(14, 4242, False), http(15, 200), socket(16, 1, True))
    assert feed(startup, http(19, 200)).outcome == "serving"
    assert startup.tick(44).outcome == "serving"


@given(
    st.lists(
        st.lists(
            st.tuples(
                st.integers(100, 105),
                st.sampled_from((2, 3, 4)),
                st.sampled_from("RSDZT"),
                st.sampled_from((None, 0, 1, -9)),
            ),
            max_size=4,
        ),
        max_size=12,
    ),
    st.booleans(),
)
def test_whatever_ranks_fork_is_no_failure(
    looks: list[list[tuple[int, int, str, int | None]]], told: bool
) -> None:
    """Children of living ranks: of any state and end, told by their parent or by the title."""
    everyone = TOLD if told else ALL
    names = {item["pid"]: item["name"] for item in everyone}
    startup = up(*everyone)
    for number, children in enumerate(looks):
        listed = []
        for pid, parent, state, code in children:
            child = {**process(pid, names[parent], state), "exit_code": code}
            listed.append(parents(parent, child, start=number) if told else child)
        feed(startup, processes(5 + number, *everyone, *listed))
        assert startup.tick(5.9 + number).outcome != "failed"


def test_one_look_without_a_rank_is_a_doubt_and_two_are_certain() -> None:
    startup = up()
    for t, sure in ((5, False), (6, True)):
        feed(startup, processes(t, MAIN, TP0, DETOKENIZER))
        assert startup.ranks.lost and startup.ranks.lost_sure is sure


def test_cores_are_told_of_looks_half_a_second_apart() -> None:
    startup = up()
    spent = {**TP0, "cpu_s": 1.5}
    feed(startup, processes(4.25, MAIN, {**TP0, "cpu_s": 1.4}, TP1, DETOKENIZER))
    assert startup.ranks.cores == 0.0
    feed(startup, processes(4.5, MAIN, spent, TP1, DETOKENIZER))
    assert startup.ranks.cores == pytest.approx(1.0)


def test_a_process_that_runs_three_looks_on_end_is_running() -> None:
    startup = up()
    for t, running in ((5, False), (6, False), (7, True)):
        feed(startup, processes(t, MAIN, {**TP0, "state": "R"}, TP1, DETOKENIZER))
        assert startup.ranks.running is running, t


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("sglang::scheduler_TP0", "sglang::scheduler_TP0"),
        ("python -m sglang.launch_server", "the main process"),
        ("python -c spawn_main sglang", "python -c spawn_main sglang"),
        ("nvcc", "nvcc"),
        ("", "7"),
    ],
)
def test_how_a_process_is_named(name: str, shown: str) -> None:
    assert ranks._short(name, 7) == shown


def test_once_all_ranks_have_their_titles_a_worker_that_dies_is_none_of_them() -> None:
    startup = up()
    spawned = process(9, "/opt/v/bin/python -B -c from multiprocessing.spawn import spawn_main")
    feed(startup, processes(5, MAIN, TP0, TP1, DETOKENIZER, spawned))
    dead = {**spawned, "name": "", "state": "Z", "exit_code": -9}
    feed(startup, processes(6, MAIN, TP0, DETOKENIZER, dead))
    assert startup.ranks.lost == ("sglang::scheduler_TP1 (pid 3) is gone",)
