"""``amfs map``: a command for each argument, at the prompt, as people know it from GNU parallel."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from amfs.cli import run as running
from amfs.cli.run_driver import Driver, grows
from amfs.cli.session_options import session_for_run
from amfs.errors import Fault, UsageError
from amfs.translate.map_arguments import STDIN, Argument, Source, columns_of, combined, split_words
from amfs.translate.shell_quoting import Malformed

if TYPE_CHECKING:
    from amfs.runs.in_order import InOrder
    from amfs.translate.detect import Loaded
    from amfs.translate.map_tasks import TaskMaker
    from amfs.workflow.workflow import Task

#: The options of ``amfs run`` that this command has as well, as they are there.
SHARED: dict[str, tuple[str, ...]] = {
    "Commands and files": ("shell", "directory", "shared_inputs"),
    "Where it runs": ("session", "local", "placement"),
    "On a cluster": ("on", "hosts", "at", "nodes", "time_", "wait", "on_options"),
    "Failures and resuming": ("retries", "fail_fast", "keep_sandbox", "resume", "journal"),
    "Memory for files": ("store", "store_limit", "high_water", "spill", "spill_limit"),
    "Output": ("keep_all", "hashed_outputs", "trace", "joblog", "quiet", "output"),
}
OWN: dict[str, tuple[str, ...]] = {
    "Arguments": ("arg_files", "null", "colsep"),
    "Commands and files": ("inputs", "outputs"),
    "Where it runs": ("slots",),
    "Failures and resuming": ("halt",),
    "Output": ("keep_order", "dry_run"),
}
GROUPS = {title: (*OWN.get(title, ()), *SHARED.get(title, ())) for title in ("Arguments", *SHARED)}
#: Defaults of the options of ``amfs run`` that make no sense here.
_NOT_GIVEN = {
    "format_": "commands", "strict": False, "synthetic": False, "time_scale": None, "size_scale": None, "busy": False, "config": (),
    "files": None, "no_journal": False, "detach": False, "memory": "0",
}  # fmt: skip
#: Values of ``--halt``; 0 and 2 are older words of GNU parallel for never and now,fail=1.
_HALT = re.compile(r"never|0|2|now,fail=(?:(?P<count>[1-9]\d{0,8})|(?P<share>[1-9]\d?|100)%)")
JOBS_MAX = 250  # of -j 0: each is a process at least

_JOBS = re.compile(r"(?P<count>\d{1,5})|(?P<share>\d{1,5})%|(?P<more>[+-]\d{1,5})")


def failures_to_end(text: str, jobs: int | None) -> int:
    """The number of failed jobs at which ``--halt`` ends the run, 0: none. ``jobs``: how many there are (None: not known). Raises
    UsageError."""
    if not text:
        return 0
    match = _HALT.fullmatch(text)
    if match is None:
        why = "; running jobs are always ended at once here" if text.startswith("soon") or text == "1" else ""
        raise UsageError(f"--halt {text}: write never, now,fail=N or now,fail=N%{why}")
    if match["share"]:
        if jobs is None:
            raise UsageError(f"--halt {text}: how many jobs come on standard input is not known, so write a number, such as now,fail=3")
        return max(1, -(-int(match["share"]) * jobs // 100))
    return int(match["count"] or text == "2")


def jobs_at_a_time(text: str, cpus: int, jobs: int | None) -> int:
    """The number of ``-j``: N, 0 for as many as there are jobs (None: not known), N%, +N or -N of the CPUs. Raises UsageError."""
    match = _JOBS.fullmatch(text)
    if match is None:
        raise UsageError(f"-j {text}: write a number, 0 for all at a time, or a share of the CPUs such as 50%, +2 or -1")
    if match["count"]:
        return int(text) or max(1, min(JOBS_MAX, JOBS_MAX if jobs is None else jobs))
    return max(1, cpus * int(match["share"]) // 100 if match["share"] else cpus + int(match["more"]))


class _Map(running.Grouped):
    """The words behind the command are the command's and its arguments."""

    groups = GROUPS


