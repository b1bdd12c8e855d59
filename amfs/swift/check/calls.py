"""Calls: which function is meant, and its arguments in the order of the parameters. Must not know: statements."""

from __future__ import annotations

from typing import Protocol

from amfs.swift.check.fitting import PROMOTION, WHATEVER, Bindings, converted, fit_node, substituted
from amfs.swift.check.names import Frame, Functions, Types
from amfs.swift.library_t.unix import UNIX
from amfs.swift.source import Mistake
from amfs.swift.tree import Annotation, Call, Convert, Expression, Function
from amfs.swift.types import ANY, FLOAT, INT, STRING, URL, VOID, Struct, Subtype, Type, base_of, is_file

#: Annotations whose value is computed when the call is made; those of others are words.
COMPUTED = {"prio": (INT, FLOAT), "priority": (INT, FLOAT), "location": (), "soft_location": (), "hard_location": ()}

#: Functions of Swift/K that read a file.
READERS = {"readdata", "readdata2", "readstructured", "readcsv", "extractint", "extractfloat", "read"}

#: Functions of the library, by (from, to).
CONVERSIONS: dict[tuple[Type | None, Type], str] = {
    (FLOAT, INT): "toint",
    (STRING, INT): "toint",
    (STRING, FLOAT): "tofloat",
    (INT, STRING): "fromint",
    (FLOAT, STRING): "fromfloat",
}


class Checking(Protocol):
    """The expressions around a call, as far as a call needs them."""

    mistakes: list[Mistake]
    types: Types

    def check(self, node: Expression, frame: Frame) -> Expression: ...

    def value(self, node: Expression, frame: Frame, wanted: Type, what: str) -> Expression: ...

    def fitted(self, node: Expression, wanted: Type, what: str) -> Expression: ...

    def expect(self, node: Expression, wanted: Type) -> None: ...


