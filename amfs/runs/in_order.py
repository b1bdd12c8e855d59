"""Keeps what comes out of order until all before it has come. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class InOrder(Generic[T]):
    """Items have numbers from 0. ``passed(number)``: no item of this number will come. A second item of a number is given out at once."""

    def __init__(self, passed: Callable[[int], bool] = lambda number: False) -> None:
        self._passed = passed
        self._next = 0
        self._kept: dict[int, T] = {}

    def add(self, number: int, item: T) -> Iterator[T]:
        """Take an item; gives out, in order, those that no longer have to wait."""
        if number < self._next:
            yield item
            return
        self._kept[number] = item
        while self._next in self._kept or (self._kept and self._passed(self._next)):
            self._next += 1
            if self._next - 1 in self._kept:
                yield self._kept.pop(self._next - 1)

    def rest(self) -> Iterator[T]:
        """No more items will come: give out those that are left, in order."""
        for number in sorted(self._kept):
            yield self._kept.pop(number)
