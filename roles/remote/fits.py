"""Whether a document fits a JSON schema, in a small part of the time that jsonschema takes, which finds out
what is wrong: with hundreds of hosts that is most of what their answers cost. Pure."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from typing import Any

JSON = dict[str, Any]
Test = Callable[[Any], bool]

_KEPT: dict[int, tuple[JSON, Test]] = {}
"""By the identity of a schema, which is kept with its test: it is no other one's meanwhile."""


def fits(value: Any, schema: JSON) -> bool:
    """Whether nothing in `value` is wrong. KeyError for a schema with a word that is not in WORDS."""
    if id(schema) not in _KEPT:
        _KEPT[id(schema)] = schema, test_of(schema)
    return _KEPT[id(schema)][1](value)


def test_of(schema: JSON) -> Test:
    """The schema as a function: each of its words is looked up once and not for each value."""
    return _all([WORDS[word](wanted, schema) for word, wanted in schema.items()])


def _all(tests: Sequence[Test]) -> Test:
    # Loops, not all() and any(): their generators are most of the time.
    def test(value: Any) -> bool:
        for one in tests:  # noqa: SIM110
            if not one(value):
                return False
        return True

    return tests[0] if len(tests) == 1 else test


def _type(wanted: Any, schema: JSON) -> Test:
    tests = [TYPES[name] for name in ((wanted,) if isinstance(wanted, str) else wanted)]

    def test(value: Any) -> bool:
        for one in tests:  # noqa: SIM110
            if one(value):
                return True
        return False

    return tests[0] if len(tests) == 1 else test


def _properties(wanted: Any, schema: JSON) -> Test:
    tests = [(key, test_of(inner)) for key, inner in wanted.items()]

    def test(value: Any) -> bool:
        if isinstance(value, dict):
            for key, one in tests:
                if key in value and not one(value[key]):
                    return False
        return True

    return test


def _others(wanted: Any, schema: JSON) -> Test:
    known, other = schema.get("properties", {}), test_of(wanted)

    def test(value: Any) -> bool:
        if isinstance(value, dict):
            for key, inner in value.items():
                if key not in known and not other(inner):
                    return False
        return True

    return test


def _items(wanted: Any, schema: JSON) -> Test:
    item = test_of(wanted)
    return lambda value: not isinstance(value, list) or all(map(item, value))


def _names(wanted: Any, schema: JSON) -> Test:
    name = test_of(wanted)
    return lambda value: not isinstance(value, dict) or all(map(name, value))


def _required(wanted: Any, schema: JSON) -> Test:
    keys = frozenset(wanted)
    return lambda value: not isinstance(value, dict) or keys <= value.keys()


def _one_of(wanted: Any, schema: JSON) -> Test:
    # To Python True is 1.
    return lambda value: any(
        one == value and isinstance(one, bool) == isinstance(value, bool) for one in wanted
    )


def _when(wanted: Any, schema: JSON) -> Test:
    condition, then = test_of(wanted), test_of(schema["then"])
    return lambda value: not condition(value) or then(value)


def _pattern(wanted: Any, schema: JSON) -> Test:
    found = re.compile(wanted).search
    return lambda value: not isinstance(value, str) or found(value) is not None


def _size(kind: type[Any], compare: Callable[[int, Any], bool]) -> Callable[[Any, JSON], Test]:
    return lambda wanted, schema: (
        lambda value: not isinstance(value, kind) or compare(len(value), wanted)
    )


def _is_integer(value: Any) -> bool:
    whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    return whole and not isinstance(value, bool)


TYPES: dict[str, Test] = {
    "array": lambda value: isinstance(value, list),
    "boolean": lambda value: isinstance(value, bool),
    "integer": _is_integer,
    "null": lambda value: value is None,
    "number": lambda value: isinstance(value, (int, float)) and not isinstance(value, bool),
    "object": lambda value: isinstance(value, dict),
    "string": lambda value: isinstance(value, str),
}
WORDS: dict[str, Callable[[Any, JSON], Test]] = {
    "additionalProperties": _others,
    "const": lambda wanted, schema: _one_of([wanted], schema),
    "enum": _one_of,
    "if": _when,
    "items": _items,
    "maxItems": _size(list, operator.le),
    "maxLength": _size(str, operator.le),
    "maxProperties": _size(dict, operator.le),
    "minItems": _size(list, operator.ge),
    "pattern": _pattern,
    "properties": _properties,
    "propertyNames": _names,
    "required": _required,
    "then": lambda wanted, schema: lambda value: True,
    "type": _type,
}
"""A word of a schema -> what it wants and the whole schema -> whether a value is right."""
