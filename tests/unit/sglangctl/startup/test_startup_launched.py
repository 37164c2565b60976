"""What was launched: from the event, its argv, and the engine's own server_args line."""

from __future__ import annotations

from typing import Any

import pytest

from sglangctl.startup.fold import Startup
from sglangctl.startup.launched import Launched
from tests.support.startup_events import feed, launch, log

NEW = (
    "server_args={'model_path': '/models/m', 'tokenizer_path': '/models/t', 'port': 31000, "
    "'served_model_name': 'kimi', 'tp_size': 4, 'pp_size': 2, 'speculative_algorithm': 'EAGLE3', "
    "'speculative_draft_model_path': '/models/d', 'draft_port': 9}"
)
OLD = (
    "server_args=ServerArgs(model_path='/models/m', tokenizer_path='/models/t', port=31000, "
    "served_model_name='kimi', tp_size=4, pp_size=2, speculative_algorithm='EAGLE3', "
    "speculative_draft_model_path='/models/d', draft_port=9)"
)


@pytest.mark.parametrize("line", [NEW, OLD], ids=["0.5.23", "0.5.16"])
def test_the_engines_own_account(line: str) -> None:
    startup = Startup()
    feed(startup, {"t": 0, "kind": "launch"}, log(20, line))
    launched = startup.launched
    assert (launched.model, launched.tokenizer, launched.port) == ("/models/m", "/models/t", 31000)
    assert (launched.served_name, launched.world) == ("kimi", 8)
    assert (launched.algorithm, launched.drafter_path) == ("EAGLE3", "/models/d")
    assert launched.drafter and launched.speculative


def test_what_is_known_already_goes_before_it() -> None:
    startup = Startup()
    feed(startup, launch(served_name="ours", tensor_parallel=2), log(20, OLD))
    assert (startup.launched.served_name, startup.launched.port) == ("ours", 30000)
    assert startup.launched.tensor_parallel == 2


def test_absent_values_stay_absent() -> None:
    launched = Launched()
    launched.server_args("server_args={'speculative_algorithm': None, 'tp_size': 1}")
    assert (launched.algorithm, launched.drafter, launched.tensor_parallel) == (None, False, 1)


@pytest.mark.parametrize(
    ("argv", "found"),
    [
        (["--tp-size", "8"], 8),
        (["--tensor-parallel-size=8"], 8),
        (["--tp", "8", "--pp-size", "2"], 16),
        (["--tp-size", "eight"], None),
        (["--tp-size"], None),
        (["--tp-size", "-3"], None),
    ],
)
def test_argv(argv: list[str], found: int | None) -> None:
    launched = Launched()
    launched.event({"argv": ["python", "-m", "sglang.launch_server", *argv]})
    assert launched.world == found


@pytest.mark.parametrize(
    ("argv", "other"),
    [
        (["/venv/bin/python", "/venv/bin/vllm", "serve", "/m"], True),
        (["vllm", "serve", "/m"], True),
        (["python", "-m", "vllm.entrypoints.openai.api_server"], True),
        (["python", "-m", "sglang.launch_server", "--model-path", "/models/vllm"], False),
        (["sglang", "serve", "/models/vllm"], False),
        ([], False),
        ("vllm", False),
    ],
)
def test_other_engines(argv: Any, other: bool) -> None:
    launched = Launched()
    launched.event({"argv": argv})
    assert launched.other_engine is other


def test_values_of_a_wrong_kind_are_absent() -> None:
    launched = Launched()
    launched.event(
        {
            "argv": [None, 3, "--port", {}],
            "port": True,
            "drafter": ["x"],
            "served_name": 5,
            "weights_bytes": {"target": "big", "drafter": -1},
            "history": {"loading": float("nan"), "importing": -3},
            "min_accept_length": "high",
        }
    )
    assert launched == Launched()
