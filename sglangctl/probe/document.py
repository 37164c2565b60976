"""One JSON document with the state of this host, for the controller. Read-only.

See `sglangctl probe --help` for the request.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

from sglangctl.probe import machine
from sglangctl.proc.as_user import NoAnswer, within
from sglangctl.state.config import (
    EngineConfig,
    HostConfig,
    engine_from,
    host_from,
    located,
    readable,
)
from sglangctl.state.paths import Paths
from sglangctl.switch.takeover import Takeover
from sglangctl.util import os_errors
from sglangctl.util.errors import Failed, Unusable
from sglangctl.util.values import mapping, text, texts

T = TypeVar("T")
REQUEST = Path("the request")
DISK_S = 10.0
"""For the size of one file system."""
MOST_LISTENING, MOST_OWNERS, MOST_HOLDERS = 1000, 16, 1000
"""Entries at most: sockets that listen, owners of each, processes on the GPUs."""


@dataclass
class Probe:
    """The document. Each part is null when its source is missing: then see `reasons`."""

    v: int = 1
    time: str = ""
    hostname: str = ""
    boot: str = ""
    """One boot of this machine: boot id and start of process 1."""
    uid: int = -1
    """As whom the probe ran; 0 is root."""
    program: str | None = None
    """The digest of the sglangctl that is installed."""
    os: dict[str, str] | None = None
    kernel: dict[str, str] | None = None
    python: dict[str, str] | None = None
    cpus: int | None = None
    memory: dict[str, int] | None = None
    cgroup: str | None = None
    """`v1`, `hybrid` or `v2`."""
    systemd: str | None = None
    """Its version."""
    disks: dict[str, Any] = field(default_factory=dict)
    files: dict[str, Any] = field(default_factory=dict)
    users: dict[str, Any] = field(default_factory=dict)
    dists: dict[str, Any] = field(default_factory=dict)
    venvs: dict[str, Any] = field(default_factory=dict)
    """By path: {wrong, starts, python, running}: see sglangctl/probe/venvs.py; `running` are the
    engines that run from it."""
    pip_sources: list[str] | None = None
    """Settings of root's pip that decide what is installed, by their names; null where no venv of the
    request is to be made."""
    programs: dict[str, bool] = field(default_factory=dict)
    """Whether a program is on the PATH."""
    gpus: list[dict[str, Any]] | None = None
    gpu_source: str | None = None
    nvcc: dict[str, Any] | None = None
    kernels: dict[str, Any] = field(default_factory=dict)
    """By engine: `sglangctl kernel survey`."""
    holders: list[dict[str, Any]] | None = None
    """As `sglangctl holders --json`, with `classes`: engine -> {class, reason}; `class` and
    `reason` themselves are relative to the first engine."""
    listening: list[dict[str, Any]] | None = None
    """address, port, owners: [{pid, name, user, unit}]."""
    engines: dict[str, Any] | None = None
    lock: dict[str, Any] | None = None
    """Who has the host's lock, null when nobody has: pid, since, engine, what, sentence."""
    plans: dict[str, Any] = field(default_factory=dict)
    """Engine -> what its switch would stop and end (`sglangctl free NAME --stop --dry-run`), and
    `before`: what it would go back to (sglangctl/switch/before.py)."""
    stops: dict[str, Any] = field(default_factory=dict)
    """For the request's `stop` and `remove`: engine -> what `sglangctl stop NAME` would do:
    {lines, refused}."""
    removals: dict[str, Any] = field(default_factory=dict)
    """Engine -> what `sglangctl remove NAME` would delete then: {lines, refused}."""
    preflight: dict[str, Any] = field(default_factory=dict)
    """Engine -> the findings of `sglangctl preflight NAME --json`, without the engine's name."""
    collectives: dict[str, Any] = field(default_factory=dict)
    """Engine -> {entry, differs}: see sglangctl/probe/collectives.py; null: nothing is kept."""
    reasons: dict[str, str] = field(default_factory=dict)


def as_json(document: Probe) -> dict[str, Any]:
    """Shallow: the parts are JSON already (asdict would copy everything)."""
    return {item.name: getattr(document, item.name) for item in fields(document)}


