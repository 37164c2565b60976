"""Build a kernel from source, in a unit of its own; also follow one, and list what was built.

  sglangctl kernel build REQUEST.json     start it (or find it running) and return
  sglangctl kernel build --follow KEY     what it does, until it ends: 0 built, 1 failed
  sglangctl kernel build --list           the wheels in this host's cache

A request is written by the deploy; an interrupted build continues in its folder.
"""

from __future__ import annotations

import argparse
import json
from functools import partial
from pathlib import Path

from sglangctl.state import follow, journal
from sglangctl.state.paths import Paths
from sglangctl.util.errors import Unusable
from sglangctl.util.terminal import escaped

POLL_S = 1.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("request", nargs="?", type=Path, help="REQUEST.json")
    what.add_argument("--run", metavar="KEY", help="build here and now (the unit's body)")
    what.add_argument("--work", metavar="KEY", help="the build user's part of it")
    what.add_argument("--follow", metavar="KEY", help="show a build until it ends")
    what.add_argument("--adopt", type=Path, metavar="DIR", help="take a built wheel into the cache")
    what.add_argument("--list", action="store_true", help="the cache of this host")
    follow.add_arguments(parser)
    parser.add_argument("--json", action="store_true")


def run(args: argparse.Namespace) -> int:
    paths = Paths()
    if args.list:
        return _list(args.json, paths)
    if args.adopt:
        return _adopt(args.adopt, paths)
    if args.follow:
        return _follow(args.follow, args.offset, args.wait, paths)
    if args.run:
        return _run(args.run, paths)
    if args.work:
        return _work(args.work, paths)
    return _start(args.request, paths)


def _start(path: Path, paths: Paths) -> int:
    from sglangctl.sgl_kernel.build import request as requests
    from sglangctl.sgl_kernel.build import unit

    request = requests.load(path)
    kept = requests.folder(request.key, paths) / "request.json"
    if path.resolve() != kept.resolve():
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.touch(mode=0o600)
        kept.write_text(requests.dump(request))
    print(f"{unit.start(request, paths)} {request.key}")
    return 0


def _run(key: str, paths: Paths) -> int:
    from sglangctl.sgl_kernel.build import build
    from sglangctl.sgl_kernel.build import request as requests

    root = requests.folder(key, paths)
    entry = build.build(requests.load(root / "request.json"), paths)
    print(entry.wheel)
    return 0


def _work(key: str, paths: Paths) -> int:
    from sglangctl.sgl_kernel.build import compile, inside
    from sglangctl.sgl_kernel.build import request as requests

    root = requests.folder(key, paths)
    place = compile.Place(root / requests.BUILDER, paths.kernel_cache)
    return inside.work(requests.load(root / "request.json"), root / "patches", place)


def _adopt(source: Path, paths: Paths) -> int:
    """A wheel and its provenance.json that came from elsewhere: compared, then promoted."""
    import shutil

    from sglangctl.sgl_kernel import cache

    entry = cache.read(source)
    if entry is None:
        raise Unusable(f"{source} has no wheel with the sha256 of its provenance")
    cache.promote(entry.key, entry.wheel, entry.provenance, paths)
    shutil.rmtree(source, ignore_errors=True)
    print(f"adopted {entry.key}")
    return 0


def _list(as_json: bool, paths: Paths) -> int:
    from sglangctl.sgl_kernel import cache

    found = cache.entries(paths)
    if as_json:
        document = [
            {"key": item.key, "wheel": str(item.wheel), "sha256": item.sha256} for item in found
        ]
        print(json.dumps({"v": 1, "kernels": document}, indent=1))
        return 0
    for item in found:
        made = item.provenance.get("inputs", {})
        print(
            escaped(
                f"{item.key}  {item.wheel.name}  torch {made.get('torch')}, "
                f"sm_{made.get('arch')}, {item.wheel.stat().st_size / 2**20:.1f} MiB"
            )
        )
    if not found:
        print(f"no kernel was built here ({paths.kernel_cache})")
    return 0


def _follow(key: str, offset: int | None, wait_s: float, paths: Paths) -> int:
    from sglangctl.sgl_kernel.build import record, unit
    from sglangctl.sgl_kernel.build import request as requests

    if offset is not None:
        follow.write(follow.poll(partial(unit.look_at, key, offset, paths), wait_s))
        return 0
    if not requests.folder(key, paths).is_dir():
        raise Unusable(f"there is no build {key} here; see: sglangctl kernel build --list")
    position, status = 0, "-"
    while status == "-":
        answer = follow.poll(partial(unit.look_at, key, position, paths), POLL_S)
        for event in journal.events(answer.lines):
            print(escaped(record.line(event)), flush=True)
        position, status = answer.offset, answer.status
    if status == follow.GONE:
        print(
            "the build ended without a result (killed, or a reboot): start it again; it continues"
        )
    return 0 if status == "0" else 1
