"""A node that is told to end: when it asks, moves, waits and leaves."""

from __future__ import annotations

import msgspec
import pytest
from parts import CLIENT
from recorder import Recorder

from amfs.engine.drain import AGAIN_S, LAST_OF_TIME, PATIENCE_S, Drain
from amfs.engine.farewell import Rest
from amfs.engine.units import units
from amfs.engine.views import follow
from amfs.vocabulary import messages as m
from amfs.vocabulary.events import DrainOrdered, Kept, Leaving, MembersChanged, MoveAway, MovedAway
from amfs.vocabulary.partition import PartitionTable

ORDER = DrainOrdered("SIGTERM", 30.0)
FILE = Kept("inode 0x1 of amfs:/", 7, "no other node has room for it")


def view_of(*nodes: int) -> m.View:
    return m.View(1, nodes[0], tuple(m.Member(node, 1, (), 2) for node in nodes), PartitionTable.even(nodes).owners)


def members(*nodes: int, draining: tuple[int, ...] = ()) -> MembersChanged:
    return MembersChanged(PartitionTable.even(nodes), dict.fromkeys(nodes, 2), set(), draining=set(draining), manager=nodes[0])


def test_it_drains_before_its_job_ends() -> None:
    node = Recorder(Drain(1, lambda: 0), now=100.0).feed(ending := msgspec.structs.replace(members(0, 1), ends={1: 400.0}))
    node.advance(200.0).feed(ending).advance(69.9)
    assert not node.take_all(m.Withdraw)
    node.advance(0.2)
    assert node.take(m.Withdraw, 0)
    assert "its job is about to end: this node drains, within 27 s" in node.logs


def test_alone_it_serves_until_its_job_ends() -> None:
    node = Recorder(Drain(1, lambda: 0), now=100.0).feed(msgspec.structs.replace(members(1), ends={1: 400.0}))
    node.advance(299.0)
    assert not node.take_all(m.Withdraw) and not node.logs


class Tasks:
    running = 0


def draining(tasks: Tasks | None = None) -> Recorder[Drain]:
    """Node 1 of three, which the others know to drain."""
    tasks = tasks or Tasks()
    node = Recorder(Drain(1, lambda: tasks.running)).feed(members(0, 1, 2)).feed(ORDER)
    assert node.take(m.Withdraw, 0)
    return node.feed(members(0, 1, 2, draining=(1,)))


def test_it_leaves_when_nothing_is_left_and_no_task_runs() -> None:
    tasks = Tasks()
    tasks.running = 1
    node = draining(tasks)
    assert node.effect(MoveAway)
    node.forget().feed(MovedAway((), 2)).advance(AGAIN_S)
    assert node.effect(MoveAway), "the task may have made something"
    tasks.running = 0
    assert "all that it had" in node.forget().feed(MovedAway((), 2)).effect(Leaving).reason


class Runs(Tasks):
    """Files of a run of client ``CLIENT`` that node 1 has."""

    def __init__(self) -> None:
        self.runs = {7: CLIENT}
        self.rest = True
        self.said = 3

    def drained(self, *, unit: bool = False, manager: int = 0) -> Recorder[Drain]:
        """It drains, and has nothing any more that others do not have."""
        facts = Rest(lambda: self.runs, lambda: self.rest, lambda: self.said)
        node = Recorder(Drain(1, lambda: self.running, facts)).feed(members(0, 1, 2)).feed(ORDER)
        view = msgspec.structs.replace(members(0, 1, 2, draining=(1,)), unit={0: 2} if unit else {}, manager=manager)
        return node.feed(view).forget().feed(MovedAway((), 2))


def asked(node: Recorder[Drain]) -> dict[int, int]:
    """The nodes asked whether all is heard, and the number of the question."""
    return {to: question.number for to, question in node.take_all(m.Farewell)}


def heard(node: Recorder[Drain], number: int, *peers: int) -> Recorder[Drain]:
    for peer in peers:
        node.tell(peer, m.Farewell(number, heard=True))
    return node


def looked(node: Recorder[Drain]) -> Recorder[Drain]:
    """It looks once more, and finds nothing."""
    assert node.effects_of(MoveAway) and not node.effects_of(Leaving)
    return node.forget().feed(MovedAway((), 2))


