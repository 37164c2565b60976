"""`make mutants`: how many small changes of the pure core do its own unit tests notice?

Changes one place of one module (a comparison, a number, a condition, a statement), runs the unit
tests of its room, and counts the changes after which none fails. A seeded sample, two at a time at
nice 10. By hand; the result is docs/evidence/mutants.json.

python -m benchmarks.mutants [--sample N] [--seed N] [--only TEXT] [--again]
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import importlib.abc
import importlib.machinery
import json
import os
import random
import resource
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, TypeGuard

import pytest

ROOT = Path(__file__).resolve().parents[1]
RESULT = ROOT / "docs/evidence/mutants.json"
UNIT = "tests/unit/sglangctl"
# Never test_free_escalation: a change of the plan would have it end real processes of this machine.
FREE = tuple(
    f"{UNIT}/free/test_{name}.py" for name in ("free_plan", "unanswered_units", "unowned_memory")
)
CORE = {
    "sglangctl/diagnosis": (f"{UNIT}/diagnosis", f"{UNIT}/startup"),
    "sglangctl/startup": (f"{UNIT}/startup", f"{UNIT}/diagnosis"),
    "sglangctl/holders/classes.py": (f"{UNIT}/holders/test_classes.py",),
    "sglangctl/free/planning.py": FREE,
    "sglangctl/free/verdicts.py": FREE,
    "sglangctl/state/release.py": (f"{UNIT}/state/test_release.py", f"{UNIT}/switch"),
    "roles/switch/decision.py": ("tests/unit/roles/switch",),
}
"""What is changed -> the tests that ought to notice."""
AT_ONCE = 2
CPU_S = 60
"""Processor time of one run, six times what it takes: a change that has the tests run for ever is
noticed, too, and a busy machine notices nothing."""
WALL_S = 900
"""For one that waits for ever."""
COMPARISONS = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
ARITHMETIC = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.Mult}
EQUIVALENT: dict[tuple[str, str], str] = {
    ("sglangctl/startup/failures.py", "return False  ->  return None"): (
        "callers ask only whether it is true"
    ),
    ("sglangctl/startup/logreader.py", "return False  ->  return None"): (
        "a handler's caller asks only whether it is true"
    ),
    ("sglangctl/startup/phases.py", "return False  ->  return None"): (
        "callers ask only whether it is true"
    ),
    ("sglangctl/startup/fold.py", "t > self.now  ->  t >= self.now"): (
        "an equal time is set to itself"
    ),
    (
        "sglangctl/startup/phases.py",
        "ORDER[name] > ORDER[self.name]  ->  ORDER[name] >= ORDER[self.name]",
    ): "a step to the phase itself is none",
    ("sglangctl/startup/fold.py", "0.0  ->  1.0"): (
        "a GPU of unknown utilisation: 1 % is idle, as 0 is (tests notice the other zeros)"
    ),
}
"""(file, change) -> why no test can notice it."""


@dataclass(frozen=True)
class Mutant:
    """One change: `index` is that of the place in `places`."""

    file: str
    index: int
    line: int
    change: str


def places(tree: ast.Module) -> Iterator[tuple[ast.AST, str, Any]]:
    """(node, field, new value) of every change; the tree is not touched."""
    # That a dataclass is frozen is a promise to the reader: nothing that runs depends on it.
    frozen = {word.value for word in ast.walk(tree) if is_frozen(word)}
    for node in ast.walk(tree):
        if node in frozen:
            continue
        if isinstance(node, ast.Compare) and type(node.ops[0]) in COMPARISONS:
            yield node, "ops", [COMPARISONS[type(node.ops[0])](), *node.ops[1:]]
        elif isinstance(node, ast.BoolOp):
            yield node, "op", ast.And() if isinstance(node.op, ast.Or) else ast.Or()
        elif isinstance(node, ast.BinOp) and type(node.op) in ARITHMETIC and arithmetic(node):
            yield node, "op", ARITHMETIC[type(node.op)]()
        elif isinstance(node, (ast.If, ast.IfExp, ast.While)):
            yield node, "test", ast.UnaryOp(ast.Not(), node.test)
        elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
            yield node, "value", not node.value
        elif isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
            yield node, "value", node.value + 1
        elif (
            isinstance(node, ast.Return) and node.value is not None and not is_none(node.value)
        ) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)):
            yield node, "value", ast.Constant(None)


def arithmetic(node: ast.BinOp) -> bool:
    """Not texts or lists that are put together."""
    sides = (node.left, node.right)
    texts = (ast.JoinedStr, ast.List, ast.Tuple, ast.ListComp)
    return not any(
        isinstance(side, texts) or (isinstance(side, ast.Constant) and isinstance(side.value, str))
        for side in sides
    )


def is_frozen(node: ast.AST) -> TypeGuard[ast.keyword]:
    return isinstance(node, ast.keyword) and node.arg == "frozen"


def is_none(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def parsed(file: str) -> ast.Module:
    return ast.parse((ROOT / file).read_text(encoding="utf-8"))


def changed(file: str, index: int) -> tuple[ast.Module, Mutant]:
    """The file's tree with the change of that index."""
    tree = parsed(file)
    node, field, value = list(places(tree))[index]
    before = ast.unparse(node).splitlines()[0]
    setattr(node, field, value)
    ast.fix_missing_locations(tree)
    after = ast.unparse(node).splitlines()[0]
    return tree, Mutant(file, index, getattr(node, "lineno", 0), f"{before}  ->  {after}")


