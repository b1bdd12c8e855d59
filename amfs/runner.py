"""One run, from a workflow to its summary: the shell around a Submitter.

Owns what a run needs in this process: the poll loop, an embedded node or the connection to a session, the journal, the trace, the counts
by stage. Used by ``amfs run`` and by ``amfs.Session``; decides nothing about tasks or files (the machines do).
"""

from __future__ import annotations

import os
import posixpath
import random
import re
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from amfs.engine import messages as m
from amfs.engine.checks import Plan
from amfs.engine.events import (
    AddTasks,
    CloseList,
    Effect,
    Ended,
    Event,
    Expand,
    FilesFlushed,
    PeerDown,
    Received,
    RunOver,
    Send,
    StopRun,
)
from amfs.engine.specs import SpecMaker
from amfs.engine.states import Outcome
from amfs.engine.submitter import Submitter
from amfs.engine.workflow import Task
from amfs.errors import AmfsError, SessionError, UsageError
from amfs.fs.paths import scope_of, shared_path
from amfs.journal import Header, Journal, Past, aside, next_life, read, task_key
from amfs.node.core import NodeCore
from amfs.node.loop import Loop, now

if TYPE_CHECKING:
    from amfs.cli.output import Snapshot, Summary
    from amfs.expansion import Expander
    from amfs.remote import Fetcher
    from amfs.trace import TraceWriter

FAILURES_KEPT = 100
_BY_NUMBER = re.compile(r"\btask #(\d+)\b")


class RunOptions(msgspec.Struct, kw_only=True):
    """How a workflow is to be run. ``slots`` 0: one per usable CPU; ``memory`` bytes for tasks, 0: not accounted."""

    slots: int = 0
    memory: int = 0
    session: str | None = None  # name; "" the newest live one; None: embedded
    base: str = ""  # "": the current directory
    keep_all: bool = False
    keep_sandbox: bool = False
    hashed_outputs: int = 0
    stage_shared: bool = False
    data_aware: bool = True
    retries: int = 0
    fail_fast: bool = False
    want_output: bool = False
    store: str = ""
    journal: Path | None = None
    resume: bool = False
    trace: str = ""
    source: str = ""


JOURNAL = "journal"  # in a store: the journal that can make use of it


def _sweep(parent: str, spare: str) -> None:
    """Remove what killed runs left in memory, unless a journal still leads to it."""
    from amfs.net import litter
    from amfs.node.store import default_parent

    for path in (Path(parent) if parent else default_parent()).glob(f"amfs-{os.getuid()}-{litter.EMBEDDED}-*"):
        with suppress(OSError, UsageError):
            if str(path) == spare or not litter.is_orphan(path, litter.EMBEDDED):
                continue
            journal = path / JOURNAL
            past = read(Path(journal.read_text())) if journal.exists() else None
            if past is None or past.header.store != str(path):
                shutil.rmtree(path, ignore_errors=True)


