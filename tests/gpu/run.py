"""`make gpu-check`: what the product does on real GPUs, under real systemd, as one document.

    python -m tests.gpu.run SETTINGS [--out FOLDER] [--only NAME,NAME] [--list]

SETTINGS is a YAML file; tests/gpu/README.md describes it. The document is FOLDER/gpu-check.json, written
after each check, so that a run that is cut keeps what it has. With --only the other checks'
results of an earlier run stay in it. Exit status: 0 all passed or skipped, 1 one failed, 2 usage.

{"v": 1, "date", "commit", "machine": {...}, "checks": [{"name", "what", "outcome": passed |
failed | skipped, "seconds", "measured": {...}, "why"}]}
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import yaml

from tests.gpu import checks
from tests.gpu.bench import Bench, SshHost
from tests.hosts.say import ROOT, say


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="gpu-check", description="What the product does on real GPUs."
    )
    parser.add_argument("settings", type=Path, nargs="?")
    parser.add_argument("--out", type=Path, default=ROOT / "build/gpu-check")
    parser.add_argument("--only", default="", help="names of checks, with commas between them")
    parser.add_argument("--list", action="store_true", help="show the checks and end")
    args = parser.parse_args(argv)
    if args.list or args.settings is None:
        for check in checks.ALL:
            say(f"{check.name:<24} {check.what}")
        return 0 if args.list else 2
    wanted = [name for name in args.only.split(",") if name]
    unknown = set(wanted) - {check.name for check in checks.ALL}
    if unknown:
        parser.error(f"no such check: {', '.join(sorted(unknown))} (--list shows them)")
    args.out.mkdir(parents=True, exist_ok=True)
    bench = from_settings(yaml.safe_load(args.settings.read_text()), args.out)
    return run(bench, [one for one in checks.ALL if not wanted or one.name in wanted])


def from_settings(settings: dict[str, Any], out: Path) -> Bench:
    """The bench that a settings file describes."""
    ssh = settings["ssh"]
    return Bench(
        host=SshHost(ssh),
        address="gpu-check",
        ssh=ssh,
        base=settings["engine"],
        python=settings.get("python"),
        models=settings["models"],
        out=out,
        reboot=settings.get("reboot"),
        outside=settings.get("outside", False),
    )


def run(bench: Bench, wanted: list[checks.Check]) -> int:
    """Run these checks, in order; returns the exit status."""
    path = bench.out / "gpu-check.json"
    document: dict[str, Any] = {"v": 1, "checks": []}
    if path.exists():
        document = json.loads(path.read_text())
    done = {entry["name"]: entry for entry in document["checks"]}
    failed = False
    for check in wanted:
        entry = one(bench, check)
        failed |= entry["outcome"] == "failed"
        done[check.name] = entry
        document.update(
            date=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            commit=commit(),
            checks=[done[known.name] for known in checks.ALL if known.name in done],
        )
        if check.name == "probe" and entry["outcome"] == "passed":
            document["machine"] = entry["measured"]
        path.write_text(json.dumps(document, indent=1) + "\n")
        say(
            f"{entry['outcome']:<8} {check.name:<24} {entry['seconds']:6.1f} s  {entry.get('why', '')}"
        )
    say(f"{path}")
    return 1 if failed else 0


def one(bench: Bench, check: checks.Check) -> dict[str, Any]:
    """One check's entry in the document."""
    entry: dict[str, Any] = {"name": check.name, "what": check.what}
    begin = time.monotonic()
    try:
        entry.update(outcome="passed", measured=check.function(bench))
    except checks.Skip as skip:
        entry.update(outcome="skipped", why=str(skip))
    except Exception as error:
        # One that fails must not take the others' results with it; the traceback is kept beside them.
        (bench.out / f"{check.name}.traceback").write_text(traceback.format_exc())
        entry.update(outcome="failed", why=f"{type(error).__name__}: {error}"[:2000])
    entry["seconds"] = round(time.monotonic() - begin, 1)
    return entry


def commit() -> str | None:
    """This checkout's commit; None in a copy without git."""
    argv = ["git", "-C", str(ROOT), "rev-parse", "HEAD"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    return done.stdout.strip() or None


if __name__ == "__main__":
    sys.exit(main())
