"""What the proof adds to a start, and how soon a repeated request starts after `ready`.

    python3 -m benchmarks.warm [--evidence]

The real engine on the processor, in a container host. Its second start is the one that is measured: the
first one fills its caches. Seconds from `serving` to `ready`, by the journal's own clock, with those of
each path that the proof walks; then ROUNDS requests that the proof has already made, streamed, from the
request to the first text. Limits: the proof 10 s, a request 1 s. Exit status 1 over a limit.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import evidence
from tests.container.real_engine import RealEngine, prepared
from tests.hosts.host import Host

ROUNDS = 10
PROOF_S, REQUEST_S = 10.0, 1.0
AGAIN = f"""
import json, time, urllib.request
request = urllib.request.Request("http://127.0.0.1:8000/v1/chat/completions", json.dumps({{
    "model": "tiny", "max_tokens": 4, "stream": True,
    "messages": [{{"role": "user", "content":
                  "Name the capital of France and say one sentence about it."}}],
}}).encode(), {{"Content-Type": "application/json"}})
taken = []
for _ in range({ROUNDS}):
    began = time.monotonic()
    with urllib.request.urlopen(request, timeout=60) as answer:
        for line in answer:
            if b'"content"' in line:
                taken.append(round(time.monotonic() - began, 3))
                break
print(json.dumps(taken))
"""
"""One of the proof's own prompts, again; run on the host."""


def measured(host: Host, folder: Path) -> dict[str, Any]:
    engine = RealEngine(host, folder)
    for first in (True, False):
        if not first:
            engine.stop()
        engine.configure()  # without the start before, whose journal says ready
        engine.start()
        ready = engine.until("ready")
    seen = [one["t"] for one in engine.verdicts() if one["outcome"] == "serving"]
    (proof,) = [one for one in engine.events() if one["kind"] == "generate"]
    return {
        "start_s": ready["t"],
        "proof_s": round(ready["t"] - seen[0], 2) if seen else None,
        "paths": proof["warm"]["paths"],
        "requests_s": json.loads(host.exec("python3", "-c", AGAIN).stdout),
    }


def main() -> int:
    wanted = evidence.asked(sys.argv)
    host = Host.create(f"sglang-bench-{os.getpid()}", image="engine")
    try:
        prepared(host)
        with tempfile.TemporaryDirectory(prefix="warm-") as folder:
            found = measured(host, Path(folder))
    finally:
        host.remove()
    limits = {"proof_s": PROOF_S, "requests_s": REQUEST_S}
    evidence.keep("warm", {**found, "limits_s": limits}, wanted)
    proof = found["proof_s"]
    return int(proof is None or proof > PROOF_S or max(found["requests_s"]) > REQUEST_S)


if __name__ == "__main__":
    sys.exit(main())
