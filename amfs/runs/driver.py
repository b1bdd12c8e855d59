"""One run, from a workflow to its summary: drives a Submitter in this process.

Owns everything that a run needs beside the loop: the journal, the trace, results of an earlier run, the accounts (``tally``). Used by
``amfs run`` and by the Python API; decides nothing about tasks or files (the machines do).
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from amfs._native import caller_limits
from amfs.display.summary import Snapshot, Summary
from amfs.engine.submitter import Submitter
from amfs.errors import AmfsError
from amfs.host.shared_storage import size_as_left, size_of
from amfs.host.umask import umask
from amfs.remote import settings as storage_settings
from amfs.remote.outside import Outside
from amfs.runs.context import RunContext, RunOptions
from amfs.runs.critical import LastInput
from amfs.runs.identities import Identities
from amfs.runs.journal import Done, Header, Journal, Past, aside, next_life
from amfs.runs.leftovers import JOURNAL
from amfs.runs.tally import Tally, stage_of
from amfs.vocabulary import messages as m
from amfs.vocabulary.events import (
    AddTasks,
    AdoptFiles,
    CloseList,
    Effect,
    Ended,
    Event,
    Expand,
    FilesFlushed,
    FilesLost,
    FilesSeen,
    FindLost,
    ForgetFiles,
    LookFor,
    Received,
    RunOver,
    RunSkipped,
    Send,
    StopRun,
)
from amfs.vocabulary.paths import destination_at_url, in_namespace, scope_of, shared_path
from amfs.vocabulary.records import listing_of
from amfs.vocabulary.states import FINISHED
from amfs.workflow.checks import Plan
from amfs.workflow.derivation import Derivations
from amfs.workflow.origin import run_mark
from amfs.workflow.specs import SpecMaker
from amfs.workflow.workflow import Task

if TYPE_CHECKING:
    from amfs.runs.lookups import Lookups
    from amfs.runs.trace import TraceWriter
    from amfs.workflow.resume import Adopted, Resumed, ResumedList, Step


class Expander(Protocol):
    """Reads the documents of sub-workflows that tasks make (``expansion``)."""

    def wanted(self, run: RunDriver, tid: int) -> None: ...
    def close(self) -> None: ...


class Reader(Protocol):
    """Waits for one file of the run (``fetcher``)."""

    def located(self, at: m.FileAt) -> None: ...
    def content(self, blob: m.Blob) -> None: ...
    def failed(self, why: str) -> None: ...


class RunDriver:
    """The client of the loop that is one run."""

    def __init__(
        self,
        context: RunContext,
        tasks: list[Task],
        plan: Plan,
        options: RunOptions,
        *,
        open_ended: bool = False,
        past: Past | None = None,
        on_ended: Callable[[Task, m.Result], None] | None = None,
        on_skip: Callable[[int, bool], None] | None = None,
        expander: Expander | None = None,
    ) -> None:
        self.context = context
        self.expander = expander
        self.client = context.client
        self.tasks = tasks
        self.plan = plan
        self.options = options
        self.open_ended = open_ended
        self.over: RunOver | None = None
        self.tally = Tally(
            tasks, plan, final=self.final, keep_all=options.keep_all, open_ended=open_ended, source=options.source,
            stage_shared=options.stage_shared, size_on_shared=lambda path: size_of(context.shared, path),
        )  # fmt: skip
        self.on_ended = on_ended
        self.on_skip = on_skip  # of a list that grows: an earlier run has done this task (True); it must run after all (False)
        self.readers: dict[str, list[Reader]] = {}
        self.lookups: Lookups | None = None
        self.trace: TraceWriter | None = None
        self.last_input = LastInput(self._makers, lambda tid: self.tasks[tid].id)
        mark, life = next_life(options.journal, bool(options.resume)) if options.journal is not None else ("", 0)
        scope = scope_of(context.run)
        self.info = m.RunInfo(
            scope=scope,
            base=plan.base,
            env=tuple(f"{key}={value}" for key, value in (os.environ if options.env is None else options.env).items()),
            stage_shared=options.stage_shared,
            hashed_outputs=options.hashed_outputs,
            keep_sandbox=options.keep_sandbox,
            data_aware=options.data_aware,
            want_output=options.want_output,
            umask=umask(),
            nice=os.getpriority(os.PRIO_PROCESS, 0),
            limits=caller_limits(),
            paths=plan.paths,
            journal=mark if context.core is None else "",  # an embedded node has no other run
            life=life,
            kept=os.path.abspath(options.journal) if options.journal is not None else "",
            storage=storage_settings.load().pack() if open_ended or _has_urls(plan) else b"",
        )
        self.maker = SpecMaker(
            scope, plan, open_ended=open_ended, keep_all=options.keep_all, default_retries=options.retries
        )
        self.identities = Identities(plan, options.session)
        self.derivation = Derivations(tasks, plan, self.identities, context.session_number)
        self.changed = 0  # tasks that an earlier run has done, with other files than there are now
        if options.journal is not None:
            self.identities.learn(plan.shared)  # before anything is read
        resumed, self.resumed_list = self._resume(past) if past is not None else (None, None)
        self._adopt: Sequence[Adopted] = ()  # as soon as the run has begun
        if resumed is not None:
            self.maker.readers = resumed.readers
            self.maker.ready.update(resumed.ready)
            self._adopt = resumed.adopt
            self._discard(resumed.discard)
        self.submitter = Submitter(
            context.client, context.run, self.info, tasks, plan,
            maker=self.maker, skip=resumed.skip if resumed is not None else frozenset(), open_ended=open_ended, fail_fast=options.fail_fast,
        )  # fmt: skip
        self.journal: Journal | None = None
        self.journal_fault = ""  # why it can be written no more
        if options.journal is not None:
            store = str(context.store.path) if context.store is not None else ""
            file = os.path.abspath(options.source) if os.path.isfile(options.source) else ""
            header = Header(options.source, plan.base, store, mark=mark, life=life, file=file)
            self.journal = Journal(options.journal, header, past if options.resume else None)
            if context.store is not None:
                (context.store.path / JOURNAL).write_text(os.path.abspath(options.journal))

    # ── resume ─────────────────────────────────────────────────────────────────────────────────────

    def final(self, task: Task, name: str) -> bool:
        """Does this output (as written) belong on shared storage?"""
        if self.options.keep_all or name in task.keep:
            return True
        return name not in task.scratch and not self.plan.readers.get(self.plan.aliases.get(name, name), 0)

    def _stays(self, task: Task, name: str) -> bool:
        """Likewise, or in the session's file system?"""
        return in_namespace(name) or self.final(task, name)

    def _sizes_in_session(self, past: Past) -> Callable[[str], int]:
        """Tells the sizes of files of the session that are there and whole, else -1."""
        if self.context.options.session is None:
            return lambda name: -1
        from amfs.runs.lookups import SessionSizes

        aliases = self.plan.aliases
        done = (task for tid, task in enumerate(self.tasks) if self.derivation.key(tid) in past.done)
        known = SessionSizes(self.context.options.session)
        known.ask([aliases.get(name, name) for task in done for name in task.outputs if in_namespace(name)])
        return known

    def _resume(self, past: Past) -> tuple[Resumed | None, ResumedList | None]:
        from amfs.workflow.resume import Remains, ResumedList, resume_whole

        base, hashed = self.plan.base, self.options.hashed_outputs
        in_session = self._sizes_in_session(past)
        trust = self.options.resume == "trust"

        def size_on_shared(name: str) -> int:
            if in_namespace(name):
                return in_session(name)
            path = destination_at_url(name, self.plan.paths) or shared_path(base, name, hashed)
            if "://" in path and (listing := listing_of(time_left(name))):
                return self.context.shared.size_of_made(path, listing) if isinstance(self.context.shared, Outside) else -1
            # An object at a URL has a time of its own.
            return size_as_left(self.context.shared, path, 0 if trust or "://" in path else time_left(name))

        def time_left(name: str) -> int:
            """The time that the task left on a file; 0: that is not known."""
            tid = self.plan.writers.get(name, -1)
            times = past.done.get(self.derivation.key(tid), ((), 0, ()))[2] if tid >= 0 else ()
            names = (self.plan.aliases.get(each, each) for each in self.tasks[tid].outputs)
            return dict(zip(names, times, strict=False)).get(name, 0)

        store, scope = self.context.store, self.maker.scope
        files = store.inventory(scope) if store is not None and store.adopted else ()
        in_memory = {key[len(scope) :]: (size, mtime) for key, size, mtime in files}

        def sizes(tid: int) -> tuple[int, ...] | None:
            left, derivation, _ = past.done.get(self.derivation.key(tid), (None, 0, ()))
            if left is None or trust or self.derivation(tid) == derivation:
                return left
            self.changed += 1
            return None

        remains = Remains(sizes, size_on_shared, in_memory)
        if self.open_ended:
            return None, ResumedList(self.tasks, self.plan, remains)
        resumed = resume_whole(self.tasks, self.plan, remains, self._stays, prefer_memory=hashed > 0)
        self._tell_of_changes()
        return resumed, None

    def _tell_of_changes(self) -> None:
        if self.changed:
            count, their = (f"{self.changed} tasks run", "their") if self.changed > 1 else ("1 task runs", "its")
            self.tally.news.append(f"{count} again: {their} inputs or predecessors have changed since the earlier run")
            self.changed = 0

    def _take_over(self, files: Sequence[Adopted]) -> None:
        """The node goes on with files that an earlier run left in the store."""
        if files and self.context.core is not None:
            scope = self.maker.scope
            kept = [(scope + at.name, at.size, at.mtime_ns, m.retention(at.readers if at.readers >= 0 else m.KEEP)) for at in files]
            self.context.loop.tell_node(AdoptFiles(self.context.run, tuple(kept)))

    def _discard(self, names: Sequence[str]) -> None:
        if names and self.context.store is not None:
            self.context.store.delete([self.maker.scope + name for name in names])

    def _run_skipped(self, step: Step) -> None:
        """Tasks that were skipped must run after all."""
        self._discard(step.discard)
        if self.on_skip is not None:
            for tid in step.again:
                self.on_skip(tid, False)
        if step.again:
            self.context.loop.tell(self.client, RunSkipped(step.again))

    # ── a client of the loop ───────────────────────────────────────────────────────────────────────────

    def begin(self) -> None:
        """Start submitting, and the trace if there is to be one."""
        view = self.context.wait_for_view()
        self.context.loop.add_client(self)
        self.context.loop.tell(self.client, Received(view.manager, view))
        self._take_over(self._adopt)
        if self.options.trace:
            from amfs.runs.trace import TraceWriter

            members = self.submitter.members
            name = self.options.source or "session"
            self.trace = TraceWriter(self.options.trace, name=name, nodes=len(members), slots=sum(members.values()))

    def handle(self, event: Event, time_now: float) -> list[Effect]:
        if isinstance(event, Received) and type(event.message) not in self.submitter.on_message:
            self._take_in(event.message)
            return []
        before = self.submitter.members
        effects = self.submitter.handle(event, time_now)
        if self.submitter.members is not before:
            self.tally.lost(sorted(before.keys() - self.submitter.members.keys()))
        return effects

    def send(self, node: int, message: m.Message) -> None:
        """Say something as this client, outside the submitter's protocol."""
        self.context.loop.act(self.client, [Send(node, message)])

    def _take_in(self, message: m.Message) -> None:
        """Messages that are not for the submitter: answers to readers, news."""
        if isinstance(message, m.Located):
            for at in message.files:
                for reader in list(self.readers.get(at.name, ())):
                    reader.located(at)
        elif isinstance(message, m.Content):
            for blob in message.blobs:
                for reader in self.readers.pop(blob.name, ()):
                    reader.content(blob)
        elif isinstance(message, m.OutOfService):
            self.tally.out_of_service(message.node)
        elif isinstance(message, m.Spilled):
            if self.trace is not None:
                self.trace.spilled(message.node, message.on_disk, message.spilled, message.returned)
        elif isinstance(message, m.FileFailed):
            for name, cause in zip(message.names, message.causes, strict=True):
                for reader in self.readers.pop(name, ()):
                    reader.failed(self.tally.in_words(cause))

    def act(self, effect: Effect) -> None:
        if isinstance(effect, Ended):
            self._ended(effect.results)
        elif isinstance(effect, FilesFlushed):
            for name, _, error in effect.files:
                if error:
                    self.tally.flush_errors.append(f"{name}: {error}")
        elif isinstance(effect, Expand):
            assert self.expander is not None
            self.expander.wanted(self, effect.tid)
        elif isinstance(effect, LookFor):
            self._lookups().ask(effect.serial, effect.names)
        elif isinstance(effect, FindLost):
            loop = self.context.loop
            found: Callable[[list[str]], None] = lambda names: loop.post(lambda: loop.tell(self.client, FilesLost(names)))  # noqa: E731
            self._lookups().find_lost(effect.names, run_mark(self.info), found)
        elif isinstance(effect, RunOver):
            self.over = effect

    def _makers(self, tid: int) -> list[int]:
        """The tasks that make what a task reads, or that must have ended before it."""
        task, writers, aliases = self.tasks[tid], self.plan.writers, self.plan.aliases
        makers = [writers.get(aliases.get(name, name), -1) for name in task.inputs]
        makers += [self.plan.after.get(name, -1) for name in task.after]
        return [maker for maker in makers if maker >= 0]

    def _lookups(self) -> Lookups:
        if self.lookups is None:
            from amfs.runs.lookups import Lookups  # few runs have blind tasks, or lose files of the session

            loop = self.context.loop
            self.lookups = Lookups(
                self.context.options.session or "", lambda *seen: loop.post(lambda: loop.tell(self.client, FilesSeen(*seen)))
            )
        return self.lookups

    def _ended(self, results: list[m.Result]) -> None:
        done: list[Done] = []
        for result in results:
            task = self.tasks[result.tid]
            result = self.tally.add(result)
            made_later = result.tid in self.plan.later  # a task that stands for others is told by them
            if self.journal is not None and not result.outcome and not made_later:
                done.append((self.derivation.key(result.tid), result.sizes, self.derivation(result.tid) or 0, result.times))
            if self.trace is not None and not made_later:
                self.trace.add(task.id, stage_of(task), result, self.last_input.ended(result.tid, result.end_us))
            if self.on_ended is not None:
                self.on_ended(task, result)
        if self.journal is not None and not self.journal_fault:
            try:
                self.journal.add(done)
            except AmfsError as error:
                self.journal_fault = str(error)
                self.context.loop.post(lambda: self.stop(f"stopped: {self.journal_fault}"))

    # ── driving ────────────────────────────────────────────────────────────────────────────────────

    def turn(self, longest_s: float) -> None:
        """One turn of the loop, of at most ``longest_s``."""
        self.context.loop.turn(longest_s)

    def add(self, tasks: Sequence[Task]) -> None:
        """More tasks for an open list, already checked; ``plan`` knows their files. Those that an earlier run has done are skipped."""
        first = len(self.tasks)
        self.tasks.extend(tasks)
        if self.journal is not None:
            names = (self.plan.aliases.get(name, name) for task in tasks for name in task.inputs)
            self.identities.learn([name for name in names if name in self.plan.shared])
        added = AddTasks(len(self.tasks))
        if self.resumed_list is not None:
            step = self.resumed_list.add(first)
            added = AddTasks(len(self.tasks), step.skip, step.ready, step.unsaved)
            self._take_over(step.adopt)
            if self.on_skip is not None:
                for tid in step.skip:
                    self.on_skip(tid, True)
            self._run_skipped(step)
        self.context.loop.tell(self.client, added)

    def forget(self, names: Sequence[str]) -> list[str]:
        """No task reads these scratch files of an open list any more, and none will be added that does. Returns those that are let go."""
        if self.resumed_list is not None:
            return []  # of what an earlier run has done it counts the readers itself
        writers, state = self.plan.writers, self.submitter.state
        done = [name for name in names if name in writers and state[writers[name]] == FINISHED]
        if done:
            self.context.loop.tell(self.client, ForgetFiles(tuple(done)))
        return done

    def want(self, name: str) -> bool:
        """Somebody wants to read this file of an open list now. Returns whether its writer, which was skipped, runs for it."""
        step = self.resumed_list.want(name) if self.resumed_list is not None else None
        if step is not None:
            self._run_skipped(step)
        return step is not None and bool(step.again)

    def close_list(self, orphans: Sequence[str] = ()) -> None:
        """No more tasks. Files that nobody reads become final now."""
        if self.resumed_list is not None:
            self._run_skipped(self.resumed_list.close())
            self._tell_of_changes()
        self.tally.close_list()
        self.context.loop.tell(self.client, CloseList(tuple(orphans)))

    def stop(self, reason: str) -> None:
        """End the run now, and kill its tasks."""
        self.context.loop.tell(self.client, StopRun(reason))

    def stop_now(self, reason: str, patience_s: float = 5.0) -> None:
        """The same, and wait until they are killed. By themselves nodes do so only when they have not heard of the run for long."""
        end = time.monotonic() + patience_s
        self.stop(reason)
        while self.over is None and time.monotonic() < end:
            self.turn(0.1)

    def interrupt(self, reason: str) -> None:
        """Stop, but keep what a resumed run can use: the journal, and on disk the files between the tasks."""
        node_io = self.context.node_io
        if self.journal is not None and node_io is not None:
            node_io.keep_files = True
        self.stop(reason)

    def set_aside(self) -> str:
        """After an interrupted run is over: its files go to disk. Returns a sentence about it, '' if there is nothing to tell."""
        store = self.context.store
        if self.journal is None or store is None or self.context.node_io is None or not self.context.node_io.keep_files:
            return ""
        place = aside(self.journal.path)
        try:
            files, size = store.set_aside(self.info.scope, place)
        except OSError as error:
            shutil.rmtree(place, ignore_errors=True)
            return f"the files between the tasks could not be set aside ({error.strerror}); --resume will make them again"
        return f"{files} files between tasks ({size} bytes) set aside for --resume" if files else ""

    def snapshot(self, open_list: bool = False) -> Snapshot:
        """Where the run stands."""
        return self.tally.snapshot(self.submitter, open_list)

    def finish(self, summary: Summary | None = None) -> None:
        """Close journal and trace; the first ``summary`` goes into the trace. Repeatable."""
        if self.expander is not None:
            self.expander.close()
        if self.lookups is not None:
            self.lookups.close()
        if self.journal is not None:
            self.journal.close()
            self.journal = None
        if self.trace is not None:
            from amfs.display.progress import summary_fields

            self.trace.close(summary_fields(summary) if summary is not None else None)

    def summary(self, exit_code: int, outcome: str, notes: Sequence[str] = ()) -> Summary:
        """How the run ended, or where it stands."""
        return self.tally.summary(self.submitter, exit_code, outcome, notes)


def _has_urls(plan: Plan) -> bool:
    return any("://" in path for path in plan.shared.values()) or any(destination_at_url(name, plan.paths) for name in plan.writers)


def exit_code_of(driver: RunDriver, interrupted: int = 0) -> tuple[int, str]:
    """(exit code, outcome) of a run that is over."""
    assert driver.over is not None
    if interrupted:
        return 128 + interrupted, "interrupted"
    if driver.over.reason:
        return 3, "stopped"
    if driver.submitter.failed or driver.tally.flush_errors:
        return 1, "failed"
    return 0, "finished"
