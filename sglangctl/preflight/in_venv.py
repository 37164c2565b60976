"""What is asked of a staged engine, by its own Python: its parser and its imports.

Run as a file by the environment's Python (3.9 or newer) with ALL, or AROUND for what is around the
engine only, and the engine's own words as arguments. It imports nothing of ours. Answers are JSON,
one a line, on standard output; what libraries print goes to standard error.
"""

import io
import json
import os
import resource
import sys
from contextlib import redirect_stderr
from importlib import import_module, metadata
from typing import Any

ALL, AROUND = "all", "around"
ENGINE = (
    "sglang.srt.entrypoints.http_server",
    "sglang.srt.managers.scheduler",
    "sglang.srt.managers.detokenizer_manager",
)
"""What the launcher and its children import before they do anything."""
CACHES = ("HOME", "SGLANG_CACHE_DIR", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "HF_HOME")


class Parsed(Exception):
    """The command line was understood."""


def main() -> None:
    what, argv = sys.argv[1], sys.argv[2:]
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8", errors="backslashreplace")
    os.dup2(2, 1)
    # As `python -m` has it: the folder in which the engine starts.
    sys.path[0] = os.getcwd()

    def tell(**answer: Any) -> None:
        answers.write(json.dumps(answer) + "\n")
        answers.flush()

    tell(step="caches", closed=closed_caches())
    # Before SGLang, which raises the first itself as far as it may.
    tell(
        step="limits",
        files=resource.getrlimit(resource.RLIMIT_NOFILE)[1],
        locked=resource.getrlimit(resource.RLIMIT_MEMLOCK)[0],
    )
    try:
        tell(step="version", version=metadata.version("sglang"))
    except metadata.PackageNotFoundError:
        tell(step="version", version=None)
    if what == ALL:
        said = arguments(argv)
        tell(step="arguments", **said)
        for name in ENGINE if "missing" not in said else ():
            found = imported(name)
            tell(step="import", wanted=name, **found)
            if found["error"]:
                break
    tell(step="end")


def closed_caches() -> "list[str]":
    """Folders of the engine's environment in which it could not write, or not make them."""
    closed = []
    for name in CACHES:
        path = os.environ.get(name, "")
        while path and not os.path.exists(path):
            path = os.path.dirname(path)
        if path and not os.access(path, os.W_OK | os.X_OK):
            closed.append(path)
    return sorted(set(closed))


def arguments(argv: "list[str]") -> "dict[str, Any]":
    """What the engine's own parser says of its command line; it stops before it looks at GPUs."""
    try:
        module: Any = import_module("sglang.srt.server_args")
    except BaseException as error:
        return described(error)
    if not hasattr(module, "prepare_server_args"):
        return {"error": "unknown", "text": "it has no prepare_server_args"}

    def stop(*_: Any) -> None:
        raise Parsed

    said = io.StringIO()
    try:
        # What follows the parser looks at the GPUs and the model.
        module.ServerArgs.from_cli_args = staticmethod(stop)
        load_plugins()
        with redirect_stderr(said):
            module.prepare_server_args(argv)
    except Parsed:
        return {"error": None}
    except SystemExit:
        sentence = said.getvalue().rpartition("error: ")[2] or said.getvalue()
        return {"error": "refused", "text": " ".join(sentence.split())[-2000:]}
    except ValueError as error:  # of the reader of --config
        return {"error": "refused", "text": f"{error}"[:2000]}
    except Exception as error:
        return {"error": "unknown", "text": f"{type(error).__name__}: {error}"[:2000]}
    return {"error": None}


def load_plugins() -> None:
    """As the launcher does: a plugin may add flags."""
    try:
        import_module("sglang.srt.plugins").load_plugins()
    except (ImportError, AttributeError):
        return


def imported(name: str) -> "dict[str, Any]":
    try:
        import_module(name)
    except BaseException as error:  # a module may even exit
        return described(error)
    return {"error": None}


def described(error: BaseException) -> "dict[str, Any]":
    """An exception as data, with the file that was being imported."""
    trace, file = error.__traceback__, ""
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        if "importlib" not in name and name != __file__:
            file = name
        trace = trace.tb_next
    return {
        "error": type(error).__name__,
        "text": f"{error}"[:2000],
        "missing": getattr(error, "name", None),
        "file": file,
    }


if __name__ == "__main__":
    main()
