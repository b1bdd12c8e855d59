"""The program as a tree, the same for both languages.

A parser makes the tree; the checker fills what is marked *checked* below; evaluation only reads. Nodes compare by identity. Must not know:
text, values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

if TYPE_CHECKING:
    from amfs.swift.source import At
    from amfs.swift.types import Type


# ── names ──────────────────────────────────────────────────────────────────────────────────────────


class TypeName(Struct, eq=False):
    """A type as written. ``name`` "array", "bag" or "union" has ``parts``: (element, key or None), (element,), the alternatives."""

    at: At
    name: str
    parts: tuple[TypeName | None, ...] = ()


class Symbol(Struct, eq=False):
    """A variable. ``scope``: the one that makes it, ``slot``: its number there (*checked*). A scope is a function's body, or the body of a
    loop: whatever exists several times."""

    name: str
    type: Type
    at: At
    scope: Scope
    slot: int
    assigned: bool = False  # somewhere in the program; a mapped variable that is not assigned is an input
    is_parameter: bool = False
    mapping: Mapping | None = None

    @property
    def is_listed(self) -> bool:
        """An array that the program fills, and whose mapper lists all its files."""
        return self.assigned and self.mapping is not None and self.mapping.mapper.replace("_", "").lower() in LISTING


#: Mappers that list the files of an array, whether they are there or not.
LISTING = frozenset({"fixedarraymapper", "arraymapper", "csvmapper", "ext", "extmapper"})


class Scope(Struct, eq=False):
    """``parent``: the scope around it; None: the program's, which has the globals, and is around every function."""

    parent: Scope | None
    symbols: list[Symbol] = field(default_factory=list)


# ── expressions ────────────────────────────────────────────────────────────────────────────────────


class _Typed(Struct, eq=False, kw_only=True):
    type: Type | None = None  # checked; of a call with several outputs that of the first, without any None


class Expression(_Typed, eq=False):
    at: At


class Literal(Expression, eq=False):
    """int, float, str or bool."""

    value: Any


class Name(Expression, eq=False):
    name: str
    symbol: Symbol | None = None  # checked


class Index(Expression, eq=False):
    """``base[index]``."""

    base: Expression
    index: Expression


class Member(Expression, eq=False):
    """``base.name``; with Swift/K's ``base[*].name`` ``star`` is set."""

    base: Expression
    name: str
    star: bool = False


class Unary(Expression, eq=False):
    """``-`` or ``!``."""

    operator: str
    operand: Expression


class Binary(Expression, eq=False):
    """``left`` and ``right`` have been converted if necessary (*checked*: ``Convert``). ``meaning`` (*checked*): "int", "float", "string",
    "boolean": of what kind the operation is; for ``%`` with a tuple "format", for ``/`` of strings "path"."""

    operator: str
    left: Expression
    right: Expression
    meaning: str = ""


class Convert(Expression, eq=False):
    """Made by the checker, where int becomes float, or a value of a subtype one of its base (then ``operand`` as it is)."""

    operand: Expression


class Tuple(Expression, eq=False):
    """``(a, b)`` on the right of ``%``, or of a multiple assignment."""

    items: list[Expression]


class ArrayLiteral(Expression, eq=False):
    """``[1, 2]``, or with ``keys`` ``{"a": 1}``."""

    items: list[Expression]
    keys: list[Expression] | None = None


class Range(Expression, eq=False):
    """``[first : last : step]``, inclusive."""

    first: Expression
    last: Expression
    step: Expression | None


class Call(Expression, eq=False):
    """Also ``S(1, "x")`` for a struct (``function`` is then None, ``type`` the struct). ``arguments`` (*checked*): in the order of the
    parameters, defaults filled in, names resolved; further ones belong to the variable parameter."""

    name: str
    arguments: list[Expression]
    named: list[tuple[str, Expression]] = field(default_factory=list)
    annotations: list[Annotation] = field(default_factory=list)
    function: Function | None = None  # checked: the overload that fits


# ── statements ─────────────────────────────────────────────────────────────────────────────────────


class Annotation(Struct, eq=False):
    """``@name``, ``@name=value`` (or with arguments: ``@location=f(x)`` has the call as value)."""

    at: At
    name: str
    value: Expression | None = None


class Mapping(Struct, eq=False):
    """``<"name">``: ``mapper`` is "" and ``name`` the expression; else ``<mapper; key=value, …>``."""

    at: At
    mapper: str
    name: Expression | None = None
    parameters: list[tuple[str, Expression]] = field(default_factory=list)


class Statement(Struct, eq=False):
    at: At


class Block(Statement, eq=False):
    """Statements side by side. ``scope`` (*checked*): its own, if it is the body of a function or a loop; else None: its variables are in
    the scope around."""

    statements: list[Statement]
    scope: Scope | None = None
    declares: list[Symbol] = field(default_factory=list)  # checked: variables that live here, parameters not


class Declare(Statement, eq=False):
    """``T name <mapping> = value;``: one variable. The checker also makes one, without a type name, for an undeclared target."""

    type_name: TypeName | None
    name: str
    mapping: Mapping | None = None
    value: Expression | None = None
    is_global: bool = False
    symbol: Symbol | None = None  # checked


