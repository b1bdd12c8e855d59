"""``amfs explain FILE``: the story of one file: where it lies, which task made it, of what, for whom, and how to have it again.

Owns the story and its two forms, text and JSON. Must not know: why a task waits (``explain``).
"""

from __future__ import annotations

import os
import shlex
import stat
import time
from typing import TYPE_CHECKING, Any

from amfs.cli.fs_common import KINDS, Work, fields_of, line, print_json
from amfs.cli.fs_list import nodes_text, whereabouts
from amfs.vocabulary.attr import LOST, Attr
from amfs.vocabulary.paths import NAMESPACE, in_namespace, namespace_path, shared_path
from amfs.workflow.workflow import canonical

if TYPE_CHECKING:
    from amfs.runs.lineage import RunOf
    from amfs.workflow.workflow import Task

SHOWN = 8  # inputs and readers; JSON has all


def explain_session_file(text: str, session: str | None, run: RunOf | None, form: str) -> int:
    """Tell of a file of a session. ``run``: of the list that was named, if one was."""
    from amfs.runs.lineage import of_journal
    from amfs.runs.lookups import origin_of

    with Work("explain", session) as work:
        path = work.path(text)
        name = NAMESPACE[:-1] + os.fsdecode(path)
        attr = work.files.info_many([path])[0]
        if isinstance(attr, OSError):
            task = run.maker(name) if run is not None else None
            if task is None or run is None:
                work.report_error(attr, path)
                return work.status
            story: dict[str, Any] = {"path": os.fsdecode(path), "state": "not there"}
        elif not stat.S_ISREG(attr.mode):
            work.report_error(f"is a {KINDS.get(stat.S_IFMT(attr.mode), 'special file')}: only files have a story", path)
            return work.status
        else:
            story = {**fields_of(path, attr), **whereabouts(work, path, attr), **_state(work, attr)}
            origin = origin_of(work.files, name)
            if origin is not None:
                made = {"task": origin.task, "run": origin.run, "node": origin.node, "command": origin.command, "journal": origin.journal}
                story["made_by"] = {**made, "at": attr.mtime / 1e9}
                run = run or (of_journal(origin.journal) if origin.journal else None)
            task = run.named(origin.task) if run is not None and origin is not None else None
            if task is not None and run is not None and run.maker(name) is not task:
                story["made_as"] = [each for each in task.outputs if in_namespace(each)]  # it was renamed, or is blind's
        if run is not None:
            story |= _of_run(run, task, name, work)
        _tell(name, story, form)
        return work.status


def explain_run_file(name: str, run: RunOf, form: str, session: str | None) -> int:
    """Tell of a file of a run that is no file of a session."""
    with Work("explain", session) as work:
        path = shared_path(run.base, name)
        story: dict[str, Any] = {"path": path}
        try:
            found = os.stat(path)
            story |= {"state": "finished", "size": found.st_size, "mtime": found.st_mtime}
        except OSError:
            story["state"] = "between tasks" if _passes(run, name) else "not there"
        story |= _of_run(run, run.maker(name), name, work)
        _tell(name, story, form)
        return work.status


def _tell(name: str, story: dict[str, Any], form: str) -> None:
    if form == "json":
        print_json(story)
    else:
        for words in lines(name, story):
            line(words)


def _passes(run: RunOf, name: str) -> bool:
    """Does a file only go from task to task?"""
    task = run.maker(name)
    if task is None or not run.readers(name):
        return False
    return all(canonical(each, run.base) != canonical(name, run.base) for each in task.keep)


# ── what is known ──────────────────────────────────────────────────────────────────────────────────


def _state(work: Work, attr: Attr) -> dict[str, Any]:
    if attr.finished == LOST:
        record = work.files.connection.session
        live = {usage.node for usage in work.files.df()}
        return {"state": "lost", "dead_nodes": sorted({entry.node for entry in record.nodes} - live)}
    if attr.pending:
        return {"state": "being made by a blind task"}
    return {"state": "finished" if attr.finished else "being written"}


def _of_run(run: RunOf, task: Task | None, name: str, work: Work) -> dict[str, Any]:
    """A file that ``task`` makes, as list and journal know it."""
    readers = run.readers(name)
    known: dict[str, Any] = {"list": run.file, "directory": run.base}
    if run.why:
        known["not_known"] = run.why
    if task is not None:
        known["task"] = {
            "id": task.id, "line": task.line, "command": shlex.join(task.argv), "finished": run.has_finished(task),
            "inputs": [_input(run, each, work) for each in task.inputs], "after": list(task.after),
        }  # fmt: skip
    known["readers"] = [{"task": each.id, "finished": run.has_finished(each)} for each in readers]
    known["again"] = run.again(work.files.session if _is_of_session(run, name) else "")
    return known