def test_it_leaves_in_order_when_all_have_heard_what_it_said() -> None:
    node = Runs().drained()
    assert asked(node) == {0: 1, 2: 1, CLIENT: 1} and not node.effects_of(Leaving)
    heard(node, 1, 0, CLIENT).advance(AGAIN_S)
    assert asked(node) == {2: 1}, "an answer may take longer than that, so the question is the same"
    node.forget().feed(MovedAway((), 2))
    assert looked(heard(node, 1, 2)).effect(Leaving) == Leaving("SIGTERM: all that it had is on other nodes", (7,))


def test_a_file_that_was_made_while_the_others_answered_is_moved_first() -> None:
    """Seeds 8002043 and 8002071: a program made a file, and the last answer came: the node left with it."""
    node = heard(Runs().drained(), 1, 0, 2, CLIENT)
    assert not node.effects_of(Leaving)
    node.feed(MovedAway((FILE,), 2, changed=True))
    assert not node.effects_of(Leaving) and node.effects_of(MoveAway)[-1].last, "nor may another file be made"
    node.forget().feed(MovedAway((), 2))
    assert looked(heard(node, 2, 0, 2, CLIENT)).effect(Leaving).runs == (7,)


def test_so_is_one_that_was_made_before_its_patience_was_over() -> None:
    node = Runs().drained().advance(AGAIN_S).feed(MovedAway((), 2)).forget().advance(PATIENCE_S)
    assert not node.effects_of(Leaving) and node.effects_of(MoveAway)
    assert not node.feed(MovedAway((FILE,), 2)).effects_of(Leaving)
    assert node.feed(MovedAway((), 2)).effect(Leaving).runs == ()


def test_what_it_says_meanwhile_is_asked_about_anew() -> None:
    runs = Runs()
    node = heard(runs.drained(), 1, 0, CLIENT)
    runs.said += 1
    heard(node, 1, 2).forget().advance(AGAIN_S)
    assert asked(node) == {0: 2, 2: 2, CLIENT: 2}
    assert not heard(node, 1, 0, 2, CLIENT).effects_of(Leaving), "those are answers to the first question"
    assert looked(heard(node.feed(MovedAway((), 2)).forget(), 2, 0, 2, CLIENT)).effect(Leaving).runs == (7,)


def test_it_waits_for_what_it_still_has() -> None:
    runs = Runs()
    runs.rest = False
    node = heard(runs.drained(), 1, 0, 2, CLIENT)
    assert not node.effects_of(Leaving)
    runs.rest = True
    assert looked(node.advance(AGAIN_S)).effect(Leaving).runs == (7,)


def test_files_that_come_meanwhile_are_moved_first() -> None:
    node = Runs().drained().feed(MovedAway((FILE,), 2))
    assert not heard(node, 1, 0, 2, CLIENT).effects_of(Leaving)
    node.forget().feed(MovedAway((), 2))
    assert asked(node) == {0: 2, 2: 2, CLIENT: 2}
    assert looked(heard(node, 2, 0, 2, CLIENT)).effect(Leaving).runs == (7,)


def test_those_of_a_new_view_are_asked() -> None:
    node = Runs().drained().forget().feed(members(0, 1, draining=(1,)))
    assert asked(node) == {0: 2, CLIENT: 2}
    assert looked(heard(node, 2, 0, CLIENT)).effect(Leaving).runs == (7,)


@pytest.mark.parametrize(("silent", "runs"), [(CLIENT, (8,)), (2, ())])
def test_after_a_while_it_leaves_without_an_answer(silent: int, runs: tuple[int, ...]) -> None:
    """Of runs whose submitter is silent it says nothing, and of none at all if a node is."""
    known = Runs()
    known.runs[8] = CLIENT + 1
    node = heard(known.drained(), 1, *({0, 2, CLIENT, CLIENT + 1} - {silent}))
    assert not node.effects_of(Leaving)
    assert looked(node.advance(PATIENCE_S)).effect(Leaving) == Leaving("SIGTERM: all that it had is on other nodes", runs)


@pytest.mark.parametrize("leader", [{"unit": True}, {"manager": 1}], ids=["dispatcher", "manager"])
def test_a_leader_does_not_leave_in_order(leader: dict[str, int]) -> None:
    """Nobody else knows what it does as such."""
    node = Runs().drained(**leader)  # type: ignore[arg-type]
    assert not asked(node) and node.effect(Leaving).runs == ()


def test_what_cannot_be_moved_is_tried_again_until_its_time_is_over() -> None:
    node = draining().feed(MovedAway((FILE,), 2))
    assert not node.effects_of(Leaving)
    words = node.advance(30.0).effect(Leaving).reason
    assert "its 30 s are over" in words and "1 files (7 B) stay here" in words


