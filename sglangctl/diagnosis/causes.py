"""The closed list of causes: a sentence for the operator and the next step for each of them.

`rule` says what leads to the cause besides the log lines of `sglangctl.diagnosis.signatures`.
docs/troubleshooting.md shows this list (`python -m docs.tables --write`).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from sglangctl.util import lazy_re

PID = lazy_re.compile(r"\bpid (\d+)")


@dataclass(frozen=True)
class Cause:
    """One entry of the closed list."""

    name: str
    sentence: str
    """What is wrong, for the operator."""
    next_step: str
    """What to do about it; `NAME` stands for the engine's name, `PID` for the processes that the
    evidence names, `FOLDER` for the model's. It begins with a command where that is the step."""
    rule: str = ""
    """Evidence other than a log line, empty when only log lines lead here."""

    def next_for(self, engine: str, evidence: Sequence[str] = (), folder: str = "") -> str:
        """What to do about it, for the engine of that name; `folder`: of its model."""
        pids = dict.fromkeys(pid for line in evidence for pid in PID.findall(line))
        known = {
            "NAME": engine,
            "PID": " ".join(pids),
            "FOLDER": shlex.quote(folder) if folder else "",
        }
        return re.sub(r"\b(NAME|PID|FOLDER)\b", lambda at: known[at[0]] or at[0], self.next_step)


