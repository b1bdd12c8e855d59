"""The checks that a workflow must pass before anything runs, and the plan that they leave behind. Pure.

``check`` looks at a whole workflow and reports every fault at once; ``StreamChecker`` looks at tasks one at a time as an open-ended list
gives them. A ``Place`` says which files and programs exist; the real one is ``amfs.translate.place``. A million tasks must pass in seconds
and in little memory: a list without faults takes a handful of passes over whole lists at the speed of C. Names are checked one by one only
after a pass has found something odd.
"""

from __future__ import annotations

import operator
from array import array
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from itertools import chain

import msgspec

from amfs.errors import Fault, WorkflowError
from amfs.vocabulary.object_versions import ObjectVersion
from amfs.vocabulary.paths import url_of
from amfs.workflow.check_parts import (
    Place,
    Suggestions,
    cycle_in_words,
    directory_of,
    each_file_once,
    id_taken,
    in_its_mount,
    known_directories,
    may_be_odd,
    name_faults,
    on_line,
    reads_own,
    task_faults,
    where,
    with_parents,
    written_twice,
)
from amfs.workflow.check_texts import FAULTS_MAX, ids_taken, text_faults, too_long, workflow_texts
from amfs.workflow.check_urls import (
    Destinations,
    below_brought,
    destination_faults,
    destinations_of,
    find_missing,
    places_of,
    unstaged_faults,
    unusable_inputs,
    unusable_now,
)
from amfs.workflow.order import Producers, cycles, topological
from amfs.workflow.real_names import RealNames
from amfs.workflow.versions import producers_of, versioned
from amfs.workflow.workflow import DeclaredState, Task, Workflow, canonical, complete, printable


