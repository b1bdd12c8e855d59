"""The checks that a workflow must pass before anything runs, and the plan that they leave behind. Pure.

``check`` looks at a whole workflow and reports every fault at once; ``StreamChecker`` looks at tasks one at a time as an open-ended
list gives them. What the outside looks like (which files exist, which programs) is asked of a ``Place``; the real one is
``amfs.translate.place``. A million tasks must pass in seconds and in little memory: the good path is a handful of passes at the speed of
C over whole lists; only when something looks odd is it looked at name by name.
"""

from __future__ import annotations

import operator
import re
from array import array
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from itertools import chain
from typing import Protocol

import msgspec

from amfs.engine.order import cycles, topological
from amfs.engine.workflow import FileState, Task, Workflow, canonical, complete, printable, value_faults
from amfs.errors import Fault, WorkflowError


class Place(Protocol):
    """What the checks need to know of the world outside. Names are canonical: relative to ``base``, or absolute."""

    @property
    def base(self) -> str:
        """Absolute directory in which the user stands."""

    def missing(self, names: Iterable[str]) -> set[str]:
        """Those of ``names`` that are not there."""

    def unwritable(self, directory: str) -> str:
        """Why no file can be put into ``directory`` (which is made if need be), in words; '' if one can."""

    def find_program(self, name: str, *, here: bool) -> tuple[str, str]:
        """(absolute path, '') or ('', why not in words). ``here``: a bare name is looked up in ``base`` before PATH."""


class AnyPlace:
    """A place in which every file and every program exists: for simulations, and for checking a workflow by itself."""

    def __init__(self, base: str = "/") -> None:
        self.base = base

    def missing(self, names: Iterable[str]) -> set[str]:
        return set()

    def unwritable(self, directory: str) -> str:
        return ""

    def find_program(self, name: str, *, here: bool) -> tuple[str, str]:
        return absolute(canonical(name, self.base), self.base), ""


class Plan(msgspec.Struct):
    """What the submitter needs to walk a checked workflow. Files are known by their canonical names.

    A file that is read and has no writer lies on shared storage.
    """

    base: str  # absolute directory in which the user stands
    writers: dict[str, int]  # file -> index of the task that makes it
    readers: dict[str, int]  # file -> how many tasks read it
    order: array[int] | None  # None: the list itself respects the dependencies; else indices in an order that does
    shared: dict[str, str]  # file read from shared storage -> its absolute path
    programs: dict[str, str]  # argv[0] as written -> absolute path; with a slash, but relative: a file of the workflow
    aliases: dict[str, str]  # name as written -> canonical name, only where the two differ; usually empty
    count: int = 0  # tasks

    def walk(self) -> Sequence[int]:
        """Indices of the tasks, each after all those whose files it reads."""
        return range(self.count) if self.order is None else self.order


def absolute(name: str, base: str) -> str:
    """Absolute path of a canonical name."""
    if name.startswith("/"):
        return name
    return f"{base}/{name}" if base != "/" else f"/{name}"


def check(workflow: Workflow, place: Place, *, known: Sequence[Fault] = (), excused: Container[str] = ()) -> Plan:
    """Check everything that can be checked before anything runs; raises WorkflowError with all faults found.

    ``known`` are faults found while reading, to be reported together with these. Missing inputs among ``excused`` are not
    reported: names on malformed lines, which may well be the ones that would have made them.

    Tasks that leave out of their inputs and outputs what they name elsewhere (stdin, stdout, stderr), or name a file twice, are replaced
    in ``workflow.tasks``: afterwards ``inputs`` and ``outputs`` are all the files of a task, each once.
    """
    checker = _Checker(workflow, place, excused)
    plan = checker.run()
    if checker.faults or known:
        raise WorkflowError(sorted([*known, *checker.faults], key=lambda fault: (fault.source != checker.source, fault.line)))
    return plan


_inputs_of = operator.attrgetter("inputs")
_outputs_of = operator.attrgetter("outputs")
_argv_of = operator.attrgetter("argv")

#: Tasks looked at together; bounds the memory of texts that are joined for a moment.
_PART = 65536


