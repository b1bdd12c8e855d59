"""Identities of finished tasks, and of all that their files were made from, so that a resumed run can tell which of them still hold. Pure.

The *key* of a task is the XXH64 of its command and files. Its id and its line are not in it: they are mere numbers in many formats, and an
edited list numbers its tasks anew. Tasks without outputs may be alike; the how-manieth of its like a task is belongs to its key.

The *derivation* of a task adds what it reads: the identities of files on shared storage and in the session, of its program if that lies in
the directory of the run, and the derivations of the tasks that make its other inputs or must come before it. So whatever changes above a
task changes this one number.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Sequence

from xxhash import xxh64_intdigest

from amfs.workflow.checks import Plan
from amfs.workflow.workflow import Task, canonical

#: For a file that is not there.
GONE = 1


def key_of(task: Task, alike: int = 0) -> int:
    """The key of a task before which ``alike`` others of its like stand."""
    streams = task.stdin, task.stdout, task.stderr
    parts = ("\1", *task.argv, "\1", *task.inputs, "\1", *task.outputs, "\1", *streams, "\1", *task.env, task.cwd)
    return xxh64_intdigest("\0".join(parts).encode("utf-8", "surrogateescape") + (b"\0\1%d" % alike if alike else b""))


class Keys:
    """The keys of a list of tasks, which may grow; ``later`` has those that stand for workflows, whose outputs change hands."""

    def __init__(self, tasks: Sequence[Task], later: Sequence[int] | dict[int, range | None] = ()) -> None:
        self._tasks = tasks
        self._later = later
        self._counted = 0
        self._alike: dict[int, int] = {}  # key of tasks without outputs -> how many
        self._place: dict[int, int] = {}  # task without outputs -> others of its like before it, if any

    def __call__(self, tid: int) -> int:
        tasks = self._tasks
        while self._counted <= tid:
            at = self._counted
            self._counted += 1
            if not tasks[at].outputs and at not in self._later:
                key = key_of(tasks[at])
                before = self._alike[key] = self._alike.get(key, -1) + 1
                if before:
                    self._place[at] = before
        task = tasks[tid]
        if tid in self._later:
            return key_of(Task("", task.argv, task.inputs))
        return key_of(task, self._place.get(tid, 0))


class Derivations:
    """``identity(file, is it a program)``: a number that changes with the file; files are named as in the plan. ``session``: a number that
    no other session has, for blind tasks, whose files are gone with theirs. ``tasks`` and ``plan`` may grow."""

    def __init__(self, tasks: Sequence[Task], plan: Plan, identity: Callable[[str, bool], int], session: int = 0) -> None:
        self._session = session
        self.key = Keys(tasks, plan.later)
        self._tasks = tasks
        self._plan = plan
        self._identity = identity
        self._known = array("Q")  # by task; 0: not known yet
        self._programs: dict[str, int] = {}  # argv[0] -> identity

    def __call__(self, tid: int) -> int | None:
        """The derivation of a task; None while nobody makes a file that it reads."""
        known = self._known
        known.extend([0] * (len(self._tasks) - len(known)))
        todo = [tid]
        entered: set[int] = set()
        while todo:
            at = todo[-1]
            above = self._above(at) if not known[at] else []
            if above is None:
                return None
            lacking = [each for each, made in above if made and not known[each]]
            if lacking and at in entered:
                return None  # a cycle: somebody reports it
            entered.add(at)
            if lacking:
                todo += lacking
                continue
            if not known[at]:
                parts = [known[each] if made else each for each, made in above]
                known[at] = xxh64_intdigest(struct.pack(f"<{len(parts) + 1}Q", self.key(at), *parts)) or 1
            todo.pop()
        return known[tid]

    def _above(self, tid: int) -> list[tuple[int, bool]] | None:
        """The inputs that a task stands on: (task, True) or (identity, False)."""
        plan, task = self._plan, self._tasks[tid]
        found: list[tuple[int, bool]] = [(self._program(task), False)]
        for name in task.inputs:
            name = plan.aliases.get(name, name)
            writer = plan.writers.get(name)
            if writer is not None:
                found.append((writer, True))
            elif name in plan.shared:
                found.append((self._identity(name, False), False))
            else:
                return None
        found += [(plan.after[name], True) for name in task.after if name in plan.after]
        return found

    def _program(self, task: Task) -> int:
        """Of a program that lies where the run stands; those of the system are not looked at, or an update would make all run again."""
        written, base = task.argv[0], self._plan.base
        if task.blind:
            return self._session
        if not (task.staged or "/" in written):
            return 0
        known = self._programs.get(written)
        if known is None:
            name = canonical(written, base)
            ours = (not name.startswith("/") or name.startswith(f"{base}/")) and name not in self._plan.writers
            known = self._programs[written] = self._identity(name, True) if ours else 0
        return known
