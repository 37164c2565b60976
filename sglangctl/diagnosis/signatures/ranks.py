"""Ranks, NCCL, and what the engine says itself of its end."""

from __future__ import annotations

from sglangctl.diagnosis.signatures.base import CPU, H200, SOURCE, TORCH, Signature, caused, raised

# Ranks and NCCL. What one rank says when a peer is gone is an effect.
SIGNATURES = caused(
    "rank-died",
    Signature(
        "ncclRemoteError",
        "torch.distributed.DistBackendError: NCCL error in: NCCLUtils.cpp:77, remote process "
        "exited or there was a network error, ncclRemoteError",
        TORCH,
        effect=True,
    ),
    raised(
        "onnection ",
        "RuntimeError: [gloo/transport/tcp/pair.cc:538] Read error [127.0.0.1]:48528: Connection "
        "reset by peer",
        H200,
        r"(?:Error|Exception)\b.*(?:gloo|recvBytes|TCPStore|SocketImpl|Broken pipe).*|"
        r"Connection (?:closed|reset) by peer",
        effect=True,
    ),
)
SIGNATURES += caused(
    "nccl-timeout",
    Signature(
        "ollective operation timeout",
        "[rank0]:[E1129 ProcessGroupNCCL.cpp:629] [Rank 0] Watchdog caught collective operation "
        "timeout: WorkNCCL(SeqNum=1) ran for 600032 milliseconds before timing out.",
        TORCH,
    ),
    raised(
        "imed out",
        "torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 1/2 "
        "clients joined.",
        TORCH,
        r"Dist(?:Store|Network|Backend)Error: .*[Tt]imed out|"
        r"(?:gloo|TCPStore|c10d).*[Tt]imed out",
    ),
    Signature(
        "other ranks that didn't finish loading",
        "ValueError: TP rank 1 could finish the model loading, but there are other ranks that didn't "
        "finish loading. It is likely due to unexpected failures (e.g., OOM) or a slow node.",
        SOURCE,
    ),
)
SIGNATURES += caused(
    "nccl-error",
    Signature(
        "no socket interface found",
        "vm:2531:2531 [0] bootstrap.cc:106 NCCL WARN Bootstrap : no socket interface found",
        H200,
    ),
    raised(
        "Unable to find address for",
        "RuntimeError: [enforce fail at /__w/pytorch/pytorch/third_party/gloo/gloo/transport/tcp/"
        "device.cc:84] ifa != nullptr. Unable to find address for: nowhere0",
        CPU,
        r"gloo.*Unable to find address for",
    ),
    raised(
        "NCCL error",
        "RuntimeError: NCCL error: invalid usage (run with NCCL_DEBUG=WARN for details)",
        H200,
        vague=True,
    ),
    raised(
        "nccl",
        "torch.distributed.DistBackendError: ncclUnhandledCudaError: Call to CUDA function failed.",
        TORCH,
        r"nccl(?:UnhandledCuda|System|Internal|InvalidArgument|InvalidUsage)(?:Error)?\b",
        vague=True,
    ),
)
# The engine's own verdicts.
SIGNATURES += caused(
    "watchdog",
    Signature(
        "watchdog timeout",
        "Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)",
        SOURCE,
        r"atchdog timeout \((?!.*soft=True)",
    ),
)
SIGNATURES += caused(
    "warmup-failed",
    Signature(
        "Initialization failed. warmup error",
        "Initialization failed. warmup error: Traceback (most recent call last):",
        CPU,
        effect=True,
    ),
)
