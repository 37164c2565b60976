"""Do an engine's answers tell a broken one from another configuration of the same weights?

    python3 -m benchmarks.canaries [--evidence]

The real engine on the processor, in a container host. It answers the canaries ROUNDS times, half of them with
other requests beside. Then it is started again in other configurations of the same weights, and with weights
that were changed; each weighs those answers. No alarm is right for the former, an alarm for the latter, in every
round. Beside them, a quantisation that is sound, with no verdict: what it costs. The answers have all the
time that they need here: how fast this machine is, is not the question. The tiny model gets six prompts more, which
it answers with words at random: near ties, which another configuration turns.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks import evidence
from sglangctl.engine import canaries
from sglangctl.engine.canaries import Agreement, Answer
from sglangctl.engine.http import Endpoint, ask
from sglangctl.engine.kinds import CHATTING
from tests.container.real_engine import VENV, prepared
from tests.hosts.host import Host

ROUNDS = 4
CHANGED_ROUNDS = 2
"""With changed weights: what an engine makes of an answer does not vary."""
MODEL = "/models/tiny-qwen3"
PORT = 8000
START_S = 400.0
LIMIT_S = 600.0
FLAGS = (
    "--model-impl=transformers",
    "--device=cpu",
    "--attention-backend=torch_native",
    "--disable-cuda-graph",
    "--max-total-tokens=8192",
    "--served-model-name=tiny",
    "--host=0.0.0.0",
    f"--port={PORT}",
)
ASKED = (
    "What is the capital of France?",
    "Why does the river run south in winter?",
    "Who took the long road home?",
    "Name five things on the old table.",
    "When will the children come?",
    "How far is it to the sea?",
)
"""As the tiny model was trained: it answers with sentences of words at random, full of near ties."""
CHAT = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"
SAME: dict[str, tuple[str, ...]] = {
    "float32": ("--dtype=float32",),
    "chunks of 16 tokens, no radix cache": ("--chunked-prefill-size=16", "--disable-radix-cache"),
}
SOUND = ("fp8",)
BROKEN = ("other", "int2")
CHANGE = """
import shutil, sys, glob, torch
from safetensors.torch import load_file, save_file
how, source, target = sys.argv[1:]
shutil.copytree(source, target)
torch.manual_seed(7)
def rounded(w, bits):
    most = 2 ** (bits - 1) - 1
    scale = w.abs().amax(dim=1, keepdim=True) / most
    return torch.where(scale > 0, (w / scale).round().clamp(-most - 1, most) * scale, w)
for path in glob.glob(target + "/*.safetensors"):
    found = load_file(path)
    for name, w in list(found.items()):
        inside = ".layers." in name and w.dim() == 2
        f = w.float()
        if how == "other": f = f[torch.randperm(f.shape[0])] if inside else f
        if how == "int2" and inside: f = rounded(f, 2)
        if how == "fp8" and inside: f = f.to(torch.float8_e4m3fn).float()
        found[name] = f.to(w.dtype).contiguous()
    save_file(found, path, metadata={"format": "pt"})
"""


@contextmanager
def engine(host: Host, model: str, *flags: str) -> Iterator[Endpoint]:
    """The real engine in the host, serving."""
    unit = "canaries.service"
    start = ("systemd-run", f"--unit={unit}", "--collect", "--quiet", "--setenv=HF_HUB_OFFLINE=1")
    run = (f"{VENV}/bin/python", "-m", "sglang.launch_server", f"--model-path={model}")
    host.exec(*start, *run, *FLAGS, *flags)
    where = Endpoint(host.ip, PORT)
    try:
        end = time.monotonic() + START_S
        while ask(where, "/health", 10.0).status != 200:
            if time.monotonic() > end:
                raise SystemExit(host.exec("journalctl", "-u", unit, "-n", "40").stdout)
            time.sleep(1.0)
        yield where
    finally:
        host.exec("systemctl", "stop", unit, check=False)


@contextmanager
def busy(where: Endpoint, wanted: bool) -> Iterator[None]:
    """Others use the engine meanwhile, where `wanted`."""
    over = threading.Event()

    def use() -> None:
        number = 0
        while not over.is_set():
            number += 1
            request = CHATTING.request("tiny", f"Story {number}.", 24, ignore_eos=True)
            CHATTING.send_together(where, [request, request], 30.0)

    others = threading.Thread(target=use, daemon=True)
    if wanted:
        others.start()
    try:
        yield
    finally:
        over.set()
        if wanted:
            others.join()


def weighed(where: Endpoint, answers: list[tuple[Answer, ...]]) -> dict[str, Any]:
    """What an engine makes of the answers of each round."""
    found: list[Agreement] = []
    for number, before in enumerate(answers):
        with busy(where, number % 2 == 1):
            found.append(canaries.compare(where, before, True, LIMIT_S))
    for one in found:
        print(f"     {one.said()}; own {one.own_nats}, lost {one.lost_nats}; {one.differences()}")
    print(flush=True)
    assert all(one.fault is None for one in found), [one.fault for one in found]
    return {
        "rounds": len(found),
        "alarms": sum(bool(one.differences()) for one in found),
        "answers_alike": min(one.alike for one in found),
        "cost_nats": max(one.cost_nats or 0.0 for one in found),
        "own_nats": max(one.own_nats or 0.0 for one in found),
        "lost_nats": max(abs(one.lost_nats or 0.0) for one in found),
    }


def main() -> int:
    wanted = evidence.asked(sys.argv)
    canaries.PROMPTS = (*canaries.PROMPTS, *map(CHAT.format, ASKED))
    host = Host.create(f"sglang-bench-{os.getpid()}", image="engine")
    try:
        prepared(host)
        for how in (*SOUND, *BROKEN):
            host.exec("python3", "-c", CHANGE, how, MODEL, f"/models/{how}", timeout=120)
        answers: list[tuple[Answer, ...]] = []
        with engine(host, MODEL) as where:
            for number in range(ROUNDS):
                began = time.monotonic()
                with busy(where, number % 2 == 0):
                    made, fault = canaries.record(where, "tiny", True, True, LIMIT_S)
                assert fault is None, fault
                answers.append(made)
                print(f"{time.monotonic() - began:.1f} s", [one.text for one in made], flush=True)
        result: dict[str, dict[str, Any]] = {"same": {}, "sound": {}, "broken": {}}
        for name, flags in SAME.items():
            print(name, flush=True)
            with engine(host, MODEL, *flags) as where:
                result["same"][name] = weighed(where, answers)
        for kind, names in (("sound", SOUND), ("broken", BROKEN)):
            for name in names:
                print(name, flush=True)
                with engine(host, f"/models/{name}") as where:
                    result[kind][name] = weighed(where, answers[:CHANGED_ROUNDS])
    finally:
        host.remove()
    figures = {"limit_nats": canaries.LIMIT_NATS, **result}
    evidence.keep("canaries", figures, wanted)
    false = sum(one["alarms"] for one in result["same"].values())
    told = all(one["alarms"] == one["rounds"] for one in result["broken"].values())
    return 0 if told and not false else 1


if __name__ == "__main__":
    sys.exit(main())
