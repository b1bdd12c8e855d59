"""The accounts of one run: counts and bytes by stage, failures, losses, and the summary made of them at its end.

Owns what results add up to. Must not know: loops, sockets, journals, traces.
"""

from __future__ import annotations

import functools
import posixpath
import resource
import time
from collections.abc import Callable, Sequence
from itertools import islice

import msgspec

from amfs.display.summary import Failure, Snapshot, Stage, Summary
from amfs.engine.submitter import Submitter
from amfs.errors import brief
from amfs.vocabulary import messages as m
from amfs.vocabulary.states import FINISHED, SKIPPED, Outcome
from amfs.workflow.checks import Plan
from amfs.workflow.workflow import Task

FAILURES_KEPT = 100
SUSPECTS_NAMED = 5
LEFT_NAMED = 5
OUTPUT_MAX = 16 << 20  # of what a task prints, a node keeps no more (csrc/launcher/catch.h)


def stage_of(task: Task) -> str:
    """The stage in which a task is counted: its label, or the name of its program."""
    return _base_name(task.label or task.argv[0])


@functools.lru_cache(1024)  # a million tasks have few labels
def _base_name(label: str) -> str:
    return posixpath.basename(label) or label


def left_in_words(left: int) -> str:
    return "left 1 process running, which was ended" if left == 1 else f"left {left} processes running, which were ended"


def told(result: m.Result) -> str:
    """Why it failed, with the places of what its node keeps of it."""
    words = [result.detail] if result.detail else []
    if result.whole:
        whole = "all" if result.stdout_bytes <= OUTPUT_MAX else f"the first {OUTPUT_MAX} (declare a file for it to have more) of"
        words.append(f"{whole} {result.stdout_bytes} bytes of stdout: {result.whole}")
    if result.sandbox:
        words.append(f"sandbox kept: {result.sandbox}")
    return brief("; ".join(words))


class Counts(msgspec.Struct):
    """Of the tasks of one label: how they ended, microseconds, bytes."""

    ended: list[int]  # finished, failed, failed upstream
    busy_us: int = 0
    fetched: int = 0
    to_shared: int = 0
    without: int = 0  # bytes that the tasks read and wrote


