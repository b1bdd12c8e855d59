"""One batch of a queue: the tasks of one ``execute``, kept in a file of the session's directory, and their run.

Owns the batch's file and its run from the records to the summary. A batch's file is written before anything of it runs, so a record
from the spool is either still there or in a batch; it says how far the spool was read. Must not know: sockets, who waits.

::

    SESSION/queue/            0700
    ├── batch-N               a line of JSON (``Head``), then the records
    └── batch-N.journal       that of its run
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from amfs.display.summary import Failure, Snapshot, Summary
from amfs.errors import AmfsError, UsageError, WorkflowError
from amfs.queueing import messages as q
from amfs.queueing import spool
from amfs.queueing.words import Queued, task_of
from amfs.vocabulary import fs_requests
from amfs.vocabulary.states import Outcome
from amfs.workflow.workflow import Task, Workflow, printable, shortened

if TYPE_CHECKING:
    from amfs.runs.driver import RunDriver
    from amfs.vocabulary.messages import Result
    from amfs.workflow.checks import Plan

QUEUE = "queue"
SOURCE = "queue"
CHECKED_AGAIN_MAX = 100  # each time at least one task is left out


class Head(msgspec.Struct):
    """The first line of a batch's file. ``code`` None: it has not ended."""

    number: int
    first: int  # number of its first task; they are counted through the session
    count: int
    offsets: dict[str, int]  # how far the files of the spool were read, this batch included
    code: int | None = None
    summary: Summary | None = None


def write(directory: Path, head: Head, records: Sequence[spool.Record] = ()) -> None:
    """Write a batch's file, at once or not at all. Raises OSError."""
    path = directory / f"batch-{head.number}"
    temporary = directory / f".{path.name}"
    with open(temporary, "wb") as stream:
        stream.write(msgspec.json.encode(head) + b"\n" + b"".join(map(spool.encode, records)))
    os.replace(temporary, path)


def read_all(directory: Path) -> list[tuple[Head, list[spool.Record]]]:
    """All batches there are, in order; the records of those that have not ended."""
    found = []
    for path in directory.glob("batch-*"):
        if path.suffix != ".journal":
            line, _, data = path.read_bytes().partition(b"\n")
            head = msgspec.json.decode(line, type=Head)
            found.append((head, spool.decode(data)[0] if head.code is None else []))
    return sorted(found, key=lambda each: each[0].number)