class Cluster:
    """The loop and what is behind it: an embedded node, or a session of node servers. A context manager."""

    def __init__(self, options: RunOptions, adopt: str = "") -> None:
        self.options = options
        self.view: m.View | None = None
        self.guest: RunShell | None = None
        if options.session is None:
            self._embed(adopt)
        else:
            self._connect(options.session)
        self.loop.on_view = self._on_view
        self.loop.start()

    def _embed(self, adopt: str) -> None:
        from amfs.net import litter
        from amfs.node.hands import Hands
        from amfs.node.store import Store

        slots = self.options.slots or len(os.sched_getaffinity(0))
        self.client = m.CLIENT_ID_MIN
        _sweep(self.options.store, adopt)
        self.store: Store | None = Store(litter.EMBEDDED, 0, self.options.store, adopt)
        if self.options.journal is not None:
            if self.options.resume:
                self.store.take_back(aside(self.options.journal))
            else:
                shutil.rmtree(aside(self.options.journal), ignore_errors=True)
        self.hands: Hands | None = Hands(self.store, slots, memory=self.options.memory)
        core = NodeCore(m.Member(0, 1, (), slots), self.store.root)
        self.core: NodeCore | None = core
        self.loop = Loop(core, self.hands)
        self.run = 1

    def _connect(self, name: str) -> None:
        from amfs.net import session as registry
        from amfs.net.transport import Transport, random_client_id

        found = registry.find(name or None)
        self.store = None
        self.hands = None
        self.core = None
        self.client = random_client_id()
        transport = Transport(self.client, found.keys)
        self.data_key = found.keys.data
        for node in found.nodes:
            transport.connect(node.node, node.endpoints, node.host)
        self.loop = Loop(None, None, transport)
        self.run = random.SystemRandom().randrange(1 << 20, 1 << 31)
        self._contacts = [node.node for node in found.nodes]
        self.session_name = found.name

    def _on_view(self, view: m.View) -> None:
        if self.view is None or view.epoch >= self.view.epoch:
            self.view = view

    def wait_for_view(self, longest_s: float = 15.0) -> m.View:
        """Until the session has said who is in it. Raises SessionError."""
        end = now() + longest_s
        if self.loop.transport is not None:
            greeter = _Greeter(self.client)
            self.loop.add_guest(greeter)
            for node in self._contacts:
                self.loop.transport.queue(node, m.ClientHello(self.client))
            self.loop.transport.flush(now())
        while self.view is None:
            if now() > end:
                raise SessionError(f"session {self.session_name} does not answer; `amfs status` shows what is left of it")
            self.loop.turn(0.2)
        return self.view

    def close(self) -> None:
        """Leave nothing behind: processes, threads, files."""
        if self.hands is not None:
            self.hands.close()
        if self.store is not None:
            self.store.close()
        if self.loop.transport is not None:
            if self.view is not None:
                for member in self.view.members:
                    self.loop.transport.queue(member.node, m.Leave(-1))  # nobody need miss us
            self.loop.transport.drain(1.0)
            self.loop.transport.close()
        self.loop.close()


class _Greeter:
    """Stands in for the submitter until the first view is there."""

    def __init__(self, client: int) -> None:
        self.client = client

    def handle(self, event: Event, now: float) -> list[Effect]:
        return []

    def act(self, effect: Effect) -> None:
        pass


