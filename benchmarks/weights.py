"""How long `sglangctl weights` takes for 64 files of 547 GB: headers alone, from a cold cache.

python3 -m benchmarks.weights [--evidence]: the files are sparse, their headers are whole (1,437
tensors each, as Kimi-K2.5's 64 shards have). A cold cache is one that was told to forget them.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import evidence
from sglangctl.weights.check import check

SHARDS, TENSORS, BYTES = 64, 1437, 547_000_000_000
RUNS = 5
LIMIT_S = 2.0


def make(folder: Path) -> None:
    """The model: whole by its headers, empty in its tensors."""
    size = BYTES // SHARDS // TENSORS
    weight_map = {}
    for number in range(1, SHARDS + 1):
        name = f"model-{number:05}-of-{SHARDS:05}.safetensors"
        tensors = {
            f"model.layers.{number}.mlp.experts.{at}.down_proj.weight_packed": {
                "dtype": "U8",
                "shape": [size],
                "data_offsets": [at * size, (at + 1) * size],
            }
            for at in range(TENSORS)
        }
        header = json.dumps(tensors).encode()
        with open(folder / name, "wb") as file:
            file.write(len(header).to_bytes(8, "little") + header)
            file.truncate(8 + len(header) + TENSORS * size)
        weight_map.update(dict.fromkeys(tensors, name))
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    (folder / "config.json").write_text('{"architectures": ["KimiK25ForConditionalGeneration"]}')
    (folder / "tokenizer.json").write_text("{}")


def forget(folder: Path) -> None:
    """Take the files out of the page cache."""
    for path in folder.iterdir():
        descriptor = os.open(path, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def main(arguments: list[str]) -> int:
    wanted = evidence.asked(arguments)
    took = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make(folder)
        os.sync()
        for _ in range(RUNS):
            forget(folder)
            began = time.perf_counter()
            model = check(folder)
            took.append(round(time.perf_counter() - began, 3))
            assert model.complete and model.tensors == SHARDS * TENSORS, model.findings
    figures = {
        "files": SHARDS,
        "gigabytes": round(model.bytes / 1e9),
        "tensors": model.tensors,
        "seconds": took,
        "median_s": statistics.median(took),
        "limit_s": LIMIT_S,
    }
    evidence.keep("weights", figures, wanted)
    return 0 if figures["median_s"] < LIMIT_S else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
