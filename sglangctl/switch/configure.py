"""Write what this host knows of an engine, and have its watch read it; the engine goes on.

The configuration comes through standard input, as JSON. What a switch changes it writes itself
(`sglangctl switch --config`); this is for what needs none: a readiness limit, a newer program of
the watch, and an engine of which no release is live yet. Under the host's lock. --seen as in
`sglangctl switch`. Exit status: 0 done, 1 not, 2 what was sent is no configuration (then nothing
was changed).
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from sglangctl.state import release
from sglangctl.state.config import ConfigError, EngineConfig, checked_document, engine_from
from sglangctl.state.files import write_atomic
from sglangctl.state.lock import Busy, locked
from sglangctl.state.paths import Paths
from sglangctl.state.release import ReleaseError
from sglangctl.state.switch_error import SwitchError
from sglangctl.systemd import systemctl
from sglangctl.util import os_errors

SENT = Path("the configuration that was sent")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", help="the engine's name")
    parser.add_argument("--seen", metavar="TIME", help="what the caller decided by")
    parser.add_argument(
        "--restart-watch", action="store_true", help="start sglang-watch@NAME.service anew"
    )


def run(args: argparse.Namespace) -> int:
    paths = Paths()
    try:
        config = sys.stdin.read()
        engine_of(args.name, config)
        with locked(paths, args.name, f"change of {args.name}'s configuration"):
            if args.seen is not None:
                release.check_unchanged(args.name, args.seen, paths)
            put_config(args.name, config, paths)
            if args.restart_watch:
                restart_watch(args.name)
    except (Busy, ConfigError, ReleaseError, SwitchError, OSError, ValueError) as error:
        print(f"sglangctl configure: {os_errors.words(error)}", file=sys.stderr)
        return 2 if isinstance(error, ConfigError) else 1
    return 0


def read_config(source: str) -> str:
    """The text of a configuration: of a file, or of standard input for `-`."""
    return sys.stdin.read() if source == "-" else Path(source).read_text(encoding="utf-8")


def engine_of(name: str, config: str) -> EngineConfig:
    """The engine that a configuration's text describes; ConfigError when it cannot be used."""
    try:
        document = json.loads(config)
    except ValueError as error:
        raise ConfigError(f"{SENT} is not JSON ({error}): deploy again") from None
    engine = engine_from(checked_document(document, SENT), SENT)
    if engine.name != name:
        raise ConfigError(f"{SENT} is that of {engine.name}, not of {name}: deploy again")
    return engine


def put_config(name: str, config: str, paths: Paths) -> None:
    """Write engines/NAME.json, if it is not this already."""
    path = paths.engine_json(name)
    data = config.encode("utf-8")
    if path.is_symlink() or not path.is_file() or path.read_bytes() != data:
        write_atomic(path, data, 0o644)


def restart_watch(name: str) -> None:
    """SwitchError when systemd does not do it."""
    watch = f"sglang-watch@{name}.service"
    for arguments in (("daemon-reload",), ("restart", "--", watch)):
        result = systemctl.systemctl(*arguments, timeout_s=120)
        if not result.ok:
            raise SwitchError(
                f"systemctl {' '.join(arguments)} failed: {result.stderr.strip()}; "
                f"systemctl status {watch} says more"
            )
