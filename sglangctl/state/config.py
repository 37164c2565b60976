"""The configuration of the host program: host.json and engines/NAME.json.

Written by the controller, read here; no secret is in them. Every limit is a value, so that
a test can run with small ones. Units are in the names: _s seconds, _mib MiB.
"""

from __future__ import annotations

import json
import os
import zlib
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, TypeVar, cast

from sglangctl.state import slots
from sglangctl.state.paths import NAME, Paths, linked
from sglangctl.systemd.unit_names import engine_unit
from sglangctl.util import os_errors, plain_files
from sglangctl.util.errors import Unusable

VERSION = 1
T = TypeVar("T")
_PLAIN: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "int": (int,),
    "float": (int, float),
    "bool": (bool,),
    "None": (type(None),),
}


class ConfigError(Unusable):
    """A file of /etc/sglangctl that cannot be used."""


class Absent(ConfigError):
    """The file does not exist."""


@dataclass(frozen=True)
class Limits:
    """Every time limit and threshold of the host program."""

    start_s: float = 3600.0
    """Time limit of the whole start: outcome `deadline` when it has passed."""
    failed_cause_s: float = 2.0
    """How long a failure waits for the log's own cause before it is `rank-died`."""
    stalled_flat_s: float = 300.0
    """Nothing moved, processor time included: `stalled`."""
    stalled_busy_s: float = 900.0
    """Nothing moved but processor time: `stalled`."""
    rank_stopped_s: float = 30.0
    """A rank in state T is named at the latest this long after it was stopped."""
    port_held_s: float = 10.0
    """Somebody else listens on the port for this long before the engine binds it: it will not come
    to serve, and is not waited for. What a killed start leaves is gone sooner."""
    unresponsive_idle_s: float = 30.0
    unresponsive_busy_s: float = 120.0
    restart_unresponsive_s: float = 60.0
    """Unresponsive for this long is restarted, where readiness.restart_unresponsive says so."""
    probe_starting_s: float = 0.5
    """Between the end of one HTTP probe and the next, until it serves."""
    probe_serving_s: float = 4.0
    """With http_timeout_s it must stay below unresponsive_idle_s."""
    http_timeout_s: float = 25.0
    """Above SGLang's own 20 s, or its answer 503 is never seen."""
    generate_timeout_s: float = 600.0
    sample_s: float = 1.0
    """Between two looks at processes, GPUs and sockets."""
    stop_units_s: float = 130.0
    """systemctl stop of a unit: above its own TimeoutStopSec (120)."""
    stop_starting_s: float = 15.0
    """The same for an engine that has not served yet: it has nothing to finish, and SGLang does not
    obey SIGTERM while it warms up."""
    term_s: float = 10.0
    """From SIGTERM to SIGKILL, for single processes."""
    kill_s: float = 10.0
    """From SIGKILL to giving up on a process."""
    devices_s: float = 60.0
    """For the devices and their memory to become free after the last holder is gone."""
    respawn_s: float = 5.0
    """Watched after freeing: what comes back by itself within it is named."""
    rollback_s: float = 2700.0
    """For what ran before a switch to serve again, when the switch goes back: vLLM took 25 minutes
    to load a model of 547 GB."""
    memory_free_mib: float = 1024.0
    """Memory in use on a GPU below which it counts as free."""


@dataclass(frozen=True)
class Readiness:
    """What `ready` asks beyond serving."""

    degraded: str = "commit"
    """`commit`: degraded is printed and kept; `fail`: it fails the deploy."""
    min_accept_length: float = 1.2
    expect: str | None = None
    """Text that the answer must contain."""
    prompt: str = "Name the capital of France and say one sentence about it."
    max_tokens: int = 64
    restart_unresponsive: bool = False
    warm: str | tuple[str, ...] = "standard"
    """Which paths the proof walks: `standard`, `short`, or prompts of the operator's own."""
    first_token_s: float = 10.0
    """Repeated at the end of the proof, each path's first token must come within this time."""
    reachable_at: str | None = None
    """Where the controller asks as clients do. Known here so that a change of it is one."""

    @property
    def asked(self) -> str:
        """What a proof is asked for, as a short digest: it proves nothing else."""
        values: list[Any] = [self.prompt, self.expect, self.max_tokens, self.min_accept_length]
        values += [self.warm, self.first_token_s]
        return f"{zlib.crc32(json.dumps(values).encode()):08x}"


