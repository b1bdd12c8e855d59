"""The machine that evaluates a program: jobs that are ready, jobs that wait, loops that unfold, tasks and requests that are out.

Owns the order of things. Jobs do them; the compiler of the program makes the jobs (``expressions``, ``calls``, ``statements``). Pure.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from functools import partial
from typing import Any, Protocol

from amfs.errors import Fault, WorkflowError
from amfs.swift.builtins import Failure
from amfs.swift.evaluate.effects import Answered, Ask, Begin, Effect, Event, Finished, Forget, Limits, Submit, TaskEnded
from amfs.swift.requests import FileValue, Print, Refused, TemporaryFile
from amfs.swift.source import At, Mistake, refuse
from amfs.swift.values import UNSET, Blocked, Cell, Container, FileCell, Group, Made, StructCell, key_text
from amfs.workflow.workflow import Task

Job = Callable[[], Any]

#: Variables that are named when a program is stuck, and places that wait for each of them.
STUCK_SHOWN = 10
RESULT = "the result of "
PLACES_SHOWN = 3


class Waiting:
    """A job that waits. ``at``: the construct that it belongs to. ``idle``: nobody needs it: a copied field, which may stay unset."""

    __slots__ = ("at", "idle", "job", "on")

    def __init__(self, on: Any, job: Job, at: At, idle: bool = False) -> None:
        self.on = on
        self.job = job
        self.at = at
        self.idle = idle


class Unfolding(Protocol):
    """A loop with rounds to begin."""

    productive: bool

    def advance(self, count: int) -> bool:
        """Begin so many rounds. Returns whether there are more at once."""


class Watcher(Protocol):
    """Is told of the parts of a container."""

    def insert(self, key: Any, cell: Any) -> None: ...

    def end(self) -> None: ...


class Machine:
    """See the module. ``start``: the job that begins the program."""

    def __init__(self, limits: Limits | None = None, program: str = "") -> None:
        self.limits = limits or Limits()
        self.program = program
        self.ready: list[Job] = []
        self.fresh: list[Job] = []
        self.waiting: dict[Waiting, None] = {}
        self.unfolding: deque[Unfolding] = deque()
        self.new_unfolding: list[Unfolding] = []
        self.tasks: dict[str, tuple[Callable[[], None], Any]] = {}  # the callback at its end, its inputs
        self.submitted = 0
        self.asked: dict[int, Callable[[Any], None]] = {}
        self.serial = 0
        self.absent: dict[Cell, str] = {}  # inputs that are not there, and what to say to those who want them
        self.named: dict[str, bool] = {}  # names that the text gives to files that it makes; have they been made?
        self.makers: dict[str, str] = {}  # of a task list: file -> id of the task that makes it
        self.failed = 0
        self.over = False
        self.batch: list[Task] = []
        self.effects: list[Effect] = []
        self.unreachable: list[str] = []  # temporary files, see there
        self.start: Job | None = None

    # ── events ─────────────────────────────────────────────────────────────────────────────────────

    def handle(self, event: Event) -> list[Effect]:
        """The effects of an event."""
        if self.over:
            return []
        try:
            self._take(event)
            self._run()
        except Mistake as mistake:
            self.batch = []
            self._end(refuse([mistake]))
        except RecursionError:
            self._end(WorkflowError([Fault(self.program, 0, "the program is nested too deeply")]))
        else:
            if not (self.tasks or self.asked):
                self._end(self.stuck() if not self.failed and any(not one.idle for one in self.waiting) else None)
        effects, self.effects = self.effects, []
        if self.batch:
            effects.insert(0, Submit(self.batch))
            self.batch = []
        if self.unreachable and not self.limits.static:
            effects.append(Forget(tuple(self.unreachable)))
            self.unreachable.clear()
        return effects

    def _take(self, event: Event) -> None:
        if isinstance(event, TaskEnded):
            done, _ = self.tasks.pop(event.id)
            if event.ok:
                done()
            else:
                self.failed += 1
        elif isinstance(event, Answered):
            self.asked.pop(event.serial)(event.answer)
        elif isinstance(event, Begin) and self.start is not None:
            self.fresh.append(self.start)

    def _end(self, error: WorkflowError | None) -> None:
        self.over = True
        self.effects.append(Finished(error))

    # ── jobs ───────────────────────────────────────────────────────────────────────────────────────

    def _run(self) -> None:
        """All that can be done now; within the limits, of loops too."""
        limits = self.limits
        self._drain()
        while self.unfolding:
            loop = self.unfolding[0]
            out = len(self.tasks)
            if out >= limits.tasks and not limits.static:
                return
            if len(self.waiting) >= limits.waiting and not loop.productive and (out or self.asked):
                return
            waited, submitted = len(self.waiting), self.submitted
            if not loop.advance(limits.rounds):
                self.unfolding.popleft()
            self._drain(loop)
            loop.productive = self.submitted > submitted or len(self.waiting) - waited < limits.rounds // 2
            if not loop.productive and self.unfolding and self.unfolding[0] is loop:
                self.unfolding.rotate(-1)

    def _drain(self, loop: Unfolding | None = None) -> None:
        ready, fresh = self.ready, self.fresh
        while ready or fresh:
            if fresh:  # new ones are done in turn, and all before the older ones: depth first, in the order of the text
                fresh.reverse()
                ready += fresh
                fresh.clear()
            ready.pop()()
        if self.new_unfolding:
            self.unfolding.extendleft(reversed(self.new_unfolding))
            self.new_unfolding.clear()

    def soon(self, job: Job) -> None:
        self.fresh.append(job)

    def unfold(self, loop: Unfolding) -> None:
        """The loop has rounds to begin."""
        self.new_unfolding.append(loop)

    # ── waiting ────────────────────────────────────────────────────────────────────────────────────

    def wait(self, on: Any, job: Job, at: At, idle: bool = False) -> None:
        """``job`` is done when ``on`` (a cell, a group, a namer) is set, closed, ready. Raises ``Mistake`` for an absent input."""
        if self.absent and (why := self.absent.get(on)):
            raise Mistake(at, why)
        waiting = Waiting(on, job, at, idle)
        self.waiting[waiting] = None
        if on.waiters is None:
            on.waiters = [waiting]
        else:
            on.waiters.append(waiting)

    def wake(self, on: Any) -> None:
        waiters, on.waiters = on.waiters, None
        for waiting in waiters or ():
            del self.waiting[waiting]
            self.fresh.append(waiting.job)

    def attempt(self, at: At, work: Job) -> None:
        """Do ``work`` as soon as it does not raise ``Blocked`` any more. Until then it must not have done anything."""
        try:
            work()
        except Blocked as blocked:
            self.wait(blocked.on, partial(self.attempt, at, work), at)

    def when(self, missing: Iterator[Any], job: Job, at: At) -> None:
        """``job`` is done when nothing is missing any more (see ``missing``)."""
        for on in missing:
            self.wait(on, partial(self.when, missing, job, at), at)
            return
        job()

    # ── cells ──────────────────────────────────────────────────────────────────────────────────────

    def set(self, cell: Cell, value: Any, at: At) -> None:
        """Raises ``Mistake``: it has a value."""
        if cell.value is not UNSET:
            raise Mistake(at, f"{cell.label or 'this'} is assigned twice")
        cell.value = value
        if cell.waiters is not None:
            self.wake(cell)

    def promise_file(self, cell: FileCell, value: FileValue, at: At) -> None:
        self.set(cell.promise, value, at)

    def arrive(self, cell: FileCell, value: FileValue, at: At) -> None:
        """The file is there."""
        if cell.promise.value is UNSET:
            self.set(cell.promise, value, at)
        self.set(cell, value, at)
        if value.name in self.named:
            self.named[value.name] = True

    def miss(self, cell: FileCell, why: str) -> None:
        """The file is an input, and is not there: that matters as soon as somebody wants it."""
        self.absent[cell] = self.absent[cell.promise] = why
        for waiting in [*(cell.waiters or ()), *(cell.promise.waiters or ())]:
            raise Mistake(waiting.at, why)

    def signal(self, cell: Made, at: At) -> None:
        if cell.promise.value is UNSET:
            self.set(cell.promise, (), at)
        self.set(cell, None, at)

    def insert(self, container: Container, key: Any, at: At) -> Any:
        """The cell of a new part, which will be assigned as a whole. Raises ``Mistake``: it is there."""
        if key in container.elements:
            raise Mistake(at, f"{container.label or 'this array'}[{key_text(key)}] is assigned twice")
        return self._add(container, key, at)

    def enter(self, container: Container, key: Any, at: At) -> Any:
        """The cell of a part of which a part is to be written."""
        cell = container.elements.get(key)
        return cell if cell is not None else self._add(container, key, at)

    def _add(self, container: Container, key: Any, at: At) -> Any:
        if container.closed:
            raise Mistake(at, f"{container.label or 'this array'} is written after it was closed")
        cell = container.add(key)
        for watcher in container.watchers or ():
            watcher.insert(key, cell)
        return cell

    def put(self, container: Container, key: Any, cell: Any, at: At) -> None:
        """A cell that exists becomes a part."""
        if key in container.elements or container.closed or (container.wanted and key in container.wanted):
            self.assign_part(self.insert(container, key, at), cell, at, None)
            return
        container.take(key, cell)
        for watcher in container.watchers or ():
            watcher.insert(key, cell)

    def watch(self, container: Container, watcher: Watcher) -> None:
        """Tell of the parts that are there, and of those to come."""
        for key, cell in list(container.elements.items()):
            watcher.insert(key, cell)
        if container.closed:
            watcher.end()
        elif container.watchers is None:
            container.watchers = [watcher]
        else:
            container.watchers.append(watcher)

    def release(self, group: Group) -> None:
        """A statement that held it has done its writing."""
        group.holds -= 1
        if not group.holds:
            self.close(group)

    def close(self, group: Group) -> None:
        """Nothing more will be written: of what belongs to it neither."""
        if group.closed:
            return
        group.closed = True
        if isinstance(group, Container):
            lent = group.lent
            parts: Iterable[Any] = (
                group.elements.values() if lent is None else [part for key, part in group.elements.items() if key not in lent]
            )
        else:
            assert isinstance(group, StructCell)
            parts = group.fields.values()
        for part in parts:
            if isinstance(part, Group) and not part.owned:
                self.close(part)
        if group.waiters is not None:
            self.wake(group)
        if isinstance(group, Container) and group.watchers is not None:
            watchers, group.watchers = group.watchers, None
            for watcher in watchers:
                watcher.end()

    # ── one cell becomes another ───────────────────────────────────────────────────────────────────

    def take_over(
        self, target: Any, source: Any, at: At, copy: Callable[[FileCell, FileCell], None] | None = None, idle: bool = False
    ) -> None:
        """``target = source``. ``copy``: what to do for files that the program has named. ``idle``: see ``Waiting``."""
        if isinstance(target, Container):
            target.holds += 1
            self.watch(source, _Follow(self, target, at, copy))
        elif isinstance(target, StructCell):
            for name, part in target.fields.items():
                self.assign_part(part, source.fields[name], at, copy, True)
        elif isinstance(target, FileCell):
            if target.namer is not None and copy is not None:
                copy(target, source)
            else:
                self._pass(target.promise, source.promise, at, idle)
                self._pass(target, source, at, idle)
        else:
            if isinstance(target, Made):
                self._pass(target.promise, source.promise, at, idle)
            self._pass(target, source, at, idle)

    def assign_part(
        self, part: Any, source: Any, at: At, copy: Callable[[FileCell, FileCell], None] | None, idle: bool = False
    ) -> None:
        """``take_over`` for a part of a container or struct: if it has parts, it closes by itself."""
        if not isinstance(part, Group):
            self.take_over(part, source, at, copy, idle)
            return
        part.owned = True
        part.holds += 1
        self.take_over(part, source, at, copy)
        self.release(part)

    def _pass(self, target: Cell, source: Cell, at: At, idle: bool) -> None:
        if source.value is not UNSET:
            self.set(target, source.value, at)
        else:
            self.wait(source, partial(self._pass, target, source, at, idle), at, idle)

    # ── tasks and requests ─────────────────────────────────────────────────────────────────────────

    def temporary_file(self, name: str) -> FileValue:
        return TemporaryFile(name, self.unreachable)

    def submit(self, task: Task, done: Callable[[], None], reads: Any) -> None:
        """``done`` is called when it has ended well. ``reads``: the values of its inputs, which are reachable until then."""
        self.tasks[task.id] = done, reads
        self.submitted += 1
        self.batch.append(task)
        if self.limits.static:
            self.makers.update(dict.fromkeys(task.outputs, task.id))

    def ask(self, generator: Generator[Any, Any, Any], done: Callable[[Any], None], at: At) -> None:
        """Carry out what yields requests; ``done`` gets what it returns."""
        self._go_on(generator, done, at, None)

    def _go_on(self, generator: Generator[Any, Any, Any], done: Callable[[Any], None], at: At, answer: Any) -> None:
        try:
            while True:
                request = generator.throw(answer) if isinstance(answer, Refused) else generator.send(answer)
                if not isinstance(request, Print):
                    break
                self.effects.append(Ask(0, request))
                answer = None
        except StopIteration as stop:
            done(stop.value)
            return
        except (Failure, Refused) as failure:
            raise Mistake(at, str(failure)) from None
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:
            raise Mistake(at, f"this library function cannot do that: {error}") from error
        self.serial += 1
        self.asked[self.serial] = partial(self._go_on, generator, done, at)
        self.effects.append(Ask(self.serial, request))

    # ── the end ────────────────────────────────────────────────────────────────────────────────────

    def stuck(self) -> WorkflowError:
        """Nothing can go on. Names the variables waited for, and the places."""
        places: dict[int, tuple[Any, list[At]]] = {}
        for waiting in self.waiting:
            places.setdefault(id(waiting.on), (waiting.on, []))[1].append(waiting.at)
        named = {str(on.label): (on, ats) for on, ats in places.values() if on.label is not None}
        roots = {name: entry for name, entry in named.items() if not name.startswith(RESULT)}
        named = roots or named  # results of calls that wait for such variables say nothing
        mistakes: list[Mistake] = []
        for name, (on, ats) in named.items() or [("", entry) for entry in places.values()]:
            lines = sorted({at.line for at in ats})
            more_lines = f" and {len(lines) - PLACES_SHOWN} more" if len(lines) > PLACES_SHOWN else ""
            shown = ", ".join(map(str, lines[:PLACES_SHOWN])) + more_lines
            waiters = f"waited for in line{'s' if len(lines) > 1 else ''} {shown}"
            verb = "closed" if isinstance(on, Group) and not isinstance(on, StructCell) else "assigned"
            words = f"{name} is never {verb}: {waiters}" if name else f"what is needed here is never {verb}"
            mistakes.append(Mistake((on.label.place if on.label is not None else None) or ats[0], words))
            if len(mistakes) == STUCK_SHOWN:
                break
        more = len(named) - len(mistakes)
        error = refuse(mistakes)
        head = "the program is stuck: no statement can go on" + (f" ({more} more variables like these)" if more > 0 else "")
        return WorkflowError([Fault(self.program, 0, head), *error.faults])


class _Follow:
    """A container that becomes another one, part by part."""

    __slots__ = ("at", "copy", "machine", "target")

    def __init__(self, machine: Machine, target: Container, at: At, copy: Callable[[FileCell, FileCell], None] | None) -> None:
        self.machine = machine
        self.target = target
        self.at = at
        self.copy = copy

    def insert(self, key: Any, cell: Any) -> None:
        machine, target = self.machine, self.target
        if target.is_bag:
            key = len(target.elements)
        if self.copy is None or target.namer is None:
            machine.put(target, key, cell, self.at)
            return
        machine.assign_part(machine.insert(target, key, self.at), cell, self.at, self.copy)

    def end(self) -> None:
        self.machine.release(self.target)


def missing(cell: Any, *, files: bool = False, signals: bool = False, names: bool = False, shape: bool = False) -> Iterator[Any]:
    """The unknown parts of a cell, one after the other; goes on when each has come. ``files``, ``signals``: promises of them are
    enough. ``names``: of files that have been mapped, those names are enough. ``shape``: of containers, which parts there are is enough."""
    if isinstance(cell, Container):
        if not cell.closed:
            yield cell
        if not shape:
            for part in list(cell.elements.values()):
                if part.__class__ is Cell:
                    if part.value is UNSET:
                        yield part
                else:
                    yield from missing(part, files=files, signals=signals, names=names)
    elif isinstance(cell, StructCell):
        for part in cell.fields.values():
            yield from missing(part, files=files, signals=signals, names=names, shape=shape)
    elif names and isinstance(cell, FileCell) and cell.namer is not None:
        if cell.namer.name_of is None:
            yield cell.namer
    else:
        if ((files or names) and isinstance(cell, FileCell)) or (signals and isinstance(cell, Made)):
            cell = cell.promise
        if cell.value is UNSET:
            yield cell


def all_missing(
    cells: Iterable[Any], *, files: bool = False, signals: bool = False, names: bool = False, shape: bool = False
) -> Iterator[Any]:
    """The same of several cells."""
    for cell in cells:
        yield from missing(cell, files=files, signals=signals, names=names, shape=shape)