class Calls:
    def __init__(self, expressions: Checking, functions: Functions) -> None:
        self.expressions = expressions
        self.functions = functions
        self.outputs: dict[Call, list[Type]] = {}  # of calls with several
        self.targets: dict[Call, int] = {}  # variables that take them, if not one
        self.caller: Function | None = None
        self.calls: dict[Function | None, list[Function]] = {}  # under no condition
        self.keywords_are_optional = False  # only parameters with a default may be given by name, as in Swift/T

    def exists(self, name: str) -> bool:
        return bool(self.functions.own(name) or self.functions.library(name))

    def check(self, call: Call, frame: Frame) -> Expression:
        check = self.expressions.check
        own, name = self.functions.own(call.name), call.name
        library = self.functions.library(name)
        struct = None if own or library else self.expressions.types.get(name)
        call.arguments = [check(one, frame) for one in call.arguments]
        call.named = [(key, check(one, frame)) for key, one in call.named]
        if not own and not self.keywords_are_optional and name.lower() in READERS:
            call.arguments = [file_itself(one) for one in call.arguments]
        self.annotations(call.annotations, frame)
        if isinstance(struct, Struct):
            return self.construct(call, struct)
        if isinstance(struct, Subtype) and len(call.arguments) == 1 and not call.named:
            node = Convert(call.at, self.expressions.fitted(call.arguments[0], struct.base, f"the value of this {struct.name}"))
            node.type = struct
            return node
        if not own and not library:
            raise self.unknown(call)
        if library and all(function.refused for function in own):  # a declaration of what is in the library
            own = []
        found = self.choose(call, own) if own else None
        if found is None and library:
            found = self.choose(call, library)
        if found is None:
            raise self.misfit(call, own or library)
        function, arguments, bound = found
        if function.refused:
            at = call.at._replace(end=call.at.start + len(call.name))
            raise Mistake(at, f"{call.name} cannot be called here: {function.refused}", f"it is declared at {function.at}")
        call.function, call.arguments, call.named = function, arguments, []
        if frame.branches is None:
            self.calls.setdefault(self.caller, []).append(function)
        if function.app is not None and any(base_of(one.type or ANY) == URL for one in function.outputs):
            raise Mistake(call.at, f"the app {name} makes a file at a URL, which is not possible", "return a file, and send it by an app")
        outputs = [substituted(one.type or ANY, bound) for one in function.outputs]
        call.type = outputs[0] if outputs else None
        if len(outputs) > 1:
            self.outputs[call] = outputs
        if not outputs:
            call.type = VOID
        return call

    def mark_called(self) -> None:
        """From the top level on."""
        todo: list[Function | None] = [None]
        while todo:
            for function in self.calls.get(todo.pop(), ()):
                if not function.called and function.builtin is None:
                    function.called = True
                    todo.append(function)

    def annotations(self, annotations: list[Annotation], frame: Frame) -> None:
        for one in annotations:
            if one.name in ("par", "parallelism"):
                message = "@par starts a function on several processes with MPI, which is not supported"
                self.expressions.mistakes.append(Mistake(one.at, message, "start the program with mpiexec in an app function"))
            elif one.name in COMPUTED and one.value is not None:
                one.value = self.expressions.check(one.value, frame)
                wanted = COMPUTED[one.name]
                if wanted and one.value.type not in (*wanted, ANY):
                    message = f"@{one.name} needs a number, and this is of type {one.value.type}"
                    self.expressions.mistakes.append(Mistake(one.value.at, message))

    def construct(self, call: Call, struct: Struct) -> Expression:
        values = dict(zip([name for name, _ in struct.fields], call.arguments, strict=False))
        for name, value in call.named:
            if struct.field(name) is None or name in values:
                raise Mistake(value.at, f"type {struct.name} has no field {name!r}, or it is given twice")
            values[name] = value
        if len(call.arguments) > len(struct.fields) or len(values) < len(struct.fields):
            raise Mistake(call.at, f"type {struct.name} has {len(struct.fields)} fields, and {len(values)} are given")
        call.arguments = [self.expressions.fitted(values[name], type_, f"field {name}") for name, type_ in struct.fields]
        call.named, call.type = [], struct
        return call

    def unknown(self, call: Call) -> Mistake:
        at = call.at._replace(end=call.at.start + len(call.name))
        if call.name in self.functions.refused:
            return Mistake(at, f"{call.name} does not exist here: {self.functions.refused[call.name]}")
        if self.keywords_are_optional and f" {call.name}(" in UNIX:
            return Mistake(at, f"there is no function {call.name!r}", "did you mean: import unix;")
        return Mistake(at, f"there is no function {call.name!r}", self.functions.suggest(call.name))

    # ── which one ──────────────────────────────────────────────────────────────────────────────────

    def choose(self, call: Call, candidates: list[Function]) -> tuple[Function, list[Expression], Bindings] | None:
        """Rather one with as many outputs as are wanted."""
        count = self.targets.get(call, 1)
        as_many = [one for one in candidates if len(one.outputs) == count]
        if as_many and len(as_many) < len(candidates):
            return self.cheapest(call, as_many) or self.cheapest(call, candidates)
        return self.cheapest(call, candidates)

    def cheapest(self, call: Call, candidates: list[Function]) -> tuple[Function, list[Expression], Bindings] | None:
        best: tuple[int, Function, list[Expression], Bindings] | None = None
        rival: Function | None = None
        for function in candidates:
            arguments = self.arranged(call, function)
            if arguments is None:
                continue
            bound: Bindings = {}
            cost = 0
            for node, wanted in zip(arguments, self.wanted(function, len(arguments)), strict=True):
                one = fit_node(node, wanted, bound) if node.type is not None else 0
                if one is None:
                    break
                cost += one
            else:
                cost += any(one.variable for one in function.inputs)  # one that names each parameter is meant rather
                if best is None or cost < best[0]:
                    best, rival = (cost, function, arguments, bound), None
                elif cost == best[0] and PROMOTION <= cost < WHATEVER and function.builtin is None and len(function.inputs) > 1:
                    rival = function
        if best is None:
            return None
        if rival is not None:
            given = ", ".join(str(one.type) for one in call.arguments)
            hint = f"it may be {described(best[1])} or {described(rival)}: convert an argument"
            raise Mistake(call.at, f"{call.name}({given}) may mean several functions", hint)
        _, function, arguments, bound = best
        wanted_types = [substituted(wanted, bound) for wanted in self.wanted(function, len(arguments))]
        made = []
        for node, wanted in zip(arguments, wanted_types, strict=True):
            self.expressions.expect(node, wanted)
            made.append(converted(node, wanted))
        return function, made, bound

    def wanted(self, function: Function, count: int) -> list[Type]:
        types = [one.type or ANY for one in function.inputs]
        if function.inputs and function.inputs[-1].variable:
            types = types[:-1] + [types[-1]] * (count - len(types) + 1)
        return types

    def arranged(self, call: Call, function: Function) -> list[Expression] | None:
        """One for each parameter, defaults filled in; None: the number or a name is wrong."""
        inputs = function.inputs
        variable = bool(inputs) and inputs[-1].variable
        fixed = inputs[:-1] if variable else inputs
        if len(call.arguments) > len(fixed) and not variable:
            return None
        named = dict(call.named)
        if len(named) != len(call.named):
            return None
        if self.keywords_are_optional and any(one.name in named and one.default is None for one in fixed):
            return None
        found: list[Expression] = call.arguments[: len(fixed)]
        found = list(found)
        for formal in fixed[len(found) :]:
            value = named.pop(formal.name, formal.default)
            if value is None:
                return None
            if value.type is None:  # a default of a function that has not been checked yet
                value = self.expressions.value(value, self.global_frame, formal.type or ANY, f"the default of {formal.name}")
                formal.default = value if value is formal.default or formal.default is None else formal.default
            found.append(value)
        if named:
            return None
        return found + call.arguments[len(fixed) :]

    global_frame: Frame

    def misfit(self, call: Call, candidates: list[Function]) -> Mistake:
        if len(candidates) > 1:
            given = ", ".join(str(one.type) for one in call.arguments)
            known = "; ".join(sorted({described(one) for one in candidates})[:6])
            return Mistake(call.at, f"no {call.name} takes ({given})", f"there is {known}")
        function = candidates[0]
        inputs = function.inputs
        for name, value in call.named:
            if name not in [one.name for one in inputs]:
                return Mistake(value.at, f"{call.name} has no parameter {name!r}", f"it is {described(function)}")
            formal = next(one for one in inputs if one.name == name)
            if self.keywords_are_optional and formal.default is None:
                return Mistake(value.at, f"the parameter {name!r} of {call.name} has no default: it is given without its name")
            if name in [one.name for one in inputs[: len(call.arguments)]]:
                return Mistake(value.at, f"the parameter {name!r} of {call.name} is given twice")
        arguments = self.arranged(call, function)
        if arguments is None:
            least = sum(one.default is None and not one.variable for one in inputs)
            most = len(inputs)
            wanted = f"{least} or more" if inputs and inputs[-1].variable else f"{least}" if least == most else f"{least} to {most}"
            count = len(call.arguments) + len(call.named)
            plural = "" if wanted == "1" else "s"
            message = f"{call.name} needs {wanted} argument{plural}, and {count} {'is' if count == 1 else 'are'} given"
            return Mistake(call.at, message, f"it is {described(function)}")
        bound: Bindings = {}
        for at, (node, wanted_type) in enumerate(zip(arguments, self.wanted(function, len(arguments)), strict=True)):
            if fit_node(node, wanted_type, bound) is None:
                formal = inputs[min(at, len(inputs) - 1)]
                shown = substituted(wanted_type, bound)
                message = f"parameter {formal.name!r} of {call.name} is of type {shown}, and this is of type {node.type}"
                return Mistake(node.at, message, self.conversion(node.type, wanted_type))
        return Mistake(call.at, f"the arguments of {call.name} do not fit", f"it is {described(function)}")

    def conversion(self, actual: Type | None, wanted: Type) -> str:
        name = CONVERSIONS.get((actual, wanted), "")
        return f"convert it with {name}(…)" if name and self.exists(name) else ""


def file_itself(node: Expression) -> Expression:
    """``@f``, the name of a file, where the content is read: then the file, which may not be there yet."""
    if isinstance(node, Call) and node.function is not None and node.function.builtin is not None and node.function.name == "filename":
        file = node.arguments[0]
        return file if file.type is not None and is_file(base_of(file.type)) else node
    return node


def described(function: Function) -> str:
    """``f(int x, string... rest)``."""
    inputs = []
    for one in function.inputs:
        text = f"{one.type or one.type_name.name}{'...' if one.variable else ''} {one.name}"
        inputs.append(text + ("=…" if one.default is not None else ""))
    return f"{function.name}({', '.join(inputs)})"


