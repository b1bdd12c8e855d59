"""``amfs run``: run a workflow and say how it went."""

from __future__ import annotations

import errno
import os
import re
import shutil
import signal
import stat
import sys
import tempfile
import threading
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from amfs.cli.completion import local_files, session_names
from amfs.engine.states import Outcome
from amfs.errors import AmfsError, Fault, SessionError, Telling, UsageError, WorkflowError, told

_NO_SPACE = os.strerror(errno.ENOSPC).encode()

#: How the launcher says where it saved what a task printed, if that is more than goes into a message.
_WHOLE = re.compile(
    r"(?:; |\A)(?:all|(only the first) \d+ of) (\d+) bytes of stdout(?: \(.*?\))?: (/.*?)(?=; sandbox kept: |\Z)", re.DOTALL
)

if TYPE_CHECKING:
    from amfs.client.place import FilesPlace
    from amfs.display.progress import Progress
    from amfs.engine.checks import Plan
    from amfs.engine.workflow import Workflow
    from amfs.runs.context import RunOptions
    from amfs.runs.driver import RunDriver
    from amfs.runs.expansion import Expander
    from amfs.runs.journal import Past

#: Remarks on a document that are shown; they are one for each kind of construct.
REMARKS_SHOWN = 20


@click.command(
    epilog="Exit status: 0 all tasks finished; 1 some failed; 2 the list is faulty, nothing ran; 3 stopped before the end; 4 the "
    "session does not answer; 5 this machine lacks something; 130 interrupted."
)
@click.argument("file", default="-", shell_complete=local_files)
@click.argument("arguments", nargs=-1, metavar="[-- ARGUMENTS OF A SCRIPT]")
@click.option(
    "--format",
    "format_",
    default="auto",
    help="tasklist, jsonl, commands, usage, dax, pegasus, wfformat, makeflow, swift-t or swift-k; found by content when not given.",
)
@click.option("--strict", is_flag=True, help="Constructs that have no meaning here are faults, not remarks.")
@click.option("--synthetic", is_flag=True, help="Replay: instead of its program every task reads, waits and writes as was recorded.")
@click.option("--time-scale", type=click.FloatRange(0), metavar="X", help="With --synthetic: recorded times times this. Default: 1.")
@click.option("--size-scale", type=click.FloatRange(0), metavar="X", help="With --synthetic: recorded sizes times this. Default: 1.")
@click.option("--busy", is_flag=True, help="With --synthetic: tasks keep a CPU busy instead of sleeping.")
@click.option("--files", type=click.Path(), help="A file list that goes with the task list.")
@click.option("-j", "--slots", type=click.IntRange(1), help="Tasks at a time on this machine (without a session). Default: one per CPU.")
@click.option("--memory", default="0", help="Memory for tasks that state theirs, such as 16G. Default: not accounted.")
@click.option("--session", shell_complete=session_names, help="Run in this session. Default: the newest live one, if any.")
@click.option("--local", is_flag=True, help="Run inside this command even if a session is up.")
@click.option("-C", "--directory", type=click.Path(), help="Stand in this directory: names are relative to it. Default: the current one.")
@click.option("--retries", type=click.IntRange(0), default=0, help="Attempts beyond the first for tasks that do not say. Default: 0.")
@click.option("--fail-fast", is_flag=True, help="Stop at the first task that fails. Default: run all that do not depend on it.")
@click.option("--keep-all", is_flag=True, help="Copy every output to shared storage, not only those that no task reads.")
@click.option("--keep-sandbox", is_flag=True, help="Keep the sandboxes of failed tasks to look into.")
@click.option(
    "--hashed-outputs",
    type=click.IntRange(0),
    default=0,
    metavar="N",
    help="Spread final outputs over N hashed directories. Default: 0, none.",
)
@click.option(
    "--shared-inputs",
    type=click.Choice(["in-place", "stage"]),
    default="in-place",
    help="Read shared inputs where they are, or copy each once into the node's memory. Default: in-place.",
)
@click.option(
    "--placement",
    type=click.Choice(["data-aware", "even"]),
    default="data-aware",
    help="Where tasks go: to their data, or evenly round. Default: data-aware.",
)
@click.option("--resume", is_flag=True, help="Do only what an earlier run of the same list did not finish.")
@click.option("--journal", type=click.Path(), help="Keep the journal here. Default: found by the list's path and directory.")
@click.option("--no-journal", is_flag=True, help="Keep none; such a run cannot be resumed.")
@click.option("--trace", default="", metavar="FILE", help="Write what happened, in Chrome's trace format; see `amfs report`.")
@click.option(
    "--store", default="", metavar="DIR", help="Where the files between tasks are kept. Default: /dev/shm, or $TMPDIR if that has no room."
)
@click.option("-q", "--quiet", is_flag=True, help="Only what fails.")
@click.option(
    "--output",
    type=click.Choice(["text", "json"]),
    default="text",
    help="Progress and summary as text (default) or as JSON Lines.",
)
def run(file: str, arguments: tuple[str, ...], **given: Any) -> int:
    """Run the workflow in FILE: a task list, JSON Lines, plain command lines ("-": standard input, also while it grows), or a document:
    Pegasus DAX or YAML, WfFormat, Makeflow; or a Swift script (Swift/T or Swift/K).

    Names in it are relative to the current directory: inputs are found there, final outputs land there.

    \b
      amfs run tasks.txt                       a task list: ID -b PROGRAM -i IN … -o OUT … -a ARGUMENTS
      amfs run -j 8 commands.txt               command lines, eight at a time
      ls *.log | sed 's/^/gzip /' | amfs run   command lines as they come
      amfs run --resume tasks.txt              what an earlier run did not finish
      amfs run --synthetic --time-scale 0.01 montage.dax    a replay, a hundred times faster
      amfs run sweep.swift -- -n=100           a script and its arguments
    """
    from amfs.display.choice import make_progress

    if file == "-" and sys.stdin is None:
        raise UsageError("cannot read the list: standard input is closed")
    script = script_format(file, given["format_"])
    if arguments and not script:
        raise UsageError(f"{file} is no script, so it takes no arguments")
    with _place(given) as directory:
        options = _options(file, {**given, "directory": directory})
        progress = make_progress(output=given["output"], quiet=given["quiet"])
        if script and not given["synthetic"]:
            from amfs.cli.run_script import ScriptDriver

            if given["files"] is not None:
                raise UsageError("--files is for task lists, and this is a script")
            driver: Driver = ScriptDriver(file, options, progress, script, arguments, given)
        else:
            driver = Driver(file, options, progress, given["format_"], given["files"], {**given, "arguments": arguments})
        driver.journal_asked = given["journal"] is not None or given["resume"]
        return driver.run()


