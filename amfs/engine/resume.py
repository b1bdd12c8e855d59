"""Which tasks of a workflow need not run again, given what an earlier run finished and what is still there. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from amfs.engine.checks import Plan
from amfs.engine.workflow import Task


def to_skip(
    tasks: Sequence[Task], plan: Plan, done: Collection[int], there: Callable[[int, str], bool], final: Callable[[Task, str], bool]
) -> tuple[frozenset[int], set[str]]:
    """(tasks to skip, files that those left behind and the others read).

    ``done``: indices of tasks that finished before. ``there(index, file)``: is that output of that task still there, whole? ``final(task,
    file)``: does it belong on shared storage? A finished task runs again when a final output of it has vanished, or when a task that
    must run reads an output of it that is not there any more (files between tasks were in memory).
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
