"""The submitter and the nodes: those that come and go, those that it cannot reach, and how they hear that it lives."""

from __future__ import annotations

from parts import CLIENT, RUN, info, result
from submitter_client import CHAIN, MANY, SMALL, Client

from amfs.config import SubmitterLimits
from amfs.vocabulary import messages as m
from amfs.vocabulary.events import PeerDown, RunOver, StopRun

# ── nodes come and go ──────────────────────────────────────────────────────────────────────────────


def test_old_views_are_ignored() -> None:
    client = Client(*CHAIN).begun(0, 1)
    client.submitted()
    client.tell(1, m.View(1, 1, (m.Member(1, 1, (), 2),), (1,), 0)).nothing_left()
    client.view(0, 1)
    client.epoch -= 1
    client.view(0).nothing_left()
    assert list(client.machine.members) == [0, 1]


def test_of_two_sides_the_submitter_goes_with_the_larger_and_tells_the_other() -> None:
    client = Client(*CHAIN).begun(1, 2)
    client.submitted()
    larger = client.machine.view
    assert larger is not None
    alone = m.View(larger.epoch + 5, 0, (m.Member(0, 1, (), 2),), (0,), 0)
    assert client.tell(0, alone).take(m.View, 0) == larger
    client.nothing_left()
    assert list(client.machine.members) == [1, 2]


def test_a_submitter_that_was_with_the_smaller_side_goes_over() -> None:
    client = Client(*CHAIN)
    alone = m.View(7, 0, (m.Member(0, 1, (), 2),), (0,), 0)
    client.tell(0, alone)
    client.take(m.RunBegin, 0)
    client.submitted()
    larger = m.View(5, 1, (m.Member(1, 1, (), 2), m.Member(2, 1, (), 2)), (1, 2), 0)
    assert client.tell(1, larger).take(m.View, 0) == larger
    assert client.take(m.RunBegin, 1).epoch < larger.epoch, "some records of the run were elsewhere before"
    assert client.submitted() and list(client.machine.members) == [1, 2]


def test_a_new_node_is_told_of_the_run_and_since_when_it_runs() -> None:
    client = Client(*MANY, limits=SMALL).begun(0, unit_size=1)
    client.submitted()
    client.view(0, 1, unit_size=1)
    assert client.take(m.RunBegin, 1) == m.RunBegin(RUN, CLIENT, info(), 2, 1), "no node was lost until now"
    assert {dispatcher: len(tids) for dispatcher, tids in client.submitted().items()} == {1: 8}
    client.view(0, 1, 2).view(0, 2).view(0, 2, 3)
    assert [begin.epoch for _, begin in client.take_all(m.RunBegin)] == [3, 3], "in the fourth view one was"


def test_a_submitter_that_has_missed_a_view_takes_it_that_nodes_were_lost_in_it() -> None:
    client = Client(*MANY, limits=SMALL).begun(0, unit_size=1)
    client.epoch += 1
    client.view(0, 1, unit_size=1)
    assert client.take(m.RunBegin, 1) == m.RunBegin(RUN, CLIENT, info(), 1, 1)
    assert client.machine.remaking.losses == 1


def test_tasks_of_a_dead_dispatcher_go_to_the_others_whether_they_have_credit_or_not() -> None:
    client = Client(*MANY, limits=SMALL).begun(0, 1, unit_size=1)
    given = client.submitted()
    client.view(0, unit_size=1)
    again = client.take(m.Submit, 0).tasks
    assert [spec.tid for spec in again] == given[1]
    assert {spec.attempt for spec in again} == {1}, "they have had their turn: urgent"
    client.ends(1, *(result(tid, node=1) for tid in given[1])).nothing_left()
    assert client.machine.finished == 0, "what a dispatcher that was given up says counts no more"


def test_the_last_node_that_is_lost_ends_the_run() -> None:
    client = Client(*CHAIN).begun(0)
    client.submitted()
    client.tell(0, m.View(9, 0, (), (0,), 0))
    assert client.effect(RunOver).reason == "all nodes are lost, or were shut down"
    client.nothing_left()


def test_nodes_that_cannot_be_reached_all_together_end_the_run() -> None:
    client = Client(*CHAIN).begun(0, 1)
    client.submitted()
    client.feed(PeerDown(0))
    assert not client.machine.ending
    client.feed(PeerDown(1))
    assert client.effect(RunOver).reason == "all nodes are lost, or were shut down"


def test_a_node_that_cannot_be_reached_is_waited_for_until_the_manager_has_spoken() -> None:
    client = Client(*CHAIN).begun(0, 1)
    client.submitted()
    client.feed(PeerDown(1)).advance(SubmitterLimits().unreachable_s / 2)
    client.view(0).advance(60).nothing_left()


def test_a_node_that_only_we_cannot_reach_ends_the_run() -> None:
    client = Client(*CHAIN).begun(0, 1)
    client.submitted()
    client.feed(PeerDown(1)).advance(SubmitterLimits().unreachable_s + 1)
    client.run_ended(0, 1, reason="node 1 does not answer, although it is there for the others")


def test_a_node_that_has_ended_the_run_by_itself_ends_it() -> None:
    client = Client(*CHAIN).begun(0, 1)
    client.submitted()
    client.tell(1, m.RunGone(RUN, 1, {}))
    assert [node for node, _ in client.take_all(m.RunEnd)] == [0, 1]
    reason = client.machine.course.reason
    assert reason == "node 1 has ended the run: it had not heard from here for too long, or the run was resumed elsewhere"


# ── what keeps a run alive ─────────────────────────────────────────────────────────────────────────


BEAT_S = SubmitterLimits().heartbeat_s


def beating(*nodes: int, unit_size: int = 0) -> Client:
    client = Client(*CHAIN, limits=SubmitterLimits()).begun(*nodes, unit_size=unit_size)
    client.submitted()
    return client.nothing_left()


def test_the_manager_and_the_dispatchers_hear_that_the_submitter_lives() -> None:
    client = beating(0, 1, 2, 3, unit_size=2).advance(BEAT_S)
    assert client.take_all(m.Heartbeat) == [(0, m.Heartbeat(1)), (2, m.Heartbeat(1))], "node 0 manages, 0 and 2 dispatch"
    client.advance(3 * BEAT_S)
    assert len(client.take_all(m.Heartbeat, 2)) == 3


def test_once_a_node_has_fallen_silent_all_are_told() -> None:
    client = beating(0, 1, 2).feed(PeerDown(1)).advance(BEAT_S)
    assert [node for node, _ in client.take_all(m.Heartbeat)] == [0, 1, 2]
    client.view(0, 2).advance(BEAT_S)
    assert client.take_all(m.Heartbeat) == [(0, m.Heartbeat(2)), (2, m.Heartbeat(2))]


def test_heartbeats_go_on_while_the_nodes_end_the_run_and_not_after() -> None:
    client = beating(0).feed(StopRun("interrupted")).advance(BEAT_S)
    client.take(m.Heartbeat, 0)
    client.run_ended(0, reason="interrupted")
    client.advance(10 * BEAT_S).nothing_left()
