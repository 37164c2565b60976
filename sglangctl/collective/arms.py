"""What is asked: which GPUs' ranks, how many bytes, and under which settings of NCCL. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sglangctl.state import collectives
from sglangctl.state.config import Preflight
from sglangctl.util import lazy_re
from sglangctl.util.errors import Unusable

SIZES = tuple(4 << power for power in range(0, 25, 2))
"""Bytes of one rank: 4 B to 64 MiB."""
CONFIGURED, WITHOUT_P2P = "configured", "no-p2p"
"""As the engine's unit has it; and the same through host memory."""
CUMEM, NVLS = "NCCL_CUMEM_ENABLE", "NCCL_NVLS_ENABLE"
OF_THE_UNIT = lazy_re.compile(
    r"PATH|LD_(?:LIBRARY_PATH|PRELOAD)|(?:CUDA|NCCL|GLOO|NVIDIA|TORCH_NCCL|PYTORCH)_\w+"
)
"""Variables of the engine's unit that its collectives depend on."""
NAME, VARIABLE = lazy_re.compile(r"[a-z0-9-]{1,40}"), lazy_re.compile(r"NCCL_[A-Z0-9_]{1,80}")


@dataclass(frozen=True)
class Arm:
    """One setting of NCCL: all of nccl.env's variables, and SGLang's own."""

    name: str
    environment: Mapping[str, str]

    @property
    def peer_to_peer(self) -> bool:
        """NCCL may copy from GPU to GPU."""
        return collectives.peer_to_peer(self.environment)


def effective(environment: Mapping[str, str], settings: Preflight) -> dict[str, str]:
    """nccl.env as the engine's processes come to see it: two variables are SGLang's own where nothing
    sets them, and always where a flag needs them (0.5.23, entrypoints/engine.py)."""
    found = {CUMEM: str(int(settings.cumem)), NVLS: "0", **environment}
    if settings.symmetric_memory:
        found[CUMEM] = "1"
    if settings.symmetric_memory or settings.nvls:
        found[NVLS] = "1"
    return found


def arms(
    nccl: Mapping[str, str], profiles: Mapping[str, Mapping[str, str]], settings: Preflight
) -> tuple[Arm, ...]:
    """The two arms, and those of the profiles that set something else.

    + nccl: the variables of nccl.env
    + profiles: name -> variables that take their place
    + settings: of the engine
    """
    configured = effective(nccl, settings)
    found = [
        Arm(CONFIGURED, configured),
        Arm(WITHOUT_P2P, {**configured, "NCCL_P2P_DISABLE": "1"}),
    ]
    found += [Arm(name, effective(variables, settings)) for name, variables in profiles.items()]
    return tuple(
        arm
        for at, arm in enumerate(found)
        if not any(arm.environment == other.environment for other in found[:at])
    )


def worlds(ranks: int) -> tuple[int, ...]:
    """How many ranks add up: 2, 4, 8, ... and all; none for a single one."""
    doubled = [1 << power for power in range(1, ranks.bit_length()) if 1 << power < ranks]
    return (*doubled, ranks) if ranks > 1 else ()


def request(device: str, found: tuple[Arm, ...], ranks: int, limit_s: float) -> dict[str, Any]:
    """What in_venv.py is handed."""
    return {
        "device": device,
        "arms": [{"name": arm.name, "environment": dict(arm.environment)} for arm in found],
        "worlds": worlds(ranks),
        "sizes": SIZES,
        "limit_s": limit_s,
    }


def profiles_from(text: str) -> dict[str, dict[str, str]]:
    """Name -> NCCL's variables, from JSON; Unusable for anything else."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Unusable(f"the profiles are not JSON: {error}") from None
    if not isinstance(document, dict) or not all(map(_is_profile, document.items())):
        raise Unusable("the profiles are not an object: name -> {NCCL_...: text}")
    return document


def _is_profile(item: tuple[str, Any]) -> bool:
    name, variables = item
    return (
        bool(NAME.fullmatch(name))
        and isinstance(variables, dict)
        and all(
            VARIABLE.fullmatch(key) and isinstance(value, str) and "\0" not in value
            for key, value in variables.items()
        )
    )