class Tally:
    """``final(task, name)``: does this output belong on shared storage? ``open_ended``: for a list that grows, only its end tells."""

    def __init__(
        self, tasks: list[Task], plan: Plan, *, final: Callable[[Task, str], bool], keep_all: bool = False, open_ended: bool = False,
        source: str = "", stage_shared: bool = False, size_on_shared: Callable[[str], int] = lambda path: -1,
    ) -> None:  # fmt: skip
        self.size_on_shared = size_on_shared  # of a path; -1: it is not there
        self.tasks = tasks
        self.plan = plan
        self.final = final
        self.keep_all = keep_all
        self.source = source
        self.stage_shared = stage_shared
        # Of an open list: label and size of outputs that nobody reads as yet. Final only if that stays so.
        self.unread: dict[str, tuple[str, int]] | None = {} if open_ended else None
        self.stages: dict[str, Counts] = {}
        self.counted = bytearray()  # by task: 1 + the column of its stage in which it counts; 0: it has not ended
        self.failures: list[tuple[int, m.Result]] = []  # the first that failed by themselves
        self.failures_omitted = 0
        self.left: dict[int, int] = {}  # tasks that ended well and left processes running -> how many
        self.reruns = 0  # results of tasks that had ended before: their files were lost with a node
        self.lost_nodes: list[int] = []
        self.news: list[str] = []  # sentences about nodes, for the person, at once
        self.flush_errors: list[str] = []
        self.bytes_moved = 0
        self.progress_made = (0, 0)  # the most that was finished, and had failed
        self.started = time.time()

    def lost(self, nodes: list[int]) -> None:
        """Nodes of the session that are gone."""
        self.lost_nodes += nodes
        self.news += [f"node {node} was lost; its files that are still wanted are made again" for node in nodes]

    def out_of_service(self, node: int) -> None:
        """A node that failed what others could do."""
        self.news.append(f"node {node} fails tasks that end well elsewhere: it gets no more tasks of this run")

    def add(self, result: m.Result) -> m.Result:
        """Count a result; returns it with a detail that names tasks by their ids."""
        task = self.tasks[result.tid]
        label = stage_of(task)
        stage = self.stages.get(label)
        if stage is None:
            stage = self.stages[label] = Counts([0, 0, 0])
        first = self._count(result, stage)
        if not result.outcome:
            if result.left:
                self.left[result.tid] = result.left
            if result.bytes_out and first:
                self._count_output(task, result, label, stage)
        else:
            result = msgspec.structs.replace(result, detail=self._why(result))
            if result.outcome != Outcome.UPSTREAM_FAILED:
                if len(self.failures) < FAILURES_KEPT:
                    self.failures.append((result.tid, result))
                else:
                    self.failures_omitted += 1  # a million of them would fill the memory with their last words
        stage.busy_us += result.end_us - result.start_us
        stage.fetched += result.bytes_fetched
        if first:
            stage.without += result.bytes_in
        self.bytes_moved += result.bytes_fetched
        return result

    def _count(self, result: m.Result, stage: Counts) -> bool:
        """A task counts once, as what it became last. Returns whether it had not ended before."""
        column = 0 if not result.outcome else 2 if result.outcome == Outcome.UPSTREAM_FAILED else 1
        counted, tid = self.counted, result.tid
        if tid >= len(counted):
            counted.extend(bytes(len(self.tasks) - len(counted)))
        before = counted[tid]
        counted[tid] = column + 1
        stage.ended[column] += 1
        if before:
            stage.ended[before - 1] -= 1
            self.reruns += 1
        return not before

    def _count_output(self, task: Task, result: m.Result, label: str, stage: Counts) -> None:
        stage.without += result.bytes_out
        for name, size in zip(task.outputs, result.sizes, strict=True):
            if self.final(task, name):
                if self.unread is None or self.keep_all or name in task.keep:
                    stage.to_shared += size
                else:
                    self.unread[name] = (label, size)

    def close_list(self) -> None:
        """No more tasks come: outputs that nobody reads are final now."""
        unread, self.unread = self.unread or {}, None
        for name, (label, size) in unread.items():
            if not self.plan.readers.get(name):
                self.stages[label].to_shared += size

    def in_words(self, cause: str) -> str:
        """Why a file will never be. A dispatcher knows the task that failed by its number; people know it by its id."""
        tid = m.task_that_failed(cause)
        return cause if tid is None or tid >= len(self.tasks) else f"task {self.tasks[tid].id} failed"

    def _why(self, result: m.Result) -> str:
        """Why a task failed, with the ids of other tasks that had to do with it."""
        if result.outcome == Outcome.UPSTREAM_FAILED:
            return self.in_words(result.detail)
        others = result.suspects
        names = ", ".join(f"task {self.tasks[tid].id}" for tid in others[:SUSPECTS_NAMED] if tid < len(self.tasks))
        more = f" and {len(others) - SUSPECTS_NAMED} more" if len(others) > SUSPECTS_NAMED else ""
        suspects = f" (or another task did that read it at the same time: {names}{more})" if names else ""
        return f"{result.detail}{suspects}{f'; {left_in_words(result.left)}' if result.left else ''}"

    def _left(self) -> list[str]:
        notes = [f"task {self.tasks[tid].id} {left_in_words(left)}" for tid, left in islice(self.left.items(), LEFT_NAMED)]
        more = len(self.left) - LEFT_NAMED
        return [*notes, f"{more} more {'task' if more == 1 else 'tasks'} left processes running, which were ended"] if more > 0 else notes

    # ── told ───────────────────────────────────────────────────────────────────────────────────────

    def snapshot(self, submitter: Submitter, open_list: bool = False) -> Snapshot:
        """Where the run stands. A task whose files were lost with a node stays counted as finished: progress does not run backwards."""
        before, sub = self.progress_made, submitter
        finished, failed = self.progress_made = max(before[0], sub.finished + sub.skipped), max(before[1], sub.failed)
        running = max(0, min(sub.outstanding, sum(sub.members.values())))
        return Snapshot(
            total=None if open_list else sub.total,
            finished=finished,
            failed=failed,
            running=running,
            waiting=max(0, sub.total - finished - failed - running),
            bytes_moved=self.bytes_moved,
        )

    def summary(self, submitter: Submitter, exit_code: int, outcome: str, notes: Sequence[str] = ()) -> Summary:
        """How the run ended, or where it stands."""
        stages = self._stages(submitter)
        failures = [
            Failure(
                self.tasks[tid].id,
                told(result),
                result.stderr.decode("utf-8", "replace"),
                f"{self.source}:{self.tasks[tid].line}" if self.source and self.tasks[tid].line else "",
                result.node,
            )
            for tid, result in self.failures
        ]
        said = "\n".join(failure.what for failure in failures)
        untold = [error for error in self.flush_errors if error.partition(": ")[2] not in said]
        if lost := self.lost_nodes:
            nodes = f"node {lost[0]} was" if len(lost) == 1 else f"nodes {', '.join(map(str, lost))} were"
            untold.insert(0, f"{nodes} lost on the way; {self.reruns} {'task' if self.reruns == 1 else 'tasks'} had to run again")
        spilled, returned = (submitter.counters.get(name, 0) for name in ("spilled_bytes", "returned_bytes"))
        if spilled:
            from amfs.display.progress import size_text

            back = f", and {size_text(returned)} were brought back" if returned else ""
            untold.insert(0, f"{size_text(spilled)} of files did not fit in memory and were spilled to disks{back}")
        used = resource.getrusage(resource.RUSAGE_SELF)
        return Summary(
            outcome=outcome,
            exit_code=exit_code,
            wall_seconds=time.time() - self.started,
            stages=list(stages.values()),
            failures=failures,
            failures_omitted=self.failures_omitted,
            nodes=max(1, len(submitter.members)),
            slots=sum(submitter.members.values()),
            engine_cpu_seconds=used.ru_utime + used.ru_stime,
            lost_nodes=self.lost_nodes,
            reruns=self.reruns,
            spilled_bytes=spilled,
            returned_bytes=returned,
            left_processes=sum(self.left.values()),
            notes=[*notes, *self._left(), *untold[:10]],
        )

    def _stages(self, submitter: Submitter) -> dict[str, Stage]:
        stages: dict[str, Stage] = {}
        for label, counts in self.stages.items():
            stage = stages.setdefault(label, Stage(label))
            stage.ok += counts.ended[0]
            stage.failed += counts.ended[1]
            stage.upstream_failed += counts.ended[2]
            stage.busy_seconds += counts.busy_us * 1e-6
            stage.between_nodes_bytes += counts.fetched
            stage.to_shared_bytes += counts.to_shared
            stage.without_bytes += counts.without
        state = submitter.state
        if submitter.ended < len(state) or submitter.skipped:
            for tid, task in enumerate(self.tasks):
                if state[tid] == SKIPPED or not state[tid]:
                    label = stage_of(task)
                    stage = stages.setdefault(label, Stage(label))
                    if state[tid]:
                        stage.skipped += 1
                    elif tid >= len(self.counted) or not self.counted[tid]:  # else it was to be made again
                        stage.not_run += 1
        if self.plan.shared:
            self._add_shared_inputs(submitter, stages)
        return stages

    def _add_shared_inputs(self, submitter: Submitter, stages: dict[str, Stage]) -> None:
        """Add what was read from shared storage: each file once per node when staged, once per task when read in place."""
        plan = self.plan
        sizes: dict[str, int] = {}
        staged: set[str] = set()
        for tid, task in enumerate(self.tasks):
            if submitter.state[tid] != FINISHED or not task.inputs:  # of an ended task a script may have kept nothing
                continue
            stage = stages[stage_of(task)]
            for name in task.inputs:
                name = plan.aliases.get(name, name)
                if name not in plan.shared:
                    continue
                size = sizes.get(name)
                if size is None:
                    seen = plan.versions.get(name)
                    size = sizes[name] = seen.size if seen is not None else max(0, self.size_on_shared(plan.shared[name]))
                stage.without_bytes += size
                if not self.stage_shared or name not in staged:
                    stage.from_shared_bytes += size
                    staged.add(name)
