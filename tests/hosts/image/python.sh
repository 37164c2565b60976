#!/bin/sh
# Runs in a container of the base image, with this folder at /build: adds what a GPU cloud image
# carries for SGLang to the system's Python.
set -eu
site=/usr/local/lib/python3.11/dist-packages
pip="python3 -m pip install --break-system-packages --root-user-action=ignore --no-compile --cache-dir=/build-cache --disable-pip-version-check --progress-bar=off"

echo "installing torch and what SGLang imports"
$pip -r /build/python.requirements -c /build/python.constraints
# Alone, because its own pin of torch asks for a CUDA build.
echo "installing torchvision"
$pip --no-deps torchvision==0.28.0

# PyPI's torchvision carries a CUDA-linked library that does not load beside a CPU build of torch.
# SGLang needs its transforms alone, which work without.
if ! python3 -B -c 'import torchvision' 2>/build-cache/torchvision.log; then
    grep -q 'torchvision::nms does not exist' /build-cache/torchvision.log || {
        cat /build-cache/torchvision.log
        exit 1
    }
    : >"$site/torchvision/_meta_registrations.py"
    python3 -B -c 'import torchvision'
fi

echo "dropping what only a GPU or a test needs"
rm -rf "$site"/triton/backends/nvidia/bin "$site"/triton/backends/*/lib "$site"/triton/FileCheck \
    "$site"/torch/test "$site"/torch/testing/_internal/py312_intrinsics.py
find "$site" -type d -name tests -path '*/tests' \
    \( -path '*/scipy/*' -o -path '*/numpy/*' -o -path '*/numba/*' -o -path '*/sympy/*' \) \
    -prune -exec rm -rf {} +

# A service user cannot write bytecode here: without it every start compiles 17,000 files' worth.
echo "compiling bytecode"
python3 -m compileall -q -j 0 "$site"
rm -rf /root/.cache /tmp/* /var/tmp/*
