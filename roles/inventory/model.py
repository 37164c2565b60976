"""What an inventory means, once it is known to be right. Frozen; no I/O, no pyinfra."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from roles.inventory import nccl, pip_options
from roles.inventory.errors import Mistake
from roles.inventory.locked import Locked
from roles.inventory.secret import Secret
from sglangctl.state import collectives
from sglangctl.state.config import Acceptance, Drafter, Limits, Preflight, Readiness
from sglangctl.systemd.unit_names import engine_unit

FlagValue = bool | int | float | str | list[Any] | dict[str, Any]


@dataclass(frozen=True)
class Model:
    """The model that is served."""

    path: str
    served_name: str


@dataclass(frozen=True)
class Nccl:
    """NCCL's environment: a profile, and what overrides it (None takes a variable away)."""

    profile: str = "none"
    overrides: Mapping[str, str | None] = field(default_factory=dict)
    auto: bool = False
    """The inventory says `auto`: `profile` is what is proven on the host (auto_profile.py), and
    `none` before the host was asked."""
    decided: tuple[str, ...] = ()
    """With `auto`: the flags of profiles of which the inventory says something itself."""

    @property
    def environment(self) -> dict[str, str]:
        """The variables as the engine gets them, sorted by name."""
        merged = {**nccl.PROFILES[self.profile].environment, **self.overrides}
        return {name: value for name, value in sorted(merged.items()) if value is not None}

    @property
    def peer_to_peer(self) -> bool:
        """NCCL may copy from GPU to GPU."""
        return collectives.peer_to_peer(self.environment)


def custom_all_reduce(flags: Mapping[str, Any]) -> bool:
    """SGLang may use its own all-reduce, and does not ask first whether peer-to-peer works."""
    return not any(
        flags.get(flag) is True for flag in ("disable-custom-all-reduce", "enable-p2p-check")
    )


@dataclass(frozen=True)
class Install:
    """How the engine's virtual environment is made."""

    python: str
    packages: tuple[str, ...]
    """Exact pins, `sglang` among them."""
    pip_arguments: tuple[str, ...] = ()
    system_site_packages: bool = False
    locked: Locked | None = None
    """All packages, where they are chosen already."""
    lock_file: Path | None = None
    """Where a deploy keeps the lock that it makes, on the controller."""
    index: tuple[str, ...] = ()
    """Addresses of package indexes: the first one instead of PyPI, the others beside it."""
    find_links: tuple[str, ...] = ()
    """Folders of the host, and pages, with wheels."""

    @property
    def arguments(self) -> tuple[str, ...]:
        """Of `pip install`: where packages come from, and what else the inventory says."""
        return (*pip_options.sources(self.index, self.find_links), *self.pip_arguments)


@dataclass(frozen=True)
class Patch:
    """A patch of the kernel's source, read on the controller."""

    name: str
    sha256: str
    content: bytes = field(repr=False)


@dataclass(frozen=True)
class Kernel:
    """Where the kernel library comes from, and how one is built."""

    source: Literal["auto", "wheel", "build", "none"] = "auto"
    version: str | None = None
    patches: tuple[Patch, ...] = ()
    arch: str | None = None
    """`120a`; None: of the host's GPUs."""
    max_jobs: int | None = None
    """None: from memory."""
    nvcc_threads: int = 1
    cmake_args: tuple[str, ...] = ()
    build_host: str | None = None
    git_url: str = ""
    git_commit: str | None = None
    git_path: str | None = None
    cache: str = ""
    """An absolute path on the controller."""

    @property
    def decides(self) -> dict[str, Any]:
        """What of it decides what lands in the virtual environment: empty for the default.

        It is part of the environment's digest, so that another kernel is another environment and
        one that was verified is never modified. What only says how a build is done is not in it.
        """
        if self.source == "none":
            return {"source": "none"}
        found = {
            "source": None if self.source == "auto" else self.source,
            "version": self.version,
            "patches": [patch.sha256 for patch in self.patches],
            "arch": self.arch,
            "cmake_args": list(self.cmake_args),
            "git_commit": self.git_commit,
            "git_path": self.git_path,
        }
        return {key: value for key, value in found.items() if value}


@dataclass(frozen=True)
class CompileCache:
    """What becomes of what the engine compiles."""

    share: bool = False
    """It goes to other hosts of the same key."""


def state_of(name: str) -> str:
    """An engine's folder of releases, starts and links on the host."""
    return f"/var/lib/sglangctl/{name}"


