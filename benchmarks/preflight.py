"""How long the gate `before` takes on a host with eight GPUs and 64 files of 547 GB, in one program.
Run as root:

python3 -m benchmarks.preflight [rounds, default 10] [--evidence]

The program is the zipapp, as a deploy runs it. NVML is a stand-in, compiled here, that answers for
eight GPUs; a real driver takes its own time beside. Three ways: from a cold cache; with the weights'
headers in the cache; and with a model that is remembered, as on a deploy that changes nothing.
`bare` is the same probe without a preflight. Prints one JSON object; the limit is 5 s.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks import evidence, weights
from roles.remote import program

LIMIT_S = 5.0
NVML = """
#include <string.h>
typedef struct { char legacy[16]; unsigned domain, bus, device, id, sub; char bus_id[32]; } pci_t;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } memory_t;
#define INDEX(h) ((int)((long)(h) - 1))
#define NUMBER(name, value) \\
    int nvmlDeviceGet##name(void *h, unsigned *n) { *n = (value); return 0; }
int nvmlInit_v2(void) { return 0; }
const char *nvmlErrorString(int code) { return "error"; }
int nvmlSystemGetDriverVersion(char *s, unsigned n) { strncpy(s, "580.95.05", n); return 0; }
int nvmlDeviceGetCount_v2(unsigned *n) { *n = 8; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **h) { *h = (void *)(i + 1L); return 0; }
int nvmlDeviceGetName(void *h, char *s, unsigned n) {
    strncpy(s, "NVIDIA RTX PRO 6000 Blackwell Server Edition", n);
    return 0;
}
int nvmlDeviceGetUUID(void *h, char *s, unsigned n) {
    strncpy(s, "GPU-0", n);
    s[4] += INDEX(h);
    return 0;
}
int nvmlDeviceGetPciInfo_v3(void *h, pci_t *p) {
    strcpy(p->bus_id, "00000000:01:00.0");
    p->bus_id[10] += INDEX(h);
    return 0;
}
int nvmlDeviceGetCudaComputeCapability(void *h, int *major, int *minor) {
    *major = 12;
    *minor = 0;
    return 0;
}
int nvmlDeviceGetMemoryInfo_v2(void *h, memory_t *m) {
    m->total = 97887ULL << 20;
    m->free = m->total;
    m->used = 0;
    return 0;
}
int nvmlDeviceGetComputeRunningProcesses_v3(void *h, unsigned *n, void *rows) { *n = 0; return 0; }
int nvmlDeviceGetTopologyCommonAncestor(void *a, void *b, int *level) {
    *level = INDEX(a) / 4 == INDEX(b) / 4 ? 40 : 50;
    return 0;
}
int nvmlDeviceGetP2PStatus(void *a, void *b, int which, int *s) { *s = which == 0 ? 0 : 5; return 0; }
int nvmlDeviceGetEccMode(void *h, unsigned *now, unsigned *next) { *now = *next = 1; return 0; }
int nvmlDeviceGetMigMode(void *h, unsigned *now, unsigned *next) { *now = *next = 0; return 0; }
int nvmlDeviceGetRemappedRows(void *h, unsigned *a, unsigned *b, unsigned *c, unsigned *d) {
    *a = *b = *c = *d = 0;
    return 0;
}
NUMBER(MinorNumber, INDEX(h))
NUMBER(PersistenceMode, 1)
NUMBER(DisplayActive, 0)
NUMBER(PowerUsage, 80000)
NUMBER(EnforcedPowerLimit, 600000)
NUMBER(PowerManagementDefaultLimit, 600000)
NUMBER(CurrPcieLinkWidth, 16)
NUMBER(MaxPcieLinkWidth, 16)
NUMBER(MaxPcieLinkGeneration, 5)
NUMBER(GpuMaxPcieLinkGeneration, 5)
"""
CONFIG = {
    "architectures": ["KimiK25ForConditionalGeneration"],
    "text_config": {
        **{"num_hidden_layers": 61, "num_attention_heads": 64, "vocab_size": 163840},
        **{"kv_lora_rank": 512, "qk_rope_head_dim": 64, "max_position_embeddings": 262144},
    },
}


def engine(model: Path) -> dict[str, Any]:
    """As an inventory has it, of a user that every host has."""
    return {
        **{"v": 1, "name": "kimi", "unit": "sglang-kimi.service", "user": "root", "port": 8000},
        **{"listen": "127.0.0.1", "model": str(model), "served_name": "kimi"},
        **{"version": "0.5.23", "tensor_parallel": 8, "preflight": {"mem_fraction": 0.94}},
    }


class Program:
    """The program on a root of its own, with eight GPUs."""

    def __init__(self, folder: Path) -> None:
        source, self.archive = folder / "nvml.c", folder / "sglangctl.pyz"
        source.write_text(NVML)
        library = folder / "libnvidia-ml.so.1"
        subprocess.run(["cc", "-shared", "-fPIC", "-w", "-o", library, source], check=True)
        self.archive.write_bytes(program.archive())
        (folder / "root").mkdir()
        self.environment = {
            **os.environ,
            "LD_LIBRARY_PATH": str(folder),
            "SGLANGCTL_ROOT": str(folder / "root"),
        }

    def probe(self, request: dict[str, Any]) -> tuple[float, dict[str, Any]]:
        """Seconds, and the document."""
        argv = [sys.executable, "-I", "-S", str(self.archive), "probe", "--request"]
        began = time.perf_counter()
        done = subprocess.run(
            [*argv, json.dumps(request)], env=self.environment, capture_output=True, check=True
        )
        return round(time.perf_counter() - began, 3), json.loads(done.stdout)

    def remember(self, model: Path) -> None:
        """As the gate `staged` does once a model was found complete."""
        argv = [sys.executable, "-I", "-S", str(self.archive), "weights", "--user", "root"]
        subprocess.run([*argv, str(model)], env=self.environment, check=True, capture_output=True)


def main(arguments: list[str]) -> int:
    wanted = evidence.asked(arguments)
    rounds = int(arguments[0]) if arguments else 10
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = folder / "model"
        model.mkdir()
        weights.make(model)
        (model / "config.json").write_text(json.dumps(CONFIG))
        (model / "chat_template.jinja").write_text("{{ messages }}")
        os.sync()
        ours = Program(folder)
        bare = {"engine_configs": [engine(model)], "plan": ["kimi"]}
        full = {**bare, "preflight": ["kimi"]}
        took: dict[str, list[float]] = {"bare": [], "cold": [], "warm": [], "remembered": []}
        for _ in range(rounds):
            weights.forget(model)
            took["bare"].append(ours.probe(bare)[0])
            took["cold"].append(ours.probe(full)[0])
            seconds, document = ours.probe(full)
            took["warm"].append(seconds)
        ours.remember(model)
        for _ in range(rounds):
            seconds, again = ours.probe(full)
            took["remembered"].append(seconds)
    found = document["preflight"]["kimi"]
    assert found is not None, document["reasons"]
    assert len(document["gpus"]) == 8 and again["preflight"]["kimi"] == found
    medians = {way: statistics.median(seconds) for way, seconds in took.items()}
    figures = {
        "seconds": took,
        "median_s": medians,
        "no_op_extra_s": round(medians["remembered"] - medians["bare"], 3),
        "findings": {one["id"]: one["level"] for one in found},
        "limit_s": LIMIT_S,
    }
    evidence.keep("preflight", figures, wanted)
    return 0 if medians["cold"] < LIMIT_S else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
