"""A dispatcher (AME §3.4): owns the records of its tasks, hands them to the workers of its unit, collects results, retries. Pure.

It does not look at files (the FAP does) and keeps a record only while the task is unfinished. At least once, accounted once: a record
ends with the first success, or when its retries are used up; results that arrive later are ignored. A task that fails runs next on
another worker. A failure on a worker whose failures may be its own (``worker_health``) costs no retry.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from amfs.config import DispatcherLimits
from amfs.engine.dispatch_records import DispatchRun, Record, Tree, Uprooted, next_attempt
from amfs.engine.machine import GoneRuns, Machine
from amfs.engine.parking import lacks_files
from amfs.engine.task_placement import Even, make_placement
from amfs.engine.worker_health import WorkerHealth
from amfs.vocabulary import messages as m
from amfs.vocabulary.events import MembersChanged, TimerFired
from amfs.vocabulary.partition import PartitionTable
from amfs.vocabulary.states import RECORD_NEXT, Outcome, RecordEvent, RecordState, illegal
from amfs.workflow import reduction

_NOTHING = m.Result(-1)
_GIVEN_UP = "the reduction was planned anew"
#: After a node was lost a task may be done twice, and the second making of a file on shared storage can meet a task that reads it there:
#: that one runs again, so often at most (a task that itself writes on its input fails all the same).
EXCUSED_MAX = 3
_NEVER_RETRIED = (Outcome.UPSTREAM_FAILED, Outcome.CANCELLED)
#: Failures of an attempt by itself. (A time limit is one, too; but each further attempt would take as long.)
_OF_ITSELF = (Outcome.EXIT, Outcome.SIGNAL, Outcome.MISSING_OUTPUT, Outcome.SETUP)


class Dispatcher(Machine):
    """The dispatcher of one unit. ``workers`` maps the live nodes of the unit to their slots; the node keeps it current."""

    def __init__(self, node: int, limits: DispatcherLimits | None = None) -> None:
        super().__init__(node)
        self.limits = limits or DispatcherLimits()
        self.workers: Mapping[int, int] = {}
        self.everyone: Mapping[int, int] = {}  # live nodes of all units, for pinned tasks
        self.dead: set[int] = set()  # nodes that were among them once, and were lost
        self.table = PartitionTable.even([node])
        self.runs: dict[int, DispatchRun] = {}
        self.early: dict[int, list[tuple[int, m.Message]]] = {}
        self.gone = GoneRuns()
        self._dirty: dict[int, None] = {}
        self.on_message = {
            m.RunBegin: self.on_run_begin,
            m.RunEnd: self.on_run_end,
            m.Submit: self.on_submit,
            m.Done: self.on_done,
            m.TaskMoved: self.on_task_moved,
            m.ReducePlan: self.on_reduce_plan,
            m.PartLost: self.on_part_lost,
            m.Farewell: self.on_farewell,
        }
        self.on_event = {TimerFired: self.on_timer, MembersChanged: self.on_members_changed}

    # ── runs ───────────────────────────────────────────────────────────────────────────────────────

    def on_run_begin(self, peer: int, message: m.RunBegin) -> None:
        if message.run not in self.runs and message.run not in self.gone:
            self.runs[message.run] = DispatchRun(
                message.client, message.info, make_placement(message.info.data_aware), -1 - (self.node << 32), WorkerHealth(self.limits)
            )  # ids of partial tasks differ between dispatchers: they meet at the workers
            for sender, early in self.early.pop(message.run, []):
                self.on_message[type(early)](sender, early)

    def on_run_end(self, peer: int, message: m.RunEnd) -> None:
        self.early.pop(message.run, None)
        self.gone.add(message.run)
        run = self.runs.pop(message.run, None)
        if run is not None:
            for tid, record in run.records.items():
                if record.state == RecordState.BACKING_OFF:
                    self.cancel_timer(("retry", message.run, tid))

    # ── tasks in ───────────────────────────────────────────────────────────────────────────────────

    def on_submit(self, peer: int, message: m.Submit) -> None:
        run = self.runs.get(message.run)
        if run is None:
            if message.run not in self.gone:
                self.early.setdefault(message.run, []).append((peer, message))
            return
        records = run.records
        queue = run.queue
        urgent: list[Record] = []
        for spec in message.tasks:
            if spec.tid not in records:
                record = records[spec.tid] = Record(spec)
                if record.urgent:
                    urgent.append(record)
                else:
                    queue.append(record)
        if urgent:
            queue.extendleft(reversed(urgent))
        self._dirty[message.run] = None

    def _move(self, record: Record, event: RecordEvent) -> None:
        state = RECORD_NEXT[record.state][event]
        if state is None:
            raise illegal("record of task", record.spec.tid, record.state, event)
        record.state = state

    def _deal(self, number: int, run: DispatchRun) -> None:
        """Hand out what is queued, in order, to workers that have room."""
        queue = run.queue
        if not queue or not self.workers:
            return
        room = self._room(run)
        batches: dict[int, list[m.TaskSpec]] = {}
        # Deal in small batches, so that a short list spreads over all workers and a long one costs few decisions.
        batch_size = max(1, min(32, len(queue) // (2 * len(self.workers))))
        alone = len(self.workers) == 1
        if alone:
            batch_size = len(queue)
        placement = run.placement
        urgent = False
        while queue:
            record = queue[0]
            if record.state != RecordState.QUEUED:
                queue.popleft()
                continue
            if len(record.deaths) >= self.limits.deaths_max:
                queue.popleft()
                lost = len(record.deaths)
                self._refuse(number, run, record, f"{lost} nodes were lost while they had this task: it may be what ends them")
                continue
            pin = record.spec.options.pin if record.spec.options is not None else -1
            if pin >= 0:
                assert record.spec.options is not None
                if self.everyone.get(pin, 0) <= 0:
                    if record.spec.options.pin_hard:
                        queue.popleft()
                        why = "has no slots" if pin in self.everyone else "is not there"
                        self._refuse(number, run, record, f"must run on node {pin}, which {why}")
                        continue
                else:
                    queue.popleft()
                    self._assign(run, record, pin, batches)
                    continue
            if urgent and not record.urgent:
                room = self._room(run)  # those before it were spread by the room, and use none of it up
            urgent = record.urgent
            worker = placement.choose(record.spec, room)
            if worker < 0:
                if not urgent:
                    break
                # The room may be full of tasks that wait for what this one makes.
                worker = max(room, key=lambda worker: (room[worker], -worker))
            take = min(batch_size, max(1, room[worker])) if alone or type(placement) is Even else 1
            for count in range(take):
                if count and (
                    not queue
                    or queue[0].urgent != urgent
                    or (queue[0].spec.options is not None and queue[0].spec.options.pin >= 0)
                ):
                    break
                record = queue.popleft()
                if record.state == RecordState.QUEUED:
                    self._assign(run, record, worker, batches)
                    room[worker] -= 1
        for worker, specs in batches.items():
            self.send(worker, m.Assign(number, tuple(specs)))

    def _room(self, run: DispatchRun) -> dict[int, int]:
        """How many more tasks each worker may have.

        Urgent tasks have no part in it. They were submitted before, so they may wait for what tasks make that were submitted after them the
        second time; if they used up the window, those would never be given out. All others come in an order in which a task only waits
        for earlier ones.
        """
        limits = self.limits
        room: dict[int, int] = {}
        for worker, slots in self.workers.items():
            if worker in run.health.out:
                continue
            window = max(limits.window_min, slots * limits.window_per_slot)
            parked = min(run.parked.get(worker, 0), limits.parked_max)
            room[worker] = window + parked - run.out.get(worker, 0)
        return room

    def _assign(self, run: DispatchRun, record: Record, worker: int, batches: dict[int, list[m.TaskSpec]]) -> None:
        self._move(record, RecordEvent.ASSIGN)
        self._give(run, record, worker)
        if len(self.workers) > 1:
            run.placement.placed(record.spec, worker)
        batch = batches.get(worker)
        if batch is None:
            batches[worker] = [record.spec]
        else:
            batch.append(record.spec)

    def _give(self, run: DispatchRun, record: Record, worker: int) -> None:
        record.worker = worker
        record.giver = -1
        if not record.urgent:
            run.out[worker] = run.out.get(worker, 0) + 1

    def _take_off(self, run: DispatchRun, record: Record) -> None:
        """No worker has it any more."""
        if record.worker >= 0 and not record.urgent:
            run.out[record.worker] -= 1
        record.worker = -1

    # ── results ────────────────────────────────────────────────────────────────────────────────────

    def on_done(self, peer: int, message: m.Done) -> None:
        number = message.run
        run = self.runs.get(number)
        if run is None:
            return
        run.parked[peer] = message.parked
        records = run.records
        for result in message.results:
            record = records.get(result.tid)
            if result.tid in run.uprooted:
                files = run.uprooted.pop(result.tid)
                if not result.outcome:
                    self._recount(number, files)
                else:
                    self._release(number, files.partial)
                    self._poison(number, files.outputs, _GIVEN_UP)
            if record is None or (result.outcome and (result.attempt != record.spec.attempt or record.state != RecordState.ASSIGNED)):
                continue  # ended already, or an attempt that nobody waits for
            self._take_off(run, record)
            if not result.outcome:
                self._went_well(number, run, record, peer)
                self._ended(number, run, record, result)
                continue
            if result.outcome in _OF_ITSELF and not lacks_files(result):
                run.health.failed(peer)
                record.failed_on = peer
            if self._is_excused(run, record, result):
                record.excused += 1
                self._retry(number, record)
            elif self._retries_left(record) and result.outcome not in _NEVER_RETRIED and not lacks_files(result):
                record.failures += 1
                self._elsewhere(run, record)
                self._retry(number, record)
            else:
                self._fail(number, run, record, result)
        self._dirty[number] = None

    def _went_well(self, number: int, run: DispatchRun, record: Record, worker: int) -> None:
        run.health.ended_well(worker)
        bad = record.failed_on
        if bad not in (-1, worker) and run.health.blame(bad, len(self.workers)):
            for to in (bad, run.client):
                self.send(to, m.OutOfService(number, bad))

    def _is_excused(self, run: DispatchRun, record: Record, result: m.Result) -> bool:
        """Is the failure not the task's own, as far as is known, so that it costs no retry?"""
        if result.outcome == Outcome.INPUT_CHANGED:
            return run.lossy and record.excused < EXCUSED_MAX
        if result.outcome == Outcome.INPUT_LOST:
            return record.excused < EXCUSED_MAX
        worker = record.failed_on
        if result.outcome not in _OF_ITSELF or lacks_files(result) or not run.health.in_doubt(worker):
            return False
        return record.excused < (EXCUSED_MAX if worker in run.health.out else 1) and self._elsewhere(run, record)

    def _elsewhere(self, run: DispatchRun, record: Record) -> bool:
        """Let the next attempt run on another worker than the one that failed. False: there is none that may."""
        options = record.spec.options or m.Options()
        if options.pin >= 0 and options.pin_hard:
            return False
        room = {worker: room for worker, room in self._room(run).items() if worker != record.failed_on}
        if not room:
            return False
        streak = run.health.streak
        worker = max(room, key=lambda worker: (-streak.get(worker, 0), room[worker], -worker))
        record.spec = msgspec.structs.replace(record.spec, options=msgspec.structs.replace(options, pin=worker, pin_hard=False))
        return True

    def _retries_left(self, record: Record) -> bool:
        options = record.spec.options
        return options is not None and record.failures < options.retries

    def _retry(self, number: int, record: Record) -> None:
        self._move(record, RecordEvent.RETRY)
        wait = min(self.limits.backoff_first_s * 2 ** (record.failures + record.excused - 1), self.limits.backoff_last_s)
        self.set_timer(("retry", number, record.spec.tid), wait)

    def on_timer(self, event: TimerFired) -> None:
        assert isinstance(event.key, tuple)
        _, number, tid = event.key
        run = self.runs.get(number)
        record = run.records.get(tid) if run else None
        if run is None or record is None or record.state != RecordState.BACKING_OFF:
            return
        self._move(record, RecordEvent.DUE)
        record.spec = next_attempt(record.spec)
        record.urgent = True
        run.queue.appendleft(record)
        self._dirty[number] = None

    def _ended(self, number: int, run: DispatchRun, record: Record, result: m.Result) -> None:
        if record.state == RecordState.BACKING_OFF:
            self.cancel_timer(("retry", number, record.spec.tid))
        self._take_off(run, record)
        self._move(record, RecordEvent.END)
        del run.records[record.spec.tid]
        if record.spec.tid >= 0:
            run.results.append(result)
            run.trees.pop(record.spec.tid, None)
        self._dirty[number] = None

    def _refuse(self, number: int, run: DispatchRun, record: Record, why: str) -> None:
        """It is not given out any more."""
        spec = record.spec
        self._fail(number, run, record, m.Result(spec.tid, spec.attempt, Outcome.SETUP, 0, self.node, detail=why))

    def _fail(self, number: int, run: DispatchRun, record: Record, result: m.Result) -> None:
        """No more attempts: its outputs will never be, its inputs have one reader less."""
        spec = record.spec
        self._ended(number, run, record, result)
        if spec.tid < 0:
            root = next((tid for tid, tree in run.trees.items() if spec.tid in tree.parts), None)
            if root is not None:  # the reduction fails as its part did
                self._fail(number, run, run.records[root], msgspec.structs.replace(result, tid=root))
        if spec.outputs:
            self._poison(number, spec.outputs, result.detail if result.outcome == Outcome.UPSTREAM_FAILED else m.failure_of(spec.tid))
        if spec.inputs:
            self._release(number, spec.inputs)

    def _poison(self, number: int, names: Sequence[str], cause: str) -> None:
        for shard, part in self.table.group(names).items():
            self.send(shard, m.Poison(number, tuple(part), cause))

    def _release(self, number: int, names: Sequence[str]) -> None:
        for shard, part in self.table.group(names).items():
            self.send(shard, m.Release(number, tuple(part)))

    # ── tasks move ─────────────────────────────────────────────────────────────────────────────────

    def on_task_moved(self, peer: int, message: m.TaskMoved) -> None:
        run = self.runs.get(message.run)
        if run is None:
            return
        to = peer if message.by < 0 else message.by
        for tid, attempt in message.tasks:
            record = run.records.get(tid)
            if record is None or record.state != RecordState.ASSIGNED or record.spec.attempt != attempt or record.worker < 0:
                continue
            if message.by >= 0 and record.worker != peer:
                continue  # the worker that has it now has told already
            self._take_off(run, record)
            if to in self.everyone:
                self._give(run, record, to)
                record.giver = peer if message.by >= 0 else -1
            else:
                self._lost(run, record, to)
        self._dirty[message.run] = None

    def _lost(self, run: DispatchRun, record: Record, worker: int) -> None:
        """Its worker is not a member: the task is the next to be given out. The worker counts as lost, and once, only if it was a member:
        a node of whose admission this node has not heard lives, and may take the task again and again."""
        self._move(record, RecordEvent.WORKER_LOST)
        record.urgent = True
        if worker in self.dead:
            record.deaths |= {worker}
        record.spec = next_attempt(record.spec)
        run.queue.appendleft(record)

    def on_reduce_plan(self, peer: int, message: m.ReducePlan) -> None:
        run = self.runs.get(message.run)
        record = run.records.get(message.tid) if run else None
        if run is None or record is None or record.state != RecordState.ASSIGNED or record.spec.attempt != message.attempt:
            return
        self._take_off(run, record)
        partial, root = reduction.plan(record.spec, message.files, run.info.scope, run.sub_tid)
        run.sub_tid -= len(partial)
        if partial:
            run.trees[record.spec.tid] = Tree(record.spec, {part.tid: part for part in partial})
        record.spec = root
        record.urgent = True
        self._move(record, RecordEvent.PLANNED)
        tree = [Record(spec) for spec in partial]
        run.records.update((part.spec.tid, part) for part in tree)
        run.queue.extendleft(reversed([*tree, record]))
        self._dirty[message.run] = None

    def on_members_changed(self, event: MembersChanged) -> None:
        """Tasks of workers that are gone go back into the queue, first in line; so do those that such a worker has given away and that
        may have gone with it."""
        everyone = event.slots
        gone = self.everyone.keys() - everyone.keys()
        self.dead |= {node for node in gone if self.everyone[node] >= 0}  # one that drained said so, and was not lost
        self.table, self.workers, self.everyone = event.table, event.unit, everyone
        for number, run in self.runs.items():
            lost = [
                record for record in run.records.values()
                if record.state == RecordState.ASSIGNED and record.worker >= 0
                and (record.worker not in everyone or (record.giver >= 0 and record.giver not in everyone))
            ]  # fmt: skip
            for record in reversed(lost):
                worker = record.giver if record.worker in everyone else record.worker
                self._take_off(run, record)
                self._lost(run, record, worker)
            if any(number not in event.in_order.get(node, ()) for node in gone):
                run.lossy = True
                trees, run.trees = run.trees, {}
                self._replant(number, run, trees)
            for known in (run.out, run.parked):
                for worker in [worker for worker in known if worker not in everyone]:
                    del known[worker]
            run.placement.forget(set(everyone))
            run.health.forget(set(everyone), set(self.workers))
            self._dirty[number] = None

    def on_farewell(self, peer: int, message: m.Farewell) -> None:
        """A node that drains asks whether this one has heard all, and will not say that a task is still there. If not it asks again."""
        drains, tasks = self.everyone.get(peer, 0) < 0, (record for run in self.runs.values() for record in run.records.values())
        if drains and not message.heard and not any(peer in (record.worker, record.giver) for record in tasks):
            self.send(peer, m.Farewell(message.number, heard=True))

    def on_part_lost(self, peer: int, message: m.PartLost) -> None:
        """A copy was damaged, or could not be fetched. Each reader tells of that; the tree that is planned then has other parts. The heir
        of a shard also says so of what it has not heard of, and the task that makes this may not have ended."""
        run = self.runs.get(message.run)
        tree = run.trees.get(message.tid) if run else None
        if run is not None and tree is not None and message.part in tree.parts and message.part not in run.records:
            ended = [tid for tid in tree.parts if tid not in run.records]
            at_work = [tid for tid in tree.parts if tid in run.records and run.records[tid].state == RecordState.ASSIGNED]
            for tid, files in tree.given_up(ended, at_work):
                if tid in run.records:
                    run.uprooted[tid] = files  # its worker goes on with it
                else:
                    self._recount(message.run, files)
            # The part that a worker has and that was to read the lost one would wait there, with all its other inputs, to the run's end.
            self._poison(message.run, tree.parts[message.part].outputs, _GIVEN_UP)
            self._replant(message.run, run, {message.tid: run.trees.pop(message.tid)})

    def _recount(self, number: int, files: Uprooted) -> None:
        """No node was lost, so the shards count readers. This part has released its inputs, which the next tree releases once more. Were
        that not told, a file would be dropped as soon as it is made again, and files without readers would stay to the run's end."""
        for shard, names in self.table.group(files.again).items():
            self.send(shard, m.ReadAgain(number, tuple(names)))
        self._release(number, files.unread)

    def _replant(self, number: int, run: DispatchRun, trees: dict[int, Tree]) -> None:
        """Partial results are gone, or may be, which nobody else could make again: plan these trees anew."""
        self._dirty[number] = None
        for tid, tree in trees.items():
            for part in tree.parts:
                record = run.records.get(part)
                if record is not None:
                    self._ended(number, run, record, _NOTHING)
            record = run.records[tid]
            if record.state == RecordState.BACKING_OFF:
                self.cancel_timer(("retry", number, tid))
                self._move(record, RecordEvent.DUE)
                run.queue.appendleft(record)
            elif record.state == RecordState.ASSIGNED:
                self._take_off(run, record)
                self._move(record, RecordEvent.WORKER_LOST)
                run.queue.appendleft(record)
            record.spec = msgspec.structs.replace(tree.spec, attempt=record.spec.attempt + 1)

    def flush(self) -> None:
        if not self._dirty:
            return
        dirty, self._dirty = self._dirty, {}
        for number in dirty:
            run = self.runs.get(number)
            if run is None:
                continue
            self._deal(number, run)
            parked = sum(run.parked.values())
            if run.results or abs(parked - run.told_parked) >= 32:
                run.told_parked = parked
                results, run.results = run.results, []
                self.send(run.client, m.Results(number, tuple(results), parked))

    def explain(self, run: int, tid: int) -> list[str]:
        known = self.runs.get(run)
        record = known.records.get(tid) if known else None
        if known is None or record is None:
            return []
        tries = f", attempt {record.failures + 1}" if record.failures else ""
        if record.state == RecordState.QUEUED:
            return [f"waits for a node{tries}: each has as many tasks as it takes; {len(known.queue)} tasks wait so at node {self.node}"]
        if record.state == RecordState.BACKING_OFF:
            return [f"has failed, and waits for its next attempt ({record.failures + 1})"]
        return [f"given to node {record.worker}{tries}"]

    def check_invariants(self) -> None:
        for run in self.runs.values():
            out: dict[int, int] = {}
            for tid, record in run.records.items():
                assert record.spec.tid == tid and record.state != RecordState.ENDED
                if record.state == RecordState.ASSIGNED:
                    assert record.worker >= 0
                    if not record.urgent:
                        out[record.worker] = out.get(record.worker, 0) + 1
                else:
                    assert record.worker < 0, (tid, record.state, record.worker)
            assert out == {k: v for k, v in run.out.items() if v}, (out, run.out)
