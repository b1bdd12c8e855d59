"""What simulated clusters work on: real workflows, the paper's synthetic ones, and random ones made to find faults.

A ``Workload`` is a checked workflow plus what the world knows of it: how long tasks run, how large files are, which tasks fail.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from amfs.engine.checks import AnyPlace, Plan, check
from amfs.engine.states import Outcome
from amfs.engine.tokens import token
from amfs.engine.workflow import Task, Workflow, canonical
from amfs.sim.settings import Faults

BASE = "/work"


class Workload:
    """Tasks with their plan and their behaviour in the simulated world."""

    def __init__(
        self,
        tasks: Sequence[Task],
        *,
        name: str = "simulated",
        base: str = BASE,
        seconds: float = 1.0,
        bytes_each: int = 10,
        sizes: Mapping[str, int] | None = None,
    ) -> None:
        """``seconds`` and ``bytes_each``: of tasks and files of which nothing else is said. ``sizes``: bytes by canonical name.
        Raises WorkflowError if it is faulty."""
        workflow = Workflow(list(tasks), name=name)
        self.name = name
        self.plan: Plan = check(workflow, AnyPlace(base))
        self.tasks = workflow.tasks
        self.seconds_default = seconds
        self.bytes_default = bytes_each
        self.seconds: dict[int, float] = {}  # task -> how long it runs
        self.sizes: dict[str, int] = dict(sizes or {})  # file -> bytes
        self.broken: dict[int, None] = {}  # tasks that always fail
        self.flaky: dict[int, int] = {}  # task -> how often it fails before it succeeds
        self.tries: dict[int, int] = {}  # task -> how often it was run
        self.succeeded: set[int] = set()  # tasks that ended well at least once, anywhere
        self.given = {path: self.sizes.get(file, bytes_each) for file, path in self.plan.shared.items()}  # shared inputs -> bytes
        self.open_ended = False
        self.first = len(self.tasks)  # tasks known from the beginning

    def open(self, first: int) -> None:
        """Make it a list that grows: only the ``first`` tasks are known at the beginning. The order must respect the dependencies."""
        assert self.plan.order is None
        self.open_ended = True
        self.first = first
        self.plan.count = first

    def work_s(self) -> float:
        """What all tasks need together, each run once, times their cores."""
        return sum(self.seconds.get(tid, self.seconds_default) * task.cores for tid, task in enumerate(self.tasks))

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

    def what_happens(self, tid: int, root: int) -> tuple[int, int, float]:
        """(outcome, code, seconds) of running a task now. A part of a reduction (``tid`` negative) behaves as its ``root``."""
        seconds = self.seconds.get(tid, self.seconds_default)
        tries = self.tries[tid] = self.tries.get(tid, 0) + 1
        if root in self.broken or tries <= self.flaky.get(root, 0):
            return int(Outcome.EXIT), 1, seconds
        return int(Outcome.OK), 0, seconds

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


# ── random ones ────────────────────────────────────────────────────────────────────────────────────


class _Builder:
    """Grows a random workflow block by block."""

    def __init__(self, rng: random.Random, nodes: int, retries: int) -> None:
        self.rng = rng
        self.nodes = nodes
        self.retries = retries
        self.tasks: list[Task] = []
        self.files: list[str] = []

    def task(self, inputs: Sequence[str] = (), outputs: int = 1, reduce: int = 0) -> list[str]:
        rng = self.rng
        number = len(self.tasks)
        made = [f"d{rng.randint(0, 3)}/f{number}.{i}" if rng.random() < 0.3 else f"f{number}.{i}" for i in range(outputs)]
        given = [f"given{rng.randint(0, 4)}"] if rng.random() < 0.2 and not reduce else []
        options: dict[str, object] = {}
        if rng.random() < 0.15:
            options["cores"] = rng.randint(1, 4)
        if rng.random() < 0.15:
            options["priority"] = rng.randint(-2, 2)
        if rng.random() < 0.12:
            options["node"] = rng.randrange(self.nodes)
            options["node_soft"] = rng.random() < 0.5
        if made and rng.random() < 0.1:
            options["keep"] = (made[0],)
        elif made and rng.random() < 0.1:
            options["scratch"] = (made[-1],)
        if self.tasks and rng.random() < 0.2:
            earlier = rng.sample(self.tasks, min(len(self.tasks), rng.randint(1, 3)))
            options["after"] = tuple([task.id for task in earlier])
        argv = ("cat", "{in}", "{out}") if reduce else ("work",)
        self.tasks.append(
            Task(f"t{number}", argv, inputs=(*inputs, *given), outputs=tuple(made), retries=self.retries, reduce=reduce, **options)  # type: ignore[arg-type]
        )
        self.files.extend(made)
        return made

    def some_files(self, most: int) -> list[str]:
        count = min(len(self.files), self.rng.randint(1, most))
        return self.rng.sample(self.files, count)

    def block(self, kind: str, size: int) -> None:
        rng = self.rng
        if kind == "independent":
            for _ in range(size):
                self.task(outputs=rng.randint(0, 2))
        elif kind == "pairs":
            for _ in range(size):
                self.task(self.task())
        elif kind == "chain":
            files = self.task()
            for _ in range(size):
                files = self.task(files)
        elif kind == "fan out":
            files = self.task()
            for _ in range(size):
                self.task(files, rng.randint(0, 1))
        elif kind == "fan in":
            self.task([file for _ in range(size) for file in self.task()])
        elif kind == "reduction":
            files = [file for _ in range(size) for file in self.task()]
            self.task(files, reduce=rng.randint(2, 3))
        else:
            for _ in range(size):
                self.task(self.some_files(3) if self.files else (), rng.randint(0, 3))


BLOCKS: tuple[str, ...] = ("independent", "pairs", "chain", "fan out", "fan in", "reduction", "random")


def random_workload(rng: random.Random, nodes: int, faults: Faults) -> Workload:
    """A small workflow of all the shapes that there are, in random order and with random options."""
    builder = _Builder(rng, nodes, rng.randint(1, 3) if faults.flaky_tasks else rng.choice((0, 0, 1)))
    for _ in range(rng.randint(1, 5)):
        builder.block(rng.choice(BLOCKS), rng.randint(1, 8))
    tasks = builder.tasks
    shuffled = rng.random() < 0.3
    if shuffled:
        rng.shuffle(tasks)
    workload = Workload(tasks, seconds=1.0)
    mean = rng.choice((0.0005, 0.02, 0.5, 3.0))
    for tid, task in enumerate(workload.tasks):
        workload.seconds[tid] = rng.expovariate(1 / mean)
        for name in task.outputs:
            workload.sizes[name] = rng.choice((0, 10, 1000, 70_000, 5_000_000))
    workload.spoil(rng, faults)
    workload.seconds_default = mean
    if workload.plan.order is None and rng.random() < 0.15:
        workload.open(rng.randint(0, len(workload.tasks)))
    return workload


LENGTHS_S = (0.01, 0.01, 0.3, 2.0, 10.0)


def mix_lengths(workload: Workload, rng: random.Random) -> None:
    """Make some workloads of tasks of very different lengths: short ones whose files long ones go on reading when much has happened."""
    if rng.random() < 0.3:
        for tid in range(len(workload.tasks)):
            workload.seconds[tid] = rng.choice(LENGTHS_S)


def from_workflow(
    workflow: Workflow, *, seconds: float, bytes_each: int, time_scale: float = 1.0, size_scale: float = 1.0, base: str = BASE
) -> Workload:
    """A workflow that was read from a file, with its recorded run times and sizes times the scales.

    ``seconds`` and ``bytes_each`` hold, as they are, for the tasks and files of which nothing is recorded. Raises WorkflowError.
    """
    sizes = {canonical(name, base): round(size * size_scale) for name, size in workflow.sizes.items()}
    workload = Workload(workflow.tasks, name=workflow.name, base=base, seconds=seconds, bytes_each=bytes_each, sizes=sizes)
    for tid, task in enumerate(workload.tasks):
        if task.runtime is not None:
            workload.seconds[tid] = task.runtime * time_scale
    return workload