@click.command(
    "map",
    cls=_Map,
    context_settings={"allow_interspersed_args": False},
    epilog="Exit status, as of amfs run: 0 all jobs ended with 0; 1 some failed; 2 the command line is faulty, nothing ran; 3 stopped "
    "before the end; 130 interrupted.",
)
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="COMMAND [::: ARGUMENT…]…")
@click.option("-a", "--arg-file", "arg_files", multiple=True, metavar="FILE", help="Arguments: the lines of FILE; - for standard input.")
@click.option("-0", "--null", is_flag=True, help="Arguments in files end with a NUL character, not with the line.")
@click.option("--colsep", default="", metavar="REGEX", help="Split each argument into columns there, for {1}, {2} and so on.")
@click.option(
    "-j", "--jobs", "--slots", "slots", metavar="N", help="Jobs at a time: N, 0 for all, 50%, +2 or -1 of the CPUs. Default: one per CPU."
)
@click.option("-k", "--keep-order", is_flag=True, help="Output in the order of the arguments, not of the jobs' ends.")
@click.option(
    "--halt", default="", metavar="WHEN", help="End all jobs when so many have failed: now,fail=3 or now,fail=10%. Default: never."
)
@click.option("--dry-run", is_flag=True, help="Print the command lines; run nothing.")
@click.option("--in", "inputs", multiple=True, metavar="NAME", help="Each job reads this file, such as {}. Repeatable. '': it reads none.")
@click.option("--out", "outputs", multiple=True, metavar="NAME", help="Each job makes this file, such as {.}.gz. Repeatable.")
def map_(words: tuple[str, ...], **given: Any) -> int:
    """Run COMMAND once for each argument.

    Arguments are the words behind :::, the lines of files behind :::: or -a, else the lines of standard input, also while it grows. With
    several sources each combination is a job; :::+ and ::::+ are linked with the source before.

    In COMMAND {} is the argument, {.} without its extension, {/} its last part, {//} its directory, {/.} its last part without extension,
    {#} the number of the job, {1} or {2.} the first or second argument. Without any of these {} is added at the end. Arguments are quoted
    for the shell. Options of amfs map stand before COMMAND.

    \b
      amfs map 'gzip -k {}' ::: *.fa                     each file
      amfs map -j 8 -k 'echo {1} {2}' ::: a b ::: 1 2    each combination, output in order
      amfs map --out '{.}.gz' 'gzip -c {} > {.}.gz' ::: *.fa    on any node of a session, with declared files
      find . -name '*.log' | amfs map gzip               arguments as they come
    """
    if running.one_of_many():
        return UsageError.exit_code
    given = {**_NOT_GIVEN, **given}
    given["directory"] = given["directory"] or None
    try:
        command, sources = split_words(words, given["arg_files"])
        columns = columns_of(given["colsep"]) if given["colsep"] else None
        maker = _maker(command, columns, given)
    except Malformed as error:
        raise UsageError(str(error)) from None
    if given["slots"] is not None:
        jobs_at_a_time(given["slots"], 1, None)  # before anything is read
        if given["on"] is not None and not int(given["slots"] if given["slots"].isdecimal() else 0):
            raise UsageError(f"-j {given['slots']}: with --on it is the number of jobs at a time on each node")
    if given["halt"] and given["fail_fast"]:
        raise UsageError("--fail-fast is --halt now,fail=1: say one of them")
    failures_to_end(given["halt"], 1)  # before anything is read
    if any(source.file == STDIN for source in sources) and sys.stdin is None:
        raise UsageError("cannot read the arguments: standard input is closed")
    if given["dry_run"]:
        return _dry_run(maker, sources, given["null"])
    along = len(sources) == 1 and sources[0].file == STDIN and grows(STDIN)
    jobs = None if along else list(_jobs(sources, given["null"]))
    if given["halt"]:
        given["fail_fast"] = failures_to_end(given["halt"], None if jobs is None else len(jobs))
    if given["slots"] is not None:
        from amfs.host.processes import usable_cpus

        given["slots"] = jobs_at_a_time(given["slots"], usable_cpus(), None if jobs is None else len(jobs))
    with session_for_run(given):
        return _run(maker, sources, jobs, given)


map_.params += [option for option in running.run.params if any(option.name in names for names in SHARED.values())]


def _maker(command: str, columns: re.Pattern[str] | None, given: dict[str, Any]) -> TaskMaker:
    from amfs.translate.detect import real_sh
    from amfs.translate.map_tasks import TaskMaker
    from amfs.vocabulary.paths import in_namespace

    base = given["directory"] or ""
    return TaskMaker(
        command, inputs=given["inputs"], outputs=given["outputs"], shell=given["shell"], sh=real_sh(), columns=columns,
        is_file=lambda name: in_namespace(name) or os.path.isfile(os.path.join(base, name)),
    )  # fmt: skip


def _dry_run(maker: TaskMaker, sources: Sequence[Source], null: bool) -> int:
    for number, arguments in enumerate(_jobs(sources, null), 1):
        try:
            line = maker.line(arguments, number)
        except Malformed as error:
            raise UsageError(f"job {number}: {error}") from None
        if line:
            sys.stdout.buffer.write(line.encode("utf-8", "surrogateescape") + b"\n")
            sys.stdout.buffer.flush()
    return 0


