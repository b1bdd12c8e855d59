"""The worker under random orders of everything that can happen to it.

The rest of the world is modelled just so far that it stays plausible: a shard that knows every file or says it will never be, holders
that answer or have nothing, a launcher and copies whose jobs end in any order, neighbours that steal, nodes that die. Whatever the order,
every task that came here ends exactly once (is reported, or is given to somebody else, or is given up with its dead dispatcher), is
started only with all its inputs there, and no file is fetched twice at a time.
"""

from __future__ import annotations

from collections import Counter

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from parts import CLIENT, RUN, begin, key, keys, spec
from recorder import Recorder

from amfs.config import WorkerLimits
from amfs.engine.worker import Worker
from amfs.vocabulary import messages as m
from amfs.vocabulary.events import (
    CopyOut,
    Delete,
    Effect,
    FetchData,
    JobDone,
    Kill,
    Launch,
    MembersChanged,
    OpenRun,
    StoreInline,
    TasksExited,
)
from amfs.vocabulary.partition import PartitionTable
from amfs.vocabulary.records import unpack_body, unpack_record
from amfs.vocabulary.states import FileState, Outcome

ME, DISPATCHER, SHARD = 0, 4, 5
HOLDERS = (1, 2, 3)
NAMES = "abcde"
BIG = WorkerLimits().forward_bytes_min
SIZES = {name: 2 * BIG if name in "de" else 5 for name in NAMES}  # some files are followed, not fetched

some = st.integers(0, 1 << 16)  # which of the things that could happen next


