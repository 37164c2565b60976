"""Is the model in a folder whole, and can the engine's user read it?

Reads the headers of the weight files, the index and the small files beside them: seconds, whatever
their size. With --engine the engine's own model and drafter are looked at, with the rights of its
user. --sha256 reads every byte: against LIST (what sha256sum printed), else against what
huggingface_hub wrote down when it fetched the folder; ended and called again, it goes on.

--start is what the engine's unit runs before each start: it says nothing of a model that is
complete, reads none of its headers while no file changes, and lets the engine start where it could
not check. It ends a start whose port is taken, too; not with --at-gate, where the engine before
still serves.

Exit status: 0 complete, 1 not (each finding says what is wrong and what next), 2 could not check.
With --json: {"v": 1, "weights": [{"path", "files", "bytes", "tensors", "complete"}], "findings":
[{"id", "level", "seen", "fix", "path"}]}; bytes are those of the tensors.
"""

from __future__ import annotations

import argparse
import json
import os
import pwd
import sys
from pathlib import Path

from sglangctl.diagnosis.finding import FAIL, Finding
from sglangctl.state.config import load_engine
from sglangctl.state.paths import Paths
from sglangctl.util.errors import Unusable
from sglangctl.util.terminal import escaped
from sglangctl.watch.before_start import faults, port_taken
from sglangctl.weights import look
from sglangctl.weights.check import Model
from sglangctl.weights.hashes import Progress


def add_arguments(parser: argparse.ArgumentParser) -> None:
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("folder", nargs="?", type=Path, metavar="DIR", help="a model's folder")
    what.add_argument("--engine", metavar="NAME", help="this engine's model and drafter")
    parser.add_argument("--user", help="look with this user's rights (default: one's own)")
    parser.add_argument("--drafter", action="store_true", help="DIR needs no tokenizer")
    parser.add_argument(
        "--sha256", nargs="?", const="", metavar="LIST", help="read all of it and compare"
    )
    parser.add_argument("--json", action="store_true", help="one document")
    parser.add_argument("--start", action="store_true", help="of --engine: may it start")
    parser.add_argument(
        "--at-gate", action="store_true", help="of --start: its port is not its yet"
    )


def run(args: argparse.Namespace) -> int:
    if args.start:
        if not args.engine:
            raise Unusable("--start is of an engine: name it with --engine")
        return may_start(args.engine, args.at_gate)
    models = _models(args)
    if args.json:
        print(json.dumps(document(models)))
    else:
        print("\n".join(line for model in models for line in lines(model)))
    return 0 if all(model.complete for model in models) else 1


def may_start(name: str, at_gate: bool) -> int:
    """1 for a model that is not whole or a port that is taken, with what is wrong on standard error (the
    engine's log)."""
    try:
        paths = Paths()
        engine = load_engine(name, paths)
        wrong = faults(engine, paths)
        by = None if wrong or at_gate else port_taken(engine, engine.limits.port_held_s)
    except Exception as error:  # a fault of the check must not keep an engine from its start
        print(escaped(f"sglangctl weights: not checked: {error}"), file=sys.stderr)
        return 0
    for finding in wrong:
        fix = f": {finding.fix}" if finding.fix else ""
        print(escaped(f"sglangctl weights: {finding.seen}{fix}"), file=sys.stderr)
    if by is not None:
        said = f"sglangctl weights: port {engine.port} is held by {by}: end that, or choose another `port`"
        print(escaped(said), file=sys.stderr)
    return 1 if wrong or by is not None else 0


def document(models: list[Model]) -> dict[str, object]:
    """What --json prints."""
    return {
        "v": 1,
        "weights": [
            {
                "path": model.path,
                "files": model.files,
                "bytes": model.bytes,
                "tensors": model.tensors,
                "complete": model.complete,
            }
            for model in models
        ],
        "findings": [
            {**finding.to_json(), "path": model.path}
            for model in models
            for finding in model.findings
        ],
    }


def lines(model: Model) -> list[str]:
    """The verdict first, then a line or two a finding."""
    verdict = "complete" if model.complete else "not complete"
    size = f"{model.files} files, {model.bytes / 1e9:.1f} GB, {model.tensors} tensors"
    found = [escaped(f"{model.path}: {verdict} ({size})")]
    for finding in sorted(model.findings, key=lambda one: one.level != FAIL):
        found.append(escaped(f"  {finding.level}: {finding.seen}"))
        if finding.fix:
            found.append(escaped(f"    {finding.fix}"))
    return found


def _models(args: argparse.Namespace) -> list[Model]:
    user = args.user or pwd.getpwuid(os.geteuid()).pw_name
    targets = [look.Target(args.folder, not args.drafter)] if args.folder else []
    if args.engine:
        engine = load_engine(args.engine, Paths())
        targets, user = look.targets(engine), args.user or engine.user
    try:
        pwd.getpwnam(user)
    except KeyError:
        raise Unusable(f"there is no user {user} on this host") from None
    return [_model(args, target, user) for target in targets]


def _model(args: argparse.Namespace, target: look.Target, user: str) -> Model:
    model = look.model(target.folder, user, tokenizer=target.tokenizer)
    if args.sha256 is not None and model.complete:
        listed = Path(args.sha256).read_text("utf-8", "replace") if args.sha256 else None
        model.findings += look.sha256(target.folder, listed, _tell)
        if model.complete:
            model.findings.append(Finding("sha256", "info", "every listed file has its sha256"))
    return model


def _tell(progress: Progress) -> None:
    share = 100 * progress.done / max(progress.total, 1)
    print(
        f"sha256: {progress.done / 1e9:.1f} of {progress.total / 1e9:.1f} GB ({share:.0f} %)",
        file=sys.stderr,
        flush=True,
    )
