"""Make a tiny model folder: right in form, six small shards, no meaning."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

SHARDS = 6
CONFIG: dict[str, Any] = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "max_position_embeddings": 2048,
    "vocab_size": 1024,
    "torch_dtype": "bfloat16",
}
TEMPLATE = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% endfor %}<|assistant|>"


def make(folder: Path, shards: int = SHARDS, **config: Any) -> Path:
    """Write the folder (config.json, tokenizer, shards, index); `config` overrides CONFIG."""
    folder.mkdir(parents=True, exist_ok=True)
    write(folder / "config.json", {**CONFIG, **config})
    write(folder / "generation_config.json", {"max_new_tokens": 64})
    write(folder / "tokenizer_config.json", {"chat_template": TEMPLATE, "model_max_length": 2048})
    write(folder / "tokenizer.json", {"version": "1.0", "model": {"type": "BPE", "vocab": {}}})
    weights = {}
    total = 0
    for number in range(1, shards + 1):
        name = f"model-{number:05d}-of-{shards:05d}.safetensors"
        tensor = f"model.layers.{number - 1}.weight"
        data = shard(tensor, number)
        (folder / name).write_bytes(data)
        weights[tensor] = name
        total += len(data)
    index = {"metadata": {"total_size": total}, "weight_map": weights}
    write(folder / "model.safetensors.index.json", index)
    return folder


def drafter(folder: Path, **config: Any) -> Path:
    """An EAGLE-3 drafter for it: one shard, the target's hidden size."""
    shape = {"architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama"}
    return make(folder, 1, **{**shape, "num_hidden_layers": 1, **config})


def shard(tensor: str, number: int, size: int = 65536) -> bytes:
    """A safetensors file with one tensor of `size` bytes."""
    entry = {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}
    header = json.dumps({tensor: entry}).encode()
    header += b" " * (-len(header) % 8)
    return struct.pack("<Q", len(header)) + header + bytes([number % 256]) * size


def write(path: Path, document: Any) -> None:
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    import sys

    make(Path(sys.argv[1]))
