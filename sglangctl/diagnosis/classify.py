"""Which cause a log line names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sglangctl.diagnosis.signatures import find
from sglangctl.util import lazy_re

FOLDER = "making a folder"
COMPILER = "calling a compiler"
LOCK = "locking a file"
MODEL_TYPE = "looking up the model type"
PEERS = "connecting GPUs with each other"
QUANTIZATION = "creating quantized weights"
SEGMENT = "making a shared memory segment"
TASK = "starting a process or thread"
TOKENIZER = "reading the tokenizer's files"
ARGUMENTS = "checking the arguments"
WEIGHTS = "loading weights"

# What stands in a traceback's frames, by what is being done there.
_FRAMES = {
    FOLDER: ("makedirs", "mkdir"),
    TOKENIZER: ("tokenization_", "get_tokenizer("),
    ARGUMENTS: ("/server_args.py", "/arg_groups/"),
    WEIGHTS: ("load_weights(", "weight_loader("),
    QUANTIZATION: ("create_weights",),
    MODEL_TYPE: ("CONFIG_MAPPING",),
    LOCK: ("filelock", "fcntl.flock", "fcntl.lockf"),
    TASK: ("_fork_exec(", "os.fork(", "start_new_thread("),
    SEGMENT: ("shared_memory.py",),
    PEERS: ("custom_all_reduce", "register_graph_buffers"),
    COMPILER: (
        *("cuda_home", "CUDA_HOME", "find_nvcc", "get_nvcc", "run_ninja", "build_ninja"),
        *("_ninja_build", "/triton/runtime/build.py", "_inductor/cpp_builder.py"),
    ),
}


@dataclass(frozen=True)
class Context:
    """What the classification of a line depends on besides the line."""

    phase: str = "importing"
    drafter_path: str | None = None
    tokenizer_path: str | None = None
    loading_drafter: bool = False
    """The drafter's weights are being loaded, not the target's."""
    doing: frozenset[str] = frozenset()
    """What the traceback's frames pass through: FOLDER, TOKENIZER, ARGUMENTS, WEIGHTS, ..."""
    unreadable: Mapping[str, str] = field(default_factory=dict)
    """Files that are there and that the engine's user cannot read: path, and why."""


@dataclass(frozen=True)
class LineCause:
    """The cause that a line names."""

    cause: str
    line: str
    effect: bool = False
    """It is a consequence: any other finding goes first."""
    vague: bool = False
    """It says that something failed; a finding that says why goes first."""
    hint: bool = False
    """An engine may say it and go on."""
    note: str = ""
    """What was found out besides the line."""


_CANNOT_MAKE = lazy_re.compile(
    r"^[\w.]*(?:FileNotFoundError|PermissionError|NotADirectoryError|FileExistsError|OSError): "
    r"\[Errno (?:1|2|13|17|20|30)\]"
)

_REFUSAL = lazy_re.compile(r"^(?:ValueError|AssertionError|NotImplementedError)\b")
_NO_FIT = lazy_re.compile(
    r"^(?:KeyError|AssertionError|(?:RuntimeError|ValueError|IndexError)\b.*(?:size|shape|dimension))"
)
_NO_JSON = lazy_re.compile(r"^(?:json\.decoder\.)?JSONDecodeError\b|^Exception: .*(?:EOF|expected)")


# What an exception means by what was being done: (deed, its line, cause, whether it is vague).
_DEEDS = (
    (FOLDER, _CANNOT_MAKE, "cache-not-writable", False),
    (
        LOCK,
        lazy_re.compile(r"^[\w.]*Error: \[Errno (?:13|30|37|38|95|116)\]"),
        "cache-not-writable",
        False,
    ),
    (TOKENIZER, _NO_JSON, "tokenizer-missing", False),
    (TASK, lazy_re.compile(r"^(?:BlockingIOError|OSError): \[Errno 11\]"), "too-many-tasks", False),
    (
        SEGMENT,
        lazy_re.compile(r"^(?:OSError|FileExistsError): \[Errno (?:12|17|28)\]"),
        "shared-memory",
        False,
    ),
    (
        PEERS,
        lazy_re.compile(
            r"^[\w.]*Error: (?:CUDA|CUDART|CUDA driver) error: .*(?:invalid argument|invalid resource"
            r"|invalid device context|not supported|not permitted)"
        ),
        "peer-access",
        False,
    ),
    (MODEL_TYPE, lazy_re.compile(r"^KeyError\b"), "unsupported-model", False),
)
# The same for lines that no signature knows.
_ELSE = (
    (
        COMPILER,
        lazy_re.compile(
            r"^AssertionError\b|^[\w.]*(?:RuntimeError|CalledProcessError|Exception): "
        ),
        "jit-toolchain",
        True,
    ),
    (WEIGHTS, _NO_FIT, "weights-corrupt", False),
    (
        QUANTIZATION,
        lazy_re.compile(r"^(?:KeyError|AttributeError|NotImplementedError|AssertionError)\b"),
        "unsupported-configuration",
        False,
    ),
    (ARGUMENTS, _REFUSAL, "unsupported-configuration", False),
)
_BY_PATH = ("model-not-found", "weights-missing", "weights-unreadable", "tokenizer-missing")


def deeds(frame: str) -> set[str]:
    """What is being done in a line of a traceback's frames."""
    return {deed for deed, marks in _FRAMES.items() if any(mark in frame for mark in marks)}


def classify(line: str, context: Context, exception: bool = False) -> LineCause | None:
    """What `line` says about the cause; None for a line that says nothing.

    exception: it is the last line of a traceback, or belongs to that line's message.
    """
    doing = context.doing if exception else frozenset()
    for deed, pattern, cause, vague in _DEEDS:
        if deed in doing and pattern.match(line):
            return LineCause(cause, line, vague=vague)
    signature = find(line, exception)
    if signature is not None:
        cause, note = _refine(signature.cause, line, context)
        return LineCause(cause, line, signature.effect, signature.vague, signature.hint, note)
    for deed, pattern, cause, vague in _ELSE:
        if deed in doing and pattern.match(line):
            return LineCause(_refine(cause, line, context)[0], line, vague=vague)
    return None


def _refine(cause: str, line: str, context: Context) -> tuple[str, str]:
    """The cause, and what else is known of it.

    The same sentence of the engine means another thing for the drafter or the tokenizer, and for a
    file that is there after all.
    """
    if cause in _BY_PATH:
        for path, why in context.unreadable.items():
            if _names(line, path):
                return "weights-unreadable", why
    if cause == "model-not-found":
        if _names(line, context.drafter_path):
            return "drafter-not-found", ""
        if _names(line, context.tokenizer_path):
            return "tokenizer-missing", ""
    if cause == "weights-missing" and _names(line, context.drafter_path):
        return "drafter-not-found", ""
    if cause == "weights-corrupt" and context.loading_drafter and "afetensor" not in line:
        return "drafter-mismatch", ""
    return cause, ""


def _names(line: str, path: str | None) -> bool:
    """Whether `line` names `path` itself, not a longer path that begins with it."""
    if not path:
        return False
    at = line.find(path)
    while at >= 0:
        end = line[at + len(path) : at + len(path) + 1]
        if not (end.isalnum() or end in ("-", "_")):
            return True
        at = line.find(path, at + 1)
    return False
