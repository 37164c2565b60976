"""The parts of a bundle: how each is collected, and what is masked in it."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from sglangctl.masking.names import is_no_secret, is_secret_name
from sglangctl.proc import command, procfs
from sglangctl.state import starts
from sglangctl.state.config import ConfigError, load_engine, readable
from sglangctl.state.files import masked_text
from sglangctl.state.paths import Paths
from sglangctl.state.release import venv_of
from sglangctl.state.slots import live_unit
from sglangctl.systemd.unit import find
from sglangctl.systemd.unit_names import SWITCH, watch_unit
from sglangctl.util import lazy_re
from sglangctl.watch.stacks import py_spy

LAST_STARTS = 3
"""And switches: each has a journal."""
LOG_BYTES = 4 << 20
JOURNAL_BYTES = 32 << 20
"""Of each journal: a start is far shorter; of an engine that served for weeks the end is kept."""
SLOW_S = 60.0
STACK_S = 20.0
KERNEL = lazy_re.compile(r"NVRM|Xid|nvidia|oom|Out of memory|Killed process|memory cgroup", re.I)


class Missing(Exception):
    """A part that is unavailable here; the text says why."""


@dataclass(frozen=True)
class Part:
    """A file of the bundle. `make` returns its text; Missing or OSError when it is unavailable."""

    name: str
    make: Callable[[], str]


def parts(name: str, paths: Paths) -> Iterator[Part]:
    """All parts, the most important first."""
    engine = paths.engine_state(name)
    for start in reversed(starts.names(paths.starts(name))[-LAST_STARTS:]):
        journal = paths.starts(name) / start / starts.JOURNAL
        yield Part(f"journal/{start}.jsonl", partial(end_of, journal, JOURNAL_BYTES))
    if not starts.names(paths.starts(name)):
        yield Part("journal", partial(absent, f"{name} has no recorded start"))
    for file in sorted((engine / "switches").glob("*.jsonl"))[-LAST_STARTS:]:
        yield Part(f"switches/{file.name}", partial(end_of, file, JOURNAL_BYTES))
    yield Part("engine.log", partial(log_text, paths.engine_log(name)))
    yield Part("status.json", partial(status_text, name, paths))
    for file in (paths.engine_json(name), paths.host_json):
        yield Part(f"config/{file.name}", partial(our_text, file))
    yield Part("config/state.json", partial(state_text, paths.state_json(name)))
    for label in ("manifest.json", "sglang.service", "nccl.env", "engine.env", "engine.yaml"):
        yield Part(f"release/{label}", partial(our_text, engine / "current" / label))
    units = (live_unit(name, paths), watch_unit(name), SWITCH)
    yield Part("units.txt", partial(units_text, units))
    yield Part("systemd.log", partial(system_log, units))
    yield Part("versions.json", partial(versions_text, engine / "current" / "manifest.json"))
    yield Part("host.txt", host_text)
    yield Part("nvidia-smi-q.txt", partial(command_text, ["nvidia-smi", "-q"]))
    yield Part("nvidia-smi-topo.txt", partial(command_text, ["nvidia-smi", "topo", "-m"]))
    yield Part("kernel.log", kernel_text)
    yield Part("processes.txt", partial(processes_text, units[0]))
    yield Part("stacks.txt", partial(stacks_text, units[0], engine / "current" / "manifest.json"))
    yield Part("holders.json", partial(holders_text, paths))


def absent(reason: str) -> str:
    raise Missing(reason)


def end_of(file: Path, limit: int) -> str:
    """The last `limit` bytes of a file, from the beginning of a line on."""
    with open(file, "rb") as source:
        size = source.seek(0, os.SEEK_END)
        source.seek(max(0, size - limit))
        data = source.read(limit)
    if size > limit:
        data = data[data.find(b"\n") + 1 :]
    return data.decode("utf-8", "backslashreplace")


def log_text(file: Path) -> str:
    text = end_of(file, LOG_BYTES)
    before = file.with_name(file.name + ".1")
    room = LOG_BYTES - len(text)
    return (end_of(before, room) if room > 0 and before.exists() else "") + text


def status_text(name: str, paths: Paths) -> str:
    from dataclasses import asdict

    from sglangctl.report.status import VERSION, look

    try:
        found = look(load_engine(name, paths), paths)
    except ConfigError as error:
        raise Missing(str(error)) from None
    return json.dumps({"v": VERSION, "status": [asdict(found)]}, indent=2) + "\n"


def our_text(file: Path) -> str:
    """One of our own files, the values of secret names taken out."""
    text = masked_text(file.read_bytes())
    if text is None:
        raise Missing(f"{file} is not text")
    return text


def state_text(file: Path) -> str:
    """What the switch remembers, without the text of other people's units: only where they lie."""

    def without_sources(pairs: list[tuple[str, object]]) -> dict[str, object]:
        return {
            key: sorted(value) if key == "sources" and isinstance(value, dict) else value
            for key, value in pairs
        }

    try:
        document = json.loads(file.read_bytes(), object_pairs_hook=without_sources)
    except (ValueError, RecursionError) as error:
        raise Missing(f"{file} is not JSON: {error}") from None
    return json.dumps(document)


def secrets_of_process(unit: str) -> list[str]:
    """Secrets that a unit's processes have from elsewhere (a drop-in's EnvironmentFile=), as far as
    they may be looked at."""
    try:
        pids = processes_of(unit)
    except Missing:
        return []
    found: set[str] = set()
    for pid in pids:
        for entry in (procfs.read_text(pid, "environ") or "").split("\0"):
            name, _, value = entry.partition("=")
            if is_secret_name(name) and not is_no_secret(name, value):
                found.add(value)
    return sorted(found)