def parse_request(text: str) -> dict[str, Any]:
    """The request as an object; Unusable says what is wrong with it."""
    try:
        request = json.loads(text)
    except ValueError as error:
        raise Unusable(f"the request is not JSON: {error}") from None
    if not isinstance(request, dict):
        raise Unusable("the request is not an object")
    kinds = {
        "files": dict,
        "dists": dict,
        "paths": list,
        "programs": list,
        "venvs": dict,
        "users": list,
        "kernels": dict,
        "engines": list,
        "engine_configs": list,
        "host_config": dict,
        "plan": (str, list),
        "environments": dict,
        "policy": str,
        "stop": list,
        "remove": list,
        "preflight": list,
        "collectives": list,
        "takes": dict,
    }
    for name, value in request.items():
        if name not in kinds:
            raise Unusable(f"the request has an unknown key {name!r}")
        if not isinstance(value, kinds[name]):  # type: ignore[arg-type]
            raise Unusable(f"the request's {name!r} has the wrong type")
    return request


def probe(request: Mapping[str, Any], paths: Paths | None = None) -> Probe:
    """Look at the host. Unusable only for what the request itself has wrong."""
    import time

    from sglangctl.gpu import gpus
    from sglangctl.probe import venvs
    from sglangctl.proc import procfs
    from sglangctl.state import files

    paths = paths or Paths()
    found = Probe(time=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))
    part = _Parts(found)
    found.hostname = os.uname().nodename
    found.boot = procfs.boot_token()
    found.uid = os.geteuid()
    found.program = part("program", lambda: Path(os.readlink(paths.program_link)).stem)
    found.os = part("os", machine.os_release)
    found.kernel = part("kernel", machine.kernel)
    found.python = part("python", machine.python)
    found.cpus = part("cpus", lambda: len(os.sched_getaffinity(0)))
    found.memory = part("memory", machine.memory)
    found.cgroup = part("cgroup", machine.cgroup_version, "no cgroup file system is mounted")
    found.files = {
        path: files.describe(path, wanted) for path, wanted in request.get("files", {}).items()
    }
    found.disks = _disks(part, request.get("paths", ()))
    found.users = {name: machine.user(name) for name in request.get("users", ())}
    found.dists = {
        venv: part(f"dists {venv}", lambda: machine.distributions(venv, names), "no such venv")  # noqa: B023
        for venv, names in request.get("dists", {}).items()
    }
    found.programs = {name: shutil.which(name) is not None for name in request.get("programs", ())}
    found.venvs = {
        path: venvs.describe(path, python) for path, python in request.get("venvs", {}).items()
    }
    if any(about["wrong"] for about in found.venvs.values()):
        found.pip_sources = part("pip_sources", lambda: _pip_sources(paths))
    found.nvcc = part("nvcc", _nvcc, "no nvcc in CUDA_HOME, on PATH or under /usr/local")
    with gpus.one_reading():
        kernels = request.get("kernels", {})
        found.kernels = {name: _kernel(wanted) for name, wanted in kernels.items()}
        _about_engines(found, part, request, paths)
        if request.get("collectives"):
            _collectives(found, part, request["collectives"], paths)
    return found


def _pip_sources(paths: Paths) -> list[str]:
    from sglangctl.state import build_user

    try:
        return build_user.sources(paths)
    except Failed:
        return ["a file that is not in pip's format"]


def _collectives(found: Probe, part: _Parts, names: list[str], paths: Paths) -> None:
    from sglangctl.probe import collectives

    for name in names:
        found.collectives[name] = part(
            f"collectives {name}",
            lambda: collectives.brief(name, paths),  # noqa: B023 (called at once)
            "nothing is kept",
        )


def _disks(part: _Parts, paths: Sequence[str]) -> dict[str, Any]:
    """The file system of each path. A mount whose server is dead never answers: a process of its own
    looks at all of them, and where that has no answer, one for each."""
    with contextlib.suppress(NoAnswer, OSError, KeyError):
        return dict(within(DISK_S, lambda: {path: machine.disk(path) for path in paths}))
    return {
        path: part(f"disks {path}", lambda: within(DISK_S, lambda: machine.disk(path)))  # noqa: B023 (called at once)
        for path in paths
    }


class _Parts:
    """Runs the reader of one part; an error becomes its reason."""

    def __init__(self, document: Probe) -> None:
        self._reasons = document.reasons

    def __call__(
        self, name: str, reader: Callable[[], T | None], absent: str = "unavailable"
    ) -> T | None:
        try:
            value = reader()
        except (OSError, ValueError, KeyError, NoAnswer) as error:
            self._reasons[name] = os_errors.describe(error) or type(error).__name__
            return None
        if value is None:
            self._reasons[name] = absent
        return value


