"""A workflow without its programs: every task reads, waits and writes as was recorded. Pure; see docs/reference/synthetic.md."""

from __future__ import annotations

import os
import posixpath
from typing import NamedTuple

import msgspec

from amfs.vocabulary.paths import in_namespace
from amfs.workflow.versions import versioned
from amfs.workflow.workflow import NOWHERE, Task, Workflow, canonical, complete

#: Bytes of a file of which no size is recorded, before scaling.
UNKNOWN_BYTES = 1024


class Replay(NamedTuple):
    workflow: Workflow
    given: dict[str, int]  # files that must be there at the beginning -> bytes


def replay(workflow: Workflow, program: str, *, time_scale: float = 1.0, size_scale: float = 1.0, busy: bool = False) -> Replay:
    """The workflow with ``program`` (amfs-synthetic) in place of all its programs.

    Names, order, cores, retries and priorities stay as they are. Absolute names and names outside of the working directory
    become names below ``abs/``: a replay touches nothing of what it is a replay of.
    """
    workflow = versioned(workflow)
    names: dict[str, str] = {}
    sizes: dict[str, int] = {}
    below = "abs"
    used = {posixpath.normpath(name).split("/", 1)[0] for task in workflow.tasks for name in (*task.inputs, *task.outputs)}
    while below in used:  # for other names
        below += "_"

    def known(name: str) -> str:
        fresh = names.get(name)
        if fresh is None:
            true_name = canonical(name, NOWHERE)
            outside = true_name[:1] == "/" or in_namespace(true_name)
            fresh = names[name] = f"{below}/{true_name.lstrip('/')}" if outside else true_name
        return fresh

    recorded = {known(name): size for name, size in workflow.sizes.items()}

    def size_of(name: str) -> int:
        size = sizes.get(name)
        if size is None:
            size = sizes[name] = max(0, round(recorded.get(name, UNKNOWN_BYTES) * size_scale))
        return size

    tasks = []
    made: set[str] = set()
    for task in workflow.tasks:
        task = complete(task)
        inputs = tuple(dict.fromkeys(map(known, task.inputs)))
        outputs = tuple(dict.fromkeys(map(known, task.outputs)))
        made.update(outputs)
        argv = [program, "-b"] if busy else [program]
        argv.append(f"{max(0.0, task.runtime or 0.0) * time_scale:.6g}")
        for name in inputs:
            argv += ("-i", name, str(size_of(name)))
        for name in outputs:
            argv += ("-o", name, str(size_of(name)))
        tasks.append(
            Task(
                task.id,
                tuple(argv),
                inputs,
                outputs,
                cores=task.cores,
                retries=task.retries,
                priority=task.priority,
                label=task.label or (os.path.basename(task.argv[0]) if task.argv else ""),
                node=task.node,
                node_soft=task.node_soft,
                keep=tuple(dict.fromkeys(map(known, task.keep))),
                scratch=tuple(dict.fromkeys(map(known, task.scratch))),
                after=task.after,
                runtime=task.runtime,
                line=task.line,
            )
        )
    given = {name: size_of(name) for task in tasks for name in task.inputs if name not in made}
    return Replay(msgspec.structs.replace(workflow, tasks=tasks, files={}, sizes=sizes, paths={}, later={}, run_faults=[]), given)