def test_a_second_signal_ends_it_and_a_second_command_does_not() -> None:
    node = draining()
    assert not node.tell(m.CLIENT_ID_MIN, m.DrainNode(1000)).effects_of(Leaving)
    assert "told again" in node.feed(ORDER).effect(Leaving).reason
    assert not node.forget().feed(ORDER).effects_of(Leaving)


def test_a_signal_while_it_drains_by_command_shortens_its_time_and_a_second_ends_it() -> None:
    """A policy gives a node minutes; then its host ends the job."""
    node = Recorder(Drain(1, lambda: 1)).feed(members(0, 1, 2)).tell(m.CLIENT_ID_MIN, m.DrainNode(300_000))
    node.feed(members(0, 1, 2, draining=(1,))).feed(ORDER).advance(10.0)
    assert not node.tell(m.CLIENT_ID_MIN, m.DrainNode(300_000)).effects_of(Leaving)
    assert "its 30 s are over" in node.advance(20.0).effect(Leaving).reason
    node = Recorder(Drain(1, lambda: 1)).feed(members(0, 1, 2)).tell(m.CLIENT_ID_MIN, m.DrainNode(300_000)).feed(ORDER)
    assert not node.effects_of(Leaving)
    assert "told again" in node.feed(ORDER).effect(Leaving).reason


def test_a_node_that_drains_by_command_leaves_before_its_job_ends() -> None:
    node = Recorder(Drain(1, lambda: 1), now=100.0).feed(msgspec.structs.replace(members(0, 1), ends={1: 700.0}))
    node.advance(500.0).tell(m.CLIENT_ID_MIN, m.DrainNode(300_000))
    node.feed(msgspec.structs.replace(members(0, 1, draining=(1,)), ends={1: 700.0})).advance(99.0)
    assert "its 54 s are over" in node.effect(Leaving).reason


@pytest.mark.parametrize("others", [members(1), members(0, 1, draining=(0,))], ids=["alone", "all others drain"])
def test_the_last_node_does_not_drain(others: MembersChanged) -> None:
    node = Recorder(Drain(1, lambda: 0)).feed(others).feed(ORDER)
    assert "no other node" in node.effect(Leaving).reason
    assert "no other node" in draining().feed(others).effect(Leaving).reason


def test_the_manager_is_asked_until_the_view_says_so_and_so_is_the_next_one() -> None:
    node = Recorder(Drain(1, lambda: 0)).feed(members(0, 1, 2)).feed(ORDER).forget()
    node.advance(AGAIN_S)
    assert node.take(m.Withdraw, 0)
    node.feed(members(2, 1)).forget().advance(AGAIN_S)
    assert node.take(m.Withdraw, 2)


def test_a_node_that_drains_has_no_partitions_takes_no_tasks_and_goes_on_dispatching() -> None:
    view = follow(view_of(0, 1, 2), m.ViewChange(1, 0, 0, draining=(0,)))
    assert view.members[0].draining and set(view.table) == {1, 2}
    assert units(view.slots(), 0) == {0: [1, 2]}
    joined = follow(view, m.ViewChange(2, 0, 0, joined=(m.Member(3, 1, (), 2),)))
    assert set(joined.table) == {1, 2, 3}


def test_nodes_that_drain_are_left_alone() -> None:
    view = follow(view_of(0, 1), m.ViewChange(1, 0, 0, draining=(1,)))
    assert set(follow(view, m.ViewChange(2, 0, 1, left=(0,))).table) == {1}


def test_when_nothing_is_left_but_what_began_meanwhile_nobody_begins_any_more() -> None:
    """A program that writes one file after the other kept the node until its time was over, and then lost the last ones."""
    node = draining()
    assert not node.effect(MoveAway).last
    node.forget().feed(MovedAway((FILE,), 2, changed=True))
    assert node.effect(MoveAway).last
    assert node.forget().feed(MovedAway((), 2)).effect(Leaving)


def test_tasks_that_run_may_write_until_the_time_is_nearly_over() -> None:
    tasks = Tasks()
    tasks.running = 1
    node = draining(tasks).feed(MovedAway((FILE,), 2, changed=True)).forget().advance(AGAIN_S)
    assert not node.effect(MoveAway).last
    node.advance(30 * LAST_OF_TIME).feed(MovedAway((FILE,), 2, changed=True)).forget().advance(AGAIN_S)
    assert node.effect(MoveAway).last
