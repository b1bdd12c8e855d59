"""``amfs explain``: why is a task not running? (The story of a file: ``explain_file``.)

Owns the search for an answer: in the list (the tasks that make its inputs), in the journal of the last run of the list (finished tasks),
and, when a session is up, on its nodes (queues, slots, files on their way).
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from amfs.cli.completion import session_names
from amfs.cli.fs_common import output_option, print_json
from amfs.errors import SessionError, UsageError

if TYPE_CHECKING:
    from amfs.runs.lineage import RunOf
    from amfs.workflow.workflow import Task

WAITS_SHOWN = 5
CHAIN_SHOWN = 6

#: A node's sentence on a task that waits for another one, which the node knows by its number.
_WAITS = re.compile(r"\A((?:session [^:]*: )?node \d+: waits for )task #(\d+)( to finish)\Z")


@click.command()
@click.argument("what", metavar="TASK|FILE")
@click.argument("file", metavar="[LIST]", required=False, type=click.Path(dir_okay=False))
@click.option("-C", "--directory", type=click.Path(file_okay=False), default=".", help="Where the run stands (default: here).")
@click.option("--journal", type=click.Path(dir_okay=False), help="The run's journal (default: as for amfs run).")
@click.option(
    "--session", metavar="NAME", shell_complete=session_names, help="Ask the nodes of this session (default: the newest live one, if any).",
)
@click.option("--timeout", type=click.FloatRange(min=0.1), default=3.0, metavar="SECONDS", help="For the nodes to answer (default 3).")
@output_option
def explain(what: str, file: str | None, directory: str, journal: str | None, session: str | None, timeout: float, form: str) -> int:
    """Say why TASK of LIST is not running: what it waits for, who makes that, and what the nodes know of it.

    Or tell the story of a FILE: of one of a session (amfs:/...), by what lies there and its run; of any other that tasks of LIST make
    or read.
    """
    from amfs.cli.explain_file import explain_run_file, explain_session_file
    from amfs.runs.lineage import of_list
    from amfs.workflow.workflow import canonical

    if file is None:
        try:
            return explain_session_file(what, session, None, form)
        except UsageError:
            why = f"{what}: a file of a session begins with amfs:/; to explain a task, or another file, name the list of its run, too"
            raise UsageError(why) from None
    run = of_list(file, os.path.abspath(directory), Path(journal) if journal else None)
    if run.named(what) is None:
        if what.startswith("amfs:"):
            return explain_session_file(what, session, run, form)
        name = canonical(what, run.base)
        if run.maker(name) is not None or run.readers(name):
            return explain_run_file(name, run, form, session)
    told = _explain_task(run, what, file, session, timeout)
    if form == "json":
        print_json({"task": what, "list": run.file, "lines": told})
    else:
        for line in told:
            click.echo(line)
    return 0


def _explain_task(run: RunOf, what: str, file: str, session: str | None, timeout: float) -> list[str]:
    from amfs.runs.journal import read

    tasks = run.tasks
    index = _find(tasks, what, file)
    past = read(Path(run.journal)) if run.journal else None
    told = reasons(tasks, index, run.base, run.done)
    embedded = _embedded(past.header.store) if past is not None else "there is no journal of a run of this list here"
    if embedded:
        told += _ask_own_node(index, os.path.realpath(file), run.base) or [embedded]
    if session is not None or past is None or not past.header.store:
        told += _ask_nodes(index, session, timeout)
    return [_WAITS.sub(lambda found: found[1] + _called(tasks, int(found[2])) + found[3], line) for line in told]


def _embedded(store: str) -> str:
    """Whether the last run, that kept its files in ``store``, is going on inside its own command; '' if it was a session's."""
    from amfs.host import orphans

    if not store:
        return ""
    try:
        alive = not orphans.is_orphan(Path(store), None)
    except OSError:
        alive = False
    if alive:
        return "the run is going on inside its own command, without a session"
    return "no run of this list is going on; --resume would do the rest"


def _find(tasks: Sequence[Task], wanted: str, source: str) -> int:
    for index, task in enumerate(tasks):
        if task.id == wanted:
            return index
    from difflib import get_close_matches

    near = get_close_matches(wanted, [task.id for task in tasks], 3)
    raise UsageError(f"there is no task '{wanted}' in {source}" + (f"; did you mean {' or '.join(near)}?" if near else ""))


