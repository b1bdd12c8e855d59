"""Sub-workflows whose documents tasks of the run make: read when they have been made, and made a part of the run.

Owns the thread that reads the documents; the tasks join the run in the loop's thread. Documents of an earlier run are taken in before a
resumed run begins, so that its tasks are skipped like all others. ``engine.hierarchy`` decides which task waits for which.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from amfs._native import xxh64
from amfs.engine.hierarchy import Within, join
from amfs.errors import AmfsError, Fault, WorkflowError
from amfs.host.shared_storage import LocalPaths, SharedStorage, size_of
from amfs.runs.identities import Identities
from amfs.runs.journal import Past
from amfs.vocabulary.events import Expanded, NotExpanded
from amfs.vocabulary.paths import in_namespace, shared_path
from amfs.workflow.check_parts import Place
from amfs.workflow.checks import Plan, absolute, check
from amfs.workflow.derivation import Derivations
from amfs.workflow.workflow import Task, Workflow, canonical, complete

if TYPE_CHECKING:
    from amfs.runs.driver import RunDriver

#: Faults of a document that are shown where it makes a task fail.
FAULTS_SHOWN = 5
REMARKS_SHOWN = 10


class Expander:
    """The documents of one run that are made while it goes on."""

    def __init__(self, workflow: Workflow, plan: Plan, place: Place, hashed: int, on_remark: Callable[[str], None]) -> None:
        self._later = {index: workflow.later[task.id] for index, task in enumerate(workflow.tasks) if task.id in workflow.later}
        self._places = {canonical(name, plan.base): path for name, path in workflow.paths.items()}
        self._plan = plan
        self._place = place
        self._hashed = hashed
        self._on_remark = on_remark
        self._wanted: queue.SimpleQueue[tuple[RunDriver, int] | None] = queue.SimpleQueue()
        self._ids: set[str] = set()  # of all tasks of the run, each of which has its own
        self._thread: threading.Thread | None = None
        self._closed = False
        self._digests = {
            index: workflow.known_later[task.id][1] for index, task in enumerate(workflow.tasks) if task.id in workflow.known_later
        }

    def wanted(self, driver: RunDriver, tid: int) -> None:
        """All that task ``tid`` waits for has finished. Returns at once; the driver's submitter is told when the document has been read."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._follow, name="sub-workflows", daemon=True)
            self._thread.start()
        self._wanted.put((driver, tid))

    def close(self) -> None:
        """Read no more. Repeatable."""
        self._closed = True
        self._wanted.put(None)

    def _follow(self) -> None:
        """One document at a time: each must know the names that those before it have taken."""
        while (one := self._wanted.get()) is not None:
            driver, tid = one
            read: Workflow | AmfsError
            try:
                read = self._read(driver.context.shared, driver.tasks[tid], tid)
            except AmfsError as error:
                read = error
            except Exception as error:  # of a document that nobody has thought of: its job fails, not the run
                read = AmfsError(f"{type(error).__name__}: {error}")
            done = threading.Event()
            driver.context.loop.post(lambda driver=driver, tid=tid, read=read, done=done: self._take_in(driver, tid, read, done))  # type: ignore[misc]
            while not done.wait(1.0):
                if self._closed:
                    return

    def _read(self, shared: SharedStorage, task: Task, tid: int) -> Workflow:
        plan = self._plan
        later = self._later[tid]
        path = _path(later.document, plan.base, self._hashed)
        known = plan.later[tid]
        if known is not None:
            # An earlier run left the document, and yet it had to be made again.
            if _digest(shared, path) != self._digests[tid]:
                raise AmfsError("it was made again, and not as it was, and its tasks are those of the old one; run without --resume")
            return Workflow([])
        return later.expand(
            path, task, lambda name: name in plan.writers or name in plan.readers, plan.writers.__contains__,
            lambda name: self._places.get(name, ""),
        )  # fmt: skip

    def _take_in(self, driver: RunDriver, tid: int, read: Workflow | AmfsError, done: threading.Event) -> None:
        """In the loop's thread: the tasks join the run."""
        try:
            tell = driver.context.loop.tell
            if driver.submitter.ending:
                return
            try:
                if isinstance(read, AmfsError):
                    raise read
                tids = self._join(driver, tid, read) if self._plan.later[tid] is None else []
            except AmfsError as error:
                tell(driver.client, NotExpanded(tid, self._in_words(driver, tid, error)))
                return
            for remark in read.remarks[:REMARKS_SHOWN]:
                self._on_remark(str(remark))
            tell(driver.client, Expanded(tid, tids))
        finally:
            done.set()

    def _join(self, driver: RunDriver, tid: int, read: Workflow) -> list[int]:
        plan, first = self._plan, len(driver.tasks)
        ids = self._ids
        ids.update([task.id for task in driver.tasks[len(ids) :]])  # nothing else adds tasks to such a run
        taken = [Fault(read.source, 0, f"task id {task.id!r} is already taken") for task in read.tasks if task.id in ids]
        more = check(read, Within(self._place, plan), known=taken)
        for name in (canonical(each, plan.base) for each in driver.tasks[tid].outputs):
            if name not in more.writers and plan.readers.get(name):
                raise AmfsError(f"it does not make {name!r}, which the job declares and other tasks read")
        driver.tasks.extend(read.tasks)
        readers = driver.maker.readers
        if readers is not plan.readers:  # of a resumed run
            for name, count in more.readers.items():
                readers[name] = readers.get(name, 0) + count
        tids = join(plan, more, first)
        driver.maker.places.update(more.paths)
        self._places.update((canonical(name, plan.base), path) for name, path in read.paths.items())
        self._later.update((first + index, read.later[read.tasks[index].id]) for index in more.later)
        return tids

    def _in_words(self, driver: RunDriver, tid: int, error: AmfsError) -> str:
        plan = self._plan
        name = canonical(self._later[tid].document, plan.base)
        maker = plan.writers.get(name)
        words = f"its sub-workflow {name}" + (f", made by task {driver.tasks[maker].id}," if maker is not None else "") + " cannot be run: "
        if not isinstance(error, WorkflowError):
            return words + str(error)
        more = len(error.faults) - FAULTS_SHOWN
        return words + "; ".join(map(str, error.faults[:FAULTS_SHOWN])) + (f"; and {more} more faults" if more > 0 else "")


