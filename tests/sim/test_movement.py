"""Collective file movement under seeded faults: completed by the nodes that live, or given up for a reason, and never a hang."""

from __future__ import annotations

import errno

import pytest

from amfs.engine.collectives import ALGORITHMS, GATHER, KINDS, MST, MULTICAST, SCATTER, SEQUENTIAL
from amfs.engine.movement import Bring, Brought, Ended, Held, Look, Looked, Movement, Spare, Spared
from amfs.sim.movement import Network, Troubles, World, check, fuzz, predict

SEEDS = 30


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("kind", KINDS)
def test_seeds(kind: str, algorithm: str) -> None:
    for seed in range(SEEDS):
        fuzz(kind, algorithm, seed)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("kind", KINDS)
def test_many_seeds(kind: str, algorithm: str) -> None:
    for seed in range(SEEDS, 2000 + SEEDS):
        fuzz(kind, algorithm, seed)


def test_a_node_that_forgets_what_it_was_sent_is_noticed() -> None:
    """The check of the simulation can fail."""
    movement = Movement(MULTICAST, [0])
    world = World(movement, 4, {0: 10}, {0: {0}})
    outcome = world.run()
    check(outcome, MULTICAST, {0: {0}}, Troubles(), set())
    outcome.held[0].discard(3)
    with pytest.raises(AssertionError, match="should be on"):
        check(outcome, MULTICAST, {0: {0}}, Troubles(), set())


def test_a_dead_node_on_the_way_is_gone_around() -> None:
    machine = Movement(MULTICAST, [0])
    assert machine.start() == [Look((0,))]
    live = frozenset(range(4))
    [first] = machine.handle(Looked(live, {0: Held(5, frozenset({0}))}))
    assert first == Bring(1, 0, 1, (0,))
    second = machine.handle(Brought(1, [0]))
    assert [(each.source, each.target) for each in second if isinstance(each, Bring)] == [(0, 2), (1, 3)]
    assert machine.handle(Brought(2, [0])) == []
    # Node 1 dies while it sends.
    assert machine.handle(Brought(3, [errno.EIO])) == [Look((0,))]
    [again] = machine.handle(Looked(live - {1}, {0: Held(5, frozenset({0, 2}))}))
    assert isinstance(again, Bring) and (again.source, again.target) == (0, 3)
    assert machine.handle(Brought(again.serial, [0])) == [Ended()]
    assert machine.remark() == "node 1 died meanwhile; the others went on"
    assert not machine.failed


def test_copies_that_served_as_a_step_are_deleted() -> None:
    machine = Movement(GATHER, [0], root=0)
    live = frozenset(range(4))
    [step] = machine.handle(Looked(live, {0: Held(5, frozenset({3}))}))
    assert step == Bring(1, 3, 2, (0,))
    [last] = machine.handle(Brought(1, [0]))
    assert last == Bring(2, 2, 0, (0,))
    [spare] = machine.handle(Brought(2, [0]))
    assert spare == Spare(3, 2, (0,))
    assert machine.handle(Spared(3)) == [Ended()]


def test_the_root_that_was_named_must_live() -> None:
    machine = Movement(GATHER, [0, 1], root=7)
    assert machine.handle(Looked(frozenset({0, 1}), {file: Held(5, frozenset({file})) for file in (0, 1)})) == [Ended()]
    assert set(machine.failed.values()) == {"node 7 is not in the session"}


def test_a_late_answer_is_asked_for_again_but_not_for_ever() -> None:
    machine = Movement(MULTICAST, [0])
    [order] = machine.handle(Looked(frozenset({0, 1}), {0: Held(5, frozenset({0}))}))
    for _ in range(40):
        assert isinstance(order, Bring)
        [order] = machine.handle(Brought(order.serial, (), errno.ETIMEDOUT))
    assert isinstance(order, Bring)
    [look] = machine.handle(Brought(order.serial, (), errno.ETIMEDOUT))
    assert isinstance(look, Look)


def test_no_room_on_one_node_is_told_and_the_others_get_it() -> None:
    machine = Movement(MULTICAST, [0])
    world = World(machine, 8, {0: 10}, {0: {0}})
    world.full = {(0, 1)}
    outcome = world.run()
    assert outcome.held[0] == {0, 2, 3, 4, 5, 6, 7}
    assert machine.failed == {0: "there is no room on node 1"}


def test_the_model_agrees_with_the_paper_s_formula() -> None:
    network = Network(1e-3, 1e9, 0.0)
    for nodes, rounds in ((2, 1), (16, 4), (1024, 10)):
        seconds = predict(MULTICAST, nodes, 10**6, network=network)
        assert seconds == pytest.approx(1e-3 + rounds * (1e-3 + 1e-3), rel=0.01)  # the first look is one latency more
    assert predict(MULTICAST, 64, 1000, algorithm=SEQUENTIAL) > 5 * predict(MULTICAST, 64, 1000, algorithm=MST)
    assert predict(SCATTER, 16, 10**6, files=16, network=network) < 16 * (1e-3 + 1e-3)
