"""Which nodes drain when a session is to have fewer."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given

from amfs.engine.scaling import Plan, Standing, plan, to_drain

COUNT = st.integers(0, 6)


@given(st.integers(1, 9), st.integers(1, 6), COUNT)
def test_a_plan_ends_at_the_number_that_is_wanted(wanted: int, there: int, waiting: int) -> None:
    start, cancel, drain = plan(wanted, there, waiting)
    assert there + (waiting - cancel) + start - drain == wanted
    assert 0 <= cancel <= waiting and not (start and (cancel or drain))
    assert cancel == waiting or not drain, "jobs that wait go first"


def test_nothing_is_done_when_it_is_so_already() -> None:
    assert plan(3, 2, 1) == plan(2, 2, 0) == Plan(0, 0, 0)


STANDING = st.lists(
    st.builds(Standing, st.integers(0, 99), st.integers(0, 5), st.integers(0, 3), st.just(False)), min_size=1, max_size=9,
    unique_by=lambda one: one.node,
)  # fmt: skip


@given(STANDING, st.integers(0, 12), st.data())
def test_those_with_the_least_go_and_one_stays(nodes: list[Standing], count: int, data: st.DataObject) -> None:
    manager = data.draw(st.sampled_from(nodes)).node
    nodes = [one._replace(manages=one.node == manager) for one in nodes]
    leave = to_drain(nodes, count)
    assert len(leave) == len(set(leave)) == min(count, len(nodes) - 1)
    assert manager not in leave, "while another one is left"
    held = {one.node: (one.held, one.running) for one in nodes}
    stay = held.keys() - set(leave) - {manager}
    assert not leave or not stay or max(held[node] for node in leave) <= min(held[node] for node in stay)