def _is_of_session(run: RunOf, name: str) -> bool:
    return in_namespace(name) or any(in_namespace(each) for task in run.tasks for each in (*task.inputs, *task.outputs))


def _input(run: RunOf, name: str, work: Work) -> dict[str, Any]:
    maker = run.maker(name)
    fields: dict[str, Any] = {"name": name, "made_by": maker.id if maker is not None else None}
    if in_namespace(name):
        info = work.files.info_many([namespace_path(name)])[0]
        there = "gone" if isinstance(info, OSError) else "lost" if info.finished == LOST else "there"
    elif os.path.exists(shared_path(run.base, name)):
        there = "there"
    else:
        there = "between tasks" if _passes(run, name) else "gone"
    return {**fields, "state": there}


# ── in words ───────────────────────────────────────────────────────────────────────────────────────


def lines(name: str, story: dict[str, Any]) -> list[str]:
    """The story for people."""
    out = [name, f"  {_lies(story)}"]
    made, task = story.get("made_by"), story.get("task")
    if made is not None:
        at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(made["at"]))
        out.append(f"  made by task {made['task']} on node {made['node']}, {at}")
        if task is None:
            out.append(f"  its command: {made['command']}")
    elif task is not None:
        out.append(f"  made by task {task['id']}, which {'has finished' if task['finished'] else 'has not finished'}")
    elif "layout" in story:
        out.append("  no task is known to have made what is there now: a program, a mount or a client wrote it")
    else:
        out.append("  no task makes it")
    if task is not None:
        place = f" (line {task['line']})" if task["line"] else ""
        out += [f"  of {story['list']}{place}", f"  its command: {task['command'][:300]}"]
        out += _list("it read", [_in_words(each) for each in task["inputs"]])
    if story.get("made_as") and name not in story["made_as"]:
        out.append(f"  it was made as {', '.join(story['made_as'])}, and renamed: under that name it is made again")
    readers = story.get("readers", ())
    out += _list("read by", [f"task {each['task']} ({'finished' if each['finished'] else 'not finished'})" for each in readers])
    if "not_known" in story:
        out.append(f"  more is not known: {story['not_known']}")
    if story["state"] in ("lost", "not there"):
        out.append(_remedy(story))
    return out


def _lies(story: dict[str, Any]) -> str:
    if story["state"] == "not there":
        return "not there"
    if story["state"] == "between tasks":
        return "kept in memory while tasks want it, and not longer: a task that runs again and reads it has it made again"
    size = f"{story['size']} byte{'' if story['size'] == 1 else 's'}"
    if "layout" not in story:
        return f"{size}, on shared storage"
    layout = f"striped, {story['stripe']} bytes each" if story["layout"] == "striped" else "whole"
    if story["state"] == "lost":
        dead = story["dead_nodes"]
        with_whom = f"{nodes_text(dead)}, which {'has' if len(dead) == 1 else 'have'} died" if dead else "a node that has died"
        return f"{size}, {layout}; LOST: its content, or some of it, lay on {with_whom}"
    writing = f" by node {story['writer']}" if story["state"] == "being written" and story.get("writer", -1) >= 0 else ""
    asked = f" ({story['copies']} copies asked for)" if story["copies"] > 1 else ""
    return f"{size}, {layout}, {story['state']}{writing}; on {nodes_text(story['nodes'])}{asked}"


def _in_words(fields: dict[str, Any]) -> str:
    maker = f", made by task {fields['made_by']}" if fields["made_by"] is not None else ""
    states = {"gone": "not there", "lost": "lost, too", "there": "there", "between tasks": "kept only between tasks"}
    return f"{fields['name']} ({states[fields['state']]}{maker})"


def _list(head: str, words: list[str]) -> list[str]:
    if not words:
        return []
    rest = [f"    and {len(words) - SHOWN} more"] if len(words) > SHOWN else []
    return [f"  {head}:", *(f"    {each}" for each in words[:SHOWN]), *rest]


def _remedy(story: dict[str, Any]) -> str:
    if story.get("again") and story.get("task") is not None:
        return f"  to have it again: {story['again']}"
    if story.get("made_by") is None and story.get("task") is None:
        return "  amfs cannot make it again: put it there anew, or remove it"
    if story.get("made_by") is not None and not story["made_by"]["journal"]:
        return "  to have it again: run that task again; its run kept no journal, so that --resume has nothing to go by"
    return "  to have it again: run that task again"