_ALL = (
    Cause(
        "unknown-flag",
        "the engine does not know a flag that it was started with",
        "correct the flag in the inventory (names change between versions); "
        "`python -m sglang.launch_server --help` in the engine's venv lists them",
    ),
    Cause(
        "unsupported-configuration",
        "the engine knows the model and refuses the flags, this host's shape or config.json",
        "read the log's line and change that flag (tensor parallel size, attention backend, "
        "quantization) in the inventory",
    ),
    Cause(
        "unsupported-model",
        "this version of the engine does not know the model's architecture",
        "pin a newer engine in the inventory, or another model",
    ),
    Cause(
        "model-not-found",
        "the model's folder or its config.json is not where the inventory says",
        "compare `model.path` with the host; a hub name needs the network or a filled cache, "
        "and the service user must be able to read the folder",
    ),
    Cause(
        "tokenizer-missing",
        "the model's tokenizer cannot be loaded",
        "copy the tokenizer files beside the weights, or set the flag tokenizer-path",
        rule="no tokenizer_config.json, and the engine's first request fails",
    ),
    Cause(
        "trust-remote-code",
        "the model brings code of its own and the engine may not run it",
        "read that code, then set the flag trust-remote-code: true",
    ),
    Cause(
        "drafter-not-found",
        "the drafter's folder is not where the inventory says",
        "compare `drafter.path` with the host",
        rule="the lines of model-not-found, when they name the drafter's path",
    ),
    Cause(
        "drafter-mismatch",
        "the drafter does not fit the target model",
        "use the drafter that was trained for this model and its algorithm (EAGLE or EAGLE3)",
    ),
    Cause(
        "weights-missing",
        "a weight file in the index is missing",
        "download the model again, then compare its files with model.safetensors.index.json",
    ),
    Cause(
        "weights-corrupt",
        "a weight file is truncated, damaged, or does not fit the model's config.json",
        "`sglangctl weights FOLDER` names the file (with --sha256 it reads every byte): download that "
        "one again",
        rule="SIGBUS (exit -7) while weights are loading",
    ),
    Cause(
        "port-taken",
        "another process listens on the port that the engine needs",
        "`ss -ltnp` names it: stop it, add its unit to `replaces`, or choose another port",
    ),
    Cause(
        "too-few-gpus",
        "the engine sees fewer GPUs than the tensor parallel size needs",
        "compare `nvidia-smi -L` with `gpus` and the tensor parallel size in the inventory",
    ),
    Cause(
        "cache-too-small",
        "the key/value cache is too small to serve one request",
        "raise `max-total-tokens` or remove it, or raise `mem-fraction-static`, in the inventory",
    ),
    Cause(
        "gpu-out-of-memory",
        "the GPUs' memory is not enough for weights, key/value cache and graphs",
        "`sglangctl holders` shows who else uses it; else lower mem-fraction-static, the context "
        "length or cuda-graph-max-bs, or raise the tensor parallel size",
    ),
    Cause(
        "host-out-of-memory",
        "the kernel killed the engine because memory (RAM) ran out",
        "give it more memory (MemoryMax, the container's limit, swap), or lower MAX_JOBS where "
        "it was compiling",
        rule="a process died and the cgroup's oom_kill counter rose, or the kernel log says so",
    ),
    Cause(
        "nccl-error",
        "NCCL or gloo could not set up or use the connection between the ranks",
        "set NCCL_DEBUG=INFO once and read its first WARN; check the socket interface that "
        "NCCL or gloo was told to use, then try the NCCL profile `safe`",
    ),
    Cause(
        "nccl-timeout",
        "the GPUs waited for one another until NCCL or the rendezvous gave up",
        "one rank is late or stuck: `sglangctl collective NAME`, while it is down, shows whether the "
        "GPUs add up; try the NCCL profile `safe` (IOMMU and ACS are the usual reason on PCIe), or "
        "raise dist-timeout for a slow load",
    ),
    Cause(
        "rank-died",
        "a process of the engine died without saying why",
        "`sglangctl bundle NAME`, then look in `dmesg -T` for the time of its death",
        rule="a scheduler or the detokenizer is gone or a zombie",
    ),
    Cause(
        "rank-stopped",
        "a process of the engine is stopped (state T) or its cgroup is frozen",
        "`kill -CONT PID`, or thaw the cgroup or container; find out who stopped it",
        rule="state T in a process event, or a frozen cgroup",
    ),
    Cause(
        "kernel-broken",
        "sgl_kernel cannot be loaded: no .so, another torch or CUDA, or a truncated file",
        "`sglangctl kernel check --engine NAME` names it; the next deploy installs the kernel again",
        rule="SIGBUS (exit -7) before the first rank's log line",
    ),
    Cause(
        "no-kernel-image",
        "the kernels contain no code for this GPU",
        "`sglangctl kernel inspect installed --engine NAME` shows which GPUs they are for; "
        "set `kernel.source: build`",
    ),
    Cause(
        "driver-mismatch",
        "the NVIDIA driver is absent, not loaded, or too old for this CUDA",
        "`nvidia-smi` must work first; then compare its CUDA version with torch's; after a "
        "driver upgrade reboot",
    ),
    Cause(
        "gpu-fault",
        "a GPU reported a fault",
        "`dmesg -T | grep -i xid`: the number says whether it is hardware; reset the GPU or reboot",
        rule="an Xid in the kernel log since the launch",
    ),
    Cause(
        "cache-not-writable",
        "a cache folder cannot be written by the service user",
        "set HOME, SGLANG_CACHE_DIR or FLASHINFER_WORKSPACE_BASE to a folder that it owns "
        "(the deploy's default is one)",
        rule="a folder could not be created",
    ),
    Cause(
        "disk-full",
        "a file system is full",
        "`df -h` and `df -i`; old kernels, venvs and releases usually take the space",
    ),
    Cause(
        "too-many-files",
        "the limit of open files is reached",
        "raise LimitNOFILE in the unit (the deploy's default is 1048576)",
    ),
    Cause(
        "shared-memory",
        "/dev/shm is full or too small",
        "remove leftover segments (`sglangctl free NAME --dry-run` lists them); in a container "
        "start it with a larger --shm-size",
        rule="SIGBUS (exit -7) after loading and before it served, or with /dev/shm full",
    ),
    Cause(
        "warmup-failed",
        "the engine came up and its own first request failed",
        "read the request's error; a JIT compile that takes long needs a higher "
        "SGLANG_WARMUP_TIMEOUT",
    ),
    Cause(
        "watchdog",
        "the engine's own watchdog ended it: a batch took longer than watchdog-timeout",
        "the stacks in the log say where; raise watchdog-timeout if it was compiling",
    ),
    Cause(
        "terminated",
        "it was ended from outside before it served",
        "`journalctl -u sglang-NAME` says who stopped it; else deploy again",
        rule="an exit by SIGTERM, SIGINT, SIGHUP or SIGKILL without a failure of its own",
    ),
    Cause(
        "killed",
        "it was ended from outside while it served",
        "`journalctl -u sglang-NAME` says who stopped it; else start it again",
        rule="an exit by one of these signals, or with status 0, after it served",
    ),
    Cause(
        "jit-toolchain",
        "a kernel could not be compiled at run time: a tool, a header or the right version is missing",
        "read the compiler's line; `ninja --version` and `nvcc --version` with the unit's PATH and "
        "CUDA_HOME (`systemctl show sglang-NAME -p Environment`): packages ninja-build, build-essential, "
        "python3-dev (Python.h) and a CUDA toolkit of at least 12.9 for SM 12.0",
        rule="an exception in a frame that calls a compiler",
    ),
    Cause(
        "environment-broken",
        "packages of the venv, or libraries of the host, are missing or do not fit together",
        "pin the package that the log's line names in `install.packages`; the next deploy creates the "
        "venv again; for GLIBC and other libraries of the host a newer distribution or another wheel",
    ),
    Cause(
        "backend-unsupported",
        "a kernel that the flags chose does not run on this GPU",
        "choose another attention-backend, moe-runner-backend or fp4-gemm-backend in the inventory "
        "(triton and flashinfer run on SM 12.0; trtllm and FA3 kernels do not)",
    ),
    Cause(
        "fabric-manager",
        "the NVSwitch fabric is not up: the fabric manager does not run, or fits another driver",
        "`systemctl status nvidia-fabricmanager`, and start it in the driver's own version; nvidia-smi "
        "works without it",
    ),
    Cause(
        "gpu-unavailable",
        "a GPU is there and this engine may not use it: exclusive mode, MIG, or another cgroup's device",
        "`nvidia-smi -q -d COMPUTE` and `nvidia-smi -i N -c DEFAULT`; `nvidia-smi mig -lgi` where MIG is "
        "on; name GPUs by their number in `gpus`",
    ),
    Cause(
        "peer-access",
        "the GPUs cannot reach each other's memory, and custom all-reduce wants to",
        "set the flag disable-custom-all-reduce, then the NCCL profile `safe`; IOMMU and ACS are the usual "
        "reason on PCIe",
    ),
    Cause(
        "too-many-tasks",
        "the limit of processes and threads is reached",
        "raise TasksMax in the unit (`systemctl show sglang-NAME -p TasksMax -p LimitNPROC`; the "
        "container's pids limit too), or lower OPENBLAS_NUM_THREADS and OMP_NUM_THREADS",
        rule="EAGAIN from fork or from the start of a thread",
    ),
    Cause(
        "weights-unreadable",
        "a file of the model is there and the engine's user cannot read it",
        "`namei -l FILE` shows the folder or file: `chgrp -R` it to the engine's group and `chmod -R g+rX`; "
        "what the unit's sandbox hides must lie elsewhere",
        rule="the log calls a file missing that is there and not readable for the engine's user",
    ),
    Cause(
        "unknown",
        "it failed for a reason that is not in the list",
        "read the log's lines; `sglangctl bundle NAME` collects everything for a report",
        rule="a final failure without any of the evidence above",
    ),
)

CAUSES = {cause.name: cause for cause in _ALL}
