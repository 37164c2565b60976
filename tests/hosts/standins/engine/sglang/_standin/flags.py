"""The command line and the --config file, with the real engine's rules and wordings."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from typing import Any

from sglang._standin import option_names as names

ALIASES = {
    "tp-size": ["tensor-parallel-size"],
    "pp-size": ["pipeline-parallel-size"],
    "dp-size": ["data-parallel-size"],
    "model-path": ["model"],
    "speculative-draft-model-path": ["speculative-draft-model"],
    "dist-init-addr": ["nccl-init-addr"],
}
NUMBERS: dict[str, Any] = {
    "tp-size": (int, 1),
    "pp-size": (int, 1),
    "dp-size": (int, 1),
    "port": (int, 30000),
    "nnodes": (int, 1),
    "node-rank": (int, 0),
    "base-gpu-id": (int, 0),
    "gpu-id-step": (int, 1),
    "watchdog-timeout": (float, 300),
    "mem-fraction-static": (float, None),
    "max-total-tokens": (int, None),
    "max-running-requests": (int, None),
    "chunked-prefill-size": (int, 8192),
    "context-length": (int, None),
    "speculative-num-steps": (int, None),
    "speculative-eagle-topk": (int, None),
    "speculative-num-draft-tokens": (int, None),
    "random-seed": (int, None),
}
DEFAULTS = {"host": "127.0.0.1", "log-level": "info", "model-impl": "auto", "dtype": "auto"}


class ServerArgs(argparse.Namespace):
    """The parsed options; a name of the command line with underscores is an attribute."""

    @staticmethod
    def add_cli_args(parser: argparse.ArgumentParser) -> None:
        """Add every option that this version knows."""
        parser.add_argument("--model-path", *aliases("model-path"), required=True)
        for name in names.VALUE:
            kind, default = NUMBERS.get(name, (str, DEFAULTS.get(name)))
            parser.add_argument(
                f"--{name}",
                *aliases(name),
                type=kind,
                default=default,
                choices=names.CHOICES.get(name),
            )
        for name in names.FLAG:
            parser.add_argument(f"--{name}", action="store_true")
        for name in names.BOOLEAN:
            parser.add_argument(f"--{name}", action=argparse.BooleanOptionalAction)
        for name in names.LIST:
            parser.add_argument(f"--{name}", nargs="+")
        for name in names.OPTIONAL:
            parser.add_argument(f"--{name}", nargs="?", const="")
        parser.add_argument("--config")

    @classmethod
    def from_cli_args(cls, args: argparse.Namespace) -> ServerArgs:
        """The options of a parsed command line."""
        return cls(**vars(args))

    def items(self) -> dict[str, Any]:
        """All options but --config, as `server_args=` logs them: secrets are in it."""
        known = {key: value for key, value in vars(self).items() if key != "config"}
        return dict(sorted(known.items()))


def aliases(name: str) -> list[str]:
    return [f"--{alias}" for alias in ALIASES.get(name, [])]


def prepare_server_args(argv: list[str]) -> ServerArgs:
    """Parse `argv`; exit status 2 for what it does not know, ValueError for a bad --config."""
    parser = argparse.ArgumentParser(prog="sglang serve")
    ServerArgs.add_cli_args(parser)
    args = ServerArgs.from_cli_args(parser.parse_args(with_config(argv, parser)))
    args.tokenizer_path = args.tokenizer_path or args.model_path
    args.served_model_name = args.served_model_name or args.model_path
    return args


def with_config(argv: list[str], parser: argparse.ArgumentParser) -> list[str]:
    """Put the options of the --config file in front of `argv`, so that `argv` wins."""
    if "--config" not in argv:
        return argv
    place = argv.index("--config")
    if place + 1 >= len(argv):
        raise ValueError("No config file specified after --config flag!")
    path = argv[place + 1]
    if not path.endswith((".yaml", ".yml")):
        raise ValueError(f"Config file must be YAML format, got: {path}")
    return [*config_words(read_config(path), parser), *argv[:place], *argv[place + 2 :]]


def config_words(config: dict[str, Any], parser: argparse.ArgumentParser) -> list[str]:
    """The options of a --config document as words of a command line."""
    words = []
    for key, value in config.items():
        # The real rules look the key up with hyphens or underscores, but hand it on as it is.
        action = parser._option_string_actions.get(f"--{key.replace('_', '-')}")
        two_way = isinstance(action, argparse.BooleanOptionalAction)
        if two_way or (action and action.dest == "disable_cuda_graph"):
            raise ValueError(
                f"Unsupported config option '{key.replace('-', '_')}' with action "
                f"'{type(action).__name__}'"
            )
        if isinstance(value, bool) and isinstance(action, argparse._StoreTrueAction):
            words += [f"--{key}"] if value else []
        elif isinstance(value, (bool, dict)):
            words += [f"--{key}", json.dumps(value)]
        elif isinstance(value, list):
            words += [f"--{key}", *(str(item) for item in value)] if value else []
        else:
            words += [f"--{key}", str(value)]
    return words


def read_config(path: str) -> dict[str, Any]:
    """A YAML file of `key: scalar` or `key: JSON` lines, which is all that is read here."""
    if not os.path.exists(path):
        raise ValueError(f"Config file not found: {path}")
    with open(path, encoding="utf-8") as file:
        text = file.read()
    config = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = re.match(r'^"?([A-Za-z0-9_.-]+)"?:(?:\s+(.*))?$', line)
        if not match:
            sys.exit(f"{path}:{number}: the stand-in reads only `key: value` lines: {line!r}")
        config[match[1]] = scalar(match[2] or "")
    return config


def scalar(text: str) -> Any:
    """A JSON value, or a plain or single-quoted YAML scalar."""
    try:
        return json.loads(text)
    except ValueError:
        pass
    if len(text) > 1 and text[0] == text[-1] == "'":
        return text[1:-1].replace("''", "'")
    return text.partition(" #")[0].rstrip()
