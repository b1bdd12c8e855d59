"""What there is to say of a run when it has ended, or on the way: its counts by stage, failures and losses. Used by ``amfs.runner``."""

from __future__ import annotations

import os
import posixpath
import resource
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from amfs.engine.states import FINISHED, SKIPPED
from amfs.engine.workflow import Task
from amfs.summary import Failure, Stage, Summary

if TYPE_CHECKING:
    from amfs.runner import RunShell


def stage_of(task: Task) -> str:
    """The stage in which a task is counted: its label, or the name of its program."""
    label = task.label or task.argv[0]
    return posixpath.basename(label) or label


def summary_of(run: RunShell, exit_code: int, outcome: str, notes: Sequence[str] = ()) -> Summary:
    stages: dict[str, Stage] = {}
    for label, f in run.stages.items():
        stage = stages.setdefault(label, Stage(label))
        stage.ok += int(f[0])
        stage.failed += int(f[1])
        stage.upstream_failed += int(f[2])
        stage.busy_seconds += f[3] * 1e-6
        stage.between_nodes_bytes += int(f[4])
        stage.to_shared_bytes += int(f[5])
        stage.without_bytes += int(f[6])
    state = run.submitter.state
    if run.submitter.ended < len(state) or run.submitter.skipped:
        for tid, task in enumerate(run.tasks):
            if state[tid] == SKIPPED or not state[tid]:
                label = stage_of(task)
                stage = stages.setdefault(label, Stage(label))
                if state[tid]:
                    stage.skipped += 1
                elif tid >= len(run.counted) or not run.counted[tid]:  # else it was to be made again
                    stage.not_run += 1
    _shared_inputs(run, stages)
    failures = [
        Failure(
            run.tasks[tid].id,
            result.detail,
            result.stderr.decode("utf-8", "replace"),
            f"{run.options.source}:{run.tasks[tid].line}" if run.options.source and run.tasks[tid].line else "",
            result.node,
        )
        for tid, result in run.failures
    ]
    told = "\n".join(failure.what for failure in failures)
    untold = [error for error in run.flush_errors if error.partition(": ")[2] not in told]
    if run.gone:
        nodes = f"node {run.gone[0]} was" if len(run.gone) == 1 else f"nodes {', '.join(map(str, run.gone))} were"
        untold.insert(0, f"{nodes} lost on the way; {run.reruns} {'task' if run.reruns == 1 else 'tasks'} had to run again")
    used = resource.getrusage(resource.RUSAGE_SELF)
    return Summary(
        outcome=outcome,
        exit_code=exit_code,
        wall_seconds=time.time() - run.started,
        stages=list(stages.values()),
        failures=failures,
        failures_omitted=run.failures_omitted,
        nodes=max(1, len(run.submitter.members)),
        slots=sum(run.submitter.members.values()),
        engine_cpu_seconds=used.ru_utime + used.ru_stime,
        lost_nodes=run.gone,
        reruns=run.reruns,
        notes=[*notes, *untold[:10]],
    )


def _shared_inputs(run: RunShell, stages: dict[str, Stage]) -> None:
    """Add what was read from shared storage: each file once per node when staged, once per task when read in place."""
    plan = run.plan
    if not plan.shared:
        return
    sizes: dict[str, int] = {}
    staged: set[str] = set()
    for tid, task in enumerate(run.tasks):
        if run.submitter.state[tid] != FINISHED:
            continue
        stage = stages[stage_of(task)]
        for name in task.inputs:
            name = plan.aliases.get(name, name)
            if name not in plan.shared:
                continue
            size = sizes.get(name)
            if size is None:
                size = 0
                with suppress(OSError):
                    size = os.stat(plan.shared[name]).st_size
                sizes[name] = size
            stage.without_bytes += size
            if not run.options.stage_shared or name not in staged:
                stage.from_shared_bytes += size
                staged.add(name)
