"""The Python interface: ``amfs.run`` for a whole workflow, ``amfs.Session`` to add tasks while others run.

::

    with amfs.Session(slots=4) as s:
        made = [s.submit(["simulate", str(i), f"out{i}"], outputs=[f"out{i}"]) for i in range(100)]
        s.wait(made)
        s.submit(["summarise", "summary", *(f"out{i}" for i in range(100))], inputs=[...], outputs=["summary"])

A session's poll loop runs in a thread of its own; the methods here may be called from any one thread at a time.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Unpack

from amfs.display.front_end import cell_number, in_notebook
from amfs.errors import AmfsError, UsageError, WorkflowError
from amfs.runs.context import RunOptions
from amfs.runs.drive import add_checked, drive, open_run
from amfs.runs.driver import exit_code_of
from amfs.runs.interrupts import say, watch
from amfs.runs.journal import read
from amfs.runs.keywords import CommonKeywords, RunKeywords, TaskKeywords
from amfs.runs.live import LiveRun
from amfs.runs.tally import told
from amfs.vocabulary.states import Outcome
from amfs.workflow.checks import StreamChecker
from amfs.workflow.workflow import Task, Workflow

if TYPE_CHECKING:
    from amfs.display.html import Drawing
    from amfs.display.progress import Summary
    from amfs.display.summary import Failure
    from amfs.vocabulary.messages import Result

T = TypeVar("T")


class TaskFailed(AmfsError):
    """A task that was waited for has failed. ``handle`` is it."""

    def __init__(self, handle: Handle, message: str) -> None:
        super().__init__(message)
        self.handle = handle


class RunResult:
    """How a run ended. ``exit_code`` as that of ``amfs run``; ``str`` gives the summary as text. Notebooks show it as a table."""

    def __init__(self, summary: Summary, workflow: Workflow, trace: RunTrace, told_in: int = 0) -> None:
        """``told_in``: the cell that has shown already how the run ended."""
        self.summary = summary
        self._told_in = told_in
        self.exit_code = summary.exit_code
        self.workflow = workflow
        self._trace = trace

    def timeline(self) -> Drawing:
        """When each slot was busy, from the run's trace: one is kept in notebooks, and where the option ``trace`` names a file. Else raises
        UsageError."""
        return self._trace.timeline()

    def graph(self, grouped: bool | None = None) -> Drawing:
        """Which task waited for which: see ``amfs.graph``."""
        return graph(self.workflow, grouped)

    def _repr_html_(self) -> str:
        from amfs.display.html import summary_html

        return summary_html(self.summary, ended=not self._told_in or self._told_in != cell_number())

    def __repr__(self) -> str:
        return f"<amfs run: {self.summary.outcome}, {self.summary.count('ok')} tasks finished>"

    @property
    def ok(self) -> bool:
        """Did every task finish?"""
        return self.exit_code == 0

    @property
    def failures(self) -> list[Failure]:
        """The tasks that failed by themselves (``id``, ``what``, ``stderr``, ``where``, ``node``)."""
        return list(self.summary.failures)

    def __str__(self) -> str:
        from amfs.display.progress import summary_text

        return summary_text(self.summary)


def graph(workflow: Workflow | str | os.PathLike[str] | Iterable[Task], grouped: bool | None = None) -> Drawing:
    """A picture of a workflow, for notebooks: which task waits for which. ``grouped``: one box for tasks of one kind and level (None: when
    there are many). Raises WorkflowError if a list cannot be read."""
    from amfs.display.html import Drawing
    from amfs.translate.detect import load
    from amfs.translate.svg import write

    if isinstance(workflow, (str, os.PathLike)):
        workflow = load(workflow)
    elif not isinstance(workflow, Workflow):
        workflow = Workflow(_checked(workflow))
    return Drawing(write(workflow, grouped))


class RunTrace:
    """Where the trace of a run is: the file that ``options.trace`` names, in notebooks else a file in memory; or nowhere."""

    def __init__(self, options: RunOptions) -> None:
        if not options.trace and in_notebook():
            descriptor = os.memfd_create("amfs-trace")
            weakref.finalize(self, os.close, descriptor)
            options.trace = f"/proc/self/fd/{descriptor}"
        self.path = options.trace

    def timeline(self) -> Drawing:
        from amfs.runs.timeline import draw
        from amfs.runs.trace import read_trace

        if not self.path:
            raise UsageError("a timeline needs a trace: run it with trace=FILE")
        return draw(read_trace(self.path))


def _checked(tasks: Iterable[Task]) -> list[Task]:
    """The tasks, if each is one. Raises TypeError."""
    found = list(tasks)
    for task in found:
        if not isinstance(task, Task):
            raise TypeError(f"a workflow has tasks (amfs.Task), and this is of type {type(task).__name__}: {task!r:.100}")
        for name in ("argv", "inputs", "outputs", "keep", "scratch", "after", "env"):
            _refuse_text(f"task {task.id}: {name}", getattr(task, name))
    return found


def _refuse_text(name: str, value: object) -> None:
    """A text is a sequence, too: of its letters."""
    if isinstance(value, str):
        raise TypeError(f"{name} must be a tuple or list of texts, and this is one text: {value!r:.100}")


def run(
    workflow: Workflow | str | os.PathLike[str] | Iterable[Task], **options: Unpack[RunKeywords]
) -> RunResult:
    """Run a workflow to its end: a Workflow, the path of a list in any format that ``amfs run`` reads, or tasks. ``progress``: show it
    (None: in notebooks).

    ``options`` are those of ``RunOptions`` (slots, session, base, retries, fail_fast, keep_all, journal, resume, …). Raises WorkflowError
    with every fault found before anything runs; a task that fails raises nothing, see the result.
    """
    from amfs.client.place import FilesPlace
    from amfs.display.choice import make_progress
    from amfs.runs.expansion import Expander, take_in_made
    from amfs.translate.detect import load
    from amfs.workflow.checks import check

    wanted = options.pop("progress", None)
    chosen = _options(options)
    progress = in_notebook() if wanted is None else wanted
    trace = RunTrace(chosen)
    if isinstance(workflow, (str, os.PathLike)):
        chosen.source = chosen.source or os.fspath(workflow)
        workflow = load(workflow)
    elif not isinstance(workflow, Workflow):
        workflow = Workflow(_checked(workflow))
    shown = make_progress(quiet=not progress)
    past = read(chosen.journal) if chosen.resume and chosen.journal is not None else None
    place = FilesPlace(chosen.base, chosen.session)
    if past is not None:
        take_in_made(workflow, past, chosen.base, chosen.hashed_outputs, chosen.session, trust=chosen.resume == "trust")
    plan = check(workflow, place)
    expander = Expander(workflow, plan, place, chosen.hashed_outputs, shown.message) if plan.later else None
    with _told_if_interrupted(), open_run(chosen, workflow.tasks, plan, past=past, expander=expander) as driver:
        driver.begin()
        shown.start(len(workflow.tasks), len(driver.submitter.members), sum(driver.submitter.members.values()))
        drive(driver, shown)
        assert driver.over is not None
        code, outcome = exit_code_of(driver)
        summary = driver.summary(code, outcome, [driver.over.reason] if driver.over.reason else [])
        driver.finish(summary)
        if progress:
            shown.finish(summary)
        return RunResult(summary, workflow, trace, cell_number() if progress else 0)


@contextlib.contextmanager
def _told_if_interrupted() -> Iterator[None]:
    """In a notebook: one sentence, when all has ended."""
    try:
        yield
    except KeyboardInterrupt:
        say()
        raise


def _options(given: Mapping[str, Any]) -> RunOptions:
    known = set(RunOptions.__struct_fields__)
    unknown = sorted(set(given) - known)
    if unknown:
        raise UsageError(f"unknown option{'s' if len(unknown) > 1 else ''} {', '.join(unknown)}; there are: {', '.join(sorted(known))}")
    options = RunOptions(**given)
    options.base = os.path.abspath(options.base or os.getcwd())
    if options.journal is not None:
        options.journal = Path(options.journal)
    return options


class Handle:
    """A task that was submitted."""

    __slots__ = ("_done", "index", "result", "skipped", "task")

    def __init__(self, task: Task, index: int) -> None:
        self.task = task
        self.index = index
        self.result: Result | None = None
        self.skipped = False  # an earlier run had done it
        self._done = False

    @property
    def id(self) -> str:
        return self.task.id

    @property
    def done(self) -> bool:
        """Has it ended, one way or the other?"""
        return self._done

    @property
    def ok(self) -> bool:
        """Has it finished well?"""
        return self._done and (self.result is None or not self.result.outcome)

    @property
    def state(self) -> str:
        """In words."""
        return "waiting or running" if not self._done else "finished" if self.ok else "failed"

    def __repr__(self) -> str:
        return f"<amfs task {self.task.id}: {self.state}>"

    def _repr_html_(self) -> str:
        from amfs.display.html import task_html

        result = self.result
        about = f", node {result.node}, {(result.end_us - result.start_us) / 1e6:.3g} s" if result is not None and result.start_us else ""
        failure = (told(result), result.stderr) if result is not None and result.outcome else None
        return task_html(self.task.id, self.state + about, self.task.argv, failure)


class Session:
    """A run that stays open: tasks are added while others run.

    ``slots``: tasks at a time (embedded). ``session``: name of a session of node servers to run in ("" the newest); None: embedded in
    this process. ``base``: the directory that names are relative to. ``journal`` and ``resume``: as for ``amfs run``; a resumed session
    skips tasks that are submitted again just as they were. ``progress``: show it. Further keywords: see ``RunOptions``.

    Files are kept in memory until the session is closed; then those that no task reads, and those submitted with ``keep``, are (or
    have been) copied to shared storage, and the rest is dropped.
    """

    def __init__(
        self,
        *,
        slots: int | None = None,
        session: str | None = None,
        base: str | os.PathLike[str] | None = None,
        journal: str | os.PathLike[str] | None = None,
        resume: bool | Literal["trust"] = False,
        progress: bool = False,
        **options: Unpack[CommonKeywords],
    ) -> None:
        from amfs.client.place import FilesPlace
        from amfs.display.choice import make_progress

        self._options = _options({
            **options,
            "slots": slots or 0,
            "session": session,
            "base": os.fspath(base) if base is not None else "",
            "journal": Path(journal) if journal is not None else None,
            "resume": resume,
        })  # fmt: skip
        self._show = progress
        self._progress = make_progress(quiet=not self._show)
        self._trace = RunTrace(self._options)
        past = read(self._options.journal) if resume and self._options.journal is not None else None
        self._checker = StreamChecker(FilesPlace(self._options.base, self._options.session), "session")
        self._plan = self._checker.plan
        self._handles: list[Handle] = []
        self._changed = threading.Condition()
        self._closed = False
        self._broken: BaseException | None = None
        self._summary: Summary | None = None
        self.on_ended: Callable[[Handle], None] | None = None  # called in the loop's thread when a task has ended; must not wait
        with contextlib.ExitStack() as stack:
            self._driver = stack.enter_context(
                open_run(self._options, [], self._plan, open_ended=True, past=past, on_ended=self._ended, on_skip=self._skip)
            )
            self._live = LiveRun(self._driver, self._check_open)
            self._driver.begin()
            self._run = stack.pop_all()
        members = self._driver.submitter.members
        self._progress.start(None, len(members), sum(members.values()))
        self._thread = threading.Thread(target=self._drive, name="amfs session", daemon=True)
        self._thread.start()
        self._process = os.getpid()
        atexit.register(self._at_exit)
        watch(self)

    # ── the loop's thread ──────────────────────────────────────────────────────────────────────────

    def _drive(self) -> None:
        try:
            drive(self._driver, self._progress, grows=lambda: True)
        except BaseException as error:
            self._broken = error
        with self._changed:
            self._changed.notify_all()

    def _ended(self, task: Task, result: Result) -> None:
        handle = self._handles[result.tid]
        if result.outcome and self._show and result.outcome != Outcome.UPSTREAM_FAILED:
            self._progress.task_failed(task.id, told(result), result.stderr)
        with self._changed:
            handle.result = result
            handle._done = True
            self._changed.notify_all()
        if self.on_ended is not None:
            self.on_ended(handle)

    def _check_open(self) -> None:
        if self._closed:
            raise UsageError("the session is closed")
        self._check_alive()

    def _check_alive(self) -> None:
        if self._broken is not None:
            raise self._broken
        if not self._thread.is_alive() and self._driver.over is None:
            raise AmfsError("the session's loop has ended")

    # ── tasks ──────────────────────────────────────────────────────────────────────────────────────

    def submit(
        self,
        argv: Sequence[str | os.PathLike[str]] | str,
        *,
        id: str | None = None,
        inputs: Iterable[str] = (),
        outputs: Iterable[str] = (),
        keep: bool | Iterable[str] = False,
        **fields: Unpack[TaskKeywords],
    ) -> Handle:
        """Add one task. ``argv``: words, or one string that a shell runs. ``keep``: copy its outputs (True: all) to shared storage
        as soon as they are made. Further keywords: fields of ``Task`` (stdin, stdout, env, cores, label, retries, …).

        Raises WorkflowError if the task is faulty: then it was not added.
        """
        for name, names in (("inputs", inputs), ("outputs", outputs), ("keep", keep)):
            _refuse_text(name, names)
        words = ("/bin/sh", "-c", argv) if isinstance(argv, str) else tuple(os.fspath(word) for word in argv)
        made = tuple(outputs)
        kept = made if keep is True else tuple(keep) if keep else ()
        task = Task(id or f"{len(self._handles) + 1}", words, tuple(inputs), made, keep=kept, **fields)
        return self.submit_tasks([task])[0]

    def submit_tasks(self, tasks: Iterable[Task]) -> list[Handle]:
        """Add many at once. Raises WorkflowError with the faults of all; then those before the first faulty one were added."""
        given = _checked(tasks)
        return self._live.in_loop(lambda: self._add(given))

    def _add(self, tasks: list[Task]) -> list[Handle]:
        first = len(self._handles)
        if faults := add_checked(self._driver, self._checker, tasks, lambda task: self._handles.append(Handle(task, len(self._handles)))):
            raise WorkflowError(faults)
        return self._handles[first:]

    def _skip(self, tid: int, skipped: bool) -> None:
        """An earlier run has done this task; or it has, and the task must run again all the same."""
        handle = self._handles[tid]
        handle.skipped = handle._done = skipped

    def _want(self, name: str) -> Handle | None:
        """The task that makes ``name`` again, if that is necessary; None: the file is there, or nobody makes it."""
        return self._handles[self._plan.writers[name]] if self._driver.want(name) else None

    def wait(self, handles: Iterable[Handle] | None = None, timeout: float | None = None) -> None:
        """Until these tasks (default: all so far) have ended. Raises TaskFailed for the first that failed, TimeoutError after
        ``timeout`` seconds, and, without a timeout, AmfsError for a file that is waited for and that no task so far makes."""
        waited = list(self._handles if handles is None else handles)
        end = None if timeout is None else time.monotonic() + timeout
        idle = 0
        with self._changed:
            for handle in waited:
                while not handle._done:
                    self._check_alive()
                    if self._driver.over is not None:
                        raise AmfsError(f"the run ended before task {handle.id}: {self._driver.over.reason}")
                    left = None if end is None else end - time.monotonic()
                    if left is not None and left <= 0:
                        raise TimeoutError(f"task {handle.id} has not ended after {timeout} s")
                    idle = 0 if self._changed.wait(1.0 if left is None else min(1.0, left)) else idle + 1
                    if end is None and idle >= 2 and (missing := self._unmade_for(handle)):
                        raise AmfsError(f"task {handle.id} waits for {missing!r}, which no task of this session makes")
        for handle in waited:
            if not handle.ok:
                raise TaskFailed(handle, self.why(handle))

    def _unmade_for(self, handle: Handle) -> str:
        """A file for which the task waits, itself or through others, and which nobody makes so far; '' if there is none."""
        seen = {handle.index}
        todo = [handle]
        while todo:
            for name in todo.pop().task.inputs:
                name = self._plan.aliases.get(name, name)
                if name in self._checker.unmade:
                    return name
                writer = self._plan.writers.get(name)
                if writer is not None and writer not in seen and not self._handles[writer]._done:
                    seen.add(writer)
                    todo.append(self._handles[writer])
        return ""

    def why(self, handle: Handle) -> str:
        """Why a task failed, with the end of its standard error."""
        result = handle.result
        assert result is not None
        tail = result.stderr.decode("utf-8", "replace").strip().splitlines()[-5:]
        return "\n  ".join([f"task {handle.id}: {told(result)}", *tail])

    def read(self, name: str) -> bytes:
        """The content of a file that a task of this session made, wherever it is. Raises FileNotFoundError when none has made it, and
        TaskFailed when the file was lost with an earlier run and could not be made again."""
        lost = self._live.in_loop(lambda: self._want(name))
        if lost is not None:
            self.wait([lost])
        return self._live.content(name)

    def makes(self, name: str) -> bool:
        """Is the file an output of a task of this session, ended or not?"""
        return self._live.makes(name)

    def forget(self, names: Sequence[str]) -> None:
        """Let go of scratch files that tasks of this session have made: their readers have ended, and no task that reads them will be
        added. Until then such files stay to the end of the session."""
        self._live.in_loop(lambda: self._driver.forget(names))

    def locate(self, name: str) -> list[int]:
        """Which nodes hold a file that a task of this session has made."""
        return self._live.locate(name)

    @property
    def number(self) -> int:
        """Of its run, as nodes tell it of their tasks at work."""
        return self._driver.context.run

    def nodes(self) -> list[str]:
        """The names of the nodes' hosts, by number of the node."""
        return self._live.nodes()

    def summary(self) -> str:
        """Tasks that ran and failed, and bytes that moved, as text (the paper's Table 2 by stage)."""
        from amfs.display.progress import summary_text

        if self._summary is None:
            return summary_text(self._live.in_loop(lambda: self._driver.summary(0, "finished")))
        return summary_text(self._summary)

    def timeline(self) -> Drawing:
        """When each slot was busy so far: see ``RunResult.timeline``."""
        if not self._closed:
            self._live.in_loop(lambda: self._driver.trace.flush() if self._driver.trace is not None else None)
        return self._trace.timeline()

    def graph(self, grouped: bool | None = None) -> Drawing:
        """Which task waits for which, of the tasks so far: see ``amfs.graph``."""
        return graph(Workflow([handle.task for handle in self._handles], "session"), grouped)

    def __repr__(self) -> str:
        ended = sum(handle.done for handle in self._handles)
        return f"<amfs session: {ended} of {len(self._handles)} tasks have ended{', closed' if self._closed else ''}>"

    def _repr_html_(self) -> str:
        from amfs.display.html import session_html

        closed = f"; {self.over or 'closed'}" if self._closed or self.over else ""
        return session_html([(handle.id, handle.state) for handle in self._handles], closed)

    def close(self) -> None:
        """Wait for all tasks, copy out what is final, end. Failed tasks raise nothing here (``wait`` does). Repeatable. Raises AmfsError
        when the run ended early or a final file could not be copied out."""
        if self._closed:
            return
        try:
            self._check_alive()
            self._live.in_loop(lambda: self._driver.close_list(tuple(self._checker.finish())))
            self._thread.join()
            if self._broken is not None:
                raise self._broken
        except BaseException:
            self._abandon("interrupted")
            raise
        self._end()
        if self._driver.over is not None and self._driver.over.reason:
            raise AmfsError(f"the run ended before its tasks had: {self._driver.over.reason}")
        if self._driver.tally.flush_errors:
            raise AmfsError("\n  ".join(["not copied to shared storage:", *self._driver.tally.flush_errors[:10]]))

    @property
    def over(self) -> str:
        """Why the run has ended by itself, '' while it goes on."""
        if self._broken is not None:
            return str(self._broken)
        return self._driver.over.reason if self._driver.over is not None else ""

    def stop(self, reason: str) -> None:
        """End the run now and kill its tasks. Repeatable."""
        self._abandon(reason)

    def interrupt(self) -> None:
        """The same, when the kernel of a notebook was interrupted."""
        self._abandon("interrupted")

    def _at_exit(self) -> None:
        """A program that forgets to close leaves nothing behind all the same. Not for a forked child: the session is its parent's."""
        if os.getpid() == self._process:
            self._abandon("the program ended")

    def _abandon(self, reason: str) -> None:
        """Stop at once: kill what runs, keep the journal."""
        if self._thread.is_alive():
            self._driver.context.loop.post(lambda: self._driver.stop(reason))
            self._thread.join(20.0)
        self._end()

    def _end(self) -> None:
        if self._closed:
            return
        self._closed = True
        atexit.unregister(self._at_exit)
        if self._driver.over is not None:
            code, outcome = exit_code_of(self._driver)
            self._summary = self._driver.summary(code, outcome)
            if self._show:
                self._progress.finish(self._summary)
        self._driver.finish(self._summary)
        self._run.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if kind is None:
            self.close()
        else:
            self._abandon("interrupted" if issubclass(kind, KeyboardInterrupt) else "stopped by an error")
