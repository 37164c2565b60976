"""Which class a process that holds a GPU belongs to. Pure: facts in, class and reason out.

A process is recognised by its own title or by what argv says it runs, never by a word somewhere
in its command line: `grep sglang.launch_server notes.txt` is not an engine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sglangctl.diagnosis import titles
from sglangctl.systemd.unit_names import is_helper
from sglangctl.util import lazy_re

OURS = "ours"
SIBLING = "sibling"
REPLACED = "replaced"
ENGINE = "engine"
PROTECTED = "protected"
FOREIGN = "foreign"
CLASSES = (OURS, SIBLING, REPLACED, ENGINE, PROTECTED, FOREIGN)

POLICIES: Mapping[str, frozenset[str]] = {
    "declared": frozenset({REPLACED}),
    "engines": frozenset({REPLACED, ENGINE}),
    "all": frozenset({REPLACED, ENGINE, FOREIGN}),
}
"""What each policy may end. `ours` takes --stop; `protected` and `sibling` are never ended."""

TITLES = (("VLLM::", "vLLM"), (titles.PREFIX, "SGLang"), ("ray::", "a Ray worker"))
PROGRAMS: Mapping[str, tuple[str, frozenset[str]]] = {
    "vllm": ("vLLM", frozenset({"serve"})),
    "sglang": ("SGLang", frozenset({"serve"})),
    "text-generation-launcher": ("TGI", frozenset()),
    "text-generation-router": ("TGI", frozenset()),
    "text-generation-server": ("TGI", frozenset()),
    "llama-server": ("llama.cpp", frozenset()),
    "ollama": ("Ollama", frozenset({"serve", "runner"})),
    "ollama_llama_server": ("Ollama", frozenset()),
    "trtllm-serve": ("TensorRT-LLM", frozenset()),
    "trtllm-llmapi-launch": ("TensorRT-LLM", frozenset()),
    "tritonserver": ("Triton", frozenset()),
    "raylet": ("Ray", frozenset()),
}
"""Base name of the program -> its name, and the words of which one must follow (none: any)."""
MODULES = (
    ("sglang.launch_server", "SGLang"),
    ("vllm.entrypoints", "vLLM"),
    ("text_generation_server", "TGI"),
    ("tensorrt_llm", "TensorRT-LLM"),
    ("llama_cpp.server", "llama.cpp"),
    ("ray._private.workers", "a Ray worker"),
)
"""python -m MODULE, or a module below it."""
RAY_WORKER = "/ray/_private/workers/"
PYTHON = lazy_re.compile(r"python[0-9.]*t?|pypy[0-9.]*")
PYTHON_VALUE = frozenset({"-W", "-X", "--check-hash-based-pycs"})
"""Options of python that take the next word."""

DRIVER_AND_DESKTOP = (
    "nvidia-persistenced",
    "nvidia-powerd",
    "nv-fabricmanager",
    "nvidia-fabricmanager",
    "nvidia-imex",
    "nv-hostengine",
    "dcgm",
    "dcgm-exporter",
    "Xorg",
    "X",
    "Xwayland",
    "gnome-shell",
    "kwin",
    "kwin_x11",
    "kwin_wayland",
    "plasmashell",
    "sddm-greeter",
    "sddm-greeter-qt6",
    "cosmic-comp",
    "cosmic-greeter",
    "Hyprland",
    "sway",
    "labwc",
    "weston",
    "mutter",
    "cinnamon",
    "xfwm4",
    "system76-power",
    "nvidia_gpu_exporter",
)
OBSERVERS = ("nvidia-smi", "nvtop", "dcgmi", "nvitop", "btop", "gpustat")
"""They hold the devices open and use no memory there."""
COMM = 15
"""Bytes of a process's name that the kernel keeps (TASK_COMM_LEN - 1)."""


@dataclass(frozen=True)
class Process:
    """What is known of one process. `unit`: of the system's manager; `start_s`: since boot."""

    pid: int
    uid: int
    comm: str
    argv: Sequence[str]
    session: int
    start_s: float
    unit: str | None = None
    container: str | None = None
    container_name: str | None = None
    program: str | None = None
    """The path of its program (of root's Python: of its script), where that is a file of the system
    (proc/executable)."""


@dataclass(frozen=True)
class Replaced:
    """A unit that the inventory replaces. `main_pid` is its last main process, also when dead
    (0: it never ran since boot); `main_start_s` when that was started, since boot."""

    unit: str
    uid: int | None = None
    user: str = ""
    main_pid: int = 0
    main_start_s: float = 0.0


@dataclass(frozen=True)
class Context:
    """What the inventory says, as far as it decides about classes."""

    unit: str | None = None
    siblings: Mapping[str, str] = field(default_factory=dict)
    """Unit -> engine's name."""
    replaced: Sequence[Replaced] = ()
    protected: Sequence[str] = ()
    containers: Sequence[str] = ()
    waiting: str | None = None
    """The unit of an engine that waits at its gate for the switch that asks."""


@dataclass(frozen=True)
class Classified:
    """A class, and the reason for it as a phrase: "in vllm.service, which ..."."""

    name: str
    reason: str