class _Checker:
    """One pass of ``check``. Every method adds to ``faults`` and goes on."""

    def __init__(self, workflow: Workflow, place: Place, excused: Container[str]) -> None:
        self.tasks = workflow.tasks
        self.excused = excused
        self.source = workflow.source or workflow.name
        self.place = place
        self.base = place.base
        self.states = {canonical(name, place.base): state for name, state in workflow.files.items()}
        self.faults: list[Fault] = []
        self.aliases: dict[str, str] = {}
        self.absolute: set[str] = set()  # absolute names
        self.nested = False  # some name has a directory in it

    def run(self) -> Plan:
        self.check_values()
        self.check_ids()
        self.check_names()
        writers = self.find_writers()
        inputs = chain.from_iterable(map(_inputs_of, self.tasks))
        readers = Counter(map(self.canonical_name(), inputs) if self.aliases else inputs)
        self.check_spellings(writers, readers)
        self.check_states(writers)
        order = self.find_order(writers)
        shared, missing = self.find_shared(writers, readers)
        programs = self.find_programs(writers, missing)
        self.check_output_places(writers, readers)
        return Plan(self.base, writers, readers, order, shared, programs, self.aliases, len(self.tasks))

    def fault(self, line: int, message: str) -> None:
        self.faults.append(Fault(self.source, line, printable(message)))

    def canonical_name(self) -> Callable[[str], str]:
        get = self.aliases.get
        return lambda name: get(name, name)

    # ── tasks by themselves ────────────────────────────────────────────────────────────────────────

    def check_values(self) -> None:
        for index, task in enumerate(self.tasks):
            if len(task.inputs) > 1 or len(task.outputs) > 1 or task.stdin or task.stdout or task.stderr:
                whole = complete(task)
                if whole is not task:
                    self.tasks[index] = task = whole
            if (
                task.cores != 1 or task.memory or task.time_limit or task.retries != -1 or task.priority or task.node != -1
                or task.node_soft or task.reduce or task.keep or task.env or task.cwd or not task.id or not task.argv or not task.argv[0]
            ):  # fmt: skip
                for words in _task_faults(task, self.place):
                    self.fault(task.line, words)

    def check_ids(self) -> None:
        if len({task.id for task in self.tasks}) == len(self.tasks):
            return
        first: dict[str, Task] = {}
        for task in self.tasks:
            other = first.setdefault(task.id, task)
            if other is not task:
                self.fault(task.line, _id_taken(task, other))

    # ── names ──────────────────────────────────────────────────────────────────────────────────────

    def check_names(self) -> None:
        """Find the names that are not canonical as written, and those that no file can have."""
        for start in range(0, len(self.tasks), _PART):
            part = self.tasks[start : start + _PART]
            if "\0" in "\n".join(chain.from_iterable(map(_argv_of, part))):
                for task in part:
                    if any("\0" in word for word in task.argv):
                        self.fault(task.line, f"task {task.id}: a word of its command contains a NUL character")
            inputs = "\n".join(chain.from_iterable(map(_inputs_of, part)))
            outputs = "\n".join(chain.from_iterable(map(_outputs_of, part)))
            self.nested = self.nested or "/" in inputs or "/" in outputs
            if _may_be_odd(inputs, _inputs_of, part) or _may_be_odd(outputs, _outputs_of, part):
                for task in part:
                    for words in _name_faults(task, self.base, self.aliases, self.absolute):
                        self.fault(task.line, words)
        if self.aliases:
            for index, task in enumerate(self.tasks):
                self.tasks[index] = _each_file_once(task, self.aliases)

    def find_writers(self) -> dict[str, int]:
        tasks = self.tasks
        if self.aliases:
            name_of = self.canonical_name()
            writers = {name_of(name): index for index, task in enumerate(tasks) for name in task.outputs}
        else:
            writers = {name: index for index, task in enumerate(tasks) for name in task.outputs}
        if len(writers) != sum(map(len, map(_outputs_of, tasks))):
            writers = {}
            for index, task in enumerate(tasks):
                for name in task.outputs:
                    other = tasks[writers.setdefault(self.aliases.get(name, name), index)]
                    if other is not task:
                        self.fault(task.line, _written_twice(task, name, other))
        return writers

    def check_spellings(self, writers: Mapping[str, int], readers: Mapping[str, int]) -> None:
        """To the engine an absolute name inside the base directory is another file than the relative one."""
        for name in sorted(self.absolute):
            if not name.startswith(f"{self.base}/"):
                continue
            short = name[len(self.base) + 1 :]
            if (name in writers and (short in writers or short in readers)) or (short in writers and name in readers):
                tasks = self.tasks_with((name, short))
                words = f"the same file is named {name!r} by task {tasks[name].id} and {short!r} by task {tasks[short].id}; use one name"
                self.fault(max(tasks[name].line, tasks[short].line), words)

    def tasks_with(self, names: Iterable[str]) -> dict[str, Task]:
        """For each of ``names`` (canonical) the first task that has it among its files."""
        wanted = set(names)
        found: dict[str, Task] = {}
        for task in self.tasks:
            for name in chain(task.inputs, task.outputs):
                name = self.aliases.get(name, name)
                if name in wanted:
                    found.setdefault(name, task)
        return found

    def check_states(self, writers: Mapping[str, int]) -> None:
        for name, state in self.states.items():
            if state is FileState.SHARED and name in writers:
                task = self.tasks[writers[name]]
                self.fault(task.line, f"task {task.id}: writes {name!r}, which the file list says is Shared already")

    # ── order ──────────────────────────────────────────────────────────────────────────────────────

    def find_order(self, writers: dict[str, int]) -> array[int] | None:
        get = writers.get
        rename = self.aliases.get if self.aliases else None
        ordered = True
        for index, inputs in enumerate(map(_inputs_of, self.tasks)):
            for name in inputs:
                if rename is not None:
                    name = rename(name, name)
                writer = get(name, -1)
                if writer >= index:
                    ordered = False
                    if writer == index:
                        self.fault(self.tasks[index].line, _reads_own(self.tasks[index], name))
        if ordered:
            return None

        def producers(index: int) -> list[int]:
            found = []
            for name in self.tasks[index].inputs:
                writer = get(self.aliases.get(name, name))
                if writer is not None:
                    found.append(writer)
            return found

        order = topological(len(self.tasks), producers)
        if order is None:
            for path in cycles(len(self.tasks), producers):
                self.fault(self.tasks[path[0]].line, cycle_in_words([self.tasks[index].id for index in path]))
        return order

    # ── the world outside ──────────────────────────────────────────────────────────────────────────

    def find_shared(self, writers: Mapping[str, int], readers: Mapping[str, int]) -> tuple[dict[str, str], set[str]]:
        needed = [name for name in readers if name not in writers]
        missing = self.place.missing(needed)
        expected = {name for name in needed if self.states.get(name) is FileState.INVALID} if self.states else set()
        if missing or expected:
            tasks = self.tasks_with(missing | expected)
            suggest = _Suggestions(writers)
            for name in sorted(missing | expected):
                if name in self.excused or not name or "\0" in name:
                    continue  # may be made by a line that could not be read; or is reported as a name already
                task = tasks[name]
                others = f" and {readers[name] - 1} more" if readers[name] > 1 else ""
                if name in expected:
                    words = "is Invalid in the file list, but no task makes it"
                else:
                    words = f"does not exist{_where(name, self.base)}, and no task makes it"
                self.fault(task.line, f"input {name!r} of task {task.id}{others} {words}{suggest.near(name)}")
        base = "" if self.base == "/" else self.base
        return {name: name if name[:1] == "/" else f"{base}/{name}" for name in needed}, missing | expected

    def find_programs(self, writers: Mapping[str, int], missing: set[str]) -> dict[str, str]:
        """Where each program is. Staged tasks look where the user stands, then on PATH; bare commands as a shell does: on PATH only."""
        staged = {task.argv[0] for task in self.tasks if task.staged and task.argv}
        bare = {task.argv[0] for task in self.tasks if not task.staged and task.argv} - staged
        programs: dict[str, str] = {}
        made: set[str] = set()
        faulty: dict[str, str] = {}
        for name in sorted((staged | bare) - {""}):
            true_name = canonical(name, self.base)
            if true_name in writers and (name in staged or "/" in name):
                made.add(name)
                programs[name] = name if "/" in name else f"./{name}"
            elif true_name not in missing:
                programs[name], why = self.place.find_program(name, here=name in staged)
                if why:
                    faulty[name] = why
        if faulty or made:
            self._check_program_users(writers, made, faulty)
        return programs

    def _check_program_users(self, writers: Mapping[str, int], made: set[str], faulty: Mapping[str, str]) -> None:
        users = Counter(task.argv[0] for task in self.tasks if task.argv)
        told = set()
        for task in self.tasks:
            name = task.argv[0] if task.argv else ""
            if name in faulty and name not in told:
                told.add(name)
                others = f" and {users[name] - 1} more" if users[name] > 1 else ""
                self.fault(task.line, f"program {name!r} of task {task.id}{others} {faulty[name]}")
            elif name in made:
                true_name = canonical(name, self.base)
                if all(self.aliases.get(file, file) != true_name for file in task.inputs):
                    maker = self.tasks[writers[true_name]]
                    words = f"its program {name!r} is made by task {maker.id}, so it must be among the inputs of this task"
                    self.fault(task.line, f"task {task.id}: {words}")

    def check_output_places(self, writers: Mapping[str, int], readers: Mapping[str, int]) -> None:
        """Only files that will land on shared storage need a place there: those that nobody reads, and those kept."""
        kept = {self.aliases.get(name, name) for task in self.tasks if task.keep for name in task.keep}
        if self.nested:
            finals = {_directory(name) for name in writers if name not in readers or name in kept}
            for directory in sorted(_with_parents(set(map(_directory, chain(writers, readers))))):
                if directory in writers:
                    task = self.tasks[writers[directory]]
                    words = f"output {directory!r} is a file, but other names lie below it as in a directory"
                    self.fault(task.line, f"task {task.id}: {words}")
        else:
            finals = {""} if any(name not in readers or name in kept for name in writers) else set()
        refused = {directory: why for directory in sorted(finals) if (why := self.place.unwritable(directory))}
        for directory, why in refused.items():
            for name, index in writers.items():
                if _directory(name) == directory and (name not in readers or name in kept):
                    task = self.tasks[index]
                    self.fault(task.line, f"task {task.id}: output {name!r} cannot be written: {why}")
                    break


