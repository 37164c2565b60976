"""The gate `staged`: what only the environment that was made beside the old engine can tell.

Its own parser reads the release's arguments, and its own imports are done once, before anything is
stopped. What had no fault is remembered for this environment and these arguments. Where the switch
starts the engine at its launch gate, that shows both, on the real GPUs: they are left out. The weights are
looked at once more, now that the engine's user exists, and remembered: the probe, which writes
nothing, then reads none of their headers while no file changes.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from sglangctl.diagnosis.causes import CAUSES
from sglangctl.diagnosis.classify import Context, classify
from sglangctl.diagnosis.finding import FAIL, INFO, WARN, Finding
from sglangctl.masking.masker import Masker, read_env, secrets_of
from sglangctl.preflight import architecture, asking, in_venv, model, toolchain
from sglangctl.preflight.asking import Answer
from sglangctl.preflight.catalog import finding, without_ignored
from sglangctl.preflight.text import sentence
from sglangctl.state import ownership, release
from sglangctl.state.config import EngineConfig
from sglangctl.state.files import write_atomic
from sglangctl.state.paths import Paths
from sglangctl.util import lazy_re
from sglangctl.util.errors import Failed
from sglangctl.util.terminal import escaped
from sglangctl.util.values import text, texts, whole

VERSION = 2
"""Of the questions: another number, and everything is asked again."""
NEGATIVE = lazy_re.compile(r"\bno[-_]([a-z][a-z0-9_-]+)")
FILES = 8192
"""A process of the engine has one for each client and rank. SGLang raises its own limit to 65,535 as
far as it may (0.5.23, utils/common.py), and serves with less: containers give 20,000."""
LOCKED = 64 << 20
"""Bytes: above what distributions set (8 MiB). NCCL's user guide asks for no limit."""
GIVEN = "the unit has {}: raise the limit of the container or machine around it"
Ask = Callable[[str, str, str, Paths, str], Answer]


def findings(
    engine: EngineConfig,
    digest: str,
    paths: Paths,
    ask: Ask = asking.ask,
    at_gate: bool = False,
) -> list[Finding]:
    """Everything about the staged release `digest` of `engine`. Failed: it is not whole.

    + ask: (engine's name, digest, environment, paths, what) -> what the environment says
    + at_gate: without what the launch gate shows, parser and imports
    """
    venv = release.venv(engine.name, digest, paths) or ""
    found = list(toolchain.look(engine, venv, paths.releases(engine.name) / digest))
    looked = model.look(engine, paths, remember=True)
    found += architecture.look(looked, venv)
    # The gate `before` has told of the rest; broken since, the engine must not be stopped for them.
    found += [one for one in model.judge(engine, looked) if one.level == FAIL]
    memory = paths.asked / f"{engine.name}-{_key(engine, digest, Path(venv))}"
    if not memory.exists():
        what = in_venv.AROUND if at_gate else in_venv.ALL
        asked = _asked(engine, digest, venv, paths, what, ask)
        if not (at_gate or any(one.level != INFO for one in asked)) and os.geteuid() == 0:
            _remember(engine.name, memory)
        found += asked
    return without_ignored(found, engine.preflight.ignore)


def failures(engine: EngineConfig, digest: str, paths: Paths) -> list[str]:
    """Why the staged release could not start, a sentence each."""
    return [sentence(one) for one in findings(engine, digest, paths) if one.level == FAIL]


def _asked(
    engine: EngineConfig, digest: str, venv: str, paths: Paths, what: str, ask: Ask
) -> list[Finding]:
    try:
        answer = ask(engine.name, digest, venv, paths, what)
    except Failed as error:
        return [finding("engine-unchecked", WARN, f"the staged engine was not checked: {error}")]
    folder = paths.releases(engine.name) / digest
    masker = Masker(secrets_of(folder))
    return list(judge(engine, venv, answer, masker, _caches(folder / "engine.env")))


def _caches(file: Path) -> dict[str, str]:
    """The folder that exists -> the cache's own, which may be made in there, by the release."""
    found: dict[str, str] = {}
    environment = read_env(file)
    for name in in_venv.CACHES:
        wanted = path = environment.get(name, "")
        while path and not os.path.exists(path):
            path = os.path.dirname(path)
        if path:
            found.setdefault(path, wanted)
    return found


def judge(
    engine: EngineConfig, venv: str, answer: Answer, masker: Masker, caches: Mapping[str, str]
) -> Iterator[Finding]:
    """From what the environment said to findings. Nothing of it is trusted: it names a folder, and root
    is told to give that away. Pure. `caches`: as `_caches` has them."""
    said = {str(line.get("step")): line for line in answer.lines}
    closed = set(texts(said.get("caches", {}).get("closed")))
    for path, wanted in caches.items():
        if path in closed:
            command = "chown" if path == wanted else "install -d -o"
            yield finding(
                "cache-not-writable",
                FAIL,
                f"user {engine.user} cannot write to {_shown(path)}, which the engine keeps files in",
                f"{command} {engine.user} {shlex.quote(_shown(wanted))}, or name another folder in "
                "`environment`",
            )
        elif closed & set(map(str, Path(path).parents)) - {"/", *caches}:
            # Root sees further than that user, whose rights or sandbox end before.
            yield finding(
                "cache-not-writable",
                FAIL,
                f"user {engine.user} cannot reach {_shown(path)}, which the engine keeps files in",
                "name a folder in `environment` that this user can reach in the unit's sandbox",
            )
    version = text(said.get("version", {}).get("version"))
    # A build of one's own has a local part (0.5.23+cu130), which pip's == leaves out too.
    if version and engine.version and version.partition("+")[0] != engine.version.partition("+")[0]:
        yield finding(
            "engine-version",
            WARN,
            f"SGLang {_shown(version)} is installed in {venv}",
            "correct `version` or install.packages",
            f"{engine.version}, as `version` says",
        )
    yield from _limits(engine, said.get("limits", {}))
    yield from _arguments(said.get("arguments", {}), masker)
    for line in answer.lines:
        if line.get("step") in ("import", "arguments") and "missing" in line:
            yield from _import(line, engine.name, venv, masker)
    if not answer.ended:
        yield _unended(answer, masker)


