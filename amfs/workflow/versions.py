"""Files that several tasks write, as one file for each of them. Pure.

A file is written once here. Where a workflow has several writers of one name (or a task that reads and writes it), each gets a version of
its own: the last in the document keeps the name, those before it get ``NAME.v1``, ``NAME.v2``, … A task that only reads NAME reads what the
last writer makes, as in Pegasus; if that would close a circle, that of the last writer before it in the document. A task that changes
NAME reads what the writer before it in the document makes, and the first of them the file that is there from the beginning, which then
keeps the name. Two spellings of one name (``./f`` and ``f``) are one file.

No other module knows this rule. Counts, pictures, translations and replays are made of the tasks as they are afterwards. A real run refuses
such a workflow, and looks for cycles among the same tasks.
"""

from __future__ import annotations

import msgspec

from amfs.errors import Fault
from amfs.workflow.order import topological
from amfs.workflow.workflow import NOWHERE, Spelling, Task, Workflow, complete, printable, some


def versioned(workflow: Workflow, base: str = NOWHERE) -> Workflow:
    """The same workflow if every file has one writer, which does not read it; else one in which that is so.

    ``base``: where the user stands, if that matters.
    """
    tasks = [complete(task) for task in workflow.tasks]
    spelled = Spelling(base)
    several = _several(tasks, spelled)
    if not several:
        return workflow
    names = {spelled(name) for task in tasks for name in (*task.inputs, *task.outputs)}
    made_as = {name: _versions(name, made, name in map(spelled, tasks[made[0]].inputs), names) for name, made in several.items()}
    found = [_renamed(task, index, several, made_as, spelled, nearest=False) for index, task in enumerate(tasks)]
    if topological(len(found), producers_of(found, base).__getitem__) is None:
        found = [_renamed(task, index, several, made_as, spelled, nearest=True) for index, task in enumerate(tasks)]
    sizes = dict(workflow.sizes)
    for name, size in workflow.sizes.items():
        for version in made_as.get(spelled(name), ()):
            sizes.setdefault(version, size)
    name, made = next(iter(several.items()))
    ids = [tasks[index].id for index in made]
    who = f"tasks {some(ids)}" if len(ids) > 1 else f"task {ids[0]}, which reads it,"
    more = f" ({len(several) - 1} more like this)" if len(several) > 1 else ""
    words = f"file {name!r} is written by {who}; each gets a version of its own here, and a real run refuses it{more}"
    remark = Fault(workflow.source or workflow.name, tasks[made[-1]].line, printable(words))
    return msgspec.structs.replace(workflow, tasks=found, sizes=sizes, remarks=[*workflow.remarks, remark])


def _several(tasks: list[Task], spelled: Spelling) -> dict[str, list[int]]:
    """File -> its writers, for files with several writers and for those whose writer reads them."""
    last: dict[str, int] = {}
    found: dict[str, list[int]] = {}
    for index, task in enumerate(tasks):
        for written in task.outputs:
            name = spelled(written)
            before = last.get(name)
            if before is not None and before != index:
                found.setdefault(name, [before]).append(index)
            last[name] = index
    for index, task in enumerate(tasks):
        for read in task.inputs:
            name = spelled(read)
            if last.get(name) == index:
                found.setdefault(name, [index])
    order = {name: at for at, name in enumerate(last)} if found else {}
    return dict(sorted(found.items(), key=lambda entry: order[entry[0]]))


def _versions(name: str, made: list[int], first_changes: bool, taken: set[str]) -> list[str]:
    """The names of the versions of the writers in ``made``. ``first_changes``: the first of them reads the file that is there before."""
    found = []
    for number in range(1, len(made) + first_changes):
        fresh = f"{name}.v{number}"
        while fresh in taken:
            fresh += "_"
        taken.add(fresh)
        found.append(fresh)
    return found if first_changes else [*found, name]


def _renamed(
    task: Task, index: int, several: dict[str, list[int]], made_as: dict[str, list[str]], spelled: Spelling, *, nearest: bool
) -> Task:
    reads: dict[str, str] = {}  # name as written -> version
    for written in task.inputs:
        name = spelled(written)
        made = several.get(name)
        if made is None:
            continue
        version = made_as[name][-1]
        if index in made or nearest:
            before = [at for at, writer in enumerate(made) if writer < index]
            if before:
                version = made_as[name][before[-1]]
            elif index in made:
                continue
        if version != name:
            reads[written] = version
    writes: dict[str, str] = {}
    for written in task.outputs:
        name = spelled(written)
        if name in several and (version := made_as[name][several[name].index(index)]) != name:
            writes[written] = version
    if not reads and not writes:
        return task

    def read(name: str) -> str:
        return reads.get(name, name)

    def written_as(name: str) -> str:
        return writes.get(name, name)

    both = set(map(spelled, task.inputs)) & set(map(spelled, task.outputs))
    words = {name: fresh for name, fresh in {**reads, **writes}.items() if spelled(name) not in both}
    return msgspec.structs.replace(
        task,
        argv=tuple([words.get(word, word) for word in task.argv]),
        inputs=tuple([read(name) for name in task.inputs]),
        outputs=tuple([written_as(name) for name in task.outputs]),
        stdin=read(task.stdin),
        stdout=written_as(task.stdout),
        stderr=written_as(task.stderr),
        keep=tuple([written_as(name) for name in task.keep]),
        scratch=tuple([written_as(name) for name in task.scratch]),
    )


def producers_of(tasks: list[Task], base: str = NOWHERE) -> list[list[int]]:
    """For each task the tasks that it waits for. Every file has one writer (``versioned``)."""
    spelled = Spelling(base)
    writers = {spelled(name): index for index, task in enumerate(tasks) for name in task.outputs}
    index_of = {task.id: index for index, task in enumerate(tasks)}
    found = []
    for task in tasks:
        found.append([writers[name] for name in map(spelled, task.inputs) if name in writers])
        found[-1] += [index_of[name] for name in task.after if name in index_of]
    return found
