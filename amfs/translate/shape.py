"""The shape of a workflow: dependencies of tasks, depth and width, kinds of tasks and roles of files. Pure.

``Graph`` has the edges by index; ``shape_of`` counts; ``groups_of`` puts tasks together for pictures that stay readable.
"""

from __future__ import annotations

import posixpath
from array import array
from collections import Counter, defaultdict
from itertools import chain

import msgspec

from amfs.errors import Fault, WorkflowError
from amfs.workflow.check_parts import cycle_in_words
from amfs.workflow.order import cycles, topological
from amfs.workflow.versions import versioned
from amfs.workflow.workflow import NOWHERE, Spelling, Task, Workflow, canonical, complete, printable

#: More tasks than this, or more than this in one level, are drawn in groups.
TASKS_DRAWN = 60
LEVEL_DRAWN = 30

#: At most so many columns and so many groups in a column; those beyond are drawn together.
COLUMNS_MAX = 24
ROWS_MAX = 14


def kind_of(task: Task) -> str:
    """The kind of a task: its label, or the name of its program."""
    return task.label or (posixpath.basename(task.argv[0]) if task.argv else "") or "?"


class Graph:
    """Tasks by index and what each waits for. Raises WorkflowError when tasks wait for each other, or for one that there is not.

    Files with several writers are several files (``amfs.workflow.versions``). Files are known by their canonical names.
    """

    def __init__(self, workflow: Workflow) -> None:
        self.workflow = workflow = versioned(workflow)
        self.tasks = tasks = [complete(task) for task in workflow.tasks]
        self.spelled = spelled = Spelling(NOWHERE)
        self.writers = {name: index for index, task in enumerate(tasks) for name in map(spelled, task.outputs)}
        self.parents: list[tuple[int, ...]] = []  # by files and by order, each once
        self.ordered: list[frozenset[int]] = []  # those of the parents by order only
        by_id = {task.id: index for index, task in enumerate(tasks)} if any(task.after for task in tasks) else {}
        none: frozenset[int] = frozenset()
        get = self.writers.get
        faults = []
        for task in tasks:
            found = {writer: None for name in map(spelled, task.inputs) if (writer := get(name)) is not None}
            only = none
            if task.after:
                missing = [each for each in task.after if each not in by_id]
                words = f"task {task.id} is after {' and '.join(missing)}, which there is not"
                faults += [Fault(self._source(), task.line, printable(words))] if missing else []
                waits = [at for each in task.after if (at := by_id.get(each)) is not None and at not in found]
                only = frozenset(waits)
                found |= dict.fromkeys(waits)
            self.parents.append(tuple(found))
            self.ordered.append(only)
        order = topological(len(tasks), self.parents.__getitem__)
        if order is None:
            for path in cycles(len(tasks), self.parents.__getitem__):
                words = cycle_in_words([tasks[each].id for each in path])
                faults.append(Fault(self._source(), tasks[path[0]].line, printable(words)))
        if faults or order is None:
            raise WorkflowError(faults)
        self.order = order
        self.level = array("I", bytes(4 * len(tasks)))
        for index in order:
            if parents := self.parents[index]:
                self.level[index] = 1 + max(self.level[parent] for parent in parents)

    def _source(self) -> str:
        return self.workflow.source or self.workflow.name

    def critical_path(self) -> tuple[float, list[int]]:
        """(seconds, tasks) of the chain that takes longest by the recorded run times; without any, the longest by number of tasks."""
        tasks = self.tasks
        timed = any(task.runtime for task in tasks)
        finish = array("d", bytes(8 * len(tasks)))
        came_from = array("q", [-1]) * len(tasks)
        for index in self.order:
            start = 0.0
            for parent in self.parents[index]:
                if finish[parent] > start or came_from[index] < 0:
                    start, came_from[index] = finish[parent], parent
            finish[index] = start + ((tasks[index].runtime or 0.0) if timed else 1.0)
        if not tasks:
            return 0.0, []
        last = max(range(len(tasks)), key=finish.__getitem__)
        path = [last]
        while (before := came_from[path[-1]]) >= 0:
            path.append(before)
        return (finish[last] if timed else 0.0), path[::-1]