@dataclass(frozen=True)
class Drafter:
    """Speculative decoding: the draft model and its shape."""

    algorithm: str = "EAGLE3"
    path: str | None = None
    steps: int | None = None
    topk: int | None = None
    draft_tokens: int | None = None


@dataclass(frozen=True)
class Preflight:
    """What the checks before a switch have to know beside the rest, and what they leave alone."""

    ignore: tuple[str, ...] = ()
    """Ids of findings that stop nothing (sglangctl/preflight/catalog.py)."""
    device: str = "cuda"
    """`cpu`: nothing of GPUs is checked."""
    authenticated: bool = True
    """Clients need an api key."""
    files: tuple[str, ...] = ()
    """Absolute paths that flags name: the engine's user must be able to read them."""
    derived_ports: tuple[int, ...] = ()
    """What the engine binds beside its port."""
    peer_to_peer: bool = True
    """NCCL may copy from GPU to GPU: nothing sets NCCL_P2P_DISABLE=1."""
    custom_all_reduce: bool = True
    """SGLang may use its own all-reduce, and does not ask first whether peer-to-peer works."""
    symmetric_memory: bool = False
    """The flag enable-symm-mem."""
    nvls: bool = False
    """The flag enable-nccl-nvls."""
    cumem: bool = False
    """A flag has SGLang switch on NCCL_CUMEM_ENABLE where nothing else sets it."""
    pipeline_parallel: int = 1
    attention_replicas: int = 1
    """Among which DP attention shares out the ranks."""
    mem_fraction: float | None = None
    """The flag mem-fraction-static."""
    context_length: int | None = None
    kv_cache_dtype: str = "auto"
    flags: tuple[str, ...] = ()
    """NAME=VALUE of those that preflight/flags.py names."""
    replicas: int = 1
    """Of data parallelism without DP attention: each takes GPUs of its own."""
    python: str = "python3"
    """The interpreter that the environment is made with."""
    as_stored: bool = True
    """The weights are as large on the GPUs as their files are: no flag converts or moves them."""


@dataclass(frozen=True)
class Acceptance:
    """A small load of our own, compared with the last accepted one of this model and hardware."""

    tolerance: float = 0.1
    """Share of the speed that may be lost: 0.1 is 10 %."""
    fail: bool = False
    """A slower engine is not ready; else it is degraded."""
    concurrency: int = 8
    tokens: int = 64
    """Of each answer."""
    limit_s: float = 30.0
    replaced: bool = True
    """Measure the engine that is replaced as well, and ask it the canaries, before it is stopped."""


@dataclass(frozen=True)
class Fallback:
    """Overrides of an engine, as a release of their own. A switch to `instead_of` tries it where that
    does not come to serve."""

    name: str
    release: str
    """Its digest."""
    instead_of: str
    """The digest of the wanted release."""
    drafter: Drafter | None = None
    preflight: Preflight = field(default_factory=Preflight)


@dataclass(frozen=True)
class EngineConfig:
    """engines/NAME.json."""

    name: str
    unit: str
    user: str
    port: int
    listen: str
    model: str
    served_name: str
    version: str | None = None
    tensor_parallel: int = 1
    gpus: str | tuple[int, ...] = "all"
    replaces: tuple[str, ...] = ()
    rollback: bool = True
    """A switch whose engine does not come to serve brings back what ran before."""
    cutover: str = "auto"
    """auto, gated or plain: see switch/cutover.py."""
    warm_page_cache: str = "auto"
    """`auto`: a switch reads the weights into the page cache before it stops anything; `off`."""
    drafter: Drafter | None = None
    acceptance: Acceptance | None = None
    readiness: Readiness = field(default_factory=Readiness)
    limits: Limits = field(default_factory=Limits)
    preflight: Preflight = field(default_factory=Preflight)
    fallbacks: tuple[Fallback, ...] = ()
    """In the order in which they are tried."""
    v: int = VERSION

    def with_release(self, digest: str | None) -> EngineConfig:
        """The configuration that goes with a release: that of a fallback has its overrides."""
        for one in self.fallbacks:
            if one.release == digest:
                return replace(self, drafter=one.drafter, preflight=one.preflight)
        return self


