"""Blocks and loops, compiled; and which groups a statement holds."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from amfs.swift import tree
from amfs.swift.evaluate.calls import Calls
from amfs.swift.evaluate.expressions import AFTER, AROUND, FIRST, PATH, Closure, Frame
from amfs.swift.evaluate.machine import Machine
from amfs.swift.evaluate.rounds import ForRounds, IterateRounds, Rounds
from amfs.swift.values import Blocked, Cell, Label, Namer, is_group


class Statement(NamedTuple):
    """``begin`` in a frame; ``holds``: closures to the groups that the statement lets go."""

    begin: Closure
    holds: tuple[Closure, ...] = ()


class Loops(Calls):
    """The part of the compiler that knows blocks and loops."""

    def __init__(self, machine: Machine, language: str) -> None:
        super().__init__(machine, language)
        self.written: set[tree.Symbol] = set()  # by the statement that is being compiled: those that have parts

    # ── what is written ────────────────────────────────────────────────────────────────────────────

    def _statement(self, statement: tree.Statement) -> Statement:
        before, self.written = self.written, set()
        prelude = self.take_prelude()
        compiled: Statement = getattr(self, "_compile_" + statement.__class__.__name__)(statement)
        self.prelude = prelude
        self.written = before | self.written
        return compiled

    def _holds(self) -> tuple[Closure, ...]:
        """Of the statement that is being compiled, after its parts."""
        symbols = sorted((one for one in self.written if self._is_around(one)), key=lambda one: (one.name, one.at.start))
        return tuple(self.fetch_target(symbol) for symbol in symbols)

    def _is_around(self, symbol: tree.Symbol) -> bool:
        scope: tree.Scope | None = self.scope
        while scope is not None:
            if scope is symbol.scope:
                return True
            scope = scope.parent
        return False

    def _root(self, target: tree.Expression) -> tree.Symbol:
        while isinstance(target, tree.Index | tree.Member):
            target = target.base
        assert isinstance(target, tree.Name) and target.symbol is not None
        if is_group(target.symbol.type):
            self.written.add(target.symbol)
        return target.symbol

    # ── blocks ─────────────────────────────────────────────────────────────────────────────────────

    def body(self, block: tree.Block) -> Closure:
        written_around = self.written
        self.written = set()
        machine = self.machine
        statements = [self._statement(one) for one in block.statements]
        declared = []
        for symbol in block.declares:
            label = Label(symbol.name, symbol.at)
            declared.append((FIRST + symbol.slot, self.make(symbol.type), label, symbol.mapping is not None, is_group(symbol.type)))
        groups = [place for place, _, _, _, has_parts in declared if has_parts]
        holds = [hold for one in statements for hold in one.holds]
        begins = [one.begin for one in statements]
        self.written = written_around | (self.written - set(block.declares))

        def begin(frame: Frame) -> None:
            for place, make, label, mapped, has_parts in declared:
                cell = frame[place] = make(label, Namer(label) if mapped else None, ())
                if has_parts:
                    cell.holds = 1
            for hold in holds:
                hold(frame).holds += 1
            for one in begins:
                one(frame)
            for place in groups:
                machine.release(frame[place])

        return begin

    def _inner(self, block: tree.Block | None) -> Closure | None:
        return self.body(block) if block is not None else None

    def in_loop(self, block: tree.Block, work: Callable[[], Any]) -> Any:
        """Compile in the scope of a loop's body."""
        assert block.scope is not None
        before, prelude = self.scope, self.take_prelude()
        self.scope = block.scope
        try:
            return work()
        finally:
            self.scope, self.prelude = before, prelude
            self.written = {one for one in self.written if one.scope is not block.scope}

    def _compile_Block(self, statement: tree.Block) -> Statement:
        begin = self.body(statement)
        return self._with_release(begin)

    def _with_release(self, begin: Closure) -> Statement:
        holds, machine = self._holds(), self.machine

        def run(frame: Frame) -> None:
            begin(frame)
            for hold in holds:
                machine.release(hold(frame))

        return Statement(run, holds)

    # ── loops ──────────────────────────────────────────────────────────────────────────────────────

    def _compile_Foreach(self, statement: tree.Foreach) -> Statement:
        machine, at, line = self.machine, statement.at, statement.at.line
        container = statement.container
        values = self.range_values(container) if isinstance(container, tree.Range) else None
        source = self.reference(container) if values is None else None
        prelude = tuple(self.prelude)
        body = self.in_loop(statement.body, lambda: self.body(statement.body))
        layout = self.layout(statement.body.scope)  # type: ignore[arg-type]
        value_place = FIRST + statement.value_symbol.slot if statement.value_symbol is not None else None
        key_place = FIRST + statement.key_symbol.slot if statement.key_symbol is not None else None
        listed = isinstance(container, tree.Name) and container.symbol in self.written and container.symbol.is_listed
        holds = self._holds()

        def start(frame: Frame, key: Any, cell: Any) -> None:
            inner = [None] * layout.size
            inner[AROUND], inner[PATH], inner[AFTER] = frame, _round(frame[PATH], line, key), frame[AFTER]  # type: ignore[call-overload]
            if value_place is not None:
                inner[value_place] = cell
            if key_place is not None:
                inner[key_place] = Cell(None, key)  # type: ignore[call-overload]
            body(inner)

        def finish(frame: Frame) -> None:
            for hold in holds:
                machine.release(hold(frame))

        def work(frame: Frame) -> None:
            rounds = Rounds(machine, partial(start, frame), partial(finish, frame))
            if values is not None:
                rounds.of_numbers(values(frame))
            elif listed:  # the rounds fill the array: they are those of its mapper's names
                assert source is not None
                array = source(frame)
                if array.namer.name_of is None:
                    raise Blocked(array.namer)
                for key in dict.fromkeys(path[0] for path, _ in array.namer.parts or ()):
                    rounds.insert(key, array.part(key))
                rounds.end()
            else:
                assert source is not None
                machine.watch(source(frame), rounds)

        def begin(frame: Frame) -> None:
            for one in prelude:
                one(frame)
            machine.attempt(at, partial(work, frame))

        return Statement(begin, holds)

    def _compile_For(self, statement: tree.For) -> Statement:
        machine, at, line = self.machine, statement.at, statement.at.line
        scope = statement.body.scope
        assert scope is not None
        symbols = {one.name: one.symbol for one in statement.starts}
        starts = []
        for declare in statement.starts:
            assert declare.symbol is not None and declare.value is not None
            starts.append((FIRST + declare.symbol.slot, self.cell(declare.value)))
        prelude = tuple(self.prelude)
        layout = self.layout(scope)
        before = self.carried
        nexts = {symbol: layout.place() for symbol in symbols.values() if symbol is not None}
        made = [(FIRST + symbol.slot, place, self.make(symbol.type), Label(symbol.name, symbol.at)) for symbol, place in nexts.items()]
        groups = [place for symbol, place in nexts.items() if is_group(symbol.type)]

        def compile() -> tuple[Any, ...]:
            condition = self.value(statement.condition)
            of_condition = tuple(self.prelude)
            self.prelude = []
            updates = []
            for name, value in statement.updates:
                symbol = symbols[name]
                assert symbol is not None
                updates.append((nexts[symbol], self.cell(value)))
            of_updates = tuple(self.prelude)
            self.prelude = []
            self.carried = {**before, **nexts}
            try:
                return condition, of_condition, updates, of_updates, self.body(statement.body)
            finally:
                self.carried = before

        condition, of_condition, updates, of_updates, body = self.in_loop(statement.body, compile)
        finals = [(self._root(name), FIRST + symbol.slot) for name, symbol in statement.finals]
        lasts = [(self.fetch_target(symbol), place) for symbol, place in finals]
        holds = self._holds()

        def first(frame: Frame) -> Frame:
            inner = [None] * layout.size
            inner[AROUND], inner[PATH], inner[AFTER] = frame, _round(frame[PATH], line, 0), frame[AFTER]  # type: ignore[call-overload]
            for place, cell in starts:
                inner[place] = cell(frame)
            return inner

        def run(inner: Frame, number: int) -> Frame:
            """The body, with the variables of the next round; returns its frame."""
            for _, place, make, label in made:
                inner[place] = make(label, None, ())
            for place in groups:
                inner[place].holds = 1
            body(inner)
            for start in of_updates:
                start(inner)
            for place, cell in updates:
                machine.take_over(inner[place], cell(inner), at)
            for place in groups:
                machine.release(inner[place])
            following = [None] * layout.size
            following[AROUND], following[AFTER] = inner[AROUND], inner[AFTER]
            following[PATH] = _round(inner[AROUND][PATH], line, number + 1)  # type: ignore[call-overload]
            for place, next_place, _, _ in made:
                following[place] = inner[next_place]
            return following

        def check(inner: Frame) -> bool:
            return bool(condition(inner))

        def finish(frame: Frame, inner: Frame) -> None:
            for target, place in lasts:
                machine.take_over(target(frame), inner[place], at)
            for hold in holds:
                machine.release(hold(frame))

        def begin(frame: Frame) -> None:
            for one in prelude:
                one(frame)
            ForRounds(machine, at, first(frame), of_condition, check, run, partial(finish, frame)).test()

        return Statement(begin, holds)

    def _compile_Iterate(self, statement: tree.Iterate) -> Statement:
        machine, at, line = self.machine, statement.at, statement.at.line
        scope, counter = statement.body.scope, statement.counter_symbol
        assert scope is not None
        layout = self.layout(scope)
        place = FIRST + counter.slot if counter is not None else None

        def compile() -> tuple[Any, ...]:
            body = self.body(statement.body)
            self.prelude = []
            until = self.value(statement.until)
            return body, until, tuple(self.prelude)

        body, until, of_until = self.in_loop(statement.body, compile)
        ahead = 1 if self.language == "swift-k" else 0  # Swift/K counts before it looks
        holds = self._holds()

        def run(frame: Frame, number: int) -> Frame:
            inner = [None] * layout.size
            inner[AROUND], inner[PATH], inner[AFTER] = frame, _round(frame[PATH], line, number), frame[AFTER]  # type: ignore[call-overload]
            if place is not None:
                inner[place] = Cell(None, number)  # type: ignore[call-overload]
            body(inner)
            if ahead and place is not None:
                inner = list(inner)
                inner[place] = Cell(None, number + ahead)  # type: ignore[call-overload]
            return inner

        def check(inner: Frame) -> bool:
            return bool(until(inner))

        def finish(frame: Frame) -> None:
            for hold in holds:
                machine.release(hold(frame))

        def begin(frame: Frame) -> None:
            IterateRounds(machine, at, of_until, check, partial(run, frame), partial(finish, frame)).begin()

        return Statement(begin, holds)


def _round(path: str, line: int, key: Any) -> str:
    piece = f"{line}[{key!r}]"
    return f"{path}/{piece}" if path else piece
