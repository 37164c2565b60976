#!/bin/bash
# On the GPU machine without a network, when the kit is in KIT (default /srv/kit): the host's systemd, the
# controller, the models, settings.yml. Then, with the wheels of all parts in KIT/wheels:
#   PYTHONPATH=$KIT/site python3 -m tests.gpu.run $KIT/settings.yml --out FOLDER
# PYTHON is a Python with torch, transformers, tokenizers and safetensors (default: python3).
set -euo pipefail
kit=${KIT:-/srv/kit}
here=$(cd "$(dirname "$0")" && pwd)
python=$(command -v "${PYTHON:-python3}")
site=$("$python" -c 'import torch, pathlib; print(pathlib.Path(torch.__file__).parents[1])')
"$python" -m pip install -q --no-index --find-links "$kit/controller" --target "$kit/site" \
	pyinfra jinja2 pyyaml jsonschema requests
# The engines' environments take torch from this Python: too large to be carried.
system=$(/usr/bin/python3 -c 'import site; print(site.getsitepackages()[0])')
mkdir -p "$system"
echo "$site" > "$system/torch-of-this-machine.pth"
library=$(/usr/bin/python3 -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')
[ -d "$library/ensurepip" ] || cp -r "$kit/ensurepip" "$library/"
for tool in "$(dirname "$python")/ninja" /opt/gcc/bin/gcc /opt/gcc/bin/g++; do
	[ ! -e "$tool" ] || [ -e "/usr/bin/$(basename "$tool")" ] || ln -sf "$tool" /usr/local/bin/
done
mkdir -p /models
[ -e /models/eagle3/config.json ] || "$python" "$here/models.py" /models > "$kit/models.log" 2>&1
"$here/namespaces.sh" install
"$here/namespaces.sh" boot
"$python" - "$kit" "$here" "$python" > "$kit/settings.yml" <<'END'
import json, pathlib, sys
kit, here, python = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
import torch
names = [pin.split("==") for pin in (pathlib.Path(here) / "pins.txt").read_text().split()]
version = next(version for name, version in names if name == "sglang")
pins = [f"{name.replace('_', '-')}=={version}" for name, version in names if name != "sglang"]
engine = {
    "version": version,
    "model": {"path": "/models/target"},
    "tensor_parallel": torch.cuda.device_count(),
    "port": 30000,
    "flags": {"attention-backend": "triton", "mem-fraction-static": 0.2, "cuda-graph-max-bs": 4},
    "install": {
        "packages": pins,
        "system_site_packages": True,
        "pip_arguments": ["--no-index", "--find-links", str(kit / "wheels"), "--no-deps"],
    },
    # NVLink multicast can put the GPUs of a shared machine out of service.
    "environment": {
        "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1",
        "NVSHMEM_DISABLE_NVLS": "1",
        "CUDA_HOME": "/usr/local/cuda",
    },
    "nccl": {"overrides": {"NCCL_NVLS_ENABLE": 0}},
    "kernel": {"source": "none"},
}
ssh = {"hostname": "127.0.0.1", "port": 2222, "user": "root", "key": str(kit / "key")}
ssh["known_hosts"] = str(kit / "known_hosts")
reboot = [f"{here}/namespaces.sh", "reboot"]
settings = {"ssh": ssh, "engine": engine, "python": python, "models": "/models"}
print(json.dumps({**settings, "reboot": reboot, "outside": True}, indent=1))
END
echo "ready: $kit/settings.yml"