@dataclass(frozen=True)
class HostConfig:
    """host.json: the engines of this host, and processes that must never be ended."""

    engines: tuple[str, ...] = ()
    protected: tuple[str, ...] = ()
    """More titles (comm or base name of argv[0]) of the class `protected`."""
    containers: tuple[str, ...] = ()
    """Names of containers that `free` may stop through their engine."""
    v: int = VERSION


def load_engine(name: str, paths: Paths | None = None) -> EngineConfig:
    """Read engines/NAME.json, as it holds for the live release; ConfigError names the file and what is
    wrong with it (Unusable: what is no name)."""
    paths = paths or Paths()
    path = paths.engine_json(name)
    try:
        config = engine_from(read_document(path), path)
    except Absent:
        raise Absent(unknown(name, paths)) from None
    if config.name != name:
        raise ConfigError(f"{path} is about another engine ({config.name!r}); deploy again")
    if config.fallbacks:
        config = config.with_release(linked(name, "current", paths))
    return located(config, paths)


def located(engine: EngineConfig, paths: Paths) -> EngineConfig:
    """The same engine, with `unit` as it is on this host: it is configured with its own name."""
    if engine.unit != engine_unit(engine.name):
        return engine
    return replace(engine, unit=slots.live_unit(engine.name, paths))


def require_known(name: str, paths: Paths) -> None:
    """ConfigError for an engine of which there is nothing on this host (one that cannot be
    configured any more may still have its log and its starts)."""
    left = (paths.engine_json(name), paths.engine_state(name), paths.engine_log(name).parent)
    if not any(os.path.lexists(path) for path in left):
        raise Absent(unknown(name, paths))


def unknown(name: str, paths: Paths) -> str:
    """The sentence for a name that no engine of this host has."""
    names = engine_names(paths)
    if not names:
        return f"no engine is configured on this host ({paths.engines} has none): deploy first"
    return f"there is no engine {name} on this host (there is: {', '.join(names)}): deploy it first"


_OPTIONAL: dict[str, type] = {"drafter": Drafter, "acceptance": Acceptance}
_PARTS: dict[str, type] = {
    "readiness": Readiness,
    "limits": Limits,
    "preflight": Preflight,
    **_OPTIONAL,
}


def engine_from(document: dict[str, Any], source: Path) -> EngineConfig:
    """An engine's configuration from its JSON object; ConfigError names `source`."""
    document = _with_parts(document, source)
    fallbacks = document.get("fallbacks", [])
    if isinstance(fallbacks, list) and all(isinstance(one, dict) for one in fallbacks):
        document["fallbacks"] = [
            _build(Fallback, _with_parts(one, source), source) for one in fallbacks
        ]
    return _build(EngineConfig, document, source)


def _with_parts(document: dict[str, Any], source: Path) -> dict[str, Any]:
    """A copy in which mappings are what _PARTS makes of them."""
    document = dict(document)
    for key, kind in _PARTS.items():
        if key in document and (document[key] is not None or key not in _OPTIONAL):
            document[key] = _build(kind, document[key], source)
    return document


def host_from(document: dict[str, Any], source: Path) -> HostConfig:
    """A host's configuration from its JSON object; ConfigError names `source`."""
    return _build(HostConfig, document, source)


def siblings_of(name: str, paths: Paths) -> list[EngineConfig]:
    """The other engines of this host. Its own file is not read: a deploy may have come to mend it.

    Of one whose file cannot be used only the unit is known: it is never ended for another, and has the
    GPUs that its processes are on.
    """
    names = [other for other in engine_names(paths) if other != name and NAME.fullmatch(other)]
    return [_sibling(other, paths) for other in names]


