"""Blind tasks that failed for want of files: they are parked under the names that they looked for, and go again (AMFS Shell, §3.5). Pure.

A part of the submitter. A task waits until one of its names has a file: another task has made it (``Result.made``), or a look by the shell
has found it (``LookFor``, ``FilesSeen``). It is registered before the look is asked for, so a file that is made between its attempt and the
look is not missed. When nothing is left but parked tasks, all names are looked for once more; nobody will make those not there then, and
the tasks end as they had failed, each with the names of its files.

Each time a task goes again a file has appeared since it was last sent out, or a look has found one for it for the first time. Tasks and
looks are finite, so this ends. A task that ended well without a file that its command line names counts as failed (``Worker.needs``). If
nobody makes that file it goes once more, and then may do without. Must not know: credits, dispatchers, the file system.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from amfs.vocabulary.events import LookFor
from amfs.vocabulary.messages import Result, TaskSpec
from amfs.vocabulary.paths import in_namespace
from amfs.vocabulary.states import Outcome
from amfs.workflow.workflow import Task

GROWS_S = 2.0  # how long a program that adds tasks may take to add the one that makes a file

#: Instead of the number of the last look: nobody has asked for it; it was in vain.
_CHANGED, _IN_VAIN = -1, -2


def lacks_files(result: Result) -> bool:
    """Did an attempt fail by itself, and may it go well once there is another file?"""
    return bool(result.missing) and result.outcome in (Outcome.EXIT, Outcome.SIGNAL)


class Parking:
    """The parked tasks of one run."""

    def __init__(self) -> None:
        self.parked: dict[int, Result] = {}  # task -> how its last attempt failed
        self.waiting: dict[str, dict[int, None]] = {}  # name -> tasks parked under it
        self.due: list[int] = []  # to go again now
        self.again: dict[int, int] = {}  # task -> how often it went again
        self.lenient: set[int] = set()  # tasks that go without what is missing, since nobody makes it
        self._files = 0  # names made so far, counted: the clock of this machine
        self._made: dict[str, int] = {}  # name -> the clock when it was made last
        self._sent: dict[int, int] = {}  # task that is out -> the clock when it was sent
        self._seen: dict[int, set[str]] = {}  # task -> names for which a look has sent it out again
        self._unlooked: dict[str, None] = {}
        self._looks = 0
        self._idle_since = -1.0  # nothing is left but parked tasks; -1: something else is
        self.wake_s = 0.0  # ``turn`` is to be called again after so long; 0: need not be
        self._last = _CHANGED  # the number of the look for all names, while nothing has changed since it was asked for

    def sent(self, specs: Iterable[TaskSpec]) -> None:
        """These go out now."""
        for spec in specs:
            if spec.options is not None and spec.options.blind:
                self._sent[spec.tid] = self._files

    def renewed(self, spec: TaskSpec) -> TaskSpec:
        """The specification of a task that goes again."""
        options = spec.options
        if options is not None and spec.tid in self.lenient:
            options = msgspec.structs.replace(options, lenient=True)
        return msgspec.structs.replace(spec, attempt=1 + self.again.get(spec.tid, 0), options=options)

    def sift(self, results: Sequence[Result], state: Sequence[int], tasks: Sequence[Task]) -> Iterator[Result]:
        """The results that count, each of a task that has not ended when it is given; those of tasks that wait for a file now are kept."""
        for result in results:
            if not state[result.tid] and not (self._sent and self._keeps(result, tasks[result.tid])):
                yield result

    def _keeps(self, result: Result, task: Task) -> bool:
        tid = result.tid
        sent = self._sent.get(tid)
        if result.outcome == Outcome.OK:
            self._leave(tid)
            self._sent.pop(tid, None)
            self._seen.pop(tid, None)
            self.made([*result.made, *(name[5:] for name in task.outputs if in_namespace(name))])
            return False
        if sent is None or not lacks_files(result):
            self._leave(tid)
            return False
        if tid in self.parked:
            return True  # a second news of the same
        self._last = _CHANGED
        if any(self._made.get(name, -1) > sent for name in result.missing):
            self._go(tid)
            return True
        self.parked[tid] = result
        for name in result.missing:
            if name not in self.waiting:
                self.waiting[name] = {}
            self.waiting[name][tid] = None
            self._unlooked[name] = None
        return True

    def made(self, names: Iterable[str]) -> None:
        """There is a file of each of these names now."""
        for name in names:
            self._files += 1
            self._made[name] = self._files
            for tid in list(self.waiting.get(name, ())):
                self._leave(tid)
                self._go(tid)

    def seen(self, serial: int, names: Iterable[str]) -> None:
        """The answer to a look: these of its names are there."""
        for name in names:
            for tid in list(self.waiting.get(name, ())):
                known = self._seen.setdefault(tid, set())
                if name not in known:  # else it had this file when it ran last, and wants another
                    known.add(name)
                    self._leave(tid)
                    self._go(tid)
        if serial == self._last:  # it found nothing new, or it would not be that any more
            self._last = _IN_VAIN

    def turn(self, left: int, *, now: float = 0.0, grows: bool = False) -> tuple[list[int], list[LookFor], list[Result]]:
        """The next steps: tasks that go again, the look to be asked for, and the results of those that are given up.

        ``left``: tasks of the run that have not ended; -1: the run is being ended. ``grows``: more tasks may come; then nothing is given up
        before there has been nothing else for GROWS_S.
        """
        due, self.due = self.due, []
        results: list[Result] = []
        idle = bool(self.parked) and not due and left == len(self.parked)
        self.wake_s = 0.0
        if not idle:
            self._idle_since = -1.0
        elif self._idle_since < 0:
            self._idle_since, self.wake_s = now, GROWS_S
        if idle and (not grows or now - self._idle_since >= GROWS_S):
            if self._last == _CHANGED:
                self._unlooked = dict.fromkeys(self.waiting)
                self._last = self._looks + 1
            elif self._last == _IN_VAIN:
                doubted = [tid for tid, result in self.parked.items() if result.outcome == Outcome.EXIT and not result.code]
                for tid in doubted:  # it ended well, without a file that its command line names and that nobody makes
                    self.lenient.add(tid)
                    self._leave(tid)
                    self._go(tid)
                due, self.due = self.due, []
                if not doubted:
                    results = [_given_up(result) for result in self.parked.values()]
                    self.parked.clear()
                    self.waiting.clear()
                    self._unlooked.clear()
        looks: list[LookFor] = []
        if self._unlooked:
            self._looks += 1
            looks = [LookFor(self._looks, tuple(self._unlooked))]
            self._unlooked = {}
        return due, looks, results

    def _go(self, tid: int) -> None:
        self._last = _CHANGED
        self.again[tid] = self.again.get(tid, 0) + 1
        self.due.append(tid)

    def _leave(self, tid: int) -> None:
        result = self.parked.pop(tid, None)
        for name in result.missing if result is not None else ():
            tasks = self.waiting[name]
            tasks.pop(tid, None)
            if not tasks:
                del self.waiting[name]
                self._unlooked.pop(name, None)

    def check_invariants(self) -> None:
        """Raise AssertionError if the state contradicts itself."""
        for tid, result in self.parked.items():
            assert all(tid in self.waiting[name] for name in result.missing), f"task {tid} is parked, and not under all of its names"
        for name, tasks in self.waiting.items():
            assert tasks and all(tid in self.parked for tid in tasks), f"tasks wait for {name} and are not parked"
        assert not self.parked.keys() & set(self.due), "a task is parked, and due"


def _given_up(result: Result) -> Result:
    """The result of a task for whose files nothing is left; the node has said which they are."""
    it = "it" if len(result.missing) == 1 else "them"
    return msgspec.structs.replace(result, detail=f"{result.detail}, and nothing is left that could make {it}")
