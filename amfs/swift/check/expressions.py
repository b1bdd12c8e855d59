"""Types of expressions: every method gives the node that stands there afterwards, with its type. Recursion is pure Python (swift/depth.py).

Must not know: statements.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from amfs.swift.builtins import Library
from amfs.swift.check.calls import Calls
from amfs.swift.check.fitting import common, converted, fit_node
from amfs.swift.check.names import KEYS, Branches, Frame, Functions, Types
from amfs.swift.source import At, Mistake, suggestion
from amfs.swift.tree import (
    ArrayLiteral,
    Binary,
    Call,
    Expression,
    Index,
    Literal,
    Member,
    Name,
    Range,
    Symbol,
    Tuple,
    Unary,
)
from amfs.swift.types import ANY, AUTO, BOOLEAN, FLOAT, INT, LOCATION, STRING, Array, Struct, Type, base_of

NUMBERS = (INT, FLOAT)

HINT_TUPLE = "several values in parentheses stand after '%', or where several variables are assigned"

#: Arrays in arrays: types are compared level by level.
ARRAYS_MAX = 100

#: Part of a location -> the function of the library that tells it.
LOCATION_PARTS = {"rank": "rankFromLocation", "strictness": "locationStrictness", "accuracy": "locationAccuracy"}

#: A part of a variable: ".field", "[key]" of a literal key, "[]" of any other.
Path = tuple[str, ...]


class Read(NamedTuple):
    symbol: Symbol
    path: Path
    at: At
    branches: Branches


def place(node: Expression) -> tuple[Name, Path]:
    """The variable at the root, and the part of it."""
    parts: list[str] = []
    while not isinstance(node, Name):
        if isinstance(node, Member):
            parts.append("." + node.name)
        elif isinstance(node, Index):
            parts.append(f"[{node.index.value!r}]" if isinstance(node.index, Literal) else "[]")
        else:
            raise Mistake(node.at, "a variable is expected here")
        node = node.base
    return node, tuple(reversed(parts))


def too_deep(type: Type) -> bool:
    levels = 0
    while isinstance(type, Array) and levels <= ARRAYS_MAX:
        type, levels = type.element, levels + 1
    return levels > ARRAYS_MAX


def rooted(node: Expression) -> bool:
    while isinstance(node, Index | Member):
        node = node.base
    return isinstance(node, Name)


class Expressions:
    """``declare_late``: called for a name that a statement further down declares by assigning to it."""

    def __init__(self, language: str, library: Library, types: Types, functions: Functions, mistakes: list[Mistake]) -> None:
        self.k = language == "swift-k"
        self.truths = (BOOLEAN, ANY) if self.k else (BOOLEAN, INT, ANY)
        self.types = types
        self.mistakes = mistakes
        self.calls = Calls(self, functions)
        self.calls.keywords_are_optional = not self.k
        self.reads: list[Read] = []
        self.declare_late: Callable[[Frame, str], Symbol | None] = lambda frame, name: None
        self._constants = {name: (type, value) for type, name, value in library.constants}
        self._methods: dict[type, Callable[[Any, Frame], Expression]] = {
            Literal: self.literal,
            Name: self.variable,
            Index: self.part,
            Member: self.part,
            Unary: self.unary,
            Binary: self.binary,
            Tuple: self.tuple,
            ArrayLiteral: self.array,
            Range: self.range,
            Call: self.call,
        }

    def check(self, node: Expression, frame: Frame) -> Expression:
        """The node to take in its place. A mistake in it is told, and its type is then ANY."""
        known = node.type is not None
        if isinstance(node, Tuple) and not known:
            self.mistakes.append(Mistake(node.at, "one value is wanted here, and these are several", HINT_TUPLE))
        node = self.check_whole(node, frame)
        if not known and isinstance(node, Call) and node.function is not None and len(node.function.outputs) != 1:
            count = len(node.function.outputs)
            gives = f"{node.name} gives {count} values, and one is wanted here" if count else f"{node.name} gives no value"
            self.mistakes.append(Mistake(node.at, gives))
            node.type = ANY
        return node

    def check_whole(self, node: Expression, frame: Frame) -> Expression:
        """The same for a call of which all outputs are taken, or none."""
        if node.type is not None:  # a default value, or checked when a name was looked up
            return node
        try:
            node = self._methods[type(node)](node, frame)
        except Mistake as mistake:
            self.mistakes.append(mistake)
            node.type = ANY
        assert node.type is not None
        return node

    def value(self, node: Expression, frame: Frame, wanted: Type, what: str) -> Expression:
        """Checked, and made a ``wanted``; else a mistake is told that begins with ``what``."""
        node = self.check(node, frame)
        return self.fitted(node, wanted, what)

    def fitted(self, node: Expression, wanted: Type, what: str) -> Expression:
        self.expect(node, wanted)
        assert node.type is not None
        if fit_node(node, wanted, {}) is None:
            hint = "convert it with toint(…) or round it" if (node.type, wanted) == (FLOAT, INT) else ""
            self.mistakes.append(Mistake(node.at, f"{what} is of type {wanted}, and this is of type {node.type}", hint))
            return node
        return converted(node, wanted)

    def expect(self, node: Expression, wanted: Type) -> None:
        """Give an expression without a type of its own the wanted one."""
        if isinstance(node, Call):
            if node.type == ANY and node.function is not None and len(node.function.outputs) == 1:
                node.type = wanted
        elif isinstance(node, ArrayLiteral) and isinstance(wanted, Array) and not node.items:
            node.type = wanted

    # ── leaves ─────────────────────────────────────────────────────────────────────────────────────

    def literal(self, node: Literal, frame: Frame) -> Expression:
        node.type = {bool: BOOLEAN, int: INT, float: FLOAT, str: STRING}[type(node.value)]
        return node

    def variable(self, node: Name, frame: Frame) -> Expression:
        symbol = self.symbol(node, frame)
        if symbol is None:
            constant = self.constant(node)
            if constant is None:
                raise self.unknown(node, frame)
            return constant
        node.symbol, node.type = symbol, symbol.type
        self.reads.append(Read(symbol, (), node.at, frame.branches))
        return node

    def symbol(self, node: Name, frame: Frame) -> Symbol | None:
        holder = frame.holder(node.name)
        if holder is None:
            return None
        return holder.names.get(node.name) or self.declare_late(holder, node.name)

    def constant(self, node: Name) -> Expression | None:
        found = self._constants.get(node.name)
        if found is None:
            return None
        literal = Literal(node.at, found[1])
        literal.type = self.types.get(found[0])
        return literal

    def unknown(self, node: Name, frame: Frame) -> Mistake:
        hint = suggestion(node.name, [*frame.visible(), *self._constants])
        outer = self.hidden(node.name)
        if outer is not None:
            hint = f"{node.name} of line {outer.at.line} is not visible in functions: declare it 'global const', or give it as an argument"
        elif self.calls.exists(node.name):
            hint = f"{node.name} is a function: call it with {node.name}(…)"
        return Mistake(node.at, f"there is no variable {node.name!r} here", hint)

    def hidden(self, name: str) -> Symbol | None:
        """A variable of the program that functions do not see."""
        return None

    # ── parts of variables ─────────────────────────────────────────────────────────────────────────

    def part(self, node: Index | Member, frame: Frame) -> Expression:
        variable = rooted(node)
        if not variable:
            node.base = self.check(node.base, frame)
        if isinstance(node, Member) and node.name in LOCATION_PARTS:
            type_ = self.reference(node.base, frame) if variable else node.base.type
            if type_ == LOCATION:
                return self.check(Call(node.at, LOCATION_PARTS[node.name], [node.base]), frame)
        if not variable:
            self.step(node, frame)
            return node
        self.reference(node, frame)
        root, path = place(node)
        assert root.symbol is not None
        self.reads.append(Read(root.symbol, path, node.at, frame.branches))
        return node

    def reference(self, node: Expression, frame: Frame) -> Type:
        """The type of a part of a variable that is read or assigned. Not counted as read."""
        chain: list[Index | Member] = []
        inner = node
        while isinstance(inner, Index | Member):
            chain.append(inner)
            inner = inner.base
        assert isinstance(inner, Name)
        symbol = self.symbol(inner, frame)
        if symbol is None:
            raise self.unknown(inner, frame)
        inner.symbol, inner.type = symbol, symbol.type
        for one in reversed(chain):
            self.step(one, frame)
        assert node.type is not None
        return node.type

    def step(self, node: Index | Member, frame: Frame) -> None:
        """The base has its type."""
        assert node.base.type is not None
        base = base_of(node.base.type)
        if base == ANY:
            if isinstance(node, Index):
                node.index = self.check(node.index, frame)
            node.type = ANY
        elif isinstance(node, Index):
            node.index = self.check(node.index, frame)
            if not isinstance(base, Array):
                raise Mistake(node.at, f"a value of type {base} has no elements")
            assert node.index.type is not None
            if base_of(node.index.type) not in (base.key, ANY) and base.key not in (ANY, AUTO):
                if fit_node(node.index, base.key, {}) is None:
                    raise Mistake(node.index.at, f"the keys of this array are of type {base.key}, and this is of type {node.index.type}")
                node.index = converted(node.index, base.key)
            node.type = base.element
        elif node.star or (self.k and isinstance(base, Array)):
            node.star = True
            element = base.element if isinstance(base, Array) else None
            field = element.field(node.name) if isinstance(element, Struct) else None
            if field is None or not isinstance(base, Array):
                raise Mistake(node.at, "[*] stands after an array of a type with fields, and before one of them")
            node.type = Array(field, base.key)
        else:
            if not isinstance(base, Struct):
                raise Mistake(node.at, f"a value of type {base} has no fields")
            field = base.field(node.name)
            if field is None:
                hint = suggestion(node.name, [name for name, _ in base.fields])
                raise Mistake(node.at, f"type {base.name} has no field {node.name!r}", hint)
            node.type = field

    # ── operators ──────────────────────────────────────────────────────────────────────────────────

    def unary(self, node: Unary, frame: Frame) -> Expression:
        node.operand = self.check(node.operand, frame)
        type_ = base_of(node.operand.type or ANY)
        if node.operator == "-":
            if type_ not in (*NUMBERS, ANY):
                raise Mistake(node.at, f"'-' needs a number, and this is of type {type_}")
            node.type = type_
        else:
            if type_ not in self.truths:
                raise Mistake(node.at, f"'!' needs a boolean, and this is of type {type_}")
            node.type = BOOLEAN
        return node

    def binary(self, node: Binary, frame: Frame) -> Expression:
        # a chain a + b + c + … leans to the left: no recursion along it
        chain = [node]
        while isinstance(chain[-1].left, Binary) and chain[-1].left.type is None:
            chain.append(chain[-1].left)
        chain[-1].left = self.check(chain[-1].left, frame)
        for one in reversed(chain):
            several = isinstance(one.right, Tuple) and one.operator == "%"
            one.right = self.check_whole(one.right, frame) if several else self.check(one.right, frame)
            try:
                self.operation(one)
            except Mistake as mistake:
                self.mistakes.append(mistake)
                one.type = ANY
        return node

    def operation(self, node: Binary) -> None:
        left, right = base_of(node.left.type or ANY), base_of(node.right.type or ANY)
        operator = node.operator
        both = (left, right)
        numbers = left in (*NUMBERS, ANY) and right in (*NUMBERS, ANY)
        if operator in ("&&", "||"):
            if left not in self.truths or right not in self.truths:
                raise self.wrong(node)
            node.meaning, node.type = "boolean", BOOLEAN
        elif operator in ("==", "!="):
            self.comparison(node, left, right, (INT, FLOAT, STRING, BOOLEAN, ANY))
        elif operator in ("<", ">", "<=", ">="):
            self.comparison(node, left, right, (INT, FLOAT, STRING, ANY) if self.k else (INT, FLOAT, ANY))
        elif operator == "%" and (left == STRING or (left == ANY and not numbers)):
            node.meaning, node.type = "format", STRING
        elif operator in ("%", "%%", "%/"):
            if left not in (INT, ANY) or right not in (INT, ANY):
                raise self.wrong(node, "this operator is for integers" if numbers else "")
            node.operator = "%%" if operator == "%" else operator
            node.meaning, node.type = "int", INT
        elif operator == "+" and STRING in both:
            if any(one not in (STRING, INT, FLOAT, BOOLEAN, ANY) for one in both):
                raise self.wrong(node)
            node.meaning, node.type = "string", STRING
        elif operator == "/" and STRING in both and not self.k:
            if any(one not in (STRING, ANY) for one in both):
                raise self.wrong(node, "'/' joins two strings as paths")
            node.meaning, node.type = "path", STRING
        elif not numbers:
            raise self.wrong(node)
        elif operator in ("/", "**") or FLOAT in both:
            node.left, node.right = converted(node.left, FLOAT), converted(node.right, FLOAT)
            node.meaning, node.type = "float", FLOAT
        else:
            node.meaning, node.type = "int", INT

    def comparison(self, node: Binary, left: Type, right: Type, allowed: tuple[Type, ...]) -> None:
        if left not in allowed or right not in allowed:
            raise self.wrong(node, "it compares numbers" if left == right == STRING else "")
        if {left, right} == {INT, FLOAT}:
            node.left, node.right = converted(node.left, FLOAT), converted(node.right, FLOAT)
        elif left != right and ANY not in (left, right):
            raise self.wrong(node)
        known = base_of((node.left if left != ANY else node.right).type or ANY)
        node.meaning, node.type = str(known), BOOLEAN

    def wrong(self, node: Binary, hint: str = "") -> Mistake:
        left, right = node.left.type, node.right.type
        at = At(node.at.source, node.at.start, node.at.end)
        return Mistake(at, f"'{node.operator}' does not go with {left} and {right}", hint)

    # ── several values ─────────────────────────────────────────────────────────────────────────────

    def tuple(self, node: Tuple, frame: Frame) -> Expression:
        node.items = [self.check(item, frame) for item in node.items]
        node.type = ANY
        return node

    def struct(self, node: ArrayLiteral, frame: Frame) -> Expression | None:
        """``{field: value, …}`` of Swift/K; None: it is an array with keys."""
        keys = node.keys or []
        names = [one.name for one in keys if isinstance(one, Name)]
        if not names or len(names) < len(keys):
            return None
        known = [one for name in dict.fromkeys(self.types.names()) if isinstance(one := self.types.get(name), Struct)]
        fitting = [one for one in known if {name for name, _ in one.fields} == set(names)]
        if not fitting:
            return None
        if len(fitting) > 1:
            given = " or ".join(sorted(one.name for one in fitting))
            raise Mistake(node.at, f"this may be of type {given}: they have the same fields", "assign the fields one by one")
        named = [(name, self.check(item, frame)) for name, item in zip(names, node.items, strict=True)]
        return self.calls.construct(Call(node.at, fitting[0].name, [], named=named), fitting[0])

    def array(self, node: ArrayLiteral, frame: Frame) -> Expression:
        made = self.struct(node, frame) if self.k else None
        if made is not None:
            return made
        node.items = [self.check(item, frame) for item in node.items]
        element = common([item.type or ANY for item in node.items])
        if element is None:
            first = node.items[0].type
            other = next(item for item in node.items if common([first or ANY, item.type or ANY]) is None)
            raise Mistake(other.at, f"the items of an array have one type: the first is of type {first}, and this is of type {other.type}")
        node.items = [converted(item, element) for item in node.items]
        key: Type = INT
        if node.keys is not None:
            node.keys = [self.check(one, frame) for one in node.keys]
            key = common([one.type or ANY for one in node.keys]) or ANY
            if key == ANY and node.keys:
                raise Mistake(node.at, "the keys of an array have one type")
            if node.keys and base_of(key) not in KEYS:
                raise Mistake(node.keys[0].at, f"a value of type {key} cannot be a key")
            self.same_keys(node.keys)
        node.type = Array(element, key)
        if too_deep(node.type):
            raise Mistake(At(node.at.source, node.at.start, node.at.start + 1), f"arrays nest more than {ARRAYS_MAX} deep here")
        return node

    def same_keys(self, keys: list[Expression]) -> None:
        seen = set()
        for one in keys:
            if isinstance(one, Literal):
                if one.value in seen:
                    raise Mistake(one.at, f"the key {one.value!r} stands here a second time")
                seen.add(one.value)

    def range(self, node: Range, frame: Frame) -> Expression:
        parts = [node.first, node.last] + ([] if node.step is None else [node.step])
        parts = [self.check(part, frame) for part in parts]
        for part in parts:
            if base_of(part.type or ANY) not in (*NUMBERS, ANY):
                raise Mistake(part.at, f"a range needs numbers, and this is of type {part.type}")
        element = FLOAT if any(base_of(part.type or ANY) == FLOAT for part in parts) else INT
        parts = [converted(part, element) for part in parts]
        node.first, node.last, node.step = parts[0], parts[1], parts[2] if len(parts) > 2 else None
        if isinstance(node.step, Literal) and node.step.value == 0:
            raise Mistake(node.step.at, "the step of a range must not be 0")
        node.type = Array(element)
        return node

    def call(self, node: Call, frame: Frame) -> Expression:
        return self.calls.check(node, frame)