def _sibling(name: str, paths: Paths) -> EngineConfig:
    try:
        return load_engine(name, paths)
    except ConfigError:
        unknown = EngineConfig(name, engine_unit(name), "", 0, "", "", "", gpus=())
        return located(unknown, paths)


def engine_names(paths: Paths) -> list[str]:
    """The names of this host's engines; ConfigError where they may not be looked at."""
    try:
        entries = os.listdir(paths.engines)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise ConfigError(os_errors.sentence(error)) from None
    return sorted(entry[: -len(".json")] for entry in entries if entry.endswith(".json"))


def readable(paths: Paths) -> tuple[HostConfig, list[EngineConfig], list[str]]:
    """What can be read of the configuration, and why the rest cannot: who holds the GPUs is to
    be seen all the same, the classes then rest on less."""
    host, engines, troubles = HostConfig(), [], []
    try:
        host = load_host(paths)
    except ConfigError as error:
        troubles.append(str(error))
    try:
        names = engine_names(paths)
    except ConfigError as error:
        return host, [], [*troubles, str(error)]
    for name in names:
        try:
            engines.append(load_engine(name, paths))
        except Unusable as error:
            troubles.append(str(error))
    return host, engines, troubles


def load_host(paths: Paths | None = None) -> HostConfig:
    """Read host.json; an absent file is an empty configuration."""
    path = (paths or Paths()).host_json
    try:
        return _build(HostConfig, read_document(path), path)
    except Absent:
        return HostConfig()


def read_document(path: Path) -> dict[str, Any]:
    """One of our JSON documents, its version checked; ConfigError if it cannot be used."""
    try:
        document = json.loads(plain_files.read_bytes(path).decode("utf-8"))
    except FileNotFoundError:
        raise Absent(f"{path} is missing: deploy first, or see: sglangctl status") from None
    except OSError as error:
        raise ConfigError(os_errors.sentence(error)) from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not JSON ({error}): deploy again") from None
    return checked_document(document, path)


def checked_document(document: Any, source: Path) -> dict[str, Any]:
    """`document` if it has our form; ConfigError names `source`."""
    if not isinstance(document, dict) or document.get("v") != VERSION:
        raise ConfigError(f"{source} is not of version {VERSION}: deploy again with this checkout")
    return cast("dict[str, Any]", document)


GONE = frozenset(["decode_graphs", "prefill_attention"])
"""Fields of before: the files of a host that was deployed by then have them until its next deploy."""


def _build(kind: type[T], document: Any, path: Path) -> T:
    if not isinstance(document, dict):
        raise ConfigError(f"{path}: {kind.__name__} must be a mapping; deploy again")
    known = {item.name for item in fields(cast("Any", kind))}
    unknown = sorted(set(document) - known - GONE)
    if unknown:
        raise ConfigError(f"{path}: unknown keys {', '.join(unknown)}; deploy again")
    values = {
        key: tuple(value) if isinstance(value, list) else value
        for key, value in document.items()
        if key in known
    }
    for item in fields(cast("Any", kind)):
        if item.name in values and not _fits(str(item.type), values[item.name]):
            raise ConfigError(f"{path}: {item.name} is not a {item.type}; deploy again")
    try:
        return kind(**values)
    except TypeError as error:
        raise ConfigError(f"{path}: {error}; deploy again") from None


def _fits(wanted: str, value: Any) -> bool:
    """Whether a value is of a field's annotation (which Python 3.9 cannot evaluate)."""
    for part in wanted.split(" | "):
        if part.startswith("tuple["):
            inner = part[len("tuple[") : -len(", ...]")]
            if isinstance(value, tuple) and all(_fits(inner, item) for item in value):
                return True
        elif part in _PLAIN:
            if isinstance(value, _PLAIN[part]) and (part == "bool" or not isinstance(value, bool)):
                return True
        elif type(value).__name__ == part:
            return True
    return False
