"""Who uses the GPUs: every process with /dev/nvidia<N> open or memory on a GPU, and its class."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from sglangctl.gpu import gpus
from sglangctl.holders import classes
from sglangctl.holders.classes import Classified, Context, Process, Replaced
from sglangctl.proc import executable, membership, open_files, pidfds, procfs
from sglangctl.state.config import EngineConfig, HostConfig
from sglangctl.systemd.unit import Unit, show

LONGEST_COMMAND = 128 * 1024
"""Characters of a command line that are kept: Linux's own limit for one argument."""


@dataclass(frozen=True)
class Holder:
    """One process. Memory in MiB; None: the driver cannot tell. `start` is in clock ticks since
    boot and names, with pid (and inode, where not 0), this process for good."""

    pid: int
    gpus: tuple[int, ...]
    """Those that it has open or has memory on."""
    uses: tuple[int, ...]
    """Of these, the ones that count in decisions: see `open_files.used`."""
    class_: str
    """`class` in JSON."""
    reason: str
    unit: str | None
    container: str | None
    container_name: str | None
    container_engine: str | None
    uid: int
    user: str
    title: str
    """One line, escaped for a terminal, not cut."""
    command: tuple[str, ...]
    """argv, secrets masked."""
    memory_mib: Mapping[int, int | None]
    """GPU index -> MiB, of the GPUs on which the driver lists it."""
    state: str
    started: str
    """UTC, as in 2026-11-29T17:45:00Z."""
    start: int
    inode: int
    ppid: int
    session: int
    system_unit: str | None
    ports: tuple[int, ...] = ()
    """Of the ports that were asked for, those on which it listens."""

    @property
    def identity(self) -> pidfds.Identity:
        return pidfds.Identity(self.pid, self.start, self.inode)

    def to_json(self) -> dict[str, Any]:
        """Field names as here, but `class`."""
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        values["class"] = values.pop("class_")
        return values


@dataclass(frozen=True)
class Facts:
    """A process that holds a GPU (or one of the wanted ports), before it is classified."""

    process: Process
    identity: pidfds.Identity
    member: membership.Membership
    stat: procfs.Stat
    gpus: tuple[int, ...]
    uses: tuple[int, ...]
    memory_mib: Mapping[int, int | None]
    ports: tuple[int, ...]


@dataclass(frozen=True)
class Survey:
    """One look at the host, from which holders are classified for any engine."""

    facts: tuple[Facts, ...]
    reading: gpus.Reading
    unreadable: int
    """Processes whose open files we may not see: above 0, something may be missing."""
    unfinished: tuple[int, ...] = ()
    """Processes with more open files than there was time for: likewise."""

    def holders(self, context: Context) -> list[Holder]:
        """All of them, with their class."""
        return [holder(facts, classes.classify(facts.process, context)) for facts in self.facts]


def find(
    engine: EngineConfig | None,
    host: HostConfig,
    siblings: Sequence[EngineConfig],
    looked: Survey | None = None,
) -> list[Holder]:
    """The holders of all GPUs with their class relative to `engine` (None: to no engine)."""
    return (looked or survey()).holders(context_for(engine, host, siblings))


def survey(ports: Iterable[int] = (), pids: Sequence[int] = ()) -> Survey:
    """Look at all processes and GPUs; `ports`: whoever listens there is wanted too, and so are
    `pids`."""
    from sglangctl.proc import sockets

    wanted = set(ports)
    inodes = {item.inode: item.port for item in sockets.listeners() if item.port in wanted}
    scan = open_files.scan(inodes)
    reading = gpus.read()
    memory: dict[int, dict[int, int | None]] = {}
    for gpu in reading.gpus or ():
        for pid, mib in gpu.processes:
            memory.setdefault(pid, {})[gpu.index] = mib
    index = gpus.by_minor(reading.gpus)
    root = membership.own_root()
    found = []
    for pid in sorted({*scan.found, *memory, *pids}):
        seen = scan.found.get(pid, open_files.OpenFiles({}, frozenset()))
        opened = {index.get(minor, minor): times for minor, times in seen.devices.items()}
        listens = {inodes[inode] for inode in seen.sockets}
        facts = look_at(pid, opened, memory.get(pid, {}), listens, root)
        if facts is not None:
            found.append(facts)
    return Survey(tuple(_named(found)), reading, scan.unreadable, scan.unfinished)


