"""The machine that sends function calls to workers: every call ends once, and a worker that dies takes with it only what it executed."""

from __future__ import annotations

from collections import deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amfs.engine import calls as c

SHORT_S = 0.0001
LONG_S = 1.0


class Floor:
    """Workers as the shell sees them: tasks that start some time, connections that end before or after the task does."""

    def __init__(self, slots: int, limits: c.CallLimits) -> None:
        self.machine = c.CallDispatch(slots, limits)
        self.now = 0.0
        self.starting: list[int] = []
        self.at_work: dict[int, deque[int]] = {}  # connected
        self.asked: set[int] = set()
        self.stopping: set[int] = set()
        self.done: list[int] = []
        self.failed: list[int] = []
        self.gave_up = ""

    def tell(self, event: c.CallEvent) -> None:
        for effect in self.machine.handle(event, self.now):
            if isinstance(effect, c.StartWorker):
                self.starting.append(effect.worker)
            elif isinstance(effect, c.SendCalls):
                assert effect.worker not in self.stopping, "calls for a worker that was told to stop"
                self.at_work[effect.worker].extend(effect.calls)
            elif isinstance(effect, c.AskBack):
                self.asked.add(effect.worker)
            elif isinstance(effect, c.StopWorker):
                self.stopping.add(effect.worker)
            elif isinstance(effect, c.FailCall):
                self.failed.append(effect.call)
            else:
                self.gave_up = effect.why
        self.machine.check_invariants()

    def join(self) -> None:
        if self.starting:
            worker = self.starting.pop(0)
            self.at_work[worker] = deque()
            self.tell(c.WorkerJoined(worker))

    def work(self, worker: int, count: int, each_s: float) -> None:
        mine = self.at_work[worker]
        ended = [mine.popleft() for _ in range(min(count, len(mine)))]
        if ended:
            self.now += each_s * len(ended)
            self.done += ended
            self.tell(c.CallsDone(worker, ended))

    def give_back(self, worker: int) -> None:
        """All but the one that it executes."""
        self.asked.discard(worker)
        mine = self.at_work[worker]
        back = [mine.pop() for _ in range(len(mine) - 1)][::-1]
        self.tell(c.CallsReturned(worker, back))

    def die(self, worker: int, *, task_first: bool) -> None:
        del self.at_work[worker]
        self.asked.discard(worker)
        self.stopping.discard(worker)
        events: list[c.CallEvent] = [c.WorkerLost(worker), c.WorkerEnded(worker, "killed")]
        for event in reversed(events) if task_first else events:
            self.tell(event)

    def leave(self) -> None:
        """Those that were told to stop do so."""
        for worker in [worker for worker in self.stopping if not self.at_work.get(worker)]:
            self.stopping.discard(worker)
            if worker in self.at_work:
                self.die(worker, task_first=False)

    def settle(self) -> None:
        """Nothing goes wrong any more."""
        for _ in range(10_000):
            if not self.machine.pending:
                return
            self.leave()
            self.join()
            for worker in list(self.at_work):
                if worker in self.asked:
                    self.give_back(worker)
                self.work(worker, 1000, SHORT_S)
        raise AssertionError("calls wait for ever")


STEP = st.one_of(
    st.tuples(st.just("calls"), st.integers(1, 400)),
    st.tuples(st.just("join"), st.just(0)),
    st.tuples(st.just("work"), st.integers(1, 300)),
    st.tuples(st.just("long"), st.integers(1, 2)),
    st.tuples(st.just("back"), st.just(0)),
    st.tuples(st.just("die"), st.booleans()),
    st.tuples(st.just("anew"), st.just(0)),
    st.tuples(st.just("wait"), st.sampled_from([0.01, 0.1, 20.0])),
    st.tuples(st.just("release"), st.just(0)),
    st.tuples(st.just("leave"), st.just(0)),
)


@settings(max_examples=300)
@given(slots=st.integers(1, 4), retries=st.integers(0, 2), steps=st.lists(st.tuples(STEP, st.integers(0, 7)), max_size=60))
def test_every_call_ends_once(slots: int, retries: int, steps: list[tuple[tuple[str, int], int]]) -> None:
    floor = Floor(slots, c.CallLimits(retries=retries))
    made = deaths = 0
    for (what, how), which in steps:
        workers = list(floor.at_work)
        worker = workers[which % len(workers)] if workers else -1
        if what == "calls":
            floor.tell(c.CallsMade(range(made, made + how)))
            made += how
        elif what == "join":
            floor.join()
        elif what == "wait":
            floor.now += how
            floor.tell(c.TimePassed())
        elif what == "release":
            floor.tell(c.IdleReleased())
        elif what == "leave":
            floor.leave()
        elif worker < 0:
            continue
        elif what in ("work", "long"):
            floor.work(worker, how, SHORT_S if what == "work" else LONG_S)
        elif what == "back" and worker in floor.asked:
            floor.give_back(worker)
        elif what == "die":
            deaths += bool(floor.at_work[worker])
            floor.die(worker, task_first=bool(how))
        elif what == "anew" and worker not in floor.stopping:  # its node was lost: the session starts the task again
            deaths += bool(floor.at_work[worker])
            floor.asked.discard(worker)
            floor.at_work[worker] = deque()
            floor.tell(c.WorkerJoined(worker))
    floor.settle()
    assert sorted(floor.done + floor.failed) == list(range(made))
    assert len(floor.failed) <= deaths
    assert not floor.gave_up
    if retries > deaths:
        assert not floor.failed


