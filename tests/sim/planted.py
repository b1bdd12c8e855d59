"""Faults planted into the machines on purpose, each named for what it does. Its caller gives a ``pytest.MonkeyPatch``."""

from __future__ import annotations

from collections.abc import Callable, Set
from typing import Any

import msgspec
import pytest

from amfs.engine.dispatcher import Dispatcher, DispatchRun, Record
from amfs.engine.file_table import FileTable
from amfs.engine.fls import FileRecord, FlsShard
from amfs.engine.membership import Membership
from amfs.engine.submitter import Submitter
from amfs.engine.worker import Worker
from amfs.engine.worker_records import ReadyQueue, TaskEntry
from amfs.net.link import Link, Packet
from amfs.vocabulary import messages as m
from amfs.vocabulary.events import MembersChanged
from amfs.vocabulary.states import PENDING, FileState, Outcome
from amfs.workflow.specs import SpecMaker
from amfs.workflow.tokens import is_token
from amfs.workflow.workflow import Task

Plant = Callable[[pytest.MonkeyPatch], None]


# ── who is there ───────────────────────────────────────────────────────────────────────────────────


def stale_epoch_accepted(patch: pytest.MonkeyPatch) -> None:
    """The submitter goes by any view that it is sent, however old."""
    real = Submitter.on_view

    def on_view(self: Submitter, peer: int, message: m.View) -> None:
        if self.members and message.members:
            self.view = None
        real(self, peer, message)

    patch.setattr(Submitter, "on_view", on_view)


def view_of_an_older_epoch_installed(patch: pytest.MonkeyPatch) -> None:
    """A node goes by any view in which it is."""
    real = Membership.on_view

    def on_view(self: Membership, peer: int, message: m.View) -> None:
        old = self.view
        if old is not None and message != old and any(member.node == self.node for member in message.members):
            self._adopt(message)
        else:
            real(self, peer, message)

    patch.setattr(Membership, "on_view", on_view)


def the_dead_are_never_buried(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Membership, "_bury", lambda self, dead: None)


def failures_are_never_the_workers_fault(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Dispatcher, "_is_excused", lambda self, run, record, result: False)


def heir_not_told_of_waiters(patch: pytest.MonkeyPatch) -> None:
    """When partitions move, a worker tells the new shards what it has, and not what it waits for."""
    real = Worker.on_members_changed

    def on_members_changed(self: Worker, event: MembersChanged) -> None:
        before = {run: list(names) for run, names in self.outbox._locate.items()}
        seeking: dict[int, set[str]] = {}
        for run in self.runs.values():
            seeking[run.id] = {
                file.name for file in run.files.values() if file.state == FileState.REMOTE
            }
        real(self, event)
        for number, names in self.outbox._locate.items():
            known = before.get(number, [])
            self.outbox._locate[number] = known + [name for name in names[len(known) :] if name in seeking.get(number, ())]

    patch.setattr(Worker, "on_members_changed", on_members_changed)


def heirs_are_not_told_of_order(patch: pytest.MonkeyPatch) -> None:
    """When a shard dies, the tokens that it knew are not published again."""
    tell, lost = Submitter._tell_heirs, Submitter.on_lost

    def _tell_heirs(self: Submitter, told: Any) -> None:
        asked, self.maker.asked = self.maker.asked, {}
        tell(self, told)
        self.maker.asked = asked

    def on_lost(self: Submitter, peer: int, message: m.Lost) -> None:
        names = tuple(name for name in message.names if not is_token(name[len(self.info.scope) :]))
        lost(self, peer, msgspec.structs.replace(message, names=names))

    real = Submitter.__init__

    def __init__(self: Submitter, *given: Any, **named: Any) -> None:
        real(self, *given, **named)
        self.on_message[m.Lost] = lambda peer, message: on_lost(self, peer, message)

    patch.setattr(Submitter, "_tell_heirs", _tell_heirs)
    patch.setattr(Submitter, "__init__", __init__)