class Changed(importlib.abc.Loader, importlib.abc.MetaPathFinder):
    """Imports one module from a tree instead of its file."""

    def __init__(self, module: str, path: Path, tree: ast.Module) -> None:
        self.module, self.path, self.tree = module, path, tree

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != self.module:
            return None
        spec = importlib.machinery.ModuleSpec(name, self, origin=str(self.path))
        spec.has_location = True
        if self.path.name == "__init__.py":
            spec.submodule_search_locations = [str(self.path.parent)]
        return spec

    def exec_module(self, module: ModuleType) -> None:
        exec(compile(self.tree, str(self.path), "exec"), module.__dict__)


class Trial:
    """The tests in a process of their own, with this tree in the file's place (None: with the file
    itself)."""

    def __init__(self, file: str, tree: ast.Module | None, tests: Sequence[str]) -> None:
        self.end = time.monotonic() + WALL_S
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os._exit(ran(file, tree, tests))
            finally:
                os._exit(99)

    def noticed(self) -> bool | None:
        """Whether the tests fail; None while they run."""
        done, status = os.waitpid(self.pid, os.WNOHANG)
        if done:
            return status != 0
        if time.monotonic() < self.end:
            return None
        os.killpg(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        return True


def ran(file: str, tree: ast.Module | None, tests: Sequence[str]) -> int:
    """pytest's status, in this process, without a word."""
    os.setsid()
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    if tree is not None:
        module = file.removesuffix(".py").replace("/", ".").removesuffix(".__init__")
        sys.meta_path.insert(0, Changed(module, ROOT / file, tree))
    options = ["-x", "-q", "-p", "no:cacheprovider", "--no-header", "--tb=no", "-p", "no:xdist"]
    # The same examples each time, and none kept: a change must not leave its own behind.
    options += ["--hypothesis-seed=0", "-k", "not fuzz"]
    with tempfile.TemporaryDirectory() as examples:
        os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = examples
        return int(pytest.main([*options, *tests]))


def files() -> dict[str, tuple[str, ...]]:
    """File of the core -> its tests."""
    found = {}
    for place, tests in CORE.items():
        path = ROOT / place
        for one in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            found[str(one.relative_to(ROOT))] = tests
    return found


def sampled(size: int, seed: int, only: str) -> list[tuple[str, int]]:
    """(file, index) of the changes to try."""
    every = [
        (file, index)
        for file in files()
        if only in file
        for index in range(len(list(places(parsed(file)))))
    ]
    return sorted(random.Random(seed).sample(every, min(size, len(every))))


def digest() -> str:
    """Of the core's source: a sample's indices are of one state of it."""
    read = (ROOT.joinpath(file).read_bytes() for file in files())
    return hashlib.sha256(b"".join(read)).hexdigest()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sample", type=int, default=300)
    parser.add_argument("--seed", type=int, default=20261130)
    parser.add_argument("--only", default="", help="files whose path has this in it")
    parser.add_argument("--again", action="store_true", help="only those that survived last time")
    args = parser.parse_args()
    os.nice(10)
    os.chdir(ROOT)
    for tests in sorted(set(files().values())):
        unchanged = Trial("", None, tests)
        while (failed := unchanged.noticed()) is None:
            time.sleep(0.02)
        if failed:
            print(f"the tests {' '.join(tests)} fail without any change", file=sys.stderr)
            return 1
    tried: Counter[str] = Counter()
    caught: Counter[str] = Counter()
    survivors: list[dict[str, Any]] = []
    waiting = sampled(args.sample, args.seed, args.only)
    if args.again:
        before = json.loads(RESULT.read_text(encoding="utf-8"))
        if before["core"] != digest():
            print("the core has changed since that sample: run it whole", file=sys.stderr)
            return 1
        tried, caught = Counter(before["tried_by_file"]), Counter(before["noticed_by_file"])
        waiting = [(one["file"], one["index"]) for one in before["survivors"]]
        tried.subtract(file for file, _ in waiting)
    running: list[tuple[Mutant, Trial]] = []
    while waiting or running:
        while waiting and len(running) < AT_ONCE:
            file, index = waiting.pop()
            tree, mutant = changed(file, index)
            running.append((mutant, Trial(file, tree, files()[file])))
        time.sleep(0.02)
        for mutant, trial in list(running):
            noticed = trial.noticed()
            if noticed is None:
                continue
            running.remove((mutant, trial))
            tried[mutant.file] += 1
            if noticed:
                caught[mutant.file] += 1
                continue
            reason = EQUIVALENT.get((mutant.file, mutant.change))
            survivors.append({**vars(mutant), "changes_nothing": reason})
            shown = f"{mutant.file}:{mutant.line}: {mutant.change}  [{reason or 'not noticed'}]"
            print(shown, flush=True)
    equivalent = sum(one["changes_nothing"] is not None for one in survivors)
    total, found = sum(tried.values()), sum(caught.values())
    print(f"{found} of {total} noticed, {equivalent} change nothing")
    if not args.only:
        document = {
            "v": 1,
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "seed": args.seed,
            "tried": total,
            "noticed": found,
            "change_nothing": equivalent,
            "share": round(found / max(1, total - equivalent), 3),
            "core": digest(),
            "tried_by_file": dict(sorted(tried.items())),
            "noticed_by_file": dict(sorted(caught.items())),
            "survivors": sorted(survivors, key=lambda one: (one["file"], one["index"])),
        }
        RESULT.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
