"""Ranks, NCCL, and what the engine says itself of its end."""

from __future__ import annotations

from sglangctl.diagnosis.signatures.base import CPU, EXCEPTION, H200, SOURCE, TORCH, Signature

SIGNATURES = (
    # Ranks and NCCL. What one rank says when a peer is gone is an effect.
    Signature(
        "rank-died",
        "ncclRemoteError",
        "torch.distributed.DistBackendError: NCCL error in: NCCLUtils.cpp:77, remote process "
        "exited or there was a network error, ncclRemoteError",
        TORCH,
        effect=True,
    ),
    Signature(
        "rank-died",
        "onnection ",
        "RuntimeError: [gloo/transport/tcp/pair.cc:538] Read error [127.0.0.1]:48528: Connection "
        "reset by peer",
        H200,
        r"(?:Error|Exception)\b.*(?:gloo|recvBytes|TCPStore|SocketImpl|Broken pipe).*|"
        r"Connection (?:closed|reset) by peer",
        EXCEPTION,
        True,
    ),
    Signature(
        "nccl-timeout",
        "ollective operation timeout",
        "[rank0]:[E1129 ProcessGroupNCCL.cpp:629] [Rank 0] Watchdog caught collective operation "
        "timeout: WorkNCCL(SeqNum=1) ran for 600032 milliseconds before timing out.",
        TORCH,
    ),
    Signature(
        "nccl-timeout",
        "imed out",
        "torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 1/2 "
        "clients joined.",
        TORCH,
        r"Dist(?:Store|Network|Backend)Error: .*[Tt]imed out|"
        r"(?:gloo|TCPStore|c10d).*[Tt]imed out",
        EXCEPTION,
    ),
    Signature(
        "nccl-timeout",
        "other ranks that didn't finish loading",
        "ValueError: TP rank 1 could finish the model loading, but there are other ranks that didn't "
        "finish loading. It is likely due to unexpected failures (e.g., OOM) or a slow node.",
        SOURCE,
    ),
    Signature(
        "nccl-error",
        "no socket interface found",
        "vm:2531:2531 [0] bootstrap.cc:106 NCCL WARN Bootstrap : no socket interface found",
        H200,
    ),
    Signature(
        "nccl-error",
        "NCCL error",
        "RuntimeError: NCCL error: invalid usage (run with NCCL_DEBUG=WARN for details)",
        H200,
        where=EXCEPTION,
        vague=True,
    ),
    Signature(
        "nccl-error",
        "nccl",
        "torch.distributed.DistBackendError: ncclUnhandledCudaError: Call to CUDA function failed.",
        TORCH,
        r"nccl(?:UnhandledCuda|System|Internal|InvalidArgument|InvalidUsage)(?:Error)?\b",
        EXCEPTION,
        vague=True,
    ),
    # The engine's own verdicts.
    Signature(
        "watchdog",
        "watchdog timeout",
        "Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)",
        SOURCE,
        r"atchdog timeout \((?!.*soft=True)",
    ),
    Signature(
        "warmup-failed",
        "Initialization failed. warmup error",
        "Initialization failed. warmup error: Traceback (most recent call last):",
        CPU,
        effect=True,
    ),
)
