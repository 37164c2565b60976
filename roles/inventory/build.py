"""An engine's spec from its merged, validated and filled mapping."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path as FilePath
from typing import Any

from roles.inventory import flag_files, nccl, ports
from roles.inventory import pins as pinning
from roles.inventory.errors import Path
from roles.inventory.locked import Locked
from roles.inventory.model import (
    CompileCache,
    EngineSpec,
    Install,
    Kernel,
    Model,
    Nccl,
    custom_all_reduce,
    state_of,
)
from roles.inventory.places import tidy
from roles.inventory.secret import Secret
from roles.inventory.written import text_of
from sglangctl.preflight import flags as preflight_flags
from sglangctl.state.build_user import NAME as BUILD_USER
from sglangctl.state.config import Acceptance, Drafter, Limits, Preflight, Readiness

LONGEST_USER = 32
"""Characters, as useradd has it."""


def build_engine(
    name: str,
    engine: Mapping[str, Any],
    secrets: Mapping[Path, Secret],
    kernel: Kernel,
    shipped: Mapping[str, bytes],
    locked: Locked | None,
    lock_file: FilePath,
    fallbacks: Mapping[str, EngineSpec] | None = None,
) -> EngineSpec:
    """The spec; nothing is checked any more. `secrets` by their places in the engine, `shipped`
    by their flags."""
    given = dict(engine["flags"])
    files = {flag: given[flag]["file"] for flag in shipped}
    for flag, path in files.items():
        given[flag] = flag_files.value_of(flag, path, f"{state_of(name)}/current")
    secret_flags = {
        str(place[1]): secret for place, secret in secrets.items() if place[0] == "flags"
    }
    install = engine["install"]
    auto = engine["nccl"]["profile"] == nccl.AUTO
    named = Nccl.profile if auto else engine["nccl"]["profile"]
    profile = nccl.PROFILES[named]
    readiness = dict(engine["readiness"])
    limits = readiness.pop("limits")
    if isinstance(readiness["warm"], list):
        readiness["warm"] = tuple(readiness["warm"])
    path = tidy(engine["model"]["path"])
    of_nccl = Nccl(
        named,
        {
            nccl.full_name(variable): None if value is None else text_of(value)
            for variable, value in engine["nccl"]["overrides"].items()
        },
        auto,
        tuple(sorted(given)) if auto else (),
    )
    drafter = dict(engine["drafter"]) if "drafter" in engine else None
    if drafter and "path" in drafter:
        drafter["path"] = tidy(drafter["path"])
    return EngineSpec(
        name=name,
        version=engine["version"],
        model=Model(path, engine["model"].get("served_name", path.rsplit("/", 1)[1])),
        drafter=Drafter(**drafter) if drafter else None,
        acceptance=Acceptance(**engine["acceptance"]) if "acceptance" in engine else None,
        tensor_parallel=int(engine["tensor_parallel"]),
        gpus="all" if engine["gpus"] == "all" else tuple(map(int, engine["gpus"])),
        listen=engine["listen"],
        port=int(engine["port"]),
        api_key=secrets.get(("api_key",)),
        flags={
            flag: value
            for flag, value in {**profile.flags, **given}.items()
            if value is not None and flag not in secret_flags
        },
        shipped={
            flag_files.shipped_name(flag, path): shipped[flag] for flag, path in files.items()
        },
        secret_flags=secret_flags,
        environment={
            variable: text_of(value)
            for variable, value in engine["environment"].items()
            if value is not None and not isinstance(value, dict)
        },
        secret_environment={
            str(place[1]): secret for place, secret in secrets.items() if place[0] == "environment"
        },
        nccl=of_nccl,
        user=engine.get("user") or own_user(name),
        user_is_named="user" in engine,
        install=Install(
            install["python"],
            pinning.all_of(engine),
            tuple(install["pip_arguments"]),
            install["system_site_packages"],
            locked,
            lock_file,
            tuple(install["index"]),
            tuple(install["find_links"]),
        ),
        kernel=kernel,
        replaces=tuple(engine["replaces"]),
        rollback=engine["rollback"],
        restart=engine["restart"],
        was=engine.get("was"),
        cutover=engine["cutover"],
        warm_page_cache=engine["warm_page_cache"],
        compile_cache=CompileCache(engine["compile_cache"]["share"]),
        readiness=Readiness(**readiness),
        limits=Limits(**{key: float(value) for key, value in limits.items()}),
        preflight=Preflight(
            ignore=tuple(engine["preflight"]["ignore"]),
            device=str(given.get("device") or Preflight.device),
            authenticated=("api_key",) in secrets,
            files=tuple(
                path
                for path in flag_files.on_host(given)
                if not path.startswith(f"{state_of(name)}/")
            ),
            derived_ports=tuple(sorted(ports.derived(int(engine["port"]), given))),
            python=install["python"],
            peer_to_peer=of_nccl.peer_to_peer,
            custom_all_reduce=custom_all_reduce({**profile.flags, **given}),
            **of_flags(given),
        ),
        hardening=engine["hardening"],
        fallbacks=fallbacks or {},
    )


CONVERT = (
    *("cpu-offload-gb", "dtype", "json-model-override-args", "load-format", "modelopt-quant"),
    *("offload-group-size", "quantization", "torchao-config", "weight-cache-mode"),
)
"""Flags with which the weights on the GPUs may be smaller than their files."""


def of_flags(given: Mapping[str, Any]) -> dict[str, Any]:
    """What of the flags the preflight and NCCL's arms look at, as fields of Preflight; a value that
    is none is left out (it is told where flags are looked at)."""

    def number(*names: str) -> float | None:
        for name in names:
            try:
                value = float(given[name])
            except (KeyError, TypeError, ValueError):
                continue
            return value if 0 < value < 1e9 else None
        return None

    shared = number("attn-dp-size")
    replicas = number("data-parallel-size", "dp-size")
    if shared is None and given.get("enable-dp-attention") is True:
        shared, replicas = replicas, None
    fraction = number("mem-fraction-static")
    return {
        "pipeline_parallel": int(number("pipeline-parallel-size", "pp-size") or 1) or 1,
        "attention_replicas": int(shared or 1) or 1,
        "replicas": int(replicas or 1) or 1,
        "mem_fraction": fraction if fraction is not None and fraction < 1 else None,
        "context_length": int(number("context-length") or 0) or None,
        "kv_cache_dtype": str(given.get("kv-cache-dtype") or "auto"),
        "flags": tuple(
            f"{flag}={given[flag]}" for flag in preflight_flags.NAMES if given.get(flag)
        ),
        "symmetric_memory": given.get("enable-symm-mem") is True,
        "nvls": given.get("enable-nccl-nvls") is True,
        "cumem": given.get("moe-a2a-backend") == "deepep_v2"
        or given.get("enable-kv-cache-sharding") is True,
        "as_stored": not any(given.get(flag) for flag in CONVERT),
    }


def own_user(name: str) -> str:
    """`sglang-NAME`; for a name that is too long for a user, or that is taken, with a digest."""
    user = f"sglang-{name}"
    if len(user) <= LONGEST_USER and user != BUILD_USER:
        return user
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{user[: LONGEST_USER - 9]}-{digest}"
