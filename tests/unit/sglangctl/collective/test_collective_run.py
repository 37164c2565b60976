"""One run on a host: refused, measured, kept. The real program, with a torch of the test's own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from roles.inventory import auto_profile
from sglangctl import cli
from sglangctl.collective import answers, arms, run
from sglangctl.gpu import gpus
from sglangctl.gpu.gpus import Gpu
from sglangctl.holders import classes, survey
from sglangctl.probe import collectives as probed
from sglangctl.proc import membership, pidfds, procfs
from sglangctl.state import collectives
from sglangctl.state.config import EngineConfig, HostConfig, load_engine
from sglangctl.state.lock import locked
from sglangctl.state.paths import Paths
from sglangctl.state.release import FILES
from sglangctl.systemd.confined import Ended
from tests.support.engine_host import write_config
from tests.support.inventory_case import engine as spec_of

FAKE = Path(__file__).resolve().parents[3] / "support/fake_torch"
DIGEST = "0123456789ab"
CARDS = tuple(
    Gpu(index, f"GPU-{index}", "RTX", f"0000:8{index}:00.0", "12.0", 0, 90000, 0, 90.0, "580.1")
    for index in range(2)
)


@pytest.fixture(autouse=True)
def as_root(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(arms, "SIZES", (4, 64))
    monkeypatch.setattr(answers, "SIZES", (4, 64))
    monkeypatch.setattr(gpus, "read", lambda: gpus.Reading(CARDS, "nvml"))
    monkeypatch.setattr(run, "find", lambda unit: None)
    monkeypatch.setattr(survey, "survey", lambda *_: survey.Survey((), gpus.read(), 0))
    folder = Paths(root).releases("tiny") / DIGEST
    folder.mkdir(parents=True)
    for name in FILES:
        (folder / name).write_text("")
    (folder / "manifest.json").write_text(json.dumps({"venv": "/opt/sglang/venvs/x"}))
    (folder / "nccl.env").write_text('NCCL_PROTO="LL"\n')
    (folder / "engine.env").write_text(
        'HF_TOKEN="hf_secret_of_theirs"\nCUDA_VISIBLE_DEVICES="0,1"\n'
    )
    (root / "run").mkdir()
    (folder.parents[1] / "current").symlink_to(folder)


def engine(root: Path, port: int, **more: Any) -> EngineConfig:
    values = {"tensor_parallel": 2, "preflight": {"device": "cpu"}, "user": "nobody", **more}
    write_config(root, port, **values)
    return load_engine("tiny")


class Runner:
    """In the place of the confined unit: the same words, with this Python."""

    def __init__(self, fault: str = "") -> None:
        self.fault = fault
        self.argv: list[str] = []
        self.given: dict[str, Any] = {}

    def __call__(self, argv: list[str], user: str, **given: Any) -> Ended:
        self.argv, self.given = argv, {"user": user, **given}
        words = [sys.executable, *(word for word in argv[1:] if word != "-I")]
        path = {"PYTHONPATH": str(FAKE), "PATH": os.defpath, "FAULT": self.fault}
        done = subprocess.run(words, env=path, capture_output=True, timeout=60)
        return Ended(done.returncode, done.stdout, done.stderr)


def test_a_right_result_is_measured_as_the_engine_s_user_and_kept(root: Path, port: int) -> None:
    runner = Runner()
    kept = run.measure(engine(root, port), Paths(), run=runner)
    assert kept.result.outcome == "right" and not kept.unkept
    (entry,) = collectives.entries("tiny", Paths())
    assert entry == json.loads(json.dumps(kept.entry))
    assert entry["key"] == {"driver": None, "nccl": None, "topology": {"gpus": [], "links": []}}
    assert [arm["name"] for arm in entry["arms"]] == ["configured", "no-p2p"]
    assert entry["arms"][0]["environment"]["NCCL_PROTO"] == "LL"
    assert runner.argv[0] == "/opt/sglang/venvs/x/bin/python" and "-I" in runner.argv
    assert runner.given["user"] == "nobody"
    assert runner.given["name"] == "sglangctl-collective-tiny.service"
    # The secret is not needed, the devices are.
    assert "HF_TOKEN" not in runner.given["environment"]
    assert runner.given["environment"]["CUDA_VISIBLE_DEVICES"] == "0,1"


@pytest.mark.slow
def test_each_outcome_s_exit_status(
    root: Path, port: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    engine(root, port)
    for fault, status, word in (
        ("", 0, "tiny: right: 2 ranks: every sum is right"),
        ("wrong,1", 1, "tiny: wrong: 2 ranks: rank 1: 1 of 1 sums are wrong"),
        ("refuse,1", 2, "tiny: not-possible: 2 ranks: rank 1: RuntimeError: NCCL error"),
        ("stop,0", 4, "tiny: hung: 2 ranks: no end after 1 s"),
    ):
        monkeypatch.setattr(run.measure, "__defaults__", (None, None, run.WORLD_S, Runner(fault)))
        assert cli.main(["collective", "tiny", "--limit=1"]) == status, fault
        said = capsys.readouterr()
        assert said.out.startswith(word), said.out + said.err
        (kept,) = collectives.entries("tiny", Paths())
        # What was not possible is not kept over what is known.
        assert kept["exit"] == (1 if status == 2 else status)


@pytest.mark.slow
@pytest.mark.parametrize(("fault", "words"), [("stop", "hung"), ("wrong", "were wrong")])
def test_where_peer_to_peer_fails_auto_chooses_safe(
    root: Path, port: int, fault: str, words: str
) -> None:
    """From ranks that are killed, or add wrong, to the profile: over what is kept and the probe."""
    runner = Runner(f"{fault},1,peers")
    kept = run.measure(engine(root, port), Paths(), limit_s=3.0, run=runner)
    assert [arm.outcome for arm in kept.result.arms] == [
        "hung" if fault == "stop" else "wrong",
        "right",
    ]
    spec = spec_of("tensor_parallel: 2\nnccl: {profile: auto, overrides: {PROTO: LL}}")
    chosen = auto_profile.choose(spec, probed.brief("tiny", Paths()))
    assert chosen.profile == "safe"
    assert f"all-reduces {words}, without it every sum was right" in chosen.why


def test_what_cannot_be_done_is_said_and_is_status_2(
    root: Path, port: int, capsys: pytest.CaptureFixture[str]
) -> None:
    for more, words in (
        ({"tensor_parallel": 1}, "one rank has nothing to add up"),
        ({"preflight": {}, "tensor_parallel": 4}, "needs 4 GPUs (0, 1), and the host has 0, 1"),
        ({"preflight": {}, "gpus": [0, 7]}, "needs 2 GPUs (0, 7), and the host has 0, 1"),
    ):
        engine(root, port, **more)
        assert cli.main(["collective", "tiny"]) == 2
        assert words in capsys.readouterr().err
    engine(root, port)
    (Paths().releases("tiny") / DIGEST / "nccl.env").unlink()
    for options, words in (
        ([], f"release {DIGEST} of tiny is not staged: deploy it first"),
        (["--release=abc"], "release abc of tiny is not staged"),
    ):
        assert cli.main(["collective", "tiny", *options]) == 2
        assert words in capsys.readouterr().err
    Paths().current("tiny").unlink()
    assert cli.main(["collective", "tiny"]) == 2
    assert "no release of tiny is staged" in capsys.readouterr().err


def facts(argv: tuple[str, ...], unit: str | None, uses: tuple[int, ...], mib: int) -> survey.Facts:
    process = classes.Process(4711, 33, argv[0], argv, 1, 0.0, unit)
    member = membership.Membership(unit, unit, None, None)
    stat = procfs.stat(os.getpid())
    assert stat is not None
    memory: dict[int, int | None] = dict.fromkeys(uses, mib)
    who = pidfds.Identity(4711, 1, 0)
    return survey.Facts(process, who, member, stat, uses, uses, memory, ())


@pytest.mark.parametrize(
    ("argv", "unit", "uses", "words"),
    [
        (("VLLM::Worker",), None, (0,), "GPU 0 has a holder, 4711 VLLM::Worker (engine"),
        (("VLLM::Worker",), None, (1,), "first: sglangctl free tiny --policy engines"),
        (
            ("python", "x.py"),
            "job.service",
            (0, 1),
            "job.service); first: sglangctl free tiny --policy",
        ),
        (("sglang::x",), "sglang-tiny.service", (0,), "first: sglangctl stop tiny"),
        (("train",), None, (0,), "end it yourself (train, which the inventory protects)"),
    ],
)
def test_a_holder_is_named_with_the_command_that_ends_it(
    root: Path,
    port: int,
    argv: tuple[str, ...],
    unit: str | None,
    uses: tuple[int, ...],
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    engine(root, port, preflight={})
    host = {"v": 1, "engines": ["tiny"], "protected": ["train"]}
    Paths().host_json.write_text(json.dumps(host))
    looked = survey.Survey((facts(argv, unit, uses, 10),), gpus.read(), 0)
    monkeypatch.setattr(survey, "survey", lambda *_: looked)
    assert cli.main(["collective", "tiny"]) == 3
    said = capsys.readouterr().err
    assert words in said and "nothing was measured" in said
    assert not collectives.entries("tiny", Paths())


def test_a_holder_of_other_gpus_and_a_monitor_are_in_nobody_s_way(root: Path, port: int) -> None:
    config = engine(root, port, preflight={}, gpus=[0, 1])
    for unit, uses, mib, stands in (
        (None, (2,), 9000, False),
        (None, (1,), 0, True),
        ("dcgm-exporter.service", (0, 1), 300, False),
        ("dcgm-exporter.service", (0, 1), 3000, True),
    ):
        looked = survey.Survey((facts(("x",), unit, uses, mib),), gpus.read(), 0)
        assert bool(list(run.in_the_way(config, HostConfig(), (), looked))) is stands, unit


def test_not_while_a_switch_is_under_way(
    root: Path, port: int, capsys: pytest.CaptureFixture[str]
) -> None:
    engine(root, port)
    with locked(Paths(), "tiny", "switch of tiny"):
        assert cli.main(["collective", "tiny"]) == 3
    assert "a switch of tiny runs on this host" in capsys.readouterr().err


def test_a_run_that_was_ended_at_its_limit_is_a_hang_with_what_is_left_on_the_gpus(
    root: Path, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = engine(root, port, preflight={})
    said = [{"step": "torch", "torch": "2"}, {"step": "begin", "arm": "configured", "world": 2}]
    ended = Ended(None, "".join(json.dumps(one) + "\n" for one in said).encode())
    busy = gpus.Gpu(**{**vars(CARDS[1]), "utilization_pct": 100, "power_limit_w": 600.0})
    monkeypatch.setattr(gpus, "sample", lambda: [CARDS[0], busy])
    monkeypatch.setattr(run, "SETTLE_S", 0.0)
    kept = run.measure(config, Paths(), run=lambda *_, **__: ended)
    assert kept.result.outcome == "hung" and kept.result.status == 4
    assert len(kept.wedged) == 1 and "GPU 1 is 100 % busy" in kept.wedged[0]
    assert kept.entry["key"]["driver"] == "580.1"


def test_what_is_kept_is_one_for_each_key_the_newest_last(root: Path) -> None:
    paths = Paths()
    for driver, time in (("1", "a"), ("2", "b"), ("1", "c")):
        collectives.store("tiny", {"time": time, "key": {"driver": driver}}, paths)
    assert [one["time"] for one in collectives.entries("tiny", paths)] == ["b", "c"]
    for number in range(20):
        collectives.store("tiny", {"time": "x", "key": {"driver": f"d{number}"}}, paths)
    assert len(collectives.entries("tiny", paths)) == collectives.KEPT
    for broken in (b"", b"[]", b'{"v": 2, "collective": [{}]}', b"[" * 10**6, b'{"v": 1}'):
        paths.collective("tiny").write_bytes(broken)
        assert collectives.newest("tiny", paths) is None


def test_what_differs_from_the_host_that_was_measured() -> None:
    topology = {"gpus": [{"uuid": "GPU-0", "path": "a"}], "links": []}
    entry = {"key": {"driver": "580.1", "nccl": "2", "topology": topology}}
    moved = {"gpus": [{"uuid": "GPU-0", "path": "b"}], "links": []}
    other = {"gpus": [{"uuid": "GPU-9", "path": "a"}], "links": []}
    same = ("580.1", "2.post1", topology)
    for now, told in (
        (same, []),
        (("590", None, topology), ["driver 580.1, now 590"]),
        (("580.1", "2.1", moved), ["another PCIe topology"]),
        (("580.1", "20", other), ["NCCL 2, now 20", "other GPUs"]),
    ):
        assert collectives.differences(entry, *now) == told
    assert collectives.differences({"key": 1}, *same) != []