# ── lists that are still growing ───────────────────────────────────────────────────────────────────


class StreamChecker:
    """The same checks for a list whose end is not known: each task against those before it.

    A file that exists when the first task that reads it is added, and that no earlier task makes, is shared. A file that neither exists
    nor has a writer yet may still get one: only ``finish`` can tell. After ``add`` every file of the task is in ``writers``,
    in ``shared``, or waiting to be made by a later task. A task with faults is not taken in.
    """

    def __init__(self, place: Place, source: str = "standard input", files: Mapping[str, FileState] | None = None) -> None:
        self.place = place
        self.base = place.base
        self.source = source
        self.states = {canonical(name, place.base): state for name, state in (files or {}).items()}
        #: Grows with the list. ``order`` stays None: tasks come in the order written, and wait for files, not for tasks.
        self.plan = plan = Plan(self.base, {}, {}, None, {}, {}, {})
        self.writers, self.readers, self.shared = plan.writers, plan.readers, plan.shared
        self.programs, self.aliases = plan.programs, plan.aliases
        self.unmade: dict[str, int] = {}  # file that nobody makes so far -> index of the first task that reads it
        self._ids: dict[str, int] = {}
        self._names: list[str] = []  # task ids by index
        self._lines = array("Q")
        self._inputs: list[tuple[str, ...]] = []
        self._shared_by: dict[str, int] = {}
        self._directories: dict[str, str] = {}  # directory of an output -> why nothing can be written there, or ''

    def add(self, task: Task) -> list[Fault]:
        """Take in the next task; what is wrong with it. Its index is the number of tasks taken in before."""
        task = complete(task)
        index = len(self._names)
        words = _task_faults(task, self.place)
        words += _name_faults(task, self.base, self.aliases, set())
        if any("\0" in word for word in task.argv):
            words.append(f"task {task.id}: a word of its command contains a NUL character")
        if _each_file_once(task, self.aliases) is not task:  # the caller keeps its own task: it cannot be put right here
            words.append(f"task {task.id}: names a file twice, in two spellings")
        inputs = tuple([self.aliases.get(name, name) for name in task.inputs])
        outputs = [self.aliases.get(name, name) for name in task.outputs]
        if task.id in self._ids:
            words.append(_id_taken(task, self._at(self._ids[task.id])))
        for name in outputs:
            if name in self.writers:
                words.append(_written_twice(task, name, self._at(self.writers[name])))
            elif name in self.shared:
                reader = self._at(self._shared_by[name])
                words.append(
                    f"task {task.id}: writes {name!r}, which existed when task {reader.id}{_on_line(reader)} was to read it; "
                    "in a list that grows, write the producer first"
                )
            elif self.states.get(name) is FileState.SHARED:
                words.append(f"task {task.id}: writes {name!r}, which the file list says is Shared already")
            if name in inputs:
                words.append(_reads_own(task, name))
            directory = _directory(name)
            if directory not in self._directories:
                self._directories[directory] = self.place.unwritable(directory)
            if self._directories[directory]:
                words.append(f"task {task.id}: output {name!r} cannot be written: {self._directories[directory]}")
        words += self._find_program(task, inputs)
        if words:
            return [Fault(self.source, task.line, printable(text)) for text in words]

        self.plan.count += 1
        self._ids[task.id] = index
        self._names.append(task.id)
        self._lines.append(task.line)
        self._inputs.append(inputs)
        for name in outputs:
            self.writers[name] = index
            self.unmade.pop(name, None)
        for name in inputs:
            self.readers[name] = self.readers.get(name, 0) + 1
            if name in self.writers or name in self.shared or name in self.unmade:
                continue
            if self.states.get(name) is FileState.INVALID or self.place.missing((name,)):
                self.unmade[name] = index
            else:
                self.shared[name] = absolute(name, self.base)
                self._shared_by[name] = index
        return []

    def finish(self) -> dict[str, str]:
        """The list has ended. Files for which tasks wait in vain, each with the reason in words."""
        vain: dict[str, str] = {}
        for name, index in self.unmade.items():
            reader = self._at(index)
            who = f"task {reader.id}{_on_line(reader)} reads it"
            vain[name] = printable(f"{name!r} does not exist{_where(name, self.base)}, and no task makes it ({who})")
        knots = cycles(len(self._names), self._producers)
        if knots:
            for path in knots:
                why = printable(cycle_in_words([self._names[index] for index in path]))
                for reader_index, maker in zip(path[1:] + path[:1], path, strict=True):
                    for name in self._inputs[reader_index]:
                        if self.writers.get(name) == maker:
                            vain[name] = why
        return vain

    def _producers(self, index: int) -> list[int]:
        return [self.writers[name] for name in self._inputs[index] if name in self.writers]

    def _at(self, index: int) -> Task:
        """Enough of an earlier task for a message."""
        return Task(self._names[index], (), line=self._lines[index])

    def _find_program(self, task: Task, inputs: tuple[str, ...]) -> list[str]:
        if not task.argv or not task.argv[0]:
            return []  # reported already
        name = task.argv[0]
        true_name = canonical(name, self.base)
        if true_name in inputs and (true_name in self.writers or self.place.missing((true_name,))):
            self.programs[name] = name if "/" in name else f"./{name}"
        elif name not in self.programs:
            path, why = self.place.find_program(name, here=task.staged)
            if why:
                return [f"program {name!r} of task {task.id} {why}"]
            self.programs[name] = path
        return []


