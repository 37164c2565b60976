"""Files as the safetensors library writes them, and folders of weights made of them."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors

SIZES = {"float32": 4, "bfloat16": 2, "uint8": 1, "int64": 8, "float8_e4m3fn": 1}


def content(tensors: Mapping[str, tuple[str, list[int]]], note: str = "") -> bytes:
    """The bytes of a file with these tensors: name -> (dtype, shape); their content is zeros."""
    kept: list[Any] = []
    specs: dict[str, Any] = {}
    for name, (dtype, shape) in tensors.items():
        length = SIZES[dtype]
        for size in shape:
            length *= size
        if not hasattr(safetensors, "TensorSpec"):  # 0.7 and older: all that Python 3.9 has
            specs[name] = {"dtype": dtype, "shape": shape, "data": bytes(length)}
            continue
        buffer = (ctypes.c_char * max(length, 1))()
        kept.append(buffer)
        specs[name] = safetensors.TensorSpec(
            dtype=dtype, shape=shape, data_ptr=ctypes.addressof(buffer), data_len=length
        )
    return bytes(safetensors.serialize(specs, {"format": "pt", "note": note} if note else None))


def shards(folder: Path, count: int = 3, rows: int = 4) -> list[str]:
    """A whole model of `count` files with an index; returns the files' names."""
    folder.mkdir(parents=True, exist_ok=True)
    names, weight_map = [], {}
    for number in range(1, count + 1):
        name = f"model-{number:05}-of-{count:05}.safetensors"
        tensors = {f"layers.{number}.{part}": ("bfloat16", [rows, 8]) for part in ("q", "k")}
        if number == 1:
            tensors["model.embed_tokens.weight"] = ("bfloat16", [32, 8])
        (folder / name).write_bytes(content(tensors))
        weight_map.update(dict.fromkeys(tensors, name))
        names.append(name)
    write(folder / "model.safetensors.index.json", {"metadata": {}, "weight_map": weight_map})
    write(folder / "config.json", {"architectures": ["LlamaForCausalLM"], "vocab_size": 32})
    write(folder / "tokenizer.json", {"model": {}})
    write(folder / "tokenizer_config.json", {"chat_template": "{{ messages }}"})
    return names


def write(path: Path, document: object) -> None:
    path.write_text(json.dumps(document), encoding="utf-8")
