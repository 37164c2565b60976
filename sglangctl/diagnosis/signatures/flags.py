"""The port and the flags: what the engine finds wrong with how it was started."""

from __future__ import annotations

from sglangctl.diagnosis.signatures.base import (
    CPU,
    H200,
    PYTHON,
    SOURCE,
    TORCH,
    Signature,
    caused,
    raised,
)

# The port: found only after the whole load.
SIGNATURES = caused(
    "port-taken",
    Signature(
        "error while attempting to bind on address",
        "ERROR:    [Errno 98] error while attempting to bind on address ('0.0.0.0', 30000): "
        "address already in use",
        f"{CPU}, {H200}",
        r"\[Errno 98\]|: address already in use",
    ),
)
# `listen` is no address of this host; only root may bind a port below 1024.
SIGNATURES += caused(
    "unsupported-configuration",
    Signature(
        "error while attempting to bind on address",
        "ERROR:    [Errno 99] error while attempting to bind on address ('10.9.8.7', 30000): "
        "cannot assign requested address",
        PYTHON,
        r"\[Errno (?:13|99)\]",
    ),
    Signature(
        "could not bind on any address",
        "ERROR:    could not bind on any address out of [('10.9.8.7', 30000)]",
        "Python 3.13",
    ),
)
SIGNATURES += caused(
    "port-taken",
    Signature(
        "EADDRINUSE",
        "RuntimeError: The server socket has failed to listen on any local network address. "
        "port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use",
        TORCH,
    ),
    Signature(
        "ddress already in use",
        "OSError: [Errno 98] Address already in use",
        "Python",
        r"\[Errno 98\]|zmq\.error\.ZMQError",
    ),
    Signature(
        "is not available",
        "ValueError: metrics_port at 40290 is not available in 30 seconds.",
        SOURCE,
        r"(?:port|Port) (?:at )?\d+ is not available",
    ),
    raised(
        "already in use",
        "RuntimeError: Port 30000 is already in use by another process",
        SOURCE,
        r"\b[Pp]ort:? \d+ is already in use",
    ),
)
# Flags, found by argparse before anything else.
SIGNATURES += caused(
    "unknown-flag",
    Signature(
        "error: unrecognized arguments",
        "sglang serve: error: unrecognized arguments: --no-such-flag",
        f"{CPU}, {H200}",
        r": error: unrecognized arguments: ",
    ),
    Signature(
        "error: ambiguous option",
        "launch_server.py: error: ambiguous option: --cuda-graph-max-bs could match "
        "--cuda-graph-max-bs-decode, --cuda-graph-max-bs-prefill",
        SOURCE,
    ),
    Signature(
        "Unsupported config option",
        "ValueError: Unsupported config option for key 'disable-cuda-graph'",
        CPU,
    ),
)
SIGNATURES += caused(
    "unsupported-configuration",
    Signature(
        ": error: argument ",
        "launch_server.py: error: argument --attention-backend: invalid choice: 'fa9'",
        SOURCE,
        r"^[^:]{1,200}: error: argument -",
    ),
    Signature(
        ": error: ",
        "launch_server.py: error: the following arguments are required: --model-path",
        SOURCE,
        # argparse's own form: the program's name, not a file with a line.
        r"^(?:\S+\.py|sglang(?: [\w-]+){0,2}|python\S*(?: -m \S+)?): error: ",
    ),
)
