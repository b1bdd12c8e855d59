"""Which statement assigns which variable: variables that are assigned twice, and those that are read and never assigned.

A part of a variable is known when its fields and literal keys say it: s.f and A[3] are, A[i] may be any element.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from amfs.swift.check.expressions import Path, Read, place
from amfs.swift.check.statements import Statements
from amfs.swift.source import At, Mistake
from amfs.swift.tree import (
    Assign,
    Block,
    Chain,
    Declare,
    Evaluate,
    For,
    Foreach,
    Function,
    If,
    Iterate,
    Literal,
    Name,
    Program,
    Statement,
    Switch,
    Symbol,
    Wait,
)
from amfs.swift.types import ANY, VOID, Array, Bag, Struct, base_of, is_file

Key = tuple[Symbol, Path]


class Sets:
    """``sure``: assigned whatever happens; ``perhaps``: in one of several branches. With the place. ``parts``: the first that is sure, of
    each variable."""

    __slots__ = ("parts", "perhaps", "sure")

    def __init__(self) -> None:
        self.sure: dict[Key, At] = {}
        self.perhaps: dict[Key, At] = {}
        self.parts: dict[Symbol, At] = {}


def is_container(symbol: Symbol) -> bool:
    return isinstance(base_of(symbol.type), Array | Bag | Struct) or symbol.type == ANY


class Assignments:
    def __init__(self, program: Program, statements: Statements, reads: list[Read], mistakes: list[Mistake]) -> None:
        self.program = program
        self.carried = statements.carried
        self.of_loops = set(statements.carried)  # for loops give them values too
        self.copied: set[Symbol] = set()  # assigned from another variable
        self.reads = reads
        self.mistakes = mistakes
        self.several: set[Key] = set()  # assigned in more than one branch, of different statements
        self.plainly: dict[Symbol, Read] = {}  # read under no other condition than that under which they are declared
        for read in reads:
            if read.branches is statements.globals.born.get(read.symbol) and not read.path:
                self.plainly.setdefault(read.symbol, read)
        self.all: dict[Symbol, set[Path]] = {}  # every part that some statement assigns
        self._methods: dict[type, Callable[[Any, Sets], None]] = {
            Block: self.block,
            Declare: self.declare,
            Assign: self.assign,
            Evaluate: self.evaluate,
            If: self.if_,
            Switch: self.switch,
            Foreach: self.foreach,
            For: self.for_,
            Iterate: self.iterate,
            Wait: self.wait,
            Chain: self.chain,
        }

    def check(self) -> None:
        self.block(self.program.body, Sets())
        for function in self.program.functions:
            if function.body is not None:
                self.block(function.body, Sets())
                self.outputs(function)
        self.unassigned()

    # ── two assignments ────────────────────────────────────────────────────────────────────────────

    def record(self, sets: Sets, key: Key, at: At, sure: bool) -> None:
        """Adds one assignment; tells of another that surely happens too."""
        symbol, path = key
        if "[]" in path or (path and isinstance(base_of(symbol.type), Bag)):
            return
        for length in range(len(path) + 1):
            part = symbol, path[:length]
            before = sets.sure.get(part) or (sets.perhaps.get(part) if sure else None)
            if before is not None:
                self.twice(symbol, path, at, before)
                break
        else:
            if not path:
                before = sets.parts.get(symbol)
                if before is not None:
                    self.twice(symbol, path, at, before)
        if not sure and key in sets.perhaps:
            self.several.add(key)
        (sets.sure if sure else sets.perhaps).setdefault(key, at)
        if sure:
            sets.parts.setdefault(symbol, at)

    def twice(self, symbol: Symbol, path: Path, at: At, before: At) -> None:
        text = symbol.name + "".join(path)
        self.mistakes.append(Mistake(at, f"'{text}' is assigned a second time", f"the first assignment is at {before}"))

    def merge(self, sets: Sets, inner: Sets) -> None:
        for key, at in inner.sure.items():
            self.record(sets, key, at, True)
        for key, at in inner.perhaps.items():
            self.record(sets, key, at, False)

    def alternatives(self, sets: Sets, branches: list[Sets], complete: bool) -> None:
        """Of branches one happens, or none if they are not complete."""
        sure: dict[Key, At] = {}
        if complete:
            sure = {key: at for key, at in branches[0].sure.items() if all(key in other.sure for other in branches[1:])}
        every: dict[Key, At] = {}
        for branch in branches:
            for found in (branch.sure, branch.perhaps):
                for key, at in found.items():
                    if key not in sure:
                        every.setdefault(key, at)
        for key, at in sure.items():
            self.record(sets, key, at, True)
        for key, at in every.items():
            self.record(sets, key, at, False)

    # ── statements ─────────────────────────────────────────────────────────────────────────────────

    def statement(self, statement: Statement, sets: Sets) -> None:
        self._methods[type(statement)](statement, sets)

    def block(self, block: Block, sets: Sets) -> None:
        for statement in block.statements:
            self.statement(statement, sets)
        made: dict[str, Symbol] = {}
        for symbol in block.declares:
            self.conditional(symbol, sets)
            name = symbol.mapping.name if symbol.mapping is not None else None
            if isinstance(name, Literal) and symbol.assigned and symbol not in self.copied:
                other = made.setdefault(str(name.value), symbol)
                if other is not symbol:
                    hint = f"the other is {other.name!r}, at {other.at}"
                    self.mistakes.append(Mistake(name.at, f"two variables make the file {name.value!r}", hint))

    def declare(self, declare: Declare, sets: Sets) -> None:
        symbol = declare.symbol
        assert symbol is not None
        if declare.value is not None:
            self.all.setdefault(symbol, set()).add(())
            if isinstance(declare.value, Name):
                self.copied.add(symbol)
            self.record(sets, (symbol, ()), declare.at, True)

    def assign(self, assign: Assign, sets: Sets) -> None:
        for target in assign.targets:
            root, path = place(target)
            symbol = root.symbol
            assert symbol is not None
            self.all.setdefault(symbol, set()).add(path)
            if isinstance(assign.values[0], Name):
                self.copied.add(symbol)
            if not assign.append:
                self.record(sets, (symbol, path), target.at, True)

    def evaluate(self, evaluate: Evaluate, sets: Sets) -> None:
        """A call for its own sake assigns nothing."""

    def chain(self, chain: Chain, sets: Sets) -> None:
        for statement in chain.statements:
            self.statement(statement, sets)

    def wait(self, wait: Wait, sets: Sets) -> None:
        self.block(wait.body, sets)

    def if_(self, node: If, sets: Sets) -> None:
        then, otherwise = Sets(), Sets()
        self.block(node.then, then)
        if node.otherwise is not None:
            self.block(node.otherwise, otherwise)
        self.alternatives(sets, [then, otherwise], node.otherwise is not None)

    def switch(self, node: Switch, sets: Sets) -> None:
        branches: list[Sets] = []
        for block in [*(block for _, block in node.cases), *([] if node.default is None else [node.default])]:
            branches.append(Sets())
            self.block(block, branches[-1])
        if branches:
            self.alternatives(sets, branches, node.default is not None)

    def loop(self, body: Block, sets: Sets, own: list[Symbol]) -> None:
        inner = Sets()
        self.block(body, inner)
        local = {*body.declares, *own, *(body.scope.symbols if body.scope else ())}
        for (symbol, path), at in [*inner.sure.items(), *inner.perhaps.items()]:
            if symbol in local or symbol in self.carried:
                continue
            if (symbol, path) in inner.sure and not any(part.startswith("[") for part in path):
                text = symbol.name + "".join(path)
                message = f"'{text}' is assigned in each round of the loop, and it can have one value only"
                self.mistakes.append(Mistake(at, message, f"declare {symbol.name} in the loop" if not path else ""))
            else:
                self.record(sets, (symbol, path), at, False)
                self.several.add((symbol, path))  # in one of the rounds

    def foreach(self, node: Foreach, sets: Sets) -> None:
        self.loop(node.body, sets, [one for one in (node.value_symbol, node.key_symbol) if one is not None])

    def for_(self, node: For, sets: Sets) -> None:
        updated = {name for name, _ in node.updates}
        starts = [start.symbol for start in node.starts if start.symbol is not None]
        for start in node.starts:
            assert start.symbol is not None
            if start.name in updated:
                self.carried.discard(start.symbol)
        self.loop(node.body, sets, starts)
        for name, _ in node.finals:
            assert name.symbol is not None
            self.all.setdefault(name.symbol, set()).add(())
            self.record(sets, (name.symbol, ()), name.at, True)
        for start in node.starts:
            symbol = start.symbol
            assert symbol is not None
            if start.name in updated and self.all.get(symbol):
                message = f"the next value of {start.name!r} is given by the head of the loop and by its body"
                self.mistakes.append(Mistake(start.at, message))
            elif start.name not in updated and not self.all.get(symbol):
                message = f"nothing gives {start.name!r} its value for the next round"
                self.mistakes.append(Mistake(start.at, message, f"write '{start.name} = …' after the condition of the loop"))

    def iterate(self, node: Iterate, sets: Sets) -> None:
        self.loop(node.body, sets, [node.counter_symbol] if node.counter_symbol is not None else [])

    def conditional(self, symbol: Symbol, sets: Sets) -> None:
        """Assigned in one branch, and read whichever is taken."""
        key: Key = (symbol, ())
        read = self.plainly.get(symbol)
        if read is None or key not in sets.perhaps or key in sets.sure or key in self.several or is_container(symbol):
            return
        message = f"{symbol.name!r} is assigned only under a condition: without it, this would wait for ever"
        self.mistakes.append(Mistake(read.at, message, f"assign it in the other branch too; the assignment is at {sets.perhaps[key]}"))

    # ── what nobody assigns ────────────────────────────────────────────────────────────────────────

    def outputs(self, function: Function) -> None:
        for formal in function.outputs:
            symbol = formal.symbol
            assert symbol is not None
            if symbol.assigned or isinstance(base_of(symbol.type), Array | Bag) or not formal.name:
                continue
            if self.program.language == "swift-k":  # a statement that waits for it is told of when the program runs
                continue
            hint = f"write '{formal.name} = make_void();'" if symbol.type == VOID else ""
            self.mistakes.append(Mistake(formal.at, f"nothing in {function.name} assigns its output {formal.name!r}", hint))

    def unassigned(self) -> None:
        told: set[tuple[Symbol, Path]] = set()
        for read in self.reads:
            symbol = read.symbol
            if symbol.is_parameter and not isinstance(base_of(symbol.type), Struct):
                continue
            if not symbol.assigned:
                self.never(read, told)
            elif not symbol.is_parameter and symbol.mapping is None and symbol not in self.of_loops:
                self.never_part(read, told)

    def never(self, read: Read, told: set[tuple[Symbol, Path]]) -> None:
        symbol = read.symbol
        type_ = base_of(symbol.type)
        if isinstance(type_, Array | Bag) or type_ == ANY or symbol.mapping is not None or (symbol, ()) in told:
            return
        told.add((symbol, ()))
        hint = f"give it a name: 'file {symbol.name}<\"…\">', or input(\"…\")" if is_file(type_) else ""
        self.mistakes.append(Mistake(read.at, f"nothing assigns {symbol.name!r}: this would wait for ever", hint))

    def never_part(self, read: Read, told: set[tuple[Symbol, Path]]) -> None:
        """A field of a struct that no statement assigns. Which elements an array gets is known when the program runs."""
        written = self.all.get(read.symbol, {()})
        type_ = base_of(read.symbol.type)
        for length, step in enumerate(read.path, 1):
            part = read.path[:length]
            if (read.symbol, part) in told:
                return
            inner = type_.element if isinstance(type_, Array) else type_.field(step[1:]) if isinstance(type_, Struct) else None
            type_ = base_of(inner or ANY)
            if isinstance(type_, Array | Bag | Struct) or step.startswith("["):
                continue
            if not any(meet(part, other) for other in written):
                told.add((read.symbol, part))
                text = read.symbol.name + "".join(part)
                self.mistakes.append(Mistake(read.at, f"nothing assigns '{text}': this would wait for ever"))
                return


def meet(one: Path, other: Path) -> bool:
    """May one of them be the other, or lie in it? Elements of an array may be the same."""
    return all(a == b or (a.startswith("[") and b.startswith("[")) for a, b in zip(one, other, strict=False))