class Plan(msgspec.Struct):
    """A checked workflow, for the submitter to walk. Files are known by their canonical names.

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
    after: dict[str, int] = {}  # id of a task for which others wait without reading its files -> its index; usually empty
    paths: dict[str, str] = {}  # file that lies, or is to lie, elsewhere than under its name -> its absolute path or URL; usually empty
    later: dict[int, range | None] = {}  # task that stands for a workflow made later -> its tasks, where they are known already
    unsettled: set[str] = set()  # files that tasks of such a workflow may read, too: nobody can count their readers
    versions: dict[str, ObjectVersion] = {}  # of shared files at URLs, as the check saw them

    def walk(self) -> Sequence[int]:
        """Indices of the tasks, each after all those for which it waits."""
        return range(self.count) if self.order is None else self.order


def versions_at(place: Place, shared: Mapping[str, str]) -> dict[str, ObjectVersion]:
    """Of the shared files that are at URLs."""
    urls = {name: path for name, path in shared.items() if "://" in path}
    seen = place.versions(urls.values()) if urls else {}
    return {name: seen[url] for name, url in urls.items() if url in seen}


def absolute(name: str, base: str) -> str:
    """Absolute path of a canonical name."""
    if name.startswith("/"):
        return name
    return url_of(name) or (f"{base}/{name}" if base != "/" else f"/{name}")


def check(workflow: Workflow, place: Place, *, known: Sequence[Fault] = (), excused: Container[str] = ()) -> Plan:
    """Check everything that can be checked before anything runs; raises WorkflowError with all faults found.

    ``known`` are faults found while reading, to be reported together with these. Missing inputs among ``excused`` are not
    reported: names on malformed lines, which may well be the ones that would have made them.

    Tasks that leave out of their inputs and outputs what they name elsewhere (stdin, stdout, stderr), or name a file twice, are replaced
    in ``workflow.tasks``: afterwards ``inputs`` and ``outputs`` are all the files of a task, each once.
    """
    checker = _Checker(workflow, place, excused)
    faults = workflow_texts(workflow)
    plan = checker.run()
    known = [*known, *faults, *workflow.run_faults]
    if checker.faults or known:
        found = sorted([*known, *checker.faults], key=lambda fault: (fault.source != checker.source, fault.line))
        if checker.omitted:
            found.append(Fault(checker.source, 0, f"{checker.omitted} more faults are not shown"))
        raise WorkflowError(found)
    return plan


_inputs_of = operator.attrgetter("inputs")
_outputs_of = operator.attrgetter("outputs")

#: Tasks looked at together; bounds the memory of texts that are joined for a moment.
_PART = 65536


class _Checker:
    """One pass of ``check``. Every method adds to ``faults`` and goes on."""

    def __init__(self, workflow: Workflow, place: Place, excused: Container[str]) -> None:
        self.workflow = workflow
        self.tasks = workflow.tasks
        self.excused = excused
        self.source = workflow.source or workflow.name
        self.place = place
        self.base = place.base
        self.states = {canonical(name, place.base): state for name, state in workflow.files.items()}
        self.unusable: dict[str, str] = {}  # input, or where a catalog has it -> why nobody can tell whether it is there
        self.elsewhere = {canonical(name, place.base): path for name, path in workflow.paths.items()}
        self.later = workflow.later.keys()
        self.known_later = workflow.known_later
        self.absent = workflow.absent
        self.after: dict[str, int] = {}
        self.paths: dict[str, str] = {}  # of inputs
        self.destinations: dict[str, str] = {}  # output -> the URL to which it goes
        self.faults: list[Fault] = []
        self.omitted = 0  # faults that are not kept
        self.aliases: dict[str, str] = {}
        self.absolute: set[str] = set()  # absolute names
        self.real_names = RealNames(place)
        self.nested = False  # some name has a directory in it
        self.several = False  # some file has several writers, or is read by its own

    def run(self) -> Plan:
        self.faults += ids_taken(self.workflow)
        self.check_values()
        self.check_after()
        self.check_names()
        writers = self.find_writers()
        inputs = chain.from_iterable(map(_inputs_of, self.tasks))
        readers = Counter(map(self.canonical_name(), inputs) if self.aliases else inputs)
        self.destinations = destinations_of(writers, self.elsewhere)
        self.check_spellings(writers, readers)
        self.check_states(writers)
        order = self.find_order(writers)
        later = self.find_later()
        shared, missing = self.find_shared(writers, readers)
        programs = self.find_programs(writers, missing)
        self.check_output_places(writers, readers)
        self.check_reductions(writers)
        paths = {**self.paths, **{name: url for name, url in self.destinations.items() if name in self.elsewhere}}
        seen = versions_at(self.place, shared)
        return Plan(self.base, writers, readers, order, shared, programs, self.aliases, len(self.tasks), self.after, paths, *later, seen)

    def fault(self, line: int, message: str) -> None:
        if len(self.faults) < FAULTS_MAX:
            self.faults.append(Fault(self.source, line, printable(message)))
        else:
            self.omitted += 1

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
                or task.after or task.scratch
            ):  # fmt: skip
                for words in task_faults(task, self.place):
                    self.fault(task.line, words)

    def check_after(self) -> None:
        """Find the tasks for which others wait without reading their files."""
        waiting = [task for task in self.tasks if task.after]
        if not waiting:
            return
        index_of = {task.id: index for index, task in enumerate(self.tasks)}
        for task in waiting:
            for name in task.after:
                index = index_of.get(name, -1)
                if index >= 0:
                    self.after[name] = index
                elif name:
                    self.fault(task.line, f"task {task.id}: is to come after {name!r}, and there is no task of that id")

    # ── names ──────────────────────────────────────────────────────────────────────────────────────

    def check_names(self) -> None:
        """Find the names that are not canonical as written, and those that no file can have."""
        for start in range(0, len(self.tasks), _PART):
            part = self.tasks[start : start + _PART]
            inputs = "\n".join(chain.from_iterable(map(_inputs_of, part)))
            outputs = "\n".join(chain.from_iterable(map(_outputs_of, part)))
            self.nested = self.nested or "/" in inputs or "/" in outputs
            if may_be_odd(inputs, _inputs_of, part) or may_be_odd(outputs, _outputs_of, part):
                for task in part:
                    for words in name_faults(task, self.real_names.strays, self.base, self.aliases, self.absolute, self.elsewhere):
                        self.fault(task.line, words)
        if self.aliases:
            for index, task in enumerate(self.tasks):
                self.tasks[index] = each_file_once(task, self.aliases)

    def find_writers(self) -> dict[str, int]:
        tasks = self.tasks
        if self.aliases:
            name_of = self.canonical_name()
            writers = {name_of(name): index for index, task in enumerate(tasks) for name in task.outputs}
        else:
            writers = {name: index for index, task in enumerate(tasks) for name in task.outputs}
        if len(writers) != sum(map(len, map(_outputs_of, tasks))):
            self.several = True
            writers = {}
            for index, task in enumerate(tasks):
                for name in task.outputs:
                    other = tasks[writers.setdefault(self.aliases.get(name, name), index)]
                    if other is not task:
                        self.fault(task.line, written_twice(task, name, other))
        return writers

    def check_spellings(self, writers: Mapping[str, int], readers: Mapping[str, int]) -> None:
        """To the engine an absolute name inside the base directory is another file than the relative one, and so is a name by a link."""
        if not (self.nested or self.absolute):
            return
        for _, names in sorted(self.real_names.several(writers, readers).items()):
            if any(name in writers for name in names):
                tasks = self.tasks_with(names)
                name, short = names[0], names[-1]
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
            if state is DeclaredState.SHARED and name in writers:
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
                        self.several = True
                        self.fault(self.tasks[index].line, reads_own(self.tasks[index], name))
        after = self.after
        if after and ordered:
            ordered = not any(after.get(name, 0) >= index for index, task in enumerate(self.tasks) for name in task.after)
        if ordered:
            return None

        def written_once(index: int) -> list[int]:
            found = []
            for name in self.tasks[index].inputs:
                writer = get(self.aliases.get(name, name))
                if writer is not None:
                    found.append(writer)
            for name in self.tasks[index].after:
                if name in after:
                    found.append(after[name])
            return found

        producers: Producers = written_once
        if self.several:  # a fault; but whether there are cycles, too, is what 'amfs info' says of it
            producers = producers_of(versioned(Workflow(self.tasks), self.base).tasks, self.base).__getitem__
        order = topological(len(self.tasks), producers)
        if order is None:
            for path in cycles(len(self.tasks), producers):
                self.fault(self.tasks[path[0]].line, cycle_in_words([self.tasks[index].id for index in path]))
        return order

    def find_later(self) -> tuple[dict[int, range | None], set[str]]:
        """The tasks that stand for workflows made later, and the files that those may read."""
        if not self.later:
            return {}, set()
        found = {
            index: self.known_later[task.id][0] if task.id in self.known_later else None
            for index, task in enumerate(self.tasks)
            if task.id in self.later
        }
        return found, {self.aliases.get(name, name) for index in found for name in self.tasks[index].inputs}

    # ── the world outside ──────────────────────────────────────────────────────────────────────────

    def find_shared(self, writers: Mapping[str, int], readers: Mapping[str, int]) -> tuple[dict[str, str], set[str]]:
        needed = [name for name in readers if name not in writers]
        if self.elsewhere:
            self.find_elsewhere(needed)
        missing = find_missing(self.place, [name for name in needed if name not in self.paths] if self.paths else needed, self.unusable)
        expected = {name for name in needed if self.states.get(name) is DeclaredState.INVALID} if self.states else set()
        if missing or expected:
            tasks = self.tasks_with(missing | expected)
            suggest = Suggestions(writers)
            for name in sorted(missing | expected):
                if name in self.excused or not name or "\0" in name or too_long(name) or name in self.unusable:
                    continue  # may be made by a line that could not be read; or is reported in another way
                task = tasks[name]
                others = f" and {readers[name] - 1} more" if readers[name] > 1 else ""
                words = "is Invalid in the file list, but no task makes it"
                if name not in expected:
                    words = f"does not exist{where(name, self.base)}, and no task makes it"
                    if name in self.elsewhere:
                        words += f"; nor is it at {self.elsewhere[name]}, where the workflow's catalog has it"
                    if "inputs" in self.absent:
                        words += f"; {self.absent['inputs']}"
                self.fault(task.line, f"input {url_of(name) or name!r} of task {task.id}{others} {words}{suggest.near(name)}")
        places = places_of(needed, self.base, self.paths)
        told = unusable_inputs(self.unusable, needed, self.paths) + below_brought(needed, self.paths)
        for name, words in told + destination_faults(self.destinations, places):
            self.fault(self.tasks_with((name,))[name].line, words)
        for line, words in unstaged_faults(self.tasks, self.aliases, self.destinations, places):
            self.fault(line, words)
        return places, missing | expected

    def find_elsewhere(self, needed: Iterable[str]) -> None:
        """Files of a catalog that are where it says: they are read there, under the names that tasks know."""
        at = {name: self.elsewhere.get(name, "") for name in needed if name[:1] != "/"}
        wanted = {name: path for name, path in at.items() if (path[:1] == "/" or "://" in path) and path != name}
        gone = find_missing(self.place, list(dict.fromkeys(wanted.values())), self.unusable)
        self.paths = {name: path for name, path in wanted.items() if path not in gone or path in self.unusable}

    def find_programs(self, writers: Mapping[str, int], missing: set[str]) -> dict[str, str]:
        """Where each program is. Staged tasks look where the user stands, then on PATH; bare commands as a shell does: on PATH only."""
        tasks = [task for task in self.tasks if task.id not in self.later] if self.later else self.tasks
        staged = {task.argv[0] for task in tasks if task.staged and not task.blind and task.argv}
        bare = {task.argv[0] for task in tasks if task.argv and (task.blind or not task.staged) and not in_its_mount(task)} - staged
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
            name = task.argv[0] if task.argv and not in_its_mount(task) else ""
            if name in faulty and name not in told:
                told.add(name)
                others = f" and {users[name] - 1} more" if users[name] > 1 else ""
                absent = f"; {self.absent['programs']}" if "programs" in self.absent else ""
                self.fault(task.line, f"program {name!r} of task {task.id}{others} {faulty[name]}{absent}")
            elif name in made:
                true_name = canonical(name, self.base)
                if all(self.aliases.get(file, file) != true_name for file in task.inputs):
                    maker = self.tasks[writers[true_name]]
                    words = f"its program {name!r} is made by task {maker.id}, so it must be among the inputs of this task"
                    self.fault(task.line, f"task {task.id}: {words}")

    def check_reductions(self, writers: Mapping[str, int]) -> None:
        """A reduction combines files that tasks make; other inputs are at hand in every step."""
        for task in () if self.faults or self.later else self.tasks:
            if task.reduce and not any(self.aliases.get(name, name) in writers for name in task.inputs):
                words = "a reduction combines files that tasks make, and no task makes any of its inputs"
                self.fault(task.line, f"task {task.id}: {words}")

    def check_output_places(self, writers: Mapping[str, int], readers: Mapping[str, int]) -> None:
        """Only files that will land on shared storage need a place there: those that nobody reads, and those kept."""
        kept = {self.aliases.get(name, name) for task in self.tasks if task.keep for name in task.keep}
        scratch = {self.aliases.get(name, name) for task in self.tasks if task.scratch for name in task.scratch}

        def is_final(name: str) -> bool:
            return (name not in readers and name not in scratch) or name in kept

        for name, path in self.paths.items():
            landing = path[len(self.base) + 1 :] if path.startswith(f"{self.base}/") else ""
            if landing in writers and is_final(landing):
                task, reader = self.tasks[writers[landing]], self.tasks_with((name,))[name]
                words = f"input {name!r} of task {reader.id} lies at {path}, where task {task.id} puts its output {landing!r}"
                self.fault(reader.line, f"{words}; let one of them have another place")
        def lands_in(name: str) -> str | None:
            """None: it goes nowhere. Whether tasks read it or not, a directory goes to its URL."""
            return directory_of(self.destinations.get(name, name).rstrip("/")) if name in self.destinations or is_final(name) else None

        if self.nested or self.destinations:
            finals = {directory for name in writers if (directory := lands_in(name)) is not None}
            made = with_parents(set(map(directory_of, chain(writers, readers)))) & (writers.keys() - self.destinations.keys())
            for directory in sorted(made - known_directories(made, self.tasks, self.aliases)) if made else ():
                task = self.tasks[writers[directory]]
                words = f"output {directory!r} is a file, but other names lie below it as in a directory"
                self.fault(task.line, f"task {task.id}: {words}")
        else:
            finals = {""} if any(map(is_final, writers)) else set()
        refused = {directory: why for directory in sorted(finals) if not too_long(directory) and (why := self.place.unwritable(directory))}
        for directory, why in refused.items():
            name = next(name for name in writers if lands_in(name) == directory)
            task = self.tasks[writers[name]]
            self.fault(task.line, f"task {task.id}: output {url_of(name) or name!r} cannot be written: {why}")


# ── lists that are still growing ───────────────────────────────────────────────────────────────────


class StreamChecker:
    """The same checks for a list whose end is not known: each task against those before it.

    A file that exists when the first task that reads it is added, and that no earlier task makes, is shared. A file that neither exists
    nor has a writer yet may still get one: only ``finish`` can tell. After ``add`` every file of the task is in ``writers``,
    in ``shared``, or waiting to be made by a later task. A task with faults is not taken in.
    """

    def __init__(self, place: Place, source: str = "standard input", files: Mapping[str, DeclaredState] | None = None) -> None:
        self.place = place
        self.base = place.base
        self.source = source
        self.states = {canonical(name, place.base): state for name, state in (files or {}).items()}
        #: Grows with the list. ``order`` stays None: tasks come in the order written, and wait for files, not for tasks.
        self.plan = plan = Plan(self.base, {}, {}, None, {}, {}, {}, after={}, versions={})
        self.writers, self.readers, self.shared = plan.writers, plan.readers, plan.shared
        self.programs, self.aliases = plan.programs, plan.aliases
        self.unmade: dict[str, int] = {}  # file that nobody makes so far -> index of the first task that reads it
        self._ids: dict[str, int] = {}
        self._names: list[str] = []  # task ids by index
        self._lines = array("Q")
        self._inputs: list[tuple[str, ...]] = []
        self._after: dict[int, tuple[int, ...]] = {}  # task -> those that it is to come after
        self._shared_by: dict[str, int] = {}
        self._real_names = RealNames(place)
        self._linked: dict[str, str] = {}  # true name of a file -> the name by a link by which some task has it
        self._destinations = Destinations()
        self._directories: dict[str, str] = {}  # directory of an output -> why nothing can be written there, or ''

    def add(self, task: Task) -> list[Fault]:
        """Take in the next task; returns its faults. Its index is the number of tasks taken in before."""
        task = complete(task)
        index = len(self._names)
        if words := text_faults(task):
            return [Fault(self.source, task.line, printable(text)) for text in words]
        words = task_faults(task, self.place)
        words += name_faults(task, self._real_names.strays, self.base, self.aliases, set(), {})
        if each_file_once(task, self.aliases) is not task:  # the caller keeps its own task: it cannot be put right here
            words.append(f"task {task.id}: names a file twice, in two spellings")
        inputs = tuple([self.aliases.get(name, name) for name in task.inputs])
        outputs = [self.aliases.get(name, name) for name in task.outputs]
        if task.id in self._ids:
            words.append(id_taken(task, self._at(self._ids[task.id])))
        for name in task.after:
            if name and name not in self._ids:
                words.append(f"task {task.id}: is to come after {name!r}; in a list that grows, that task must be written first")
        for name in outputs:
            if name in self.writers:
                words.append(written_twice(task, name, self._at(self.writers[name])))
            elif name in self.shared:
                reader = self._at(self._shared_by[name])
                words.append(
                    f"task {task.id}: writes {name!r}, which existed when task {reader.id}{on_line(reader)} was to read it; "
                    "in a list that grows, write the producer first"
                )
            elif self.states.get(name) is DeclaredState.SHARED:
                words.append(f"task {task.id}: writes {name!r}, which the file list says is Shared already")
            if name in inputs:
                words.append(reads_own(task, name))
            directory = directory_of(name)
            if directory not in self._directories:
                self._directories[directory] = self.place.unwritable(directory)
            if self._directories[directory]:
                words.append(f"task {task.id}: output {url_of(name) or name!r} cannot be written: {self._directories[directory]}")
        words += self._destinations.faults(task.id, outputs)
        new = [name for name in inputs if ":/" in name and name not in self.writers and name not in self.shared]
        words += unusable_now(self.place, new) or self._find_program(task, inputs)
        names = (*inputs, *outputs)
        linked = {true: name for name in names if "/" in name and (true := self._real_names.of(name)) != name}
        words += self._second_names(task, names, outputs, linked) if linked or self._linked else []
        if words:
            return [Fault(self.source, task.line, printable(text)) for text in words]
        self._linked.update(linked)
        self._destinations.take(outputs)
        self.plan.count += 1
        self._ids[task.id] = index
        self._names.append(task.id)
        self._lines.append(task.line)
        self._inputs.append(inputs)
        if task.after:
            self._after[index] = tuple([self._ids[name] for name in task.after])
            self.plan.after.update({name: self._ids[name] for name in task.after})
        for name in outputs:
            self.writers[name] = index
            self.unmade.pop(name, None)
        for name in inputs:
            self.readers[name] = self.readers.get(name, 0) + 1
            if name in self.writers or name in self.shared or name in self.unmade:
                continue
            if self.states.get(name) is DeclaredState.INVALID or self.place.missing((name,)):
                self.unmade[name] = index
            else:
                self.shared[name] = absolute(name, self.base)
                self.plan.versions.update(versions_at(self.place, {name: self.shared[name]}))
                self._shared_by[name] = index
        return []

    def _second_names(self, task: Task, names: Sequence[str], outputs: Sequence[str], linked: Mapping[str, str]) -> list[str]:
        """Files of a task that another name means as well, if one of the two is made under its name."""
        before = self._linked
        found = []
        for name in names:
            true = self._real_names.of(name)
            for other in (true, before.get(true, name), linked.get(true, name)):
                known = other != name and (other in names or other in self.writers or other in self.readers)
                if known and (other in self.writers or other in outputs or name in self.writers or name in outputs):
                    found.append(f"task {task.id}: names {name!r}, the same file as {other!r}; use one name")
        return list(dict.fromkeys(found))

    def forget(self, index: int) -> None:
        """A task whose files nobody will name has ended, and no other task will have its id: it takes no more memory."""
        self._ids.pop(self._names[index], None)
        self._names[index] = ""
        self._inputs[index] = ()

    def finish(self) -> dict[str, str]:
        """The list has ended. Files for which tasks wait in vain, each with the reason in words."""
        vain: dict[str, str] = {}
        for name, index in self.unmade.items():
            reader = self._at(index)
            who = f"task {reader.id}{on_line(reader)} reads it"
            vain[name] = printable(f"{url_of(name) or name!r} does not exist{where(name, self.base)}, and no task makes it ({who})")
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
        return [self.writers[name] for name in self._inputs[index] if name in self.writers] + list(self._after.get(index, ()))

    def _at(self, index: int) -> Task:
        """Enough of an earlier task for a message."""
        return Task(self._names[index], (), line=self._lines[index])

    def _find_program(self, task: Task, inputs: tuple[str, ...]) -> list[str]:
        if not task.argv or not task.argv[0] or in_its_mount(task):
            return []  # reported already; or found there
        name = task.argv[0]
        true_name = canonical(name, self.base)
        if true_name in inputs and (true_name in self.writers or self.place.missing((true_name,))):
            self.programs[name] = name if "/" in name else f"./{name}"
        elif name not in self.programs:
            path, why = self.place.find_program(name, here=task.staged and not task.blind)
            if why:
                return [f"program {name!r} of task {task.id} {why}"]
            self.programs[name] = path
        return []
