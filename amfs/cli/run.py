"""``amfs run``: the command line of a run."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from amfs.cli.completion import local_files, session_names
from amfs.cli.jx_options import definitions, with_jx_options
from amfs.cli.run_driver import Driver, grows
from amfs.cli.session_options import job_options, session_for_run, size_of, spill_sizes, with_spill_options
from amfs.errors import SessionError, UsageError
from amfs.provision import launchers

if TYPE_CHECKING:
    from amfs.runs.context import RunOptions

#: Seconds in which a faulty list is refused.
_MOMENT_S = 1.0


#: The options as ``--help`` lists them; a test looks that each stands in one group.
GROUPS: dict[str, tuple[str, ...]] = {
    "Tasks and inputs": (
        "format_", "shell", "strict", "config", "files", "catalog", "jx_args", "jx_define", "directory", "shared_inputs", "storage",
    ),
    "Where it runs": ("slots", "memory", "session", "local", "placement", "detach"),
    "On a cluster": ("on", "hosts", "at", "nodes", "time_", "wait", "on_options"),
    "Failures and resuming": ("retries", "fail_fast", "keep_sandbox", "resume", "journal", "no_journal"),
    "Memory for files": ("store", "store_limit", "high_water", "spill", "spill_limit"),
    "Output": ("keep_all", "hashed_outputs", "trace", "joblog", "quiet", "output"),
    "Replay": ("synthetic", "time_scale", "size_scale", "busy"),
}  # fmt: skip


class Exclusion(NamedTuple):
    """Options that say nothing beside a condition: an option, or ``SESSION``."""

    options: tuple[str, ...]
    beside: str
    why: str


SESSION = "a session"
#: All of them. ``excluded`` makes the messages.
EXCLUSIONS = (
    Exclusion(("session",), "local", ""),
    Exclusion(("resume",), "no_journal", ""),
    Exclusion(("resume",), "synthetic", ": a replay begins from the beginning"),
    Exclusion(("slots",), SESSION, "; a session's nodes have theirs (amfs up --slots), or say --local"),
    Exclusion(("store_limit", "high_water", "spill", "spill_limit"), SESSION, "; a session's nodes have theirs (amfs up), or say --local"),
)
#: Options of a replay only.
_REPLAY = ("time_scale", "size_scale", "busy")


def _words(names: tuple[str, ...]) -> str:
    words = [f"--{name.replace('_', '-')}" for name in names]
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def excluded(given: Mapping[str, Any], session: str | None = None) -> str:
    """The fault of the options together, in words; '' if there is none. ``session``: the one in which the tasks would run."""
    said = {name for name, value in given.items() if (value is not None if name == "session" else bool(value))}
    for name in _REPLAY:
        if name in said and "synthetic" not in said:
            return f"{_words((name,))} needs --synthetic"
    for options, beside, why in EXCLUSIONS:
        if said.isdisjoint(options):
            continue
        if beside == SESSION and session is not None:
            return f"{_words(options)} {'are' if len(options) > 1 else 'is'} for runs without a session{why}"
        if beside in said:
            return f"{_words(options)} and {_words((beside,))} exclude each other{why}"
    return ""


class Grouped(click.Command):
    """``--help`` lists the options in groups."""

    groups = GROUPS

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        options = {option.name or "": option for option in self.get_params(ctx)}
        grouped = {name for names in self.groups.values() for name in names}
        for title, names in {**self.groups, "Help": [name for name in options if name not in grouped]}.items():
            with formatter.section(title):
                formatter.write_dl([record for name in names if (record := options[name].get_help_record(ctx))])


class _Run(Grouped):
    """``--resume`` may have a value, but never the next word, which is the list."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        end = args.index("--") if "--" in args else len(args)
        mine = ["--resume-trust" if word == "--resume=trust" else word for word in args[:end]]
        for word in mine:
            if word.startswith("--resume="):
                raise click.UsageError(f"--resume has no value but 'trust': --resume, or --resume=trust, not '{word}'", ctx)
        return super().parse_args(ctx, mine + args[end:])