def take_in_made(
    workflow: Workflow, past: Past, base: str, hashed: int, session: str | None, *, trust: bool = False, shared: SharedStorage | None = None
) -> None:
    """Take in the sub-workflows whose documents an earlier run has made, if all that they waited for is done and the documents are as
    they were left. The others are read when they have been made again, and all of their tasks run again."""
    shared = shared or LocalPaths()
    index_of = {task.id: index for index, task in enumerate(workflow.tasks)}
    tasks = workflow.tasks = [complete(task) for task in workflow.tasks]
    writers: dict[str, int] = {}
    names: set[str] = set()

    def note(first: int) -> None:
        for index in range(first, len(tasks)):
            writers.update((canonical(name, base), index) for name in tasks[index].outputs)
            names.update(canonical(name, base) for name in (*tasks[index].inputs, *tasks[index].outputs))

    def done(index: int) -> bool:
        task = tasks[index]
        known = workflow.known_later.get(task.id)
        if known is not None:
            return all(map(done, known[0]))
        return task.id not in workflow.later and bool(sizes_of(index))

    def sizes_of(index: int) -> tuple[tuple[int, ...]] | None:
        """The sizes of a task's outputs, if it has finished with the inputs that it would read now."""
        left = past.done.get(derivation.key(index))
        return (left[0],) if left is not None and (trust or derivation(index) == left[1]) else None

    def derivations() -> Derivations:
        """By what is known of the workflow so far."""
        aliases = {name: canonical(name, base) for task in tasks for name in (*task.inputs, *task.outputs)}
        outside = {name: workflow.paths.get(name, absolute(name, base)) for name in names - writers.keys()}
        after = {each: index_of[each] for task in tasks for each in task.after if each in index_of}
        waiting = dict.fromkeys(map(index_of.__getitem__, workflow.later))
        plan = Plan(base, writers, {}, None, outside, {}, aliases, after=after, later=waiting)
        return Derivations(tasks, plan, Identities(plan, session))

    def left(name: str) -> str:
        """Where the document is that an earlier run made; '' if it is not there as it was made."""
        writer = writers.get(canonical(name, base), -1)
        sizes = (sizes_of(writer) or ((),))[0] if writer >= 0 else ()
        outputs = [canonical(each, base) for each in tasks[writer].outputs] if sizes else []
        with suppress(OSError, AmfsError):
            path = _path(name, base, hashed)
            if len(outputs) == len(sizes) and outputs and size_of(shared, path) == sizes[outputs.index(canonical(name, base))]:
                return path
        return ""

    note(0)
    derivation: Derivations
    again = bool(workflow.later)
    while again:
        again = False
        derivation = derivations()
        places = {canonical(name, base): path for name, path in workflow.paths.items()}
        for task_id, later in list(workflow.later.items()):
            index = index_of[task_id]
            task = tasks[index]
            ahead = {index_of[each] for each in task.after}
            ahead.update(writers[name] for name in (canonical(each, base) for each in task.inputs) if name in writers)
            if task_id in workflow.known_later or not all(map(done, ahead)) or not (path := left(later.document)):
                continue
            try:
                read = later.expand(path, task, names.__contains__, writers.__contains__, lambda name: places.get(name, ""))  # noqa: B023
            except AmfsError:
                continue  # it will be read again when the run comes to it, and then its job fails
            first = len(tasks)
            tasks += map(complete, read.tasks)
            tasks[index] = msgspec.structs.replace(task, outputs=(), keep=(), scratch=())  # its tasks make them
            for name in task.outputs:
                writers.pop(canonical(name, base), None)
            note(first)
            index_of.update((each.id, at) for at, each in enumerate(tasks[first:], first))
            workflow.known_later[task_id] = (range(first, len(tasks)), _digest(shared, path))
            workflow.later.update(read.later)
            workflow.paths.update(read.paths)
            workflow.absent.update(read.absent)
            again = True


def _path(name: str, base: str, hashed: int) -> str:
    """Where a document lies that a task has made and that was copied to shared storage."""
    name = canonical(name, base)
    if in_namespace(name):
        raise AmfsError(f"{name} is in the file system of a session, where no sub-workflow is read; let its job make a file outside of it")
    return shared_path(base, name, hashed)


def _digest(shared: SharedStorage, path: str) -> int:
    try:
        return xxh64(shared.read(path))
    except OSError as error:
        raise AmfsError(f"{path} cannot be read: {error.strerror}") from None
