"""Measure how fast an engine answers, with a small load of our own, beside what was accepted.

One request at a time and several at once, each with the same number of tokens, streamed, for at
most `acceptance.limit_s` seconds. It is a load: others who use the engine wait longer meanwhile.

Exit status: 0 measured and not slower than what was accepted last for this model and hardware
(within `acceptance.tolerance`), 1 slower, 2 could not be measured, or kept.
"""

from __future__ import annotations

import argparse
import json
from functools import partial

from sglangctl.engine import accepted, kinds, processes
from sglangctl.engine.accepted import Judged
from sglangctl.engine.http import endpoint
from sglangctl.engine.kinds import Kind
from sglangctl.proc import cgroup
from sglangctl.state.config import VERSION, Acceptance, load_engine
from sglangctl.state.paths import Paths
from sglangctl.systemd.unit import find
from sglangctl.util.errors import Unusable
from sglangctl.util.terminal import escaped


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="the engine")
    parser.add_argument("--accept", action="store_true", help="keep the result as the accepted one")
    parser.add_argument(
        "--history", action="store_true", help="what was accepted; measures nothing"
    )
    parser.add_argument("--json", action="store_true", help="one JSON document")
    parser.add_argument("--pid", type=int, help="the engine's main process, where no unit runs it")


def run(args: argparse.Namespace) -> int:
    paths = Paths()
    config = load_engine(args.name, paths)
    if args.history:
        kept = accepted.entries(config.name, paths)
        if args.json:
            print(json.dumps({"v": VERSION, "bench": kept}))
        else:
            print("\n".join(escaped(line) for line in history(kept)))
        return 0
    pid, folder = args.pid, None
    if pid is None:
        unit = find(config.unit)
        if unit is None or not unit.main_pid:
            raise Unusable(f"{config.name} does not run: see sglangctl status {config.name}")
        pid, folder = unit.main_pid, unit.folder
    members = partial(cgroup.pids_in, folder) if folder else partial(processes.in_group_of, pid)
    where = endpoint(config, paths, members)
    kind = kinds.of(where, config.limits.http_timeout_s)
    if kind.vectors:
        raise Unusable(f"{config.name} makes no tokens ({kind.name}): there is nothing to measure")
    wanted = config.acceptance or Acceptance()
    found = judged(args.accept, partial(accepted.judge, config, wanted, paths, where), kind)
    if args.json:
        print(json.dumps({"v": VERSION, "bench": found.event(wanted)}))
    else:
        print("\n".join(escaped(line) for line in lines(config.name, found)))
    if found.load.fault is not None or not found.load.speeds or found.unkept:
        return 2
    return 1 if found.comparison.worse else 0


def judged(accept: bool, measure: partial[Judged], kind: Kind) -> Judged:
    """A base model is asked for completions; what is not told to accept is only looked at."""
    found = measure(kind, keep=accept)
    fault = found.load.fault or ""
    if kind is kinds.CHATTING and "chat template" in fault:
        found = measure(kinds.COMPLETION, keep=accept)
    return found


def lines(name: str, found: Judged) -> list[str]:
    """For a terminal."""
    if found.load.fault is not None or not found.load.speeds:
        return [f"could not measure {name}: {found.load.fault or 'no answer came in time'}"]
    shown = accepted.described(found.load.as_dict())
    if found.against is None:
        shown.append("nothing was accepted for this model on this hardware yet")
    else:
        shown.append(f"accepted on {accepted.text_or_dash(found.against.get('time'))}:")
        shown += [f"  {line}" for line in accepted.described(found.against)]
    shown += [f"slower: {line}" for line in found.comparison.worse]
    shown += [f"too much noise to tell: {line}" for line in found.comparison.unsure]
    if found.unkept:
        shown.append(f"not kept: {found.unkept}")
    elif found.kept:
        shown.append("kept as the accepted one")
    elif found.against is None:
        shown.append(f"to keep it: sglangctl bench {name} --accept")
    return shown


def history(kept: list[dict[str, object]]) -> list[str]:
    """What was accepted, oldest first."""
    if not kept:
        return ["nothing was accepted yet"]
    shown = []
    for entry in kept:
        texts = [accepted.text_or_dash(entry.get(key)) for key in ("time", "version", "release")]
        shown.append(
            "  ".join([*texts[:2], texts[2][:12], accepted.text_or_dash(entry.get("hardware"))])
        )
        shown += [f"  {line}" for line in accepted.described(entry)]
    return shown
