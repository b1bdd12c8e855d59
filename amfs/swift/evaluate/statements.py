"""Statements and whole programs, compiled to Python closures over a frame.

A compiled statement begins when it is called, never waits, and never raises ``Blocked``. The containers and structs that it may write are
held before any statement beside it begins; it lets each go when it will not write it any more. A statement that begins others has them
hold what they may write before it lets go itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from amfs.swift import tree
from amfs.swift.evaluate.apps import Apps
from amfs.swift.evaluate.effects import Limits
from amfs.swift.evaluate.expressions import AFTER, PATH, Closure, Frame
from amfs.swift.evaluate.loops import Loops, Statement
from amfs.swift.evaluate.machine import Machine, all_missing
from amfs.swift.evaluate.mapped import Mappings
from amfs.swift.source import At
from amfs.swift.types import Array, Bag, base_of
from amfs.swift.values import Blocked, Container, FileCell, Group, Made, is_group, is_scalar


class Statements(Loops, Apps, Mappings):
    """The compiler."""

    # ── declarations, assignments, calls ───────────────────────────────────────────────────────────

    def _compile_Declare(self, statement: tree.Declare) -> Statement:
        symbol = statement.symbol
        assert symbol is not None
        parts: list[Statement] = []
        if symbol.mapping is not None:
            parts.append(self._mapping(symbol, symbol.mapping))
        if statement.value is not None:
            name = tree.Name(statement.at, statement.name)
            name.symbol, name.type = symbol, symbol.type
            parts.append(self._assignment(statement, [name], [statement.value]))
        if len(parts) == 1:
            return parts[0]
        begins = [part.begin for part in parts]

        def begin(frame: Frame) -> None:
            for one in begins:
                one(frame)

        return Statement(begin, tuple(hold for part in parts for hold in part.holds))

    def _mapping(self, symbol: tree.Symbol, mapping: tree.Mapping) -> Statement:
        if is_group(symbol.type) and not symbol.assigned:
            self.written.add(symbol)
        begin = self.mapping(symbol, mapping)
        holds = self._holds() if is_group(symbol.type) and not symbol.assigned else ()
        return Statement(begin, holds)

    def _compile_Assign(self, statement: tree.Assign) -> Statement:
        if statement.append:
            return self._append(statement)
        if len(statement.values) == 1:
            return self._assignment(statement, statement.targets, statement.values)
        parts = []
        for target, value in zip(statement.targets, statement.values, strict=True):
            self.written = set()
            parts.append(self._assignment(statement, [target], [value]))
        self.written = {self._root(target) for target in statement.targets if is_group(self._root(target).type)}
        begins = [part.begin for part in parts]

        def begin(frame: Frame) -> None:
            for one in begins:
                one(frame)

        return Statement(begin, tuple(hold for part in parts for hold in part.holds))

    def _assignment(self, statement: tree.Statement, targets: list[tree.Expression], values: list[tree.Expression]) -> Statement:
        value = values[0]
        while isinstance(value, tree.Convert) and value.type == value.operand.type:
            value = value.operand
        if isinstance(value, tree.Call) and not (len(targets) == 1 and self.is_inline(value)):
            return self._assign_outputs(statement, targets, value)
        target = targets[0]
        if isinstance(target, tree.Name) and is_scalar(target.type):
            return self._assign_scalar(statement, target, value)
        return self._assign_general(statement, target, value)

    def _assign_scalar(self, statement: tree.Statement, target: tree.Name, value: tree.Expression) -> Statement:
        fetch, compute, at, machine = self.fetch_target(target.symbol), self.value(value), statement.at, self.machine  # type: ignore[arg-type]
        prelude = tuple(self.prelude)

        def work(frame: Frame) -> None:
            machine.set(fetch(frame), compute(frame), at)

        def begin(frame: Frame) -> None:
            for start in prelude:
                start(frame)
            try:
                machine.set(fetch(frame), compute(frame), at)
            except Blocked as blocked:
                machine.wait(blocked.on, partial(machine.attempt, at, partial(work, frame)), at)

        return Statement(begin)

    def _assign_general(self, statement: tree.Statement, target: tree.Expression, value: tree.Expression) -> Statement:
        resolve, source, at, machine = self.target(target), self.cell(value), statement.at, self.machine
        is_part = not isinstance(target, tree.Name)
        prelude = tuple(self.prelude)
        self._root(target)
        holds = self._holds()

        def work(frame: Frame) -> None:
            assign(frame, resolve(frame))

        def assign(frame: Frame, cell: Any) -> None:
            given, copy = source(frame), self.copier(frame[PATH], at)
            if is_part:
                machine.assign_part(cell, given, at, copy)
            else:
                machine.take_over(cell, given, at, copy)
            for hold in holds:
                machine.release(hold(frame))

        return Statement(_attempting(machine, at, prelude, work), holds)

    def _assign_outputs(self, statement: tree.Statement, targets: list[tree.Expression], call: tree.Call) -> Statement:
        """The function writes into the targets themselves."""
        resolves = [(self.target(target), not isinstance(target, tree.Name)) for target in targets]
        begin_call, at, machine = self.call(call), statement.at, self.machine
        prelude = tuple(self.prelude)
        for target in targets:
            self._root(target)
        holds = self._holds()

        def work(frame: Frame, cells: list[Any]) -> None:
            while len(cells) < len(resolves):
                cells.append(resolves[len(cells)][0](frame))
            own: list[Any] = []
            for cell, (_, is_part) in zip(cells, resolves, strict=True):
                if is_part and isinstance(cell, Group):
                    cell.owned = True
                    cell.holds += 1
                    own.append(cell)
            begin_call(frame, cells, partial(after, frame, own))

        def after(frame: Frame, own: list[Any]) -> None:
            for cell in own:
                machine.release(cell)
            for hold in holds:
                machine.release(hold(frame))

        def work_part(frame: Frame, cells: list[Any]) -> None:
            """Of one part that closes with nothing: a statement that waits for its container need not wait for the call."""
            cells.append(resolves[0][0](frame))
            for hold in holds:
                machine.release(hold(frame))
            begin_call(frame, cells, _nothing)

        simple = len(targets) == 1 and not is_group(targets[0].type)

        def begin(frame: Frame) -> None:
            for start in prelude:
                start(frame)
            machine.attempt(at, partial(work_part if simple else work, frame, []))

        return Statement(begin, holds)

    def _append(self, statement: tree.Assign) -> Statement:
        target, value, at, machine = statement.targets[0], statement.values[0], statement.at, self.machine
        base, source = self.entered(target), self.cell(value)
        prelude = tuple(self.prelude)
        self._root(target)
        holds = self._holds()
        wanted, given = base_of(target.type), base_of(value.type)  # type: ignore[arg-type]
        assert isinstance(wanted, Array | Bag)
        whole = isinstance(given, Array | Bag) and not isinstance(base_of(wanted.element), Array | Bag)

        def work(frame: Frame) -> None:
            container: Container = base(frame)
            if whole:
                container.holds += 1
                machine.watch(source(frame), _Gather(machine, container, at))
            else:
                machine.put(container, len(container.elements), source(frame), at)
            for hold in holds:
                machine.release(hold(frame))

        return Statement(_attempting(machine, at, prelude, work), holds)

    def _compile_Evaluate(self, statement: tree.Evaluate) -> Statement:
        return self._evaluate(statement)[0]

    def _evaluate(self, statement: tree.Evaluate) -> tuple[Statement, int]:
        """Also the place of its outputs."""
        call, place = statement.call, self.temporary()
        begin_call = self.begun(call)
        prelude = tuple(self.prelude)

        def begin(frame: Frame) -> None:
            for start in prelude:
                start(frame)
            frame[place] = begin_call(frame)

        return Statement(begin), place

    # ── branches ───────────────────────────────────────────────────────────────────────────────────

    def _compile_If(self, statement: tree.If) -> Statement:
        condition, at, machine = self.value(statement.condition), statement.at, self.machine
        prelude = tuple(self.prelude)
        then, otherwise = self.body(statement.then), self._inner(statement.otherwise)
        holds = self._holds()

        def work(frame: Frame) -> None:
            chosen = then if condition(frame) else otherwise
            if chosen is not None:
                chosen(frame)
            for hold in holds:
                machine.release(hold(frame))

        return Statement(_attempting(machine, at, prelude, work), holds)

    def _compile_Switch(self, statement: tree.Switch) -> Statement:
        subject, at, machine = self.value(statement.subject), statement.at, self.machine
        prelude = tuple(self.prelude)
        cases = {label: self.body(block) for label, block in statement.cases}
        default = self._inner(statement.default)
        holds = self._holds()

        def work(frame: Frame) -> None:
            chosen = cases.get(subject(frame), default)
            if chosen is not None:
                chosen(frame)
            for hold in holds:
                machine.release(hold(frame))

        return Statement(_attempting(machine, at, prelude, work), holds)

    # ── order ──────────────────────────────────────────────────────────────────────────────────────

    def _compile_Wait(self, statement: tree.Wait) -> Statement:
        cells, at, machine, deep = [self.cell(item) for item in statement.items], statement.at, self.machine, statement.deep
        prelude = tuple(self.prelude)
        body, holds = self.body(statement.body), ()  # type: tuple[Closure, tuple[Closure, ...]]
        holds = self._holds()
        static = machine.limits.static

        def go_on(frame: Frame, items: list[Any]) -> None:
            inside(self, frame, items, body)
            for hold in holds:
                machine.release(hold(frame))

        def begin(frame: Frame) -> None:
            for start in prelude:
                start(frame)
            items = [cell(frame) for cell in cells]
            machine.when(all_missing(items, shape=not deep, files=static, signals=static), partial(go_on, frame, items), at)

        return Statement(begin, holds)

    def _compile_Chain(self, statement: tree.Chain) -> Statement:
        machine, at = self.machine, statement.at
        steps: list[tuple[Statement, Callable[[Frame], Iterable[Any]]]] = []
        for one in statement.statements:
            outer, self.written = self.written, set()
            prelude = self.take_prelude()
            if isinstance(one, tree.Evaluate):
                compiled, place = self._evaluate(one)
                outputs: Callable[[Frame], Iterable[Any]] = partial(_place, place)
            elif isinstance(one, tree.Wait) and not one.body.statements:
                cells = [self.cell(item) for item in one.items]
                compiled, outputs = Statement(partial(_all, tuple(self.prelude)), ()), partial(_each, cells)
                self.prelude = []
            else:
                compiled = getattr(self, "_compile_" + one.__class__.__name__)(one)
                self.prelude = []
                outputs = self._outputs(one)
            self.prelude = prelude
            self.written = outer | self.written
            steps.append((compiled, outputs))
        holds = tuple(hold for step, _ in steps for hold in step.holds)
        static = machine.limits.static

        def go(frame: Frame, number: int) -> None:
            steps[number][0].begin(frame)
            if number + 1 < len(steps):
                machine.attempt(at, partial(wait, frame, number))

        def wait(frame: Frame, number: int) -> None:
            cells = list(steps[number][1](frame))
            machine.when(all_missing(cells, shape=True, files=static, signals=static), partial(go_on, frame, number, cells), at)

        def go_on(frame: Frame, number: int, cells: list[Any]) -> None:
            inside(self, frame, cells, lambda frame: go(frame, number + 1))

        return Statement(lambda frame: go(frame, 0), holds)

    def _outputs(self, statement: tree.Statement) -> Callable[[Frame], Iterable[Any]]:
        """The cells that the statement assigns."""
        if isinstance(statement, tree.Declare) and statement.symbol is not None:
            closures = [self.fetch(statement.symbol)]
        elif isinstance(statement, tree.Assign):
            closures = [
                self.fetch_target(target.symbol) if isinstance(target, tree.Name) and target.symbol is not None else self.reference(target)
                for target in statement.targets
            ]
        else:
            closures = list(self._holds())
        return lambda frame: [closure(frame) for closure in closures]


def _attempting(machine: Machine, at: At, prelude: tuple[Closure, ...], work: Closure) -> Closure:
    """Begins a statement: the needs of its expressions are begun, and ``work`` is done as soon as it is not blocked."""

    def begin(frame: Frame) -> None:
        for start in prelude:
            start(frame)
        machine.attempt(at, partial(work, frame))

    return begin


def inside(compiler: Statements, frame: Frame, items: list[Any], body: Closure) -> None:
    """Begin what comes after these items. In a task list the tasks in it come after those that make them."""
    if not compiler.machine.limits.static:
        body(frame)
        return
    order = [id for item in items if isinstance(item, Made) for id in item.promise.value]
    order += [id for item in items if isinstance(item, FileCell) and (id := compiler.machine.makers.get(item.promise.value.name))]
    if not order:
        body(frame)
        return
    before = frame[AFTER]
    frame[AFTER] = tuple(dict.fromkeys((*before, *order)))
    body(frame)
    frame[AFTER] = before


def _place(place: int, frame: Frame) -> Iterable[Any]:
    return frame[place]  # type: ignore[no-any-return]


def _all(starts: tuple[Closure, ...], frame: Frame) -> None:
    for start in starts:
        start(frame)


def _each(cells: list[Closure], frame: Frame) -> Iterable[Any]:
    return [cell(frame) for cell in cells]


def _nothing() -> None:
    pass


class _Gather:
    """Elements of a container into a bag."""

    def __init__(self, machine: Machine, target: Container, at: Any) -> None:
        self.machine = machine
        self.target = target
        self.at = at

    def insert(self, key: Any, cell: Any) -> None:
        self.machine.put(self.target, len(self.target.elements), cell, self.at)

    def end(self) -> None:
        self.machine.release(self.target)


def compile_program(program: tree.Program, limits: Limits | None = None) -> Machine:
    """The machine that evaluates a checked program. It begins with ``Begin``."""
    machine = Machine(limits, program.at.source.name)
    compiler = Statements(machine, program.language)

    def start() -> None:
        scope = program.body.scope
        assert scope is not None
        compiler.scope = scope
        run = compiler.body(program.body)
        frame = compiler.globals
        frame += [None] * compiler.layout(scope).size
        frame[PATH], frame[AFTER] = "", ()
        run(frame)

    machine.start = start
    return machine
