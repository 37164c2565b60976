"""What config.json promises of the tensors: as far as names and shapes can tell. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sglangctl.diagnosis.finding import WARN, Finding
from sglangctl.util.values import mapping, text, whole
from sglangctl.weights.safetensors import Header, shown

EMBEDDINGS = ("embed_tokens.weight", "word_embeddings.weight", "wte.weight")
"""How the input embedding is called in Llama's, BLOOM's and GPT-2's families."""
QUANTISED = {
    "gptq": (".qweight",),
    "awq": (".qweight",),
    "compressed-tensors": (".weight_packed", ".weight_scale"),
    "fp8": (".weight_scale_inv", ".weight_scale", ".input_scale"),
    "modelopt": (".weight_scale", ".input_scale"),
}
"""quant_method -> ends of tensor names of which at least one kind is there."""


def unmet(config: dict[str, Any], headers: Iterable[Header]) -> list[Finding]:
    """Warnings, not failures: an engine may read a config in ways that are not known here."""
    tensors = {name: shape for header in headers for name, shape in header.tensors.items()}
    if not tensors:
        return []
    return [
        *_vocabulary(config, tensors),
        *_quantisation(config, tensors),
        *_draft_vocabulary(config, tensors),
    ]


def _vocabulary(config: dict[str, Any], tensors: dict[str, tuple[int, ...]]) -> Iterable[Finding]:
    size = whole(mapping(config.get("text_config")).get("vocab_size", config.get("vocab_size")))
    rows = [shape[0] for name, shape in tensors.items() if name.endswith(EMBEDDINGS) and shape]
    if size is not None and rows and size not in rows:
        yield Finding(
            "weights-config",
            WARN,
            f"config.json says vocab_size {size}, the embedding has {rows[0]} rows",
            "take config.json and weights from the same revision",
        )


def _draft_vocabulary(
    config: dict[str, Any], tensors: dict[str, tuple[int, ...]]
) -> Iterable[Finding]:
    """An EAGLE-3 drafter with a vocabulary of its own says by d2t which tokens of the model its are;
    without it SGLang takes their numbers as the model's."""
    section = {**config, **mapping(config.get("text_config"))}
    own, models = whole(section.get("draft_vocab_size")), whole(section.get("vocab_size"))
    if own is None or models is None or own == models:
        return
    rows = [shape for name, shape in tensors.items() if name.rpartition(".")[2] == "d2t"]
    if not rows:
        found = "no tensor d2t says which tokens of the model they are"
    elif rows[0] != (own,):
        found = f"the tensor d2t has the shape {list(rows[0])}"
    else:
        return
    yield Finding(
        "weights-config",
        WARN,
        f"config.json says draft_vocab_size {own} of {models}, and {found}",
        "take config.json and weights from the same revision",
    )


def _quantisation(config: dict[str, Any], tensors: dict[str, tuple[int, ...]]) -> Iterable[Finding]:
    section = config.get("quantization_config") or mapping(config.get("text_config")).get(
        "quantization_config"
    )
    method = text(mapping(section).get("quant_method"))
    ends = QUANTISED.get(method or "")
    if ends and not any(name.endswith(ends) for name in tensors):
        yield Finding(
            "weights-config",
            WARN,
            f"config.json says {shown(method or '')}, and no tensor is quantised that way",
            "take config.json and weights from the same revision",
        )
