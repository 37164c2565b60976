"""inventory/schema.json: defaults are filled from it, and its errors become sentences."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, cast

import jsonschema
from jsonschema import Draft202012Validator, ValidationError
from jsonschema.validators import extend

from roles.inventory.errors import Path, closest, shown
from roles.inventory.flag_names import FLAGS
from roles.inventory.shipped import SCHEMA
from sglangctl.masking.names import is_secret_name

Report = Callable[[Path, str, str, "str | None"], None]
"""Takes where, what was found, what is allowed, what was perhaps meant."""


@cache
def load() -> dict[str, Any]:
    """The schema."""
    return cast("dict[str, Any]", json.loads(SCHEMA.read_text(encoding="utf-8")))


def definition(name: str) -> dict[str, Any]:
    """One of the schema's $defs."""
    return cast("dict[str, Any]", load()["$defs"][name])


def is_engine_name(name: str) -> bool:
    """Whether an engine can have this name."""
    return _matches(definition("engine_name")["pattern"], name)


def _pattern(
    validator: Any, pattern: str, instance: Any, schema: dict[str, Any]
) -> Iterator[ValidationError]:
    if isinstance(instance, str) and not _matches(pattern, instance):
        yield ValidationError("pattern")


def _matches(pattern: str, text: str) -> bool:
    # ECMA's $ (the schema's language) is the end of the text; Python's also allows a line
    # break after it, and a unit's name that ends in one must not pass.
    return bool(re.search(re.sub(r"(?<!\\)\$", r"\\Z", pattern), text))


def _is_integer(checker: Any, instance: Any) -> bool:
    # JSON Schema counts 8000.0 as an integer; as a port or an argument it is not one.
    return isinstance(instance, int) and not isinstance(instance, bool)


_Validator: Any = cast("Any", extend)(
    Draft202012Validator,
    {"pattern": _pattern},
    type_checker=Draft202012Validator.TYPE_CHECKER.redefine("integer", _is_integer),
)


@cache
def _validator(name: str) -> Any:
    schema = {"$ref": f"#/$defs/{name}", "$defs": load()["$defs"]}
    return _Validator(schema)


_RIGHT: set[tuple[str, str]] = set()
"""Documents with nothing wrong, as they are written: in a fleet most engines are one and the same."""


def validate(name: str, document: Any, report: Report) -> None:
    """Report everything that is wrong with a document of one of the $defs."""
    known = name, repr(document)
    if known in _RIGHT:
        return
    errors = list(_validator(name).iter_errors(document))
    for error in errors:
        _explain(error, report)
    if not errors:
        _RIGHT.add(known)


def _explain(error: jsonschema.ValidationError, report: Report) -> None:
    where: Path = tuple(error.absolute_path)
    schema = cast("dict[str, Any]", error.schema)
    instance: Any = error.instance
    wanted: Any = error.validator_value
    if error.validator == "additionalProperties" and wanted is False:
        known = list(schema["properties"])
        for key in instance:
            if key not in known:
                allowed = "one of " + ", ".join(sorted(known))
                report((*where, key), "an unknown key", allowed, _meant_key(key, schema))
    elif error.validator == "required":
        for key in wanted:
            if key not in instance:
                report((*where, key), "nothing", f"{key} is required", None)
    elif "propertyNames" in error.absolute_schema_path:
        key = str(error.instance)
        names = _resolved(schema)
        near = re.sub(r"[^a-z0-9]+", "-", key.lower()).strip("-")
        meant = near if _matches(names["pattern"], near) else None
        report((*where, key), f"the name {shown(key)}", allowed_by(names), meant)
    else:
        meant = _meant_value(instance, schema)
        allowed = _hint(instance, schema) or allowed_by(schema)
        report(where, found_by(error), allowed, meant)


