"""Files that several tasks write, as one file for each of them. Pure.

A file is written once here. Where a workflow has several writers of one name (or a task that reads and writes it), each gets a version of
its own: the last in the document keeps the name, those before it get ``NAME.v1``, ``NAME.v2``, … A task that only reads NAME reads what the
last writer makes, as in Pegasus; if that would close a circle, what the last writer before it in the document makes. A task that changes
NAME reads what the writer before it in the document makes, and the first of them the file that is there from the beginning, which then
keeps the name.
"""

from __future__ import annotations

import msgspec

from amfs.engine.order import topological
from amfs.engine.workflow import Task, Workflow, complete
from amfs.errors import Fault


def versioned(workflow: Workflow) -> Workflow:
    """The same workflow if every file has one writer, which does not read it; else one in which that is so."""
    tasks = [complete(task) for task in workflow.tasks]
    writers: dict[str, list[int]] = {}
    for index, task in enumerate(tasks):
        for name in task.outputs:
            writers.setdefault(name, []).append(index)
    several = {name: made for name, made in writers.items() if len(made) > 1 or name in tasks[made[0]].inputs}
    if not several:
        return workflow
    names = {name for task in tasks for name in (*task.inputs, *task.outputs)}
    made_as = {name: _names(name, made, tasks, names) for name, made in several.items()}
    found = [_renamed(task, index, several, made_as, nearest=False) for index, task in enumerate(tasks)]
    if _order(found) is None:
        found = [_renamed(task, index, several, made_as, nearest=True) for index, task in enumerate(tasks)]
    sizes = dict(workflow.sizes)
    for name, versions in made_as.items():
        if name in sizes:
            sizes.update(dict.fromkeys(versions, sizes[name]))
    name, made = next(iter(several.items()))
    who = f"tasks {tasks[made[0]].id} and {tasks[made[-1]].id}" if len(made) > 1 else f"task {tasks[made[0]].id}, which reads it,"
    more = f" ({len(several) - 1} more files like this)" if len(several) > 1 else ""
    remark = Fault(
        workflow.source or workflow.name, tasks[made[-1]].line, f"file {name!r} is written by {who}; each gets a version of its own{more}"
    )
    return msgspec.structs.replace(workflow, tasks=found, sizes=sizes, remarks=[*workflow.remarks, remark])


def _names(name: str, made: list[int], tasks: list[Task], taken: set[str]) -> list[str]:
    """What the writers in ``made`` call their versions."""
    first_changes = name in tasks[made[0]].inputs
    found = []
    for number in range(1, len(made) + first_changes):
        fresh = f"{name}.v{number}"
        while fresh in taken:
            fresh += "_"
        taken.add(fresh)
        found.append(fresh)
    return found if first_changes else [*found, name]


def _renamed(task: Task, index: int, several: dict[str, list[int]], made_as: dict[str, list[str]], *, nearest: bool) -> Task:
    reads: dict[str, str] = {}
    for name in task.inputs:
        made = several.get(name)
        if made is None:
            continue
        if index in made or nearest:
            before = [at for at, writer in enumerate(made) if writer < index]
            if before:
                reads[name] = made_as[name][before[-1]]
            elif index not in made:
                reads[name] = made_as[name][-1]
        else:
            reads[name] = made_as[name][-1]
    writes = {name: made_as[name][several[name].index(index)] for name in task.outputs if name in several}
    if not reads and not writes:
        return task

    def read(name: str) -> str:
        return reads.get(name, name)

    def written(name: str) -> str:
        return writes.get(name, name)

    words = {name: fresh for name, fresh in {**reads, **writes}.items() if not (name in reads and name in writes)}
    return msgspec.structs.replace(
        task,
        argv=tuple([words.get(word, word) for word in task.argv]),
        inputs=tuple([read(name) for name in task.inputs]),
        outputs=tuple([written(name) for name in task.outputs]),
        stdin=read(task.stdin),
        stdout=written(task.stdout),
        stderr=written(task.stderr),
        keep=tuple([written(name) for name in task.keep]),
        scratch=tuple([written(name) for name in task.scratch]),
    )


def _order(tasks: list[Task]) -> object:
    """None if the tasks wait for each other in a circle."""
    writers = {name: index for index, task in enumerate(tasks) for name in task.outputs}
    index_of = {task.id: index for index, task in enumerate(tasks)}

    def producers(index: int) -> list[int]:
        task = tasks[index]
        return [writers[name] for name in task.inputs if name in writers] + [index_of[name] for name in task.after if name in index_of]

    return topological(len(tasks), producers)
