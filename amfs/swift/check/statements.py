"""Statements and definitions: scopes, variables and their slots, types of what is assigned. Recursion is pure Python (swift/depth.py).

Must not know: which statement writes what when (assignments.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from amfs.swift.check.calls import file_itself
from amfs.swift.check.expressions import Expressions, place
from amfs.swift.check.fitting import fit
from amfs.swift.check.names import Frame, Types, can_be_key, resolve_formal
from amfs.swift.source import At, Mistake, suggestion
from amfs.swift.tree import (
    Assign,
    Block,
    Call,
    Chain,
    Declare,
    Evaluate,
    Expression,
    For,
    Foreach,
    Function,
    If,
    Index,
    Iterate,
    Literal,
    Mapping,
    Name,
    Program,
    Scope,
    Statement,
    Switch,
    Symbol,
    Wait,
)
from amfs.swift.types import (
    ANY,
    AUTO,
    EXTERNAL,
    INT,
    STRING,
    VOID,
    Array,
    Bag,
    Struct,
    Type,
    base_of,
    is_file,
)

#: Words of Swift/K.
RESERVED = frozenset(("app", "case", "default", "else", "foreach", "if", "import", "iterate", "switch", "type", "until"))
#: Functions of Swift/T that no script imports.
ALWAYS_THERE = frozenset(("trace", "size", "contains", "range", "strcat", "filename", "input", "input_file"))


class Statements:
    """``fixed``: symbols that no statement may assign, and why. ``carried``: variables of for loops, which the body may assign, for the
    next round."""

    def __init__(self, program: Program, types: Types, expressions: Expressions, mistakes: list[Mistake]) -> None:
        self.k = program.language == "swift-k"
        self.types = types
        self.expressions = expressions
        self.mistakes = mistakes
        self.fixed: dict[Symbol, str] = {}
        self.carried: set[Symbol] = set()
        self.place: At = program.at
        self.late: set[tuple[Frame, str]] = set()
        self.automatic: set[Symbol] = set()  # variables that an assignment has declared
        self.inside = ""  # the function whose body is looked at
        expressions.declare_late = self.declare_late
        self._methods: dict[type, Callable[[Any, Frame], None]] = {
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

    def tell(self, mistake: Mistake) -> None:
        self.mistakes.append(mistake)

    # ── the program ────────────────────────────────────────────────────────────────────────────────

    def program(self, program: Program) -> None:
        scope = Scope(None)
        body = program.body
        body.scope = scope
        self.globals = Frame(None, scope, body)
        self.expressions.calls.global_frame = self.globals
        frame = Frame(self.globals, scope, body)
        self.around = self.globals if self.k else frame  # the frame that functions see: all variables of a program of Swift/T
        self.expressions.hidden = lambda name: frame.names.get(name)  # type: ignore[method-assign]
        for function in program.functions:
            self.formals(function)
            if not self.k and (other := self.types.defined_at(function.name)) is not None:
                self.tell(Mistake(function.at, f"{function.name} is the name of a type, too", f"the type is at {other}"))
        self.names_of(body.statements, frame)
        for function in program.functions:
            for formal in function.inputs:
                if formal.default is not None:
                    formal.default = self.expressions.value(
                        formal.default, self.globals, formal.type or ANY, f"the default of parameter {formal.name}"
                    )
        self.statements(body.statements, frame)
        for function in program.functions:
            self.expressions.calls.caller = function
            self.function(function)
        self.expressions.calls.mark_called()

    def formals(self, function: Function) -> None:
        names: set[str] = set()
        for formal in [*function.outputs, *function.inputs]:
            try:
                resolve_formal(self.types, formal, function.type_parameters)
            except Mistake as mistake:
                self.tell(mistake)
                formal.type = ANY
            if formal.name and formal.name in names:
                self.tell(Mistake(formal.at, f"{function.name} has two parameters {formal.name!r}"))
            names.add(formal.name)
        for formal in function.inputs[:-1]:
            if formal.variable:
                self.tell(Mistake(formal.at, "only the last parameter may stand for several arguments"))
        self.defaults(function)
        self.same_signature(function)

    def defaults(self, function: Function) -> None:
        for formal in function.outputs:
            if formal.default is not None:
                self.tell(Mistake(formal.at, f"the output {formal.name!r} cannot have a default"))
            elif formal.variable:
                self.tell(Mistake(formal.at, f"the output {formal.name!r} cannot stand for several values"))
        optional = ""
        for formal in function.inputs:
            if formal.variable and formal.default is not None:
                self.tell(Mistake(formal.at, f"{formal.name!r} stands for several arguments, so it cannot have a default"))
            elif formal.default is not None:
                optional = formal.name
            elif optional and not formal.variable and not self.k:
                message = f"{formal.name!r} has no default, and it stands after {optional!r}, which has one"
                self.tell(Mistake(formal.at, message, "parameters with a default stand last"))

    def same_signature(self, function: Function) -> None:
        for other in self.expressions.calls.functions.own(function.name):
            if other is function:
                return
            hint = f"the first is at {other.at}"
            if [one.type for one in other.inputs] == [one.type for one in function.inputs]:
                self.tell(Mistake(function.at, f"function {function.name} is defined a second time with the same parameters", hint))
                return
            if self.k and needed(other) == needed(function):
                message = f"a call of {function.name} without its optional arguments may mean two functions"
                self.tell(Mistake(function.at, message, hint))
                return

    def function(self, function: Function) -> None:
        self.place, self.inside = function.at, function.name
        scope = Scope(self.globals.scope)
        function.scope = scope
        frame = Frame(self.around, scope, function.body)
        for formal in [*function.inputs, *function.outputs]:
            type_: Type = formal.type or ANY
            if formal.variable:
                type_ = Array(type_)
            formal.symbol = frame.add(formal.name, type_, formal.at)
            formal.symbol.is_parameter = True
        for formal in function.inputs:
            if formal.symbol is not None:
                formal.symbol.assigned = True
                self.fixed[formal.symbol] = f"{formal.name!r} is an input of {function.name}: it has its value from the call"
        if function.body is not None:
            function.body.scope = scope
            self.block_in(function.body, frame)
        elif function.app is not None:
            self.app(function, frame)
        self.expressions.calls.annotations(function.annotations, frame)

    # ── apps ───────────────────────────────────────────────────────────────────────────────────────

    def app(self, function: Function, frame: Frame) -> None:
        app = function.app
        assert app is not None
        for formal in function.outputs:
            if not self.made_by_app(formal.type or ANY):
                message = f"an app makes files: its output {formal.name!r} cannot be of type {formal.type}"
                hint = "redirect the output to a file by @stdout=, and read it with read(…)"
                self.tell(Mistake(formal.at, message, hint.replace("@stdout", "stdout").replace("read(", "readData(") if self.k else hint))
            elif formal.symbol is not None:
                formal.symbol.assigned = True
        first = app.words[0]
        if isinstance(first.expression, Name) and frame.find(first.expression.name) is None and first.kind == "word":
            first.expression = Literal(first.at, first.expression.name)
        for word in app.words:
            word.expression = self.expressions.check(word.expression, frame)
            type_ = word.expression.type or ANY
            if word.kind != "word" and not self.names_files(type_):
                self.tell(Mistake(word.at, f"the name of a file is wanted here, and this is of type {type_}"))
            elif not self.is_words(type_):
                self.tell(Mistake(word.at, f"a value of type {type_} cannot be a word of a command line"))
        for stream in ("stdin", "stdout", "stderr"):
            expression = getattr(app, stream)
            if expression is None:
                continue
            expression = self.expressions.check(expression, frame)
            setattr(app, stream, expression)
            if not is_file(expression.type or ANY) and expression.type not in (STRING, ANY):
                self.tell(Mistake(expression.at, f"{stream} needs a file, and this is of type {expression.type}"))
            elif stream != "stdin" and not self.k and isinstance(expression, Name) and expression.symbol in self.fixed:
                self.tell(Mistake(expression.at, f"{stream} goes to an output of the app, and {expression.name!r} is an input"))
        for at, (key, value) in enumerate(app.profile):
            app.profile[at] = key, self.expressions.check(value, frame)

    def made_by_app(self, type_: Type) -> bool:
        while isinstance(type_ := base_of(type_), Array):
            type_ = type_.element
        if isinstance(type_, Struct):
            return all(self.made_by_app(field) for _, field in type_.fields)
        return is_file(type_) or type_ in (VOID, EXTERNAL, ANY)

    def names_files(self, type_: Type) -> bool:
        while isinstance(type_ := base_of(type_), Array | Bag):
            type_ = type_.element
        return is_file(type_) or type_ in (STRING, ANY, EXTERNAL) or isinstance(type_, Struct)

    def is_words(self, type_: Type) -> bool:
        while isinstance(type_ := base_of(type_), Array | Bag):
            type_ = type_.element
        return not isinstance(type_, Struct) or self.k

    # ── blocks ─────────────────────────────────────────────────────────────────────────────────────

    def block(self, block: Block, frame: Frame) -> None:
        self.block_in(block, Frame(frame, frame.scope, block, frame.branches))

    def block_in(self, block: Block, frame: Frame) -> None:
        """``frame``: its own, which may have names already."""
        self.names_of(block.statements, frame)
        self.statements(block.statements, frame)

    def statements(self, statements: list[Statement], frame: Frame) -> None:
        for statement in list(statements):  # declarations may come in front of them
            self.statement(statement, frame)

    def statement(self, statement: Statement, frame: Frame) -> None:
        self.place = statement.at
        try:
            self._methods[type(statement)](statement, frame)
        except Mistake as mistake:
            self.tell(mistake)

    def names_of(self, statements: list[Statement], frame: Frame) -> None:
        """All variables of a block are visible in all of it: the order of statements means nothing."""
        flat = [one for statement in statements for one in (statement.statements if isinstance(statement, Chain) else (statement,))]
        for one in flat:
            if isinstance(one, Declare):
                self.declared(one, frame)
        if self.k:
            return
        for one in flat:
            if isinstance(one, Assign):
                for target in one.targets:
                    root = place(target)[0]
                    holder = frame.holder(root.name)
                    if holder is None or (self.inside and holder is self.around and holder.names.get(root.name) in self.automatic):
                        frame.undeclared[root.name] = one

    def declared(self, declare: Declare, frame: Frame) -> None:
        home = self.globals if declare.is_global else frame
        if declare.is_global and (self.inside or frame.parent is not self.globals):
            self.tell(Mistake(declare.at, "global variables are declared outside of all blocks"))
        try:
            type_: Type = ANY if declare.type_name is None else self.types.resolve(declare.type_name)
        except Mistake as mistake:
            self.tell(mistake)
            type_ = ANY
        if self.k and declare.name in RESERVED:
            self.tell(Mistake(declare.at, f"{declare.name!r} is a word of the language, so it cannot be the name of a variable"))
        before = home.names.get(declare.name)
        if before is not None:
            hint = f"the first declaration is at {before.at}"
            self.tell(Mistake(declare.at, f"variable {declare.name!r} is declared a second time", hint))
        if declare.is_global and not self.k:
            self.global_clash(declare)
        declare.symbol = home.add(declare.name, type_, declare.at, declare.mapping)
        assert home.block is not None
        home.block.declares.append(declare.symbol)

    def global_clash(self, declare: Declare) -> None:
        functions = self.expressions.calls.functions
        own = functions.own(declare.name)
        if own or declare.name in ALWAYS_THERE:
            where = f"it is at {own[0].at}" if own else "it is a function of the library"
            self.tell(Mistake(declare.at, f"{declare.name!r} is the name of a function, too", where))

    def declare_late(self, frame: Frame, name: str) -> Symbol | None:
        """A variable that an assignment declares, with the type of what is assigned."""
        statement: Assign = frame.undeclared[name]
        if (frame, name) in self.late:
            raise Mistake(statement.at, f"the type of {name!r} cannot be told: it is computed from itself", f"declare it: 'int {name};'")
        self.late.add((frame, name))
        types = self.values(statement, frame)
        index = next(at for at, target in enumerate(statement.targets) if place(target)[0].name == name)
        target, type_ = statement.targets[index], types[index] if index < len(types) else ANY
        if statement.append:
            type_ = Bag(type_.element if isinstance(type_, Array | Bag) else type_)
        while not isinstance(target, Name):
            if not isinstance(target, Index):
                raise Mistake(statement.at, f"{name!r} is not declared, and its type cannot be told from a field")
            target.index = self.expressions.check(target.index, frame)
            if not can_be_key(target.index.type or ANY):
                raise Mistake(target.index.at, f"a value of type {target.index.type} cannot be a key")
            type_ = Array(type_, base_of(target.index.type or INT))
            target = target.base
        symbol = frame.add(name, type_, target.at)
        self.automatic.add(symbol)
        del frame.undeclared[name]
        made = Declare(target.at, None, name)
        made.symbol = symbol
        assert frame.block is not None
        frame.block.statements.insert(0, made)
        frame.block.declares.append(symbol)
        return symbol

    # ── simple statements ──────────────────────────────────────────────────────────────────────────

    def declare(self, declare: Declare, frame: Frame) -> None:
        symbol = declare.symbol
        assert symbol is not None
        if declare.mapping is not None:
            self.mapping(declare.mapping, symbol, frame)
        if declare.value is not None:
            where = self.globals if declare.is_global else frame
            value = self.expressions.check(declare.value, where)
            if symbol.type == ANY and declare.type_name is None:
                symbol.type = value.type or ANY
            declare.value = self.stored(value, symbol.type, f"variable {declare.name!r}")
            symbol.assigned = True

    def stored(self, value: Expression, wanted: Type, what: str) -> Expression:
        """A bag may be made from the items of an array."""
        if isinstance(wanted, Bag) and isinstance(value.type, Array) and fit(value.type.element, wanted.element, {}) is not None:
            return value
        return self.expressions.fitted(value, wanted, what)

    def mapping(self, mapping: Mapping, symbol: Symbol, frame: Frame) -> None:
        if mapping.name is not None:
            mapping.name = self.expressions.check(mapping.name, frame)
            type_ = base_of(mapping.name.type or ANY)
            if type_ not in (STRING, ANY):
                self.tell(Mistake(mapping.name.at, f"the name of a file is a string, and this is of type {type_}"))
        mapping.parameters = [(key, self.expressions.check(value, frame)) for key, value in mapping.parameters]
        if mapping.mapper.replace("_", "").lower() == "csvmapper":
            mapping.parameters = [(key, file_itself(value)) for key, value in mapping.parameters]
        if mapping.mapper:
            self.mapper(mapping)
        if not self.k and not is_file(symbol.type) and symbol.type != ANY:
            hint = "map each element in the loop that makes it" if isinstance(symbol.type, Array) else ""
            self.tell(Mistake(mapping.at, f"only files have names: {symbol.name!r} is of type {symbol.type}", hint))

    def mapper(self, mapping: Mapping) -> None:
        from amfs.swift import mappers  # few programs have them

        name = mappers.normal(mapping.mapper)
        if name not in mappers.PARAMETERS:
            hint = suggestion(mapping.mapper, mappers.NAMES) or f"there are {', '.join(mappers.NAMES)}"
            self.tell(Mistake(mapping.at, f"there is no mapper {mapping.mapper!r}", hint))
            return
        known, needed = mappers.PARAMETERS[name], mappers.NEEDED.get(name, "")
        for key, value in mapping.parameters:
            if known is not None and key not in known:
                hint = suggestion(key, known) or f"it has {', '.join(sorted(known))}"
                self.tell(Mistake(value.at, f"{mapping.mapper} has no parameter {key!r}", hint))
        if needed and needed not in [key for key, _ in mapping.parameters]:
            self.tell(Mistake(mapping.at, f"the parameter {needed!r} of {mapping.mapper} is missing"))

    def values(self, assign: Assign, frame: Frame) -> list[Type]:
        """Types of what is assigned, one for each target."""
        if len(assign.targets) > 1 and isinstance(assign.values[0], Call):
            self.expressions.calls.targets[assign.values[0]] = len(assign.targets)
        check = self.expressions.check
        if len(assign.targets) > len(assign.values):
            check = self.expressions.check_whole
        assign.values = [check(value, frame) for value in assign.values]
        if len(assign.targets) > 1 and len(assign.values) == 1:
            value = assign.values[0]
            if (isinstance(value, Call) and value.type != ANY) or (isinstance(value, Call) and value.function is not None):
                outputs = self.expressions.calls.outputs.get(value, [value.type or ANY])
                if len(outputs) != len(assign.targets):
                    given = f"{len(outputs)} value{'' if len(outputs) == 1 else 's'}"
                    raise Mistake(value.at, f"{value.name} gives {given}, and here are {len(assign.targets)} variables for them")
                return outputs
            if value.type == ANY:
                return [ANY] * len(assign.targets)
            raise Mistake(value.at, f"one value cannot be assigned to {len(assign.targets)} variables")
        return [value.type or ANY for value in assign.values]

    def assign(self, assign: Assign, frame: Frame) -> None:
        types = self.values(assign, frame)
        if assign.outputs is not None:
            self.by_name(assign, assign.outputs)
        for at, target in enumerate(assign.targets):
            try:
                wanted = self.target(target, frame)
                if assign.append:
                    self.appended(assign, wanted)
                elif len(assign.values) == len(assign.targets):
                    assign.values[at] = self.stored(assign.values[at], wanted, f"'{self.text(target)}'")
                elif fit(types[at], wanted, {}) is None:
                    message = f"'{self.text(target)}' is of type {wanted}, and output {at + 1} of the call is of type {types[at]}"
                    self.tell(Mistake(target.at, message))
            except Mistake as mistake:
                self.tell(mistake)

    def by_name(self, assign: Assign, outputs: list[str]) -> None:
        """The targets, in the order of the outputs that they take."""
        call = assign.values[0]
        function = call.function if isinstance(call, Call) and len(assign.values) == 1 else None
        if function is None:
            raise Mistake(assign.at, "only the outputs of one call are taken by name")
        known = [one.name for one in function.outputs]
        if sorted(outputs) != sorted(known):
            raise Mistake(assign.at, f"{function.name} has the outputs {', '.join(known)}, and {', '.join(outputs)} are taken")
        assign.targets = [assign.targets[outputs.index(name)] for name in known]

    def text(self, node: Expression) -> str:
        text = " ".join(node.at.source.text[node.at.start : node.at.end].split())
        return text if len(text) <= 40 else text[:39] + "…"

    def target(self, target: Expression, frame: Frame) -> Type:
        root = place(target)[0]
        wanted = self.expressions.reference(target, frame)
        symbol = root.symbol
        assert symbol is not None
        if symbol in self.fixed:
            raise Mistake(target.at, f"this cannot be assigned to: {self.fixed[symbol]}")
        if self.inside and symbol.scope is self.globals.scope:
            hint = f"give the value back as an output of {self.inside}, or declare another variable in it"
            raise Mistake(target.at, f"{root.name!r} is a variable of the whole program, and functions can only read those", hint)
        symbol.assigned = True
        return wanted

    def appended(self, assign: Assign, wanted: Type) -> None:
        value = assign.values[0]
        given = value.type or ANY
        wanted = base_of(wanted)
        if isinstance(wanted, Bag):
            many = given.element if isinstance(given, Array | Bag) and not isinstance(wanted.element, Array | Bag) else None
            if many is not None and fit(many, wanted.element, {}, False) is not None:
                return
            assign.values[0] = self.expressions.fitted(value, wanted.element, "an item of this bag")
        elif isinstance(wanted, Array) and wanted.key == AUTO:
            assign.values[0] = self.expressions.fitted(value, wanted.element, "an element of this array")
        elif wanted != ANY:
            sign = "<<" if self.k else "+="
            kind = "an array with [auto]" if self.k else "a bag"
            hint = "a variable has one value for ever: assign to a new one" if wanted in (INT, STRING) else ""
            raise Mistake(assign.at, f"'{sign}' adds to {kind}, and this is of type {wanted}", hint)

    def evaluate(self, evaluate: Evaluate, frame: Frame) -> None:
        call = self.expressions.check_whole(evaluate.call, frame)
        assert isinstance(call, Call)
        evaluate.call = call

    # ── control ────────────────────────────────────────────────────────────────────────────────────

    def condition(self, node: Expression, frame: Frame) -> Expression:
        node = self.expressions.check(node, frame)
        if base_of(node.type or ANY) not in self.expressions.truths:
            self.tell(Mistake(node.at, f"a condition is of type boolean, and this is of type {node.type}"))
        return node

    def branch(self, block: Block, frame: Frame, statement: Statement, number: int) -> None:
        self.block_in(block, Frame(frame, frame.scope, block, (frame.branches, statement, number)))

    def if_(self, node: If, frame: Frame) -> None:
        # a long else if … else if … leans to the right: no recursion along it
        while True:
            node.condition = self.condition(node.condition, frame)
            self.branch(node.then, frame, node, 0)
            other = node.otherwise
            if other is None:
                return
            inner = other.statements[0] if len(other.statements) == 1 else None
            if not isinstance(inner, If) or other.at is not inner.at:
                self.branch(other, frame, node, 1)
                return
            frame = Frame(frame, frame.scope, other, (frame.branches, node, 1))
            node = inner

    def switch(self, node: Switch, frame: Frame) -> None:
        node.subject = self.expressions.check(node.subject, frame)
        if base_of(node.subject.type or ANY) not in (INT, ANY):
            self.tell(Mistake(node.subject.at, f"switch needs an int, and this is of type {node.subject.type}"))
        for number, (_, block) in enumerate(node.cases):
            self.branch(block, frame, node, number)
        if node.default is not None:
            self.branch(node.default, frame, node, len(node.cases))

    def looped(self, body: Block, frame: Frame) -> Frame:
        body.scope = Scope(frame.scope)
        return Frame(frame, body.scope, body, frame.branches)

    def given(self, frame: Frame, name: str, type_: Type, at: At, why: str) -> Symbol:
        symbol = frame.add(name, type_, at)
        symbol.is_parameter = symbol.assigned = True
        self.fixed[symbol] = why
        return symbol

    def foreach(self, node: Foreach, frame: Frame) -> None:
        node.container = self.expressions.check(node.container, frame)
        type_ = base_of(node.container.type or ANY)
        element: Type = ANY
        key: Type = INT
        if isinstance(type_, Array):
            element, key = type_.element, INT if type_.key == AUTO else type_.key
        elif isinstance(type_, Bag):
            element = type_.element
            if node.key:
                self.tell(Mistake(node.at, "the items of a bag have no keys"))
        elif type_ != ANY:
            self.tell(Mistake(node.container.at, f"foreach needs an array or a range, and this is of type {type_}"))
        inner = self.looped(node.body, frame)
        why = f"it is the variable of the loop at line {node.at.line}"
        node.value_symbol = self.given(inner, node.value, element, node.at, why)
        if node.key:
            node.key_symbol = self.given(inner, node.key, key, node.at, why)
        self.block_in(node.body, inner)

    def for_(self, node: For, frame: Frame) -> None:
        inner = self.looped(node.body, frame)
        for start in node.starts:
            assert start.value is not None
            value = self.expressions.check(start.value, frame)
            around = self.around_loop(start, frame)
            if around is not None:
                type_: Type = around.symbol.type  # type: ignore[union-attr]
            else:
                type_ = (value.type or ANY) if start.type_name is None else self.types.resolve(start.type_name)
            start.value = self.expressions.fitted(value, type_, f"variable {start.name!r}")
            start.symbol = inner.add(start.name, type_, start.at)
            start.symbol.assigned = True
            if around is not None:
                node.finals.append((around, start.symbol))
            self.carried.add(start.symbol)
        node.condition = self.condition(node.condition, inner)
        names = {start.name: start for start in node.starts}
        self.block_in(node.body, inner)
        updates = []
        for name, value in node.updates:
            if name not in names:
                raise Mistake(value.at, f"{name!r} is not a variable of this loop")
            value = self.expressions.check(value, inner)
            updates.append((name, self.expressions.fitted(value, names[name].symbol.type, f"variable {name!r}")))  # type: ignore[union-attr]
        node.updates = updates

    def around_loop(self, start: Declare, frame: Frame) -> Name | None:
        """``int i; for (i = 0; …)``: the variable that is declared outside, and gets the last value."""
        holder = frame.holder(start.name) if start.type_name is None else None
        symbol = holder.names.get(start.name) if holder is not None else None
        if symbol is None or symbol in self.fixed or (self.inside and symbol.scope is self.globals.scope):
            return None
        symbol.assigned = True
        name = Name(start.at, start.name)
        name.symbol, name.type = symbol, symbol.type
        return name

    def iterate(self, node: Iterate, frame: Frame) -> None:
        inner = self.looped(node.body, frame)
        node.counter_symbol = self.given(inner, node.counter, INT, node.at, "it counts the rounds of iterate")
        self.block_in(node.body, inner)
        node.until = self.condition(node.until, inner)

    def wait(self, node: Wait, frame: Frame) -> None:
        node.items = [self.expressions.check(item, frame) for item in node.items]
        self.block(node.body, frame)

    def chain(self, node: Chain, frame: Frame) -> None:
        for statement in list(node.statements):
            self.statement(statement, frame)


def needed(function: Function) -> list[Type | None]:
    """The types of the arguments that every call gives."""
    return [one.type for one in function.inputs if one.default is None and not one.variable]
