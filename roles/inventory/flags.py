"""SGLang's flags: which ones a key of the inventory sets, and which go where.

Most flags travel in the engine's --config file. SGLang's reader of that file turns
`key: value` into the two words `--key` and `value`, and knows switches that store true and
flags with one value; so three kinds have to go onto the command line instead:
flags that it refuses ("Unsupported config option"), values that begin with a dash (as a
word of their own they would be options: `--key=value` says that they are not), and the
off-form `--no-key` of those switches that have one.
Read in the server's argument parser of releases 0.5.9, 0.5.16 and 0.5.23.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from roles.inventory.flag_names import FLAGS, OFF_FORMS
from roles.inventory.model import FlagValue
from roles.inventory.names import names
from roles.inventory.quoting import config_value
from sglangctl.masking.names import is_secret_name

OWNED: dict[str, str] = {
    "host": "listen",
    "port": "port",
    "model": "model.path",
    "model-path": "model.path",
    "served-model-name": "model.served_name",
    "tp": "tensor_parallel",
    "tp-size": "tensor_parallel",
    "tensor-parallel-size": "tensor_parallel",
    "api-key": "api_key",
    "speculative-algorithm": "drafter.algorithm",
    "speculative-draft-model": "drafter.path",
    "speculative-draft-model-path": "drafter.path",
    "speculative-num-steps": "drafter.steps",
    "speculative-eagle-topk": "drafter.topk",
    "speculative-num-draft-tokens": "drafter.draft_tokens",
    "base-gpu-id": "gpus",
    "gpu-id-step": "gpus",
    "config": "flags",
    "gated-launch-port": "cutover",
}
"""Flag -> the inventory's key that sets it."""

SECRET = re.compile(r"(?:^|-)(?:api-key|password|secret|credentials?)$")
"""Names of flags that hold a secret (admin-api-key, ssl-keyfile-password)."""

KNOWN_SECRETS = ("admin-api-key", "api-key", "ssl-keyfile-password")

WITH_OFF_FORM = OFF_FORMS
"""Switches that have a --no- form; the --config file's reader refuses them."""

NOT_IN_CONFIG = WITH_OFF_FORM | names(
    # Deprecated spellings, and flags whose destination a deprecated spelling shares: 0.5.16
    # refuses the new name, too, because it looks at destinations.
    "collect-tokens-histogram cuda-graph-backend-prefill cuda-graph-bs cuda-graph-bs-decode "
    "cuda-graph-bs-prefill cuda-graph-max-bs cuda-graph-max-bs-decode cuda-graph-max-bs-prefill "
    "cuda-graph-tc-compiler disable-cuda-graph disable-piecewise-cuda-graph "
    "dsa-decode-backend dsa-prefill-backend dsa-prefill-cp-mode enable-amd-monokernel "
    "enable-breakable-cuda-graph enable-dp-attention enable-dsa-prefill-context-parallel "
    "enable-nsa-prefill-context-parallel enable-prefill-context-parallel "
    "enforce-piecewise-cuda-graph hybrid-kvcache-ratio incremental-streaming-output lora-paths "
    "mamba-radix-cache-strategy mamba-scheduler-strategy monokernel-backend nsa-decode-backend "
    "nsa-prefill-backend nsa-prefill-cp-mode piecewise-cuda-graph-compiler "
    "piecewise-cuda-graph-max-tokens piecewise-cuda-graph-tokens prefill-cp-mode "
    "prefill-round-robin-balance speculative-dflash-draft-window-size "
    "speculative-draft-window-size stream-output"
)
"""Flags that the --config file's reader of a supported release refuses."""

JSON_LISTS = names(
    "decoupled-spec-connect-endpoints forward-hooks "
    "remote-instance-weight-loader-send-weights-group-ports sidecar-args"
)
"""Flags that take a list as one JSON text, not as several values."""

_NEGATIVE = re.compile(r"-\d+|-\d*\.\d+")
"""What argparse takes for a number and not for an option."""


