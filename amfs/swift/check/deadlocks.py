"""Values that wait for themselves, as far as the text shows it: ``x = x + 1``, ``if (a) { a = 1; }``, ``A[0] = size(A)``.

A value is there when one of the statements that assign it has what it needs; an array is closed when all that may write have run.
Only sure needs count: the inputs of apps, operators and functions of the library, and the conditions around a statement.
A function of the program may not look at its arguments at all. A circle of needs that remains is a mistake.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from amfs.swift.check.expressions import Path, place
from amfs.swift.source import At, Mistake
from amfs.swift.tree import (
    ArrayLiteral,
    Assign,
    Binary,
    Block,
    Call,
    Chain,
    Convert,
    Declare,
    Evaluate,
    Expression,
    For,
    Foreach,
    If,
    Index,
    Iterate,
    Literal,
    Member,
    Name,
    Program,
    Range,
    Statement,
    Switch,
    Symbol,
    Tuple,
    Unary,
    Wait,
)
from amfs.swift.types import ANY, Array, Bag, Struct, base_of


class Need(NamedTuple):
    """A value, or (``closed``) an array of which nothing may be missing."""

    symbol: Symbol
    path: Path
    closed: bool


#: Functions of the library that look at arrays that are still filled.
OPEN = frozenset(("exists", "exists_key"))

#: Fields and keys of a part that is looked at.
PARTS_MAX = 8

Needs = frozenset[Need]
NOTHING: Needs = frozenset()


class Writer(NamedTuple):
    """A statement that assigns a part of a variable. ``needs``: those of the statement. ``closing``: those met by the time it is known
    that it has run, or will not."""

    path: Path
    needs: Needs
    closing: Needs
    at: At


class Deadlocks:
    """``carried``: variables of for loops, which have another value in each round."""

    def __init__(self, program: Program, carried: set[Symbol], mistakes: list[Mistake]) -> None:
        self.program = program
        self.carried = carried
        self.mistakes = mistakes
        self.writers: dict[Symbol, dict[Path, list[Writer]]] = {}

    def check(self) -> None:
        self.block(self.program.body, NOTHING, NOTHING, True)
        for function in self.program.functions:
            if function.body is not None:
                self.block(function.body, NOTHING, NOTHING, True)
        self.circles()

    # ── what an expression needs ───────────────────────────────────────────────────────────────────

    def needs(self, node: Expression | None, whole: bool = True) -> Needs:
        """Before it has its value. ``whole``: arrays in it must be closed."""
        return frozenset(self._needs(node, whole)) if node is not None else NOTHING

    def _needs(self, top: Expression, whole: bool) -> Iterator[Need]:
        todo: list[tuple[Expression, bool]] = [(top, whole)]
        while todo:
            node, whole = todo.pop()
            if isinstance(node, Name | Index | Member):
                yield from self._part(node, whole, todo)
            elif isinstance(node, Binary):
                todo.append((node.left, True))
                if node.operator not in ("&&", "||"):
                    todo.append((node.right, True))
            elif isinstance(node, Unary | Convert):
                todo.append((node.operand, True))
            elif isinstance(node, Range):
                todo += [(part, True) for part in (node.first, node.last, node.step) if part is not None]
            elif isinstance(node, Tuple) or (isinstance(node, ArrayLiteral) and whole):
                todo += [(item, True) for item in node.items]
            elif isinstance(node, Call) and node.function is not None:
                builtin = node.function.builtin
                if node.function.app is not None or (builtin is not None and not builtin.names_only and node.name not in OPEN):
                    todo += [(argument, True) for argument in node.arguments]

    def _part(self, node: Expression, whole: bool, todo: list[tuple[Expression, bool]]) -> Iterator[Need]:
        base = node
        while isinstance(base, Index | Member):
            if isinstance(base, Index) and not isinstance(base.index, Literal):
                todo.append((base.index, True))
            base = base.base
        if not isinstance(base, Name):
            return
        root, path = place(node)
        if root.symbol is None or "[]" in path:
            return
        type_ = base_of(node.type or ANY)
        if isinstance(type_, Array | Bag):
            if whole and not path:
                yield Need(root.symbol, (), True)
        elif not isinstance(type_, Struct) and type_ != ANY:
            yield Need(root.symbol, path, False)

    # ── what a statement needs ─────────────────────────────────────────────────────────────────────

    def block(self, block: Block, around: Needs, closing: Needs, sure: bool) -> None:
        for statement in block.statements:
            self.statement(statement, around, closing, sure)

    def statement(self, node: Statement, around: Needs, closing: Needs, sure: bool) -> Needs:
        """``around``: needs that are met when it runs. ``closing``: needs that are met when it is known that it has run, or
        will not. ``sure``: it runs. Returns the needs that are met when it has run."""
        if isinstance(node, Declare):
            if node.value is not None and node.symbol is not None:
                return self.write(node.symbol, (), node.value, NOTHING, around, closing, sure, node.at)
        elif isinstance(node, Assign):
            return self.assign(node, around, closing, sure)
        elif isinstance(node, Evaluate):
            return self.needs(node.call)
        elif isinstance(node, Block):
            self.block(node, around, closing, sure)
        elif isinstance(node, If | Switch):
            condition = self.needs(node.condition if isinstance(node, If) else node.subject)
            branches = [node.then, node.otherwise] if isinstance(node, If) else [*(block for _, block in node.cases), node.default]
            for branch in branches:
                if branch is not None:
                    self.block(branch, around | condition, closing | condition if sure else closing, False)
        elif isinstance(node, Foreach):
            container = self.needs(node.container)
            if isinstance(node.container, Name) and node.container.symbol is not None and node.container.symbol.is_listed:
                container = NOTHING  # its mapper says which rounds there are
            begun = NOTHING if any(need.closed for need in container) else container  # rounds begin before an array is closed
            self.block(node.body, around | begun, closing | container if sure else closing, False)
        elif isinstance(node, Wait):
            items = NOTHING.union(*(self.needs(item) for item in node.items))
            self.block(node.body, around | items, closing | items if sure else closing, sure)
            return items
        elif isinstance(node, Chain):
            for one in node.statements:
                done = self.statement(one, around, closing, sure)
                around, closing = around | done, closing | done if sure else closing
        elif isinstance(node, For | Iterate):
            self.block(node.body, around, closing, False)
        return NOTHING

    def assign(self, node: Assign, around: Needs, closing: Needs, sure: bool) -> Needs:
        done = NOTHING
        for at, target in enumerate(node.targets):
            root, path = place(target)
            assert root.symbol is not None
            indices = NOTHING.union(*(self.needs(index) for index in indices_of(target)))
            value = node.values[at] if len(node.values) == len(node.targets) else node.values[0]
            done |= self.write(root.symbol, path, value, indices, around, closing, sure, target.at)
        return done

    def write(
        self, symbol: Symbol, path: Path, value: Expression, indices: Needs, around: Needs, closing: Needs, sure: bool, at: At
    ) -> Needs:  # fmt: skip
        own, ended = indices | self.needs(value, whole=False), indices
        if isinstance(value, Name) and value.symbol is not None and isinstance(base_of(value.type or ANY), Array | Bag):
            ended = indices | {Need(value.symbol, (), True)}  # B = A has elements before A is closed
        writer = Writer(path, around | own, closing | ended if sure else closing, at)
        self.writers.setdefault(symbol, {}).setdefault(path, []).append(writer)
        return own

    # ── circles ────────────────────────────────────────────────────────────────────────────────────

    def next(self, need: Need) -> Needs:
        """The needs that must be met before it."""
        if need.symbol in self.carried or len(need.path) > PARTS_MAX:
            return NOTHING
        if need.closed:
            every = self.writers.get(need.symbol, {})
            return NOTHING.union(*(writer.closing for path, writers in every.items() if len(path) <= 1 for writer in writers))
        fitting = [writer.needs for writer in self.giving(need)]
        return fitting[0].intersection(*fitting[1:]) if fitting else NOTHING

    def giving(self, need: Need) -> list[Writer]:
        """Statements that may give it its value: those that assign it, or a variable of which it is a part."""
        every = self.writers.get(need.symbol, {})
        paths: list[Path] = [()]
        found = list(every.get((), ()))
        for step in need.path:
            paths = [(*path, one) for path in paths for one in ((step, "[]") if step.startswith("[") else (step,))]
            found += [writer for path in paths for writer in every.get(path, ())]
        return found

    def circles(self) -> None:
        """Depth first, without recursion; each circle is told once."""
        state: dict[Need, int] = {}  # 1: on the way, 2: done
        told: set[Symbol] = set()
        for symbol, every in self.writers.items():
            starts = [Need(symbol, (), True)] + [Need(symbol, path, False) for path in every]
            for start in starts:
                if start in state or "[]" in start.path:
                    continue
                way = [(start, iter(sorted(self.next(start), key=order)))]
                state[start] = 1
                while way:
                    need, rest = way[-1]
                    following = next(rest, None)
                    if following is None:
                        state[need] = 2
                        way.pop()
                    elif following not in state:
                        state[following] = 1
                        way.append((following, iter(sorted(self.next(following), key=order))))
                    elif state[following] == 1:
                        names = [one for one, _ in way]
                        self.tell(names[names.index(following) :], told)

    def tell(self, circle: list[Need], told: set[Symbol]) -> None:
        if any(need.symbol in told for need in circle):
            return
        told |= {need.symbol for need in circle}
        at = circle.index(min(circle, key=order))
        need, following = circle[at], circle[(at + 1) % len(circle)]
        writers = [one for some in self.writers[need.symbol].values() for one in some] if need.closed else self.giving(need)
        writer = next(one for one in writers if following in (one.closing if need.closed else one.needs))
        text = shown(need)
        others = list(dict.fromkeys(f"'{shown(one)}'" for one in circle if one != need))
        if need.closed:
            message = f"this may write into '{text}', and it waits until nothing can write into '{text}' any more"
        else:
            message = f"'{text}' waits for itself"
        message += f", by way of {', '.join(others[:3])}" if others else ""
        self.mistakes.append(Mistake(writer.at, f"{message}: this would wait for ever"))


def shown(need: Need) -> str:
    return need.symbol.name + "".join(need.path)


def order(need: Need) -> tuple[int, Path, bool]:
    return need.symbol.at.start, need.path, need.closed


def indices_of(node: Expression) -> Iterator[Expression]:
    while isinstance(node, Index | Member):
        if isinstance(node, Index):
            yield node.index
        node = node.base
