"""Swift/T: from text to a tree.

The grammar is in grammar_common.lark and grammar_t.lark. Must not know: what names mean.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from lark import Token

from amfs.swift.command_line import CommandLine, is_declaration
from amfs.swift.hints import WORDS as FOREIGN_WORDS
from amfs.swift.leaf_python import python_leaf
from amfs.swift.source import At, Mistake, Source
from amfs.swift.syntax import Builder, Items, PlainCall, Syntax
from amfs.swift.tree import (
    Annotation,
    App,
    ArrayLiteral,
    Assign,
    Block,
    Chain,
    Declare,
    Evaluate,
    Expression,
    For,
    Foreach,
    Formal,
    Function,
    If,
    Index,
    Iterate,
    Literal,
    Mapping,
    Member,
    Name,
    Statement,
    Switch,
    Tuple,
    TypeDefinition,
    TypeName,
    Wait,
    Word,
)

SYNTAX = Syntax(("grammar_common.lark", "grammar_t.lark"), ("start", "signature"))

FOREIGN = "it is a leaf function in Tcl, and there is no Tcl here; write it as an app, or call Python by python_persist(code, expression)"


class Import:
    """``import a.b;`` (``name`` "a/b") or ``import "file";``."""

    __slots__ = ("at", "name", "quoted")

    def __init__(self, at: At, name: str, quoted: bool) -> None:
        self.at, self.name, self.quoted = at, name, quoted


class Redirection(NamedTuple):
    at: At
    stream: str
    value: Expression


class Definition(Statement, eq=False):
    """Where a definition stands, which is no statement. ``what``: in words. Never in a finished tree."""

    what: str


class Header:
    """Of a definition."""

    __slots__ = ("annotations", "at", "inputs", "name", "outputs", "type_parameters")

    def __init__(self, at: At, name: str, outputs: list[Formal], inputs: list[Formal]) -> None:
        self.at, self.name, self.outputs, self.inputs = at, name, outputs, inputs
        self.annotations: list[Annotation] = []
        self.type_parameters: list[str] = []


class BuilderT(Builder):
    """``imports``, ``functions``, ``types`` in the order of the text; ``main``: the blocks of main."""

    declares_arguments = True
    refused_escapes = frozenset(map(chr, range(128))) - frozenset("01234567x\"'\\?")

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self.imports: list[Import] = []
        self.functions: list[Function] = []
        self.types: list[TypeDefinition] = []
        self.bare: set[Statement] = set()  # variables that stand as links of a chain
        self.command_line = CommandLine()

    def constant(self, name: str) -> Any:
        return {"true": True, "false": False, "inf": float("inf"), "NaN": float("nan")}.get(name)

    def long_text(self, text: str, start: int) -> str:
        return self.unescaped(text, start)

    # ── statements ─────────────────────────────────────────────────────────────────────────────────

    def start(self, *statements: Any) -> list[Statement]:
        declared = self.command_line.statements
        if declared:
            declared += self.command_line.accepting(declared[0].at)
        return [*declared, *(one for one in self.flat(statements) if not isinstance(one, Definition))]

    def inner(self, parts: Any) -> list[Statement]:
        """Statements of a block, which has no definitions."""
        statements = self.flat(parts)
        for one in statements:
            if isinstance(one, Definition):
                raise Mistake(one.at, f"{one.what} stands outside of all blocks", "move it to the top level of the script")
        return statements

    def flat(self, parts: Any) -> list[Statement]:
        found: list[Statement] = []
        for part in parts:
            if isinstance(part, list):
                found += part
            elif isinstance(part, Statement):
                found.append(part)
        return found

    def statement(self, *parts: Any) -> list[Statement]:
        """``a => b;``: links of one chain. ``x => b;``: all that follows waits for the variable."""
        statements = self.flat(parts)
        if statements and statements[-1] in self.bare:
            at = statements[-1].at
            raise Mistake(at, "a statement is expected: a declaration, an assignment, a call", "to assign, write 'name = value;'")
        if sum(isinstance(part, Token) and part == "=>" for part in parts):
            for one in statements:
                if isinstance(one, Definition):
                    raise Mistake(one.at, "this cannot stand in a chain: it is no statement", "end it with ';'")
            if len(statements) < 2:
                raise Mistake(self.at(parts[0], parts[-1]), "'=>' stands between statements")
            return [Chain(self.at(statements[0], statements[-1]), statements)]
        return statements

    def block(self, left: Token, *rest: Any) -> Block:
        return Block(self.at(left, rest[-1]), self.inner(rest))

    def main(self, *parts: Any) -> Block:
        block: Block = parts[-1]
        for items in (part for part in parts if isinstance(part, Items)):
            block.statements[:0] = self.command_line.positional(items.at, items.items)
        return block

    def assign(self, targets: list[Expression], equals: Token, values: list[Expression]) -> Statement:
        if len(values) == 1 < len(targets) and isinstance(values[0], Tuple):
            values = values[0].items
        if len(values) not in (1, len(targets)):
            message = f"{len(targets)} variable{'s' * (len(targets) > 1)} cannot take {len(values)} values"
            raise Mistake(At(self.source, targets[0].at.start, values[-1].at.end), message)
        return Assign(self.at(targets[0], values[-1]), targets, values)

    def targets(self, *parts: Any) -> list[Expression]:
        return [self.target(part) for part in parts[::2]]

    def target(self, node: Any) -> Expression:
        node = self.value(node)
        base = node
        while isinstance(base, Index | Member):
            base = base.base
        if not isinstance(base, Name):
            raise Mistake(node.at, "this cannot be assigned to: only variables, their elements and fields can")
        return node  # type: ignore[no-any-return]

    def append(self, target: Any, operator: Token, value: Any) -> Statement:
        value = self.value(value)
        return Assign(self.at(target, value), [self.target(target)], [value], append=True)

    def parenthesised(self, left: Token, *rest: Any) -> Items:
        return Items(self.at(left, rest[-1]), rest[0].items if len(rest) > 1 else [])

    def tuple_assign(self, targets: Items, equals: Token, values: list[Expression]) -> Statement:
        if not targets.items:
            raise Mistake(targets.at, "a variable is expected between '(' and ')'")
        statements: list[Statement] = []
        names: list[Expression] = []
        for item in targets.items:  # (int a, b) = f(); declares a
            if isinstance(item, Formal) and item.default is None and not item.variable:
                statements.append(Declare(item.at, item.type_name, item.name))
                names.append(Name(item.at, item.name))
            else:
                names.append(self.target(item))
        assign = self.assign(names, equals, values)
        assign.at = self.at(targets, values[-1])
        return self.together([*statements, assign]) if statements else assign

    def together(self, statements: list[Statement]) -> Any:
        return statements

    def evaluate(self, node: Any) -> Statement:
        if isinstance(node, PlainCall) and self.declares_arguments and is_declaration(node):
            self.command_line.declare(node)
            return Definition(node.at, f"{node.name}(…), which declares what the command line gives,")
        if isinstance(node, PlainCall):
            return Evaluate(node.at, self.finish(node))
        node = self.value(node)
        wait = Wait(node.at, [node], Block(node.at, []))
        self.bare.add(wait)
        return wait

    def declare(self, type_: Any, *declarators: Any) -> list[Statement]:
        if isinstance(type_, PlainCall) and "\n" in self.source.text[type_.at.end : declarators[0].at.start]:
            raise self.no_semicolon(type_)  # f(x)⏎ y = 1;
        return self.declarations(type_, declarators, False)

    def declarations(self, type_: Any, declarators: Any, is_global: bool) -> list[Statement]:
        element = self.type_name(type_)
        found: list[Statement] = []
        for one in declarators[::2]:
            marks = [] if one.type_name is None else one.type_name.parts
            at = At(self.source, one.at.start, one.at.end)
            found.append(Declare(at, self.marked(element, marks), one.name, one.mapping, one.value, is_global))
        return found

    def declare_global(self, word: Token, *rest: Any) -> list[Statement]:
        rest = rest[1:] if isinstance(rest[0], Token) else rest
        return self.declarations(rest[0], rest[1:], True)

    def declarator(self, name: Token, *rest: Any) -> Declare:
        """``type_name``, if not None, has the marks as parts."""
        marks = [part for part in rest if isinstance(part, TypeName)]
        mapping = next((part for part in rest if isinstance(part, Mapping)), None)
        value = self.value(rest[-1]) if len(rest) > 1 and isinstance(rest[-2], Token) and rest[-2] == "=" else None
        at = self.at(name, rest[-1] if rest else name)
        return Declare(at, TypeName(at, "", tuple(marks)) if marks else None, str(name), mapping, value)

    def mapping(self, left: Token, name: Any, right: Token) -> Mapping:
        return Mapping(self.at(left, right), "", self.value(name))

    def update(self, *parts: Any) -> Statement:
        raise Mistake(self.at(parts[0], parts[-1]), "variables that can be updated (':=') are not supported", "assign to a new variable")

    def no_semicolon(self, node: Any) -> Mistake:
        text = " ".join(self.source.text[node.at.start : node.at.end].split())
        return Mistake(At(self.source, node.at.end - 1, node.at.end), f"a ';' is missing after '{text[-40:]}'")

    # ── control ────────────────────────────────────────────────────────────────────────────────────

    def if_statement(self, word: Token, left: Token, condition: Any, right: Token, then: Block, *rest: Any) -> Statement:
        otherwise = rest[1] if rest else None
        if isinstance(otherwise, If):
            otherwise = Block(otherwise.at, [otherwise])
        return If(self.at(word, right), self.value(condition), then, otherwise)

    def switch(self, word: Token, left: Token, subject: Any, right: Token, *rest: Any) -> Statement:
        cases, default, seen = [], None, set()
        for part in rest[1:-1]:
            if part[0] is None:
                default = part[1]
            elif part[0] in seen:
                raise Mistake(part[1].at, f"case {part[0]} stands here a second time")
            else:
                seen.add(part[0])
                cases.append(part)
        return Switch(self.at(word, right), self.value(subject), cases, default)

    def case(self, word: Token, *rest: Any) -> tuple[int, Block]:
        negative = rest[0] == "-"
        rest = rest[negative:]
        label = self.integer(rest[0])
        assert isinstance(label, Literal)
        statements = self.inner(rest[2:])
        return -label.value if negative else label.value, Block(self.at(word, rest[1]), statements)

    def default(self, word: Token, colon: Token, *statements: Any) -> tuple[None, Block]:
        return None, Block(self.at(word, colon), self.inner(statements))

    def foreach(self, *parts: Any) -> Statement:
        annotations, parts = self.annotated_parts(parts)
        word, value, *rest = parts
        key = str(rest[1]) if rest[0] == "," else ""
        container, body = self.value(parts[-2]), parts[-1]
        return Foreach(self.at(word, container), str(value), key, container, body, annotations)

    def annotated_parts(self, parts: Any) -> tuple[list[Annotation], Any]:
        return (parts[0], parts[1:]) if isinstance(parts[0], list) else ([], parts)

    def for_loop(self, *parts: Any) -> Statement:
        annotations, (word, _left, starts, _s, condition, _t, updates, right, body) = self.annotated_parts(parts)
        return For(self.at(word, right), starts, self.value(condition), updates, body, annotations)

    def for_starts(self, *starts: Any) -> list[Declare]:
        return list(starts[::2])

    def for_start(self, first: Any, second: Any, *rest: Any) -> Declare:
        if rest:
            return Declare(self.at(first, rest[0]), None, str(first), value=self.value(rest[0]))
        found: Declare = self.declarations(first, (second,), False)[0]  # type: ignore[assignment]
        if found.value is None:
            raise Mistake(found.at, f"the variable {found.name!r} of the loop needs a first value")
        return found

    def for_updates(self, *parts: Any) -> list[tuple[str, Expression]]:
        return [(str(name), self.value(value)) for name, value in zip(parts[::4], parts[2::4], strict=True)]

    def iterate(self, word: Token, counter: Token, body: Block, until: Token, left: Token, condition: Any, right: Token) -> Statement:
        return Iterate(self.at(word, counter), str(counter), body, self.value(condition))

    def wait(self, word: Token, *rest: Any) -> Statement:
        return Wait(self.at(word, rest[-2]), rest[-3], rest[-1], rest[0] == "deep")

    # ── definitions ────────────────────────────────────────────────────────────────────────────────

    def import_module(self, word: Token, *rest: Any) -> Definition:
        self.imports.append(Import(self.at(word, rest[-1]), "/".join(rest[::2]), False))
        return Definition(self.at(word, rest[-1]), "an import")

    def import_file(self, word: Token, name: Token) -> Definition:
        self.imports.append(Import(self.at(word, name), self.text_of(name), True))
        return Definition(self.at(word, name), "an import")

    def pragma(self, word: Token, *rest: Any) -> None:
        if rest[0] != "worktypedef":  # the annotation @dispatch says it all
            self.remarks.append((self.at(word, rest[0]), f"pragma {rest[0]} has no meaning here"))

    def new_type(self, word: Token, name: Token, base: Any = None) -> Definition:
        """Without a base it is a kind of file."""
        type_ = self.type_name(base) if base is not None else None
        self.types.append(TypeDefinition(self.at(word, name), str(name), None, type_, word == "typedef"))
        return Definition(self.at(word, name), "the definition of a type")

    def struct(self, word: Token, name: Token, left: Token, *rest: Any) -> Definition:
        fields: list[tuple[TypeName, str]] = []
        element: TypeName | None = None
        for part in rest:
            if isinstance(part, tuple):
                element, declarator = part
            elif isinstance(part, Declare):
                declarator = part
            else:
                continue
            assert element is not None
            if declarator.mapping or declarator.value:
                raise Mistake(declarator.at, "a field of a type has no value and no mapping")
            fields.append((self.marked(element, declarator.type_name.parts if declarator.type_name else ()), declarator.name))
        self.types.append(TypeDefinition(self.at(word, name), str(name), fields))
        return Definition(self.at(word, name), "the definition of a type")

    def field(self, type_: Any, declarator: Declare) -> tuple[TypeName, Declare]:
        return self.type_name(type_), declarator

    def header(self, *parts: Any) -> Header:
        annotations, parts = self.annotated_parts(parts)
        if isinstance(parts[0], PlainCall):
            call = parts[0]
            try:
                made = Header(call.at, call.name, [], self.formals(call.items))
            except Mistake:
                if call.name not in FOREIGN_WORDS:
                    raise
                at = call.at._replace(end=call.at.start + len(call.name))
                raise Mistake(at, f"{call.name!r} is not expected here", FOREIGN_WORDS[call.name]) from None
            made.annotations = call.annotations
            return made
        if len(parts) == 1:
            raise Mistake(parts[0].at, "a ';' is missing, or the parameters of a definition", "a definition is 'name(parameters) { … }'")
        type_parameters: list[str] = []
        if isinstance(parts[0], tuple):
            type_parameters, parts = list(parts[0]), parts[1:]
        outputs = self.formals(parts[0]) if isinstance(parts[0], Items) else []
        name = parts[-2]
        made = Header(self.at(name, parts[-1]), str(name), outputs, self.formals(parts[-1]))
        made.annotations, made.type_parameters = annotations, type_parameters
        return made

    def type_parameters(self, text: Token) -> tuple[str, ...]:
        return tuple(name.strip() for name in text[1:-1].split(","))

    def signature(self, header: Header) -> Function:
        return self.define(header)

    def define(self, header: Header, body: Block | None = None, app: App | None = None) -> Function:
        function = Function(header.at, header.name, header.outputs, header.inputs, body, app)
        function.annotations, function.type_parameters = header.annotations, header.type_parameters
        return function

    def function(self, header: Header, body: Block) -> Definition:
        self.functions.append(self.define(header, body))
        return Definition(header.at, "the definition of a function")

    def tcl_function(self, header: Header, *rest: Any) -> None:
        """Refused where it is called: many modules declare functions that a program does not use."""
        function = self.define(header)
        function.builtin = python_leaf(function, self._tcl(rest[-2])) if len(rest) > 1 and rest[-1] == "]" else None
        function.refused = "" if function.builtin else FOREIGN
        self.functions.append(function)

    def _tcl(self, text: Token) -> str:
        if text.type == "STRING":
            return self.text_of(text)
        found = self.multiline(text)
        assert isinstance(found, Literal)
        return str(found.value)

    def app_function(self, *parts: Any) -> Definition:
        annotations, (_word, *rest) = self.annotated_parts(parts)
        outputs = self.formals(rest.pop(0)) if isinstance(rest[0], Items) else []
        name, inputs, _left, app, _right = rest
        function = Function(self.at(name, inputs), str(name), outputs, self.formals(inputs), app=app)
        function.annotations = annotations
        self.functions.append(function)
        return Definition(function.at, "the definition of an app function")

    # ── app bodies ─────────────────────────────────────────────────────────────────────────────────

    def command(self, *parts: Any) -> App:
        words = [part for part in parts if isinstance(part, Word)]
        app = App(self.at(parts[0], parts[-1]), words)
        if not words:
            raise Mistake(app.at, "the program to run is missing")
        for part in parts:
            if isinstance(part, Redirection):
                if getattr(app, part.stream) is not None:
                    raise Mistake(part.at, f"{part.stream} stands here a second time")
                setattr(app, part.stream, part.value)
        return app

    def redirection(self, word: Token, value: Any) -> Redirection:
        return Redirection(self.at(word, value), str(word)[1:-1].strip(), value.expression)

    def word(self, expression: Any) -> Any:
        expression = self.value(expression)
        return Word(expression.at, expression)

    def negative_word(self, minus: Token, number: Token) -> Word:
        value = self.integer(number) if number.type == "INT" else self.real(number)
        assert isinstance(value, Literal)
        return Word(self.at(minus, number), Literal(self.at(minus, number), -value.value))

    def word_parenthesis(self, left: Token, expression: Any, right: Token) -> Word:
        return Word(self.at(left, right), self.value(expression))

    def word_array(self, left: Token, *rest: Any) -> Word:
        at = self.at(left, rest[-1])
        return Word(at, ArrayLiteral(at, rest[0] if len(rest) > 1 else []))

    def file_name_word(self, sign: Token, *rest: Any) -> Word:
        expression = self.value(rest[1] if len(rest) > 1 else rest[0])
        return Word(self.at(sign, rest[-1]), expression, "file name")

    # ── annotations ────────────────────────────────────────────────────────────────────────────────

    def annotated(self, annotations: list[Annotation], call: PlainCall) -> PlainCall:
        call.annotations = annotations
        return call

    def annotations(self, *found: Annotation) -> list[Annotation]:
        return list(found)

    def annotation(self, first: Token, *rest: Any) -> Annotation:
        if rest:
            return Annotation(self.at(first, rest[-1]), str(rest[0]), self.value(rest[2]) if len(rest) > 1 else None)
        name, _, value = str(first)[1:].partition("=")
        at = self.at(first, first)
        return Annotation(at, name.strip(), Name(at, value.strip()))


def signature(text: str) -> Function:
    """Of a library function. Raises ``Mistake``."""
    found: Function = SYNTAX.parse(BuilderT(Source("(library)", text)), "signature")
    return found
