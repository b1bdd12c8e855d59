"""Counts of a workflow against networkx and by hand, and what is drawn as one."""

from __future__ import annotations

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from amfs.errors import WorkflowError
from amfs.translate.shape import COLUMNS_MAX, LEVEL_DRAWN, ROWS_MAX, TASKS_DRAWN, Graph, kind_of, picture_of, shape_of
from amfs.workflow.workflow import Task, Workflow


def diamond() -> Workflow:
    tasks = [
        Task("a", ("/bin/prep",), ("in",), ("b1", "b2"), runtime=2.0),
        Task("b", ("find",), ("b1",), ("c1",), runtime=5.0, keep=("c1",)),
        Task("c", ("find",), ("b2",), ("c2", "log"), runtime=1.0, scratch=("log",)),
        Task("d", ("merge",), ("c1", "c2"), ("out",), runtime=1.0, label="last"),
        Task("e", ("mail",), after=("d", "a")),
    ]
    return Workflow(tasks, name="diamond", sizes={"in": 100, "b1": 10, "b2": 20, "out": 5, "elsewhere": 999})


def test_a_diamond() -> None:
    shape = shape_of(diamond())
    assert (shape.tasks, shape.files, shape.edges, shape.edges_by_files, shape.edges_by_order) == (5, 7, 6, 4, 2)
    assert (shape.depth, shape.width, shape.widest_level) == (4, 2, 2)
    assert (shape.runtime, shape.timed, shape.critical_path, shape.critical_tasks) == (9.0, 4, 8.0, ["a", "b", "d"])
    assert (shape.bytes, shape.unknown_sizes) == (135, 3)
    assert {role.role: (role.files, role.bytes, role.unknown) for role in shape.roles} == {
        "shared input": (1, 100, 0),
        "intermediate": (3, 30, 1),
        "intermediate and kept": (1, 0, 1),
        "final": (1, 5, 0),
        "never read": (1, 0, 1),
    }
    assert [(kind.kind, kind.tasks, kind.first_level, kind.last_level, kind.reads, kind.writes) for kind in shape.kinds] == [
        ("prep", 1, 1, 1, 1, 2), ("find", 2, 2, 2, 2, 3), ("last", 1, 3, 3, 2, 1), ("mail", 1, 4, 4, 0, 0),
    ]  # fmt: skip


def test_without_run_times_the_longest_chain_counts() -> None:
    tasks = [Task("a", ("p",), (), ("x",)), Task("b", ("p",)), Task("c", ("p",), ("x",), ("y",)), Task("d", ("p",), ("y",))]
    shape = shape_of(Workflow(tasks))
    assert (shape.critical_path, shape.critical_tasks, shape.timed) == (0.0, ["a", "c", "d"], 0)


def test_nothing() -> None:
    shape = shape_of(Workflow([]))
    assert (shape.tasks, shape.files, shape.edges, shape.depth, shape.width, shape.widest_level) == (0,) * 6
    assert shape.critical_tasks == []


def test_spellings_of_one_file_are_one_file() -> None:
    shape = shape_of(Workflow([Task("a", ("p",), (), ("./x",)), Task("b", ("p",), ("d/../x",))]))
    assert (shape.files, shape.edges) == (1, 1)


def test_stdin_and_stdout_are_files() -> None:
    shape = shape_of(Workflow([Task("a", ("p",), stdout="x"), Task("b", ("p",), stdin="x")]))
    assert (shape.files, shape.edges) == (1, 1)


def test_the_last_of_several_writers_counts() -> None:
    graph = Graph(Workflow([Task("a", ("p",), (), ("x",)), Task("b", ("p",), (), ("x",)), Task("c", ("p",), ("x",))]))
    assert graph.parents == [(), (), (1,)]


@pytest.mark.parametrize(
    ("tasks", "words"),
    [
        ([Task("a", ("p",), after=("z",), line=3)], "w.txt:3: task a is after z, which there is not"),
        ([Task("a", ("p",), ("y",), ("x",), line=1), Task("b", ("p",), ("x",), ("y",))], "w.txt:1: cycle of tasks, .*: a -> b -> a"),
        ([Task("a", ("p",), after=("b",)), Task("b", ("p",), after=("a",))], "each waiting for the one before it: a -> b -> a"),
    ],
)
def test_what_is_no_graph(tasks: list[Task], words: str) -> None:
    with pytest.raises(WorkflowError, match=words):
        shape_of(Workflow(tasks, source="w.txt"))