def script_format(file: str, format: str) -> str:
    """The format of a script, by what the user says or what is in the file; '' if it is none."""
    from amfs.translate.detect import SCRIPTS, peek

    if format != "auto":
        return format if format in SCRIPTS else ""
    if file == "-" or _grows(file):
        return ""
    try:
        with open(file, "rb") as opened:
            found, _ = peek(opened, file)
    except OSError:
        return ""  # whoever reads it says so
    return found if found in SCRIPTS else ""


def _place(given: dict[str, Any]) -> AbstractContextManager[str | None]:
    """Where the run stands."""
    if not given["synthetic"]:
        for option in ("time_scale", "size_scale", "busy"):
            if given[option] not in (None, False):
                raise UsageError(f"--{option.replace('_', '-')} needs --synthetic")
        return nullcontext(given["directory"])
    if given["resume"]:
        raise UsageError("--synthetic and --resume exclude each other: a replay begins from the beginning")
    from amfs.cli.synthetic import stage

    given["no_journal"] = True
    return stage(given["directory"] or "")


def _options(file: str, given: dict[str, Any]) -> RunOptions:
    from amfs.runs.context import RunOptions
    from amfs.runs.journal import default_path
    from amfs.translate.tasklist import parse_size

    base = os.path.abspath(given["directory"] or os.getcwd())
    if not os.path.isdir(base):
        raise UsageError(f"no such directory: {base}")
    if given["session"] is not None and given["local"]:
        raise UsageError("--session and --local exclude each other")
    try:
        memory = parse_size(given["memory"])
    except ValueError as error:
        raise UsageError(f"--memory: {error}") from None
    journal = None
    if given["journal"]:
        journal = Path(given["journal"])
    elif not given["no_journal"] and file != "-":
        journal = default_path(file, base)
    if given["resume"] and journal is None:
        why = "--resume needs a journal: name one with --journal" if file == "-" else "--resume and --no-journal exclude each other"
        raise UsageError(why)
    session = given["session"]
    if session is None and not given["local"]:
        session = _live_session()
    if session is not None and given["slots"]:
        raise UsageError("--slots is for runs without a session; a session's nodes have theirs (amfs up --slots), or say --local")
    return RunOptions(
        slots=given["slots"] or 0,
        memory=memory,
        session=session,
        base=base,
        keep_all=given["keep_all"],
        keep_sandbox=given["keep_sandbox"],
        hashed_outputs=given["hashed_outputs"],
        stage_shared=given["shared_inputs"] == "stage",
        data_aware=given["placement"] == "data-aware",
        retries=given["retries"],
        fail_fast=given["fail_fast"],
        want_output=True,
        store=given["store"],
        journal=journal,
        resume=given["resume"],
        trace=given["trace"],
        source=file if file != "-" else "standard input",
    )