def _meant_key(key: str, schema: dict[str, Any]) -> str | None:
    """The key that was probably meant, where it is another engine's word or a flag."""
    known = list(schema["properties"])
    meant = schema.get("x-meant", {})
    flag = key.replace("_", "-")
    if near := meant.get(key.replace("-", "_")) or closest(key, known):
        return str(near)
    return f"flags.{flag}" if "flags" in known and flag in FLAGS else None


def _meant_value(instance: Any, schema: dict[str, Any]) -> str | None:
    if "enum" in schema:
        return closest(instance, schema["enum"])
    if isinstance(instance, bool):
        return cast("str | None", schema.get("x-meant", {}).get(json.dumps(instance)))
    ending = schema.get("x-ending")
    if ending and isinstance(instance, str) and _matches(schema["pattern"], instance + ending):
        return instance + cast("str", ending)
    return None


def _hint(instance: Any, schema: dict[str, Any]) -> str | None:
    """What to do about a value that is wrong in a way that is often seen; % is the value."""
    if isinstance(instance, str):
        for pattern, text in schema.get("x-hints", {}).items():
            if _matches(pattern, instance):
                return cast("str", text).replace("%", instance)
    return None


def found_by(error: jsonschema.ValidationError) -> str:
    """What was found, without the value where it may be a secret."""
    if is_secret_place(tuple(error.absolute_path)):
        return f"{_kind(error.instance)} (its value is not shown)"
    if error.validator == "uniqueItems":
        return f"{shown(error.instance)}, with duplicate items"
    if error.validator == "type" and isinstance(error.instance, str):
        return f"the text {shown(error.instance)}"
    if error.validator == "type" and error.instance is None:
        return "nothing"
    return shown(error.instance)


def is_secret_place(where: Path) -> bool:
    """Whether what stands there may be a secret, by the name of its key or of one above."""
    return any(is_secret_name(part) for part in where if isinstance(part, str))


def _kind(value: Any) -> str:
    kinds = {str: "a text", dict: "a mapping", list: "a list", type(None): "nothing"}
    return kinds.get(type(value), "a number or a switch")


def allowed_by(schema: dict[str, Any]) -> str:
    """What a schema allows, as a phrase."""
    schema = _resolved(schema)
    if "x-allowed" in schema:
        return cast("str", schema["x-allowed"])
    if "enum" in schema:
        return ", ".join(map(str, schema["enum"]))
    kind = schema.get("type")
    kinds = [kind] if isinstance(kind, str) else list(kind or [])
    name = " or ".join(_TYPES[item] for item in kinds if item != "null" or len(kinds) == 1)
    if "maxProperties" in schema:
        name += " with exactly one of " + ", ".join(schema["properties"])
    elif schema.get("minProperties") or schema.get("minItems"):
        name += " that is not empty"
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None and high is not None:
        name += f" from {low} to {high}"
    elif low is not None:
        name += f" of at least {low}"
    elif "exclusiveMinimum" in schema:
        name += f" above {schema['exclusiveMinimum']}"
        name += f" and at most {high}" if high is not None else ""
    elif "minLength" in schema:
        name += " that is not empty"
    unit = schema.get("x-unit", "-")
    return f"{name} ({unit})" if unit in ("s", "MiB") else name


_TYPES = {
    "string": "a text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "a mapping",
    "null": "nothing",
}


def _resolved(schema: dict[str, Any]) -> dict[str, Any]:
    if "$ref" in schema:
        return definition(schema["$ref"].rsplit("/", 1)[1])
    return schema


def filled(schema: dict[str, Any], document: dict[str, Any]) -> dict[str, Any]:
    """The document with the schema's defaults, and without keys whose value is null.

    A mapping with keys of its own and without a default (readiness, say) is filled, too,
    except where absent means none (x-default: a drafter).
    """
    result = {key: value for key, value in document.items() if value is not None}
    for key, part in schema.get("properties", {}).items():
        if key not in result and "default" in part:
            result[key] = part["default"]
        elif "properties" in part and (key in result or "x-default" not in part):
            result[key] = filled(part, result.get(key, {}))
    return result