class Assign(Statement, eq=False):
    """``targets = values;``: one value for each target, or a call that has as many outputs. Targets are ``Name``, ``Index``, ``Member``.
    ``append``: ``+=`` of a bag, ``<<`` of an array with automatic keys. ``outputs``: which output of the call each target takes, by
    name."""

    targets: list[Expression]
    values: list[Expression]
    append: bool = False
    outputs: list[str] | None = None


class Evaluate(Statement, eq=False):
    """A call for its own sake."""

    call: Call


class If(Statement, eq=False):
    condition: Expression
    then: Block
    otherwise: Block | None


class Switch(Statement, eq=False):
    subject: Expression
    cases: list[tuple[int, Block]]
    default: Block | None


class Foreach(Statement, eq=False):
    """``foreach value, key in container { }``. ``value_symbol`` and ``key_symbol`` (*checked*) are in the body's scope."""

    value: str
    key: str
    container: Expression
    body: Block
    annotations: list[Annotation] = field(default_factory=list)
    value_symbol: Symbol | None = None
    key_symbol: Symbol | None = None


class For(Statement, eq=False):
    """Swift/T's loop: each round has new variables. ``updates`` are evaluated in the scope of the round that ends; a variable that the body
    assigns for the next round is not in it. ``finals`` (*checked*): variables around the loop, which get the last value of one of its
    variables."""

    starts: list[Declare]
    condition: Expression
    updates: list[tuple[str, Expression]]
    body: Block
    annotations: list[Annotation] = field(default_factory=list)
    finals: list[tuple[Name, Symbol]] = field(default_factory=list)


class Iterate(Statement, eq=False):
    """``iterate i { } until (condition);``: the condition is in the body's scope. ``counter_symbol`` (*checked*)."""

    counter: str
    body: Block
    until: Expression
    counter_symbol: Symbol | None = None


class Wait(Statement, eq=False):
    items: list[Expression]
    body: Block
    deep: bool = False


class Chain(Statement, eq=False):
    """``first => second => …``: each begins when all that the one before assigns is there."""

    statements: list[Statement]


# ── definitions ────────────────────────────────────────────────────────────────────────────────────


class Formal(Struct, eq=False):
    """A parameter or an output. ``variable``: ``T... x``."""

    at: At
    type_name: TypeName
    name: str
    default: Expression | None = None
    variable: bool = False
    symbol: Symbol | None = None  # checked
    type: Type | None = None  # checked


class Word(Struct, eq=False):
    """One part of an app's command line. ``kind``: "word"; "file name" (``@x``, ``@filename(x)``) and "file names" (one word for each)
    demand a file or files. Arrays are flattened, in the order of their keys."""

    at: At
    expression: Expression
    kind: str = "word"


class App(Struct, eq=False):
    """The command line of an app function. ``profile``: Swift/K's ``profile "ns:key" = value;``."""

    at: At
    words: list[Word]
    stdin: Expression | None = None
    stdout: Expression | None = None
    stderr: Expression | None = None
    profile: list[tuple[str, Expression]] = field(default_factory=list)


class Function(Struct, eq=False):
    """A function of the program (``body`` or ``app``), or of the library (``builtin``). Evaluation of an app waits for all inputs, whether
    its command line mentions them or not."""

    at: At
    name: str
    outputs: list[Formal]
    inputs: list[Formal]
    body: Block | None = None
    app: App | None = None
    builtin: Builtin | None = None
    annotations: list[Annotation] = field(default_factory=list)
    type_parameters: list[str] = field(default_factory=list)
    scope: Scope | None = None  # checked: of inputs, outputs and the body
    called: bool = False  # checked: by a statement that runs under no condition
    refused: str = ""  # why it cannot be called here


class Builtin(Struct, eq=False):
    """A library function. ``call`` gets plain values (``builtins.py`` says which). ``asks``: it is a generator that yields requests
    (``requests.py``) and is sent the answers. ``names_only``: it does not wait for files among its arguments, only for their names.
    ``placed``: the value of ``@location``, if the call has one, is a further argument."""

    call: Callable[..., Any]
    asks: bool = False
    names_only: bool = False
    placed: bool = False


class TypeDefinition(Struct, eq=False):
    """``fields`` None: another name or a subtype of ``base``."""

    at: At
    name: str
    fields: list[tuple[TypeName, str]] | None
    base: TypeName | None = None
    alias: bool = False


class Program(Struct, eq=False):
    """``language``: "swift-t" or "swift-k". ``remarks``: constructs that have no meaning here, told once for each kind. ``usage``: what -h
    prints, if the script declares its arguments."""

    language: str
    at: At
    functions: list[Function]
    types: list[TypeDefinition]
    body: Block
    remarks: list[tuple[At, str]] = field(default_factory=list)
    usage: str = ""


def variables(node: Any) -> Iterator[Symbol]:
    """All that an expression names."""
    todo = [node]
    while todo:
        one = todo.pop()
        if isinstance(one, Name) and one.symbol is not None:
            yield one.symbol
        elif isinstance(one, list | tuple):
            todo += one
        elif isinstance(one, Expression):
            todo += (getattr(one, name) for name in one.__struct_fields__ if name not in ("at", "type", "function", "annotations"))
