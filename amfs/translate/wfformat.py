"""WfFormat, the JSON of WfCommons: workflow instances of versions 1.1 to 1.6, as recorded or generated. See docs/reference/wfformat.md.

Up to 1.4 a task says everything itself; since 1.5 ``specification`` has tasks and files, ``execution`` the commands and what was measured.
Both are read into one list. Tasks are decoded one at a time, so that a fault has the line of its task.
"""

from __future__ import annotations

import math
import re
from array import array
from typing import Any

import msgspec

from amfs.translate.document import ELEMENT_BYTES_MAX, FAULTS_MAX, KeptReader, taken, with_after
from amfs.translate.shell_quoting import QuotingError, split
from amfs.workflow.workflow import DeclaredState, Task

Strings = list[str] | None
Number = int | float | None


class Command(msgspec.Struct):
    program: str | None = None
    arguments: Strings = None


class File(msgspec.Struct):
    """A file of the specification, or of one task in the old layout."""

    id: str | None = None
    name: str | None = None
    link: str | None = None
    sizeInBytes: Number = None
    size: Number = None


class Extra(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The facts of a task that WfFormat has no words for, under ``amfs``."""

    stdin: str = ""
    stdout: str = ""
    stderr: str = ""
    env: tuple[str, ...] = ()
    cwd: str = ""
    time_limit: float = 0.0
    retries: int = -1
    label: str | None = None
    timed: bool = True  # false: the run time of 0 stands there because the schema wants one
    node: int = -1
    node_soft: bool = False
    reduce: int = 0
    keep: tuple[str, ...] = ()
    scratch: tuple[str, ...] = ()
    staged: bool = True
    blind: bool = False


EXTRA_FIELDS = [field for field in Extra.__struct_fields__ if field not in ("label", "timed")]


class Node(msgspec.Struct):
    """A task: in the old layout all of it, else its part in the specification or in the execution."""

    id: str | None = None
    name: str | None = None
    category: str | None = None
    parents: Strings = None
    children: Strings = None
    inputFiles: Strings = None
    outputFiles: Strings = None
    files: list[File] | None = None
    command: Command | None = None
    runtimeInSeconds: Number = None
    runtime: Number = None
    coreCount: Number = None
    cores: Number = None
    memoryInBytes: Number = None
    memory: Number = None  # KiB, in old versions
    priority: Number = None
    machines: msgspec.Raw = msgspec.Raw()  # not looked at, so not made into objects
    machine: msgspec.Raw = msgspec.Raw()
    avgCPU: msgspec.Raw = msgspec.Raw()
    energyInKWh: msgspec.Raw = msgspec.Raw()
    amfs: Extra | None = None


class Specification(msgspec.Struct):
    tasks: list[msgspec.Raw]
    files: list[msgspec.Raw] | None = None


class Execution(msgspec.Struct):
    tasks: list[msgspec.Raw] | None = None


class Body(msgspec.Struct):
    specification: Specification | None = None
    execution: Execution | None = None
    tasks: list[msgspec.Raw] | None = None
    jobs: list[msgspec.Raw] | None = None  # before 1.2


class ExtraFiles(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Facts on files, under ``amfs`` at the top."""

    files: dict[str, DeclaredState] = {}
    paths: dict[str, str] = {}


class Instance(msgspec.Struct):
    workflow: Body
    name: str | None = None
    schemaVersion: str | None = None
    amfs: ExtraFiles | None = None


#: Values that a document may have: a text of nothing but brackets and commas must not become a hundred times as much memory.
VALUES_MAX = 50_000_000

#: An option with a JSON value, as the generator of WfBench writes it: one element, Python's quotes.
_WFBENCH = re.compile(r"(--?[\w-]+)[ \t]+([{\[].*[}\]])", re.DOTALL)

#: The part of names that tells tasks of one kind apart.
_SERIAL = re.compile(r"_(ID)?\d+\Z")


def kind_of(name: str) -> str:
    """``blastall_00000002`` is a ``blastall``."""
    return _SERIAL.sub("", name) or name


class WfFormatReader(KeptReader):
    """Reads an instance; ``tasks`` are complete after ``finish``."""

    def __init__(self, source: str) -> None:
        super().__init__(source)
        self._at = 0  # where in the text the last element was found, and its line
        self._line = 1
        self._data = b""

    def finish(self) -> None:
        if self.dead:
            return
        self._data = self.take()
        if self._data.count(b",") > VALUES_MAX:
            self.end(0, f"the document has more than {VALUES_MAX:,} values")
            return
        try:
            instance = msgspec.json.decode(self._data, type=Instance)
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            self.end(self._line_of(error), _in_words(error))
            return
        body = instance.workflow
        self.name = instance.name or ""
        if instance.amfs is not None:
            self.files = instance.amfs.files
            self.paths = dict(instance.amfs.paths)
        version = instance.schemaVersion or ""
        if not re.match(r"1\.[1-6](\D|\Z)", version):
            self.remark("version", 0, f"this says it is WfFormat {version or '(no version)'}; it is read as if it were 1.1 to 1.6")
        if body.specification is not None:
            self._new_layout(body.specification, body.execution)
        elif body.tasks is not None or body.jobs is not None:
            self._tasks(body.tasks if body.tasks is not None else body.jobs or [], {})
        else:
            self.end(0, "there is neither a specification nor a list of tasks in this workflow")
        self._data = b""

    # ── layouts ────────────────────────────────────────────────────────────────────────────────────

    def _new_layout(self, specification: Specification, execution: Execution | None) -> None:
        """Each list is gone through from the beginning of the text, as lines are found going forward and the lists come in any order."""
        runs = self._runs(execution) if execution is not None else {}
        self._rewind()
        self._tasks(specification.tasks, runs)
        self._rewind()
        for raw in taken(specification.files or []):
            if len(self.faults) >= FAULTS_MAX:
                break
            file = self._decode(raw, File)
            if file is not None:
                name = file.id or file.name
                if name:
                    self._size(name, file, self._line)
                else:
                    self.fault(self._line, "a file without an id")

    def _runs(self, execution: Execution) -> dict[str, Task]:
        """The execution of each task, as a task without files."""
        runs: dict[str, Task] = {}
        for raw in taken(execution.tasks or []):
            if len(self.faults) >= FAULTS_MAX:
                break
            node = self._decode(raw, Node)
            if node is None:
                continue
            name = node.id or node.name
            if not name:
                self.fault(self._line, "an executed task without an id")
            elif name in runs:
                self.remark("executed twice", self._line, f"task {name} was executed more than once; the first execution counts")
            else:
                runs[self.share(name)] = self._executed(node, self.share(name), self._line)
        return runs

    def _decode(self, raw: msgspec.Raw, kind: type[Any]) -> Any:
        """One element; None and a fault with its line if it is not of its form."""
        text = bytes(raw)
        if len(text) > ELEMENT_BYTES_MAX:
            self.fault(self._line, f"one element takes more than {ELEMENT_BYTES_MAX >> 20} MiB")
            return None
        found = self._data.find(text, self._at)
        if found >= 0:
            self._line += self._data.count(b"\n", self._at, found)
            self._at = found
        try:
            return msgspec.json.decode(text, type=kind)
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            self.fault(self._line, _in_words(error))
            return None

    def _rewind(self) -> None:
        self._at, self._line = 0, 1

    # ── tasks ──────────────────────────────────────────────────────────────────────────────────────

    def _tasks(self, raws: list[msgspec.Raw], runs: dict[str, Task]) -> None:
        references: list[str] = []  # task, another, task, another, …
        lines = array("Q")
        downward = array("B")  # whether the other is a child
        by_name: dict[str, str | None] = {}
        ids: set[str] = set()
        for raw in taken(raws):
            if len(self.faults) >= FAULTS_MAX:
                self.end(self._line, "so many faults are enough: the rest is not read")
                return
            node = self._decode(raw, Node)
            if node is None:
                continue
            line = self._line
            task_id = self.share(node.id or node.name or "")
            if not task_id:
                self.fault(line, "a task without an id")
                continue
            ids.add(task_id)
            if node.name and node.name != task_id:
                by_name[node.name] = None if node.name in by_name else task_id  # old versions refer to names
            run = runs.pop(task_id, None)
            self.tasks.append(self._task(node, run or self._executed(node, task_id, line), line))
            for others, down in ((node.parents, 0), (node.children, 1)):
                for other in others or ():
                    references += (task_id, self.share(other))
                    lines.append(line)
                    downward.append(down)
        for name in runs:
            if name not in ids:
                self.fault(0, f"the execution names a task {name!r}, which the specification has not")
        parents: dict[str, list[str]] = {}
        stated = iter(references)
        later: list[tuple[str, str]] = []  # so that the order of the parents is that in which a task names them
        for task_id, other, line, down in zip(stated, stated, lines, downward, strict=True):
            found = other if other in ids else by_name.get(other)
            if not found:
                self.fault(line, f"task {task_id} names a task {other!r}, which there is not")
            elif down:
                later.append((found, task_id))
            else:
                parents.setdefault(task_id, []).append(found)
        for child, parent in later:
            parents.setdefault(child, []).append(parent)
        self.tasks = with_after(self.tasks, parents)

    def _executed(self, run: Node, task_id: str, line: int) -> Task:
        """A task with what its execution says: argv (empty if there is no command), run time, cores, memory, priority."""
        if _is_there(run.machines) or _is_there(run.machine):
            self.remark("machines", line, "on which machines tasks once ran has no meaning here")
        if _is_there(run.avgCPU) or _is_there(run.energyInKWh):
            self.remark("measurements", line, "what a run measured beside run time, cores and memory has no meaning here")
        seconds = _first(run.runtimeInSeconds, run.runtime)
        return Task(
            task_id,
            self._argv(run.command, line),
            cores=self._whole(_first(run.coreCount, run.cores), 1, line, "cores", 1, 1 << 31),
            memory=self._whole(_first(run.memoryInBytes, run.memory and run.memory * 1024), 0, line, "memory", 0, 1 << 63),
            priority=self._whole(run.priority, 0, line, "priority", -(1 << 31), 1 << 31),
            runtime=None if seconds is None else self.runtime(float(seconds), line),
        )

    def _task(self, node: Node, run: Task, line: int) -> Task:
        share = self.share
        task_id = run.id
        inputs = {share(name): None for name in node.inputFiles or ()}
        outputs = {share(name): None for name in node.outputFiles or ()}
        for file in node.files or ():
            name = file.name or file.id
            if not name:
                self.fault(line, f"task {task_id}: a file without a name")
                continue
            name = share(name)
            self._size(name, file, line)
            if file.link == "input":
                inputs[name] = None
            elif file.link == "output":
                outputs[name] = None
            else:
                self.fault(line, f"task {task_id}: the link of file {name!r} must be input or output, not {file.link!r}")
        for name in inputs.keys() & outputs.keys():
            self.remark("input and output", line, f"task {task_id} reads and writes {name!r}; here it only writes it")
            del inputs[name]
        extra = node.amfs or Extra()
        label = share(extra.label if extra.label is not None else node.category or kind_of(node.name or task_id))
        argv = run.argv
        if not argv:
            argv = (label or task_id,)
            self.remark("no command", line, f"task {task_id} has no command; its kind, {label!r}, is taken for the program")
        changes: dict[str, Any] = {name: getattr(extra, name) for name in EXTRA_FIELDS} if node.amfs is not None else {}
        if not extra.timed:
            changes["runtime"] = None
        return msgspec.structs.replace(
            run, argv=argv, inputs=tuple(inputs), outputs=tuple(outputs), label=label, line=line, **changes
        )

    def _argv(self, command: Command | None, line: int) -> tuple[str, ...]:
        if command is None or not command.program:
            return ()
        words = [command.program]
        for argument in command.arguments or ():
            words += self._words(argument, line)
        return tuple([self.share(word) for word in words])

    def _words(self, argument: str, line: int) -> list[str]:
        """An element of the arguments may hold several words: ``--percent-cpu 0.6``. Quotes hold words together."""
        if match := _WFBENCH.fullmatch(argument):
            return [match[1], match[2].replace("'", '"')]  # as WfCommons' own translators do
        try:
            return split(argument)
        except QuotingError as error:
            self.remark("quotes", line, f"in the argument {argument[:60]!r} {error}; it is taken as one word")
            return [argument]

    def _size(self, name: str, file: File, line: int) -> None:
        size = _first(file.sizeInBytes, file.size)
        if size is not None:
            if not math.isfinite(size) or abs(size) >= 1 << 63:
                self.fault(line, f"file {name!r}: {size} is no size")
            else:
                self.set_size(self.share(name), int(size), line)

    def _whole(self, value: Number, default: int, line: int, what: str, least: int, limit: int) -> int:
        if value is None:
            return default
        if not math.isfinite(value) or not least <= value < limit:
            self.remark(what, line, f"{what} cannot be {value:g}; {default} is taken")
            return default
        return round(value)

    def _line_of(self, error: Exception) -> int:
        byte = re.search(r"\(byte (\d+)\)", str(error))
        return self._data.count(b"\n", 0, int(byte[1])) + 1 if byte else 0


def _is_there(raw: msgspec.Raw) -> bool:
    return bytes(raw) not in (b"", b"null")


def _first(*values: Number) -> Number:
    return next((value for value in values if value is not None), None)


def _in_words(error: Exception) -> str:
    """One line for what msgspec did not like."""
    text = str(error)
    if isinstance(error, RecursionError):
        return "not valid JSON: nested too deeply"
    if isinstance(error, msgspec.ValidationError):
        what, _, where = text.partition(" - at `$")
        field = where.rstrip("`").lstrip(".")
        what = what[:1].lower() + what[1:]
        return f"{field}: {what}".replace("`", "'") if field else what.replace("`", "'")
    return f"not valid JSON: {text.removeprefix('JSON is malformed: ')}"
