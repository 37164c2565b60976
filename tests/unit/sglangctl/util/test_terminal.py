"""What is printed cannot steer a terminal."""

from __future__ import annotations

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from sglangctl.util.terminal import cut, escaped, without_ansi


@given(st.text(alphabet=st.characters(codec=None)))
def test_nothing_that_steers_is_left(text: str) -> None:
    shown = escaped(text)
    shown.encode("utf-8")
    for character in shown:
        assert character == "\t" or unicodedata.category(character) not in ("Cc", "Cs", "Zl", "Zp")
        assert character not in "\u202a\u202b\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f"


def test_plain_text_stays() -> None:
    text = 'Grüße, 東京, "$(reboot)" \\ `x`\ttab 🙂'
    assert escaped(text) == text


def test_what_was_there_can_be_seen() -> None:
    assert escaped("a\x1b[2J\nb\rc\u202e") == "a\\x1b[2J\\nb\\rc\\u202e"


def test_ansi_is_taken_out() -> None:
    assert without_ansi("\x1b[1;31mred\x1b[0m \x1b]0;title\x07x\x1b]8;;u\x1b\\y\x1bMz") == "red xyz"
    assert without_ansi("no end \x1b[12") == "no end \x1b[12"


def test_cut() -> None:
    assert cut("abcdef", 6) == "abcdef"
    assert cut("abcdefg", 6) == "abc..."
