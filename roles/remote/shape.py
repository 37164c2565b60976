"""The shape of a probe's document, checked at one place.

A host's answer is data: the host may be anybody's by now. What passes here can be worked on
everywhere else without looking at types again; what does not fails its own host. Only what the
roles read is described: a host with a newer or older program may say more.
"""

from __future__ import annotations

import json
import math
from datetime import datetime
from typing import Any, cast

import jsonschema

from roles.remote.fits import fits
from sglangctl.state.paths import NAME
from sglangctl.util.terminal import cut

JSON = dict[str, Any]


class WrongShape(Exception):
    """What answers is not a probe, or not of this host's good will; the text says where."""


def _text(limit: int = 64 * 1024) -> JSON:
    return {"type": "string", "maxLength": limit}


def _some(*types: str) -> JSON:
    return {"type": [*types, "null"], "maxLength": 64 * 1024}


def _object(required: str = "", /, **properties: JSON) -> JSON:
    return {"type": "object", "properties": properties, "required": required.split()}


def _by_name(item: JSON) -> JSON:
    return {"type": "object", "additionalProperties": item}


def _list(item: JSON) -> JSON:
    return {"type": "array", "items": item}


def _or_none(item: JSON) -> JSON:
    return {**item, "type": [item["type"], "null"]}


_NUMBER: JSON = {"type": "number"}
_COUNT: JSON = {"type": "integer"}
_TEXTS = _list(_text())
_NAME: JSON = {"pattern": rf"^(?:{NAME.pattern})\Z"}
"""Of an engine: it is a part of commands that people copy."""
_PAIR: JSON = {"type": ["array", "null"], "items": _some("string"), "minItems": 2, "maxItems": 2}
_FILE: JSON = {
    **_object(
        "kind",
        kind={"enum": ["file", "directory", "link", "other", "absent", "unknown"]},
        mode=_text(),
        owner=_text(),
        group=_text(),
        mtime=_NUMBER,
        sha256=_text(),
        text=_or_none(_text(512 * 1024)),
        target=_text(),
        reason=_text(),
    ),
    # A file and a folder are compared by these.
    "if": {"properties": {"kind": {"enum": ["file", "directory"]}}},
    "then": {
        "required": ["mode", "owner", "group"],
        "if": {"properties": {"kind": {"const": "file"}}},
        "then": {"required": ["sha256"]},
    },
}
_UNIT = _or_none(
    {**_by_name({"type": ["string", "number", "null"]}), "properties": {"started": _some("number")}}
)
_STOPPED = _list(_object("pids", pids=_list(_COUNT)))
_ENGINE = _object(
    user=_some("string"),
    unit_name=_some("string"),
    port=_some("number"),
    model=_some("string"),
    unit=_UNIT,
    watch=_UNIT,
    replaces=_or_none(_by_name(_UNIT)),
    releases=_or_none(
        _object(
            current=_some("string"),
            previous=_some("string"),
            known_good=_some("string"),
            staged=_or_none(_TEXTS),
        )
    ),
    state=_or_none(
        _object(
            phase=_some("string"),
            time=_some("string", "number"),
            owes=_some("string"),
            fallback=_or_none(
                _object(name=_some("string"), instead_of=_some("string"), cause=_some("string"))
            ),
        )
    ),
    last=_or_none(
        _object(
            start=_some("string"),
            served_after_s=_some("number"),
            phases=_or_none(_by_name(_some("number"))),
            outcome=_some("string"),
            stopped_by=_some("string"),
        )
    ),
)
_PLAN = _object(
    refused=_or_none(
        _list(
            _object(
                "who",
                who=_text(),
                reason=_some("string"),
                allow=_some("string"),
                pid=_some("integer"),
            )
        )
    ),
    lines=_or_none(_TEXTS),
    units_to_stop=_or_none(_STOPPED),
    containers_to_stop=_or_none(_STOPPED),
    processes_to_end=_or_none(_list(_object("pid", pid=_COUNT))),
    cutover=_or_none(_object(kind=_some("string"), reason=_some("string"))),
    before=_or_none(
        _object(
            rollback=_some("boolean"),
            release=_some("string"),
            units=_or_none(_TEXTS),
            containers=_or_none(_TEXTS),
            by_hand=_or_none(_list(_COUNT)),
        )
    ),
)
_KERNEL = _object(
    venv=_some("string"),
    sm={"type": ["string", "null"], "pattern": r"^[0-9]{2,3}\Z"},
    machine=_some("string"),
    torch=_some("string"),
    cuda=_some("string"),
    python={"type": ["string", "null"], "pattern": r"^cp3[0-9]{1,2}t?\Z"},
    checked=_some("string"),
    cuobjdump=_some("string"),
    required=_PAIR,
    pinned=_PAIR,
    cached=_or_none(_TEXTS),
    problems=_or_none(_TEXTS),
    installed=_or_none(
        _object(
            verdict=_some("string"),
            reason=_some("string"),
            distribution=_some("string"),
            version=_some("string"),
            key=_some("string"),
        )
    ),
)
"""`python` and `sm` become parts of a key and of a command."""
_FINDING = _object(
    "id level seen fix",
    id=_text(80),
    level={"enum": ["fail", "warn", "info"]},
    **dict.fromkeys(("seen", "fix", "needed", "source"), _text()),
)
_OWNER = _object("pid name", pid=_COUNT, name=_text(), unit=_some("string"))
_VERIFY = _object(
    "status",
    status={"enum": [0, 1, 2]},
    **dict.fromkeys(("outcome", "cause", "sentence", "stopped_by"), _some("string")),
    **dict.fromkeys(("tokens", "tokens_per_s", "ttft_s", "accept_length"), _some("number")),
    checks=_or_none(_list(_object("name", name=_text(), passed=_some("boolean"), detail=_text()))),
    memory=_or_none(_object()),
    history=_or_none(_list(_object())),
)
_STATUS = _object(
    "name",
    name={"type": "string", **_NAME},
    **dict.fromkeys(("outcome", "active", "sub", "retry"), _some("string")),
    **dict.fromkeys(("since", "restarts", "tries"), _some("number")),
)
_WOULD = _object(lines=_or_none(_TEXTS), refused=_some("string"))
_PROBE = _object(
    "v time files users",
    v=_COUNT,
    time=_text(64),
    uid=_COUNT,
    program=_some("string"),
    systemd=_some("string"),
    files=_by_name(_FILE),
    users=_by_name(_or_none(_object(group=_some("string")))),
    programs=_by_name({"type": "boolean"}),
    disks=_by_name(_or_none(_object(read_only={"type": "boolean"}, free_mib=_NUMBER))),
    venvs=_by_name(
        _object(
            "wrong",
            wrong=_some("string"),
            starts={"type": "boolean"},
            python=_some("string"),
            running=_TEXTS,
        )
    ),
    gpus=_or_none(_list({"type": "object"})),
    lock=_or_none(_object("sentence", sentence=_text(), engine=_some("string"))),
    listening=_or_none(
        _list(_object("port", port=_COUNT, owners=_or_none(_list(_OWNER)), address=_text()))
    ),
    engines=_or_none({"propertyNames": _NAME, "maxProperties": 256, **_by_name(_ENGINE)}),
    plans=_by_name(_PLAN),
    stops=_by_name(_WOULD),
    removals=_by_name(_WOULD),
    kernels=_by_name(_KERNEL),
    preflight=_by_name(_or_none(_list(_FINDING))),
    collectives=_by_name(
        _or_none(
            _object(
                entry=_or_none(
                    _object(time=_some("string"), arms=_or_none(_list({"type": "object"})))
                ),
                differs=_or_none(_TEXTS),
            )
        )
    ),
    reasons=_by_name(_text()),
)
PROBE = jsonschema.Draft202012Validator(_PROBE)
"""Of `sglangctl probe`."""
PREFLIGHT = jsonschema.Draft202012Validator(_object("findings", findings=_list(_FINDING)))
"""Of `sglangctl preflight --json`."""
KERNEL = jsonschema.Draft202012Validator(_KERNEL)
"""Of `sglangctl kernel survey`."""
COMPILED = jsonschema.Draft202012Validator(
    _object(
        "v key files",
        v={"const": 1},
        key={"type": "string", "pattern": "^[0-9a-f]{24}\\Z"},
        files=_COUNT,
        bytes=_COUNT,
        sha256={"type": "string", "pattern": "^[0-9a-f]{64}\\Z"},
        inputs={"type": "object"},
    )
)
"""Of `sglangctl compiled`."""
VERIFY = jsonschema.Draft202012Validator(_object("v verify", v={"const": 1}, verify=_VERIFY))
"""Of `sglangctl verify --json`."""
STATUS = jsonschema.Draft202012Validator(_object("status", status=_list(_STATUS)))
"""Of `sglangctl status --json`."""
MOST = 120_000
"""Parts of a document. To look at them takes up to 0.1 ms each, in which all other hosts wait. (An engine
can have 65,536 processes.)"""
DEEPEST = 16
"""Levels of what is kept of a host's answer: Python cannot write what it can just read."""
LONGEST = 64 * 1024
"""Characters of a text that is kept."""