def units_text(units: Sequence[str]) -> str:
    properties = (
        "Id,LoadState,ActiveState,SubState,Result,InvocationID,MainPID,NRestarts,ExecMainStatus,"
        "ExecMainCode,ExecMainStartTimestamp,ExecMainExitTimestamp,ActiveEnterTimestamp,MemoryMax,"
        "MemoryCurrent,TasksCurrent,NeedDaemonReload,UnitFileState,Job,StatusText"
    )
    shown = output_of(["systemctl", "show", f"--property={properties}", "--", *units])
    unit_files = command.run(["systemctl", "cat", "--", *units]).stdout
    return f"{shown}\n{unit_files}"


def system_log(units: Sequence[str]) -> str:
    names = [word for unit in units for word in ("--unit", unit)]
    how = ("--no-pager", "--no-hostname", "--output=short-iso-precise", "--lines=1000")
    return output_of(["journalctl", *how, *names])


def output_of(argv: Sequence[str], slow_s: float = SLOW_S) -> str:
    """What a command prints; Missing when it does not exist, fails or says nothing."""
    result = command.run(argv, timeout_s=slow_s)
    if not result.ok:
        first = (result.stderr.strip() or result.stdout.strip() or "it failed").splitlines()[0]
        raise Missing(f"{argv[0]}: {first}")
    if not result.stdout.strip():
        raise Missing(f"{argv[0]} says nothing")
    return result.stdout


def command_text(argv: Sequence[str]) -> str:
    if shutil.which(argv[0]) is None:
        raise Missing(f"{argv[0]} is not installed")
    return output_of(argv)


def holders_text(paths: Paths) -> str:
    """The document of `sglangctl holders`, relative to the first engine."""
    from sglangctl.holders import survey

    host, engines, _ = readable(paths)
    looked = survey.survey()
    engine = engines[0] if engines else None
    found = [one for one in survey.find(engine, host, engines[1:], looked) if one.gpus]
    return json.dumps(survey.document(found, looked.reading)) + "\n"


def versions_text(manifest: Path) -> str:
    """Python distributions of the engine's venv by their metadata folders: nothing is run."""
    from sglangctl import __version__

    document: dict[str, object] = {
        "sglangctl": __version__,
        "python": platform.python_version(),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "driver": _first_line("/proc/driver/nvidia/version"),
        "os": _os_release(),
    }
    venv = venv_of(manifest)
    document["venv"] = str(venv) if venv else None
    document["distributions"] = (
        sorted(
            "==".join(entry.name[: -len(".dist-info")].split("-", 1))
            for entry in venv.glob("lib*/python3*/site-packages/*.dist-info")
        )
        if venv
        else None
    )
    return json.dumps(document, indent=2) + "\n"


def _first_line(file: str) -> str | None:
    try:
        with open(file, encoding="utf-8", errors="backslashreplace") as source:
            return source.readline().strip()
    except OSError:
        return None


def _os_release() -> str | None:
    try:
        with open("/etc/os-release", encoding="utf-8") as source:
            names = dict(line.rstrip().split("=", 1) for line in source if "=" in line)
    except OSError:
        return None
    return names.get("PRETTY_NAME", "").strip('"') or None


def host_text() -> str:
    """Memory, load, mounts with their room, shared memory."""
    blocks = []
    for file in ("/proc/meminfo", "/proc/loadavg", "/proc/pressure/memory", "/proc/uptime"):
        try:
            blocks.append(f"== {file}\n{Path(file).read_text(encoding='utf-8')}")
        except OSError as error:
            blocks.append(f"== {file}\n{error}\n")
    disks = command.run(["df", "--human-readable", "--print-type"])
    blocks.append(f"== df\n{disks.stdout or disks.stderr}")
    return "\n".join(blocks)


def kernel_text() -> str:
    """Lines of the kernel's log on GPUs and on memory."""
    how = ("--no-pager", "--no-hostname", "--output=short-monotonic", "--lines=50000")
    reasons = []
    for argv in (["journalctl", "--dmesg", *how], ["dmesg"]):
        try:
            text = output_of(argv)
        except Missing as reason:
            reasons.append(str(reason))
            continue
        lines = [line for line in text.splitlines() if KERNEL.search(line)]
        return "\n".join(lines[-1000:] or ["(no line on Xid, NVRM or memory)"]) + "\n"
    raise Missing("; ".join(reasons))


def processes_of(unit: str) -> list[int]:
    found = find(unit)
    pids = found.pids() if found is not None else []
    if not pids:
        raise Missing(f"{unit} has no process")
    return pids


def processes_text(unit: str) -> str:
    lines = []
    for pid in processes_of(unit):
        stat = procfs.stat(pid)
        if stat is None:
            continue
        title = " ".join(procfs.cmdline(pid)) or stat.comm
        where = (procfs.read_text(pid, "wchan") or "").strip()
        lines.append(
            f"{pid} (parent {stat.ppid}) {stat.state} cpu {stat.cpu_s:.1f} s "
            f"rss {stat.rss_mib:.0f} MiB in {where or '?'}: {title[:2000]}"
        )
    return "\n".join(lines) + "\n"


def stacks_text(unit: str, manifest: Path) -> str:
    """Python stacks by py-spy, without values of variables; the processes are not paused."""
    program = py_spy(manifest.parent)
    if program is None:
        raise Missing("py-spy is not installed (pip install py-spy, on the PATH of root)")
    return "\n".join(f"== {pid}\n{program.dump(pid, STACK_S)}" for pid in processes_of(unit))
