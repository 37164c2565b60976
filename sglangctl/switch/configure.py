"""An engine's configuration as it was sent: checked, written, read by its watch."""

from __future__ import annotations

import json
from pathlib import Path

from sglangctl.state import release
from sglangctl.state.config import (
    ConfigError,
    EngineConfig,
    checked_document,
    engine_from,
    located,
)
from sglangctl.state.files import write_atomic
from sglangctl.state.lock import locked
from sglangctl.state.paths import Paths
from sglangctl.systemd import systemctl
from sglangctl.systemd.unit_names import watch_unit
from sglangctl.util.errors import Failed

SENT = Path("the configuration that was sent")


def configure(name: str, config: str, seen: str | None, watch_anew: bool, paths: Paths) -> None:
    """Write an engine's configuration, under the host's lock; `seen` as in `switch`.

    ConfigError, with nothing changed, when what was sent cannot be used.
    """
    engine_of(name, config, paths)
    with locked(paths, name, f"change of {name}'s configuration"):
        if seen is not None:
            release.check_unchanged(name, seen, paths)
        put_config(name, config, paths)
        if watch_anew:
            restart_watch(name)


def engine_of(name: str, config: str, paths: Paths) -> EngineConfig:
    """The engine that a configuration's text describes; ConfigError when it cannot be used."""
    try:
        document = json.loads(config)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{SENT} is not JSON ({error}): deploy again") from None
    engine = engine_from(checked_document(document, SENT), SENT)
    if engine.name != name:
        raise ConfigError(f"{SENT} is that of {engine.name}, not of {name}: deploy again")
    return located(engine, paths)


def put_config(name: str, config: str, paths: Paths) -> None:
    """Write engines/NAME.json, if it is not this already."""
    path = paths.engine_json(name)
    data = config.encode("utf-8")
    if path.is_symlink() or not path.is_file() or path.read_bytes() != data:
        write_atomic(path, data, 0o644)


def restart_watch(name: str) -> None:
    """Failed when systemd does not do it."""
    watch = watch_unit(name)
    for arguments in (("daemon-reload",), ("restart", "--", watch)):
        result = systemctl.call(*arguments, timeout_s=120)
        if not result.ok:
            raise Failed(
                f"systemctl {' '.join(arguments)} failed: {result.stderr.strip()}; "
                f"systemctl status {watch} says more"
            )