# ── parts of both ──────────────────────────────────────────────────────────────────────────────────


def cycle_in_words(ids: Sequence[str]) -> str:
    """A cycle as a path of tasks that ends where it began; the middle of a very long one is left out."""
    names = [*ids, ids[0]]
    if len(names) > 20:
        names[12:-6] = [f"... ({len(names) - 18} more)"]
    return f"cycle of tasks, each waiting for the one before it: {' -> '.join(names)}"


def _on_line(task: Task) -> str:
    return f" (line {task.line})" if task.line else ""


def _id_taken(task: Task, other: Task) -> str:
    return f"task id {task.id!r} is already taken{_on_line(other)}"


def _written_twice(task: Task, name: str, other: Task) -> str:
    return f"task {task.id}: output {name!r} is already written by task {other.id}{_on_line(other)}"


def _reads_own(task: Task, name: str) -> str:
    return f"task {task.id}: reads {name!r}, which it writes itself"


def _where(name: str, base: str) -> str:
    return "" if name.startswith("/") else f" in {base}"


def _task_faults(task: Task, place: Place) -> list[str]:
    words = [f"task {task.id}: {text}" if task.id else text for text in value_faults(task)]
    if task.cwd and not task.staged and place.missing([canonical(task.cwd, place.base)]):
        words.append(f"task {task.id}: working directory {task.cwd!r} does not exist")
    return words


