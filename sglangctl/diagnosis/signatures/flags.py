"""The port and the flags: what the engine finds wrong with how it was started."""

from __future__ import annotations

from sglangctl.diagnosis.signatures.base import CPU, H200, SOURCE, TORCH, Signature

SIGNATURES = (
    # The port: found only after the whole load.
    Signature(
        "port-taken",
        "error while attempting to bind on address",
        "ERROR:    [Errno 98] error while attempting to bind on address ('0.0.0.0', 30000): "
        "address already in use",
        f"{CPU}, {H200}",
    ),
    Signature(
        "port-taken",
        "EADDRINUSE",
        "RuntimeError: The server socket has failed to listen on any local network address. "
        "port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use",
        TORCH,
    ),
    Signature(
        "port-taken",
        "ddress already in use",
        "OSError: [Errno 98] Address already in use",
        "Python",
        r"\[Errno 98\]|zmq\.error\.ZMQError",
    ),
    Signature(
        "port-taken",
        "is not available in",
        "ValueError: port at 30233 is not available in 30 seconds.",
        SOURCE,
        r"\bport\b.* is not available in \d+ seconds",
    ),
    # Flags, found by argparse before anything else.
    Signature(
        "unknown-flag",
        "error: unrecognized arguments",
        "sglang serve: error: unrecognized arguments: --no-such-flag",
        f"{CPU}, {H200}",
        r": error: unrecognized arguments: ",
    ),
    Signature(
        "unknown-flag",
        "error: ambiguous option",
        "launch_server.py: error: ambiguous option: --cuda-graph-max-bs could match "
        "--cuda-graph-max-bs-decode, --cuda-graph-max-bs-prefill",
        SOURCE,
    ),
    Signature(
        "unknown-flag",
        "Unsupported config option",
        "ValueError: Unsupported config option for key 'disable-cuda-graph'",
        CPU,
    ),
    Signature(
        "unsupported-configuration",
        ": error: argument ",
        "launch_server.py: error: argument --attention-backend: invalid choice: 'fa9'",
        SOURCE,
        r": error: argument \S+.*: (?:invalid|expected|not allowed|ignored explicit)",
    ),
    Signature(
        "unsupported-configuration",
        ": error: the following arguments are required",
        "launch_server.py: error: the following arguments are required: --model-path",
        SOURCE,
    ),
)
