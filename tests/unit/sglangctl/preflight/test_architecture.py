"""The model's architecture against the installed SGLang's model files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sglangctl.preflight import architecture, model
from sglangctl.preflight.architecture import MODELS
from sglangctl.state.paths import Paths
from tests.support.engine_config import ENGINE
from tests.support.safetensors_files import shards, write

LLAMA = """\
class LlamaForCausalLM(nn.Module):
    pass


class Phi3ForCausalLM(LlamaForCausalLM):
    pass


EntryClass = [LlamaForCausalLM, Phi3ForCausalLM]
"""


@pytest.mark.parametrize(
    ("config", "found"),
    [
        ({"architectures": ["Phi3ForCausalLM"]}, 0),
        ({"architectures": ["Phi4ForCausalLM"]}, 1),
        ({"architectures": ["Phi3ForCausal"]}, 1),
        ({"architectures": [".*"]}, 0),
        ({"architectures": []}, 0),
        ({"architectures": "Phi4ForCausalLM"}, 0),
        ({}, 0),
    ],
)
def test_an_architecture(config: dict[str, Any], found: int) -> None:
    told = list(architecture.judge([("/m", config)], LLAMA, "/venv"))
    assert [one.level for one in told] == ["warn"] * found
    assert not list(architecture.judge([("/m", config)], "", "/venv"))


def test_the_first_folder_with_models_counts(tmp_path: Path) -> None:
    for name, text in (("a", ""), ("b", LLAMA), ("c", "class Other: ...")):
        folder = tmp_path / name / MODELS / "more"
        folder.mkdir(parents=True)
        if text:
            (folder / "llama.py").write_text(text)
    found = architecture.source_of([tmp_path / "none", *(tmp_path / name for name in "abc")])
    assert "Phi3ForCausalLM" in found and "Other" not in found


def test_an_engine_s_model_and_drafter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shards(tmp_path / "model")
    write(tmp_path / "model/config.json", {"architectures": ["NewForCausalLM"]})
    engine = replace(ENGINE, user="root", model=str(tmp_path / "model"))
    looked = model.look(engine, Paths(tmp_path))
    assert not list(architecture.look(looked, str(tmp_path / "venv")))  # no environment
    site = tmp_path / "venv/lib/python3.12/site-packages"
    (site / MODELS).mkdir(parents=True)
    (site / MODELS / "llama.py").write_text(LLAMA)

    class Found:
        path = (site,)

    monkeypatch.setattr(architecture.venvs, "load", lambda path: Found)
    (one,) = architecture.look(looked, str(tmp_path / "venv"))
    assert "NewForCausalLM" in one.seen and one.id == "model-architecture"