def later_in_words(workflow: Workflow) -> list[str]:
    """Which tasks stand for workflows that are not known yet, one sentence each."""
    if not workflow.later:
        return []
    makers = {canonical(name, "/"): task.id for task in workflow.tasks for name in task.outputs}
    found = []
    for task, later in workflow.later.items():
        maker = makers.get(canonical(later.document, "/"), "?")
        words = f"sub-workflow {later.document} of job {task} is made by job {maker} while the workflow runs"
        found.append(printable(f"{words}: its tasks are not known before"))
    return found


# ── counts ─────────────────────────────────────────────────────────────────────────────────────────


class Kind(msgspec.Struct):
    """Tasks of one kind."""

    kind: str
    tasks: int = 0
    runtime: float = 0.0  # seconds, all together
    reads: int = 0  # files
    writes: int = 0
    first_level: int = 0
    last_level: int = 0


class Role(msgspec.Struct):
    """Files of one role. ``bytes`` of those whose size is known."""

    role: str
    files: int = 0
    bytes: int = 0
    unknown: int = 0  # files without a known size


class Shape(msgspec.Struct):
    name: str
    source: str
    tasks: int
    files: int
    edges: int
    edges_by_files: int
    edges_by_order: int
    depth: int  # levels
    width: int  # tasks in the widest level
    widest_level: int  # counted from 1; 0 if there are no tasks
    runtime: float  # seconds, all tasks together
    timed: int  # tasks with a recorded run time
    critical_path: float  # seconds; 0 if no run times are known
    critical_tasks: list[str]
    bytes: int  # of all files whose size is known
    unknown_sizes: int
    kinds: list[Kind]
    roles: list[Role]


#: Roles in the order in which they are told.
SHARED, INTERMEDIATE, KEPT, FINAL, SCRATCH = "shared input", "intermediate", "intermediate and kept", "final", "never read"


def shape_of(workflow: Workflow) -> Shape:
    """Count. Raises WorkflowError as ``Graph`` does."""
    graph = Graph(workflow)
    tasks = graph.tasks
    kinds: dict[str, Kind] = {}
    for index, task in enumerate(tasks):
        name = kind_of(task)
        level = graph.level[index] + 1
        kind = kinds.get(name)
        if kind is None:
            kind = kinds[name] = Kind(name, first_level=level, last_level=level)
        kind.tasks += 1
        kind.runtime += task.runtime or 0.0
        kind.reads += len(task.inputs)
        kind.writes += len(task.outputs)
        kind.first_level = min(kind.first_level, level)
        kind.last_level = max(kind.last_level, level)
    roles = _roles(graph)
    levels = Counter(graph.level)
    widest = max(levels, key=lambda level: (levels[level], -level), default=-1)
    seconds, path = graph.critical_path()
    by_order = sum(map(len, graph.ordered))
    edges = sum(map(len, graph.parents))
    return Shape(
        name=workflow.name,
        source=workflow.source,
        tasks=len(tasks),
        files=sum(role.files for role in roles),
        edges=edges,
        edges_by_files=edges - by_order,
        edges_by_order=by_order,
        depth=len(levels),
        width=levels[widest] if levels else 0,
        widest_level=widest + 1,
        runtime=sum(task.runtime or 0.0 for task in tasks),
        timed=sum(bool(task.runtime) for task in tasks),
        critical_path=seconds,
        critical_tasks=[tasks[index].id for index in path],
        bytes=sum(role.bytes for role in roles),
        unknown_sizes=sum(role.unknown for role in roles),
        kinds=list(kinds.values()),
        roles=roles,
    )


def _roles(graph: Graph) -> list[Role]:
    spelled = graph.spelled
    read = {name for task in graph.tasks for name in map(spelled, task.inputs)}
    kept = {name for task in graph.tasks for name in map(spelled, task.keep)}
    scratch = {name for task in graph.tasks for name in map(spelled, task.scratch)}
    sizes = {spelled(name): size for name, size in graph.workflow.sizes.items()}
    roles = {name: Role(name) for name in (SHARED, INTERMEDIATE, KEPT, FINAL, SCRATCH)}
    for name in chain(graph.writers, (name for name in read if name not in graph.writers)):
        if name not in graph.writers:
            role = roles[SHARED]
        elif name in read:
            role = roles[KEPT if name in kept else INTERMEDIATE]
        else:
            role = roles[SCRATCH if name in scratch and name not in kept else FINAL]
        role.files += 1
        size = sizes.get(name)
        if size is None:
            role.unknown += 1
        else:
            role.bytes += size
    return [role for role in roles.values() if role.files]


