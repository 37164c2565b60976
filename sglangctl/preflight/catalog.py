"""Every check of the two gates: its id, what it looks at and who asks for it. The table in
docs/preflight.md is made from this."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from sglangctl.diagnosis.finding import FAIL, INFO, Finding

BEFORE, STAGED = "before", "staged"
GATES = (BEFORE, STAGED)


@dataclass(frozen=True)
class Check:
    """One kind of finding."""

    looks_at: str
    """One phrase: what is compared with what."""
    source: str
    """Who asks for it."""
    gate: str = BEFORE


WEIGHTS = "the safetensors format; the engine's own loader"
CHECKS: dict[str, Check] = {
    "unit-foreign": Check(
        "the unit's file is from sglang-provision, or does not exist", "this project"
    ),
    "model-config": Check("config.json exists and names an architecture", WEIGHTS),
    "weights-missing": Check("every file and tensor that the index names exists", WEIGHTS),
    "weights-corrupt": Check("every header is complete and fits its file", WEIGHTS),
    "weights-unreadable": Check(
        "the engine's user can read every file, through every folder",
        'measured: SGLang calls such a file "No such file or directory"',
    ),
    "weights-unfinished": Check("no download is unfinished", WEIGHTS),
    "weights-twice": Check("no tensor is in two files", WEIGHTS),
    "weights-format": Check("the weights are safetensors, which can be checked", WEIGHTS),
    "weights-config": Check(
        "vocabulary (of a drafter: d2t) and quantisation of config.json fit", WEIGHTS
    ),
    "weights-changed": Check(
        "no file of the model changed while the engine that read it runs", "the file system"
    ),
    "weights-unchecked": Check("the weights could be checked", "this project"),
    "tokenizer-missing": Check("the tokenizer's files exist and are complete", WEIGHTS),
    "chat-template": Check("the model has a chat template", "transformers"),
    "flag-file": Check("the engine's user can read every file that a flag names", "this project"),
    "gpus-held": Check(
        "every process on the GPUs may be ended for this switch", "`sglangctl free NAME`"
    ),
    "drafter-algorithm": Check(
        "the drafter is of the kind that `drafter.algorithm` uses",
        "measured: an EAGLE-3 drafter under EAGLE gives accept length 1.0 in silence",
    ),
    "drafter-shape": Check(
        "hidden size and vocabulary of drafter and model are the same", "both config.json"
    ),
    "gpu-count": Check("the GPUs that `tensor_parallel` and `gpus` ask for", "SGLang"),
    "gpus-unknown": Check("NVML or nvidia-smi lists the GPUs", "NVIDIA's driver"),
    "driver-mismatch": Check(
        "the driver's library and its kernel module are of one version", "NVML's error 18"
    ),
    "driver-old": Check(
        "the driver is new enough for the CUDA of the engine's torch",
        "CUDA Toolkit release notes; SGLang 0.5.20 and newer are for CUDA 13 only",
    ),
    "gpu-capability": Check("compute capability 7.5 or higher", "FlashInfer; CUDA 13"),
    "gpu-lost": Check("the driver can read every GPU", "NVML"),
    "gpu-persistence": Check("persistence mode is on", "NVIDIA Driver Persistence"),
    "gpu-mig": Check("no GPU is divided", "NVML"),
    "gpu-memory-faults": Check(
        "no memory row waits for a remap or failed it", "NVIDIA GPU Memory Error Management"
    ),
    "gpu-ecc": Check("ECC is on where the GPU has it", "NVML"),
    "gpu-display": Check("no display is attached", "NVML"),
    "gpu-memory": Check(
        "weights and drafter leave room for a key/value cache on each GPU",
        "SGLang 0.5.23: memory_hook, kv_cache_configurator",
    ),
    "gpu-context": Check(
        "the longest request fits into the key/value cache",
        "the model's config.json; SGLang refuses longer requests",
    ),
    "model-heads": Check("the ranks can share the attention heads", "SGLang: its models assert it"),
    "gpu-kernels": Check(
        "attention backend, key/value cache and linear attention have kernels for the GPUs",
        "SGLang 0.5.23 refuses the others at its start",
    ),
    "sm120-combination": Check(
        "model and settings go together on SM120 (RTX PRO 6000, RTX 5090)",
        "one for each, in the finding: SGLang's source and docs, its issues",
    ),
    "gpu-power-cap": Check("the power limit is the board's own", "NVML"),
    "gpu-xids": Check(
        "the driver logged no error of the GPUs since the boot", "NVIDIA's Xid catalogue"
    ),
    "gpu-peers": Check(
        "what is between the GPUs, and what it means to NCCL", "NVML; NCCL's user guide"
    ),
    "gpu-peer-access": Check("the driver has peer-to-peer access between the GPUs", "NVML"),
    "custom-all-reduce": Check(
        "two GPUs without NVLink do not use SGLang's own all-reduce",
        "vllm-project/vllm pull request 47751; sglang issues 24740 and 25649",
    ),
    "collective": Check(
        "the newest result of `sglangctl collective`, where there is one, is right",
        "all-reduces on these GPUs (docs/nccl.md)",
    ),
    "pcie-link": Check("each GPU has all lanes that slot and GPU allow", "NVML"),
    "pcie-iommu": Check(
        "no IOMMU translates what the GPUs send each other",
        "NCCL's user guide, troubleshooting; vllm-project/vllm issue 33041",
    ),
    "pcie-acs": Check(
        "no bridge above the GPUs redirects peer-to-peer traffic",
        "NCCL's user guide, troubleshooting; NVIDIA/nccl issue 2079",
    ),
    "pcie-window": Check("all of a GPU's memory can be reached over PCIe (Resizable BAR)", "sysfs"),
    "disk-full": Check(
        "room for environment, caches, log and releases; no file system is read-only",
        "measured: an environment for CUDA has 7.6 GB",
    ),
    "host-memory": Check(
        "memory for the engine's processes; weights are mapped and need none",
        "measured: 0.64 to 0.74 GB for each process on a CPU",
    ),
    "host-swap": Check("little is swapped out", "/proc/meminfo"),
    "host-glibc": Check("glibc 2.34 for SGLang 0.5.23", "the wheel is manylinux_2_34"),
    "host-python": Check(
        "`install.python` is 3.11 or newer for SGLang 0.5.23", "the wheel's metadata"
    ),
    "host-shm": Check(
        "room in /dev/shm for several ranks", "NCCL's user guide, troubleshooting: shared memory"
    ),
    "reboot-pending": Check("no upgrade waits for a reboot", "/run/reboot-required"),
    "driver-upgrades": Check(
        "no unattended upgrade replaces the driver", "NVML's error 18 after an upgrade"
    ),
    "listener-open": Check(
        "an engine that others can reach asks for an api key", "docs/security.md"
    ),
    "listener-exposed": Check(
        "an engine without an api key has no address that the internet reaches", "docs/security.md"
    ),
    "port-derived": Check(
        "the ports that flags name and that DP attention derives (port + 13, + 233 and six more) are free",
        "SGLang 0.5.23: PortArgs.init_new",
    ),
    "engine-arguments": Check(
        "the installed engine's own parser takes the release's arguments",
        "SGLang: prepare_server_args of the installed release",
        gate=STAGED,
    ),
    "engine-imports": Check(
        "the engine can be imported as its user, in the unit's environment and sandbox",
        "measured: a missing package is found 12 to 37 s after the old engine has gone",
        gate=STAGED,
    ),
    "engine-version": Check(
        "the installed SGLang is `version`", "the package's metadata", gate=STAGED
    ),
    "engine-unchecked": Check("the staged engine could be asked", "this project", gate=STAGED),
    "model-architecture": Check(
        "the installed SGLang has the model that config.json names",
        "SGLang: model_loader/utils.py falls back to transformers",
        gate=STAGED,
    ),
    "engine-limits": Check(
        "the engine may open 8,192 files, and ranks may lock memory",
        "SGLang: set_ulimit; NCCL's user guide, troubleshooting",
        gate=STAGED,
    ),
    "cache-not-writable": Check(
        "the engine's user can write to its caches", "SGLang, Triton, torch", gate=STAGED
    ),
    "toolchain-nvcc": Check(
        "nvcc is there; 12.9 or newer for compute capability 12; of torch's CUDA version",
        "FlashInfer and SGLang compile kernels while they run; vllm-project/vllm issue 50705",
        gate=STAGED,
    ),
    "toolchain-ninja": Check(
        "ninja is on the unit's PATH", "measured with SGLang 0.5.16 on two H200s", gate=STAGED
    ),
    "toolchain-compiler": Check(
        "a C++ compiler is on the unit's PATH, and not too new for nvcc",
        "CUDA's crt/host_config.h",
        gate=STAGED,
    ),
    "kernel-source": Check(
        "a kernel for the host's GPUs is available", "docs/kernel.md, on the controller"
    ),
    "port-taken": Check(
        "the port is free, or its owner ends with the switch",
        "measured: SGLang notices a taken port only after the whole load",
    ),
}


OF_A_RUN = frozenset(["weights-changed"])
"""Of no interest to an engine that is to be started anew."""
OF_THE_MODEL = frozenset(
    id
    for id in CHECKS
    if id.startswith(("weights-", "model-config", "tokenizer-")) and id != "weights-unchecked"
)
"""What is wrong with the model itself: known also of an engine that is not switched."""


def finding(id: str, level: str, seen: str, fix: str = "", needed: str = "") -> Finding:
    """A finding of the catalogue. KeyError: the id is not in it."""
    return Finding(id, level, seen, fix, needed, CHECKS[id].source)


def sourced(found: Iterable[Finding]) -> list[Finding]:
    """Findings of another room, with their source. KeyError for an id without a check."""
    return [replace(one, source=one.source or CHECKS[one.id].source) for one in found]


def without_ignored(found: Iterable[Finding], ignore: Iterable[str]) -> list[Finding]:
    """The findings; one that the inventory ignores stops nothing, and is not hidden."""
    ids = set(ignore)
    return [
        replace(one, level=INFO, seen=f"{one.seen} (ignored: preflight.ignore)")
        if one.id in ids and one.level != INFO
        else one
        for one in found
    ]


def fails(found: Iterable[Finding]) -> bool:
    return any(one.level == FAIL for one in found)