def test_what_was_not_begun_outlives_a_worker() -> None:
    floor = Floor(1, c.CallLimits())
    floor.tell(c.CallsMade(range(100)))
    floor.join()
    floor.work(1, 1, SHORT_S)
    assert list(floor.at_work[1]) == list(range(1, 100))  # they are short: all at once
    floor.die(1, task_first=True)
    assert floor.failed == [1]
    floor.settle()
    assert floor.done == [0, *range(2, 100)]


def test_a_lost_call_is_tried_again_when_that_was_wished() -> None:
    floor = Floor(1, c.CallLimits(retries=1))
    floor.tell(c.CallsMade([7, 8]))
    floor.join()
    floor.die(1, task_first=False)
    assert not floor.failed
    floor.join()
    assert list(floor.at_work[2]) == [7]
    floor.die(2, task_first=False)
    assert floor.failed == [7]
    floor.settle()
    assert floor.done == [8]


def test_long_calls_travel_one_by_one_and_short_ones_together() -> None:
    floor = Floor(2, c.CallLimits())
    floor.tell(c.CallsMade(range(1000)))
    floor.join()
    floor.join()
    assert {worker: len(mine) for worker, mine in floor.at_work.items()} == {1: 1, 2: 1}
    floor.work(1, 1, SHORT_S)
    floor.work(2, 1, LONG_S)
    assert len(floor.at_work[1]) == pytest.approx(0.02 / SHORT_S, abs=1)
    assert len(floor.at_work[2]) == 1


def test_few_calls_are_shared_evenly() -> None:
    floor = Floor(4, c.CallLimits())
    floor.tell(c.CallsMade(range(4)))
    for _ in range(4):
        floor.join()
    for worker in range(1, 5):
        floor.work(worker, 1, SHORT_S)
    floor.tell(c.CallsMade(range(4, 12)))
    assert [len(floor.at_work[worker]) for worker in range(1, 5)] == [2, 2, 2, 2]


def test_calls_behind_a_long_one_are_asked_back() -> None:
    floor = Floor(2, c.CallLimits())
    floor.tell(c.CallsMade(range(200)))
    floor.join()
    floor.join()
    floor.work(1, 1, SHORT_S)
    floor.work(2, 1, SHORT_S)
    floor.work(2, 1000, SHORT_S)
    assert len(floor.at_work[1]) > 1 and not floor.at_work[2] and not floor.asked
    due = floor.machine.next_timer()
    assert due is not None
    floor.now = max(floor.now, due) + 0.001
    floor.tell(c.TimePassed())
    assert floor.asked == {1}
    floor.give_back(1)
    assert list(floor.at_work[1]) == [2] and list(floor.at_work[2]) == list(range(3, 103))


def test_idle_workers_give_their_slots_back() -> None:
    floor = Floor(2, c.CallLimits(idle_s=5.0))
    floor.tell(c.CallsMade([1, 2]))
    floor.join()
    floor.join()
    floor.work(1, 1, SHORT_S)
    floor.tell(c.IdleReleased())
    assert floor.stopping == {1}
    floor.work(2, 1, SHORT_S)
    assert floor.machine.next_timer() == pytest.approx(floor.now + 5.0)
    floor.now += 5.1
    floor.tell(c.TimePassed())
    assert floor.stopping == {1, 2}
    floor.tell(c.CallsMade([3]))
    assert len(floor.starting) == 1


def test_workers_that_never_come_end_it() -> None:
    floor = Floor(2, c.CallLimits())
    floor.tell(c.CallsMade(range(10)))
    for _ in range(3):
        floor.tell(c.WorkerEnded(floor.starting.pop(0), "no module named cloudpickle"))
    assert floor.gave_up == "no module named cloudpickle"
    assert not floor.machine.pending


def test_a_worker_that_dies_at_every_call_is_no_failed_start() -> None:
    floor = Floor(1, c.CallLimits())
    floor.tell(c.CallsMade(range(10)))
    for worker in range(1, 11):
        floor.join()
        floor.die(worker, task_first=False)
    assert floor.failed == list(range(10)) and not floor.gave_up
