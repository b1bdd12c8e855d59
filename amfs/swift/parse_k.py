"""Swift/K: from text to a tree. The part in common with Swift/T, which is most of it, is in parse_t.py.

The grammar is in grammar_common.lark and grammar_k.lark. Must not know: what names mean.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from lark import Token

from amfs.swift.parse_t import BuilderT, Definition, Header, Import, Redirection
from amfs.swift.source import At, Mistake
from amfs.swift.syntax import Items, Named, PlainCall, Syntax
from amfs.swift.tree import (
    App,
    Assign,
    Block,
    Call,
    Expression,
    Function,
    Index,
    Literal,
    Mapping,
    Member,
    Name,
    Statement,
    TypeDefinition,
    Word,
)

SYNTAX_K = Syntax(("grammar_common.lark", "grammar_k.lark"), ("start",))

#: Functions whose value is several words of a command line.
SEVERAL = ("filenames",)


class AtFile:
    """``@x``: the name of the file x. The text after it belongs to x: ``@x.y[1]``."""

    __slots__ = ("at", "inner")

    def __init__(self, at: At, inner: Expression) -> None:
        self.at, self.inner = at, inner


class Profile(NamedTuple):
    at: At
    key: str
    value: Expression


class OldApp(Statement, eq=False):
    """``app { … }``, all that the body of a procedure has."""

    app: App


class BuilderK(BuilderT):
    declares_arguments = False
    refused_escapes = frozenset()  # regular expressions have many

    def constant(self, name: str) -> Any:
        return {"true": True, "false": False}.get(name)

    def long_text(self, text: str, start: int) -> str:
        return text

    # ── expressions ────────────────────────────────────────────────────────────────────────────────

    def value(self, node: Any) -> Any:
        if isinstance(node, AtFile):
            return Call(node.at, "filename", [super().value(node.inner)])
        return super().value(node)

    def index(self, base: Any, left: Token, index: Any, right: Token) -> Any:
        if isinstance(base, AtFile):
            return AtFile(self.at(base, right), Index(self.at(base.inner, right), base.inner, self.value(index)))
        return super().index(base, left, index, right)

    def member(self, base: Any, dot: Token, name: Token) -> Any:
        if isinstance(base, AtFile):
            return AtFile(self.at(base, name), Member(self.at(base.inner, name), base.inner, str(name)))
        return super().member(base, dot, name)

    def star(self, base: Any, left: Token, star: Token, right: Token, dot: Token, name: Token) -> Any:
        if isinstance(base, AtFile):
            return AtFile(self.at(base, name), Member(self.at(base.inner, name), base.inner, str(name), star=True))
        return Member(self.at(base, name), self.value(base), str(name), star=True)

    def all_elements(self, base: Any, left: Token, star: Token, right: Token) -> Any:
        """``a[*]`` is ``a``."""
        return base

    def import_module(self, word: Token, *rest: Any) -> Definition:
        self.imports.append(Import(self.at(word, rest[-1]), "".join(rest), True))
        return Definition(self.at(word, rest[-1]), "an import")

    def at_name(self, sign: Token, name: Token) -> AtFile:
        return AtFile(self.at(sign, name), Name(self.at(name, name), str(name)))

    def at_call(self, sign: Token, name: Token, *rest: Any) -> PlainCall:
        """``@f(x)`` is an old way to write ``f(x)``."""
        return self.call(name, *rest)

    def at_parenthesis(self, sign: Token, left: Token, inner: Any, right: Token) -> Any:
        inner = self.value(inner)
        return AtFile(self.at(sign, right), inner)

    # ── statements ─────────────────────────────────────────────────────────────────────────────────

    def tuple_assign(self, targets: Items, equals: Token, values: list[Expression]) -> Statement:
        """``(x=out, y=other) = f();`` takes outputs by their names."""
        named = [item for item in targets.items if isinstance(item, Named)]
        if not named:
            return super().tuple_assign(targets, equals, values)
        outputs = [item.value.name for item in named if isinstance(item.value, Name)]
        if len(outputs) < len(targets.items):
            raise Mistake(targets.at, "all variables say which output they take, or none: '(x=out, y=other) = f();'")
        names: list[Expression] = [Name(item.at, item.name) for item in named]
        return Assign(self.at(targets, values[-1]), names, values, outputs=outputs)

    def mapper(self, left: Token, name: Token, semicolon: Token, *rest: Any) -> Mapping:
        return Mapping(self.at(left, rest[-1]), str(name), None, list(rest[:-1:2]))

    def mapper_parameter(self, name: Token, equals: Token, value: Any) -> tuple[str, Expression]:
        return str(name), self.value(value)

    def mapping(self, left: Token, name: Any, right: Token) -> Mapping:
        if isinstance(name, Name) and (name.name.lower().endswith("mapper") or name.name == "ext"):
            return Mapping(self.at(left, right), name.name)
        return super().mapping(left, name, right)

    def new_type(self, word: Token, name: Token, *base: Any) -> Definition:
        at = self.at(word, name)
        self.types.append(TypeDefinition(at, str(name), None, self.type_name(base[0]) if base else None))
        return Definition(at, "the definition of a type")

    def namespace(self, word: Token, *rest: Token) -> Definition:
        """Of old scripts, for types of XML."""
        at = self.at(word, rest[-1])
        self.remarks.append((at, "a namespace has no meaning here"))
        return Definition(at, "a namespace")

    def struct(self, word: Token, name: Token, left: Token, *rest: Any) -> Definition:
        definition = super().struct(word, name, left, *rest)
        if not self.types[-1].fields:
            self.types[-1].fields = None
        return definition

    def old_app(self, word: Token, left: Token, app: App, right: Token) -> Statement:
        return OldApp(self.at(word, right), app)

    def function(self, header: Header, body: Block) -> Definition:
        old = [one for one in body.statements if isinstance(one, OldApp)]
        if not old:
            self.functions.append(self.define(header, body))
        elif len(body.statements) > 1:
            raise Mistake(old[0].at, "a procedure with an app has nothing else in its body")
        else:
            self.functions.append(self.define(header, app=old[0].app))
        return Definition(header.at, "the definition of a procedure")

    def app_function(self, *parts: Any) -> Definition:
        _word, *rest = parts
        outputs = self.formals(rest.pop(0)) if isinstance(rest[0], Items) else []
        name, inputs, _left, app, _right = rest
        self.functions.append(Function(self.at(name, inputs), str(name), outputs, self.formals(inputs), app=app))
        return Definition(self.at(name, inputs), "the definition of an app")

    # ── app bodies ─────────────────────────────────────────────────────────────────────────────────

    def command(self, *parts: Any) -> App:
        parts = tuple(one for part in parts for one in (part if isinstance(part, list) else [part]))
        app = super().command(*parts)
        app.profile = [(part.key, part.value) for part in parts if isinstance(part, Profile)]
        first = app.words[0]
        if isinstance(first.expression, Name) and first.kind == "word":
            first.expression = Literal(first.at, first.expression.name)
        return app

    def profile(self, word: Token, key: Token, equals: Token, value: Any, semicolon: Token) -> Profile:
        at, text = self.at(word, semicolon), self.text_of(key)
        space = text.partition(":")[0]
        if space.lower() != "env":
            self.remarks.append((at, f"profiles of {space} have no meaning here"))
        return Profile(at, text, self.value(value))

    def redirection(self, word: Token, values: Any) -> Redirection:
        if len(values) > 1:
            raise Mistake(values[1].at, "this is not expected here: a redirection names one file")
        return Redirection(self.at(word, values[0]), str(word)[:-1].strip().removeprefix("@"), values[0].expression)

    def word(self, *parts: Any) -> Any:
        """In "x -1" there are two words; "x - 1" and "x-1" are a subtraction."""
        starts = [0, *(at + 1 for at in range(1, len(parts), 2) if parts[at] == "-" and self._is_sign(parts[at], parts[at + 1]))]
        words = []
        for start, end in zip(starts, [*(at - 1 for at in starts[1:]), len(parts)], strict=True):
            pieces = list(parts[start:end])
            if start:
                minus = parts[start - 1]
                pieces[0] = Literal(self.at(minus, pieces[0]), -pieces[0].value)
            words.append(self.single_word(pieces[0]) if len(pieces) == 1 else self._computed(pieces))
        return words

    def _is_sign(self, minus: Token, number: Any) -> bool:
        text, start, end = self.source.text, minus.start_pos, minus.end_pos
        assert start is not None and end is not None
        is_number = isinstance(number, Literal) and isinstance(number.value, int | float)
        return is_number and text[start - 1].isspace() and not text[end].isspace()

    def _computed(self, pieces: list[Any]) -> Word:
        expression = self.operators(*(piece if at % 2 else self.plain(piece) for at, piece in enumerate(pieces)))
        return Word(expression.at, expression)

    def negative(self, minus: Token, number: Token) -> Word:
        return self.negative_word(minus, number)

    def plain(self, piece: Any) -> Any:
        return piece.expression if isinstance(piece, Word) else piece

    def single_word(self, piece: Any) -> Word:
        if isinstance(piece, Word):
            return piece
        if isinstance(piece, AtFile):
            return Word(piece.at, self.value(piece.inner), "file name")
        expression = self.value(piece)
        if isinstance(expression, Call) and expression.name in SEVERAL and len(expression.arguments) == 1:
            return Word(expression.at, expression.arguments[0], "file names")
        if isinstance(expression, Call) and expression.name == "filename" and len(expression.arguments) == 1:
            return Word(expression.at, expression.arguments[0], "file name")
        return Word(expression.at, expression)
