"""As much of torch as sglangctl/collective/in_venv.py uses, in slow Python; for its tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

__version__ = "0.0+fake"
int32 = float32 = None


class Tensor:
    def __init__(self, values: list[Any]) -> None:
        self.values = values

    def _with(self, other: Any, each: Callable[[Any, Any], Any]) -> Tensor:
        others = other.values if isinstance(other, Tensor) else [other] * len(self.values)
        return Tensor([each(one, two) for one, two in zip(self.values, others)])

    def __add__(self, other: Any) -> Tensor:
        return self._with(other, lambda one, two: one + two)

    def __mod__(self, other: Any) -> Tensor:
        return self._with(other, lambda one, two: one % two)

    def __ne__(self, other: Any) -> Any:
        return self._with(other, lambda one, two: one != two)

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, at: int) -> Any:
        return self.values[at]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.values)

    def to(self, _dtype: Any) -> Tensor:
        return self

    def reshape(self, _shape: int) -> Tensor:
        return self


def arange(count: int, dtype: Any, device: str) -> Tensor:
    return Tensor(list(range(count)))


def equal(one: Tensor, two: Tensor) -> bool:
    return one.values == two.values


def nonzero(found: Tensor) -> Tensor:
    return Tensor([at for at, value in enumerate(found.values) if value])
