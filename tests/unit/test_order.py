"""Order of tasks and cycles, against networkx and by hand."""

from __future__ import annotations

import networkx as nx
from hypothesis import given
from hypothesis import strategies as st

from amfs.workflow.order import cycles, topological

graphs = st.integers(1, 12).flatmap(lambda count: st.lists(st.lists(st.integers(0, count - 1), max_size=4), min_size=count, max_size=count))


def as_networkx(producers: list[list[int]]) -> nx.DiGraph:
    graph = nx.DiGraph()
    graph.add_nodes_from(range(len(producers)))
    graph.add_edges_from((made, task) for task, made_by in enumerate(producers) for made in made_by if made != task)
    return graph


@given(graphs)
def test_agrees_with_networkx(producers: list[list[int]]) -> None:
    graph = as_networkx(producers)
    order = topological(len(producers), producers.__getitem__)
    found = cycles(len(producers), producers.__getitem__)
    knots = [knot for knot in nx.strongly_connected_components(graph) if len(knot) > 1]
    assert (order is None) == bool(knots)
    assert sorted(path[0] for path in found) == sorted(min(knot) for knot in knots)
    for path in found:
        assert len(set(path)) == len(path)
        assert all(graph.has_edge(*edge) for edge in zip(path, path[1:] + path[:1], strict=True))
    if order is not None:
        place = {task: at for at, task in enumerate(order)}
        assert sorted(place) == list(range(len(producers)))
        assert all(place[made] < place[task] for made, task in graph.edges)


def test_stable() -> None:
    # 0 needs 3; 2 needs 4: only these are drawn forward
    producers = [[3], [], [4], [], []]
    assert topological(5, producers.__getitem__).tolist() == [3, 0, 1, 4, 2]  # type: ignore[union-attr]


def test_shortest_cycle_of_a_knot() -> None:
    # 0 <- 1 <- 2 <- 0 and the shorter 0 <- 3 <- 0
    producers = [[1, 3], [2], [0], [0]]
    assert cycles(4, producers.__getitem__) == [[0, 3]]


def test_long_chains_do_not_recurse() -> None:
    count = 50_000  # far beyond Python's limit
    backwards = topological(count, lambda task: [task + 1] if task + 1 < count else [])
    assert backwards is not None
    assert backwards[0] == count - 1
    assert [len(path) for path in cycles(count, lambda task: [(task + 1) % count])] == [count]
