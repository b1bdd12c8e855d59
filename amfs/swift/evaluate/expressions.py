"""Expressions, compiled to Python closures over a frame.

A *frame* is a list: the frame around it, the call path, the tasks to come after, then the cells of a scope's variables, then places for the
results of calls. Of an expression there are: its *value* (a closure that raises ``Blocked`` as long as something is not known, and may be
tried again), its *reference* (the cell it stands for; likewise), and its *cell* (never blocked: a cell that will get the value). Calls
are begun once, before the expression that they stand in is tried: they are its *prelude*.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

from amfs.swift import tree
from amfs.swift.builtins import Failure
from amfs.swift.evaluate.machine import Machine, missing
from amfs.swift.evaluate.operators import FORMAT, TEXT, binary
from amfs.swift.source import At, Mistake
from amfs.swift.types import FLOAT, INT, Array, Bag, Type, base_of
from amfs.swift.values import UNSET, Blocked, Cell, Container, FileCell, Group, Maker, is_group, key_text, maker, plain

Frame: TypeAlias = list[Any]
Closure: TypeAlias = Callable[[Frame], Any]
Prelude: TypeAlias = tuple[Callable[[Frame], None], ...]

#: Places in a frame before the variables.
AROUND, PATH, AFTER, FIRST = 0, 1, 2, 3


class Layout:
    """The places in the frames of a scope."""

    def __init__(self, scope: tree.Scope) -> None:
        self.size = FIRST + len(scope.symbols)

    def place(self) -> int:
        self.size += 1
        return self.size - 1


class Expressions:
    """The part of the compiler that knows expressions."""

    def __init__(self, machine: Machine, language: str) -> None:
        self.machine = machine
        self.language = language
        self.text = TEXT[language]
        self.scope: tree.Scope
        self.layouts: dict[tree.Scope, Layout] = {}
        self.prelude: list[Callable[[Frame], None]] = []
        self.makers: dict[Type, Maker] = {}
        self.naming = False  # in an app's command line: files need not be there, their names are wanted
        self.carried: dict[tree.Symbol, int] = {}  # variables of a loop -> the place of their next value

    def lifted_call(self, call: tree.Call) -> Closure:
        """Begin the call in the prelude; the closure gives the cell of its (first) output."""
        raise NotImplementedError

    def is_inline(self, call: tree.Call) -> bool:
        """Does the call need and give nothing but plain values?"""
        raise NotImplementedError

    def inline_call(self, call: tree.Call) -> Closure:
        """The value of such a call."""
        raise NotImplementedError

    # ── helpers ────────────────────────────────────────────────────────────────────────────────────

    def layout(self, scope: tree.Scope) -> Layout:
        found = self.layouts.get(scope)
        if found is None:
            found = self.layouts[scope] = Layout(scope)
        return found

    def temporary(self) -> int:
        """A place in the frames of the scope that is being compiled."""
        return self.layout(self.scope).place()

    def take_prelude(self) -> list[Callable[[Frame], None]]:
        """Begin to collect a new one; the old one is the caller's to put back."""
        before, self.prelude = self.prelude, []
        return before

    def make(self, type: Type | None) -> Maker:
        assert type is not None
        return maker(type, self.makers)

    def fetch(self, symbol: tree.Symbol) -> Closure:
        """The cell of a variable."""
        return fetch_at(self._depth(symbol), FIRST + symbol.slot)

    def fetch_target(self, symbol: tree.Symbol) -> Closure:
        """The same, to write: of a variable of a loop that is its next value."""
        return fetch_at(self._depth(symbol), self.carried.get(symbol, FIRST + symbol.slot))

    def _depth(self, symbol: tree.Symbol) -> int:
        """Frames between that of the construct and that of the variable."""
        depth, scope = 0, self.scope
        while scope is not symbol.scope:
            assert scope.parent is not None, symbol.name
            depth, scope = depth + 1, scope.parent
        return depth

    # ── values ─────────────────────────────────────────────────────────────────────────────────────

    def value(self, expression: tree.Expression) -> Closure:
        return getattr(self, "_value_" + expression.__class__.__name__)(expression)  # type: ignore[no-any-return]

    def _value_Literal(self, expression: tree.Literal) -> Closure:
        value = expression.value
        return lambda frame: value

    def _value_Name(self, expression: tree.Name) -> Closure:
        assert expression.symbol is not None
        if is_group(expression.type):
            return self._value_of_reference(expression)
        fetch = self.fetch(expression.symbol)
        if self.naming:
            return self._value_of_reference(expression)

        def value(frame: Frame) -> Any:
            cell = fetch(frame)
            found = cell.value
            if found is UNSET:
                raise Blocked(cell)
            return found

        return value

    def _value_of_reference(self, expression: tree.Expression) -> Closure:
        reference, naming = self.reference(expression), self.naming

        def value(frame: Frame) -> Any:
            cell = reference(frame)
            if naming and isinstance(cell, FileCell):
                return cell.promise.get()
            if isinstance(cell, Group):
                for on in missing(cell, files=naming):
                    raise Blocked(on)
                return plain(cell, naming)
            return cell.get()

        return value

    _value_Index = _value_Member = _value_ArrayLiteral = _value_Range = _value_of_reference

    def _value_Call(self, expression: tree.Call) -> Closure:
        return self.inline_call(expression) if self.is_inline(expression) else self._value_of_reference(expression)

    def _value_Convert(self, expression: tree.Convert) -> Closure:
        value = self.value(expression.operand)
        if to_float(expression):
            return lambda frame: float(value(frame))
        return value

    def _value_Tuple(self, expression: tree.Tuple) -> Closure:
        values = [self.value(item) for item in expression.items]
        return lambda frame: [value(frame) for value in values]

    def _value_Unary(self, expression: tree.Unary) -> Closure:
        value = self.value(expression.operand)
        if expression.operator == "!":
            return lambda frame: not value(frame)
        return lambda frame: -value(frame)

    def _value_Binary(self, expression: tree.Binary) -> Closure:
        left, right, at = self.value(expression.left), self.value(expression.right), expression.at
        if expression.meaning == "format":
            to_text = FORMAT[self.language]
            several = isinstance(expression.right, tree.Tuple)
            call: Callable[[Any, Any], Any] = lambda format, values: to_text(format, values if several else [values])  # noqa: E731
        else:
            call = binary(self.language, expression.operator, expression.meaning)

        def value(frame: Frame) -> Any:
            try:
                return call(left(frame), right(frame))
            except Failure as failure:
                raise Mistake(at, str(failure)) from None

        return value

    # ── references ─────────────────────────────────────────────────────────────────────────────────

    def reference(self, expression: tree.Expression) -> Closure:
        method = getattr(self, "_reference_" + expression.__class__.__name__, None)
        if method is None:
            return self.cell(expression)
        return method(expression)  # type: ignore[no-any-return]

    def _reference_Name(self, expression: tree.Name) -> Closure:
        assert expression.symbol is not None
        return self.fetch(expression.symbol)

    def _reference_Call(self, expression: tree.Call) -> Closure:
        return self.lifted_call(expression)

    def _reference_Convert(self, expression: tree.Convert) -> Closure:
        return self.cell(expression) if to_float(expression) else self.reference(expression.operand)

    def _reference_Index(self, expression: tree.Index) -> Closure:
        base, index, at = self.reference(expression.base), self.value(expression.index), expression.at

        def reference(frame: Frame) -> Any:
            key = index(frame)
            container = base(frame)
            cell = container.elements.get(key)
            if cell is not None:
                return cell
            try:
                return container.part(key)
            except KeyError:
                raise Mistake(at, f"{container.label or 'the array'}[{key_text(key)}] is read, and nothing was assigned to it") from None

        return reference

    def _reference_Member(self, expression: tree.Member) -> Closure:
        name = expression.name
        if expression.star:
            return self._star(expression)
        base = self.reference(expression.base)
        if isinstance(base_of(expression.base.type), Array | Bag):  # type: ignore[arg-type]
            return self._star(expression)
        return lambda frame: base(frame).fields[name]

    def _star(self, expression: tree.Member) -> Closure:
        """The field of all elements of an array, as an array."""
        base, place, make = self.reference(expression.base), self.temporary(), self.make(expression.type)
        at, name, machine = expression.at, expression.name, self.machine

        class Fields:
            def __init__(self, target: Container) -> None:
                self.target = target

            def insert(self, key: Any, cell: Any) -> None:
                machine.put(self.target, key, cell.fields[name], at)

            def end(self) -> None:
                machine.release(self.target)

        def begin(frame: Frame) -> None:
            target = frame[place] = make(None, None, ())
            target.holds = 1
            machine.attempt(at, lambda: machine.watch(base(frame), Fields(target)))

        self.prelude.append(begin)
        return lambda frame: frame[place]

    def _reference_ArrayLiteral(self, expression: tree.ArrayLiteral) -> Closure:
        place, make, at, machine = self.temporary(), self.make(expression.type), expression.at, self.machine
        cells = [self.cell(item) for item in expression.items]
        keys = [self.value(key) for key in expression.keys] if expression.keys is not None else None

        def begin(frame: Frame) -> None:
            container = frame[place] = make(None, None, ())
            parts = [cell(frame) for cell in cells]
            if keys is None:
                for number, part in enumerate(parts):
                    container.take(number, part)
                machine.close(container)
                return
            container.holds = len(parts)
            for key, part in zip(keys, parts, strict=True):
                machine.attempt(at, partial(put, container, key, part, frame))
            if not parts:
                machine.close(container)

        def put(container: Container, key: Closure, part: Any, frame: Frame) -> None:
            machine.put(container, key(frame), part, at)
            machine.release(container)

        self.prelude.append(begin)
        return lambda frame: frame[place]

    def range_values(self, expression: tree.Range) -> Closure:
        """The closure gives an iterable of the numbers."""
        first, last, at = self.value(expression.first), self.value(expression.last), expression.at
        step = self.value(expression.step) if expression.step is not None else None
        array = base_of(expression.type) if expression.type is not None else None
        floating = isinstance(array, Array) and array.element == FLOAT

        def values(frame: Frame) -> Any:
            start, end, by = first(frame), last(frame), step(frame) if step is not None else 1
            if not by:
                raise Mistake(at, "the step of a range must not be 0")
            if not floating and isinstance(start, int) and isinstance(by, int):
                return range(start, int(end) + (1 if by > 0 else -1), by)
            count = int((end - start) / by + 1e-9) + 1 if (end - start) / by > -1e-9 else 0
            return (start + by * number for number in range(count))

        return values

    def _reference_Range(self, expression: tree.Range) -> Closure:
        place, make, at, machine = self.temporary(), self.make(expression.type), expression.at, self.machine
        values = self.range_values(expression)

        def begin(frame: Frame) -> None:
            container = frame[place] = make(None, None, ())

            def fill() -> None:
                for key, value in enumerate(values(frame)):
                    machine.put(container, key, Cell(None, value), at)
                machine.close(container)

            machine.attempt(at, fill)

        self.prelude.append(begin)
        return lambda frame: frame[place]

    # ── cells ──────────────────────────────────────────────────────────────────────────────────────

    def cell(self, expression: tree.Expression) -> Closure:
        """A closure that is never blocked."""
        if isinstance(expression, tree.Literal):
            constant = Cell(None, expression.value)
            return lambda frame: constant
        if isinstance(expression, tree.Convert) and not to_float(expression):
            return self.cell(expression.operand)
        if isinstance(expression, tree.Name | tree.ArrayLiteral | tree.Range):
            return self.reference(expression)
        if isinstance(expression, tree.Call) and not self.is_inline(expression):
            return self.lifted_call(expression)
        if isinstance(expression, tree.Index | tree.Member):
            return self._cell_of_reference(expression)
        if isinstance(expression, tree.Convert) and is_group(expression.type):
            return self._converted(expression)
        return self._cell_of_value(expression)

    def _cell_of_value(self, expression: tree.Expression) -> Closure:
        value, at, machine = self.value(expression), expression.at, self.machine

        def cell(frame: Frame) -> Cell:
            try:
                return Cell(None, value(frame))
            except Blocked as blocked:
                made = Cell(None)

                def work() -> None:
                    machine.set(made, value(frame), at)

                machine.wait(blocked.on, partial(machine.attempt, at, work), at)
                return made

        return cell

    def _cell_of_reference(self, expression: tree.Expression) -> Closure:
        reference, make, at, machine = self.reference(expression), self.make(expression.type), expression.at, self.machine

        def cell(frame: Frame) -> Any:
            try:
                return reference(frame)
            except Blocked as blocked:
                made = make(None, None, ())
                if isinstance(made, Group):
                    made.holds = 1

                def work() -> None:
                    machine.take_over(made, reference(frame), at)
                    if isinstance(made, Group):
                        machine.release(made)

                machine.wait(blocked.on, partial(machine.attempt, at, work), at)
                return made

        return cell

    def _converted(self, expression: tree.Convert) -> Closure:
        """An array of ints as one of floats."""
        reference, place, make = self.cell(expression.operand), self.temporary(), self.make(expression.type)
        at, machine = expression.at, self.machine

        class Floats:
            def __init__(self, target: Container) -> None:
                self.target = target

            def insert(self, key: Any, cell: Any) -> None:
                part = machine.insert(self.target, key, at)
                machine.attempt(at, lambda: machine.set(part, float(cell.get()), at))

            def end(self) -> None:
                machine.release(self.target)

        def begin(frame: Frame) -> None:
            target = frame[place] = make(None, None, ())
            target.holds = 1
            machine.watch(reference(frame), Floats(target))

        self.prelude.append(begin)
        return lambda frame: frame[place]

    # ── targets ────────────────────────────────────────────────────────────────────────────────────

    def target(self, expression: tree.Expression) -> Closure:
        """The cell to assign to; a part appears by it. May be tried again until it is not blocked, and then not any more."""
        return self._written(expression, self.machine.insert)

    def entered(self, expression: tree.Expression) -> Closure:
        """The container or struct of which a part is to be written."""
        return self._written(expression, self.machine.enter)

    def _written(self, expression: tree.Expression, step: Callable[[Any, Any, At], Any]) -> Closure:
        """``step`` goes from a container to the element of a key."""
        if isinstance(expression, tree.Name):
            assert expression.symbol is not None
            return self.fetch_target(expression.symbol)
        assert isinstance(expression, tree.Index | tree.Member), expression
        base, at = self.entered(expression.base), expression.at
        if isinstance(expression, tree.Index):
            index = self.value(expression.index)

            def element(frame: Frame) -> Any:
                key = index(frame)
                return step(base(frame), key, at)

            return element
        name = expression.name
        return lambda frame: base(frame).fields[name]


def to_float(expression: tree.Convert) -> bool:
    """Does a number change its type?"""
    wanted, given = base_of(expression.type), base_of(expression.operand.type)  # type: ignore[arg-type]
    while isinstance(wanted, Array | Bag) and isinstance(given, Array | Bag):
        wanted, given = base_of(wanted.element), base_of(given.element)
    return wanted == FLOAT and given == INT


def fetch_at(depth: int, place: int) -> Closure:
    if depth == 0:
        return lambda frame: frame[place]
    if depth == 1:
        return lambda frame: frame[0][place]
    if depth == 2:
        return lambda frame: frame[0][0][place]

    def fetch(frame: Frame) -> Any:
        for _ in range(depth):
            frame = frame[0]
        return frame[place]

    return fetch
