"""By hand, on a machine with an NVIDIA GPU, nvcc and torch for CUDA: the kernel's whole way for real.

    python3 tests/kernel/on_gpu.py WHEELS [KERNEL_WHEEL]

WHEELS: a folder with CMake, ninja, scikit-build-core (tests/kernel/cuda.py fetches one).
KERNEL_WHEEL: a stock wheel for another torch than this machine's, to see that it is refused.
Prints one JSON document; what it said on an H200 is docs/evidence/kernel-h200.json.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from sglangctl.sgl_kernel import key as keys  # noqa: E402
from sglangctl.sgl_kernel.build import request as requests  # noqa: E402
from sglangctl.sgl_kernel.venv import load  # noqa: E402


def ctl(*arguments: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "sglangctl", "kernel", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stdout + done.stderr


def main() -> int:
    wheels, stock = Path(sys.argv[1]).resolve(), [Path(path) for path in sys.argv[2:]]
    scratch = Path(tempfile.mkdtemp(prefix="kernel-on-gpu-"))
    scratch.chmod(0o755)  # what compiles is not root
    os.environ["SGLANGCTL_ROOT"] = str(scratch / "root")
    venv = scratch / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--system-site-packages", str(venv)], check=True)
    from tests.kernel.cuda import repository

    commit = repository(scratch / "source", ROOT / "tests/kernel/project")
    # This Python may be a venv itself, whose packages a venv of it would not see.
    own = [path for path in sys.path if path.endswith("-packages")]
    (load(venv).site_packages / "own.pth").write_text("\n".join(own) + "\n")
    seen = load(venv)
    torch = seen.torch()
    assert torch is not None
    result: dict[str, Any] = {"v": 1, "torch": torch.version, "cuda": torch.cuda}

    for arch in ("90a", "120a"):
        inputs = keys.Inputs(
            commit, (), torch.version, torch.cuda or "none", seen.tag, seen.machine, arch,
            requests.cmake_flags(arch),
        )  # fmt: skip
        request = requests.Request(
            keys.make(inputs),
            inputs,
            str(scratch / "source"),
            venv=str(venv),
            pip_arguments=("--no-index", f"--find-links={wheels}"),
        )
        folder = requests.folder(request.key)
        folder.mkdir(parents=True)
        (folder / "request.json").write_text(requests.dump(request))
        began = time.monotonic()
        status, said = ctl("build", "--run", request.key)
        events = [json.loads(line) for line in (folder / "journal.jsonl").open()]
        result[f"build {arch}"] = {
            "status": status,
            "seconds": round(time.monotonic() - began, 1),
            "said": [event.get("text") for event in events if event.get("text")][-5:],
        }
        if status:
            result[f"build {arch}"]["log"] = (folder / "builder/build.log").read_text()[-1500:]
            result[f"build {arch}"]["output"] = said[-500:]
            continue
        installed = ctl("install", request.key, f"--venv={venv}", f"--sm={arch[:-1]}")
        site = seen.site_packages / "sgl_kernel"
        if arch == "120a":
            # Where this GPU's loader looks: so its code meets the wrong GPU at the first launch.
            (site / "sm100").rename(site / "sm90")
        checked = ctl("check", f"--venv={venv}")
        result[f"check {arch}"] = {"install": installed, "check": checked}
    for path in stock:
        result[f"stock {path.name}"] = {
            "inspect": ctl("inspect", str(path), f"--venv={venv}"),
            "install": ctl("install", str(path), f"--venv={venv}"),
        }
        pip = [str(venv / "bin/python"), "-m", "pip", "install", "-q", "--no-deps", "--no-index"]
        subprocess.run([*pip, "--force-reinstall", str(path)], check=True)
        result[f"stock {path.name}"]["forced, then check"] = ctl("check", f"--venv={venv}")
        library = seen.site_packages / "sgl_kernel/sm90/common_ops.abi3.so"
        os.truncate(library, 4096)
        result[f"stock {path.name}"]["cut to 4 KiB, then check"] = ctl("check", f"--venv={venv}")
    print(json.dumps(result, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
