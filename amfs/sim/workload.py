"""Workflows for simulated clusters: real ones, the synthetic ones of the paper, and random ones made to find faults.

A ``Workload`` is a checked workflow plus what the world knows of it: how long tasks run, how large files are, which tasks fail.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

import msgspec

from amfs.sim.settings import Faults
from amfs.vocabulary.states import Outcome
from amfs.workflow.any_place import AnyPlace
from amfs.workflow.checks import Plan, check
from amfs.workflow.tokens import token
from amfs.workflow.workflow import Task, Workflow, canonical

BASE = "/work"
LOOKS_AT = 0.3  # of its time, when a blind task looks for its files


class BlindTask(msgspec.Struct, frozen=True, omit_defaults=True):
    """Files that a blind task reads, makes, or looks for besides when it fails: paths in the session's file system.

    ``hides``: it ends well all the same when a file is missing, as a pipeline does; its command line names what it reads.
    """

    reads: tuple[str, ...] = ()
    makes: tuple[str, ...] = ()
    noise: tuple[str, ...] = ()
    hides: bool = False


class Workload:
    """Tasks with their plan and their behaviour in the simulated world."""

    def __init__(
        self,
        tasks: Sequence[Task],
        *,
        name: str = "simulated",
        source: str = "",
        base: str = BASE,
        seconds: float = 1.0,
        bytes_each: int = 10,
        sizes: Mapping[str, int] | None = None,
    ) -> None:
        """``seconds`` and ``bytes_each``: of tasks and files of which nothing else is said. ``sizes``: bytes by canonical name.
        ``source``: the file that faults are told of. Raises WorkflowError if it is faulty."""
        workflow = Workflow(list(tasks), name=name, source=source)
        self.name = name
        self.plan: Plan = check(workflow, AnyPlace(base))
        self.tasks = workflow.tasks
        self.seconds_default = seconds
        self.bytes_default = bytes_each
        self.seconds: dict[int, float] = {}  # task -> how long it runs
        self.sizes: dict[str, int] = dict(sizes or {})  # file -> bytes
        self.broken: dict[int, None] = {}  # tasks that always fail
        self.flaky: dict[int, int] = {}  # task -> how often it fails before it succeeds
        self.black_hole = -1  # node on which every task fails
        self.tries: dict[int, int] = {}  # task -> how often it was run
        self.succeeded: set[tuple[int, int]] = set()  # run and number of tasks that ended well at least once, anywhere
        self.given = {path: self.sizes.get(file, bytes_each) for file, path in self.plan.shared.items()}  # shared inputs -> bytes
        self.blind: dict[int, BlindTask] = {}  # blind tasks -> what they do
        self.went_well: dict[int, int] = {}  # blind task -> how often it ended well
        self.lacked: dict[int, tuple[str, ...]] = {}  # blind task that hides it -> what was missing when it last ran
        self.appear: Mapping[str, float] = {}  # files in the session's file system that no task makes -> when they appear
        self.open_ended = False
        self.first = len(self.tasks)  # tasks known from the beginning

    def open(self, first: int) -> None:
        """Make it a list that grows: only the ``first`` tasks are known at the beginning. The order must respect the dependencies."""
        assert self.plan.order is None
        self.open_ended = True
        self.first = first
        self.plan.count = first

    def work_s(self, slots: int) -> float:
        """The seconds of all tasks together, each run once, times the slots that they take of a node that has ``slots``."""
        return sum(self.seconds.get(tid, self.seconds_default) * min(task.cores, slots) for tid, task in enumerate(self.tasks))

    def bytes_moved(self) -> tuple[int, int]:
        """Bytes of all files that tasks make, and of all that they read, those of each reader by themselves."""
        made = sum(self.size_of(name) for task in self.tasks for name in task.outputs)
        read = sum(self.size_of(name) for task in self.tasks for name in task.inputs)
        return made, read

    def spoil(self, rng: random.Random, faults: Faults) -> None:
        """Draw which tasks fail always, and which as often as their retries allow."""
        for tid, task in enumerate(self.tasks):
            if rng.random() < faults.broken_tasks:
                self.broken[tid] = None
            elif task.retries > 0 and rng.random() < faults.flaky_tasks:
                self.flaky[tid] = rng.randint(1, task.retries)

    def size_of(self, name: str) -> int:
        """Bytes of a file; ``name`` as a key or as a name."""
        size = self.sizes.get(name)
        if size is None:
            size = self.sizes.get(name.partition("/")[2], self.bytes_default) if self.sizes else self.bytes_default
        return size

    def what_happens(self, tid: int, root: int, node: int) -> tuple[int, int, float]:
        """(outcome, code, seconds) of running a task now. A part of a reduction (``tid`` negative) behaves as its ``root``."""
        seconds = self.seconds.get(tid, self.seconds_default)
        tries = self.tries[tid] = self.tries.get(tid, 0) + 1
        if root in self.broken or tries <= self.flaky.get(root, 0):
            return int(Outcome.EXIT), 1, seconds
        if node == self.black_hole:
            self.tries[tid] -= 1  # that does not count
            return int(Outcome.EXIT), 1, seconds
        return int(Outcome.OK), 0, seconds

    def misses(self, tid: int, files: Mapping[str, object]) -> tuple[str, ...]:
        """Files that a blind task looks for in vain when these files are there; it goes well if there are none."""
        task = self.blind[tid]
        missing = [name for name in task.reads if name not in files]
        return (*missing, *(name for name in task.noise if name not in files)) if missing else ()

    def downstream(self, roots: Sequence[int]) -> set[int]:
        """The tasks that wait, directly or not, for ``roots`` or their files; a root only if it waits for another."""
        readers: dict[str, list[int]] = {}
        for tid, task in enumerate(self.tasks):
            for name in (*task.inputs, *(token(self.plan.after[name]) for name in task.after)):
                readers.setdefault(name, []).append(tid)
        found: set[int] = set()
        todo = list(roots)
        while todo:
            root = todo.pop()
            for name in (*self.tasks[root].outputs, token(root)):
                for tid in readers.get(name, ()):
                    if tid not in found:
                        found.add(tid)
                        todo.append(tid)
        return found


# ── the paper's ────────────────────────────────────────────────────────────────────────────────────


def bag(cores: int, tasks_per_core: int, seconds: float) -> Workload:
    """Independent tasks of one length (AME §5.1)."""
    return Workload([Task(f"t{i}", ("sleep",)) for i in range(cores * tasks_per_core)], name="bag", seconds=seconds)


def pairs(nodes: int, slots: int, pairs_per_core: int, seconds: float, bytes_each: int = 10) -> Workload:
    """Pairs of tasks joined by a file; the second of a pair is bound to another node than the first (AME §5.2)."""
    tasks = []
    count = nodes * slots * pairs_per_core
    for i in range(count):
        tasks.append(Task(f"a{i}", ("produce",), outputs=(f"f{i}",), node=i % nodes))
    for i in range(count):
        tasks.append(Task(f"b{i}", ("consume",), inputs=(f"f{i}",), node=(i + 1 + i // nodes % max(1, nodes - 1)) % nodes))
    return Workload(tasks, name="pairs", seconds=seconds, bytes_each=bytes_each)


# ── from files ─────────────────────────────────────────────────────────────────────────────────────


def from_workflow(
    workflow: Workflow, *, seconds: float, bytes_each: int, time_scale: float = 1.0, size_scale: float = 1.0, base: str = BASE
) -> Workload:
    """A workflow that was read from a file, with its recorded run times and sizes times the scales.

    ``seconds`` and ``bytes_each`` hold, as they are, for the tasks and files of which nothing is recorded. Raises WorkflowError.
    """
    sizes = {canonical(name, base): round(size * size_scale) for name, size in workflow.sizes.items()}
    about = {"name": workflow.name, "source": workflow.source}
    workload = Workload(workflow.tasks, **about, base=base, seconds=seconds, bytes_each=bytes_each, sizes=sizes)
    for tid, task in enumerate(workload.tasks):
        if task.runtime is not None:
            workload.seconds[tid] = task.runtime * time_scale
    return workload
