from __future__ import annotations

import pytest

from sglangctl.util.values import digits


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0), ("007", 7), ("9" * 18, int("9" * 18)), ("", None), ("²", None), ("٣", None),
        ("-1", None), (" 1", None), ("1\n", None), ("1_0", None), ("9" * 5000, None),
    ],
)  # fmt: skip
def test_only_a_few_ascii_digits_are_a_number(text: str, number: int | None) -> None:
    assert digits(text) == number
