"""The part that the parsers of both languages share: the parser's tables, expressions, types, and messages about what was expected.

lark parses (LALR), and trees are made by callbacks while it does, so that nesting costs no recursion. Must not know: statements, the
meaning of names.
"""

from __future__ import annotations

import pkgutil
import re
from collections.abc import Callable, Sequence
from typing import Any

import lark

from amfs.patterns import pattern
from amfs.swift.hints import hint
from amfs.swift.source import At, Mistake, Source
from amfs.swift.tree import (
    Annotation,
    ArrayLiteral,
    Binary,
    Call,
    Expression,
    Formal,
    Index,
    Literal,
    Member,
    Name,
    Range,
    Tuple,
    TypeName,
    Unary,
)

#: Ranks of the operators; those of the highest bind first.
RANKS = {"||": 1, "&&": 2, "==": 3, "!=": 3, "<": 4, ">": 4, "<=": 4, ">=": 4, "+": 5, "-": 5, "*": 6, "/": 6, "%/": 6, "%%": 6, "%": 6}
RANKS["**"] = 7

#: Terminals in words, for messages.
WORDS = {
    "ID": "a name",
    "INT": "an integer",
    "FLOAT": "a number",
    "STRING": "a string",
    "MULTILINE": "a string",
    "ARITHMETIC": "an operator",
    "COMPARISON": "an operator",
    "ELLIPSIS": "'...'",
    "BAG": "a type",
    "REDIRECTION": "'@stdout='",
    "WORD_ANNOTATION": "an annotation",
    "TIGHT_BRACKET": "'['",
    "TIGHT_DOT": "'.'",
    "TIGHT_PARENTHESIS": "'('",
    "PLAIN_REDIRECTION": "'stdout='",
    "AT_CALL": "a function",
    "$END": "the end of the program",
}

#: Dimensions of an array.
MARKS_MAX = 100

#: An expression can begin with each of these.
STARTS_EXPRESSION = {"ID", "INT", "STRING", "LPAR", "LSQB"}

