"""Tasks that stand for workflows of which nothing is known before another task has made their documents. Pure.

Such a task is never sent to a node. When all that it waits for has finished, its document is read (by the shell), and the tasks in it join
the run; it ends when they have ended. Tasks that wait for it, directly or through others, are held back until then: sent out, they would
take the credits that the tasks in the document need.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

import msgspec

from amfs.vocabulary.object_versions import ObjectVersion
from amfs.vocabulary.states import PENDING
from amfs.workflow.check_parts import Place
from amfs.workflow.checks import Plan
from amfs.workflow.workflow import Task, canonical


class Standing(msgspec.Struct):
    """A task that stands for others and has not ended."""

    waits: set[int]  # tasks that must finish before the document is read
    inside: set[int]  # tasks in the document that have not ended
    opened: bool = False  # the document was read, and all of its tasks are known
    cause: str = ""  # why a task in the document failed


class Hierarchy:
    """The tasks that stand for others in one run, and those that wait for them."""

    def __init__(self, tasks: Sequence[Task], plan: Plan) -> None:
        self.tasks = tasks
        self.plan = plan
        self.standing: dict[int, Standing] = {}
        self.waiting: dict[int, list[int]] = {}  # task -> those that stand and wait for it
        self.part_of: dict[int, int] = {}  # task that has not ended -> the one that stands for it
        self.held: dict[int, int] = {}  # task held back -> how many of those that it waits for are standing or held
        self.behind: dict[int, list[int]] = {}  # task that stands or is held -> those held that wait for it
        self.due: list[int] = []  # whose documents are to be read now
        self.released: list[int] = []  # tasks that need not be held any longer, each after those for which it waits

    def begin(self, state: Sequence[int]) -> list[tuple[int, str]]:
        """Take in the tasks there are; those that stand for tasks that have all ended, as ``ended`` gives them."""
        self.add(self.plan.walk())
        over: list[tuple[int, str]] = []
        for tid, stand in list(self.standing.items()):
            known = self.plan.later[tid]
            if known is not None:
                stand.opened = all(state[each] != PENDING for each in stand.waits)
                stand.inside = {each for each in known if state[each] == PENDING}
                self.part_of.update(dict.fromkeys(stand.inside, tid))
        for tid, stand in list(self.standing.items()):
            for each in [each for each in stand.waits if state[each] != PENDING]:
                stand.waits.discard(each)
            if tid in self.standing and not stand.waits and not stand.opened and tid not in self.due:
                self.due.append(tid)
            elif tid in self.standing and stand.opened and not stand.inside:
                over += self._over(tid, "")
        return over

    def add(self, tids: Iterable[int]) -> None:
        """Tasks have become known; each comes after those for which it waits."""
        plan, aliases, writers = self.plan, self.plan.aliases, self.plan.writers
        for tid in tids:
            task = self.tasks[tid]
            ahead = {plan.after[name] for name in task.after}
            ahead.update(writers[name] for name in (aliases.get(name, name) for name in task.inputs) if name in writers)
            ahead.discard(tid)
            if tid in plan.later:
                self.standing[tid] = Standing(ahead, set())
                for each in ahead:
                    self.waiting.setdefault(each, []).append(tid)
                continue
            ahead = {each for each in ahead if each in self.standing or each in self.held}
            if ahead:
                self.held[tid] = len(ahead)
                for each in ahead:
                    self.behind.setdefault(each, []).append(tid)

    def opened(self, tid: int, tids: Sequence[int], state: Sequence[int]) -> list[tuple[int, str]]:
        """The document was read: its tasks are ``tids``, each after those for which it waits. Returns the tasks that end by that."""
        stand = self.standing.get(tid)
        if stand is None:
            return []
        stand.opened = True
        stand.inside.update(tids)
        self.part_of.update(dict.fromkeys(tids, tid))
        self.add(tids)
        for each in tids:
            inner = self.standing.get(each)
            if inner is not None:
                inner.waits = {one for one in inner.waits if state[one] == PENDING}
                if not inner.waits:
                    self.due.append(each)
        return self._over(tid, stand.cause) if not stand.inside else []

    def refused(self, tid: int, cause: str) -> list[tuple[int, str]]:
        """Nothing can be made of the document. Returns the tasks that end by that, without the task itself."""
        return self._over(tid, cause)[1:] if tid in self.standing else []

    def ended(self, tid: int, cause: str) -> list[tuple[int, str]]:
        """A task has ended, well if ``cause`` is empty. Those that stand for others and have ended by that, each with its cause."""
        todo = deque([(tid, cause)])
        over: list[tuple[int, str]] = []
        while todo:
            each, why = todo.popleft()
            for stands in self.waiting.pop(each, ()):
                stand = self.standing.get(stands)
                if stand is None:
                    continue
                stand.waits.discard(each)
                if why:
                    self._end(stands, why, over, todo)
                elif not stand.waits:
                    self.due.append(stands)
            whole = self.part_of.pop(each, -1)
            stand = self.standing.get(whole)
            if stand is not None:
                stand.inside.discard(each)
                stand.cause = stand.cause or why
                if stand.opened and not stand.inside:
                    self._end(whole, stand.cause, over, todo)
        return over

    def _over(self, tid: int, cause: str) -> list[tuple[int, str]]:
        over: list[tuple[int, str]] = []
        todo: deque[tuple[int, str]] = deque()
        self._end(tid, cause, over, todo)
        for each, why in todo:
            over += self.ended(each, why)
        return over

    def _end(self, tid: int, cause: str, over: list[tuple[int, str]], todo: deque[tuple[int, str]]) -> None:
        del self.standing[tid]
        over.append((tid, cause))
        todo.append((tid, cause))
        free = deque([tid])
        while free:
            for each in self.behind.pop(free.popleft(), ()):
                self.held[each] -= 1
                if not self.held[each]:
                    del self.held[each]
                    self.released.append(each)
                    free.append(each)


class Within:
    """The place of a workflow whose tasks join those of ``plan``: their outputs will be there."""

    def __init__(self, place: Place, plan: Plan) -> None:
        self.base = place.base
        self._place = place
        self._writers = plan.writers

    def missing(self, names: Iterable[str]) -> set[str]:
        return self._place.missing([name for name in names if name not in self._writers])

    def versions(self, urls: Iterable[str]) -> dict[str, ObjectVersion]:
        return self._place.versions(urls)

    def real(self, directory: str) -> str:
        return self._place.real(directory)

    def unwritable(self, directory: str) -> str:
        return self._place.unwritable(directory)

    def find_program(self, name: str, *, here: bool) -> tuple[str, str]:
        if (here or "/" in name) and canonical(name, self.base) in self._writers:
            return name if "/" in name else f"./{name}", ""
        return self._place.find_program(name, here=here)


def join(plan: Plan, more: Plan, first: int) -> list[int]:
    """Add to ``plan`` what ``more`` says of tasks that now follow from index ``first``; their indices, each after those it waits for."""
    plan.count += more.count
    plan.writers.update((name, first + index) for name, index in more.writers.items())
    for name, count in more.readers.items():
        plan.readers[name] = plan.readers.get(name, 0) + count
    plan.shared.update((name, path) for name, path in more.shared.items() if name not in plan.writers)
    plan.programs.update(more.programs)
    plan.aliases.update(more.aliases)
    plan.paths.update(more.paths)
    plan.versions.update(more.versions)
    plan.after.update((name, first + index) for name, index in more.after.items())
    plan.later.update((first + index, None) for index in more.later)
    plan.unsettled.update(more.unsettled)
    return [first + index for index in more.walk()]