class RunShell:
    """The guest of the loop that is one run."""

    def __init__(
        self,
        cluster: Cluster,
        tasks: list[Task],
        plan: Plan,
        options: RunOptions,
        *,
        open_ended: bool = False,
        past: Past | None = None,
        on_ended: Callable[[Task, m.Result], None] | None = None,
        expander: Expander | None = None,
    ) -> None:
        self.cluster = cluster
        self.expander = expander
        self.client = cluster.client
        self.tasks = tasks
        self.plan = plan
        self.options = options
        self.open_ended = open_ended
        # Of an open list: label and size of outputs that nobody reads as yet. Final only if that stays so.
        self.unread: dict[str, tuple[str, int]] | None = {} if open_ended else None
        self.over: RunOver | None = None
        self.failures: list[tuple[int, m.Result]] = []  # the first that failed by themselves
        self.failures_omitted = 0
        self.counted = bytearray()  # by task: 1 + the column of its stage in which it counts; 0: it has not ended
        self.reruns = 0  # results of tasks that had ended before: their files were lost with a node
        self.gone: list[int] = []  # nodes that were lost on the way
        self.progress_made = (0, 0)  # the most that was finished, and had failed
        self.started = time.time()
        self.stages: dict[str, list[float]] = {}
        self.on_ended = on_ended
        self.moved = 0
        self.readers: dict[str, list[Fetcher]] = {}
        self.down: set[int] = set()  # nodes that stopped answering us
        self.flush_errors: list[str] = []
        self.trace: TraceWriter | None = None
        mark, life = next_life(options.journal, options.resume) if options.journal is not None else ("", 0)
        scope = scope_of(cluster.run)
        self.info = m.RunInfo(
            scope=scope,
            base=plan.base,
            env=tuple(f"{key}={value}" for key, value in os.environ.items()),
            stage_shared=options.stage_shared,
            hashed_outputs=options.hashed_outputs,
            keep_sandbox=options.keep_sandbox,
            data_aware=options.data_aware,
            want_output=options.want_output,
            umask=_umask(),
            paths=plan.paths,
            journal=mark if cluster.core is None else "",  # an embedded node has no other run
            life=life,
        )
        self.maker = SpecMaker(
            scope, plan, open_ended=open_ended, keep_all=options.keep_all, default_retries=options.retries
        )
        self.past = past
        self.left = self._inventory() if open_ended else {}  # files that an earlier run left in memory, and that nobody has asked for yet
        skip = self._resume(past) if past is not None and not open_ended else frozenset()
        self.submitter = Submitter(
            cluster.client, cluster.run, self.info, tasks, plan,
            maker=self.maker, skip=skip, open_ended=open_ended, fail_fast=options.fail_fast,
        )  # fmt: skip
        self.journal: Journal | None = None
        self.journal_fault = ""  # why it can be written no more
        if options.journal is not None:
            store = str(cluster.store.path) if cluster.store is not None else ""
            header = Header(options.source, plan.base, store, mark=mark, life=life)
            self.journal = Journal(options.journal, header, past if options.resume else None)
            if cluster.store is not None:
                (cluster.store.path / JOURNAL).write_text(os.path.abspath(options.journal))
        self.view_epoch = 0
        self.beat_at = 0.0

    # ── resume ─────────────────────────────────────────────────────────────────────────────────────

    def final(self, task: Task, name: str) -> bool:
        """Does this output (as written) belong on shared storage?"""
        if self.options.keep_all or name in task.keep:
            return True
        return name not in task.scratch and not self.plan.readers.get(self.plan.aliases.get(name, name), 0)

    def _resume(self, past: Past) -> frozenset[int]:
        from amfs.engine.resume import to_skip

        tasks, plan = self.tasks, self.plan
        sizes: dict[int, tuple[int, ...]] = {}
        for tid, task in enumerate(tasks):
            left = past.done.get(task_key(task))
            if left is not None:
                sizes[tid] = left
        adopted = self._inventory()
        at_home: set[str] = set()

        def there(tid: int, name: str) -> bool:
            task = tasks[tid]
            names = [plan.aliases.get(n, n) for n in task.outputs]
            size = sizes[tid][names.index(name)] if len(sizes[tid]) == len(names) else -1
            path = shared_path(plan.base, name, self.options.hashed_outputs)
            with suppress(OSError):
                if self.final(task, task.outputs[names.index(name)]) and os.stat(path).st_size == size:
                    at_home.add(name)
                    return True
            return adopted.get(name, (-2, 0))[0] == size

        known = {tid for tid, known in plan.later.items() if known is not None}  # nothing is to be done for them but their tasks
        skip, used = to_skip(tasks, plan, sizes.keys() | known, there, self.final)
        skip -= known
        readers: dict[str, int] = {}
        for tid, task in enumerate(tasks):
            if tid not in skip:
                for name in task.inputs:
                    name = plan.aliases.get(name, name)
                    readers[name] = readers.get(name, 0) + 1
        self.maker.readers = readers
        keep: list[tuple[str, int, int, int]] = []
        for name in used:
            if name in at_home and not self.options.hashed_outputs:
                self.maker.ready.add(name)
            elif name in adopted:
                size, mtime = adopted[name]
                keep.append((self.maker.scope + name, size, mtime, m.fate(readers.get(name, 0))))
            else:
                self.maker.ready.add(name)
        self._adopt = keep
        kept = {key for key, *_ in keep}
        if self.cluster.store is not None:
            self.cluster.store.delete([self.maker.scope + name for name in adopted if self.maker.scope + name not in kept])
        return skip

    _adopt: Sequence[tuple[str, int, int, int]] = ()

    def _inventory(self) -> dict[str, tuple[int, int]]:
        store = self.cluster.store
        if store is None or not store.adopted:
            return {}
        scope = self.maker.scope
        return {key[len(scope):]: (size, mtime) for key, size, mtime in store.inventory(scope)}

    # ── the guest's side ───────────────────────────────────────────────────────────────────────────

    def begin(self) -> None:
        """Start submitting."""
        view = self.cluster.wait_for_view()
        self.cluster.loop.add_guest(self)
        self.view_epoch = view.epoch
        self.cluster.loop.tell(self.client, Received(view.manager, view))
        if self._adopt and self.cluster.core is not None:
            self.cluster.loop.act(0, self.cluster.core.adopt(self.cluster.run, list(self._adopt), now()))
            self.cluster.loop._settle()

    def handle(self, event: Event, time_now: float) -> list[Effect]:
        if isinstance(event, PeerDown):
            self.down.add(event.peer)
        if isinstance(event, Received) and type(event.message) not in self.submitter.on_message:
            self._for_reader(event.message)
            return []
        before = self.submitter.members
        effects = self.submitter.handle(event, time_now)
        if self.submitter.members is not before:
            self.gone += sorted(before.keys() - self.submitter.members.keys())
        return effects

    def send(self, node: int, message: m.Message) -> None:
        """Say something as this client, outside the submitter's protocol."""
        self.cluster.loop.act(self.client, [Send(node, message)])

    def _for_reader(self, message: m.Message) -> None:
        if isinstance(message, m.Located):
            for at in message.files:
                for reader in self.readers.get(at.name, ()):
                    reader.located(at)
        elif isinstance(message, m.Content):
            for blob in message.blobs:
                for reader in self.readers.pop(blob.name, ()):
                    reader.content(blob)
        elif isinstance(message, m.FileFailed):
            for name, cause in zip(message.names, message.causes, strict=True):
                for reader in self.readers.pop(name, ()):
                    reader.failed(self.in_words(cause))

    def act(self, effect: Effect) -> None:
        if isinstance(effect, Ended):
            self._ended(effect.results)
        elif isinstance(effect, FilesFlushed):
            for name, _, error in effect.files:
                if error:
                    self.flush_errors.append(f"{name}: {error}")
        elif isinstance(effect, Expand):
            assert self.expander is not None
            self.expander.wanted(self, effect.tid)
        elif isinstance(effect, RunOver):
            self.over = effect

    def _ended(self, results: list[m.Result]) -> None:
        tasks, stages = self.tasks, self.stages
        journal = self.journal
        done: list[tuple[int, tuple[int, ...]]] = []
        for result in results:
            task = tasks[result.tid]
            label = task.label or task.argv[0]
            stage = stages.get(label)
            if stage is None:
                stage = stages[label] = [0.0] * 8
            first = self._count(result, stage)
            if not result.outcome:
                if result.bytes_out and first:
                    stage[6] += result.bytes_out
                    for name, size in zip(task.outputs, result.sizes, strict=True):
                        if self.final(task, name):
                            if self.unread is None or self.options.keep_all or name in task.keep:
                                stage[5] += size
                            else:
                                self.unread[name] = (label, size)
                if journal is not None and result.tid not in self.plan.later:  # what one of those makes is said of its tasks
                    done.append((task_key(task), result.sizes))
            else:
                if result.outcome in (Outcome.UPSTREAM_FAILED, Outcome.INPUT_CHANGED):
                    result = msgspec.structs.replace(result, detail=self.in_words(result.detail))
                if result.outcome != Outcome.UPSTREAM_FAILED:
                    if len(self.failures) < FAILURES_KEPT:
                        self.failures.append((result.tid, result))
                    else:
                        self.failures_omitted += 1  # a million of them would fill the memory with their last words
            stage[3] += result.end_us - result.start_us
            stage[4] += result.bytes_fetched
            if first:
                stage[6] += result.bytes_in
            stage[7] += result.cpu_us
            self.moved += result.bytes_fetched
            if self.trace is not None and result.tid not in self.plan.later:
                self.trace.add(task.id, posixpath.basename(label) or label, result)
            if self.on_ended is not None:
                self.on_ended(task, result)
        if journal is not None and not self.journal_fault:
            try:
                journal.add(done)
            except AmfsError as error:
                self.journal_fault = str(error)
                self.cluster.loop.post(lambda: self.stop(f"stopped: {self.journal_fault}"))

    def _count(self, result: m.Result, stage: list[float]) -> bool:
        """A task counts once, as what it became last. Returns whether it had not ended before."""
        column = 0 if not result.outcome else 2 if result.outcome == Outcome.UPSTREAM_FAILED else 1
        counted, tid = self.counted, result.tid
        if tid >= len(counted):
            counted.extend(bytes(len(self.tasks) - len(counted)))
        before = counted[tid]
        counted[tid] = column + 1
        stage[column] += 1
        if before:
            stage[before - 1] -= 1
            self.reruns += 1
        return not before

    def in_words(self, cause: str) -> str:
        """The dispatchers know tasks by number; people know them by id."""
        tasks = self.tasks
        return _BY_NUMBER.sub(lambda found: f"task {tasks[int(found[1])].id}" if int(found[1]) < len(tasks) else found[0], cause)

    # ── driving ────────────────────────────────────────────────────────────────────────────────────

    def turn(self, longest_s: float) -> None:
        """One turn of the loop; also keeps the session told that we live."""
        loop = self.cluster.loop
        transport = loop.transport
        time_now = now()
        if time_now >= self.beat_at:
            self.beat_at = time_now + 1.0
            beat = m.Heartbeat(self.submitter.epoch)
            if transport is not None:
                others = self.submitter.members if self.down else ()  # somebody fell silent: are the others there?
                for node in {self.submitter.manager, *self.submitter.credits.out, *others}:
                    transport.queue(node, beat)
            elif loop.core is not None:
                loop.act(self.client, [Send(loop.core.node, beat)])  # an embedded node counts our silence, too
        longest_s = min(longest_s, max(0.0, self.beat_at - time_now))
        loop.turn(longest_s)

    def add(self, tasks: Sequence[Task]) -> None:
        """More tasks for an open list, already checked; ``plan`` knows their files."""
        self.discard_outputs(tasks)
        self.tasks.extend(tasks)
        self.cluster.loop.tell(self.client, AddTasks(len(self.tasks)))

    def discard_outputs(self, tasks: Sequence[Task]) -> None:
        """These tasks are to run: what an earlier run left under the names of what they make must go, or the store would keep it."""
        names = [self.plan.aliases.get(name, name) for task in tasks for name in task.outputs] if self.left else []
        stale = [self.maker.scope + name for name in names if self.left.pop(name, None) is not None]
        if stale and self.cluster.store is not None:
            self.cluster.store.delete(stale)

    def poke(self) -> None:
        """The submitter was given something outside an event: let it act."""
        self.cluster.loop.tell(self.client, AddTasks(len(self.tasks)))

    def close_list(self, orphans: Sequence[str] = ()) -> None:
        """No more tasks. Files that nobody reads become final now."""
        readers, scope_writers = self.plan.readers, self.plan.writers
        unread, self.unread = self.unread or {}, None
        for name, (label, size) in unread.items():
            if not readers.get(name):
                self.stages[label][5] += size
        finals: list[str] = []
        drops: list[str] = []
        aliases = self.plan.aliases
        scratch = {aliases.get(name, name) for task in self.tasks if task.scratch for name in task.scratch}
        for name in scope_writers:
            (drops if readers.get(name) or name in scratch else finals).append(name)
        self.cluster.loop.tell(self.client, CloseList(tuple(finals), tuple(drops), tuple(orphans)))

    def stop(self, reason: str) -> None:
        """End it now; what runs is killed."""
        self.cluster.loop.tell(self.client, StopRun(reason))

    def interrupt(self, reason: str) -> None:
        """Stop, but keep what a resumed run can use: the journal, and on disk the files between the tasks."""
        hands = self.cluster.hands
        if self.journal is not None and hands is not None:
            hands.keep_files = True
        self.stop(reason)

    def set_aside(self) -> str:
        """After an interrupted run is over: its files go to disk. Returns a sentence about it, '' if there is nothing to tell."""
        store = self.cluster.store
        if self.journal is None or store is None or self.cluster.hands is None or not self.cluster.hands.keep_files:
            return ""
        place = aside(self.journal.path)
        try:
            files, size = store.set_aside(self.info.scope, place)
        except OSError as error:
            shutil.rmtree(place, ignore_errors=True)
            return f"the files between the tasks could not be set aside ({error.strerror}); --resume will make them again"
        return f"{files} files between tasks ({size} bytes) set aside for --resume" if files else ""

    def snapshot(self, open_list: bool = False) -> Snapshot:
        from amfs.summary import Snapshot

        sub = self.submitter
        # What was lost with a node and is made again has been told as finished: progress does not run backwards.
        before = self.progress_made
        finished, failed = self.progress_made = max(before[0], sub.finished + sub.skipped), max(before[1], sub.failed)
        return Snapshot(
            total=None if open_list else sub.total,
            finished=finished,
            failed=failed,
            running=max(0, min(sub.outstanding, sum(sub.members.values()))),
            waiting=max(0, sub.total - finished - failed),
            bytes_moved=self.moved,
        )

    def finish(self) -> None:
        """Close journal and trace. Repeatable."""
        if self.expander is not None:
            self.expander.close()
        if self.journal is not None:
            self.journal.close()
            self.journal = None

    def summary(self, exit_code: int, outcome: str, notes: Sequence[str] = ()) -> Summary:
        from amfs.run_summary import summary_of

        return summary_of(self, exit_code, outcome, notes)


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


def exit_code_of(shell: RunShell, interrupted: int = 0) -> tuple[int, str]:
    """(exit code, outcome) of a run that is over."""
    assert shell.over is not None
    if interrupted:
        return 128 + interrupted, "interrupted"
    if shell.over.reason:
        return 3, "stopped"
    if shell.submitter.failed or shell.flush_errors:
        return 1, "failed"
    return 0, "finished"