def is_secret(name: str) -> bool:
    """Whether a flag's value is a secret: by our own list, or by what is masked in texts."""
    return bool(SECRET.search(name)) or is_secret_name(name)


def secret_inside(value: FlagValue) -> str | None:
    """The first name within a flag's value, at any depth, that says that it has a secret.

    A key of a mapping, also of one that is written as JSON text, or a flag in a list of arguments.
    """
    if isinstance(value, str) and value.lstrip().startswith(("{", "[")):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return None  # not JSON: the engine's own parser says what it makes of it
    if isinstance(value, dict):
        for key, item in value.items():
            if is_secret(key) and isinstance(item, str) and item:
                return key
            if (found := secret_inside(item)) is not None:
                return found
    elif isinstance(value, list):
        for item in value:
            argument = isinstance(item, str) and item.startswith("-")
            name = item.lstrip("-").partition("=")[0] if argument else ""
            if is_secret(name):
                return name
            if (found := secret_inside(item)) is not None:
                return found
    return None


def short_for_secret(name: str) -> str | None:
    """The secret's flag that this name is short for.

    SGLang's parser accepts unambiguous beginnings of flags, so `admin-api-ke` would be a key in
    clear that nobody masks.
    """
    if name in FLAGS:
        return None
    return next((flag for flag in KNOWN_SECRETS if flag != name and flag.startswith(name)), None)


def off_form_of(name: str) -> str | None:
    """The switch that a --no- form turns off."""
    on = name[3:] if name.startswith("no-") else ""
    return on if on in WITH_OFF_FORM or on in FLAGS else None


def ends_at_once(name: str) -> bool:
    """Whether a flag (or what it is short for) makes the server print something and end."""
    return name not in FLAGS and any(flag.startswith(name) for flag in ("help", "version"))


def owner(name: str) -> tuple[str, str] | None:
    """The flag of ours that this one is or is short for, and the inventory's key that sets it.

    SGLang's parser accepts unambiguous beginnings of flags, so `por` would set the port.
    """
    flag = name if name in OWNED else next((flag for flag in OWNED if flag.startswith(name)), None)
    return None if flag is None else (flag, OWNED[flag])


def split(flags: Mapping[str, FlagValue]) -> tuple[dict[str, str], list[str]]:
    """Lines of the --config file (key -> JSON value) and arguments of the command line."""
    config: dict[str, str] = {}
    arguments: list[str] = []
    for name, value in sorted(flags.items()):
        if isinstance(value, list) and name in JSON_LISTS:
            config[name] = config_value(json_text(value))
        elif name in NOT_IN_CONFIG or _dashed(value):
            arguments += _arguments(name, value)
        elif isinstance(value, dict):
            # As a string: the file's reader would write floats of a mapping differently.
            config[name] = config_value(json_text(value))
        else:
            config[name] = config_value(value)
    return config, arguments


def takes_mappings(name: str) -> bool:
    """Whether SGLang understands mappings in the list of a flag."""
    return name in JSON_LISTS or name == "lora-paths"


def json_text(value: Mapping[str, Any] | list[Any]) -> str:
    """A mapping or a list as the JSON text that a flag takes."""
    return json.dumps(value, ensure_ascii=True, allow_nan=False)


def _arguments(name: str, value: FlagValue) -> list[str]:
    if isinstance(value, bool):
        if value:
            return [f"--{name}"]
        return [f"--no-{name}"] if name in WITH_OFF_FORM else []
    if isinstance(value, list):
        # In a list of --lora-paths a mapping is JSON: {"lora_name": ..., "lora_path": ...}.
        words = [json_text(item) if isinstance(item, dict) else str(item) for item in value]
        return [f"--{name}", *words] if words else []
    text = json_text(value) if isinstance(value, dict) else str(value)
    return [f"--{name}={text}"]


def _dashed(value: FlagValue) -> bool:
    if isinstance(value, (dict, list, bool)):
        return False
    text = str(value)
    return text.startswith("-") and not _NEGATIVE.fullmatch(text)