def _about_engines(found: Probe, part: _Parts, request: Mapping[str, Any], paths: Paths) -> None:
    """Units, holders, ports and plans: one call of systemctl and one pass over /proc for all."""
    from sglangctl.holders import survey as holders
    from sglangctl.probe import engines as probe_engines
    from sglangctl.proc import open_files, sockets
    from sglangctl.systemd import systemctl, unit

    host, engines, users = _inventory(found, request, paths)
    ending = {kind: request[kind] for kind in ("stop", "remove") if request.get(kind)}
    if ending:
        from sglangctl.switch import forecast

        configured = dict(engines)
        engines = {**forecast.unconfigured(ending, paths), **engines}
    wanted = [name for engine in engines.values() for name in probe_engines.units_of(engine)]
    shown = unit.show(wanted)
    found.systemd = part("systemd", systemctl.version, "systemd is not the init of this machine")
    if shown is None:
        found.reasons["units"] = found.reasons.get("systemd", "systemctl does not answer")
    found.engines = {
        name: {**probe_engines.engine_state(engine, shown, paths), "user": users.get(name)}
        for name, engine in engines.items()
    }
    from sglangctl.probe import venvs

    used = venvs.running_from(engines, shown, paths)
    for path, about in found.venvs.items():
        about["running"] = used.get(path, [])
    for name in request.get("engines", ()):
        if name not in found.engines:
            found.reasons[f"engines {name}"] = "not configured on this host"
    listeners = part("listening", sockets.listeners)
    ends = _ends(listeners or (), engines)
    if len(ends) > MOST_LISTENING:
        found.reasons["listening"] = f"not complete: {len(ends)} listening addresses"
        ends = ends[:MOST_LISTENING]
    looked = holders.survey(port for port, _ in ends)
    found.gpus = None if looked.reading.gpus is None else [asdict(g) for g in looked.reading.gpus]
    found.gpu_source = looked.reading.source
    if looked.reading.reason:
        found.reasons["gpus"] = looked.reading.reason
    if looked.unreadable:
        found.reasons["complete"] = (
            f"{looked.unreadable} processes of other users could not be looked at: not root"
        )
    if looked.unfinished:
        found.reasons["complete"] = open_files.not_complete(looked.unfinished)
    found.lock = _lock(paths)
    found.listening = _listening(ends, looked)
    held = [facts for facts in looked.facts if facts.gpus]
    if len(held) > MOST_HOLDERS:
        found.reasons["holders"] = f"not complete: {len(held)} processes hold GPUs"
    found.holders = _holders(held[:MOST_HOLDERS], host, engines, shown or {})
    takes = {name: _takeover(wanted) for name, wanted in request.get("takes", {}).items()}
    _plans(found, request, host, engines, takes, paths)
    if ending:
        # A removal in a deploy comes after what the deploy makes.
        makes = (request.get("plan", ()), request.get("venvs", ()))
        forecast.look(found.stops, found.removals, ending, host, configured, paths, *makes)
    for name in request.get("preflight", ()):
        if name not in engines:
            found.reasons[f"preflight {name}"] = "not configured on this host"
            continue
        found.preflight[name] = part(
            f"preflight {name}",
            lambda: _preflight(
                takes.get(name, Takeover()).of(engines[name], _others(engines, name))[0],  # noqa: B023 (called at once)
                found,
                paths,
            ),
        )


def _inventory(
    found: Probe, request: Mapping[str, Any], paths: Paths
) -> tuple[HostConfig, dict[str, EngineConfig], dict[str, str]]:
    """What /etc/sglangctl says, and over it what the request says (nothing may be written yet).

    The users are those of /etc/sglangctl alone: as whom the engines run now.
    """
    host, configured, troubles = readable(paths)
    if troubles:
        found.reasons["configuration"] = "; ".join(troubles)
    engines = {engine.name: engine for engine in configured}
    users = {name: engine.user for name, engine in engines.items()}
    if "host_config" in request:
        host = host_from(request["host_config"], REQUEST)
    for document in request.get("engine_configs", ()):
        if not isinstance(document, dict):
            raise Unusable("one of engine_configs is not an object")
        engine = located(engine_from(document, REQUEST), paths)
        engines[engine.name] = engine
    return host, engines, users


def _holders(
    held: Sequence[Any],
    host: HostConfig,
    engines: Mapping[str, EngineConfig],
    shown: Mapping[str, Any],
) -> list[dict[str, Any]]:
    from sglangctl.holders import classes
    from sglangctl.holders import survey as holders

    views = {
        name: holders.context_for(engine, host, _others(engines, name), shown)
        for name, engine in engines.items()
    }
    alone = holders.context_for(None, host, [], {})
    documents: list[dict[str, Any]] = []
    for facts in held:
        verdicts = {name: classes.classify(facts.process, view) for name, view in views.items()}
        first = next(iter(verdicts.values()), classes.classify(facts.process, alone))
        documents.append(
            {
                **holders.holder(facts, first).to_json(),
                "classes": {
                    name: {"class": one.name, "reason": one.reason}
                    for name, one in verdicts.items()
                },
            }
        )
    return documents


