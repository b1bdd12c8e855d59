"""A small interpreter of checked Swift/T programs, to compare with: it tries all statements in turn until nothing changes any more.

It shares the tree with amfs and nothing else. Results and printed lines are those of the language; their order is not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from typing import Any

from amfs.swift import tree
from amfs.swift.types import Array, Bag, Struct, Type

UNSET = object()


class NotYet(Exception):
    """Something is not known."""


class Wrong(Exception):
    """The program is."""


class Var:
    def __init__(self) -> None:
        self.value: Any = UNSET


class Arr:
    """An array or a bag. ``root``: the one with which it closes."""

    def __init__(self, type: Array | Bag, root: Arr | None) -> None:
        self.type = type
        self.root = root or self
        self.items: dict[Any, Any] = {}


class Rec:
    def __init__(self, type: Struct, root: Arr | None) -> None:
        self.fields = {name: make(field, root) for name, field in type.fields}


def make(type: Type | None, root: Arr | None = None) -> Any:
    if isinstance(type, Array | Bag):
        return Arr(type, root)
    return Rec(type, root) if isinstance(type, Struct) else Var()


def roots_of(thing: Any) -> Iterator[Arr]:
    if isinstance(thing, Arr):
        yield thing.root
    elif isinstance(thing, Rec):
        for field in thing.fields.values():
            yield from roots_of(field)


class Env:
    """``next``: values that a for loop's body assigns for the next round."""

    def __init__(self, parent: Env | None = None) -> None:
        self.parent = parent
        self.things: dict[tree.Symbol, Any] = {}
        self.next: dict[tree.Symbol, Any] = {}

    def find(self, symbol: tree.Symbol | None, write: bool = False) -> Any:
        env: Env | None = self
        while env is not None:
            for things in (env.next, env.things) if write else (env.things,):
                if symbol in things:
                    return things[symbol]  # type: ignore[index]
            env = env.parent
        return None


class Job:
    """``run`` raises ``NotYet`` and is tried again, or returns whether it is done. ``writes``: the arrays that it may write until then."""

    def __init__(self, run: Callable[[dict[Any, Any]], bool], writes: Callable[[], Iterable[Arr]]) -> None:
        self.run = run
        self.writes = writes
        self.memo: dict[Any, Any] = {}


def text(value: Any) -> str:
    if isinstance(value, bool):
        return str(int(value))
    if not isinstance(value, float):
        return str(value)
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Inf" if value > 0 else "-Inf"
    digits = Decimal(repr(value))
    exponent = digits.adjusted()
    if value and not -5 < exponent < 17:
        mantissa = str(digits.scaleb(-exponent).normalize())
        return f"{mantissa}e{exponent:+d}"
    plain = f"{digits:f}"
    return plain if "." in plain else plain + ".0"


def divided(a: float, b: float) -> float:
    if b:
        return a / b
    return math.nan if a == 0 or math.isnan(a) else math.copysign(math.inf, a) * math.copysign(1, b)


def truncated(a: int, b: int) -> int:
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: divided(a, b) if not isinstance(a, str) else f"{a}/{b}",
    "**": lambda a, b: float(a) ** b,
    "%/": truncated,
    "%%": lambda a, b: a - b * truncated(a, b),
    "%": lambda a, b: a - b * truncated(a, b),
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    ">": lambda a, b: a > b,
    "<=": lambda a, b: a <= b,
    ">=": lambda a, b: a >= b,
    "&&": lambda a, b: bool(a and b),
    "||": lambda a, b: bool(a or b),
}

LIBRARY: dict[str, Callable[..., Any]] = {
    "size": len,
    "sum": lambda items: sum(items if isinstance(items, list) else items.values()),
    "strlen": len,
    "max": max,
    "min": min,
    "abs": abs,
    "itof": float,
    "contains": lambda items, key: key in items,
    "strcat": lambda *parts: "".join(map(text, parts)),
    "sleep": lambda seconds: None,
    "makeVoid": lambda: None,
    "ternary": lambda condition, a, b: a if condition else b,
}