@click.command(
    cls=_Run,
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
@click.option("--shell", default="", metavar="NAME", help="Of command lines: have this shell, such as bash, run them. Default: /bin/sh.")
@click.option("--strict", is_flag=True, help="Constructs that have no meaning here are faults, not remarks.")
@click.option("--synthetic", is_flag=True, help="Replay: instead of its program every task reads, waits and writes as was recorded.")
@click.option("--time-scale", type=click.FloatRange(0), metavar="X", help="Recorded times times this. Default: 1.")
@click.option("--size-scale", type=click.FloatRange(0), metavar="X", help="Recorded sizes times this. Default: 1.")
@click.option("--busy", is_flag=True, help="Tasks keep a CPU busy instead of sleeping.")
@click.option(
    "--config",
    multiple=True,
    metavar="FILE",
    type=click.Path(),
    help="Of a Swift script: swift.conf, properties, tc.data, sites.xml. Repeatable. Entries without a meaning here are named and ignored.",
)
@click.option("--files", type=click.Path(), help="A file list that goes with the task list.")
@click.option("--catalog", type=click.Path(), help="Where inputs are: lines NAME PLACE; a place is a URL or a path.")
@with_jx_options
@click.option("-j", "--slots", type=click.IntRange(1), help="Tasks at a time on this machine (without a session). Default: one per CPU.")
@click.option("--memory", default="0", help="Memory for tasks that state theirs, such as 16G. Default: not accounted.")
@click.option("--session", shell_complete=session_names, help="Run in this session. Default: the newest live one, if any.")
@click.option("--local", is_flag=True, help="Run inside this command even if a session is up.")
@click.option("-C", "--directory", type=click.Path(), help="Change to this directory first: names are relative to it.")
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
@click.option(
    "--resume",
    is_flag=True,
    help="Do only what an earlier run of the same list did not finish, or made of files that have changed since. "
    "--resume=trust: without looking at these.",
)
@click.option("--resume-trust", is_flag=True, hidden=True)
@click.option("--journal", type=click.Path(), help="Keep the journal here. Default: found by the list's path and directory.")
@click.option("--no-journal", is_flag=True, help="Keep none; such a run cannot be resumed.")
@click.option("--trace", default="", metavar="FILE", help="Write what happened, in Chrome's trace format; see `amfs report`.")
@click.option("--storage", default="", metavar="FILE", help="How storage at URLs is reached. Default: ~/.config/amfs/storage.toml.")
@click.option("--joblog", default="", metavar="FILE", help="Write a line for each task that ended, with the columns of GNU parallel.")
@click.option(
    "--store", default="", metavar="DIR", help="Where the files between tasks are kept. Default: /dev/shm, or $TMPDIR if that has no room."
)
@click.option("--store-limit", default="", metavar="SIZE", help="How much of them may be in memory. Default: as much as there is room for.")
@with_spill_options
@click.option("--on-options", metavar="WORDS", default="", help="With --on: options for the command that submits, in one word.")
@job_options
@click.option("--detach", is_flag=True, help="Run in the background, also when this terminal ends; amfs attach shows its output.")
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
      amfs run --on slurm --nodes 1..16 --time 2h tasks.txt     a session of jobs for this run
    """
    if storage := given.pop("storage"):
        os.environ["AMFS_STORAGE"] = os.path.abspath(storage)  # of this process, and of what it starts
    if one_of_many():
        return UsageError.exit_code
    given["resume"] = "trust" if given.pop("resume_trust") else given["resume"]
    if given["detach"]:
        return _detach(file)
    if file == "-" and sys.stdin is None:
        raise UsageError("cannot read the list: standard input is closed")
    with session_for_run(given):
        return _run(file, arguments, given)


def one_of_many() -> bool:
    """Has a launcher started several copies of this command, of which this is not the first? Raises UsageError in the first copy."""
    if why := launchers.why_not_to_run(os.environ):
        if launchers.rank(os.environ, of_step=True):
            return True  # the first copy says why
        raise UsageError(why)
    return False


def _run(file: str, arguments: tuple[str, ...], given: dict[str, Any]) -> int:
    from amfs.display.choice import make_progress

    script, stream = script_format(file, given["format_"], look=not given["synthetic"])
    if arguments and not script:
        raise UsageError(f"{file} is no script, so it takes no arguments")
    given["definitions"] = definitions(given["jx_args"], given["jx_define"], given["directory"] or "")
    with _place(given) as directory:
        options = options_of(file, {**given, "directory": directory})
        progress = make_progress(output=given["output"], quiet=given["quiet"])
        if script and not given["synthetic"]:
            from amfs.cli.run_script import ScriptDriver

            if given["shell"]:
                raise UsageError("--shell is for lists of command lines, and this is a script")
            if given["files"] is not None:
                raise UsageError("--files is for task lists, and this is a script")
            if given["jx_args"] or given["jx_define"]:
                raise UsageError(f"--jx-define and --jx-args are for Makeflows in JX, and {file} is none")
            if given["catalog"]:
                raise UsageError("--catalog is for lists of tasks, and this is a script, which maps its files itself")
            driver: Driver = ScriptDriver(file, options, progress, script, arguments, given, stream)
        else:
            if given["config"]:
                raise UsageError(f"--config is for runs of Swift scripts, and {'this is a replay' if script else f'{file} is none'}")
            driver = Driver(file, options, progress, given["format_"], given["files"], {**given, "arguments": arguments})
            driver.stream = stream
        driver.journal_asked = given["journal"] is not None or bool(given["resume"])
        return driver.run()


def _detach(file: str) -> int:
    """Start this command again in the background. If it ends within a moment, all is as without --detach."""
    from amfs.runs import detached

    if file == "-" or grows(file):
        raise UsageError("--detach needs a file: nobody feeds a pipe in the background")
    words = click.get_current_context().find_root().obj
    options = words.index("--") if "--" in words else len(words)  # the words behind it are the script's
    run = detached.start([word for at, word in enumerate(words) if word != "--detach" or at > options], os.environ)
    until = time.monotonic() + _MOMENT_S
    while run.goes_on() and time.monotonic() < until:
        time.sleep(0.02)
    status = run.status()
    if status is None:
        click.echo(f"run {run.record.number} goes on in the background; amfs attach {run.record.number} shows it", err=True)
        return 0
    sys.stdout.buffer.write(run.output.read_bytes())
    run.forget()
    return status


def script_format(file: str, format: str, look: bool = True) -> tuple[str, Any]:
    """The format of a script, by what the user says or what is in the file;
    '' if it is none. And the pipe, if its beginning was looked at."""
    from amfs.translate.detect import SCRIPTS, peek, standard_input

    if format != "auto":
        return (format if format in SCRIPTS else ""), None
    pipe = file == "-" or grows(file)
    if pipe and (not look or (file == "-" and sys.stdin.isatty())):
        return "", None
    try:
        if pipe:
            opened = standard_input() if file == "-" else open(file, "rb")  # noqa: SIM115 - the reader of the rest closes it
            found, stream = peek(opened, "" if file == "-" else file)
            return (found if found in SCRIPTS else ""), stream
        with open(file, "rb") as whole:
            found, _ = peek(whole, file)
    except OSError:
        return "", None  # its reader says so
    return (found if found in SCRIPTS else ""), None


def _place(given: dict[str, Any]) -> AbstractContextManager[str | None]:
    """Where the run stands."""
    if wrong := excluded(given):
        raise UsageError(wrong)
    if not given["synthetic"]:
        return nullcontext(given["directory"])
    from amfs.cli.synthetic import stage

    given["no_journal"] = True
    return stage(given["directory"] or "")


def options_of(file: str, given: dict[str, Any]) -> RunOptions:
    """The options of a run of ``file``. Raises UsageError."""
    from amfs.runs.context import RunOptions
    from amfs.runs.journal import default_path
    from amfs.translate.tasklist import parse_size

    base = os.path.abspath(given["directory"] or os.getcwd())
    if not os.path.isdir(base):
        raise UsageError(f"no such directory: {base}")
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
        raise UsageError("--resume needs a journal: name one with --journal")
    session = given["session"]
    if session is None and not given["local"]:
        session = _live_session()
    if wrong := excluded(given, session):
        raise UsageError(wrong)
    node = {"store_limit": size_of(given["store_limit"] or "0"), **spill_sizes(given)}
    return RunOptions(
        **node,
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
