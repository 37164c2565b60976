"""Everything that would stop a deploy of an engine, at once. Changes nothing.

The gate `before` (the default) looks at the weights, the unit's name, the port and the GPUs. The
engine is one of this host, or what --spec says of one that is not deployed yet: an object as in
/etc/sglangctl/engines (- is standard input). The gate `staged` asks a staged release's own parser
and imports its engine once, as root and under systemd: some 20 s, remembered where all was well.
--at-gate leaves these two to the launch gate.

Exit status: 0 nothing, 1 something would, 2 could not check. With --json: {"v": 1,
"preflight": [{"engine", "gate", "fails"}], "findings": [{"id", "level", "seen", "needed", "fix",
"source", "engine"}]}; levels are fail, warn and info.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from sglangctl.diagnosis.finding import Finding
from sglangctl.preflight import host, staged, text
from sglangctl.preflight.catalog import BEFORE, GATES, fails
from sglangctl.probe.document import probe
from sglangctl.state import release
from sglangctl.state.config import (
    EngineConfig,
    checked_document,
    engine_from,
    load_engine,
    located,
)
from sglangctl.state.paths import Paths
from sglangctl.util.errors import Unusable
from sglangctl.util.terminal import escaped


def add_arguments(parser: argparse.ArgumentParser) -> None:
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("name", nargs="?", help="an engine of this host")
    what.add_argument("--spec", metavar="FILE", help="one that is not deployed yet")
    parser.add_argument("--gate", choices=GATES, default=BEFORE)
    parser.add_argument(
        "--release", metavar="DIGEST", help="of --gate staged; default: the live one"
    )
    parser.add_argument(
        "--at-gate", action="store_true", help="of --gate staged: without parser and imports"
    )
    parser.add_argument("--json", action="store_true", help="one document")


def run(args: argparse.Namespace) -> int:
    paths = Paths()
    engine = load_engine(args.name, paths) if args.name else located(spec(args.spec), paths)
    found = (
        before(engine, paths)
        if args.gate == BEFORE
        else after(engine, args.release, args.at_gate, paths)
    )
    if args.json:
        print(json.dumps(text.document(engine.name, args.gate, found)))
    else:
        print("\n".join(map(escaped, text.lines(engine.name, args.gate, found))))
    return 1 if fails(found) else 0


def before(engine: EngineConfig, paths: Paths) -> list[Finding]:
    """The findings of the first gate; Unusable where the host could not be looked at."""
    name = engine.name
    config = json.loads(json.dumps(asdict(engine)))
    asked = {"engine_configs": [config], "plan": [name], "preflight": [name]}
    asked["paths"] = list(host.folders(name))
    document = probe(asked, paths)
    found = document.preflight.get(name)
    if found is None:
        raise Unusable(document.reasons.get(f"preflight {name}", f"{name} was not looked at"))
    return [Finding.from_json(one) for one in found]


def after(engine: EngineConfig, digest: str | None, at_gate: bool, paths: Paths) -> list[Finding]:
    """The findings of the second gate; Unusable where there is no such release."""
    wanted = digest or release.link_target(engine.name, "current", paths)
    if wanted is None or wanted not in release.staged(engine.name, paths):
        raise Unusable(f"{wanted or 'no release'} of {engine.name} is staged: deploy it first")
    return staged.findings(engine, wanted, paths, at_gate=at_gate)


def spec(source: str) -> EngineConfig:
    """The engine that a file or standard input (`-`) describes."""
    path = Path("standard input" if source == "-" else source)
    content = sys.stdin.read() if source == "-" else path.read_text(encoding="utf-8")
    try:
        document: Any = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise Unusable(f"{path} is not JSON: {error}") from None
    return engine_from(checked_document(document, path), path)
