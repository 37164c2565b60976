"""What a deploy loads on the controller: each run pays for it, also one with nothing to do."""

from __future__ import annotations

import subprocess
import sys

ONLY_ON_A_HOST = (
    *("sglangctl.switch.measuring", "sglangctl.switch.transaction", "sglangctl.engine.generate"),
    *("sglangctl.watch.recorder", "sglangctl.probe.document"),
)


def test_a_deploy_does_not_load_what_only_a_host_runs() -> None:
    script = "import sys, roles.entry.hosts, roles.stages; print(*sys.modules, sep='\\n')"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    loaded = set(done.stdout.splitlines())
    assert "sglangctl.switch.before" in loaded
    assert loaded & set(ONLY_ON_A_HOST) == set()
