"""A release: the files of one engine, from its spec. Pure but for reading the templates."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cache
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from roles.inventory import flags
from roles.inventory.model import EngineSpec, HostSpec
from roles.inventory.quoting import config_value, env_value, exec_line, unit_word
from roles.inventory.shipped import TEMPLATES
from sglangctl.state.compiled import compiled_for
from sglangctl.state.config import EngineConfig, Fallback, HostConfig

VENVS = "/opt/sglang/venvs"
RESTART_S = 10
"""Between a crash and the next start: the driver takes seconds to give memory back."""
STOP_TIMEOUT_S = 120
"""SGLang drains, waits 15 s, then up to 60 s for its children."""
JIT_JOBS = "4"
"""Compilers at once while the engine runs: 3 to 8 GiB each (flashinfer issue 3634)."""
_VENV = re.compile(r"/[A-Za-z0-9._/-]+")


@dataclass(frozen=True)
class Release:
    """What is staged as releases/<digest>/ and later put live."""

    engine: str
    digest: str
    venv: str
    files: Mapping[str, bytes] = field(repr=False)
    """Name -> content, as sglangctl/state/release.py writes them. engine.yaml and engine.env hold
    the secrets."""


@cache
def _templates() -> Environment:
    return Environment(
        loader=FileSystemLoader(TEMPLATES),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,  # units, not HTML: quoting.py quotes
    )


def _rendered(template: str, **values: Any) -> bytes:
    return _templates().get_template(template).render(values).encode("utf-8")


def venv_digest(engine: EngineSpec) -> str:
    """Digest of all that decides what is in the virtual environment, as 64 hex digits."""
    decided = asdict(replace(engine.install, locked=None))
    del decided["locked"], decided["lock_file"]
    for name in ("index", "find_links"):
        if not decided[name]:
            del decided[name]  # environments of before these keys keep their names
    lock = engine.install.locked
    if lock is not None and lock.environment is None:
        decided["lock"] = lock.digest
    if engine.kernel.decides:
        decided["kernel"] = engine.kernel.decides
    return _sha256(_json({"v": 1, **decided}))


def venv_path(engine: EngineSpec) -> str:
    """Where that virtual environment lies on the host."""
    return f"{VENVS}/{venv_digest(engine)[:16]}"


def render(engine: EngineSpec, *, venv: str) -> Release:
    """The engine's release; `venv` is the virtual environment that it runs from.

    ValueError for a venv whose path would need quoting (ours never does).
    """
    if not _VENV.fullmatch(venv):
        raise ValueError(f"{venv!r} cannot be the path of a virtual environment")
    config, arguments = flags.split(engine.flags)
    files = {
        "sglang.service": _unit(engine, venv, arguments),
        "nccl.env": _variables("nccl.env.j2", engine, engine.nccl.environment),
        "engine.env": _variables(
            "engine.env.j2", engine, {**environment(engine, venv), **_revealed_variables(engine)}
        ),
        **engine.shipped,
        "engine.yaml": _rendered(
            "engine.yaml.j2", engine=engine, arguments=_arguments(engine, config)
        ),
    }
    lock = engine.install.locked
    packages = lock.packages if lock and lock.environment is None else engine.install.packages
    facts: dict[str, Any] = {
        "v": 1,
        "engine": engine.name,
        "version": engine.version,
        "venv": venv,
        "packages": list(packages),
        "model": engine.model.path,
        "drafter": engine.drafter.path if engine.drafter else None,
        "user": engine.user,
        "files": sorted(files),
    }
    digest = _digest(engine, files, facts)
    files["manifest.json"] = _json({**facts, "digest": digest}, indent=2)
    return Release(engine=engine.name, digest=digest, venv=venv, files=files)


def environment(engine: EngineSpec, venv: str) -> dict[str, str]:
    """engine.env: what SGLang and its compilers need, under what the inventory says."""
    compiled = f"{engine.cache}/{compiled_for(venv)}"
    variables = {
        # nvidia-smi counts the GPUs so; CUDA's own order is by speed.
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        # nvcc is needed while the engine runs: SGLang and FlashInfer compile kernels then.
        "CUDA_HOME": "/usr/local/cuda",
        "MAX_JOBS": JIT_JOBS,
        "HF_HOME": f"{engine.cache}/huggingface",
        # The weights are a folder; nothing is to be looked up, or waited for, on the net.
        "HF_HUB_OFFLINE": "1",
        "SGLANG_CACHE_DIR": f"{compiled}/sglang",
        # Its default is below /tmp, which is private to one start.
        "TORCHINDUCTOR_CACHE_DIR": f"{compiled}/inductor",
        "TRITON_CACHE_DIR": f"{compiled}/triton",
        "FLASHINFER_WORKSPACE_BASE": compiled,
        "SGLANG_DG_CACHE_DIR": f"{compiled}/.cache/deep_gemm",
        "XDG_CACHE_HOME": f"{compiled}/.cache",
        **engine.environment,
        "HOME": engine.cache,
        "PYTHONUNBUFFERED": "1",
    }
    # ninja and py-spy are looked up on PATH, and lie in the environment.
    system = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    variables.setdefault("PATH", f"{venv}/bin:{variables['CUDA_HOME']}/bin:{system}")
    if engine.gpus != "all":
        # Indices, not UUIDs: SGLang's custom all-reduce reads them as numbers.
        variables["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, engine.gpus))
    return variables


def start_limit_interval_s(engine: EngineSpec) -> int:
    """Longer than three starts that use up their time, each stopped and restarted."""
    return int(3 * (engine.limits.start_s + STOP_TIMEOUT_S + RESTART_S)) + 60


@cache
def unit_of_ours(unit: str, program: str) -> bytes:
    """sglang-watch@.service or sglangctl-resume.service; `program` is the path of one digest's
    sglangctl on the host."""
    # -I -S: nothing from the environment or from site-packages; it is faster, too.
    command = exec_line(["/usr/bin/python3", "-I", "-S", program])
    return _rendered(f"{unit}.j2", command=command)


def tmpfiles(engine: EngineSpec) -> bytes:
    """/etc/tmpfiles.d/sglang-NAME.conf."""
    return _rendered("tmpfiles.conf.j2", engine=engine)


def logrotate(engine: EngineSpec) -> bytes:
    """/etc/logrotate.d/sglang-NAME."""
    return _rendered("logrotate.j2", engine=engine)


def engine_config(engine: EngineSpec) -> EngineConfig:
    """What the host program knows of the engine; no secret is in it."""
    names = {one.name for one in fields(EngineConfig)}
    same = {name: getattr(engine, name) for name in names if hasattr(engine, name)}
    other = {
        "model": engine.model.path,
        "served_name": engine.model.served_name,
        "fallbacks": _fallbacks(engine),
    }
    return EngineConfig(**{**same, **other})


def _fallbacks(engine: EngineSpec) -> tuple[Fallback, ...]:
    if not engine.fallbacks:
        return ()
    wanted = render(engine, venv=venv_path(engine)).digest
    return tuple(
        Fallback(
            name=name,
            release=render(other, venv=venv_path(other)).digest,
            instead_of=wanted,
            drafter=other.drafter,
            preflight=other.preflight,
        )
        for name, other in engine.fallbacks.items()
    )


def engine_json(engine: EngineSpec) -> bytes:
    """/etc/sglangctl/engines/NAME.json."""
    return _json(asdict(engine_config(engine)), indent=2)


def host_json(host: HostSpec) -> bytes:
    """/etc/sglangctl/host.json."""
    names = tuple(engine.name for engine in host.engines)
    config = HostConfig(engines=names, protected=host.protected, containers=host.containers)
    return _json(asdict(config), indent=2)


def _unit(engine: EngineSpec, venv: str, arguments: Sequence[str]) -> bytes:
    # SGLang takes --config and its file as two words only.
    launch = [f"{venv}/bin/python", "-m", "sglang.launch_server"]
    launch += ["--config", f"{engine.current}/engine.yaml", *arguments]
    paths = [engine.model.path, venv, engine.cache, engine.log_folder, engine.state]
    if engine.drafter and engine.drafter.path:
        paths.insert(1, engine.drafter.path)
    paths[-4:-4] = engine.preflight.files
    return _rendered(
        "sglang.service.j2",
        engine=engine,
        command=exec_line(launch),
        mounts=" ".join(map(unit_word, paths)),
        start_limit_interval_s=start_limit_interval_s(engine),
        stop_timeout_s=STOP_TIMEOUT_S,
        restart_s=RESTART_S,
    )


def _variables(template: str, engine: EngineSpec, variables: Mapping[str, str]) -> bytes:
    quoted = [(name, env_value(value)) for name, value in sorted(variables.items())]
    return _rendered(template, engine=engine, variables=quoted)


def _arguments(engine: EngineSpec, config: Mapping[str, str]) -> list[tuple[str, str]]:
    """Lines of engine.yaml: ours first, then the inventory's flags, then the secrets."""
    ours: dict[str, Any] = {
        "model-path": engine.model.path,
        "served-model-name": engine.model.served_name,
        "host": engine.listen,
        "port": engine.port,
        "tp-size": engine.tensor_parallel,
    }
    if engine.drafter:
        ours["speculative-algorithm"] = engine.drafter.algorithm
        ours["speculative-draft-model-path"] = engine.drafter.path
        ours["speculative-num-steps"] = engine.drafter.steps
        ours["speculative-eagle-topk"] = engine.drafter.topk
        ours["speculative-num-draft-tokens"] = engine.drafter.draft_tokens
    secrets = _revealed_flags(engine)
    return [
        *((name, config_value(value)) for name, value in ours.items() if value is not None),
        *config.items(),
        *((name, config_value(value)) for name, value in secrets.items()),
    ]


