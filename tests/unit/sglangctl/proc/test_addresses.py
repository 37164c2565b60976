"""The machine's public addresses, from /proc as a host with one has it."""

from __future__ import annotations

from pathlib import Path

import pytest

from sglangctl.proc import addresses, procfs

TRIE = """\
Main:
  +-- 0.0.0.0/0 3 0 5
     |-- 0.0.0.0
        /0 universe UNICAST
     +-- 10.0.0.0/24 2 0 2
        |-- 10.0.0.7
           /32 host LOCAL
        |-- 10.0.0.255
           /32 link BROADCAST
     |-- 8.8.4.4
        /32 host LOCAL
     |-- 8.8.8.8
        /32 link UNICAST
     |-- 127.0.0.1
        /32 host LOCAL
"""
INET6 = """\
00000000000000000000000000000001 01 80 10 80       lo
fe800000000000000000000000000001 02 40 20 80     eth0
fd000000000000000000000000000001 02 40 00 80     eth0
26064700470000000000000000001111 02 40 00 80     eth0
nonsense
"""


def test_public_addresses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(procfs, "PROC", str(tmp_path))
    assert addresses.public() == []
    (tmp_path / "net").mkdir()
    (tmp_path / "net/fib_trie").write_text(TRIE)
    (tmp_path / "net/if_inet6").write_text(INET6)
    assert addresses.public() == ["2606:4700:4700::1111", "8.8.4.4"]


@pytest.mark.parametrize(
    "text", ["gpu1.example.com", "", "10.0.0.1", "::", "0.0.0.0", "fe80::1%eth0"]
)
def test_what_is_not_public(text: str) -> None:
    assert not addresses.is_public(text)