def _live_session() -> str | None:
    """The name of the session that $AMFS_SESSION names, else of the newest live one; None if there is none."""
    from amfs.client import discovery

    try:
        return discovery.find(probe_s=0.3).name
    except SessionError:
        if os.environ.get("AMFS_SESSION"):
            raise
        return None


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

    def run(self) -> int:
        from amfs.node.loop import now
        from amfs.runs.context import RunContext
        from amfs.runs.driver import RunDriver
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
        growing = self.unfolds or (_grows(self.file) and not self._is_document())
        tasks, plan, checker = self._open_list() if growing else self._load(past)
        context = RunContext(options, adopt=past.header.store if past is not None and past.header.base == plan.base else "")
        driver = None
        try:
            driver = RunDriver(
                context, tasks, plan, options, open_ended=growing, past=past, on_ended=self._ended, on_skip=self._skipped,
                expander=self.expander,
            )  # fmt: skip
            self._catch(driver)
            if options.keep_sandbox and options.session is None:
                self.sandboxes = tempfile.mkdtemp(prefix="amfs-sandboxes-")
            driver.begin()
            members = driver.submitter.members
            self.progress.start(None if growing else len(tasks), len(members), sum(members.values()))
            if options.trace:
                from amfs.runs.trace import TraceWriter

                driver.trace = TraceWriter(options.trace, name=options.source, nodes=len(members), slots=sum(members.values()))
            if growing:
                self.open = True
                if self.file == "-" and not self.unfolds and sys.stdin.isatty():
                    self.progress.message("reading tasks from the terminal, one a line; Ctrl-D ends the list")
                self._read_along(driver, checker)
            shown = now()
            gone = 0
            while driver.over is None:
                driver.turn(min(1.0, self.progress.interval))
                time_now = now()
                for node in driver.tally.lost_nodes[gone:]:
                    self.progress.message(f"node {node} was lost; what it had and is still wanted is made again")
                gone = len(driver.tally.lost_nodes)
                if time_now - shown >= self.progress.interval:
                    shown = time_now
                    self.progress.update(driver.snapshot(self.open))
                if self.broken is not None:
                    raise self.broken
            return self._finish(driver)
        finally:
            if driver is not None:
                driver.finish()
                if driver.trace is not None:
                    driver.trace.close()
            context.close()

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
            result.outcome != Outcome.OUTPUT_LOST and _NO_SPACE in result.stderr + result.detail.encode("utf-8", "replace")
            for _, result in driver.tally.failures
        ):
            self.notes.append(f"files between tasks and sandboxes are in {store.path.parent}: if that is what is full, see --store")
        if self.sandboxes:
            self._keep_sandboxes(driver)
        driver.tally.failures = [(tid, self._for_people(result)) for tid, result in driver.tally.failures]
        summary = driver.summary(code, outcome, self.notes)
        if driver.trace is not None:
            from amfs.display.progress import summary_fields

            driver.trace.close(summary_fields(summary))
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
        detail = _WHOLE.sub(lambda found: found[0] if result.tid in self.far else "", result.detail)
        if self.sandboxes:
            detail = re.sub(r"(; sandbox kept: )/.*(/[^/]+)\Z", lambda found: f"{found[1]}{self.sandboxes}{found[2]}", detail)
        return msgspec.structs.replace(result, detail=detail)

    def _load(self, past: Past | None) -> tuple[Any, Any, None]:
        from amfs.client.place import FilesPlace
        from amfs.runs.expansion import Expander, take_in_made
        from amfs.translate.detect import load, load_checked
        from amfs.translate.shape import later_in_words

        source: Any = self.stream or (self.file if self.file != "-" else sys.stdin.buffer)
        place = FilesPlace(self.options.base, self.options.session)
        strict = self.given["strict"]
        if self.given["synthetic"]:
            arguments = self.given["arguments"]
            workflow = load(source, format=self.format, files=self.files, strict=strict, arguments=arguments)
            for words in later_in_words(workflow):
                self.progress.message(f"{words}; a replay makes no documents, so it is replayed as one task")
            workflow, plan = self._replay(workflow, place)
        else:
            hashed = self.options.hashed_outputs
            workflow, plan = load_checked(
                source, place, format=self.format, files=self.files, strict=strict,
                prepare=None if past is None else lambda found: take_in_made(found, past, place.base, hashed),
            )  # fmt: skip
            if plan.later:
                self.expander = Expander(workflow, plan, place, hashed, self.progress.message)
        for remark in workflow.remarks[:REMARKS_SHOWN]:
            self.progress.message(str(remark))
        if len(workflow.remarks) > REMARKS_SHOWN:
            self.progress.message(f"{len(workflow.remarks) - REMARKS_SHOWN} more remarks; `amfs translate {self.file}` shows all of them")
        return workflow.tasks, plan, None

    def _replay(self, workflow: Workflow, place: FilesPlace) -> tuple[Workflow, Plan]:
        from amfs.cli.synthetic import make_given
        from amfs.engine.checks import check
        from amfs.libexec import program
        from amfs.translate.synthetic import replay

        synthetic = program("amfs-synthetic")
        scales = {name: 1.0 if self.given[name] is None else self.given[name] for name in ("time_scale", "size_scale")}
        workflow, given = replay(workflow, synthetic, busy=self.given["busy"], **scales)
        make_given(synthetic, given, place.base)
        return workflow, check(workflow, place)

    def _is_document(self) -> bool:
        """Is what a pipe brings a document, or to be replayed? Then it must be read to its end before anything can run."""
        from amfs.translate.detect import DOCUMENTS, peek

        if self.given["synthetic"] or self.format in DOCUMENTS:
            return True
        if self.format != "auto" or (self.file == "-" and sys.stdin.isatty()):
            return False
        found, self.stream = peek(self._open_stream())
        return found != ""

    def _open_stream(self) -> Any:
        return sys.stdin.buffer if self.file == "-" else open(self.file, "rb")  # lives as long as the thread that reads it

    def _open_list(self) -> tuple[Any, Any, Any]:
        from amfs.client.place import FilesPlace
        from amfs.engine.checks import StreamChecker

        checker = StreamChecker(FilesPlace(self.options.base, self.options.session), self.options.source)
        return [], checker.plan, checker

    def _read_along(self, driver: RunDriver, checker: Any) -> None:
        """Read the list in a thread, as it grows; its tasks join the run in batches."""
        from amfs.translate.detect import read_stream

        loop = driver.context.loop
        stream: Any = self.stream or self._open_stream()

        def fault(one: Fault) -> None:
            loop.post(lambda: self._fault(one))

        def follow() -> None:
            try:
                for task in read_stream(stream, format=self.format, source=self.options.source, on_fault=fault):
                    loop.post(lambda task=task: self._add(driver, checker, task))  # type: ignore[misc]
            except AmfsError as error:
                broken = error
                loop.post(lambda: self._break(broken))
            loop.post(lambda: self._end_of_list(driver, checker))

        threading.Thread(target=follow, name="list reader", daemon=True).start()

    def _add(self, driver: RunDriver, checker: Any, task: Any) -> None:
        faults = checker.add(task)
        if faults:
            for one in faults:
                self._fault(one)
        elif not driver.submitter.ending:
            driver.add([task])

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
                os._exit(128 + number)  # what runs is ended by the kernel and the launcher's watcher
            self.signal = number
            driver.context.loop.post(lambda: driver.interrupt(words[signal.Signals(number)]))

        signal.signal(signal.SIGINT, on_signal)
        signal.signal(signal.SIGTERM, on_signal)
        if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # nohup
            signal.signal(signal.SIGHUP, on_signal)

    def _skipped(self, tid: int, skipped: bool) -> None:
        """An earlier run has done a task of a list that grows; or it must run again."""

    def _ended(self, task: Any, result: Any) -> None:
        failed = result.outcome != Outcome.OK
        if failed and (result.outcome == Outcome.UPSTREAM_FAILED or self.signal):
            return
        whole = self._whole(task, result)
        if result.stdout or whole or (result.stderr and not failed):
            self.progress.task_output(task.id, result.stdout, b"" if failed else result.stderr, whole)
        if whole:
            os.unlink(whole)
        if failed:
            self.progress.task_failed(task.id, self._for_people(result).detail, result.stderr)

    def _whole(self, task: Any, result: Any) -> str:
        """The file with all that a task wrote to stdout, if its result holds the beginning only."""
        found = _WHOLE.search(result.detail)
        if found is None:
            return ""
        if os.path.isfile(found[3]):
            if found[1]:
                size = os.path.getsize(found[3])
                more = f"only the first {size} are passed on (declare a file to have more)"
                self.progress.fault(f"task {task.id} printed {found[2]} bytes; {more}")
            return found[3]
        self.far.add(result.tid)
        self.progress.fault(f"task {task.id} printed more than is passed on here; node {result.node} has {found[0].lstrip('; ')}")
        return ""


def _grows(file: str) -> bool:
    """Is it a pipe, a terminal or a socket, whose end may be far away?"""
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode if file == "-" else os.stat(file).st_mode
    except (OSError, ValueError):
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISCHR(mode) or stat.S_ISSOCK(mode)