def _digest(engine: EngineSpec, files: Mapping[str, bytes], facts: Mapping[str, Any]) -> str:
    """One digest over everything, secrets too: a new key is a new release.

    The digest is part of a path that everybody can see, and with a plain hash a weak key
    could be guessed from it, billions of times a second. So the masked files are hashed, and
    the secrets enter through scrypt, at some 50 ms a guess.
    """
    texts = {name: files[name].decode() for name in ("engine.yaml", "engine.env")}
    for name, secret in _revealed_flags(engine).items():
        line = f"{name}: {config_value(secret)}\n"
        hashed = f"{name}: {_slow_hash(engine.name, name, secret)}\n"
        texts["engine.yaml"] = texts["engine.yaml"].replace(line, hashed)
    for name, secret in _revealed_variables(engine).items():
        line = f"{name}={env_value(secret)}\n"
        hashed = f"{name}={_slow_hash(engine.name, name, secret)}\n"
        texts["engine.env"] = texts["engine.env"].replace(line, hashed)
    masked = {name: _sha256(content) for name, content in files.items()}
    masked |= {name: _sha256(text.encode()) for name, text in texts.items()}
    return _sha256(_json({"files": masked, "facts": dict(facts)}))


def _revealed_flags(engine: EngineSpec) -> dict[str, str]:
    """The secrets that engine.yaml holds, the api key last."""
    secrets = {name: secret.reveal() for name, secret in sorted(engine.secret_flags.items())}
    return {**secrets, "api-key": engine.api_key.reveal()} if engine.api_key else secrets


def _revealed_variables(engine: EngineSpec) -> dict[str, str]:
    """The secrets that engine.env holds."""
    return {name: secret.reveal() for name, secret in engine.secret_environment.items()}


@cache
def _slow_hash(engine: str, name: str, secret: str) -> str:
    salt = f"sglang-provision/{engine}/{name}".encode()
    return hashlib.scrypt(secret.encode(), salt=salt, n=2**14, r=8, p=1, dklen=32).hex()


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _json(document: Any, indent: int | None = None) -> bytes:
    return (json.dumps(document, sort_keys=True, indent=indent) + "\n").encode()