def reasons(tasks: Sequence[Task], index: int, base: str, done_keys: object) -> list[str]:
    """The task at ``index``, by list, journal and shared storage. ``done_keys``: of finished tasks, as in the journal."""
    from amfs.workflow.derivation import Keys

    key = Keys(tasks)
    done: set[int] = set(done_keys)  # type: ignore[call-overload]
    task = tasks[index]
    place = f"{task.id} (line {task.line})" if task.line else task.id
    if key(index) in done:
        return [f"{place} has finished, says the journal of the last run"]
    writers = {os.path.normpath(name): other for other, each in enumerate(tasks) for name in each.outputs}

    index_of = {each.id: other for other, each in enumerate(tasks)} if any(each.after for each in tasks) else {}

    def blockers(at: int) -> list[str | int]:
        """Causes that a task waits: the index of the task to make an input, or to come first, or the name of a file that nobody makes."""
        found: dict[str | int, None] = {}
        for name in tasks[at].inputs:
            writer = writers.get(os.path.normpath(name))
            if writer is None:
                if not os.path.exists(os.path.join(base, name)):
                    found[name] = None
            elif key(writer) not in done:
                found[writer] = None
        for name in tasks[at].after:
            if name in index_of and key(index_of[name]) not in done:
                found[index_of[name]] = None
        return list(found)

    waits = blockers(index)
    if not waits:
        return [f"{place} waits for no file: all its inputs are made or on shared storage"]
    lines = [f"{place} waits for:"]
    for blocker in waits[:WAITS_SHOWN]:
        if isinstance(blocker, str):
            lines.append(f"  {blocker}, which is not in {base} and which no task makes")
            continue
        lines.append(f"  {_makes(tasks[blocker], task)}")
        seen, at, depth = {index, blocker}, blocker, 1
        while depth < CHAIN_SHOWN:
            further = blockers(at)
            if not further:
                lines.append(f"{'  ' * (depth + 1)}which waits for no file ('amfs explain {tasks[at].id}' says more)")
                break
            first = further[0]
            more = f" (and {len(further) - 1} more)" if len(further) > 1 else ""
            if isinstance(first, str):
                lines.append(f"{'  ' * (depth + 1)}which waits for {first}, which is not there and which no task makes{more}")
                break
            if first in seen:
                lines.append(f"{'  ' * (depth + 1)}which waits for {tasks[first].id}: a cycle")
                break
            lines.append(f"{'  ' * (depth + 1)}which waits for {_makes(tasks[first], tasks[at])}{more}")
            seen.add(first)
            at, depth = first, depth + 1
    if len(waits) > WAITS_SHOWN:
        lines.append(f"  and {len(waits) - WAITS_SHOWN} more")
    return lines


def _called(tasks: Sequence[Task], index: int) -> str:
    """A task by its id; by its number if it is of another list."""
    return f"task {tasks[index].id}" if index < len(tasks) else f"task #{index}"


def _makes(writer: Task, reader: Task) -> str:
    names = [name for name in writer.outputs if name in reader.inputs]
    line = f" (line {writer.line})" if writer.line else ""
    if not names and writer.id in reader.after:
        return f"task {writer.id}{line}, which must have finished first"
    names = names or list(writer.outputs)
    return f"{', '.join(names[:3])}{' …' if len(names) > 3 else ''} from task {writer.id}{line}"


def _running(node: int, data: dict[str, Any], run: int, index: int) -> list[str]:
    """This task in a node's list of tasks at work, in words."""
    from amfs.runs.watched import running_in_words

    tasks = data.get("at_work", ())
    return [running_in_words(node, start * 1e-6, slot, pid) for of, number, start, slot, pid, _ in tasks if (of, number) == (run, index)]


def _ask_own_node(index: int, source: str, base: str) -> list[str]:
    """Task number ``index``, as a run with its own node knows it. The run is found by its list and directory."""
    from amfs.live.reader import ask_run, run_sockets
    from amfs.vocabulary.live import Ask

    for _, path in run_sockets():
        with contextlib.suppress(OSError):
            run = ask_run(path, Ask("totals")).run
            if run is not None and run.place == run.id and run.directory == base and os.path.realpath(run.source) == source:
                lines = ask_run(path, Ask("explain", numbers=(index,))).lines
                return lines or [f"process {run.pid}, which runs the list, knows nothing of this task (not submitted yet, or ended)"]
    return []


def _ask_nodes(index: int, name: str | None, timeout_s: float) -> list[str]:
    """Task number ``index`` in each run of a session, as its nodes know it."""
    from amfs.client import discovery
    from amfs.client.control import Client
    from amfs.vocabulary.live import PAGE_MAX
    from amfs.vocabulary.messages import Explain, ExplainAsk, Status, StatusAsk

    session = discovery.find(name) if name else discovery.newest_live()
    if session is None:
        return []
    lines: list[str] = []
    try:
        with Client(session) as client:
            nodes = [member.node for member in client.view(timeout_s).members]
            status = client.ask({node: StatusAsk(PAGE_MAX) for node in nodes}, Status, timeout_s)
            runs = sorted({run for answer in status.values() for run in answer.data.get("runs", [])})  # type: ignore[attr-defined]
            for run in runs:
                answers = client.ask({node: ExplainAsk(run, index) for node in nodes}, Explain, timeout_s)
                heading = f"session {session.name}, run {run}: " if len(runs) > 1 else f"session {session.name}: "
                found = [line for node in sorted(status) for line in _running(node, status[node].data, run, index)]
                lines += [heading + line for line in found or [line for node in sorted(answers) for line in answers[node].lines]]
            silent = [str(node) for node in nodes if node not in status]
    except SessionError as error:
        return [f"session {session.name}: {error}"]
    if not lines:
        why = "its nodes know nothing of this task (not submitted yet, or ended)" if runs else "no run is going on"
        lines.append(f"session {session.name}: {why}")
    if silent:
        lines.append(f"session {session.name}: no answer from node {', '.join(silent)}")
    return lines