def heartbeats_alone_are_signs_of_life(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Membership, "on_peers_heard", lambda self, event: None)


# ── tasks and results ──────────────────────────────────────────────────────────────────────────────


def stale_attempt_accepted(patch: pytest.MonkeyPatch) -> None:
    """A failure of an earlier attempt counts as one of the present attempt."""
    real = Dispatcher.on_done

    def on_done(self: Dispatcher, peer: int, message: m.Done) -> None:
        run = self.runs.get(message.run)
        results = []
        for result in message.results:
            record = run.records.get(result.tid) if run else None
            results.append(result if record is None else msgspec.structs.replace(result, attempt=record.spec.attempt))
        real(self, peer, msgspec.structs.replace(message, results=tuple(results)))

    patch.setattr(Dispatcher, "on_done", on_done)


def duplicate_result_counted_twice(patch: pytest.MonkeyPatch) -> None:
    """The submitter counts a result of a task that has ended already."""
    real = Submitter.on_results

    def on_results(self: Submitter, peer: int, message: m.Results) -> None:
        if message.run == self.run and peer in self.credits.out:
            for result in message.results:
                if self.state[result.tid] != PENDING and result.outcome == Outcome.OK:
                    self.finished += 1
        real(self, peer, message)

    patch.setattr(Submitter, "on_results", on_results)


def credit_not_returned(patch: pytest.MonkeyPatch) -> None:
    """A task that failed goes on to use up a credit of the submitter."""
    real = Submitter.on_results

    def on_results(self: Submitter, peer: int, message: m.Results) -> None:
        real(self, peer, message)
        if message.run == self.run and peer in self.credits.out:
            self.credits.out[peer].update(result.tid for result in message.results if result.outcome)

    patch.setattr(Submitter, "on_results", on_results)


def urgent_tasks_use_up_the_room(patch: pytest.MonkeyPatch) -> None:
    """Seed 500566: a task that waits takes the room of those for which it waits."""
    real = Dispatcher._room

    def room(self: Dispatcher, run: DispatchRun) -> dict[int, int]:
        left = real(self, run)
        for record in run.records.values():
            if record.urgent and record.worker in left:
                left[record.worker] -= 1
        return left

    patch.setattr(Dispatcher, "_room", room)


def retry_count_not_raised(patch: pytest.MonkeyPatch) -> None:
    real = Dispatcher._retry

    def retry(self: Dispatcher, number: int, record: Record) -> None:
        real(self, number, record)
        record.failures -= 1

    patch.setattr(Dispatcher, "_retry", retry)


def a_retried_task_queues_behind_the_others(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("amfs.engine.dispatcher.Record.urgent", property(lambda self: False, lambda self, value: None), raising=False)


def tasks_of_a_dead_worker_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Dispatcher, "_lost", lambda self, run, record: None)


def steal_of_a_pinned_task(patch: pytest.MonkeyPatch) -> None:
    def take_back(self: ReadyQueue, want: int) -> list[TaskEntry]:
        taken: list[TaskEntry] = []
        while self._fifo and len(taken) < want:
            entry = self._fifo.pop()
            if entry.state.name == "READY":
                taken.append(entry)
        return taken

    patch.setattr(ReadyQueue, "take_back", take_back)


def a_thief_does_not_say_so(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Dispatcher, "on_task_moved", lambda self, peer, message: None)


def tasks_are_passed_on_for_ever(patch: pytest.MonkeyPatch) -> None:
    real = FileTable.all_located

    def all_located(self: FileTable, entry: Any) -> None:
        entry.moved = False
        real(self, entry)

    patch.setattr(FileTable, "all_located", all_located)


def order_is_not_waited_for(patch: pytest.MonkeyPatch) -> None:
    """Specs name no task that must have finished first."""
    real = SpecMaker.make

    def make(self: SpecMaker, tid: int, task: Task, origin: int) -> m.TaskSpec:
        return real(self, tid, msgspec.structs.replace(task, after=()), origin)

    patch.setattr(SpecMaker, "make", make)


