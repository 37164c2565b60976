"""One JSON document with the state of this host, for the controller. Read-only.

A part whose source is missing (no driver, no systemd) is null, and `reasons` says why, under the
part's name; the exit status is 0 all the same. --request takes a JSON object: {"files": {path:
wanted sha256 or null}, "paths": [for their disks], "users": [names], "dists": {venv: [names]},
"programs": [names], "venvs": {path: the python that would make it},
"kernels": {engine: {venv, sm}},
"engines": [names], "engine_configs": [objects as in /etc/sglangctl/engines], "host_config": object
as in host.json, "plan": engine's name or a list, "environments": {engine: the venv of the release that
would be switched to}, "policy": declared|engines|all, "preflight":
[engines' names], "takes": {engine: {was: name or null, gone: [names]}} for what its switch takes the place of,
"stop" and "remove": [engines' names] whose stop or removal is to be planned,
configured or not}.
"""

from __future__ import annotations

import argparse
import json
import sys

from sglangctl.probe.document import as_json, parse_request, probe


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--request", metavar="JSON", default="{}", help="what to look at; - reads standard input"
    )


def run(args: argparse.Namespace) -> int:
    text = sys.stdin.read() if args.request == "-" else args.request
    print(json.dumps(as_json(probe(parse_request(text))), separators=(",", ":")))
    return 0