def look_at(
    pid: int,
    opened: Mapping[int, int],
    memory_mib: Mapping[int, int | None],
    ports: Iterable[int],
    root: str,
) -> Facts | None:
    """Read one process; None when it ended meanwhile (then nothing read can be trusted)."""
    identity = pidfds.identify(pid)
    found = procfs.stat(pid)
    if identity is None or found is None or found.state in procfs.DEAD:
        return None
    member = membership.of(pid, root)
    argv = procfs.cmdline(pid)
    uid = procfs.uid(pid)
    if uid is None:
        return None
    program = executable.of_the_system(pid, uid)
    # nvitop and gpustat are Python scripts. Only root's command line is believed: any user can
    # write into their own.
    script = classes.script_of(program or "", argv) if uid == 0 else None
    if script and executable.is_script_of_the_system(script):
        program = script
    if not pidfds.same(identity):
        return None
    process = Process(
        pid=pid,
        uid=uid,
        comm=found.comm,
        argv=argv,
        session=found.session,
        start_s=found.start / procfs.TICKS,
        unit=member.system_unit,
        container=member.container,
        program=program,
    )
    return Facts(
        process=process,
        identity=identity,
        member=member,
        stat=found,
        gpus=tuple(sorted({*opened, *memory_mib})),
        uses=tuple(sorted(open_files.used(opened, memory_mib))),
        memory_mib=memory_mib,
        ports=tuple(sorted(ports)),
    )


def document(found: Sequence[Holder], reading: gpus.Reading) -> dict[str, object]:
    """The stable form: field names are those of `Holder` and `Gpu`."""
    return {
        "v": 1,
        "holders": [item.to_json() for item in found],
        "gpus": None if reading.gpus is None else [asdict(gpu) for gpu in reading.gpus],
        "reason": reading.reason,
    }


def context_for(
    engine: EngineConfig | None,
    host: HostConfig,
    siblings: Sequence[EngineConfig],
    shown: Mapping[str, Unit] | None = None,
    waiting: str | None = None,
) -> Context:
    """What `classify` needs of the inventory; asks systemd about the units in `replaces`."""
    replaces = engine.replaces if engine else ()
    if shown is None:
        shown = show(replaces) or {}
    return Context(
        unit=engine.unit if engine else None,
        siblings={sibling.unit: sibling.name for sibling in siblings},
        replaced=[_replaced(name, shown.get(name)) for name in replaces],
        protected=host.protected,
        containers=host.containers,
        waiting=waiting,
    )


def holder(facts: Facts, classified: Classified) -> Holder:
    """The public form: names instead of numbers, secrets masked, the title escaped."""
    from sglangctl.masking.text import mask_argv
    from sglangctl.util import terminal

    process, found = facts.process, facts.stat
    command = mask_argv(process.argv)
    title = terminal.escaped(" ".join(command) or f"[{process.comm}]")
    return Holder(
        pid=process.pid,
        gpus=facts.gpus,
        uses=facts.uses,
        class_=classified.name,
        reason=terminal.escaped(classified.reason),
        unit=facts.member.unit,
        container=process.container,
        container_name=process.container_name,
        container_engine=facts.member.container_engine,
        uid=process.uid,
        user=user_name(process.uid),
        title=title[:LONGEST_COMMAND],
        command=_shortened(command),
        memory_mib=dict(facts.memory_mib),
        state=found.state,
        started=_utc(found.start),
        start=facts.identity.start,
        inode=facts.identity.inode,
        ppid=found.ppid,
        session=found.session,
        system_unit=facts.member.system_unit,
        ports=facts.ports,
    )


def user_name(uid: int) -> str:
    """The name of a user, or the number where there is none (a container's user, say)."""
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _replaced(name: str, unit: Unit | None) -> Replaced:
    if unit is None:
        return Replaced(name)
    return Replaced(
        unit=unit.name,
        uid=unit.uid(),
        user=unit["User"] or "root",
        main_pid=unit.last_main_pid,
        main_start_s=unit.started_since_boot,
    )


def _named(found: list[Facts]) -> list[Facts]:
    """Containers' names, asked for only where a holder is in one."""
    wanted = {item.member.container: item.member.container_engine for item in found}
    wanted.pop(None, None)
    if not wanted:
        return found
    from dataclasses import replace

    from sglangctl.systemd import containers

    known = containers.names({key: engine for key, engine in wanted.items() if key})
    return [
        replace(
            item,
            process=replace(item.process, container_name=known.get(item.process.container)),
        )
        if item.process.container in known
        else item
        for item in found
    ]


def _shortened(command: list[str]) -> tuple[str, ...]:
    room, kept = LONGEST_COMMAND, []
    for word in command:
        if len(word) > room:
            kept.append(word[:room] + "...")
            break
        kept.append(word)
        room -= len(word)
    return tuple(kept)


def _utc(start: int) -> str:
    import time

    ago = time.clock_gettime(time.CLOCK_BOOTTIME) - start / procfs.TICKS
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(round(time.time() - ago)))