def classify(process: Process, context: Context) -> Classified:
    """The class of a process; the first that matches of ours, sibling, protected, replaced, engine."""
    unit = process.unit
    if unit and unit == context.unit:
        return Classified(OURS, f"in {unit}")
    if unit and unit == context.waiting:
        return Classified(PROTECTED, f"in {unit}, which waits at its gate for this switch")
    if unit in context.siblings:
        engine = context.siblings[unit or ""]
        return Classified(SIBLING, f"in {unit}, the engine {engine} of this host")
    why = protected_by(process, context.protected)
    if why:
        return Classified(PROTECTED, why)
    why = replaced_by(process, context)
    if why:
        return Classified(REPLACED, why)
    engine_name = engine_of(process.argv)
    if engine_name:
        return Classified(ENGINE, f"{engine_name}{_not_replaced(process, context)}")
    named = sorted(claimed(process, DRIVER_AND_DESKTOP + OBSERVERS))
    if named:
        return Classified(FOREIGN, f"it calls itself {named[0]}, and is no program of the system")
    return Classified(FOREIGN, "nothing about it says what it is")


def protected_by(process: Process, added: Sequence[str]) -> str | None:
    """Why a process must never be ended, None when it may."""
    if process.unit and is_helper(process.unit):
        return f"in {process.unit}, a part of sglangctl"
    proven = {base_name(process.program or ""), (process.unit or "").rpartition(".service")[0]}
    for known, names, why in (
        (DRIVER_AND_DESKTOP, proven, "of the driver or the desktop"),
        (OBSERVERS, proven, "which only looks at the GPUs"),
        (added, claimed(process, added), "which the inventory protects"),
    ):
        for name in known:
            if name in names:
                return f"{name}, {why}"
    if process.unit in added:
        return f"in {process.unit}, which the inventory protects"
    if process.container_name and process.container_name in added:
        return f"in the container {process.container_name}, which the inventory protects"
    return None


def claimed(process: Process, known: Sequence[str]) -> set[str]:
    """Those of the known names that the process gives itself: no proof of anything."""
    said = {process.comm, base_name(process.argv[0]) if process.argv else ""}
    return {
        name
        for name in known
        if name in said or name.encode()[:COMM].decode("utf-8", "replace") == process.comm
    }


def replaced_by(process: Process, context: Context) -> str | None:
    """Why a process belongs to what the inventory replaces, None when it does not."""
    for unit in context.replaced:
        if process.unit == unit.unit:
            return f"in {unit.unit}, which the inventory replaces"
    if process.container_name and process.container_name in context.containers:
        return f"in the container {process.container_name}, which the inventory names"
    if process.container or not engine_of(process.argv):
        return None
    for unit in context.replaced:
        if is_orphan_of(process, unit):
            return (
                f"an orphan of {unit.unit}: its user {unit.user or unit.uid}, in the session of "
                f"its main process {unit.main_pid}"
            )
    return None


def is_orphan_of(process: Process, unit: Replaced) -> bool:
    """Same user, and the session that the unit's main process led; not older than that process.

    (systemd makes every main process a session leader; a later process that reuses its pid and
    becomes one too would be younger, and its children then carry neither title nor user.)
    """
    return (
        unit.main_pid > 0
        and process.session == unit.main_pid
        and process.uid == unit.uid
        and process.start_s >= unit.main_start_s - 1
    )


def engine_of(argv: Sequence[str]) -> str | None:
    """Which inference engine a command line or title says that this process is, as a phrase."""
    if not argv:
        return None
    first = argv[0]
    for title, name in TITLES:
        if first.startswith(title):
            return f"{name}, by its title {first.split()[0][:60]}"
    program, rest = base_name(first), list(argv[1:])
    if PYTHON.fullmatch(program):
        module, script, rest = python_target(rest)
        if module is not None:
            return next(
                (
                    f"{name}, by its command python -m {module}"
                    for known, name in MODULES
                    if module == known or module.startswith(known + ".")
                ),
                None,
            )
        if script is None:
            return None
        if RAY_WORKER in script:
            return "a Ray worker, by its script"
        program = base_name(script)
    name, words = PROGRAMS.get(program, ("", frozenset()))
    if not name or (words and (not rest or rest[0] not in words)):
        return None
    return f"{name}, by its command {' '.join([program, *rest[: 1 if words else 0]])}"


def script_of(program: str, argv: Sequence[str]) -> str | None:
    """The script that a system's Python runs; None for every other program."""
    return python_target(argv[1:])[1] if PYTHON.fullmatch(base_name(program)) else None


def python_target(arguments: Sequence[str]) -> tuple[str | None, str | None, list[str]]:
    """(module, script, its arguments) of python's own arguments; (None, None, []) for -c."""
    words = list(arguments)
    while words:
        word = words.pop(0)
        if word == "-m":
            return (words[0], None, words[1:]) if words else (None, None, [])
        if word == "-c" or word == "-":
            return None, None, []
        if word in PYTHON_VALUE:
            words = words[1:]
        elif not word.startswith("-"):
            return None, word, words
    return None, None, []


def base_name(path: str) -> str:
    """`/usr/bin/vllm` -> `vllm`; a login shell's leading dash is no part of a name."""
    return path.rpartition("/")[2]


def _not_replaced(process: Process, context: Context) -> str:
    """Where it nearly is `replaced`, what speaks against it."""
    if process.container:
        return ", in a container"
    if process.unit and process.unit.endswith(".service"):
        return f", in {process.unit}"
    for unit in context.replaced:
        if unit.uid is not None and process.uid != unit.uid:
            return f", of another user than {unit.unit} ({unit.user or unit.uid})"
    return ""
