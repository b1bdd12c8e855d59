"""Writes WfFormat 1.5. Pure. Fields that the format lacks stand under ``amfs``; the schema allows this, and our reader reads it.

The format holds names of letters, digits and ``-_./:#`` only, and JSON holds no bytes that are not UTF-8, so a workflow with others is
refused, not bent.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from amfs.translate.shape import Graph, kind_of
from amfs.translate.shell_quoting import quote
from amfs.translate.wfformat import EXTRA_FIELDS, Extra, ExtraFiles
from amfs.translate.wfformat import kind_of as kind_of_name
from amfs.workflow.workflow import Task, Workflow, complete, value_faults

VERSION = "1.5"

#: The schema wants to know when the workflow was executed; ours was not.
NOT_EXECUTED = "1970-01-01T00:00:00+00:00"

_FILE = re.compile(r"[0-9a-zA-Z\-_./:#]+")
_ID = re.compile(r"[0-9a-zA-Z\-_.#]+")
_DEFAULT = Extra()


def write(workflow: Workflow) -> str:
    """The workflow as one JSON document. Raises ValueError, naming the task, for what the format cannot hold; WorkflowError for cycles."""
    if not workflow.tasks:
        raise ValueError("WfFormat has no workflow without tasks")
    if not workflow.name:
        raise ValueError("WfFormat has no workflow without a name")
    graph = Graph(workflow)
    tasks = graph.tasks
    children: list[list[str]] = [[] for _ in tasks]
    for index, parents in enumerate(graph.parents):
        for parent in parents:
            children[parent].append(tasks[index].id)
    for name in workflow.sizes:
        _check_file(name, "the sizes")
    specification: dict[str, Any] = {
        "tasks": [_specified(task, [tasks[each].id for each in graph.parents[at]], children[at]) for at, task in enumerate(tasks)]
    }
    if workflow.sizes:
        specification["files"] = [{"id": name, "sizeInBytes": size} for name, size in workflow.sizes.items()]
    document: dict[str, Any] = {
        "name": workflow.name,
        "schemaVersion": VERSION,
        "workflow": {
            "specification": specification,
            "execution": {
                "makespanInSeconds": graph.critical_path()[0],
                "executedAt": NOT_EXECUTED,
                "tasks": [_executed(task) for task in tasks],
            },
        },
    }
    if workflow.files or workflow.paths:
        document["amfs"] = msgspec.to_builtins(ExtraFiles(workflow.files, workflow.paths))
    try:
        return msgspec.json.format(msgspec.json.encode(document), indent=2).decode()
    except UnicodeEncodeError:
        who = next((f"task {task.id}" for task in tasks if not _is_unicode(task)), "the workflow")
        raise ValueError(f"{who}: it has bytes that are not UTF-8, and JSON has no form for them") from None


def _is_unicode(task: Task) -> bool:
    try:
        msgspec.json.encode(task)
    except UnicodeEncodeError:
        return False
    return True


def _specified(task: Task, parents: list[str], children: list[str]) -> dict[str, Any]:
    if faults := value_faults(complete(task)):
        raise ValueError(f"task {task.id}: {'; '.join(faults)}")
    for reference in (*parents, *children, *([task.id] if parents or children else ())):
        if not _ID.fullmatch(reference):
            raise ValueError(f"task id {reference!r} has characters that WfFormat does not allow (it allows letters, digits and - _ . #)")
    for name in (*task.inputs, *task.outputs):
        _check_file(name, f"task {task.id}")
    name = task.label or kind_of(task)
    found: dict[str, Any] = {
        "name": name,
        "id": task.id,
        "parents": parents,
        "children": children,
        "inputFiles": list(task.inputs),
        "outputFiles": list(task.outputs),
    }
    more = {field: value for field in EXTRA_FIELDS if (value := getattr(task, field)) != getattr(_DEFAULT, field)}
    if task.runtime is None:
        more["timed"] = False
    if kind_of_name(name) != task.label:
        more["label"] = task.label
    if more:
        found["amfs"] = more
    return found


def _executed(task: Task) -> dict[str, Any]:
    try:
        command: dict[str, Any] = {"program": task.argv[0], "arguments": [quote(word) for word in task.argv[1:]]}
    except ValueError as error:
        raise ValueError(f"task {task.id}: {error}") from None
    if "\0" in task.argv[0]:
        raise ValueError(f"task {task.id}: its program has a NUL character in its name")
    found: dict[str, Any] = {"id": task.id, "runtimeInSeconds": task.runtime or 0.0, "command": command}
    if task.cores != 1:
        found["coreCount"] = task.cores
    if task.memory:
        found["memoryInBytes"] = task.memory
    if task.priority:
        found["priority"] = task.priority
    return found


def _check_file(name: str, where: str) -> None:
    if not _FILE.fullmatch(name):
        allowed = "it allows letters, digits and - _ . / : #"
        raise ValueError(f"{where}: file name {name!r} has characters that WfFormat does not allow ({allowed})")
