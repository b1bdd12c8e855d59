"""Random workflows made to find faults: blocks of all shapes that there are, with options drawn as often as a ``Mix`` says."""

from __future__ import annotations

import random
from collections.abc import Sequence

import msgspec

from amfs.sim.scenario import SimTask
from amfs.sim.settings import Faults
from amfs.workflow.workflow import Task

BLOCKS: tuple[str, ...] = ("independent", "pairs", "chain", "fan out", "fan in", "reduction", "random")


class Mix(msgspec.Struct, frozen=True):
    """The make-up of a workflow. Probabilities are per task."""

    blocks: tuple[str, ...] = BLOCKS
    blocks_max: int = 5
    size_max: int = 8  # of a block
    given: float = 0.2  # reads a shared input
    cores: float = 0.15
    priority: float = 0.15
    pins: float = 0.12
    soft: float = 0.5  # of the pins: a wish
    keep: float = 0.1
    scratch: float = 0.1
    after: float = 0.2
    retries: tuple[int, ...] = (0, 0, 1)
    seconds: tuple[float, ...] = (0.0005, 0.02, 0.5, 3.0)  # one is the mean
    sizes: tuple[int, ...] = (0, 10, 1000, 70_000, 5_000_000)
    shuffled: float = 0.3
    grows: float = 0.15


class _Builder:
    """Grows a random workflow block by block."""

    def __init__(self, rng: random.Random, nodes: int, mix: Mix) -> None:
        self.rng = rng
        self.nodes = nodes
        self.mix = mix
        self.retries = rng.choice(mix.retries)
        self.tasks: list[Task] = []
        self.files: list[str] = []

    def task(self, inputs: Sequence[str] = (), outputs: int = 1, reduce: int = 0) -> list[str]:
        rng, mix = self.rng, self.mix
        number = len(self.tasks)
        made = [f"d{rng.randint(0, 3)}/f{number}.{i}" if rng.random() < 0.3 else f"f{number}.{i}" for i in range(outputs)]
        given = [f"given{rng.randint(0, 4)}"] if rng.random() < mix.given and not reduce else []
        options: dict[str, object] = {}
        if rng.random() < mix.cores:
            options["cores"] = rng.randint(1, 4)
        if rng.random() < mix.priority:
            options["priority"] = rng.randint(-2, 2)
        if rng.random() < mix.pins:
            options["node"] = rng.randrange(self.nodes)
            options["node_soft"] = rng.random() < mix.soft
        if made and rng.random() < mix.keep:
            options["keep"] = (made[0],)
        elif made and rng.random() < mix.scratch:
            options["scratch"] = (made[-1],)
        if self.tasks and rng.random() < mix.after:
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


def random_tasks(rng: random.Random, nodes: int, faults: Faults, mix: Mix) -> tuple[tuple[SimTask, ...], dict[str, int], int]:
    """Tasks with their behaviour, the sizes of their files, and how many are known at the beginning (-1: all, the list is closed)."""
    builder = _Builder(rng, nodes, mix)
    for _ in range(rng.randint(1, mix.blocks_max)):
        builder.block(rng.choice(mix.blocks), rng.randint(1, mix.size_max))
    tasks = builder.tasks
    ordered = rng.random() >= mix.shuffled
    if not ordered:
        rng.shuffle(tasks)
    mean = rng.choice(mix.seconds)
    made: list[SimTask] = []
    for task in tasks:
        fails = 0
        if rng.random() < faults.broken_tasks:
            fails = -1
        elif task.retries > 0 and rng.random() < faults.flaky_tasks:
            fails = rng.randint(1, task.retries)
        made.append(SimTask(task, rng.expovariate(1 / mean), fails))
    sizes = {name: rng.choice(mix.sizes) for task in tasks for name in task.outputs}
    first = rng.randint(0, len(tasks)) if ordered and rng.random() < mix.grows else -1
    return tuple(made), sizes, first
