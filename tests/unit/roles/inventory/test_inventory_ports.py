"""Ports beside an engine's own, and engines of one host that want the same."""

from __future__ import annotations

import pytest

from roles.inventory import ports
from tests.support.inventory_case import load, only


def mistakes(chat: str, other: str) -> list[str]:
    body = "".join(
        f"      {name}: {{model: {{path: /m}}, gpus: [{at}], {more}}}\n"
        for at, (name, more) in enumerate((("chat", chat), ("other", other)))
    )
    return list(only(load(f"hosts:\n  h:\n    engines:\n{body}")).errors)


DP = "flags: {attn-dp-size: 2}"


@pytest.mark.parametrize(
    ("chat", "other", "words"),
    [
        ("port: 8000", "port: 8001", ()),
        ("port: 8000", "port: 8000", ("8000, which engine chat has, too",)),
        (f"port: 8000, {DP}", "port: 8235", ("DP attention takes 8235", "engine other, too")),
        (f"port: 8000, {DP}", "port: 8013", ("DP attention takes 8013", "engine other, too")),
        (f"port: 8000, {DP}", "port: 8240", ()),
        (
            f"port: 8000, {DP}",
            f"port: 8003, {DP}",
            ("other.port", "takes 8236", "engine chat, too"),
        ),
        (
            "port: 8000, flags: {nccl-port: 8000}",
            "port: 8001",
            ("the flag nccl-port takes 8000, its own port",),
        ),
        (
            "port: 8000, flags: {nccl-port: 9000}",
            "port: 8001, flags: {grpc-port: 9000}",
            ("other.port", "the flag grpc-port takes 9000", "engine chat, too"),
        ),
        ("port: 8000, flags: {nccl-port: 8001}", "port: 8001", ("engine other, too",)),
    ],
)
def test_two_engines_of_a_host(chat: str, other: str, words: tuple[str, ...]) -> None:
    found = mistakes(chat, other)
    assert len(found) == bool(words), found
    assert all(word in found[0] for word in words), found


def test_the_ports_of_dp_attention() -> None:
    on = {"enable-dp-attention": True}
    assert sorted(ports.derived(8000, on)) == [8013, *range(8233, 8240)]
    assert sorted(ports.derived(65400, on)) == [*range(65167, 65174), 65413]
    assert max(ports.derived(65530, on)) < 65530
    assert ports.derived(8000, {**on, "dist-init-addr": "h:1"}) == {}
    assert ports.derived(8000, {"attn-dp-size": 1}) == {}


@pytest.mark.parametrize("value", [0, 65536, "x", None, True, -1, [1]])
def test_what_is_no_port_is_told_elsewhere(value: object) -> None:
    assert ports.derived(8000, {"nccl-port": value}) == {}