def _lock(paths: Paths) -> dict[str, Any] | None:
    from sglangctl.state import lock

    holder = lock.holder(paths)
    return None if holder is None else {**asdict(holder), "sentence": holder.sentence}


def _ends(listeners: Any, engines: Mapping[str, EngineConfig]) -> list[tuple[int, str]]:
    """(port, address), those of the engines first: any user can listen 100,000 times."""
    wanted = {port for one in engines.values() for port in (one.port, *one.preflight.derived_ports)}
    ends = {(item.port, item.address) for item in listeners}
    return sorted(ends, key=lambda end: (end[0] not in wanted, end))


def _listening(ends: Sequence[tuple[int, str]], looked: Any) -> list[dict[str, Any]]:
    from sglangctl.holders import survey as holders
    from sglangctl.util import terminal

    owners: dict[int, list[dict[str, Any]]] = {}
    for facts in looked.facts:
        for port in facts.ports:
            owners.setdefault(port, []).append(
                {
                    "pid": facts.process.pid,
                    "name": terminal.escaped(facts.process.comm),
                    "user": holders.user_name(facts.process.uid),
                    # Not the innermost one: users name theirs as they like.
                    "unit": facts.member.system_unit,
                }
            )
    return [
        {"address": address, "port": port, "owners": owners.get(port, [])[:MOST_OWNERS]}
        for port, address in sorted(ends)
    ]


def _plans(
    found: Probe,
    request: Mapping[str, Any],
    host: HostConfig,
    engines: Mapping[str, EngineConfig],
    takes: Mapping[str, Takeover],
    paths: Paths,
) -> None:
    from sglangctl import free
    from sglangctl.switch.present import would_go_back_to

    names, policy = request.get("plan", []), request.get("policy", "declared")
    if policy not in free.POLICIES:
        raise Unusable(f"there is no policy {policy!r}: {', '.join(free.POLICIES)}")
    for name in [names] if isinstance(names, str) else names:
        if name not in engines:
            found.reasons[f"plans {name}"] = "not configured on this host"
            continue
        # As the switch does it: its own unit is stopped as well.
        engine, siblings = takes.get(name, Takeover()).of(engines[name], _others(engines, name))
        plan = free.plan(engine, host, siblings, policy=policy, stop=True)
        found.plans[name] = free.plan_document(plan)
        if not plan.refused:
            try:
                ran = would_go_back_to(engine, plan, paths)
            except Failed as error:
                found.reasons[f"before {name}"] = str(error)
                continue
            found.plans[name]["before"] = ran.to_json()
            found.plans[name]["cutover"] = _cutover(engine, plan, request, paths)


def _cutover(
    engine: EngineConfig, plan: Any, request: Mapping[str, Any], paths: Paths
) -> Mapping[str, Any]:
    """How its switch would change over, as far as it can be told before the release is staged."""
    from sglangctl.switch import cutover_facts

    venv = text(mapping(request.get("environments")).get(engine.name))
    flags = f"{paths.current(engine.name)}/flag-"
    shipped = [Path(one).name for one in request.get("files", {}) if one.startswith(flags)]
    return cutover_facts.chosen(engine, plan, venv, shipped, paths).to_json()


def _preflight(engine: EngineConfig, found: Probe, paths: Paths) -> list[dict[str, Any]]:
    from sglangctl.preflight import before

    return [one.to_json() for one in before.findings(engine, as_json(found), paths)]


def _takeover(wanted: Any) -> Takeover:
    if not isinstance(wanted, dict):
        raise Unusable("an entry of the request's 'takes' is not an object")
    return Takeover(text(wanted.get("was")), tuple(texts(wanted.get("gone"))))


def _others(engines: Mapping[str, EngineConfig], name: str) -> list[EngineConfig]:
    return [engine for other, engine in engines.items() if other != name]


def _nvcc() -> dict[str, Any] | None:
    from sglangctl.sgl_kernel.build import toolkit

    found = toolkit.find()
    return None if found is None else asdict(found)


def _kernel(wanted: Any) -> dict[str, Any]:
    from sglangctl.sgl_kernel.survey import survey

    if not isinstance(wanted, dict) or not isinstance(wanted.get("venv"), str):
        raise Unusable("an entry of the request's 'kernels' has no venv")
    return survey(Path(wanted["venv"]), wanted.get("sm"))
