"""Loops while they unfold: which rounds are to begin, and when the last one has begun."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from typing import Any

from amfs.swift.evaluate.expressions import Frame, Prelude
from amfs.swift.evaluate.machine import Job, Machine
from amfs.swift.source import At
from amfs.swift.values import Cell


class Rounds:
    """A foreach. ``start`` begins a round with key and cell; ``finish``: when all have begun. A watcher of its container."""

    __slots__ = ("ended", "finish", "listed", "machine", "numbers", "parts", "productive", "start")

    def __init__(self, machine: Machine, start: Callable[[Any, Any], None], finish: Job) -> None:
        self.machine = machine
        self.start = start
        self.finish = finish
        self.parts: deque[tuple[Any, Any]] = deque()
        self.numbers: Iterator[tuple[int, Any]] | None = None
        self.ended = False
        self.listed = False
        self.productive = True

    def of_numbers(self, values: Iterable[Any]) -> None:
        self.numbers = enumerate(values)
        self.ended = True
        self._list()

    def insert(self, key: Any, cell: Any) -> None:
        self.parts.append((key, cell))
        if not self.listed:
            self._list()

    def end(self) -> None:
        self.ended = True
        if not self.listed:
            self.finish()

    def _list(self) -> None:
        self.listed = True
        self.machine.unfold(self)

    def advance(self, count: int) -> bool:
        if self.numbers is not None:
            begun = 0
            for key, value in islice(self.numbers, count):
                self.machine.fresh.append(partial(self.start, key, Cell(None, value)))
                begun += 1
            more = begun == count
        else:
            for _ in range(min(count, len(self.parts))):
                self.machine.fresh.append(partial(self.start, *self.parts.popleft()))
            more = bool(self.parts)
        if not more:
            self.listed = False
            if self.ended:
                self.machine.fresh.append(self.finish)
        return more


class ForRounds:
    """A for loop of Swift/T: each round has variables of its own; the next one begins when its condition is known."""

    __slots__ = ("at", "check", "finish", "frame", "machine", "number", "of_condition", "productive", "run")

    def __init__(
        self, machine: Machine, at: At, frame: Frame, of_condition: Prelude, check: Callable[[Frame], bool],
        run: Callable[[Frame, int], Frame], finish: Callable[[Frame], None],
    ) -> None:  # fmt: skip
        self.machine = machine
        self.at = at
        self.frame = frame
        self.number = 0
        self.of_condition = of_condition
        self.check = check
        self.run = run
        self.finish = finish
        self.productive = True

    def test(self) -> None:
        """Is there another round?"""
        for start in self.of_condition:
            start(self.frame)
        self.machine.attempt(self.at, self._tested)

    def _tested(self) -> None:
        if self.check(self.frame):
            self.machine.unfold(self)
        else:
            self.finish(self.frame)

    def advance(self, count: int) -> bool:
        self.machine.fresh.append(self._next)
        return False

    def _next(self) -> None:
        self.frame = self.run(self.frame, self.number)
        self.number += 1
        self.test()


class IterateRounds:
    """An iterate: the body, then the condition."""

    __slots__ = ("at", "check", "finish", "frame", "machine", "number", "of_until", "productive", "run")

    def __init__(
        self, machine: Machine, at: At, of_until: Prelude, check: Callable[[Frame], bool], run: Callable[[int], Frame], finish: Job
    ) -> None:
        self.machine = machine
        self.at = at
        self.frame: Frame = []
        self.number = 0
        self.of_until = of_until
        self.check = check
        self.run = run
        self.finish = finish
        self.productive = True

    def begin(self) -> None:
        self.machine.unfold(self)

    def advance(self, count: int) -> bool:
        self.machine.fresh.append(self._next)
        return False

    def _next(self) -> None:
        self.frame = self.run(self.number)
        self.number += 1
        for start in self.of_until:
            start(self.frame)
        self.machine.attempt(self.at, self._tested)

    def _tested(self) -> None:
        if self.check(self.frame):
            self.finish()
        else:
            self.machine.unfold(self)
