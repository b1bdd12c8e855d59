"""Calls of app functions: each becomes a task."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import msgspec

from amfs.swift import tree
from amfs.swift.builtins import Location
from amfs.swift.evaluate.calls import PLACING, BeginCall, Calls, below, file_name, part_of, places
from amfs.swift.evaluate.dynamic import WRAP, unpacked
from amfs.swift.evaluate.expressions import AFTER, AROUND, FIRST, PATH, Closure, Frame
from amfs.swift.evaluate.machine import Job, Machine, all_missing
from amfs.swift.mapping import Path
from amfs.swift.requests import FileValue, Present, Refused
from amfs.swift.source import At, Mistake
from amfs.swift.values import Blocked, Cell, Container, FileCell, Made, StructCell, files_of
from amfs.workflow.workflow import Task

_NAME_MAX = 255

#: Runs a command after it has made files, up to ``--``: a nameless output that the command line does not mention exists, and is empty.
TOUCH = 'while [ "$1" != -- ]; do : > "$1"; shift; done; shift; exec "$@"'


class Output(NamedTuple):
    """A file that the task makes."""

    cell: FileCell
    value: FileValue


class AppCode:
    """A compiled app function: its words and redirections are closures over a frame of the function."""

    __slots__ = ("function", "inputs", "layout", "outputs", "prelude", "profile", "stderr", "stdin", "stdout", "words")

    def __init__(self, function: tree.Function) -> None:
        self.function = function
        self.layout: Any = None
        self.inputs = places(function.inputs)
        self.outputs = places(function.outputs)
        self.words: list[tuple[At, str, Closure]] = []
        self.prelude: list[Closure] = []
        self.profile: list[tuple[str, Closure]] = []
        self.stdin: Closure | None = None
        self.stdout: Closure | None = None
        self.stderr: Closure | None = None


class Apps(Calls):
    """The part of the compiler that knows app functions."""

    def __init__(self, machine: Machine, language: str) -> None:
        super().__init__(machine, language)
        self.app_codes: dict[tree.Function, AppCode] = {}

    def app_call(self, call: tree.Call, function: tree.Function) -> BeginCall:
        site = CallSite(self, call, function)
        return lambda frame, outputs, after: AppCall(site, frame, outputs, after).begin()

    def code_of(self, function: tree.Function) -> AppCode:
        return self.app_codes.get(function) or self._compile_app(function)

    # ── the command line ───────────────────────────────────────────────────────────────────────────

    def _compile_app(self, function: tree.Function) -> AppCode:
        app, code = function.app, AppCode(function)
        assert app is not None

        def work() -> Closure:
            self.naming = True
            code.words = [(word.at, word.kind, self.value(word.expression)) for word in app.words]
            code.profile = [(key, self.value(value)) for key, value in app.profile]
            code.stdin, code.stdout, code.stderr = (
                self.value(one) if one is not None else None for one in (app.stdin, app.stdout, app.stderr)
            )
            code.prelude = self.prelude
            return lambda frame: None

        code.layout = self.in_function(function, work).layout
        self.app_codes[function] = code
        return code

    def command_line(self, code: AppCode, frame: Frame) -> tuple[list[str], list[str]]:
        """The words, and of Swift/T the strings among them, which may be names of files."""
        argv: list[str] = []
        texts: list[str] = []
        for at, kind, word in code.words:
            value = word(frame)
            if argv and self.language == "swift-t":
                texts += _texts(value)
            argv += self._words(at, kind, value)
        return argv, texts

    def _words(self, at: At, kind: str, value: Any) -> list[str]:
        """The words of a value on a command line; of an array one for each element."""
        if isinstance(value, dict | list):
            words = [word for item in (value.values() if isinstance(value, dict) else value) for word in self._words(at, kind, item)]
            return [" ".join(words)] if kind == "file name" and self.language == "swift-k" else words
        if value is None:
            return []
        if kind != "word" and not isinstance(value, FileValue | str):
            raise Mistake(at, "this is no file, so it has no name")
        word = value.name if isinstance(value, FileValue) else self.text(value)
        if "\0" in word:
            raise Mistake(at, "a word of a command line must not contain a NUL character")
        return [word]

    def file_word(self, at: At, closure: Closure | None, frame: Frame) -> str:
        if closure is None:
            return ""
        value = closure(frame)
        if not isinstance(value, FileValue | str):
            raise Mistake(at, "standard input and output are redirected to one file each")
        return value.name if isinstance(value, FileValue) else value


class CallSite:
    """A call of an app function in the text of the program: the part that all calls made there share."""

    __slots__ = ("apps", "arguments", "asked", "at", "function", "outer", "path")

    def __init__(self, apps: Apps, call: tree.Call, function: tree.Function) -> None:
        app = function.app
        assert app is not None
        self.apps = apps
        self.function = function
        self.at = call.at
        self.arguments = apps.arguments(call, function)
        self.path = apps.site(call)
        words = [*(word.expression for word in app.words), app.stdin, *(value for _, value in app.profile)]
        #: Places of the variables of the program that the command line uses.
        self.outer = list(dict.fromkeys(FIRST + one.slot for one in tree.variables(words) if one.scope is not function.scope))
        #: Annotations, by the name of each.
        self.asked = [
            (one.name, apps.cell(one.value)) for one in call.annotations if one.value is not None and one.name in (*PLACING, "prio")
        ]


class AppCall:
    """One call of an app function, on its way to become a task. Its steps follow each other; before each may be a wait:

    ``begin`` waits for the arguments; ``name`` gives outputs their names; ``make`` makes the task of the command line; ``send`` submits it;
    ``done`` says that the outputs are there, or ``fill`` before it that those of arrays are.
    """

    __slots__ = (
        "after", "apps", "arrays", "code", "frame", "given", "id", "machine", "made", "order", "outputs", "placing", "reads", "signals",
        "site", "task",
    )  # fmt: skip

    def __init__(self, site: CallSite, caller: Frame, outputs: list[Any], after: Job) -> None:
        self.site = site
        self.apps = site.apps
        self.machine = site.apps.machine
        self.outputs = outputs
        self.after = after
        self.given = [*site.arguments(caller), *(self.apps.globals[place] for place in site.outer)]
        self.placing = [(name, cell(caller)) for name, cell in site.asked]
        self.id: str = below(caller[PATH], site.path)
        self.order: tuple[str, ...] = caller[AFTER]
        self.made: list[Output] = []  # from ``name`` on
        self.code: AppCode
        self.frame: Frame
        self.signals: list[Made]  # from ``make`` on
        self.arrays: list[Container]
        self.reads: list[FileValue]
        self.task: Task

    def begin(self) -> None:
        cells = [*self.given, *(cell for _, cell in self.placing)]
        missing: Iterator[Any] = all_missing(cells, files=True, signals=self.machine.limits.static)
        self.machine.when(missing, partial(self.machine.attempt, self.site.at, self.name), self.site.at)

    def name(self) -> None:
        """Raises ``Blocked``, and then nothing has been done."""
        function, code = self.site.function, self.apps.code_of(self.site.function)
        made: list[Output] = []
        self._refuse_unknown()
        for formal, output in zip(function.outputs, self.outputs, strict=True):
            self._name_outputs(output, formal.name, made)
        names = {id(cell): value for cell, value in made}
        frame: Frame = [None] * code.layout.size
        frame[AROUND], frame[PATH], frame[AFTER] = self.apps.globals, self.id, self.order
        for place, cell in zip(code.inputs, self.given[: len(code.inputs)], strict=True):
            frame[place] = cell
        for place, output in zip(code.outputs, self.outputs, strict=True):
            frame[place] = _named(output, names)
        self.code, self.frame, self.made = code, frame, made
        for start in code.prelude:
            start(frame)
        self.machine.attempt(self.site.at, self.make)

    def _refuse_unknown(self) -> None:
        """Raises ``Mistake`` for an array whose files nobody can find afterwards, ``Blocked`` as long as nobody knows that."""
        at = self.site.at
        for array in _arrays(self.outputs):
            if array.namer is not None and array.namer.name_of is None:
                raise Blocked(array.namer)
            if self.machine.limits.static:
                raise Mistake(at, "this needs a run: which files are in the array is known when the task has ended")
            if array.namer is None or array.namer.again is None:
                words = f"the app function {self.site.function.name} returns an array, and which files are in it is not known"
                raise Mistake(at, words, "return files, or a struct of files; in Swift/K map the array")

    def _name_outputs(self, output: Any, part: str, made: list[Output]) -> None:
        """Raises ``Blocked``, and then nothing has been done."""
        if isinstance(output, StructCell):
            for name, field in output.fields.items():
                self._name_outputs(field, f"{part}.{name}", made)
        elif isinstance(output, FileCell):
            made.append(Output(output, self.apps.name_of(output, self.id, part)))

    def make(self) -> None:
        """Raises ``Blocked``, and then nothing has been done."""
        apps, code, frame, function, at = self.apps, self.code, self.frame, self.site.function, self.site.at
        argv, texts = apps.command_line(code, frame)
        stdin, stdout, stderr = (apps.file_word(at, closure, frame) for closure in (code.stdin, code.stdout, code.stderr))
        values = [value for _, value in self.made]
        # The program fetches files at URLs itself.
        reads = [file.promise.value for cell in self.given for file in files_of(cell)]
        inputs = dict.fromkeys(value.name for value in reads if "://" not in value.name)
        if url := next((value.name for value in values if "://" in value.name), ""):
            raise Mistake(at, f"{url!r}: apps write files, and this is a URL", "write a file, and send it by an app")
        signals, arrays, order = _signals(self.outputs), _arrays(self.outputs), self.order
        if self.machine.limits.static:
            order = (*order, *(id for one in _signals(self.given) for id in one.promise.value))
        if not argv or not argv[0]:
            raise Mistake(function.at, f"the app function {function.name} names no program")
        if arrays:
            archive = self.machine.temporary_file(file_name(self.id, "archive.tar"))
            values.append(archive)
            reads.append(archive)  # by the mapper, when the task has ended
            argv = ["/bin/sh", "-c", WRAP, "sh", archive.name, *argv]
        elif apps.language == "swift-t":
            known_words = [*argv, stdin, stdout, stderr]
            unseen = [value.name for value in values if value.temporary and not any(value.name in word for word in known_words)]
            if unseen:
                argv = ["/bin/sh", "-c", TOUCH, "sh", *unseen, "--", *argv]
        self.task = Task(
            self.id, tuple(argv), tuple(inputs), tuple(value.name for value in values), stdin, stdout, stderr,
            env=tuple(env for key, value in code.profile if (env := _environment(key, apps.text(value(frame))))),
            label=function.name, line=at.line, after=tuple(dict.fromkeys(order)),
            keep=tuple(value.name for value in values if not value.temporary),
            scratch=tuple(value.name for value in values if value.temporary), **_fields(self.placing),
        )  # fmt: skip
        self.signals, self.arrays, self.reads = signals, arrays, reads
        known = {*self.task.inputs, *self.task.outputs}
        names = [name for text in dict.fromkeys(texts) if (name := text.removeprefix("./")) not in known and _is_name(name)]
        looked = tuple(name for name in names if name not in self.machine.named)
        done_already = [name for name in names if self.machine.named.get(name)]
        if looked:
            self.machine.ask(_present(looked, done_already), self.send, at)
        else:
            self.send(done_already)

    def send(self, present: Sequence[str]) -> None:
        """``present``: files of the user that the command line names."""
        task, machine, at = self.task, self.machine, self.site.at
        if present:
            task = msgspec.structs.replace(task, inputs=(*task.inputs, *present))
        elif self.apps.language == "swift-t" and not (task.inputs or task.outputs or task.stdin or task.stdout or task.stderr):
            task = msgspec.structs.replace(task, staged=False)  # it does its work in the user's directory
        for cell, value in self.made:
            machine.promise_file(cell, value, at)
        for one in self.signals:
            machine.set(one.promise, (task.id,), at)
        if self.arrays:
            machine.submit(task, self.fill, self.reads)
        else:
            machine.submit(task, self.done, self.reads)
            self.after()

    def done(self) -> None:
        for cell, value in self.made:
            self.machine.arrive(cell, value, self.site.at)
        for one in self.signals:
            self.machine.signal(one, self.site.at)

    def fill(self) -> None:
        """Of arrays the mapper says what they are, now that the files are there."""
        if not self.arrays:
            self.done()
            self.after()
            return
        array, *self.arrays = self.arrays
        assert array.namer is not None
        self.machine.ask(unpacked(array.namer, self.reads[-1].name), partial(self._found, array), self.site.at)

    def _found(self, array: Container, existing: list[tuple[Path, str]]) -> None:
        at, machine = self.site.at, self.machine
        for path, file in existing:
            if path[: len(array.path)] == array.path:
                machine.arrive(part_of(machine, array, path[len(array.path) :], at), FileValue(file), at)
        self.fill()


def _fields(placing: list[tuple[str, Cell]]) -> dict[str, Any]:
    """The fields of a task by its annotations."""
    fields: dict[str, Any] = {}
    for name, cell in placing:
        value = cell.value
        if name == "prio":
            fields["priority"] = int(value)
            continue
        place = value if isinstance(value, Location) else Location(int(value))
        if place.rank >= 0:
            fields["node"] = place.rank
            fields["node_soft"] = name == "soft_location" or (not place.hard and name != "hard_location")
    return fields


def _named(output: Any, names: dict[int, FileValue]) -> Any:
    """The word for an output on the command line: it has its name already."""
    if isinstance(output, FileCell):
        cell = FileCell(output.label)
        cell.promise.value = names[id(output)]
        return cell
    if isinstance(output, StructCell):
        proxy = StructCell((), output.label)
        proxy.fields = {name: _named(field, names) for name, field in output.fields.items()}
        proxy.closed = True
        return proxy
    return _listed(output) if isinstance(output, Container) else output


def _listed(output: Container) -> Container:
    """An array whose mapper lists its files: the command line may name them all before they are there."""
    if output.namer is None or output.namer.parts is None:
        return output
    proxy = Container(output.make_part, output.is_bag, output.label)
    for path, name in output.namer.parts:
        if path[: len(output.path)] != output.path:
            continue
        cell: Any = proxy
        for step in path[len(output.path) :]:
            known = cell.elements.get(step) if isinstance(cell, Container) else cell.fields[str(step)]
            cell = cell.add(step) if known is None else known
        cell.promise.value = FileValue(name)
    todo: list[Any] = [proxy]
    while todo:
        group = todo.pop()
        if isinstance(group, Container | StructCell):
            group.closed = True
            todo += group.elements.values() if isinstance(group, Container) else group.fields.values()
    return proxy


def _texts(value: Any) -> list[str]:
    """The strings among the words of a value."""
    if isinstance(value, str):
        return [value]
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for item in items for text in _texts(item)]


def _is_name(text: str) -> bool:
    """May it be the name of a file below where the user stands?"""
    return 0 < len(text) <= _NAME_MAX and text[0] not in "-/" and not text.startswith("..") and "\n" not in text


def _present(names: tuple[str, ...], others: list[str]) -> Generator[Any, Any, list[str]]:
    """Files of the user that a command line names: programs of Swift/T run where the user stands, and find them."""
    try:
        return [*(yield Present(names)), *others]
    except Refused:
        return others


def _arrays(cells: list[Any]) -> list[Container]:
    """The arrays among outputs, in structs too."""
    found: list[Container] = []
    for cell in cells:
        if isinstance(cell, Container):
            found.append(cell)
        elif isinstance(cell, StructCell):
            found += _arrays(list(cell.fields.values()))
    return found


def _signals(cells: list[Any]) -> list[Made]:
    """The signals among outputs or inputs, in structs too."""
    found: list[Made] = []
    for cell in cells:
        if isinstance(cell, Made):
            found.append(cell)
        elif isinstance(cell, StructCell):
            found += _signals(list(cell.fields.values()))
    return found


def _environment(key: str, value: str) -> str:
    """Of ``profile "env:NAME" = value``; '' for other profiles, which are about what is not here."""
    space, _, name = key.replace("::", ":").partition(":")
    return f"{name}={value}" if space.lower() == "env" and name else ""
