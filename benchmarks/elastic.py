"""``benchmarks elastic``: the policies of the MemFS paper beside as many nodes as they have at most (its Fig. 6 and Table I), simulated.

Owns the two workflows, made to be like the paper's: Montage, whose files fill the memory in the middle of the run, and BLAST, whose
memory fills slowly with results. Sizes and times are scaled with the nodes, so that each number of nodes has the same story.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec

from amfs.bench.dispatch import machine
from amfs.provision import policies
from amfs.sim.simulate import simulate
from amfs.sim.workload import Workload
from amfs.workflow.workflow import Task

MEMORY = 256 << 20  # of a node
SLOTS = 4
MIB = 1 << 20
COMES_S = 3.0


class Row(msgspec.Struct, frozen=True):
    """``nodes``, ``most``: that there were at first, and at most. ``slower``, ``saved``: time and node-seconds beside the same workflow
    on all nodes from beginning to end."""

    workload: str
    policy: str
    nodes: int
    most: int
    makespan_s: float
    static_s: float
    slower: float
    saved: float
    changes: int


class Report(msgspec.Struct, frozen=True):
    machine: str
    rows: list[Row]


def montage(nodes: int) -> Workload:
    """For each slot of ``nodes``: images are projected, compared with neighbours, corrected, and added to one mosaic. What has been read by
    all goes; corrected images are there until the end."""
    count = nodes * SLOTS
    tasks: list[Task] = []
    sizes: dict[str, int] = {}
    seconds: dict[int, float] = {}

    def add(name: str, time: float, inputs: tuple[str, ...], output: str, mib: float) -> None:
        seconds[len(tasks)] = time
        sizes[output] = int(mib * MIB)
        tasks.append(Task(name, ("x",), inputs=inputs, outputs=(output,)))

    for i in range(count):
        add(f"project{i}", 40.0, (), f"p{i}", 16)
    for i in range(count):
        add(f"diff{i}", 10.0, (f"p{i}", f"p{(i + 1) % count}"), f"d{i}", 1)
    add("model", 60.0, tuple(f"d{i}" for i in range(count)), "m", 1)
    for i in range(count):
        add(f"correct{i}", 40.0, (f"p{i}", "m"), f"c{i}", 34)
    for i in range(0, count, SLOTS):
        add(f"add{i}", 30.0, tuple(f"c{k}" for k in range(i, i + SLOTS)), f"a{i}", 4)
    add("mosaic", 120.0, tuple(f"a{i}" for i in range(0, count, SLOTS)), "mosaic", 16)
    return _made(tasks, sizes, seconds)


def blast(nodes: int) -> Workload:
    """A database is formatted in parts, each query searches one part, and all that was found is merged at last."""
    count = nodes * SLOTS
    tasks, sizes, seconds = [Task("split", ("x",), outputs=("db",))], {"db": 64 * MIB}, {0: 20.0}
    for i in range(3 * count):
        seconds[len(tasks)] = 20.0 + 20.0 * (i % 7) / 7
        sizes[f"r{i}"] = 18 * MIB
        tasks.append(Task(f"search{i}", ("x",), inputs=("db",), outputs=(f"r{i}",)))
    seconds[len(tasks)] = 150.0
    sizes["found"] = 16 * MIB
    tasks.append(Task("merge", ("x",), inputs=tuple(f"r{i}" for i in range(3 * count)), outputs=("found",)))
    return _made(tasks, sizes, seconds)


def _made(tasks: list[Task], sizes: dict[str, int], seconds: dict[int, float]) -> Workload:
    workload = Workload(tasks, sizes=sizes)
    workload.seconds = seconds
    return workload


WORKLOADS: dict[str, Callable[[int], Workload]] = {"Montage-like": montage, "BLAST-like": blast}


def measure(*, named: tuple[str, ...], nodes: tuple[int, ...], say: Callable[[str], None]) -> Report:
    """``named``: policies, shipped ones or files, each between its own bounds; ``nodes``: the default policy between a sixteenth and all of
    so many. Raises UsageError."""
    chosen = [policies.load(policy) for policy in named]
    chosen += [policies.load("default", max(1, most // 16), most) for most in nodes]
    rows = []
    for name, make in WORKLOADS.items():
        for policy in chosen:
            say(f"{name}, {policy.source}, at most {policy.most} nodes ...")
            static = simulate(make(policy.most), nodes=policy.most, slots=SLOTS, unit_size=64, memory=MEMORY)
            first = policy.start or policy.least
            found = simulate(
                make(policy.most), nodes=first, slots=SLOTS, unit_size=64, memory=MEMORY, policy=policy, comes_s=COMES_S
            )  # fmt: skip
            rows.append(Row(
                name, Path(policy.source).name, first, found.nodes_most, found.makespan_s, static.makespan_s,
                found.makespan_s / static.makespan_s - 1, 1 - found.node_s / static.node_s, sum(1 for one in found.decisions if one.nodes),
            ))  # fmt: skip
    return Report(machine(), rows)
