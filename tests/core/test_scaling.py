"""Which nodes drain when a session is to have fewer."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given

from amfs.config import MemoryLimits
from amfs.engine.memory import Content, Memory
from amfs.engine.scaling import Plan, Standing, plan, to_drain
from amfs.provision.autoscale import facts_of
from amfs.provision.resizing import Nodes, held
from amfs.vocabulary import messages as m
from amfs.vocabulary.states import Place, PlaceEvent

COUNT = st.integers(0, 6)


@given(st.integers(1, 9), st.integers(1, 6), COUNT)
def test_a_plan_ends_at_the_number_that_is_wanted(wanted: int, there: int, waiting: int) -> None:
    start, cancel, drain = plan(wanted, there, waiting)
    assert there + (waiting - cancel) + start - drain == wanted
    assert 0 <= cancel <= waiting and not (start and (cancel or drain))
    assert cancel == waiting or not drain, "jobs that wait go first"


def test_nothing_is_done_when_it_is_so_already() -> None:
    assert plan(3, 2, 1) == plan(2, 2, 0) == Plan(0, 0, 0)


def test_an_idle_node_goes_before_one_that_works_whatever_it_holds() -> None:
    """A drain waits for the tasks that run."""
    assert to_drain([Standing(1, 0, 2), Standing(2, 99, 0), Standing(3, 5, 0)], 2) == [3, 2]


STANDING = st.lists(
    st.builds(Standing, st.integers(0, 99), st.integers(0, 5), st.integers(0, 3), st.just(False)), min_size=1, max_size=9,
    unique_by=lambda one: one.node,
)  # fmt: skip


@given(STANDING, st.integers(0, 12), st.data())
def test_those_that_are_idle_and_have_the_least_go_and_one_stays(nodes: list[Standing], count: int, data: st.DataObject) -> None:
    manager = data.draw(st.sampled_from(nodes)).node
    nodes = [one._replace(manages=one.node == manager) for one in nodes]
    leave = to_drain(nodes, count)
    assert len(leave) == len(set(leave)) == min(count, len(nodes) - 1)
    assert manager not in leave, "while another one is left"
    held = {one.node: (one.running > 0, one.held, one.running) for one in nodes}
    stay = held.keys() - set(leave) - {manager}
    assert not leave or not stay or max(held[node] for node in leave) <= min(held[node] for node in stay)


def test_what_is_in_memory_and_on_the_disk_is_used_once() -> None:
    """Files that had been spilled and were read again counted twice: a session kept nodes for them."""
    memory = Memory(MemoryLimits(limit=5000, spill="/disk"))
    files = [Content(f"7/{number}") for number in range(4)]
    for number, file in enumerate(files):
        file.size = 10**number
        memory.move(file, PlaceEvent.STORED)
    for event in (PlaceEvent.SPILL, PlaceEvent.COPIED):
        memory.move(files[3], event)
        memory.move(files[1], event)
    memory.move(files[1], PlaceEvent.EVICTED)
    assert [file.place for file in files] == [Place.HELD, Place.SPILLED, Place.HELD, Place.BOTH]
    assert memory.used + memory.on_disk - memory.spare() == 1111
    files[3].spare = True
    assert memory.used + memory.on_disk - memory.spare() == 111


def test_copies_that_can_go_at_any_time_are_no_memory_in_use() -> None:
    """A session that had fetched much grew, and did not shrink, for the sake of copies that the nodes give up when they want room."""
    memory = Memory()
    for number, (spare, users) in enumerate([(False, 0), (True, 0), (True, 1), (True, 0)]):
        file = Content(f"7/{number}")
        file.size, file.spare, file.users = 10**number, spare, users
        memory.move(file, PlaceEvent.STORED)
    assert (memory.used, memory.spare()) == (1111, 1010)
    members = [m.Member(0, 1, (), 2)]
    says = {0: {"memory": 1111, "memory_spare": 1010, "fs_memory": 5, "spilled": 3, "slots": 2, "memory_limit": 9999}}
    facts = facts_of(Nodes(m.View(1, 0, tuple(members), (0,)), members, says, 0, None))
    assert (facts.memory, facts.spilled) == (106, 3)
    assert held(says[0]) == 109
