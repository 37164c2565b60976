"""Deep merge, and what a merged engine is."""

from __future__ import annotations

import copy

from hypothesis import given
from hypothesis import strategies as st

from roles.inventory.merge import deep_merge, has_path
from tests.support.inventory_case import load, only

SCALAR = st.none() | st.booleans() | st.integers() | st.text(max_size=3)
VALUE = st.recursive(
    SCALAR,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abcd"), inner, max_size=4)
    ),
    max_leaves=12,
)
MAPPING = st.dictionaries(st.sampled_from("abcd"), VALUE, max_size=4)


def leaves(value, where=()):
    """Places whose value is no mapping, or an empty one."""
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from leaves(item, (*where, key))
    else:
        yield where, value


def at(value, where):
    for key in where:
        value = value[key]
    return value


@given(MAPPING, MAPPING)
def test_the_override_wins_and_the_rest_stays(base: dict, override: dict) -> None:
    merged = deep_merge(base, override)
    for where, value in leaves(override):
        if value != {} or not isinstance(value, dict):
            assert at(merged, where) == value
    for where, value in leaves(base):
        beginnings = [where[:end] for end in range(len(where) + 1)]
        replaced = any(
            has_path(override, part) and not isinstance(at(override, part), dict)
            for part in beginnings[1:]
        )
        if not replaced and not has_path(override, where):
            assert at(merged, where) == value
    assert set(merged) == set(base) | set(override)


@given(MAPPING, MAPPING)
def test_nothing_is_modified_or_shared(base: dict, override: dict) -> None:
    kept = copy.deepcopy((base, override))
    merged = deep_merge(base, override)
    scribble(merged)
    assert (base, override) == kept


def scribble(value) -> None:
    if isinstance(value, dict):
        for item in value.values():
            scribble(item)
        value["scribbled"] = 1
    elif isinstance(value, list):
        for item in value:
            scribble(item)
        value.append(1)


@given(MAPPING)
def test_an_empty_side_changes_nothing(value: dict) -> None:
    assert deep_merge(value, {}) == value
    assert deep_merge({}, value) == value
    assert deep_merge(value, value) == value


@given(MAPPING, MAPPING, MAPPING)
def test_mappings_of_scalars_merge_in_any_grouping(a: dict, b: dict, c: dict) -> None:
    flat = [{key: str(item) for key, item in one.items()} for one in (a, b, c)]
    left = deep_merge(deep_merge(flat[0], flat[1]), flat[2])
    assert left == deep_merge(flat[0], deep_merge(flat[1], flat[2]))


def specs(text: str):
    inventory = load(text)
    return {entry.name: entry.spec.engines[0] for entry in inventory.hosts if entry.spec}


def test_bases_under_hosts() -> None:
    found = specs(
        """
        engines:
          e:
            model: {path: /m, served_name: big}
            drafter: {path: /d}
            api_key: {file: gone.key}
            flags: {page-size: 1, max-queued-requests: 2}
            replaces: [x.service, y.service]
            environment: {X: '1', Y: '2'}
        hosts:
          h:
            engines:
              e:
                model: {path: /other}
                drafter:
                api_key:
                flags: {max-queued-requests: 3, skip-server-warmup: true, page-size: }
                replaces: [z.service]
                environment: {Y: }
        """
    )
    engine = found["h"]
    assert (engine.model.path, engine.model.served_name) == ("/other", "big")
    assert engine.drafter is None and engine.api_key is None
    assert engine.flags == {"max-queued-requests": 3, "skip-server-warmup": True}
    assert engine.replaces == ("z.service",)
    assert engine.environment == {"X": "1"}


def test_null_and_an_empty_mapping_take_the_base_as_it_is() -> None:
    found = specs(
        """
        engines: {e: {model: {path: /m}, port: 1234}}
        hosts: {a: {engines: {e: }}, b: {engines: {e: {}}}}
        """
    )
    assert found["a"] == found["b"]
    assert found["a"].port == 1234


def test_yaml_anchors_and_merge_keys_work() -> None:
    found = specs(
        """
        engines:
          base: &base {model: {path: /m}, port: 1}
        hosts:
          a: {engines: {e: {<<: *base, port: 2}}}
          b: {engines: {e: *base}}
        """
    )
    assert (found["a"].port, found["b"].port) == (2, 1)


def test_hosts_do_not_share_what_they_were_merged_from() -> None:
    inventory = load(
        """
        engines: {e: {model: {path: /m}, flags: {cuda-graph-bs-decode: [1]}}}
        hosts: {a: {engines: {e: {flags: {page-size: 1}}}}, b: {engines: {e: }}}
        """
    )
    flags = [entry.spec.engines[0].flags for entry in inventory.hosts if entry.spec]
    assert flags == [{"cuda-graph-bs-decode": [1], "page-size": 1}, {"cuda-graph-bs-decode": [1]}]
    assert (
        only(load("hosts: {h: {engines: {e: {model: {path: /m/}}}}}")).spec.engines[0].model.path
        == "/m"
    )