class RandomOrders(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.node = Recorder(Worker(ME, 2, "/store"))
        self.alive = set(range(6))
        self.call_view(set())
        self.node.tell(CLIENT, begin())
        self.node.take(m.RunReady)
        self.node.effect(OpenRun)
        self.next_tid = 0
        self.ended: Counter[tuple[int, int]] = Counter()  # (tid, attempt) -> how often it ended here
        self.came: set[tuple[int, int]] = set()
        self.here: dict[int, m.TaskSpec] = {}
        self.asked: list[str] = []  # of the shard
        self.fetches: list[tuple[int, str]] = []  # of holders
        self.launched: list[int] = []  # serials
        self.tid_of: dict[int, int] = {}
        self.jobs: list[FetchData | CopyOut] = []
        self.stored: set[str] = set()  # files in the store

    def call_view(self, dead: set[int]) -> None:
        neighbours = [node for node in HOLDERS if node in self.alive]
        self.node.feed(MembersChanged(PartitionTable([SHARD] * 4), dict.fromkeys(self.alive, 1), dead, neighbours))

    # ── what the worker says ───────────────────────────────────────────────────────────────────────

    def listen(self) -> None:
        """Take in all answers; nothing that the world does not understand."""
        for to, message in self.node.sent:
            match message:
                case m.Locate(names=names):
                    assert to == SHARD
                    self.asked += [name for name in names if name not in self.asked]
                case m.Fetch(names=names):
                    for name in names:
                        assert to in self.alive
                        assert (to, name) not in self.fetches, f"{name} is fetched twice at a time"
                        self.fetches.append((to, name))
                case m.Done(results=results):
                    assert to == DISPATCHER
                    for result in results:
                        self.end(result.tid, result.attempt)
                case m.Assign(tasks=tasks):
                    assert to in self.alive
                    for task in tasks:
                        self.end(task.tid, task.attempt)
                case m.Publish() | m.Release() | m.Replica() | m.Lost():
                    assert to == SHARD
                case m.TaskMoved() | m.StealNone() | m.Flushed() | m.StealAsk():
                    pass
                case _:
                    raise AssertionError(f"a worker does not say {message}")
        for effect in self.node.effects:
            self.act(effect)
        self.node.forget()

    def act(self, effect: Effect) -> None:
        match effect:
            case Launch(records=records):
                for packed in records:
                    record = unpack_record(packed)
                    self.launched.append(record.serial)
                    self.tid_of[record.serial] = int(unpack_body(record.body)[0].removeprefix("/bin/t"))
                    for source, _ in record.inputs:
                        there = source.startswith("@") or source.removeprefix("/store/") in self.stored
                        assert there, f"started without {source}"
            case FetchData() | CopyOut():
                self.jobs.append(effect)
            case StoreInline(name=name):
                self.stored.add(name)
            case Delete(names=names):
                self.stored.difference_update(names)
            case _:
                raise AssertionError(f"nobody expected {effect}")

    def end(self, tid: int, attempt: int) -> None:
        self.ended[tid, attempt] += 1
        assert self.ended[tid, attempt] == 1, f"task {tid}, attempt {attempt} ended twice"
        del self.here[tid]

    # ── what dispatchers and neighbours do ─────────────────────────────────────────────────────────

    @rule(
        inputs=st.lists(st.sampled_from(NAMES), max_size=3, unique=True), made=st.booleans(), final=st.booleans(),
        stolen=st.booleans(), priority=st.sampled_from([0, 3]), repeated=st.booleans(),
    )  # fmt: skip
    def assign(self, inputs: list[str], made: bool, final: bool, stolen: bool, priority: int, repeated: bool) -> None:
        tid = self.next_tid
        self.next_tid += 1
        output = f"out{tid}" if made else ""
        task = spec(tid, " ".join(inputs), output, final=final, origin=DISPATCHER, priority=priority)
        self.came.add((tid, 0))
        self.here[tid] = task
        peer = 1 if stolen and 1 in self.alive else DISPATCHER
        self.node.tell(peer, m.Assign(RUN, (task,), moved=peer != DISPATCHER))
        self.listen()
        if repeated and tid in self.here:
            self.node.tell(peer, m.Assign(RUN, (task,), moved=peer != DISPATCHER))
            self.listen()

    @precondition(lambda self: self.here)
    @rule(which=some)
    def assign_anew(self, which: int) -> None:
        """The dispatcher takes it for lost and has another attempt made, here again."""
        tid = sorted(self.here)[which % len(self.here)]
        old = self.here[tid]
        task = m.TaskSpec(tid, old.body, old.inputs, old.shared, old.outputs, old.retentions, old.options, old.attempt + 1, old.origin)
        self.came.discard((tid, old.attempt))  # superseded: reported as the new attempt
        self.came.add((tid, task.attempt))
        self.here[tid] = task
        self.node.tell(DISPATCHER, m.Assign(RUN, (task,)))
        self.listen()

    @rule(peer=st.sampled_from(HOLDERS), want=st.integers(1, 4))
    def steal(self, peer: int, want: int) -> None:
        if peer in self.alive:
            self.node.tell(peer, m.StealAsk(want))
            self.listen()

    @rule(seconds=st.sampled_from([0.01, 0.3]))
    def time_passes(self, seconds: float) -> None:
        self.node.advance(seconds)
        self.listen()

    # ── what becomes of files ──────────────────────────────────────────────────────────────────────

    @precondition(lambda self: self.asked)
    @rule(which=some, holders=st.lists(st.sampled_from(HOLDERS), min_size=1, max_size=2, unique=True), repeated=st.booleans())
    def locate(self, which: int, holders: list[int], repeated: bool) -> None:
        name = self.asked.pop(which % len(self.asked))
        live = tuple(holder for holder in holders if holder in self.alive) or (SHARD,)
        located = m.Located(RUN, (m.FileAt(name, SIZES[name[2:]], live),))
        for _ in range(2 if repeated else 1):
            self.node.tell(SHARD, located)
            self.listen()

    @precondition(lambda self: self.asked)
    @rule(which=some)
    def locate_on_shared(self, which: int) -> None:
        name = self.asked.pop(which % len(self.asked))
        self.node.tell(SHARD, m.Located(RUN, (m.FileAt(name, SIZES[name[2:]], ()),)))
        self.listen()

    @precondition(lambda self: self.asked)
    @rule(which=some)
    def will_never_be(self, which: int) -> None:
        name = self.asked.pop(which % len(self.asked))
        self.node.tell(SHARD, m.FileFailed(RUN, (name,), ("task #0 failed",)))
        self.listen()

    @precondition(lambda self: self.fetches)
    @rule(which=some, missing=st.booleans())
    def content(self, which: int, missing: bool) -> None:
        holder, name = self.fetches.pop(which % len(self.fetches))
        size = SIZES[name[2:]]
        if missing:
            blob = m.Blob(name, 0, missing=True)
        elif size <= BIG:
            blob = m.Blob(name, size, b"x" * size)
        else:
            blob = m.Blob(name, size)
        self.node.tell(holder, m.Content(RUN, (blob,)))
        self.listen()

    @precondition(lambda self: self.jobs)
    @rule(which=some, error=st.sampled_from(["", "", "disk full"]))
    def job_ends(self, which: int, error: str) -> None:
        job = self.jobs.pop(which % len(self.jobs))
        if isinstance(job, FetchData) and not error:
            self.stored.add(job.name)
        self.node.feed(JobDone(job.serial, error, 0 if error else 5))
        self.listen()

    @rule(names=st.lists(st.sampled_from(NAMES), min_size=1, max_size=3, unique=True))
    def drop(self, names: list[str]) -> None:
        self.node.tell(SHARD, m.Drop(RUN, tuple(key(name) for name in names)))
        self.listen()

    @rule(name=st.sampled_from(NAMES))
    def settle(self, name: str) -> None:
        file = self.node.machine.runs[RUN].files.get(key(name))
        if file is not None and file.state == FileState.LOCAL:
            self.node.tell(SHARD, m.Flush(RUN, keys(name)))
            self.listen()

    # ── what becomes of tasks and nodes ────────────────────────────────────────────────────────────

    @precondition(lambda self: self.launched)
    @rule(which=some, outcome=st.sampled_from([Outcome.OK, Outcome.OK, Outcome.EXIT, Outcome.INPUT_CHANGED, Outcome.INPUT_LOST]))
    def task_exits(self, which: int, outcome: Outcome) -> None:
        serial = self.launched.pop(which % len(self.launched))
        task = self.here[self.tid_of[serial]]
        made: tuple[tuple[int, int], ...] = ()
        facts = None
        if outcome == Outcome.OK:
            self.stored.update(task.outputs)
            made = ((3, 1000),) * len(task.outputs)
        elif outcome in (Outcome.INPUT_CHANGED, Outcome.INPUT_LOST):
            facts = (tuple(range(len(self.node.machine.inflight[serial].given))), "", 0, "", 0)
        self.node.feed(TasksExited([(serial, outcome, 0, 0, 0, 50, 0, 0, made, b"", b"", "", facts)]))
        self.listen()

    @rule(node=st.sampled_from(HOLDERS))
    def node_dies(self, node: int) -> None:
        if node not in self.alive:
            return
        self.alive.discard(node)
        self.fetches = [(holder, name) for holder, name in self.fetches if holder != node]
        self.call_view({node})
        self.listen()

    # ── always, and in the end ─────────────────────────────────────────────────────────────────────

    @invariant()
    def the_worker_has_what_came_and_has_not_ended(self) -> None:
        assert set(self.node.machine.runs[RUN].tasks) == set(self.here)

    @invariant()
    def whatever_is_waited_for_is_on_its_way(self) -> None:
        """Nobody waits for a file of which neither the shard, nor a holder, nor its data server has been asked."""
        coming = {name for _, name in self.fetches} | set(self.asked) | {job.name for job in self.jobs if isinstance(job, FetchData)}
        for file in self.node.machine.runs[RUN].files.values():
            waiting = [entry for entry in file.waiting if self.here.get(entry.spec.tid) is not None]
            if file.state == FileState.INVALID and waiting:
                assert file.name in self.asked, f"{file.name} is wanted, and nobody was asked where it is"
            elif file.state == FileState.REMOTE and file.fetching:
                assert file.name in coming, f"{file.name} is said to be on its way"

    def teardown(self) -> None:
        """The world does its part to the end: every task ends."""
        for _ in range(10_000):
            if self.asked:
                self.locate(0, [1, 2, 3], False)
            elif self.fetches:
                self.content(0, False)
            elif self.jobs:
                self.job_ends(0, "")
            elif self.launched:
                self.task_exits(0, Outcome.OK)
            else:
                break
        assert not self.here, f"tasks {sorted(self.here)} are stuck"
        assert self.came <= set(self.ended)
        assert not self.node.machine.inflight
        assert not self.node.machine.ready
        self.node.tell(CLIENT, m.RunEnd(RUN)).take(m.RunGone, CLIENT)
        assert not self.node.effects_of(Kill)


TestRandomOrders = RandomOrders.TestCase
TestRandomOrders.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
