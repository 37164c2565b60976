"""What the real engine reads of a model folder, checked for real."""

from __future__ import annotations

import json
import os
import struct
from typing import Any

from sglang._standin.errors import SCHEDULER, LauncherError, RankError
from sglang._standin.log import VERSION

ARCHITECTURES = [
    "Qwen2ForCausalLM",
    "Qwen3ForCausalLM",
    "Qwen3MoeForCausalLM",
    "LlamaForCausalLM",
    "LlamaForCausalLMEagle",
    "LlamaForCausalLMEagle3",
    "MistralForCausalLM",
    "GPT2LMHeadModel",
    "DeepseekV3ForCausalLM",
    "KimiK25ForConditionalGeneration",
    "GptOssForCausalLM",
]
MODEL_TYPES = ["qwen", "llama", "mistral", "gpt", "deepseek", "kimi"]
TOKENIZERS = ["tokenizer.json", "tokenizer.model", "vocab.json", "tiktoken.model"]
MAX_HEADER = 100_000_000


def resolve(path: str) -> dict[str, Any]:
    """config.json of a model folder; LauncherError in the words of the real libraries."""
    if not os.path.isdir(path):
        if os.path.isabs(path) or path.count("/") != 1:
            raise LauncherError(
                "OSError: Repo id must be in the form 'repo_name' or 'namespace/repo_name': "
                f"'{path}'. Use `repo_type` argument if needed."
            )
        raise LauncherError(
            "OSError: We couldn't connect to 'https://huggingface.co' to load the files, and "
            "couldn't find them in the cached files.\nCheck your internet connection or see how "
            "to run the library in offline mode at 'https://huggingface.co/docs/transformers/"
            "installation#offline-mode'."
        )
    file = os.path.join(path, "config.json")
    if not os.path.exists(file):
        raise LauncherError(
            f"OSError: {path} does not appear to have a file named config.json. Checkout "
            f"'https://huggingface.co/{path}/tree/main' for available files."
        )
    try:
        with open(file, encoding="utf-8") as handle:
            config: dict[str, Any] = json.load(handle)
    except ValueError:
        raise LauncherError(
            f"OSError: It looks like the config file at '{file}' is not a valid JSON file."
        ) from None
    return config


def check(path: str, trust_remote_code: bool) -> dict[str, Any]:
    """The launcher's own checks of the target model: configuration and tokenizer."""
    config = resolve(path)
    if config.get("auto_map") and not trust_remote_code:
        raise LauncherError(
            f"ValueError: The repository {path} contains custom code which must be executed to "
            "correctly load the model. You can inspect the repository content at "
            f"{path} .\n You can inspect the repository content at https://hf.co/{path}.\n"
            "Please pass the argument `trust_remote_code=True` to allow custom code to be run."
        )
    kind = str(config.get("model_type", "qwen3"))
    if not any(kind.startswith(known) for known in MODEL_TYPES) and not config.get("auto_map"):
        raise LauncherError(
            f"ValueError: The checkpoint you are trying to load has model type `{kind}` but "
            "Transformers does not recognize this architecture."
        )
    hidden, heads = config.get("hidden_size"), config.get("num_attention_heads")
    if hidden and heads and hidden % heads:
        raise LauncherError(
            "huggingface_hub.errors.StrictDataclassClassValidationError: Class validation error "
            "for validator 'validate_architecture':\n"
            f"    ValueError: The hidden size ({hidden}) is not a multiple of the number of "
            f"attention heads ({heads})."
        )
    return config


def check_tokenizer(path: str) -> None:
    """LauncherError when the folder has no tokenizer."""
    if not any(os.path.exists(os.path.join(path, name)) for name in TOKENIZERS):
        raise LauncherError(
            f"OSError: Can't load tokenizer for '{path}'. If you were trying to load it from "
            "'https://huggingface.co/models', make sure you don't have a local directory with the "
            f"same name. Otherwise, make sure '{path}' is the correct path to a directory "
            "containing all relevant files for a Qwen2TokenizerFast tokenizer."
        )


def architecture(config: dict[str, Any]) -> str:
    """The model class; RankError for one that the engine does not know."""
    name = str((config.get("architectures") or ["Qwen3ForCausalLM"])[0])
    if name not in ARCHITECTURES:
        raise RankError(SCHEDULER["unsupported-model"][1].format(detail=name))
    return name


def shards(path: str) -> list[str]:
    """The weight files that the index names, else those that are there."""
    index = os.path.join(path, "model.safetensors.index.json")
    there = sorted(name for name in os.listdir(path) if name.endswith(".safetensors"))
    if os.path.exists(index):
        with open(index, encoding="utf-8") as file:
            listed = sorted(set(json.load(file)["weight_map"].values()))
        missing = [name for name in listed if name not in there]
        # Older versions served random values in place of the lost layers.
        if missing and VERSION >= (0, 5, 20):
            raise RankError(
                SCHEDULER["weights-missing"][1].format(
                    detail=f"model.safetensors.index.json references {len(missing)} shard file(s) "
                    f"missing from {path}: {missing}"
                )
            )
        there = [name for name in listed if name in there]
    if not there:
        raise RankError(
            SCHEDULER["weights-missing"][1].format(
                detail=f"Cannot find any model weights with `{path}`"
            )
        )
    return [os.path.join(path, name) for name in there]


def read_shard(file: str) -> int:
    """Read a whole safetensors file and check its header; returns its bytes."""
    try:
        with open(file, "rb") as handle:
            data = handle.read()
    except PermissionError:
        # The real library says this of a file that exists but may not be read.
        raise RankError(SCHEDULER["weights-unreadable"][1].format(detail=f'"{file}"')) from None
    problem = header_problem(data)
    if problem:
        raise RankError(SCHEDULER["weights-corrupt"][1].format(detail=problem))
    return len(data)


def header_problem(data: bytes) -> str | None:
    """What is wrong with the header of a safetensors file; None when it is sound."""
    if len(data) < 8:
        return "header too small"
    size = struct.unpack("<Q", data[:8])[0]
    if size > MAX_HEADER:
        return "header too large"
    if 8 + size > len(data):
        return "invalid header length"
    try:
        header = json.loads(data[8 : 8 + size])
    except ValueError:
        return "invalid header"
    header.pop("__metadata__", None)
    end = max((tensor["data_offsets"][1] for tensor in header.values()), default=0)
    if 8 + size + end != len(data):
        return "incomplete metadata, file not fully covered"
    return None