@dataclass(frozen=True)
class EngineSpec:
    """One engine of one host. `readiness` and `limits` are sglangctl's own dataclasses."""

    name: str
    version: str
    model: Model
    drafter: Drafter | None
    acceptance: Acceptance | None
    tensor_parallel: int
    gpus: Literal["all"] | tuple[int, ...]
    listen: str
    port: int
    api_key: Secret | None
    flags: Mapping[str, FlagValue]
    """SGLang flags without --; none of them is a secret or one that a key here sets."""
    shipped: Mapping[str, bytes] = field(repr=False)
    """Name in the release -> content, of the files of the controller that flags name."""
    secret_flags: Mapping[str, Secret]
    environment: Mapping[str, str]
    """What the inventory adds to or changes in the engine's environment."""
    secret_environment: Mapping[str, Secret]
    """Variables with a secret; their names say so."""
    nccl: Nccl
    user: str
    install: Install
    kernel: Kernel
    replaces: tuple[str, ...]
    rollback: bool
    restart: Literal["auto", "never"]
    was: str | None
    """Its name before, on a host where it has that still."""
    cutover: Literal["auto", "gated", "plain"]
    warm_page_cache: Literal["auto", "off"]
    readiness: Readiness
    limits: Limits
    preflight: Preflight
    hardening: Literal["baseline", "strict"]
    compile_cache: CompileCache = CompileCache()
    user_is_named: bool = True
    """By the inventory; else `user` is the engine's own, and what runs may have another."""
    fallbacks: Mapping[str, EngineSpec] = field(default_factory=dict)
    """This engine with other flags, by the fallback's name, in the order in which they are tried."""

    @property
    def unit(self) -> str:
        return engine_unit(self.name)

    @property
    def group(self) -> str:
        """The service user's own group, which may read the configuration and the log."""
        return self.user

    @property
    def state(self) -> str:
        """Releases, starts and links on the host."""
        return state_of(self.name)

    @property
    def current(self) -> str:
        """The link to the live release."""
        return f"{self.state}/current"

    @property
    def cache(self) -> str:
        """HOME of the engine: compiled kernels and what else may be lost."""
        return f"/var/cache/sglang/{self.name}"

    @property
    def log_folder(self) -> str:
        return f"/var/log/sglang/{self.name}"

    @property
    def log(self) -> str:
        return f"{self.log_folder}/engine.log"

    @property
    def secrets(self) -> tuple[Secret, ...]:
        """Everything that must be masked in what is printed or kept."""
        keys = (self.api_key,) if self.api_key else ()
        own = (*keys, *self.secret_flags.values(), *self.secret_environment.values())
        return own + tuple(one for other in self.fallbacks.values() for one in other.secrets)


@dataclass(frozen=True)
class HostSpec:
    """One host: its engines, and what on it must or may be ended."""

    name: str
    engines: tuple[EngineSpec, ...]
    protected: tuple[str, ...] = ()
    containers: tuple[str, ...] = ()
    prune: Literal["ask", "yes", "no"] = "ask"

    def to_json(self) -> Any:
        """For `pyinfra inventory.py debug-inventory`, which asks for it; secrets are masked."""
        return json.loads(json.dumps(asdict(self), default=str))


@dataclass(frozen=True)
class HostEntry:
    """One host of the inventory: what pyinfra needs to reach it, and its spec or its errors."""

    name: str
    data: Mapping[str, Any]
    """pyinfra's own host data (ssh_user, _sudo, ...), without ours."""
    spec: HostSpec | None
    """None where something that it is made from is wrong. With mistakes in files alone it is
    there, and the secrets that could not be read say so when they are asked for."""
    engines: tuple[str, ...] = ()
    """The engines' names, as far as they can be names."""
    mistakes: tuple[Mistake, ...] = ()
    warnings: tuple[str, ...] = ()
    """What is no mistake for certain, one line each. It stops nothing."""

    @property
    def errors(self) -> tuple[str, ...]:
        """All mistakes, one line each."""
        return tuple(mistake.text for mistake in self.mistakes)


@dataclass(frozen=True)
class Inventory:
    """All hosts of one file. `errors`: mistakes in bases that no host uses."""

    file: str
    hosts: tuple[HostEntry, ...]
    errors: tuple[str, ...] = ()
    first: str | None = None
    """The host that is deployed before the others."""
    prometheus: str | None = None
    """The host whose Prometheus looks at all of them."""