def failure_does_not_follow_order(patch: pytest.MonkeyPatch) -> None:
    """The token of a task that failed is never poisoned."""
    patch.setattr(Submitter, "_poison", lambda self, keys, tid: None)


# ── files ──────────────────────────────────────────────────────────────────────────────────────────


def waiter_dropped(patch: pytest.MonkeyPatch) -> None:
    """Only the first of those that wait for a file is told that it is there."""
    real = FlsShard.on_publish

    def on_publish(self: FlsShard, peer: int, message: m.Publish) -> None:
        for record in self.runs.get(message.run, {}).values():
            for waiter in list(record.waiters)[1:]:
                del record.waiters[waiter]
        real(self, peer, message)

    patch.setattr(FlsShard, "on_publish", on_publish)


def poison_not_told_to_waiters(patch: pytest.MonkeyPatch) -> None:
    real = FlsShard.on_poison

    def on_poison(self: FlsShard, peer: int, message: m.Poison) -> None:
        for name in message.names:
            record = self.runs.get(message.run, {}).get(name)
            if record is not None:
                record.waiters.clear()
        real(self, peer, message)

    patch.setattr(FlsShard, "on_poison", on_poison)


def poison_is_swallowed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(FlsShard, "on_poison", lambda self, peer, message: None)


def failed_inputs_are_not_noticed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(FileTable, "on_file_failed", lambda self, peer, message: None)


def a_fetched_file_wakes_nobody(patch: pytest.MonkeyPatch) -> None:
    real = FileTable.there

    def there(self: FileTable, run: Any, file: Any, fresh: bool = False) -> None:
        if fresh:
            real(self, run, file, fresh)

    patch.setattr(FileTable, "there", there)


def reader_counts_off_by_one(patch: pytest.MonkeyPatch) -> None:
    """A file is said to have one reader more than it has: it stays in memory to the end of the run."""
    real = SpecMaker.make

    def make(self: SpecMaker, tid: int, task: Task, origin: int) -> m.TaskSpec:
        spec = real(self, tid, task, origin)
        more = [retention + 2 if 1 < retention < m.retention(m.KEEP) else retention for retention in spec.retentions]
        return msgspec.structs.replace(spec, retentions=tuple(more))

    patch.setattr(SpecMaker, "make", make)


def readers_are_counted_twice(patch: pytest.MonkeyPatch) -> None:
    real = FlsShard.on_release

    def on_release(self: FlsShard, peer: int, message: m.Release) -> None:
        real(self, peer, message)
        real(self, peer, message)

    patch.setattr(FlsShard, "on_release", on_release)


def file_dropped_with_a_reader_left(patch: pytest.MonkeyPatch) -> None:
    real = FlsShard.on_release

    def on_release(self: FlsShard, peer: int, message: m.Release) -> None:
        real(self, peer, message)
        for name in message.names:
            record = self.runs.get(message.run, {}).get(name)
            if record is not None and record.released == record.readers - 1:
                self._drop_if_done(message.run, record)

    patch.setattr(FlsShard, "on_release", on_release)


def dropped_while_in_use(patch: pytest.MonkeyPatch) -> None:
    """A file is dropped although tasks of the node still use it."""
    real = FileTable.on_drop

    def on_drop(self: FileTable, peer: int, message: m.Drop) -> None:
        run = self.runs.get(message.run)
        for name in message.names:
            file = run.files.get(name) if run else None
            if file is not None and file.users and not file.fetching:
                self.outbox.delete(name)
        real(self, peer, message)

    patch.setattr(FileTable, "on_drop", on_drop)