class Reference:
    """``lines``: its output."""

    def __init__(self, program: tree.Program) -> None:
        self.lines: list[str] = []
        self.jobs: list[Job] = []
        self.changes = 0
        self.open: set[Arr] = set()  # some job may write them; or they are new
        self.globals = Env()
        self.written: dict[tree.Statement, list[tree.Symbol]] = {}
        self.block(program.body, self.globals)

    def run(self) -> None:
        """Raises ``Wrong``."""
        idle = 0
        while self.jobs and idle < 2:
            before, jobs, self.jobs = self.changes, self.jobs, []
            self.open = {root for job in jobs for root in job.writes()}
            for job in jobs:
                try:
                    done = job.run(job.memo)
                except NotYet:
                    done = False
                if done:
                    self.changes += 1
                else:
                    self.jobs.append(job)
            idle = 0 if self.changes > before else idle + 1
        if self.jobs:
            raise Wrong("nothing can go on")

    def add(self, run: Callable[[dict[Any, Any]], bool], writes: Callable[[], Iterable[Arr]] = tuple) -> None:
        self.changes += 1
        self.jobs.append(Job(run, writes))

    # ── things ─────────────────────────────────────────────────────────────────────────────────────

    def make(self, type: Type | None, root: Arr | None = None) -> Any:
        made = make(type, root)
        self.open.update(roots_of(made))
        return made

    def set(self, var: Var, value: Any) -> None:
        if var.value is not UNSET:
            raise Wrong("assigned twice")
        var.value = value
        self.changes += 1

    def insert(self, array: Arr, key: Any, thing: Any) -> None:
        if isinstance(array.type, Bag):
            key = len(array.items)
        if key in array.items:
            raise Wrong("an element is assigned twice")
        array.items[key] = thing
        self.changes += 1

    def closed(self, array: Arr) -> None:
        if array.root in self.open:
            raise NotYet

    def plain(self, thing: Any) -> Any:
        if isinstance(thing, Var):
            if thing.value is UNSET:
                raise NotYet
            return thing.value
        if isinstance(thing, Rec):
            return {name: self.plain(field) for name, field in thing.fields.items()}
        self.closed(thing)
        items = {key: self.plain(item) for key, item in thing.items.items()}
        return list(items.values()) if isinstance(thing.type, Bag) else items

    def fill(self, target: Any, source: Any) -> None:
        """``target`` becomes a copy of ``source`` as that gets its values."""
        if isinstance(target, Var):
            self.add(lambda memo: self.set(target, self.plain(source)) or True)  # type: ignore[func-returns-value]
        elif isinstance(target, Rec):
            for name, field in target.fields.items():
                self.fill(field, source.fields[name])
        else:
            copied: set[Any] = set()

            def copy(memo: dict[Any, Any]) -> bool:
                for key in [key for key in source.items if key not in copied]:
                    copied.add(key)
                    self.insert(target, key, source.items[key])
                self.closed(source)
                return True

            self.add(copy, lambda: (target.root,))

    # ── expressions ────────────────────────────────────────────────────────────────────────────────

    def value(self, node: tree.Expression, env: Env, memo: dict[Any, Any]) -> Any:
        if isinstance(node, tree.Literal):
            return node.value
        if isinstance(node, tree.Convert):
            value = self.value(node.operand, env, memo)
            return float(value) if isinstance(value, int) else value
        if isinstance(node, tree.Unary):
            value = self.value(node.operand, env, memo)
            return -value if node.operator == "-" else not value
        if isinstance(node, tree.Binary):
            left, right = self.value(node.left, env, memo), self.value(node.right, env, memo)
            if node.operator == "+":
                return text(left) + text(right) if isinstance(left, str) or isinstance(right, str) else left + right
            return OPERATIONS[node.operator](left, right)
        return self.plain(self.thing(node, env, memo))

    def thing(self, node: tree.Expression, env: Env, memo: dict[Any, Any]) -> Any:
        """The variable, or the part of one, that an expression stands for; a new one for others."""
        if isinstance(node, tree.Name):
            return env.find(node.symbol)
        if isinstance(node, tree.Index):
            array, key = self.thing(node.base, env, memo), self.value(node.index, env, memo)
            if key not in array.items:
                self.closed(array)
                raise Wrong("an element that nobody assigns")
            return array.items[key]
        if isinstance(node, tree.Member):
            return self.thing(node.base, env, memo).fields[node.name]
        if node not in memo:
            memo[node] = self.new_thing(node, env, memo)
        return memo[node]

    def new_thing(self, node: tree.Expression, env: Env, memo: dict[Any, Any]) -> Any:
        if isinstance(node, tree.Call):
            return self.call(node, env, None)[0]
        if isinstance(node, tree.Range):
            first, last = self.value(node.first, env, memo), self.value(node.last, env, memo)
            step = self.value(node.step, env, memo) if node.step is not None else 1
            made = make(node.type)
            while first <= last if step > 0 else first >= last:
                made.items[len(made.items)] = self.known(first)
                first += step
            return made
        made = make(node.type)
        if isinstance(node, tree.ArrayLiteral):
            keys = range(len(node.items)) if node.keys is None else [self.value(key, env, memo) for key in node.keys]
            for key, item in zip(keys, node.items, strict=True):
                made.items[key] = self.argument(item, env)
        else:
            self.add(lambda memo: self.set(made, self.value(node, env, memo)) or True)  # type: ignore[func-returns-value]
        return made

    def known(self, value: Any) -> Var:
        var = Var()
        var.value = value
        return var

    def argument(self, node: tree.Expression, env: Env) -> Any:
        """A thing at once, whatever has to be waited for."""
        if isinstance(node, tree.Name | tree.Call | tree.ArrayLiteral):
            return self.thing(node, env, {})
        made = self.make(node.type)
        if isinstance(node, tree.Index | tree.Member | tree.Range):
            self.add(lambda memo: self.fill(made, self.thing(node, env, memo)) or True, lambda: roots_of(made))  # type: ignore[func-returns-value]
        else:
            self.add(lambda memo: self.set(made, self.value(node, env, memo)) or True)  # type: ignore[func-returns-value]
        return made

    def call(self, node: tree.Call, env: Env, outputs: list[Any] | None) -> list[Any]:
        function = node.function
        if function is None:  # a struct
            made = outputs[0] if outputs else self.make(node.type)
            for (_, field), argument in zip(made.fields.items(), node.arguments, strict=True):
                self.fill(field, self.argument(argument, env))
            return [made]
        if outputs is None:
            outputs = [self.make(node.type if function.builtin else one.type) for one in function.outputs] or [Var()]
        given = [self.argument(argument, env) for argument in node.arguments]
        if function.builtin is not None:
            self.library(node.name, given, outputs[0])
            return outputs
        assert function.body is not None
        inner = Env(self.globals)
        if function.inputs and function.inputs[-1].variable:
            rest = make(function.inputs[-1].symbol.type)  # type: ignore[union-attr]
            last = len(function.inputs) - 1
            rest.items = dict(enumerate(given[last:]))
            given[last:] = [rest]
        for formal, thing in [*zip(function.inputs, given, strict=True), *zip(function.outputs, outputs, strict=False)]:
            assert formal.symbol is not None
            inner.things[formal.symbol] = thing
        self.block(function.body, inner)
        return outputs

    def library(self, name: str, given: list[Any], output: Var) -> None:
        def work(memo: dict[Any, Any]) -> bool:
            if name in ("size", "contains"):
                self.closed(given[0])
                self.set(output, LIBRARY[name](given[0].items, *map(self.plain, given[1:])))
                return True
            values = [self.plain(one) for one in given]
            if name == "trace":
                self.lines.append("trace: " + ",".join(map(text, values)))
            self.set(output, LIBRARY[name](*values) if name != "trace" else None)
            return True

        self.add(work)

    # ── statements ─────────────────────────────────────────────────────────────────────────────────

    def block(self, block: tree.Block, env: Env) -> None:
        for symbol in block.declares:
            env.things[symbol] = self.make(symbol.type)
        for statement in block.statements:
            self.statement(statement, env)

    def statement(self, statement: tree.Statement, env: Env) -> None:
        if isinstance(statement, tree.Block):
            self.block(statement, Env(env))
        elif isinstance(statement, tree.Chain):  # order changes no result
            for one in statement.statements:
                self.statement(one, env)
        elif isinstance(statement, tree.Evaluate):
            self.call(statement.call, env, None)
        elif isinstance(statement, tree.Declare):
            if statement.value is not None:
                self.assign(env.things[statement.symbol], statement.value, env)  # type: ignore[index]
        else:
            work: Callable[[Any, Env, dict[Any, Any]], bool] = getattr(self, "do_" + statement.__class__.__name__.lower())
            symbols = self.written_by(statement)
            self.add(
                lambda memo: work(statement, env, memo),
                lambda: [root for one in symbols for root in roots_of(env.find(one, True))],
            )  # fmt: skip

    def written_by(self, statement: tree.Statement) -> list[tree.Symbol]:
        """Variables of all assignments in it; those that live in it too, which nobody finds."""
        found = self.written.get(statement)
        if found is None:
            found = []
            todo: list[Any] = [statement]
            while todo:
                one = todo.pop()
                if isinstance(one, tree.Assign):
                    for target in one.targets:
                        while not isinstance(target, tree.Name):
                            target = target.base  # type: ignore[attr-defined]
                        assert target.symbol is not None
                        found.append(target.symbol)
                elif isinstance(one, tree.Block | tree.Chain):
                    todo += one.statements
                elif isinstance(one, tree.If):
                    todo += [one.then, one.otherwise]
                elif isinstance(one, tree.Switch):
                    todo += [*(block for _, block in one.cases), one.default]
                elif isinstance(one, tree.Foreach | tree.For | tree.Iterate | tree.Wait):
                    todo.append(one.body)
            self.written[statement] = found
        return found

    def assign(self, target: Any, value: tree.Expression, env: Env) -> None:
        if isinstance(value, tree.Call):
            self.call(value, env, [target])
        elif isinstance(target, Var):
            self.add(lambda memo: self.set(target, self.value(value, env, memo)) or True)  # type: ignore[func-returns-value]
        else:
            self.fill(target, self.argument(value, env))

    def do_assign(self, node: tree.Assign, env: Env, memo: dict[Any, Any]) -> bool:
        keys = [self.keys(target, env, memo) for target in node.targets]  # may not be known yet: nothing has been done
        if node.append:
            bag, value = env.find(node.targets[0].symbol), node.values[0]  # type: ignore[attr-defined]
            if isinstance(value.type, Array) and not isinstance(bag.type.element, Array):
                self.fill(bag, self.argument(value, env))
            else:
                self.insert(bag, None, self.argument(value, env))
            return True
        targets = [self.target(target, env, list(steps)) for target, steps in zip(node.targets, keys, strict=True)]
        if len(targets) > 1 and len(node.values) == 1:
            call = node.values[0]
            assert isinstance(call, tree.Call)
            self.call(call, env, targets)
        else:
            for target, value in zip(targets, node.values, strict=True):
                self.assign(target, value, env)
        return True

    def keys(self, target: tree.Expression, env: Env, memo: dict[Any, Any]) -> list[Any]:
        found = []
        while not isinstance(target, tree.Name):
            if isinstance(target, tree.Index):
                found.append(self.value(target.index, env, memo))
            target = target.base  # type: ignore[attr-defined]
        return found

    def target(self, target: tree.Expression, env: Env, keys: list[Any], whole: bool = True) -> Any:
        """The thing to assign; ``keys``: of its indices, from right to left."""
        if isinstance(target, tree.Name):
            return env.find(target.symbol, True)
        if isinstance(target, tree.Member):
            return self.target(target.base, env, keys, False).fields[target.name]
        assert isinstance(target, tree.Index)
        key = keys.pop(0)
        array: Arr = self.target(target.base, env, keys, False)
        if whole or key not in array.items:
            self.insert(array, key, self.make(array.type.element, None if whole else array.root))
        return array.items[key]

    def do_if(self, node: tree.If, env: Env, memo: dict[Any, Any]) -> bool:
        block = node.then if self.value(node.condition, env, memo) else node.otherwise
        if block is not None:
            self.block(block, Env(env))
        return True

    def do_switch(self, node: tree.Switch, env: Env, memo: dict[Any, Any]) -> bool:
        subject = self.value(node.subject, env, memo)
        block = next((block for label, block in node.cases if label == subject), node.default)
        if block is not None:
            self.block(block, Env(env))
        return True

    def do_wait(self, node: tree.Wait, env: Env, memo: dict[Any, Any]) -> bool:
        for item in node.items:
            thing = self.thing(item, env, memo)
            if isinstance(thing, Var) or node.deep:
                self.plain(thing)
            elif isinstance(thing, Arr):
                self.closed(thing)
        self.block(node.body, Env(env))
        return True

    def do_foreach(self, node: tree.Foreach, env: Env, memo: dict[Any, Any]) -> bool:
        array: Arr = self.thing(node.container, env, memo)
        begun: set[Any] = memo.setdefault("begun", set())
        for key in [key for key in array.items if key not in begun]:
            begun.add(key)
            inner = Env(env)
            inner.things[node.value_symbol] = array.items[key]  # type: ignore[index]
            if node.key_symbol is not None:
                inner.things[node.key_symbol] = self.known(key)
            self.block(node.body, inner)
            self.changes += 1
        self.closed(array)
        return True

    def do_for(self, node: tree.For, env: Env, memo: dict[Any, Any]) -> bool:
        if "round" not in memo:
            memo["round"] = Env(env)
            for start in node.starts:
                memo["round"].things[start.symbol] = self.argument(start.value, env)  # type: ignore[arg-type]
        inner: Env = memo["round"]
        if not self.value(node.condition, inner, memo.setdefault(inner, {})):
            return True
        following = Env(env)
        for start in node.starts:
            following.things[start.symbol] = inner.next[start.symbol] = self.make(start.symbol.type)  # type: ignore[index, union-attr]
        self.block(node.body, inner)
        updates = dict(node.updates)
        for start in node.starts:
            if start.name in updates:
                self.assign(following.things[start.symbol], updates[start.name], inner)  # type: ignore[index]
        memo["round"] = following
        self.changes += 1
        return False

    def do_iterate(self, node: tree.Iterate, env: Env, memo: dict[Any, Any]) -> bool:
        if "round" in memo:
            number, inner = memo["round"]
            if self.value(node.until, inner, memo.setdefault(inner, {})):
                return True
        else:
            number = -1
        inner = Env(env)
        inner.things[node.counter_symbol] = self.known(number + 1)  # type: ignore[index]
        self.block(node.body, inner)
        memo["round"] = number + 1, inner
        self.changes += 1
        return False


def printed(program: tree.Program) -> list[str] | None:
    """All lines, in some order; None: the program ends in an error."""
    reference = Reference(program)
    try:
        reference.run()
    except (Wrong, ZeroDivisionError):
        return None
    return reference.lines
