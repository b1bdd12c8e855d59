"""The submitter under random orders: a run always ends, whatever dies, comes or is lost, and a task is with one dispatcher at a time."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule
from parts import RUN, key, result
from submitter_client import SMALL, Client, task

from amfs.vocabulary import messages as m
from amfs.vocabulary.events import Ended, RunOver
from amfs.vocabulary.states import FAILED, FINISHED, Outcome, RunNodeState

some = st.integers(0, 1 << 16)


class RandomOrders(RuleBasedStateMachine):
    """A layered workflow over dispatchers that die and come: the run always ends, with every task finished or failed."""

    def __init__(self) -> None:
        super().__init__()
        tasks = [
            task(f"t{i}", f"f{i - 7} f{i // 2 - 5}" if i >= 12 else "", f"f{i}", keep="" if i % 5 else f"f{i}") for i in range(40)
        ]
        self.client = Client(*tasks, limits=SMALL)
        self.nodes = [0, 1, 2]
        self.next_node = 3
        self.out: dict[int, list[int]] = {0: [], 1: [], 2: []}
        self.told: Counter[int] = Counter()
        self.client.view(*self.nodes, unit_size=1)
        self.listen()

    def listen(self) -> None:
        for to, message in self.client.sent:
            match message:
                case m.Submit(tasks=specs):
                    assert to in self.nodes
                    for spec in specs:
                        held = [dispatcher for dispatcher, tids in self.out.items() if spec.tid in tids]
                        assert not held, f"task {spec.tid} is with dispatcher {held} already"
                        assert not self.client.machine.state[spec.tid], "it has ended"
                        self.out[to].append(spec.tid)
                    assert len(self.out[to]) <= SMALL.window + 2 or specs[0].attempt
                case m.RunBegin() | m.Publish() | m.RunEnd() | m.Poison() | m.Locate() | m.ReadAgain():
                    assert to in self.nodes
                case _:
                    raise AssertionError(f"a submitter does not say {message}")
        self.client.sent.clear()
        for ended in self.client.effects_of(Ended):
            self.told.update(one.tid for one in ended.results)

    @property
    def going(self) -> bool:
        return not self.client.machine.ending

    @rule(which=some, count=st.integers(1, 8), failed=st.sampled_from([False, False, False, True]))
    def tasks_end(self, which: int, count: int, failed: bool) -> None:
        dispatcher = self.nodes[which % len(self.nodes)]
        ended, self.out[dispatcher] = self.out[dispatcher][:count], self.out[dispatcher][count:]
        outcome = Outcome.EXIT if failed else Outcome.OK
        self.client.ends(dispatcher, *(result(tid, outcome, node=dispatcher) for tid in ended), parked=which % 3)
        self.listen()

    @precondition(lambda self: len(self.nodes) > 1 and self.going)
    @rule(which=some)
    def node_dies(self, which: int) -> None:
        node = self.nodes.pop(which % len(self.nodes))
        del self.out[node]
        self.client.view(*self.nodes, unit_size=1)
        self.listen()

    @precondition(lambda self: len(self.nodes) < 4 and self.going)
    @rule()
    def node_joins(self) -> None:
        self.nodes.append(self.next_node)
        self.out[self.next_node] = []
        self.next_node += 1
        self.client.view(*self.nodes, unit_size=1)
        self.listen()

    @rule(which=some)
    def files_are_missed(self, which: int) -> None:
        names = {which % 40, which // 40 % 40}
        self.client.tell(self.nodes[0], m.Lost(RUN, tuple(key(f"f{i}") for i in sorted(names)), -1))
        self.listen()

    def teardown(self) -> None:
        machine = self.client.machine
        for _ in range(1000):
            if machine.ending:
                break
            for which in range(len(self.nodes)):
                self.tasks_end(which, 8, False)
        assert machine.ending, "the run does not end"
        for node in machine.course.nodes(RunNodeState.ENDING):
            self.client.tell(node, m.RunGone(RUN, node, {}))
        over = self.client.effect(RunOver)
        assert over.reason == "" or "was lost" in over.reason
        if not over.reason:
            assert set(machine.state) <= {FINISHED, FAILED}
            assert set(self.told) == set(range(40))
            assert sum(self.told.values()) == 40 + sum(machine.redone_times.values())


TestRandomOrders = RandomOrders.TestCase
TestRandomOrders.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)


@pytest.mark.parametrize("nodes", [(0,), (0, 1, 2)])
def test_a_thousand_tasks_are_each_submitted_once(nodes: tuple[int, ...]) -> None:
    client = Client(*(task(f"t{i}", f"f{i - 1}" if i % 10 else "", f"f{i}") for i in range(1000)), limits=SMALL)
    client.view(*nodes, unit_size=1).take_all(m.RunBegin)
    seen: list[int] = []
    while not client.machine.ending:
        given = client.submitted()
        assert given, "it waits although nothing is out"
        seen += [tid for tids in given.values() for tid in tids]
        for dispatcher, tids in given.items():
            client.ends(dispatcher, *(result(tid, node=dispatcher) for tid in tids))
    assert sorted(seen) == list(range(1000))
