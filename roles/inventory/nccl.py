"""NCCL's environment as data: profiles with their sources, known names, and values.

NCCL reads its variables with getenv and says nothing about a name it does not know, and
for some (NCCL_P2P_LEVEL) nothing about a value it does not know: so both are checked here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from roles.inventory import nccl_names
from roles.inventory.errors import closest


@dataclass(frozen=True)
class Profile:
    """Values that worked somewhere."""

    reason: str
    source: str
    environment: Mapping[str, str] = field(default_factory=dict)
    flags: Mapping[str, bool] = field(default_factory=dict)
    """SGLang flags that belong to it; the inventory's own flags win."""


WIKI = "local-inference-lab/rtx6kpro, optimization/nccl-tuning.md"

PROFILES: dict[str, Profile] = {
    "none": Profile(
        "NCCL's own choices: right for one GPU and wherever nothing has been measured.",
        "NCCL's defaults",
    ),
    "latency": Profile(
        "GPUs on PCIe behind two sockets: peer-to-peer across the sockets, and the protocol with "
        "the lowest latency, because the all-reduces of decoding are small.",
        f"{WIKI}: Kimi on eight RTX PRO 6000 from about 40 to 65-68 tokens/s",
        {"NCCL_P2P_LEVEL": "SYS", "NCCL_PROTO": "LL"},
    ),
    "single-switch": Profile(
        "All GPUs under one CPU or switch: peer-to-peer up to the host bridge, and at least "
        "eight channels to fill the links.",
        f"{WIKI}: 39 to 41 GB/s bus bandwidth on hosts with PCIe switches",
        {"NCCL_P2P_LEVEL": "PHB", "NCCL_MIN_NCHANNELS": "8"},
    ),
    "throughput": Profile(
        "Many requests at once: through host memory with many channels and large buffers; a "
        "single request gets slower.",
        f"{WIKI}: 100 requests from 5,000 to 10,000 tokens/s, one request from 90 to 70",
        {
            "NCCL_P2P_DISABLE": "1",
            "NCCL_MIN_NCHANNELS": "32",
            "NCCL_MAX_NCHANNELS": "64",
            "NCCL_BUFFSIZE": "67108864",
        },
    ),
    "safe": Profile(
        "A host where collectives hang (an IOMMU or ACS in the way of peer-to-peer): slow, and "
        "it works while the cause is looked for.",
        "local-inference-lab/rtx6kpro issue 21; NVIDIA/nccl issues 1999 and 2079",
        {"NCCL_P2P_DISABLE": "1", "NCCL_CUMEM_ENABLE": "0"},
        {"disable-custom-all-reduce": True},
    ),
}

AUTO = "auto"
"""In the place of a profile: the one that `sglangctl collective` proved best on the host."""

_ALGORITHM = r"(?:Tree|Ring|CollnetDirect|CollnetChain|NVLSTree|NVLS|PAT)"
_PROTOCOL = r"(?:LL128|LL|Simple)"


def _lists(item: str) -> re.Pattern[str]:
    """NCCL's form of a choice: A,B or ^A, or FUNCTION:A,B;FUNCTION:C. Case does not matter."""
    one = rf"(?:[a-z]+:)?\^?{item}(?:,{item})*"
    return re.compile(rf"{one}(?:;{one})*", re.IGNORECASE)


Kind = tuple[str, re.Pattern[str]]
"""What is allowed, in words and as a pattern of the whole value."""

LEVELS = ("LOC", "NVL", "NVB", "C2C", "PIX", "PXB", "P2C", "PXN", "PHB", "SYS")
LEVEL: Kind = (
    f"{', '.join(LEVELS[:-1])} or {LEVELS[-1]} (upper case)",
    re.compile("|".join(LEVELS)),
)
OLD_LEVELS = ("LOC", "PIX", "PXB", "PHB", "SYS")
"""What NCCL reads for the numbers 0 to 4 of before it had names; larger ones are SYS, too."""
SWITCH: Kind = ("0 or 1", re.compile(r"[01]"))
INTEGER: Kind = ("a whole number", re.compile(r"-?[0-9]{1,18}|0x[0-9a-fA-F]{1,15}"))
CHANNELS: Kind = ("a number from 1 to 64", re.compile(r"[1-9]|[1-5][0-9]|6[0-4]"))
THREADS: Kind = ("64, 128, 256, 512 or 1024", re.compile(r"64|128|256|512|1024"))
TEXT: Kind = ("a text without control characters", re.compile(r"[^\x00-\x1f\x7f-\x9f]+"))
DEBUG: Kind = (
    "VERSION, WARN, INFO, ABORT or TRACE",
    re.compile(r"VERSION|WARN|INFO|ABORT|TRACE", re.IGNORECASE),
)
PROTO: Kind = (
    "LL, LL128, Simple: separated by commas, or ^ and what to leave out",
    _lists(_PROTOCOL),
)
ALGO: Kind = (
    "Ring, Tree, CollnetDirect, CollnetChain, NVLS, NVLSTree, PAT: separated by commas, or ^ and "
    "what to leave out",
    _lists(_ALGORITHM),
)

KNOWN: dict[str, Kind] = {
    **dict.fromkeys((f"NCCL_{name}" for name in nccl_names.INTEGERS), INTEGER),
    **dict.fromkeys((f"NCCL_{name}" for name in nccl_names.TEXTS), TEXT),
    **dict.fromkeys((f"NCCL_{name}" for name in nccl_names.SWITCHES), SWITCH),
    **dict.fromkeys((f"NCCL_{name}" for name in nccl_names.CHANNELS), CHANNELS),
    # Unknown words here are ignored in silence, `sys` as well as `SYSTEM` (NCCL's
    # src/graph/paths.cc compares with strcmp). Its old numbers are not what one thinks: 2 is PXB.
    "NCCL_P2P_LEVEL": LEVEL,
    "NCCL_NET_GDR_LEVEL": LEVEL,
    "NCCL_PROTO": PROTO,
    "NCCL_ALGO": ALGO,
    "NCCL_DEBUG": DEBUG,
    "NCCL_NTHREADS": THREADS,
    "NCCL_LL128_NTHREADS": THREADS,
}
"""Variable -> the values that NCCL understands."""


def full_name(name: str) -> str:
    """The variable's name; the prefix NCCL_ may be left out in the inventory."""
    return name if name.startswith("NCCL_") else f"NCCL_{name}"


def allowed_value(name: str, value: str) -> str | None:
    """None when the value is one that NCCL understands, else what it understands."""
    allowed, pattern = KNOWN[name]
    if pattern.fullmatch(value):
        return None
    if KNOWN[name] is LEVEL and (level := _old_level(value)):
        return f"{allowed}; {value} is {level}"
    return allowed


def meant_value(name: str, value: str) -> str | None:
    """The value that was probably meant by one that NCCL does not understand."""
    kind = KNOWN[name]
    if kind is LEVEL:
        return _old_level(value) or closest(value, LEVELS)
    if kind is SWITCH:
        return _AS_SWITCH.get(value.lower())
    return closest(value, re.findall(r"[A-Za-z0-9]+", kind[0]))


_AS_SWITCH = {"true": "1", "yes": "1", "on": "1", "false": "0", "no": "0", "off": "0"}


def _old_level(value: str) -> str | None:
    if not re.fullmatch("[0-9]{1,4}", value):
        return None
    return OLD_LEVELS[min(int(value), len(OLD_LEVELS) - 1)]


def suggestion(name: str) -> str | None:
    """The known variable that was probably meant by an unknown one."""
    return closest(name, KNOWN)