@st.composite
def layered(draw: st.DrawFn) -> Workflow:
    """Tasks that read what earlier ones make, in an order that is not that of the list."""
    count = draw(st.integers(1, 14))
    tasks = []
    for number in range(count):
        parents = draw(st.lists(st.integers(0, number - 1), max_size=3, unique=True)) if number else []
        order = draw(st.lists(st.integers(0, number - 1), max_size=2, unique=True)) if number else []
        tasks.append(
            Task(
                f"t{number}", (draw(st.sampled_from(["a", "b", "c"])),), tuple(f"f{parent}" for parent in parents), (f"f{number}",),
                after=tuple(f"t{parent}" for parent in order if parent not in parents), runtime=draw(st.integers(1, 9)),
            )
        )  # fmt: skip
    return Workflow(draw(st.permutations(tasks)))


@given(layered())
def test_counts_agree_with_networkx(workflow: Workflow) -> None:
    graph = nx.DiGraph()
    by_file = {name: task.id for task in workflow.tasks for name in task.outputs}
    for task in workflow.tasks:
        graph.add_node(task.id)
        graph.add_edges_from((parent, task.id) for parent in {*task.after, *(by_file[name] for name in task.inputs)})
    runtime = {task.id: task.runtime or 0.0 for task in workflow.tasks}
    longest = nx.dag_longest_path(nx.DiGraph((a, b, {"weight": runtime[b]}) for a, b in graph.edges)) if graph.edges else []
    seconds = max([*runtime.values(), *_path_lengths(graph, runtime)])
    shape = shape_of(workflow)
    levels = list(nx.topological_generations(graph))
    assert (shape.edges, shape.depth, shape.width) == (len(graph.edges), len(levels), max(map(len, levels)))
    assert shape.critical_path == pytest.approx(seconds)
    assert sum(runtime[each] for each in shape.critical_tasks) == pytest.approx(seconds)
    assert all(graph.has_edge(a, b) for a, b in zip(shape.critical_tasks, shape.critical_tasks[1:], strict=False))
    assert len(longest) <= shape.depth


def _path_lengths(graph: nx.DiGraph, runtime: dict[str, float]) -> list[float]:
    finish: dict[str, float] = {}
    for node in nx.topological_sort(graph):
        finish[node] = runtime[node] + max((finish[parent] for parent in graph.predecessors(node)), default=0.0)
    return list(finish.values())


# ── pictures ───────────────────────────────────────────────────────────────────────────────────────


def fan(count: int) -> Workflow:
    tasks = [Task("split", ("split",), (), tuple(f"p{n}" for n in range(count)))]
    tasks += [Task(f"w{n}", ("work",), (f"p{n}",), (f"r{n}",)) for n in range(count)]
    tasks += [Task("join", ("join",), tuple(f"r{n}" for n in range(count)), ("out",))]
    return Workflow(tasks, name="fan")


def test_small_workflows_are_drawn_whole_and_large_ones_in_groups() -> None:
    small, large = picture_of(fan(LEVEL_DRAWN)), picture_of(fan(LEVEL_DRAWN + 1))
    assert (small.grouped, len(small.groups), len(small.edges)) == (False, LEVEL_DRAWN + 2, 2 * LEVEL_DRAWN)
    assert large.grouped
    assert [(group.title, group.tasks, group.column) for group in large.groups] == [("split", 1, 0), ("work ×31", 31, 1), ("join", 1, 2)]
    assert [(edge.start, edge.end, edge.count, edge.ordered) for edge in large.edges] == [(0, 1, 31, False), (1, 2, 31, False)]
    assert picture_of(fan(31), grouped=False).grouped is False
    assert len(picture_of(fan(3), grouped=True).groups) == 3


def test_long_chains_become_columns_of_several_levels() -> None:
    chain = Workflow([Task(f"t{n}", ("ab"[n % 2],), (f"f{n - 1}",) if n else (), (f"f{n}",)) for n in range(1000)])
    picture = picture_of(chain)
    assert max(group.column for group in picture.groups) < COLUMNS_MAX
    assert sum(group.tasks for group in picture.groups) == 1000
    assert picture.groups[0].detail == "levels 1 to 42"
    assert all(picture.groups[edge.start].column < picture.groups[edge.end].column for edge in picture.edges)


def test_many_kinds_in_one_level_become_others() -> None:
    picture = picture_of(Workflow([Task(f"t{n}", (f"kind{n % 50}",)) for n in range(TASKS_DRAWN + 1)]))
    assert len(picture.groups) == ROWS_MAX
    (others,) = [group for group in picture.groups if not group.kind]
    assert others.title.startswith(f"{50 - ROWS_MAX + 1} other kinds ×")
    assert sum(group.tasks for group in picture.groups) == TASKS_DRAWN + 1


def test_order_without_files_is_told_apart() -> None:
    picture = picture_of(diamond())
    dashed = {(picture.groups[edge.start].title, picture.groups[edge.end].title) for edge in picture.edges if edge.ordered}
    assert dashed == {("d", "e"), ("a", "e")}


def test_kinds() -> None:
    assert [kind_of(task) for task in (Task("1", ("/a/b",)), Task("2", ("x",), label="y"), Task("3", ()))] == ["b", "y", "?"]