class Batch:
    """``tell`` is given what happens, in the thread that calls ``run``."""

    interval = 0.5  # seconds between snapshots of its run

    def __init__(self, session: str, directory: Path, head: Head, records: Sequence[spool.Record], tell: Callable[[q.Event], None]) -> None:
        self.session = session
        self.directory = directory
        self.head = head
        self.records = records
        self.tell = tell
        self.cancelled = ""  # why
        self.driver: RunDriver | None = None
        self.faults: list[Failure] = []

    def cancel(self, why: str) -> None:
        """End it, whether it runs or waits. From any thread."""
        self.cancelled = self.cancelled or why
        driver = self.driver
        if driver is not None:
            driver.context.loop.post(lambda: driver.stop(why))

    def run(self) -> None:
        """Run it to its end; afterwards ``head`` has its code and summary, in its file too."""
        try:
            code, summary = self._run() if not self.cancelled else _ended(130, "interrupted", self.cancelled)
        except AmfsError as error:
            code, summary = _ended(error.exit_code, "stopped", str(error))
        except Exception as error:
            code, summary = _ended(70, "stopped", f"internal error: {type(error).__name__}: {error}")
        self.head.code, self.head.summary = code, summary
        write(self.directory, self.head)
        (self.directory / f"batch-{self.head.number}.journal").unlink(missing_ok=True)
        self.records = ()

    # ── tasks ──────────────────────────────────────────────────────────────────────────────────────

    def _tasks(self) -> tuple[list[Queued], dict[str, str]]:
        """The tasks of the records, and the environment that they have in common."""
        environments = spool.environments(self.directory.parent / spool.SPOOL, [record.env for record in self.records])
        common = _common(list(environments.values()))
        queued = []
        for number, record in enumerate(self.records, self.head.first):
            try:
                queued.append(task_of(number, record, environments.get(record.env), common))
            except (AmfsError, ValueError) as error:
                self._refuse(str(number), shlex.join(record.words), str(error))
        return queued, common

    def _refuse(self, task: str, command: str, why: str) -> None:
        """A task that cannot be run, whatever happens."""
        if len(self.faults) < 1000:
            self.faults.append(Failure(task, f"{shortened(printable(command))} cannot be run: {why}"))
            self.tell(q.TaskFailed(task, self.faults[-1].what, b""))

    def _checked(self, tasks: list[Task]) -> tuple[list[Task], Plan]:
        """The tasks that can be run, and their plan. Those that cannot are told."""
        from amfs.client.place import FilesPlace
        from amfs.workflow.checks import check

        for _ in range(CHECKED_AGAIN_MAX):
            workflow = Workflow(tasks, name=SOURCE)
            try:
                return workflow.tasks, check(workflow, FilesPlace("/", self.session))
            except WorkflowError as error:
                wrong = {fault.line: fault.message for fault in error.faults if fault.line}
                if not wrong:
                    raise
                for task in tasks:
                    if task.line in wrong:
                        self._refuse(task.id, shlex.join(task.argv), wrong[task.line])
                tasks = [task for task in tasks if task.line not in wrong]
        raise UsageError("too many of the tasks are faulty")

    def _placed(self, queued: Sequence[Queued], nodes: int) -> list[Task]:
        """The tasks, each with the node wished that has the file which it is about."""
        about = [each.about for each in queued if each.about]
        if nodes < 2 or not about:
            return [each.task for each in queued]
        from amfs.client.connection import Call
        from amfs.client.files import Files

        names = list(dict.fromkeys(about))
        with Files(self.session) as files:
            ranks = files.call_many(Call(fs_requests.GetRank(os.fsencode(name)), (name,)) for name in names)
        node_of = {name: rank for name, rank in zip(names, ranks, strict=True) if isinstance(rank, int) and rank >= 0}
        return [msgspec.structs.replace(task, node=node_of[name], node_soft=True) if name in node_of else task for task, name in queued]

    # ── its run ────────────────────────────────────────────────────────────────────────────────────

    def _run(self) -> tuple[int, Summary]:
        from amfs.client import discovery
        from amfs.runs.context import RunOptions
        from amfs.runs.drive import drive, open_run
        from amfs.runs.driver import exit_code_of
        from amfs.runs.journal import read

        queued, environment = self._tasks()
        tasks, plan = self._checked(self._placed(queued, len(discovery.find(self.session).nodes)))
        if not tasks:
            return self._with_faults(*_ended(0, "finished"))
        journal = self.directory / f"batch-{self.head.number}.journal"
        past = read(journal)
        options = RunOptions(
            session=self.session, base="/", want_output=True, journal=journal, resume=past is not None, source=SOURCE, env=environment,
        )  # fmt: skip
        with open_run(options, tasks, plan, past=past, on_ended=self._ended) as driver:
            self.driver = driver
            try:
                driver.begin()
                if self.cancelled:
                    driver.stop(self.cancelled)
                members = driver.submitter.members
                self.tell(q.Began(len(tasks), len(members), sum(members.values())))
                drive(driver, self)
                assert driver.over is not None
                code, outcome = exit_code_of(driver, 2 if self.cancelled else 0)
                driver.tally.source = ""
                driver.tally.failures = [(tid, _with_command(tasks[tid], result)) for tid, result in driver.tally.failures]
                notes = [driver.over.reason] if driver.over.reason else []
                return self._with_faults(code, driver.summary(code, outcome, notes))
            finally:
                self.driver = None

    def update(self, snapshot: Snapshot) -> None:
        self.tell(q.Standing(snapshot))

    def message(self, text: str) -> None:
        self.tell(q.Said(text))

    def _with_faults(self, code: int, summary: Summary) -> tuple[int, Summary]:
        if self.faults:
            summary.failures = [*self.faults, *summary.failures]
            summary.notes.append(f"{len(self.faults)} of the queued tasks could not be run")
            if not code:
                code, summary.outcome, summary.exit_code = 1, "failed", 1
        return code, summary

    def _ended(self, task: Task, result: Result) -> None:
        if result.outcome == Outcome.UPSTREAM_FAILED or (result.outcome and self.cancelled):
            return
        if result.outcome:
            from amfs.runs.tally import told

            self.tell(q.TaskFailed(task.id, told(_with_command(task, result)), result.stderr))
        if result.stdout or (result.stderr and not result.outcome):
            self.tell(q.TaskOutput(task.id, result.stdout, b"" if result.outcome else result.stderr))


def _common(environments: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """The variables that all of them have alike."""
    if not environments:
        return {}
    first, *others = environments
    return {name: value for name, value in first.items() if all(other.get(name) == value for other in others)}


def _with_command(task: Task, result: Result) -> Result:
    return msgspec.structs.replace(result, detail=f"{shortened(printable(shlex.join(task.argv)))}: {result.detail}")


def _ended(code: int, outcome: str, *notes: str) -> tuple[int, Summary]:
    return code, Summary(outcome, code, 0.0, notes=list(notes))
