"""Calls: of functions of the program, of library functions, of constructors of structs. App functions: ``apps``."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from hashlib import blake2b
from typing import Any, TypeAlias

from amfs.swift import tree
from amfs.swift.builtins import Failure
from amfs.swift.evaluate.expressions import AFTER, AROUND, FIRST, PATH, Closure, Expressions, Frame, Layout
from amfs.swift.evaluate.machine import RESULT, Job, Machine, all_missing
from amfs.swift.mapping import Path
from amfs.swift.requests import FileValue
from amfs.swift.source import At, Mistake
from amfs.swift.types import ANY, Array, is_file
from amfs.swift.values import Container, FileCell, Group, Label, Made, StructCell, is_group, is_scalar, plain
from amfs.workflow.workflow import Task

#: (frame of the caller, cells of the outputs, what to do when no part of an output will be written by this call itself any more)
BeginCall: TypeAlias = Callable[[Frame, list[Any], Job], None]

#: Library functions that want to know the keys of their first argument only.
SHAPE = {"size", "length", "contains", "exists", "exists_key", "keys_integer", "keys_string"}
#: Those that look at the keys that are there now.
NOW = {"exists", "exists_key"}

#: Annotations that say where a call runs.
PLACING = {"location", "soft_location", "hard_location"}

#: Where files are that no program has named.
NAMELESS = "_swift/"

_LONGEST_PATH = 200
_PLAIN = re.compile(r"[\w:/\[\].#~]*")
_UNUSUAL = re.compile(r"[^\w.:#~+-]")


def below(path: str, piece: str) -> str:
    """The call path of something that ``path`` has called."""
    if len(path) > _LONGEST_PATH:
        path = f"~{blake2b(path.encode(errors='surrogateescape'), digest_size=8).hexdigest()}"
    return f"{path}/{piece}" if path else piece


def file_name(id: str, part: str) -> str:
    """A name for a file that no program has named: where it comes from."""
    name = id.translate(_TO_NAME)
    if _PLAIN.fullmatch(id) is None:  # keys with all kinds of letters
        name = f"{_UNUSUAL.sub('_', name)}~{blake2b(id.encode(errors='surrogateescape'), digest_size=6).hexdigest()}"
    return f"{NAMELESS}{name}/{part}"


_TO_NAME = str.maketrans({"/": "+", "[": "-", "]": None})


class Code:
    """A compiled function: the places of its inputs and outputs in its frame, and the function that begins its body."""

    __slots__ = ("inputs", "layout", "outputs", "run")

    def __init__(self, layout: Layout, inputs: list[int], outputs: list[int], run: Closure) -> None:
        self.layout = layout
        self.inputs = inputs
        self.outputs = outputs
        self.run = run


class Calls(Expressions):
    """The part of the compiler that knows calls."""

    def __init__(self, machine: Machine, language: str) -> None:
        super().__init__(machine, language)
        self.codes: dict[tree.Function, Code] = {}
        self.sites: set[str] = set()  # of calls in the function that is being compiled
        self.globals: Frame = []

    def body(self, block: tree.Block) -> Closure:
        """Begin the statements of a block, in a frame."""
        raise NotImplementedError

    def app_call(self, call: tree.Call, function: tree.Function) -> BeginCall:
        raise NotImplementedError

    # ── calls in expressions ───────────────────────────────────────────────────────────────────────

    def is_inline(self, call: tree.Call) -> bool:
        function = call.function
        return (
            function is not None
            and function.builtin is not None
            and not function.builtin.asks
            and not self.naming
            and len(function.outputs) < 2
            and all(is_scalar(output.type) and output.type != ANY for output in function.outputs)
            and all(is_scalar(argument.type) for argument in call.arguments)
        )

    def inline_call(self, call: tree.Call) -> Closure:
        assert call.function is not None and call.function.builtin is not None
        values, at, compute = [self.value(argument) for argument in call.arguments], call.at, call.function.builtin.call
        if len(values) == 1:
            only = values[0]
            return lambda frame: guarded(at, compute, (only(frame),))
        return lambda frame: guarded(at, compute, [value(frame) for value in values])

    def lifted_call(self, call: tree.Call) -> Closure:
        begin, place = self.begun(call), self.temporary()

        def start(frame: Frame) -> None:
            outputs = begin(frame)
            frame[place] = outputs[0] if outputs else None

        self.prelude.append(start)
        return lambda frame: frame[place]

    def begun(self, call: tree.Call) -> Callable[[Frame], list[Any]]:
        """Begin the call with outputs that belong to nobody; they are returned."""
        begin, machine = self.call(call), self.machine
        label = Label(f"{RESULT}{call.name}", call.at)
        if call.function is None:
            makers = [self.make(call.type)]
        else:
            makers = [self.make(call.type if output.type == ANY else output.type) for output in call.function.outputs]

        def start(frame: Frame) -> list[Any]:
            outputs = [make(label, None, ()) for make in makers]
            groups = [output for output in outputs if isinstance(output, Group)]
            for group in groups:
                group.holds = 1
            begin(frame, outputs, partial(release_all, machine, groups))
            return outputs

        return start

    def call(self, call: tree.Call) -> BeginCall:
        function = call.function
        if function is None:
            return self._constructor(call)
        if function.builtin is not None:
            return self._library_call(call, function, function.builtin)
        if function.app is not None:
            return self.app_call(call, function)
        return self._program_call(call, function)

    def site(self, call: tree.Call) -> str:
        """A name for this call, unlike those of all others in the function. The same in every run."""
        source, offset = call.at.source.origin(call.at.start)
        line, column = source.line_column(offset)
        name = f"{call.name}:{line}"
        if name in self.sites:
            name = f"{name}:{column}"
        number, unique = 2, name
        while unique in self.sites:
            number, unique = number + 1, f"{name}#{number}"
        self.sites.add(unique)
        return unique

    def arguments(self, call: tree.Call, function: tree.Function) -> Callable[[Frame], list[Any]]:
        """The cells of the inputs; the values of a variable parameter are one array."""
        cells = [self.cell(argument) for argument in call.arguments]
        if not function.inputs or not function.inputs[-1].variable:
            return lambda frame: [cell(frame) for cell in cells]
        last, machine = len(function.inputs) - 1, self.machine
        formal = function.inputs[-1]
        type = formal.symbol.type if formal.symbol is not None else formal.type
        make = self.make(type if isinstance(type, Array) else Array(type or ANY))

        def arguments(frame: Frame) -> list[Any]:
            found = [cell(frame) for cell in cells]
            rest = make(None, None, ())
            for number, cell in enumerate(found[last:]):
                rest.take(number, cell)
            machine.close(rest)
            return [*found[:last], rest]

        return arguments

    # ── functions of the program ───────────────────────────────────────────────────────────────────

    def _program_call(self, call: tree.Call, function: tree.Function) -> BeginCall:
        arguments, site, machine = self.arguments(call, function), self.site(call), self.machine

        def begin(frame: Frame, outputs: list[Any], after: Job) -> None:
            cells = arguments(frame)
            machine.fresh.append(partial(enter, cells, outputs, below(frame[PATH], site), frame[AFTER], after))

        def enter(cells: list[Any], outputs: list[Any], path: str, order: tuple[str, ...], after: Job) -> None:
            code = self.codes.get(function) or self._compile(function)
            frame = [None] * code.layout.size
            frame[AROUND], frame[PATH], frame[AFTER] = self.globals, path, order  # type: ignore[call-overload]
            for place, cell in zip(code.inputs, cells, strict=True):
                frame[place] = cell
            for place, cell in zip(code.outputs, outputs, strict=True):
                frame[place] = cell
            code.run(frame)
            after()

        return begin

    def _compile(self, function: tree.Function) -> Code:
        assert function.scope is not None and function.body is not None
        code = self.in_function(function, lambda: self.body(function.body))  # type: ignore[arg-type]
        self.codes[function] = code
        return code

    def in_function(self, function: tree.Function, work: Callable[[], Closure]) -> Code:
        """Compile something in the scope of a function."""
        before = self.scope, self.prelude, self.sites, self.naming, self.carried
        assert function.scope is not None
        self.scope, self.prelude, self.sites, self.naming, self.carried = function.scope, [], set(), False, {}
        try:
            run = work()
        finally:
            self.scope, self.prelude, self.sites, self.naming, self.carried = before
        return Code(self.layout(function.scope), places(function.inputs), places(function.outputs), run)

    # ── structs ────────────────────────────────────────────────────────────────────────────────────

    def _constructor(self, call: tree.Call) -> BeginCall:
        cells, at, machine = [self.cell(argument) for argument in call.arguments], call.at, self.machine

        def begin(frame: Frame, outputs: list[Any], after: Job) -> None:
            target: StructCell = outputs[0]
            for part, cell in zip(target.fields.values(), cells, strict=True):
                machine.assign_part(part, cell(frame), at, self.copier(frame[PATH], at))
            after()

        return begin

    # ── library functions ──────────────────────────────────────────────────────────────────────────

    def _library_call(self, call: tree.Call, function: tree.Function, builtin: tree.Builtin) -> BeginCall:
        places = [one.value for one in call.annotations if builtin.placed and one.name in PLACING and one.value is not None]
        cells = [self.cell(argument) for argument in [*call.arguments, *places[:1]]]
        at, machine, site = call.at, self.machine, self.site(call)
        makes = [(index, output.name) for index, output in enumerate(function.outputs) if output.type is not None and is_file(output.type)]
        typed = [(index, output.name) for index, output in enumerate(function.outputs) if output.type == ANY]
        shape = function.name in SHAPE and bool(call.arguments) and is_group(call.arguments[0].type)
        names_only, count, call_type = builtin.names_only, len(function.outputs), call.type

        def begin(frame: Frame, outputs: list[Any], after: Job) -> None:
            given = [cell(frame) for cell in cells]
            id = below(frame[PATH], site)
            work = partial(run, given, outputs, id, after)
            awaited = given[1:] if shape and function.name in NOW else given
            machine.when(all_missing(awaited, names=names_only, shape=shape), partial(machine.attempt, at, work), at)

        def run(given: list[Any], outputs: list[Any], id: str, after: Job) -> None:
            further: dict[str, Any] = {}
            for index, name in makes:
                further[name] = self.name_of(outputs[index], id, name)  # may be blocked
            for _, name in typed:
                further[name] = call_type
            if shape:
                values = [dict.fromkeys(key for key, _ in given[0].sorted_items()), *(plain(cell) for cell in given[1:])]
            else:
                values = [plain(cell, names_only) for cell in given]
            then = partial(done, outputs, id, after)
            if builtin.asks:
                machine.ask(builtin.call(*values, **further), then, at)
            else:
                then(guarded(at, builtin.call, values, further))

        def done(outputs: list[Any], id: str, after: Job, result: Any) -> None:
            if count == 1:
                self.fill(outputs[0], result, at, id)
            else:
                for output, value in zip(outputs, result if count else (), strict=True):
                    self.fill(output, value, at, id)
            after()

        return begin

    def fill(self, cell: Any, value: Any, at: At, id: str) -> None:
        """A plain value into a cell."""
        machine = self.machine
        if isinstance(cell, FileCell):
            self._fill_file(cell, value, at, id)
        elif isinstance(cell, Container):
            for key, item in value.items() if isinstance(value, dict) else enumerate(value):
                self.fill(machine.insert(cell, key, at), item, at, id)
        elif isinstance(cell, StructCell):
            for name, part in cell.fields.items():
                self.fill(part, value[name], at, id)
        elif isinstance(cell, Made):
            machine.signal(cell, at)
        else:
            machine.set(cell, value, at)

    def _fill_file(self, cell: FileCell, value: FileValue, at: At, id: str) -> None:
        if cell.namer is None or cell.mapped_name() == value.name:
            self.machine.arrive(cell, value, at)
        else:
            self.copier(id, at)(cell, FileCell(cell.label, value))

    # ── files ──────────────────────────────────────────────────────────────────────────────────────

    def name_of(self, cell: FileCell, id: str, part: str) -> FileValue:
        """The name of a file that is to be made. Raises ``Blocked``."""
        name = cell.mapped_name()
        return FileValue(name) if name is not None else self.machine.temporary_file(file_name(id, part))

    def copier(self, path: str, at: At) -> Callable[[FileCell, FileCell], None]:
        """A function that makes a file that the program has named from another one, by a task."""
        machine = self.machine

        def copy(target: FileCell, source: FileCell) -> None:
            machine.when(all_missing([source], files=True), partial(machine.attempt, at, partial(go_on, target, source)), at)

        def go_on(target: FileCell, source: FileCell) -> None:
            name, given = target.mapped_name(), source.promise.value.name
            assert name is not None
            if "://" in name or "://" in given:
                url = given if "://" in given else name
                raise Mistake(at, f"{url!r} is a URL, and amfs copies no files from or to URLs", "fetch or send it by an app")
            if name == given:
                machine.take_over(target, source, at)
                return
            origin, offset = at.source.origin(at.start)
            line, column = origin.line_column(offset)
            id = below(path, f"copy:{line}:{column}" + "".join(f"[{key}]" for key in target.path))
            value = FileValue(name)
            machine.promise_file(target, value, at)
            task = Task(id, ("cp", given, name), (given,), (name,), keep=(name,), label="copy", line=line)
            machine.submit(task, lambda: machine.arrive(target, value, at), source)

        return copy


def guarded(at: At, call: Callable[..., Any], values: Any, further: dict[str, Any] | None = None) -> Any:
    """Call a library function. Raises ``Mistake`` at the call."""
    try:
        return call(*values, **further) if further else call(*values)
    except Failure as failure:
        raise Mistake(at, str(failure)) from None
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise Mistake(at, f"this library function cannot do that: {error}") from error


def part_of(machine: Machine, cell: Any, path: Path, at: At) -> FileCell:
    """The file at that place in a cell; arrays get the part."""
    for step in path:
        cell = machine.enter(cell, step, at) if isinstance(cell, Container) else cell.fields[str(step)]
    assert isinstance(cell, FileCell), path
    return cell


def release_all(machine: Machine, groups: list[Any]) -> None:
    for group in groups:
        machine.release(group)


def places(formals: list[tree.Formal]) -> list[int]:
    found = []
    for formal in formals:
        assert formal.symbol is not None
        found.append(FIRST + formal.symbol.slot)
    return found
