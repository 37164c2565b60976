"""The real vLLM on a processor, as somebody else's unit: killed the bad way, and completely gone.

What `sglangctl free` did is kept: set SGLANG_EVIDENCE to a folder to have its journal there.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from tests.container import real_vllm
from tests.container.freeing import Freeing
from tests.hosts.host import Host

pytestmark = [pytest.mark.real, pytest.mark.container, pytest.mark.timeout(3600)]

# The device is the main process's own: a processor has none, and it shall be a holder.
COMMAND = f"/bin/bash -c 'exec 9<>/dev/nvidia0; exec {real_vllm.SERVE}'"
MORE = "KillMode=process\nRestart=no"
MANNERS = ("kill -9 of the main process", "SIGSTOP of EngineCore")


@pytest.fixture(scope="module")
def box(module_host_factory) -> Freeing:
    host: Host = module_host_factory("vllm", image="engine", gpus=1)
    made = Freeing.prepare(host)
    real_vllm.install(host, COMMAND, MORE)
    return made


def titles(box: Freeing) -> dict[int, str]:
    """The unit's processes by pid."""
    return {
        pid: box.sh(f"tr '\\0' ' ' < /proc/{pid}/cmdline", check=False)
        for pid in box.pids("vllm-kimi.service")
    }


@pytest.mark.parametrize("manner", MANNERS)
def test_started_as_a_unit_treated_badly_and_completely_gone(box: Freeing, manner: str) -> None:
    box.configure(limits={"stop_units_s": 20.0, "term_s": 5.0, "kill_s": 10.0})
    real_vllm.start(box.host)
    before = titles(box)
    assert any(title.startswith("VLLM::EngineCore") for title in before.values()), before
    segments = box.sh("ls /dev/shm").split()
    main = int(box.show("vllm-kimi.service", "MainPID"))
    assert box.holders("--engine", "kimi")[main]["class"] == "replaced"
    if manner == MANNERS[0]:
        box.sh(f"kill -9 {main}")
        while box.show("vllm-kimi.service", "ActiveState") == "active":
            time.sleep(0.1)
        time.sleep(2)
        orphans = titles(box)
        # As measured: EngineCore and the worker live on, with gigabytes.
        assert any("VLLM::" in title for title in orphans.values()), orphans
    else:
        core = next(pid for pid, title in before.items() if title.startswith("VLLM::EngineCore"))
        box.sh(f"kill -STOP {core}")
        orphans = before
    result = box.free()
    assert result["verdict"] == "free"
    assert box.pids("vllm-kimi.service") == []
    assert not [pid for pid in {**before, **orphans} if box.alive(pid)]
    assert not box.sh("ss -Hltn sport = :8000").strip()
    assert box.show("vllm-kimi.service", "UnitFileState") == "disabled"
    assert box.holders() == {}
    journal = box.sh("cat $(ls -t /var/lib/sglangctl/kimi/frees/*.jsonl | head -1)")
    record = {
        "v": 1,
        "manner": manner,
        "processes_before": before,
        "processes_left": orphans,
        "segments_before": segments,
        "segments_after": box.sh("ls /dev/shm").split(),
        "result": result,
        "journal": [json.loads(line) for line in journal.splitlines()],
    }
    if os.environ.get("SGLANG_EVIDENCE"):
        name = f"free-vllm-{MANNERS.index(manner) + 1}.json"
        Path(os.environ["SGLANG_EVIDENCE"], name).write_text(json.dumps(record, indent=1) + "\n")