_ESCAPE = pattern(r"\\(x[0-9a-fA-F]{1,2}|[0-7]{1,3}|.)", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v", "0": "\0", "\n": ""}


class EmptyIndex(Expression, eq=False):
    """``base[]``, as in a type. Never in a finished tree."""

    base: Expression


class Named:
    """``name=value`` among arguments."""

    __slots__ = ("at", "name", "value")

    def __init__(self, at: At, name: str, value: Expression) -> None:
        self.at, self.name, self.value = at, name, value


class Documented:
    """``item : "text"``, which arguments of the command line have."""

    __slots__ = ("at", "item", "text")

    def __init__(self, at: At, item: Any, text: str) -> None:
        self.at, self.item, self.text = at, item, text


class Items:
    """The text between parentheses: arguments or parameters."""

    __slots__ = ("at", "items")

    def __init__(self, at: At, items: Sequence[Any]) -> None:
        self.at, self.items = at, items


class PlainCall:
    """A call, or the name and parameters of a definition: the text after it tells which."""

    __slots__ = ("annotations", "at", "items", "name")

    def __init__(self, at: At, name: str, items: Items) -> None:
        self.at, self.name, self.items = at, name, items
        self.annotations: list[Annotation] = []


class Builder:
    """Makes nodes: lark calls the method with the name of the rule, with all tokens and nodes of it. One for each text."""

    #: Characters that mean nothing after a backslash.
    refused_escapes: frozenset[str] = frozenset()

    def __init__(self, source: Source) -> None:
        self.source = source
        self.remarks: list[tuple[At, str]] = []

    # ── places ─────────────────────────────────────────────────────────────────────────────────────

    def at(self, first: Any, last: Any) -> At:
        start: int = first.start_pos if isinstance(first, lark.Token) else first.at.start  # type: ignore[assignment]
        end: int = last.end_pos if isinstance(last, lark.Token) else last.at.end  # type: ignore[assignment]
        return At(self.source, start, end)

    def mistake(self, where: Any, message: str, hint: str = "") -> Mistake:
        return Mistake(self.at(where, where), message, hint)

    # ── expressions ────────────────────────────────────────────────────────────────────────────────

    def operators(self, *parts: Any) -> Expression:
        """``a + b * c`` as a list: made a tree by the ranks. No recursion: an expression may have 100,000 operators."""
        operands: list[Expression] = [self.value(parts[0])]
        pending: list[str] = []

        def combine() -> None:
            right, left = operands.pop(), operands.pop()
            operands.append(Binary(self.at(left, right), pending.pop(), left, right))

        for at in range(1, len(parts), 2):
            operator = str(parts[at])
            rank = RANKS[operator]
            while pending and (RANKS[pending[-1]] > rank or (RANKS[pending[-1]] == rank and operator != "**")):
                combine()
            pending.append(operator)
            operands.append(self.value(parts[at + 1]))
        while pending:
            combine()
        return operands[0]

    def unary(self, operator: lark.Token, operand: Expression) -> Expression:
        operand = self.value(operand)
        at = self.at(operator, operand)
        if operator == "-" and isinstance(operand, Literal) and type(operand.value) in (int, float):
            return Literal(at, -operand.value)
        return Unary(at, str(operator), operand)

    def value(self, node: Any) -> Any:
        """The node, which must be an expression that has a value."""
        if isinstance(node, EmptyIndex):
            raise Mistake(At(self.source, node.at.end - 1, node.at.end), "an index is missing between '[' and ']'")
        return self.finish(node) if isinstance(node, PlainCall) else node

    def finish(self, plain: PlainCall) -> Call:
        """Its items are arguments."""
        call = Call(plain.at, plain.name, [], annotations=plain.annotations)
        for item in plain.items.items:
            if isinstance(item, Named):
                call.named.append((item.name, item.value))
            elif isinstance(item, Formal):
                hint = f"to call {call.name}, leave the type out"
                raise Mistake(item.at, "a parameter with its type stands where an argument is expected", hint)
            elif isinstance(item, Documented):
                raise self.no_documentation(item)
            elif call.named:
                raise Mistake(item.at, "an argument without a name stands after one with a name")
            else:
                call.arguments.append(self.value(item))
        return call

    def name(self, token: lark.Token) -> Expression:
        at = self.at(token, token)
        constant = self.constant(str(token))
        return Name(at, str(token)) if constant is None else Literal(at, constant)

    def constant(self, name: str) -> Any:
        """The value of a name that is a literal, or None."""
        return {"true": True, "false": False}.get(name)

    def integer(self, token: lark.Token) -> Expression:
        text = str(token)
        value = int(text, 0) if text[:2].lower() in ("0x", "0o") else int(text)
        negative = self.source.text[max(0, (token.start_pos or 0) - 20) : token.start_pos].rstrip().endswith("-")
        if value > (1 << 63) - (not negative):
            raise self.mistake(token, "integers have 64 bits: this one is too large")
        return Literal(self.at(token, token), value)

    def real(self, token: lark.Token) -> Expression:
        return Literal(self.at(token, token), float(token))

    def string(self, token: lark.Token) -> Expression:
        return Literal(self.at(token, token), self.text_of(token))

    def multiline(self, token: lark.Token) -> Expression:
        """Without the line break after the opening mark."""
        text = str(token)
        quoted = text.startswith('"""')
        start = 3 + (text[3:4] == "\n") if quoted else text.index("\n") + 1
        inner = text[start : -3 if quoted else -4]
        return Literal(self.at(token, token), self.long_text(inner, (token.start_pos or 0) + start))

    def long_text(self, text: str, start: int) -> str:
        """The text that a string of several lines stands for. ``start``: where it begins in the source."""
        return text

    def text_of(self, token: lark.Token) -> str:
        """The text that a string literal stands for."""
        return self.unescaped(str(token)[1:-1], (token.start_pos or 0) + 1)

    def unescaped(self, text: str, start: int) -> str:
        if "\\" not in text:
            return text

        def meaning(found: re.Match[str]) -> str:
            code = found[1]
            if code in _ESCAPES:
                return _ESCAPES[code]
            if code[0] in self.refused_escapes or (code == "x" and self.refused_escapes):
                at = At(self.source, start + found.start(), start + found.start() + 2)
                raise Mistake(at, f"'\\{code}' is no escape in a string", "for a backslash write two: '\\\\'")
            if code[0] == "x" and len(code) > 1:
                return chr(int(code[1:], 16))
            return chr(int(code, 8)) if code[0] in "01234567" else code

        return _ESCAPE.sub(meaning, text)

    def parenthesis(self, left: lark.Token, inner: Any, right: lark.Token) -> Expression:
        return self.value(inner)  # type: ignore[no-any-return]

    def tuple(self, left: lark.Token, first: Any, comma: lark.Token, rest: list[Expression], right: lark.Token) -> Expression:
        return Tuple(self.at(left, right), [self.value(first), *rest])

    def expressions(self, *parts: Any) -> list[Expression]:
        return [self.value(part) for part in parts[::2]]

    def array(self, left: lark.Token, *rest: Any) -> Expression:
        return ArrayLiteral(self.at(left, rest[-1]), rest[0] if len(rest) > 1 else [])

    def range(self, left: lark.Token, *rest: Any) -> Expression:
        parts = [self.value(part) for part in rest[::2]]
        return Range(self.at(left, rest[-1]), parts[0], parts[1], parts[2] if len(parts) > 2 else None)

    def map(self, left: lark.Token, *rest: Any) -> Expression:
        keys = [self.value(part) for part in rest[:-1:4]]
        items = [self.value(part) for part in rest[2:-1:4]]
        return ArrayLiteral(self.at(left, rest[-1]), items, keys)

    def index(self, base: Any, left: lark.Token, index: Any, right: lark.Token) -> Expression:
        if isinstance(base, EmptyIndex):  # a type so far; the base of a value is looked at by value()
            return Index(self.at(base, right), base, self.value(index))
        return Index(self.at(base, right), self.value(base), self.value(index))

    def empty_index(self, base: Expression, left: lark.Token, right: lark.Token) -> Expression:
        return EmptyIndex(self.at(base, right), base)

    def member(self, base: Any, dot: lark.Token, name: lark.Token) -> Expression:
        return Member(self.at(base, name), self.value(base), str(name))

    def call(self, name: lark.Token, left: lark.Token, *rest: Any) -> PlainCall:
        items = rest[0] if len(rest) > 1 else Items(self.at(left, rest[-1]), [])
        return PlainCall(self.at(name, rest[-1]), str(name), items)

    def items(self, *parts: Any) -> Items:
        return Items(self.at(parts[0], parts[-1]), parts[::2])

    def named(self, name: lark.Token, equals: lark.Token, value: Any) -> Named:
        return Named(self.at(name, value), str(name), self.value(value))

    def documented(self, item: Any, colon: lark.Token, text: lark.Token) -> Documented:
        return Documented(self.at(item, text), item, self.text_of(text))

    def no_documentation(self, item: Documented) -> Mistake:
        return Mistake(item.at, "a text that documents stands only in arguments(…) and flags(…), after a type and a name")

    # ── types and parameters ───────────────────────────────────────────────────────────────────────

    def formal(self, type_: Any, *rest: Any) -> Formal:
        parts = list(rest)
        variable = isinstance(parts[0], lark.Token) and parts[0].type == "ELLIPSIS"
        if variable:
            parts.pop(0)
        name, default = parts.pop(0), None
        if len(parts) > 1 and isinstance(parts[-2], lark.Token):
            default = self.value(parts[-1])
            parts = parts[:-2]
        at = self.at(type_, rest[-1])
        return Formal(at, self.marked(self.type_name(type_), parts), str(name), default, variable)

    def bag(self, opening: lark.Token, element: Any, closing: lark.Token) -> TypeName:
        return TypeName(self.at(opening, closing), "bag", (self.type_name(element),))

    def union(self, first: Any, bar: lark.Token, second: Any) -> TypeName:
        one, other = self.type_name(first), self.type_name(second)
        parts = one.parts if one.name == "union" else (one,)
        return TypeName(self.at(first, second), "union", (*parts, other))

    def mark(self, left: lark.Token, *rest: Any) -> TypeName:
        """``[]`` or ``[string]`` after a name: an array of "", which the caller fills in."""
        key = self.type_name(rest[0]) if len(rest) > 1 else None
        return TypeName(self.at(left, rest[-1]), "array", (None, key))

    def marked(self, element: TypeName, marks: Sequence[TypeName]) -> TypeName:
        """``element name[][string]``: the first mark is the outermost array."""
        if len(marks) > MARKS_MAX:
            raise Mistake(marks[0].at, f"this type has more than {MARKS_MAX} dimensions")
        for mark in reversed(marks):
            element = TypeName(element.at, "array", (element, mark.parts[1]))
        return element

    def type_name(self, node: Any) -> TypeName:
        """A type that was read as an expression."""
        marks: list[TypeName] = []
        whole = node
        while True:
            if isinstance(node, TypeName):
                return self.marked(node, marks[::-1])
            if isinstance(node, Name):
                return self.marked(TypeName(node.at, node.name), marks[::-1])
            if isinstance(node, EmptyIndex):
                marks.append(TypeName(node.at, "array", (None, None)))
                node = node.base
            elif isinstance(node, Index):
                marks.append(TypeName(node.at, "array", (None, self.type_name(node.index))))
                node = node.base
            else:
                raise self.no_type(whole)

    def no_type(self, node: Any) -> Mistake:
        return Mistake(node.at, "a type is expected here")

    def formals(self, items: Items) -> list[Formal]:
        """Its items are parameters."""
        found = []
        for item in items.items:
            if isinstance(item, Name) and item.name == "void":
                item = Formal(item.at, TypeName(item.at, "void"), "")
            if isinstance(item, Documented):
                raise self.no_documentation(item)
            if not isinstance(item, Formal):
                where = item.at
                meant = f"write 'int {item.name}', or another type" if isinstance(item, Name) else ""
                raise Mistake(where, "a parameter has a type and a name", meant)
            found.append(item)
        return found


# ── parsing ────────────────────────────────────────────────────────────────────────────────────────


class Syntax:
    """The parser of one language. ``grammars``: files of this package, read as one. ``builder``: its callbacks."""

    def __init__(self, grammars: Sequence[str], starts: Sequence[str], words: dict[str, str] | None = None) -> None:
        self._grammars = grammars
        self._starts = list(starts)
        self._words = WORDS | (words or {})
        self._lark: lark.Lark | None = None
        self.cache = ""  # a file for the tables, which take 0.4 s to make and 0.05 s to read; set by who knows files

    def _parser(self) -> lark.Lark:
        if self._lark is None:
            text = b"".join(pkgutil.get_data(__package__, name) or b"" for name in self._grammars).decode()
            self._lark = lark.Lark(
                text, parser="lalr", start=self._starts, keep_all_tokens=True, maybe_placeholders=False, transformer=_Callbacks(),
                cache=self.cache or False,
            )  # fmt: skip
        return self._lark

    def parse(self, builder: Builder, start: str) -> Any:
        """The result of the callback of ``start``. Raises ``Mistake``."""
        parser = self._parser()
        callbacks = parser.options.transformer
        assert isinstance(callbacks, _Callbacks)
        outer, callbacks.builder = callbacks.builder, builder  # an import parses while its importer is parsed
        try:
            return parser.parse(builder.source.text, start)
        except lark.UnexpectedInput as error:
            raise self._mistake(builder.source, error) from None
        finally:
            callbacks.builder = outer

    def _mistake(self, source: Source, error: lark.UnexpectedInput) -> Mistake:
        text = source.text
        machine = error.interactive_parser
        accepted = _accepted(machine)
        place = error.pos_in_stream or 0
        if text.startswith("/*", place):
            return Mistake(At(source, place, place + 2), "this comment has no end: '*/' is missing")
        if isinstance(error, lark.UnexpectedCharacters):
            start = error.pos_in_stream or 0
            at = At(source, start, start + 1)
            if text[start] == '"':
                line_end = text.find("\n", start)
                return Mistake(At(source, start, line_end if line_end > 0 else len(text)), "this string has no end: '\"' is missing")
            if text[start] in "'`":
                return Mistake(at, "strings stand between double quotes")
            if text[start] == "#":
                return Mistake(at, "'#' does not begin a comment here", "comments begin with //")
            meant = hint(text, at.start, at.end, _last_token_end(text, start), "")
            return Mistake(at, f"{text[start]!r} is not expected here" + self._wanted(accepted), meant)
        assert isinstance(error, lark.UnexpectedToken)
        token = error.token
        if token.type == "$END":
            end = _last_token_end(text, len(text))
            at = At(source, max(0, end - 1), max(1, end))
            order = ("RBRACE", "RPAR", "RSQB") if text[max(0, end - 1) : end] in (";", "}") else ("SEMICOLON", "RBRACE", "RPAR", "RSQB")
            missing = next((sign for sign in order if sign in accepted), "")
            if missing == "RBRACE" and (brace := _open_brace(text)) is not None:
                return Mistake(At(source, brace, brace + 1), "this '{' has no '}'")
            wanted = f": {self._said(missing)} is missing" if missing else self._wanted(accepted)
            return Mistake(at, "the program ends too early" + wanted)
        at = At(source, token.start_pos or 0, token.end_pos or 0)
        previous = _last_token_end(text, at.start)
        if "SEMICOLON" in accepted and (token.type in ("ID", "RBRACE") or "\n" in text[previous : at.start]):
            line_start = text.rfind("\n", 0, previous) + 1
            before = " ".join(text[line_start:previous].split())
            before = before if len(before) <= 40 else "…" + before[-39:]
            if token.type == "RBRACE" and before[-1:] in ("", ";", "}"):
                return Mistake(at, "this '}' closes nothing")
            meant = hint(text, at.start, at.end, previous, "")
            return Mistake(At(source, max(0, previous - 1), previous), f"a ';' is missing after '{before}'", meant)
        redirection = "@stdout=" if "REDIRECTION" in accepted else "stdout=" if "PLAIN_REDIRECTION" in accepted else ""
        meant = hint(text, at.start, at.end, previous, redirection)
        return Mistake(at, f"{str(token)[:40]!r} is not expected here" + self._wanted(accepted), meant)

    def _wanted(self, accepted: set[str]) -> str:
        if accepted >= STARTS_EXPRESSION:
            accepted = {sign for sign in accepted if sign in ("RPAR", "RSQB", "RBRACE", "SEMICOLON")}
            said = ["an expression", *sorted(self._said(sign) for sign in accepted)]
        else:
            said = sorted({self._said(sign) for sign in accepted})
        if not said or len(said) > 6:
            return ""
        listed = said[0] if len(said) == 1 else ", ".join(said[:-1]) + " or " + said[-1]
        return f": {listed} is expected"

    def _said(self, sign: str) -> str:
        if sign in self._words:
            return self._words[sign]
        pattern = next((terminal.pattern.value for terminal in self._parser().terminals if terminal.name == sign), sign)
        return f"'{pattern}'"


def _accepted(machine: Any) -> set[str]:
    return set(machine.accepts()) if machine is not None else set()


class _Callbacks:
    """Passes a rule on to the builder of the text that is being parsed, so that the tables are made once."""

    builder: Builder | None = None

    def __getattr__(self, name: str) -> Callable[[list[Any]], Any]:
        if name.startswith("_") or name.isupper() or name in ("transform", "visit_wrapper"):
            raise AttributeError(name)

        def callback(children: list[Any]) -> Any:
            return getattr(self.builder, name)(*children)

        return callback


#: Text that may hide a brace, and braces.
_BRACES = pattern(
    r'''"""(?:[^"]|"(?!""))*"""|^----[ \t]*\n(?:[^-]|-(?!---))*----|"(?:[^"\\\n]|\\.)*"|//[^\n]*|/\*(?:[^*]|\*(?!/))*\*/|[{}]''',
    re.DOTALL | re.MULTILINE,
)


def _open_brace(text: str) -> int | None:
    """Where the block begins that nothing ends: the first that ends at a line which is less indented than that of its beginning, if
    there is such a one, else the innermost that is open at the end."""

    def indent(at: int) -> int:
        line = text[text.rfind("\n", 0, at) + 1 : at + 1]
        return len(line) - len(line.lstrip(" \t"))

    begun: list[int] = []
    for found in _BRACES.finditer(text):
        if found[0] == "{":
            begun.append(found.start())
        elif found[0] == "}" and begun:
            start = begun.pop()
            first = not text[text.rfind("\n", 0, found.start()) + 1 : found.start()].strip()
            if first and begun and indent(found.start()) < indent(start):
                return start
    return begun[-1] if begun else None


_BLANK = pattern(r"(?:[ \t\f\r\n]+|//[^\n]*|/\*(?:[^*]|\*(?!/))*\*/)*")


def _last_token_end(text: str, offset: int) -> int:
    """Where the last token before the offset ends. Looks at a few lines only."""
    line = offset
    for _ in range(50):
        line = text.rfind("\n", 0, line)
        start = line + 1
        stripped = re.sub(r"//.*|/\*.*?\*/", lambda found: " " * len(found[0]), text[start:offset], flags=0).rstrip()
        if stripped or line < 0:
            return start + len(stripped)
    return offset
