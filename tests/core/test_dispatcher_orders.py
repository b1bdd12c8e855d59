"""The dispatcher under random orders: every task that was submitted is reported once, whatever the workers do."""

from __future__ import annotations

from collections import Counter
from typing import Any

from dispatcher_unit import SHARD, Unit, plan_for, reduction
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from parts import RUN, result, spec

from amfs.vocabulary import messages as m
from amfs.vocabulary.states import Outcome, RecordState

some = st.integers(0, 1 << 16)


class RandomOrders(RuleBasedStateMachine):
    """Workers that finish, fail, steal, die and come, in any order: every task that was submitted is reported exactly once."""

    def __init__(self) -> None:
        super().__init__()
        self.unit = Unit([0, 1, 2])
        self.nodes = [0, 1, 2]
        self.has: dict[int, dict[int, m.TaskSpec]] = {0: {}, 1: {}, 2: {}}
        self.submitted: list[int] = []
        self.told: Counter[int] = Counter()
        self.succeeded: set[int] = set()
        self.old: list[tuple[int, m.Result]] = []  # earlier reports, to be repeated
        self.next_node = 10

    def listen(self) -> None:
        for to, message in self.unit.sent:
            match message:
                case m.Assign(tasks=tasks):
                    assert to in self.nodes, "a task for a node that is not there"
                    self.has[to].update((task.tid, task) for task in tasks)
                case m.Results(results=results):
                    for one in results:
                        self.told[one.tid] += 1
                        assert self.told[one.tid] == 1, f"task {one.tid} ended twice"
                        assert one.tid in self.submitted, f"nobody submitted {one.tid}"
                        assert not one.outcome or one.tid not in self.succeeded, "a success was reported as a failure"
                case m.Poison() | m.Release():
                    assert to == SHARD
                case _:
                    raise AssertionError(f"a dispatcher does not say {message}")
        self.unit.forget()

    @rule(
        count=st.integers(1, 6), retries=st.integers(0, 2), pin=st.sampled_from([-1, 0, 2, 5]), hard=st.booleans(), reduce=st.booleans()
    )  # fmt: skip
    def submit(self, count: int, retries: int, pin: int, hard: bool, reduce: bool) -> None:
        first = len(self.submitted)
        self.submitted += range(first, first + count)
        more: dict[str, Any] = {"retries": retries, "pin": pin, "pin_hard": hard}
        tids = range(first, first + count)
        self.unit.submit(*(reduction(tid, "a b c d e", **more) if reduce else spec(tid, "a", f"o{tid}", **more) for tid in tids))
        self.listen()

    def pick(self, which: int) -> tuple[int, m.TaskSpec] | None:
        all_of_them = [(worker, task) for worker in self.nodes for task in self.has[worker].values()]
        return all_of_them[which % len(all_of_them)] if all_of_them else None

    @rule(which=some, outcome=st.sampled_from([Outcome.OK, Outcome.OK, Outcome.OK, Outcome.EXIT, Outcome.UPSTREAM_FAILED]))
    def task_ends(self, which: int, outcome: Outcome) -> None:
        picked = self.pick(which)
        if picked is None:
            return
        worker, task = picked
        del self.has[worker][task.tid]
        if task.options is not None and task.options.reduce and outcome != Outcome.UPSTREAM_FAILED:
            self.unit.tell(worker, plan_for(task, self.nodes))
        else:
            ended = result(task.tid, outcome, attempt=task.attempt, node=worker)
            if outcome == Outcome.OK and not self.told[task.tid]:
                self.succeeded.add(task.tid)
            self.old.append((worker, ended))
            self.unit.done(worker, ended)
        self.listen()

    @precondition(lambda self: self.old)
    @rule(which=some)
    def a_result_is_repeated(self, which: int) -> None:
        worker, ended = self.old[which % len(self.old)]
        if worker in self.nodes and (ended.tid >= 0 or ended.outcome):
            self.unit.done(worker, ended)
            self.listen()

    @rule(which=some, taker=some, giver_tells=st.booleans(), taker_tells=st.booleans())
    def task_moves(self, which: int, taker: int, giver_tells: bool, taker_tells: bool) -> None:
        picked = self.pick(which)
        to = self.nodes[taker % len(self.nodes)]
        if picked is None or picked[0] == to or not (giver_tells or taker_tells):
            return
        worker, task = picked
        del self.has[worker][task.tid]
        self.has[to][task.tid] = task
        if giver_tells:
            self.unit.tell(worker, m.TaskMoved(RUN, ((task.tid, task.attempt),), to))
        if taker_tells:
            self.unit.tell(to, m.TaskMoved(RUN, ((task.tid, task.attempt),)))
        self.listen()

    @precondition(lambda self: len(self.nodes) > 1)
    @rule(which=some)
    def node_dies(self, which: int) -> None:
        node = self.nodes.pop(1 + which % (len(self.nodes) - 1))  # never the dispatcher's own
        del self.has[node]
        self.unit.view(*self.nodes)
        self.listen()

    @precondition(lambda self: len(self.nodes) < 4)
    @rule()
    def node_joins(self) -> None:
        self.nodes.append(self.next_node)
        self.has[self.next_node] = {}
        self.next_node += 1
        self.unit.view(*self.nodes)
        self.listen()

    @rule(seconds=st.sampled_from([0.1, 1.0, 40.0]))
    def time_passes(self, seconds: float) -> None:
        self.unit.advance(seconds)
        self.listen()

    @invariant()
    def assigned_tasks_are_with_somebody(self) -> None:
        for tid, record in self.unit.machine.runs[RUN].records.items():
            if record.state == RecordState.ASSIGNED:
                assert any(tid in tasks for tasks in self.has.values()), f"task {tid} is said to be on node {record.worker}"

    def teardown(self) -> None:
        for _ in range(10_000):
            if not self.unit.machine.runs[RUN].records:
                break
            self.task_ends(0, Outcome.OK)
            self.unit.advance(1.0)
            self.listen()
        assert self.told == Counter(self.submitted), "every task ends exactly once"
        assert not self.unit.timers
        assert self.unit.machine.runs[RUN].trees == {}
        assert not any(self.unit.machine.runs[RUN].out.values())


TestRandomOrders = RandomOrders.TestCase
TestRandomOrders.settings = settings(max_examples=75, stateful_step_count=30, deadline=None)
