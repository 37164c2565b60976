"""Which causes another flag or variable of the same environment can help: for those a switch tries
the inventory's fallbacks before it goes back. The list is closed, as that of the causes is.

docs/switch.md shows this list (`python -m docs.tables --write`).
"""

from __future__ import annotations

HELPS = {
    "unsupported-configuration": "another flag or shape may be accepted",
    "cache-too-small": "fewer or smaller requests, or no drafter, leave more for the cache",
    "gpu-out-of-memory": "a smaller share, smaller graphs or no drafter need less",
    "host-out-of-memory": "fewer compilers at once (`MAX_JOBS`) need less",
    "drafter-not-found": "it serves without the drafter",
    "drafter-mismatch": "it serves without the drafter",
    "nccl-error": "the NCCL profile `safe` uses fewer transports",
    "nccl-timeout": "the NCCL profile `safe` uses fewer transports",
    "peer-access": "the NCCL profile `safe` and `disable-custom-all-reduce` do without it",
    "rank-died": "most often a kernel or a graph: another backend, or no graphs",
    "no-kernel-image": "another backend may have code for this GPU",
    "backend-unsupported": "another backend runs on this GPU",
    "jit-toolchain": "another backend needs another compiler, or none",
    "warmup-failed": "the request may succeed with another backend",
    "watchdog": "a longer time limit, or a backend that compiles less",
    "too-many-tasks": "fewer threads (`OMP_NUM_THREADS`)",
}
"""Cause -> why an override can help."""

DOES_NOT_HELP = {
    "unknown-flag": "a mistake in the inventory",
    "unsupported-model": "it needs another version",
    "model-not-found": "every override needs the model",
    "tokenizer-missing": "every override needs the tokenizer",
    "trust-remote-code": "somebody has to decide that",
    "weights-missing": "every override needs the weights",
    "weights-corrupt": "every override needs the weights",
    "weights-unreadable": "every override needs the weights",
    "port-taken": "the port is the same",
    "too-few-gpus": "the GPUs are the same",
    "rank-stopped": "somebody stopped it",
    "kernel-broken": "the environment is the same",
    "environment-broken": "the environment is the same",
    "driver-mismatch": "the host's own",
    "gpu-fault": "the host's own",
    "gpu-unavailable": "the host's own",
    "fabric-manager": "the host's own",
    "cache-not-writable": "the host's own",
    "disk-full": "the host's own",
    "too-many-files": "the host's own",
    "shared-memory": "the host's own",
    "terminated": "somebody ended it",
    "killed": "somebody ended it",
    "unknown": "what would help is unknown: what served before is safer",
}
"""Cause -> why none can."""