def _may_be_odd(text: str, names_of: Callable[[Task], tuple[str, ...]], part: Sequence[Task]) -> bool:
    """Whether any of the names that ``text`` joins with newlines may be empty, absolute or not canonical. May say yes in vain."""
    if not text:
        return any(map(names_of, part))  # no names at all, or a single empty one
    text = f"\n{text}\n"
    marks = ("\n/", "//", "/.", "/\n", "\n.", "\n\n", "\0") if "/" in text else ("\n.", "\n\n", "\0")
    return any(mark in text for mark in marks)


#: What makes a relative name uncanonical.
_UNCANONICAL = re.compile(r"\A\.|//|/\.|/\Z")


def _name_faults(task: Task, base: str, aliases: dict[str, str], absolutes: set[str]) -> list[str]:
    """Fill in ``aliases`` and ``absolutes`` from the names of one task; names that no file can have, in words."""
    words = []
    for name in chain(task.inputs, task.outputs):
        if not name:
            words.append(f"task {task.id}: a file name is empty")
        elif "\0" in name:
            words.append(f"task {task.id}: file name {name!r} contains a NUL character")
        elif _UNCANONICAL.search(name):
            true_name = canonical(name, base)
            if true_name != name:
                aliases[name] = true_name
            if true_name[0] == "/":
                absolutes.add(true_name)
        elif name[0] == "/":
            absolutes.add(name)
    for name in task.outputs:
        if name.endswith(("/", "/.", "/..")) or name in (".", ".."):
            words.append(f"task {task.id}: output {name!r} names a directory; name the files in it")
    return words