def parsed(text: str) -> Any:
    """JSON of a host; WrongShape also for nesting, numbers and sizes that only an attacker writes."""
    if text.count(",") > MOST:
        raise WrongShape(f"answered with more than {MOST:,} parts")
    try:
        return json.loads(text, parse_constant=_number, parse_float=_number)
    except (ValueError, RecursionError) as error:
        what = "too deeply nested" if isinstance(error, RecursionError) else str(error)
        raise WrongShape(f"did not answer with JSON: {what}") from None


def check(document: Any, shape: jsonschema.Draft202012Validator) -> JSON:
    """The document itself; WrongShape where it is something else."""
    if not isinstance(document, dict):
        raise WrongShape("did not answer with an object")
    schema = cast("JSON", shape.schema)
    error = None if fits(document, schema) else next(shape.iter_errors(document), None)
    if error is not None:
        where = ".".join(str(part)[:80] for part in error.absolute_path) or "the document"
        wanted = f"{error.validator} {str(error.validator_value)[:80]}"
        raise WrongShape(f"answered with something else: {where} is not as it must be ({wanted})")
    return document


def bounded(value: Any, depth: int = DEEPEST) -> Any:
    """`value` as a document can have it: long texts are cut, what is nested deeper is null."""
    if isinstance(value, str):
        return cut(value, LONGEST)
    if isinstance(value, dict):
        return {str(key): bounded(one, depth - 1) for key, one in value.items()} if depth else None
    if isinstance(value, (list, tuple)):
        return [bounded(one, depth - 1) for one in value] if depth else None
    return value


def check_time(text: str) -> None:
    """WrongShape for what is no time of our days in UTC."""
    try:
        year = datetime.fromisoformat(text.replace("Z", "+00:00")).year
    except ValueError:
        year = 0
    if not 1970 <= year <= 9000 or not text.endswith("Z"):
        raise WrongShape(f"answered with something else: {text[:40]!r} is no time")


def _number(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:20]} is no number")
    return value