def a_copy_that_came_too_late_stays(patch: pytest.MonkeyPatch) -> None:
    """A copy arrives when all readers have finished, and nobody has it dropped."""
    real = FlsShard.on_replica

    def on_replica(self: FlsShard, peer: int, message: m.Replica) -> None:
        records = self.runs.get(message.run, {})
        valid = tuple(name for name in message.names if name in records and records[name].state.name == "VALID")
        real(self, peer, msgspec.structs.replace(message, names=valid))

    patch.setattr(FlsShard, "on_replica", on_replica)


def a_fetch_from_the_dead_is_waited_for(patch: pytest.MonkeyPatch) -> None:
    """The node that a file was to come from died, and it is not asked for anew."""
    real = Worker.on_members_changed

    def on_members_changed(self: Worker, event: MembersChanged) -> None:
        for run in self.runs.values():
            for file in run.files.values():
                if file.state == FileState.REMOTE and file.fetching:
                    file.holders = tuple(holder for holder in file.holders if holder not in event.dead)
        real(self, event)

    patch.setattr(Worker, "on_members_changed", on_members_changed)


def lost_files_are_not_made_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Submitter, "_redo", lambda self, tid: None)


def settle_after_death(patch: pytest.MonkeyPatch) -> None:
    """A node dies while the finals of a list that grew are settled: the submitter goes on to wait for what it had asked of it."""
    real = Submitter._tell_heirs

    def _tell_heirs(self: Submitter, parts: Set[int]) -> None:
        begun, self.closing.begun = self.closing.begun, False
        real(self, parts)
        self.closing.begun = begun

    patch.setattr(Submitter, "_tell_heirs", _tell_heirs)


def a_settled_file_may_die_with_its_node(patch: pytest.MonkeyPatch) -> None:
    """The shard waits for a publication that died with a node."""
    real = FlsShard._forget_node

    def forget_node(self: FlsShard, node: int, heard: Set[int]) -> None:
        kept: list[tuple[FileRecord, int]] = []
        for _, record in self.records():
            kept.append((record, record.settler))
            record.settler = -1
        real(self, node, heard)
        for record, settler in kept:
            record.settler = settler

    patch.setattr(FlsShard, "_forget_node", forget_node)


def word_of_a_lost_holder_is_not_heard(patch: pytest.MonkeyPatch) -> None:
    """A shard goes on to name a holder that turned out to have the file no more."""
    patch.setattr(FlsShard, "on_lost", lambda self, peer, message: None)



# ── runs and links ─────────────────────────────────────────────────────────────────────────────────


def a_run_that_ended_comes_back(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("amfs.engine.machine.GoneRuns.__contains__", lambda self, run: False)


def files_stay_when_a_run_ends(patch: pytest.MonkeyPatch) -> None:
    real = Worker.on_run_end

    def on_run_end(self: Worker, peer: int, message: m.RunEnd) -> None:
        real(self, peer, message)
        from amfs.vocabulary.events import CloseRun

        self.out[:] = [effect for effect in self.out if not isinstance(effect, CloseRun)]

    patch.setattr(Worker, "on_run_end", on_run_end)


def resend_forgotten(patch: pytest.MonkeyPatch) -> None:
    """Messages lost on the way are not sent again."""
    real = Link.on_timer

    def on_timer(self: Link, now: float) -> list[Packet]:
        return [packet for packet in real(self, now) if not packet.seq]

    patch.setattr(Link, "on_timer", on_timer)


def what_came_twice_is_delivered_twice(patch: pytest.MonkeyPatch) -> None:
    real = Link._take

    def take(self: Link, packet: Packet, delivered: Any) -> bool:
        if packet.seq <= self._received:
            delivered.extend(packet.messages)
        return real(self, packet, delivered)

    patch.setattr(Link, "_take", take)


def link_acks_ahead_of_delivery(patch: pytest.MonkeyPatch) -> None:
    """A batch beyond a gap is acknowledged, and with it what is missing before it."""
    real = Link._packet

    def packet(self: Link, seq: int, messages: Any) -> Packet:
        made = real(self, seq, messages)
        return made._replace(ack=max(self._early, default=made.ack))

    patch.setattr(Link, "_packet", packet)
