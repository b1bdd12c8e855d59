"""Savings by an earlier run of a workflow: which tasks need not run again, and which of its files are used. Pure.

A finished task runs again when a final output of it has vanished, when a task that must run reads an output of it that is not there any
more (files between tasks were in memory), or when something has changed of what it was made from (``derivation``).
``resume_whole`` decides it for a workflow that is known as a whole, ``ResumedList`` for a list that grows. Both answer with values; the
shell acts on them and tells the machines. Must not know: journals, stores, file systems; ``Remains`` has what an earlier run left.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from amfs.vocabulary.paths import in_namespace
from amfs.workflow.checks import Plan
from amfs.workflow.workflow import Task


class Remains(NamedTuple):
    """The remains of an earlier run. Names of files are those of ``Plan``: in their one spelling."""

    #: Of the outputs that a task had when it finished; None: it has not finished, or not with what it would read now.
    sizes: Callable[[int], tuple[int, ...] | None]
    size_on_shared: Callable[[str], int]  # of a file on shared storage; -1: there is none
    in_memory: dict[str, tuple[int, int]]  # file in the store that was taken over -> size, time of modification in ns


class Adopted(NamedTuple):
    """A file in the store that this run uses."""

    name: str
    size: int
    mtime_ns: int
    readers: int  # tasks that will read it; -1: nobody can tell


class Resumed(NamedTuple):
    """For a whole workflow."""

    skip: frozenset[int]
    readers: dict[str, int]  # of each file, among the tasks that run
    ready: set[str]  # files that tasks read from shared storage, although a task makes them
    adopt: list[Adopted]
    discard: list[str]  # files in the store that nobody will read


class Step(NamedTuple):
    """The consequences of one change of a list that grows."""

    skip: tuple[int, ...] = ()  # of the tasks that have just joined
    again: tuple[int, ...] = ()  # skipped before, and must run after all
    ready: tuple[str, ...] = ()
    adopt: tuple[Adopted, ...] = ()
    unsaved: tuple[str, ...] = ()  # of those adopted, files that are not on shared storage
    discard: tuple[str, ...] = ()  # files in the store that are to be made again: the store would keep the old ones


def to_skip(
    tasks: Sequence[Task], plan: Plan, done: Collection[int], there: Callable[[int, str], bool], final: Callable[[Task, str], bool]
) -> tuple[frozenset[int], set[str]]:
    """(tasks to skip, files that those left behind and the others read).

    ``done``: indices of tasks that finished before. ``there(index, file)``: is that output of that task still there, whole? ``final(task,
    file)``: does it belong on shared storage?
    """
    must = bytearray(b"\1") * len(tasks)
    for tid in done:
        must[tid] = 0
    writers, aliases = plan.writers, plan.aliases
    used: set[str] = set()
    for tid in reversed(plan.walk() if plan.order is not None else range(len(tasks))):
        task = tasks[tid]
        if not must[tid]:
            for name in task.outputs:
                if final(task, name) and not there(tid, aliases.get(name, name)):
                    must[tid] = 1
                    break
        if must[tid]:
            for name in task.inputs:
                name = aliases.get(name, name)
                writer = writers.get(name)
                if writer is None or must[writer]:
                    continue
                if there(writer, name):
                    used.add(name)
                else:
                    must[writer] = 1
    skip = frozenset(tid for tid in done if not must[tid])
    return skip, {name for name in used if writers[name] in skip}


def resume_whole(
    tasks: Sequence[Task], plan: Plan, remains: Remains, final: Callable[[Task, str], bool], *, prefer_memory: bool = False
) -> Resumed:
    """``final(task, output as written)``: does it belong on shared storage? ``prefer_memory``: a file that is also in the store is read
    from there."""
    aliases, in_memory = plan.aliases, remains.in_memory
    sizes = {tid: left for tid in range(len(tasks)) if (left := remains.sizes(tid)) is not None}
    on_shared: set[str] = set()
    adoptable: set[str] = set()

    def there(tid: int, name: str) -> bool:
        task, left = tasks[tid], sizes.get(tid, ())
        names = [aliases.get(each, each) for each in task.outputs]
        if len(left) != len(names):
            return False
        at = names.index(name)
        if in_memory.get(name, (-1, 0))[0] == left[at]:
            adoptable.add(name)
        if final(task, task.outputs[at]) and remains.size_on_shared(name) == left[at]:
            on_shared.add(name)
        return name in adoptable or name in on_shared

    known = {tid for tid, parts in plan.later.items() if parts is not None}  # nothing is to be done for them but their tasks
    skip, used = to_skip(tasks, plan, sizes.keys() | known, there, final)
    skip -= known
    readers: dict[str, int] = {}
    for tid, task in enumerate(tasks):
        if tid not in skip:
            for name in task.inputs:
                name = aliases.get(name, name)
                readers[name] = readers.get(name, 0) + 1
    from_memory = {name for name in used if name in adoptable and (prefer_memory or name not in on_shared)}
    return Resumed(
        skip,
        readers,
        used - from_memory,
        [Adopted(name, *in_memory[name], readers.get(name, 0)) for name in from_memory],
        [name for name in in_memory if name not in from_memory],
    )


class ResumedList:
    """A list that grows, of which an earlier run has done a part.

    A task that finished is skipped when its outputs are there. It is also skipped when they are gone and nobody has asked for them
    (``deferred``): it runs again when a task that must run reads them, when the user asks for one, or, if they are final, when the list
    is closed. ``tasks`` and ``plan`` are shared with the shell, which adds to them.
    """

    def __init__(self, tasks: Sequence[Task], plan: Plan, remains: Remains) -> None:
        self.tasks = tasks
        self.plan = plan
        self.remains = remains
        self.left = dict(remains.in_memory)  # files in the store that no task makes again, as far as is known
        self.deferred: dict[int, None] = {}
        self.wanted: set[str] = set()  # files that tasks that run read; a writer may join after its reader

    def add(self, first: int) -> Step:
        """The tasks from index ``first`` on have joined the list."""
        skip: list[int] = []
        again: list[int] = []
        ready: list[str] = []
        adopt: list[Adopted] = []
        for tid in range(first, len(self.tasks)):
            task = self.tasks[tid]
            sizes = self.remains.sizes(tid)
            found = self._outputs(task, sizes) if sizes is not None else None
            if found is not None:
                adopt += found[0]
                ready += found[1]
            elif sizes is not None and not (task.keep or any(map(in_namespace, task.outputs))) and self.wanted.isdisjoint(self._names(tid)):
                self.deferred[tid] = None
            else:
                again += self._wanted_by(tid)  # only a task that does run wants what others made
                continue
            skip.append(tid)
        revived = set(again)
        skipped = frozenset(skip) - revived
        run = [tid for tid in range(first, len(self.tasks)) if tid not in skipped]
        old = tuple(tid for tid in again if tid < first)
        unsaved = tuple(at.name for at in adopt if self.remains.size_on_shared(at.name) != at.size)
        return Step(tuple(sorted(skipped)), old, tuple(ready), tuple(adopt), unsaved, self._made_by([*run, *old]))

    def want(self, name: str) -> Step:
        """Somebody wants this file now."""
        tid = self.plan.writers.get(name, -1)
        return self._revive([tid]) if tid in self.deferred and not self._on_shared(tid, {name}) else Step()

    def close(self) -> Step:
        """No more tasks will come: outputs that nobody reads must be on shared storage."""
        readers = self.plan.readers
        lacking = [tid for tid in self.deferred if not self._on_shared(tid, {name for name in self._names(tid) if not readers.get(name)})]
        return self._revive(lacking)

    def _revive(self, tids: Sequence[int]) -> Step:
        again: list[int] = []
        for tid in tids:
            if tid in self.deferred:  # else it was revived by one before it
                del self.deferred[tid]
                again += [tid, *self._wanted_by(tid)]
        return Step(again=tuple(again), discard=self._made_by(again))

    def _wanted_by(self, tid: int) -> list[int]:
        """Deferred tasks that must run after all, because ``tid`` runs and reads what they made, directly or through others."""
        found: list[int] = []
        todo = [tid]
        while todo:
            for name in self.tasks[todo.pop()].inputs:
                name = self.plan.aliases.get(name, name)
                self.wanted.add(name)
                writer = self.plan.writers.get(name, -1)
                if writer in self.deferred:
                    del self.deferred[writer]
                    found.append(writer)
                    todo.append(writer)
        return found

    def _names(self, tid: int) -> list[str]:
        return [self.plan.aliases.get(name, name) for name in self.tasks[tid].outputs]

    def _outputs(self, task: Task, sizes: tuple[int, ...]) -> tuple[list[Adopted], list[str]] | None:
        """Where all outputs of a task are that finished before: (in the store, on shared storage). None if one is gone."""
        adopt: list[Adopted] = []
        ready: list[str] = []
        for written, size in zip(task.outputs, sizes, strict=False):
            name = self.plan.aliases.get(written, written)
            if self.left.get(name, (-1, 0))[0] == size:
                adopt.append(Adopted(name, *self.left[name], -1))
            elif (written in task.keep or in_namespace(written)) and self.remains.size_on_shared(name) == size:
                ready.append(name)
            else:
                return None
        return adopt, ready

    def _on_shared(self, tid: int, wanted: set[str]) -> bool:
        """Are these outputs of a task that finished before on shared storage, as long as they were?"""
        sizes = self.remains.sizes(tid) or ()
        there = zip(self._names(tid), sizes, strict=False)
        return all(self.remains.size_on_shared(name) == size for name, size in there if name in wanted)

    def _made_by(self, tids: Sequence[int]) -> tuple[str, ...]:
        """Files that an earlier run left under the names of these tasks' outputs."""
        if not self.left:
            return ()
        return tuple(name for tid in tids for name in self._names(tid) if self.left.pop(name, None) is not None)