# ── groups ─────────────────────────────────────────────────────────────────────────────────────────


class Group(msgspec.Struct):
    """One box of a picture: a task, or tasks of one kind in neighbouring levels."""

    title: str
    kind: str
    column: int
    tasks: int = 1
    detail: str = ""  # for a tool tip


class Edge(msgspec.Struct):
    start: int  # index of a group
    end: int
    count: int = 1  # edges between tasks in it
    ordered: bool = False  # all of them by order only


class Picture(msgspec.Struct):
    title: str
    groups: list[Group]
    edges: list[Edge]
    grouped: bool


def picture_of(workflow: Workflow, grouped: bool | None = None) -> Picture:
    """The picture to draw. ``grouped``: tasks of one kind and level as one box; None: when there are too many to read."""
    graph = Graph(workflow)
    tasks = graph.tasks
    if grouped is None:
        grouped = len(tasks) > TASKS_DRAWN or max(Counter(graph.level).values(), default=0) > LEVEL_DRAWN
    edges = sum(map(len, graph.parents))
    title = f"{workflow.name}: {_plural(len(tasks), 'task')}, {_plural(edges, 'edge')}"
    if not grouped:
        groups = [Group(task.id, kind_of(task), graph.level[index], 1, " ".join(task.argv)) for index, task in enumerate(tasks)]
        place: list[int] | array[int] = list(range(len(tasks)))
    else:
        groups, place = _grouped(graph)
    found: dict[tuple[int, int], Edge] = {}
    for index, parents in enumerate(graph.parents):
        ordered = graph.ordered[index]
        for parent in parents:
            pair = place[parent], place[index]
            if groups[pair[0]].column >= groups[pair[1]].column:
                continue  # inside a box of several levels
            edge = found.get(pair)
            if edge is None:
                found[pair] = Edge(*pair, 1, parent in ordered)
            else:
                edge.count += 1
                edge.ordered = edge.ordered and parent in ordered
    return Picture(printable(title), groups, list(found.values()), grouped)


def _grouped(graph: Graph) -> tuple[list[Group], array[int]]:
    """Boxes by kind and level; several levels become one column when there are too many, rare kinds one box."""
    depth = max(graph.level, default=0) + 1
    step = -(-depth // COLUMNS_MAX)
    counts: defaultdict[int, Counter[str]] = defaultdict(Counter)
    for index, task in enumerate(graph.tasks):
        counts[graph.level[index] // step][kind_of(task)] += 1
    alone: dict[int, set[str]] = {}
    for column, kinds in counts.items():
        shown = ROWS_MAX if len(kinds) <= ROWS_MAX else ROWS_MAX - 1
        alone[column] = {kind for kind, _ in kinds.most_common(shown)}
    boxes: dict[tuple[int, str | None], int] = {}
    groups: list[Group] = []
    place = array("I", bytes(4 * len(graph.tasks)))
    for index, task in enumerate(graph.tasks):
        column = graph.level[index] // step
        kind = kind_of(task)
        key = column, kind if kind in alone[column] else None
        box = boxes.get(key)
        if box is None:
            box = boxes[key] = len(groups)
            others = len(counts[column]) - len(alone[column])
            first, last = column * step + 1, min((column + 1) * step, depth)
            where = f"level {first}" if first == last else f"levels {first} to {last}"
            title, colour = (kind, kind) if key[1] is not None else (f"{others} other kinds", "")
            groups.append(Group(title, colour, column, 0, where))
        groups[box].tasks += 1
        place[index] = box
    for group in groups:
        if group.tasks > 1:
            group.title += f" ×{group.tasks:,}"
    return groups, place


def _plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}" + ("" if count == 1 else "s")