def _limits(engine: EngineConfig, said: dict[str, Any]) -> Iterator[Finding]:
    """What the unit asks for and the host does not give: a container's own limits, say."""
    files, locked = whole(said.get("files")), whole(said.get("locked"))
    if files is not None and 0 <= files < FILES:
        yield finding(
            "engine-limits",
            WARN,
            f"the engine may open {files} files, one for each client",
            GIVEN.format("LimitNOFILE"),
            f"{FILES}",
        )
    ranks = engine.tensor_parallel > 1 and engine.preflight.device != "cpu"
    if ranks and locked is not None and 0 <= locked < LOCKED:
        yield finding(
            "engine-limits",
            WARN,
            f"the engine may lock {locked >> 10} KiB of memory: NCCL's ranks exchange data through "
            "locked memory",
            GIVEN.format("LimitMEMLOCK"),
            f"{LOCKED >> 20} MiB",
        )


def _arguments(said: dict[str, Any], masker: Masker) -> Iterator[Finding]:
    sentence = _shown(masker.mask(str(said.get("text") or "")))
    if said.get("error") == "refused":
        positive = NEGATIVE.search(sentence)
        fix = "correct `flags`; the engine's --help has them all"
        if positive and "Unsupported config option" in sentence:
            fix = f"write the flag {positive[1].replace('_', '-')} with the value false"
        yield finding(
            "engine-arguments", FAIL, f"the engine refuses its arguments: {sentence}", fix
        )
    elif said.get("error") == "unknown":
        yield finding("engine-unchecked", INFO, f"the arguments were not checked: {sentence}")


def _import(line: dict[str, Any], name: str, venv: str, masker: Masker) -> Iterator[Finding]:
    kind, message = str(line.get("error")), str(line.get("text") or "")
    missing = text(line.get("missing")) or ""
    wanted = str(line.get("wanted") or "sglang.srt.server_args")
    if kind == "ModuleNotFoundError" and missing and f"{wanted}.".startswith(f"{missing}."):
        # Another release than those we know, or a stand-in: nothing is wrong with that.
        yield finding("engine-unchecked", INFO, f"imports were not checked: no {_shown(missing)}")
        return
    sentence = _shown(masker.mask(f"{kind}: {message}"))
    named = classify(f"{kind}: {message}", Context(), exception=True)
    cause = CAUSES[named.cause] if named and named.cause in CAUSES else None
    place = f" (in {_shown(str(line['file']))})" if line.get("file") else ""
    yield finding(
        "engine-imports",
        FAIL,
        f"the engine in {venv} cannot be imported: {sentence}{place}",
        cause.next_for(name) if cause else "look at install.packages and install.pip_arguments",
    )


def _unended(answer: Answer, masker: Masker) -> Finding:
    last = [line for line in answer.text.splitlines() if line.strip()][-1:]
    message = _shown(masker.mask(last[0])) if last else "it said nothing"
    if answer.result == "timeout":
        seen = f"the engine's imports did not end within {asking.LIMIT_S:.0f} s ({message})"
        return finding("engine-unchecked", WARN, seen)
    return finding(
        "engine-imports",
        FAIL,
        f"the engine's imports ended with {_shown(answer.result)}: {message}",
        "look at install.packages and the unit's `environment`",
    )


def _shown(text: str) -> str:
    line = escaped(" ".join(str(text).split()))
    return line if len(line) <= 600 else f"{line[:597]}..."


def _key(engine: EngineConfig, digest: str, venv: Path) -> str:
    """Digest of what the answer depends on: the release (arguments, environment, sandbox), and the
    packages as far as their folders show a change."""
    folders = [venv / ownership.MARKER, *sorted(venv.glob("lib/python3*/site-packages"))]
    folders += [folder / "sgl_kernel" for folder in folders[1:]]
    known: list[Any] = [VERSION, digest, engine.version, engine.user]
    for path in folders:
        try:
            status = path.stat()
            known.append([str(path), status.st_mtime_ns, status.st_ino])
        except OSError:
            known.append([str(path), None])
    return hashlib.sha256(json.dumps(known).encode()).hexdigest()[:16]


def _remember(name: str, memory: Path) -> None:
    memory.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    for old in memory.parent.glob(f"{name}-{'[0-9a-f]' * 16}"):
        old.unlink(missing_ok=True)
    write_atomic(memory, b"", 0o600)