def _each_file_once(task: Task, aliases: Mapping[str, str]) -> Task:
    """The task without second spellings of files that it has already named."""
    inputs, outputs = ({aliases.get(name, name): name for name in reversed(names)} for names in (task.inputs, task.outputs))
    if len(inputs) == len(task.inputs) and len(outputs) == len(task.outputs):
        return task
    return msgspec.structs.replace(task, inputs=tuple(reversed(inputs.values())), outputs=tuple(reversed(outputs.values())))


def _directory(name: str) -> str:
    """The directory of a canonical name; '' is the base directory."""
    head, slash, _ = name.rpartition("/")
    return head or slash


def _with_parents(directories: set[str]) -> set[str]:
    found = set()
    for directory in directories:
        while directory and directory != "/" and directory not in found:
            found.add(directory)
            directory = directory.rpartition("/")[0]
    return found


class _Suggestions:
    """Outputs whose names look like a missing input's. Bounded: a million missing files must not cost a million comparisons each."""

    MAX_ASKED = 20
    MAX_NAMES = 20_000

    def __init__(self, writers: Mapping[str, int]) -> None:
        self._writers = writers
        self._asked = 0
        self._plain: dict[str, str] = {}

    def near(self, name: str) -> str:
        self._asked += 1
        if self._asked > self.MAX_ASKED:
            return ""
        if not self._plain:
            self._plain = {made.rpartition("/")[2].casefold(): made for made in self._writers}
        guess = self._plain.get(name.rpartition("/")[2].casefold())
        if guess is None and len(self._writers) <= self.MAX_NAMES:
            import difflib  # only for faulty workflows

            guess = next(iter(difflib.get_close_matches(name, self._writers, 1, 0.8)), None)
        return f"; did you mean the output {guess!r}?" if guess else ""
