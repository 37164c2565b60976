"""What the launcher checks before it starts children: everything that exits with status 1."""

from __future__ import annotations

import os
import sys
from typing import Any

from sglang._standin import capture, errors, model, options
from sglang._standin.flags import ServerArgs
from sglang._standin.log import Log
from sglang._standin.shared.devices import present

MAKEDIRS = [("flashinfer/jit/core.py", 18, "<module>"), ("os.py", 225, "makedirs")]


def resolve(args: ServerArgs, log: Log) -> dict[str, Any]:
    """Everything that fails before there are children; returns the model's configuration."""
    name, _ = options.fault()
    if args.disable_cuda_graph:
        log.line(
            "\x1b[1;33m'--disable-cuda-graph' is deprecated and will be removed in a future "
            "release. Use '--cuda-graph-backend-{decode,prefill}=disabled' instead.\x1b[0m",
            "warning",
        )
    if name in errors.LAUNCHER:
        site = os.path.dirname(os.path.dirname(os.path.dirname(__file__)))
        raise errors.LauncherError(errors.launcher_text(name, site))
    if name in errors.SIGNALS and errors.SIGNALS[name][2] == "launcher":
        os.kill(os.getpid(), errors.SIGNALS[name][1])
    if name and name not in errors.ALL:
        sys.exit(f"STANDIN_FAULT={name} is not one of: {', '.join(errors.ALL)}")
    try:
        os.makedirs(capture.cache_folder(), exist_ok=True)
    except OSError as error:
        text = f"{type(error).__name__}: {error}"
        raise errors.LauncherError(text, *MAKEDIRS) from None
    config = model.check(args.model_path, args.trust_remote_code)
    if args.device != "cpu" and not visible():
        raise errors.LauncherError(
            "RuntimeError: No accelerator (CUDA, XPU, HPU, NPU, MUSA, MPS) or platform plugin is "
            "available."
        )
    if args.attention_backend == "trtllm_mla" and args.device != "cpu":
        raise errors.LauncherError(errors.launcher_text("unsupported-configuration", ""))
    if args.speculative_algorithm:
        shape = [
            args.speculative_num_steps,
            args.speculative_eagle_topk,
            args.speculative_num_draft_tokens,
        ]
        if None in shape and any(value is not None for value in shape):
            raise errors.LauncherError("AssertionError")
        if args.speculative_draft_model_path:
            model.resolve(args.speculative_draft_model_path)
    model.check_tokenizer(args.tokenizer_path)
    return config


def visible() -> list[int]:
    """Device indices that this engine may use."""
    there = present(options.devices())
    asked = os.environ.get("CUDA_VISIBLE_DEVICES")
    if asked is None:
        return there
    return [int(word) for word in asked.split(",") if word.strip().isdigit() and int(word) in there]