def _run(maker: TaskMaker, sources: Sequence[Source], jobs: Sequence[tuple[Argument, ...]] | None, given: dict[str, Any]) -> int:
    from amfs.display.choice import make_progress

    options = running.options_of(STDIN, given)
    files = [source.file for source in sources if source.file is not None]
    options.source = "arguments" if not files else "standard input" if files[0] == STDIN else files[0]
    progress = make_progress(output=given["output"], quiet=given["quiet"])
    driver = MapDriver(STDIN if jobs is None else "", options, progress, "commands", None, given)
    driver.prepare(maker, jobs)
    driver.journal_asked = given["journal"] is not None
    return driver.run()


class MapDriver(Driver):
    """One ``amfs map``: the loop of ``amfs run``, over tasks made of arguments."""

    maker: TaskMaker
    jobs: Sequence[tuple[Argument, ...]] | None  # None: they come on standard input
    order: InOrder[tuple[Any, Any]] | None = None

    def prepare(self, maker: TaskMaker, jobs: Sequence[tuple[Argument, ...]] | None) -> None:
        """Take the jobs to run; before ``run``."""
        self.maker, self.jobs = maker, jobs
        if self.given["keep_order"]:
            from amfs.runs.in_order import InOrder
            from amfs.vocabulary.states import SKIPPED

            def passed(tid: int) -> bool:
                states = self.running.submitter.state if self.running is not None else b""
                return tid < len(states) and states[tid] == SKIPPED

            self.order = InOrder(passed)

    def _is_document(self) -> bool:
        return False

    def _read(self, source: Any) -> Loaded:
        from amfs.translate.detect import Loaded
        from amfs.workflow.workflow import Workflow, complete

        faults: list[Fault] = []
        tasks = [complete(task) for task in self._made(self.jobs or (), faults.append)]
        return Loaded(Workflow(tasks, source=self.options.source), faults, set())

    def _tasks_of(self, stream: Any, on_fault: Callable[[Fault], None]) -> Iterator[Task]:
        lines = _lines(stream, b"\0" if self.given["null"] else b"\n")
        return self._made(((argument,) for argument in lines), on_fault)

    def _made(self, jobs: Iterable[tuple[Argument, ...]], on_fault: Callable[[Fault], None]) -> Iterator[Task]:
        for number, arguments in enumerate(jobs, 1):
            try:
                task = self.maker.task(arguments, number)
            except Malformed as error:
                line = next((argument.line for argument in arguments if argument.line), 0)
                on_fault(Fault(self.options.source, line, f"job {number}: {error}"))
                continue
            if task is not None:
                yield task

    def _number(self, task: Any, result: Any) -> int:
        return int(task.id)  # lines that are faulty or blank have a number, too

    def _show(self, task: Any, result: Any) -> None:
        if self.order is None:
            super()._show(task, result)
            return
        for one in self.order.add(result.tid, (task, result)):
            super()._show(*one)

    def _finish(self, driver: Any) -> int:
        for one in self.order.rest() if self.order is not None else ():
            super()._show(*one)
        return super()._finish(driver)


def _jobs(sources: Sequence[Source], null: bool) -> Iterator[tuple[Argument, ...]]:
    """The arguments of each job. Raises UsageError for a file that cannot be read, before the first."""
    found: list[Iterator[Argument] | list[Argument]] = []
    separator = b"\0" if null else b"\n"
    for source in sources:
        if source.file is None:
            found.append([Argument(word) for word in source.words])
        elif source.file == STDIN:
            lines = _lines(sys.stdin.buffer, separator)
            found.append(lines if len(sources) == 1 else list(lines))
        else:
            try:
                with open(source.file, "rb") as file:
                    found.append(list(_lines(file, separator)))
            except (OSError, ValueError) as error:
                raise UsageError(f"cannot read {source.file}: {getattr(error, 'strerror', None) or error}") from None
    return combined(found, [source.linked for source in sources])


def _lines(file: BinaryIO, separator: bytes) -> Iterator[Argument]:
    """The lines of a file as they come."""
    read = getattr(file, "read1", file.read)
    number, rest = 0, b""
    while data := read(1 << 16):
        *whole, rest = (rest + data).split(separator)
        for line in whole:
            number += 1
            yield Argument(line.decode("utf-8", "surrogateescape"), number)
    if rest:
        yield Argument(rest.decode("utf-8", "surrogateescape"), number + 1)
