"""One run for ``amfs run``: loads a workflow, drives the loop, handles signals, prints how it went."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import stat
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, cast

import msgspec

from amfs.errors import AmfsError, Fault, Telling, UsageError, WorkflowError, told
from amfs.vocabulary.states import Outcome

_NO_SPACE = os.strerror(errno.ENOSPC).encode()

if TYPE_CHECKING:
    from amfs.client.place import FilesPlace
    from amfs.display.progress import JsonProgress, Progress
    from amfs.runs.context import RunOptions
    from amfs.runs.driver import RunDriver
    from amfs.runs.expansion import Expander
    from amfs.runs.joblog import JobLog
    from amfs.runs.journal import Past
    from amfs.translate.detect import Loaded
    from amfs.vocabulary.messages import Result
    from amfs.workflow.checks import Plan
    from amfs.workflow.workflow import Task, Workflow

#: Remarks on a document that are shown; they are one for each kind of construct.
REMARKS_SHOWN = 20


def _facts_of(result: Result) -> dict[str, object]:
    """Of a task that has ended: times in seconds since 1970, memory and files in bytes. One that never began has no times."""
    begun = {"begun": result.start_us / 1e6, "ended": result.end_us / 1e6} if result.start_us else {}
    return {
        "outcome": Outcome(result.outcome).name.lower(), "code": result.code, "attempt": result.attempt, "node": result.node, **begun,
        "cpu_s": result.cpu_us / 1e6, "memory": result.maxrss_kib << 10, "read": result.bytes_in, "written": result.bytes_out,
    }  # fmt: skip


class Driver:
    """One ``amfs run``: loads, drives the loop, handles signals, prints."""

    unfolds = False  # its tasks are not those of a list

    def __init__(
        self, file: str, options: RunOptions, progress: Progress, format_: str, files: str | None, given: Mapping[str, Any]
    ) -> None:
        self.given = given
        self.stream: Any = None  # a pipe whose first lines were looked at
        self.file = file
        self.options = options
        self.progress = progress
        self.format = format_
        self.files = files
        self.signal = 0
        self.open = False
        self.faulty = False
        self.telling = Telling()
        self.journal_asked = True
        self.notes: list[str] = []  # said at the end
        self.broken: Exception | None = None
        self.sandboxes = ""  # where kept ones go
        self.far: set[int] = set()  # tasks whose whole stdout is on another host
        self.expander: Expander | None = None
        self.running: RunDriver | None = None
        self.joblog: JobLog | None = None

    def run(self) -> int:
        from amfs.runs.drive import drive, open_run
        from amfs.runs.journal import read, unwritable

        options = self.options
        if options.journal is not None and not self.journal_asked and (why := unwritable(options.journal)):
            options.journal = None
            self.progress.message(f"no journal is kept, so this run cannot be resumed: {why}")
        past = None
        if options.resume:
            assert options.journal is not None
            past = read(options.journal)
            if past is None:
                self.notes.append(f"nothing to resume: there is no journal {options.journal}")
            elif past.old:
                self.progress.message(f"{options.journal} is of an earlier amfs and does not say what tasks have read: all run again")
        growing = self.unfolds or (grows(self.file) and not self._is_document())
        tasks, plan, checker = self._open_list() if growing else self._load(past)
        with open_run(
            options, tasks, plan, open_ended=growing, past=past, on_ended=self._ended, on_skip=self._skipped, expander=self.expander,
            message=self.progress.message,
        ) as driver:  # fmt: skip
            self.running = driver
            if self.given["joblog"]:
                from amfs.runs.joblog import JobLog

                self.joblog = JobLog(self.given["joblog"], further=bool(options.resume))
            self._catch(driver)
            if options.keep_sandbox and options.session is None:
                self.sandboxes = tempfile.mkdtemp(prefix="amfs-sandboxes-")
            driver.begin()
            members = driver.submitter.members
            self.progress.start(None if growing else len(tasks), len(members), sum(members.values()))
            if growing:
                self.open = True
                if self.file == "-" and not self.unfolds and sys.stdin.isatty():
                    self.progress.message("reading tasks from the terminal, one a line; Ctrl-D ends the list")
                self._read_along(driver, checker)
            drive(driver, self.progress, grows=lambda: self.open, check=self._check)
            return self._finish(driver)

    def _check(self) -> None:
        if self.broken is not None:
            raise self.broken

    def _finish(self, driver: RunDriver) -> int:
        from amfs.runs.driver import exit_code_of

        code, outcome = exit_code_of(driver, self.signal)
        assert driver.over is not None
        if driver.over.reason:
            self.notes.append(driver.over.reason)
        if self.faulty:
            code = code or 2
            outcome = "failed" if outcome == "finished" else outcome
        if code and driver.journal is not None and driver.submitter.ended:
            self.notes.append("what is done is in the journal; run again with --resume to do the rest")
        if kept := driver.set_aside():
            self.notes.append(kept)
        if self.options.trace:
            self.notes.append(f"trace written to {self.options.trace}")
        store = driver.context.store
        if store is not None and any(
            (result.outcome == Outcome.SETUP and result.code == errno.ENOSPC) or _NO_SPACE in result.stderr  # which is a guess
            for _, result in driver.tally.failures
        ):
            self.notes.append(f"files between tasks and sandboxes are in {store.path.parent}: if that is what is full, see --store")
        if self.sandboxes:
            self._keep_sandboxes(driver)
        driver.tally.failures = [(tid, self._for_people(result)) for tid, result in driver.tally.failures]
        summary = driver.summary(code, outcome, self.notes)
        driver.finish(summary)
        if self.joblog is not None:
            self.joblog.close()
        self.progress.finish(summary)
        return code

    def _keep_sandboxes(self, driver: RunDriver) -> None:
        """Move kept sandboxes out of the store, which ends with this process."""
        store = driver.context.store
        assert store is not None
        for name in os.listdir(store.sandboxes):
            shutil.copytree(os.path.join(store.sandboxes, name), os.path.join(self.sandboxes, name), symlinks=True)
        try:
            os.rmdir(self.sandboxes)
        except OSError:  # there is something in it
            self.notes.append(f"sandboxes of failed tasks are kept in {self.sandboxes}")

    def _for_people(self, result: Any) -> Any:
        """The result as it will be true when this process has ended: with the last place of its sandbox, without a file that is gone."""
        sandbox = os.path.join(self.sandboxes, os.path.basename(result.sandbox)) if self.sandboxes and result.sandbox else result.sandbox
        return msgspec.structs.replace(result, sandbox=sandbox, whole=result.whole if result.tid in self.far else "")

    def _load(self, past: Past | None) -> tuple[Any, Any, None]:
        from amfs.client.place import FilesPlace
        from amfs.runs.expansion import Expander, take_in_made
        from amfs.translate.detect import checked, load
        from amfs.translate.shape import later_in_words

        source: Any = self.stream or (self.file if self.file != "-" else sys.stdin.buffer)
        place = FilesPlace(self.options.base, self.options.session)
        strict = self.given["strict"]
        if self.given["synthetic"]:
            arguments = self.given["arguments"]
            workflow = load(
                source,
                format=self.format,
                files=self.files,
                strict=strict,
                arguments=arguments,
                definitions=self.given["definitions"],
            )
            for words in later_in_words(workflow):
                self.progress.message(f"{words}; a replay makes no documents, so it is replayed as one task")
            workflow, plan = self._replay(workflow, place)
        else:
            hashed = self.options.hashed_outputs
            loaded = self._read(source)
            workflow = loaded.workflow
            plan = checked(loaded, place, None if past is None else lambda found: take_in_made(
                found, past, place.base, hashed, self.options.session, trust=self.options.resume == "trust"
            ))  # fmt: skip
            if plan.later:
                self.expander = Expander(workflow, plan, place, hashed, self.progress.message)
        for remark in workflow.remarks[:REMARKS_SHOWN]:
            self.progress.message(str(remark))
        if len(workflow.remarks) > REMARKS_SHOWN:
            self.progress.message(f"{len(workflow.remarks) - REMARKS_SHOWN} more remarks; `amfs translate {self.file}` shows all of them")
        return workflow.tasks, plan, None

    def _read(self, source: Any) -> Loaded:
        from amfs.translate.detect import read

        loaded = read(
            source,
            format=self.format,
            files=self.files,
            strict=self.given["strict"],
            shell=self.given["shell"],
            definitions=self.given["definitions"],
        )
        if catalog := self.given.get("catalog"):
            from amfs.translate.catalog import read_catalog

            try:
                found = read_catalog(catalog)
            except OSError as error:
                raise UsageError(f"{catalog}: {error.strerror or error}") from None
            except UnicodeDecodeError:
                raise UsageError(f"{catalog}: is not text in UTF-8") from None
            loaded.faults.extend(found.all_faults())
            loaded.workflow.paths.update(found.paths)
        return loaded

    def _replay(self, workflow: Workflow, place: FilesPlace) -> tuple[Workflow, Plan]:
        from amfs.cli.synthetic import make_given
        from amfs.libexec import program
        from amfs.translate.synthetic import replay
        from amfs.workflow.checks import check

        synthetic = program("amfs-synthetic")
        scales = {name: 1.0 if self.given[name] is None else self.given[name] for name in ("time_scale", "size_scale")}
        workflow, given = replay(workflow, synthetic, busy=self.given["busy"], **scales)
        make_given(synthetic, given, place.base)
        return workflow, check(workflow, place)

    def _is_document(self) -> bool:
        """Is what a pipe brings a document, or to be replayed? Then it must be read to its end before anything can run."""
        from amfs.translate.detect import DOCUMENTS, peek

        asked = self.given["synthetic"] or self.given.get("catalog") or self.given.get("jx_args") or self.given.get("jx_define")
        if asked or self.format in DOCUMENTS:
            return True
        if self.format != "auto" or (self.file == "-" and sys.stdin.isatty()):
            return False
        found, self.stream = peek(self.stream or self._open_stream())
        return found != ""

    def _open_stream(self) -> Any:
        from amfs.translate.detect import standard_input

        return standard_input() if self.file == "-" else open(self.file, "rb")  # lives as long as the thread that reads it

    def _open_list(self) -> tuple[Any, Any, Any]:
        from amfs.client.place import FilesPlace
        from amfs.workflow.checks import StreamChecker

        checker = StreamChecker(FilesPlace(self.options.base, self.options.session), self.options.source)
        return [], checker.plan, checker

    def _read_along(self, driver: RunDriver, checker: Any) -> None:
        """Read the list in a thread, as it grows; its tasks join the run in batches."""
        loop = driver.context.loop
        stream: Any = self.stream or self._open_stream()

        def fault(one: Fault) -> None:
            loop.post(lambda: self._fault(one))

        def follow() -> None:
            try:
                for task in self._tasks_of(stream, fault):
                    loop.post(lambda task=task: self._add(driver, checker, task))  # type: ignore[misc]
            except AmfsError as error:
                broken = error
                loop.post(lambda: self._break(broken))
            loop.post(lambda: self._end_of_list(driver, checker))

        threading.Thread(target=follow, name="list reader", daemon=True).start()

    def _tasks_of(self, stream: Any, on_fault: Callable[[Fault], None]) -> Iterator[Task]:
        """The tasks of a list that grows, in the thread that reads it."""
        from amfs.translate.detect import read_stream

        return read_stream(stream, format=self.format, source=self.options.source, on_fault=on_fault, shell=self.given["shell"])

    def _add(self, driver: RunDriver, checker: Any, task: Any) -> None:
        from amfs.runs.drive import add_checked

        for one in add_checked(driver, checker, [task]):
            self._fault(one)

    def _fault(self, fault: Fault) -> None:
        self.faulty = True
        if self.telling.tells(fault):
            self.progress.fault(str(fault))

    def _break(self, error: AmfsError) -> None:
        if isinstance(error, WorkflowError):
            for one in error.faults:
                self._fault(one)
        else:
            self.broken = error

    def _end_of_list(self, driver: RunDriver, checker: Any) -> None:
        self.open = False
        orphans = checker.finish()
        for line in self.telling.rest():
            self.progress.fault(line)
        for line in told(Fault("", 0, words) for words in orphans.values()):
            self.progress.message(line)
        driver.close_list(tuple(orphans))

    def _catch(self, driver: RunDriver) -> None:
        words = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated", signal.SIGHUP: "the terminal was closed"}

        def on_signal(number: int, frame: object) -> None:
            if self.signal:
                os._exit(128 + number)  # the kernel and the launcher's watcher end the tasks that run
            self.signal = number
            driver.context.loop.post(lambda: driver.interrupt(words[signal.Signals(number)]))

        signal.signal(signal.SIGINT, on_signal)
        signal.signal(signal.SIGTERM, on_signal)
        if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # nohup
            signal.signal(signal.SIGHUP, on_signal)

    def _skipped(self, tid: int, skipped: bool) -> None:
        """An earlier run has done a task of a list that grows; or it must run again."""

    def _ended(self, task: Any, result: Any) -> None:
        if self.joblog is not None and self.running is not None:
            self.joblog.add(self.running, self._number(task, result), task, result)
        if self.given["output"] == "json":
            cast("JsonProgress", self.progress).task_ended(task.id, _facts_of(result))
        self._show(task, result)

    def _number(self, task: Any, result: Any) -> int:
        """The task's number in the job log."""
        return int(result.tid) + 1

    def _show(self, task: Any, result: Any) -> None:
        """Print the task's output, and why it failed."""
        failed = result.outcome != Outcome.OK
        if failed and (result.outcome == Outcome.UPSTREAM_FAILED or self.signal):
            return
        whole = self._whole(task, result)
        if result.stdout or whole or (result.stderr and not failed):
            self.progress.task_output(task.id, result.stdout, b"" if failed else result.stderr, whole)
        if whole:
            os.unlink(whole)
        if failed:
            from amfs.runs.tally import told

            self.progress.task_failed(task.id, told(self._for_people(result)), result.stderr)

    def _whole(self, task: Any, result: Any) -> str:
        """The file with all that a task wrote to stdout, if its result holds the beginning only."""
        if not result.whole:
            return ""
        if os.path.isfile(result.whole):
            size = os.path.getsize(result.whole)
            if size < result.stdout_bytes:
                more = f"only the first {size} are passed on (declare a file to have more)"
                self.progress.fault(f"task {task.id} printed {result.stdout_bytes} bytes; {more}")
            return str(result.whole)
        self.far.add(result.tid)
        where = f"all {result.stdout_bytes} bytes of stdout: {result.whole}"
        self.progress.fault(f"task {task.id} printed more than is passed on here; node {result.node} has {where}")
        return ""


def grows(file: str) -> bool:
    """Is it a pipe, a terminal or a socket, whose end may be far away?"""
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode if file == "-" else os.stat(file).st_mode
    except (OSError, ValueError):
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISCHR(mode) or stat.S_ISSOCK(mode)
