"""Bytes on each node for a workflow's files, whole or in stripes, by arithmetic alone: the tables of ``fs.partition``, no cluster.

Owns the two workloads that are looked at: the shape of Montage with the sizes of AMFS Shell §5.4, and an aggregation in which one task
reads what all others wrote. ``python -m benchmarks striping`` sets what real nodes hold beside these figures.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from amfs._native import xxh64
from amfs.vocabulary.partition import PartitionTable
from amfs.workflow.workflow import Task, Workflow

STRIPE = 512 << 10
_MB = 1_000_000
_SERIAL_BITS = 40  # an inode's number is its partition and a serial


def montage(tiles: int, scale: float = 1.0) -> Workflow:
    """Montage's shape over a square of ``tiles`` images: project, compare neighbours, fit the background, correct, add.

    Projected and corrected images have 4 MB, each with an image of areas as large; a difference has 1 MB; the mosaic as much as a quarter
    of what it is added from. ``scale`` multiplies all sizes.
    """
    edge = max(1, math.isqrt(tiles))
    image, small = round(4 * _MB * scale), round(_MB * scale)
    tasks: list[Task] = []
    sizes: dict[str, int] = {}

    def add(name: str, inputs: Sequence[str], outputs: Mapping[str, int]) -> None:
        tasks.append(Task(name, (name.partition("-")[0],), tuple(inputs), tuple(outputs)))
        sizes.update(outputs)

    cells = [(x, y) for y in range(edge) for x in range(edge)]
    for x, y in cells:
        add(f"mProjectPP-{x}-{y}", (), {f"p-{x}-{y}": image, f"pa-{x}-{y}": image})
    fits = []
    for x, y in cells:
        for dx, dy in ((1, 0), (0, 1), (1, 1), (1, -1)):
            if x + dx < edge and 0 <= y + dy < edge:
                fits.append(f"fit-{x}-{y}-{dx}-{dy}")
                inputs = (f"p-{x}-{y}", f"p-{x + dx}-{y + dy}")
                add(f"mDiffFit-{x}-{y}-{dx}-{dy}", inputs, {f"d-{x}-{y}-{dx}-{dy}": small, fits[-1]: 300})
    add("mBgModel", fits, {"corrections": 60 * len(cells)})
    for x, y in cells:
        add(f"mBackground-{x}-{y}", (f"p-{x}-{y}", f"pa-{x}-{y}", "corrections"), {f"c-{x}-{y}": image, f"ca-{x}-{y}": image})
    mosaic = image * len(cells) // 4
    add("mAdd", [f"{kind}-{x}-{y}" for x, y in cells for kind in ("c", "ca")], {"mosaic": mosaic, "mosaic-area": mosaic})
    return Workflow(tasks, name="Montage", sizes=sizes)


def aggregation(writers: int, size: int) -> Workflow:
    """``writers`` tasks write a file of ``size`` bytes each; one task reads them all and writes as much."""
    names = [f"part-{number}" for number in range(writers)]
    tasks = [Task(f"write-{number}", ("write",), (), (name,)) for number, name in enumerate(names)]
    tasks.append(Task("collect", ("collect",), tuple(names), ("whole",)))
    return Workflow(tasks, name="N-1 aggregation", sizes={**dict.fromkeys(names, size), "whole": size * writers})


class Placed(NamedTuple):
    """Where each task of a workflow runs, and which of its files come to lie where when files are whole."""

    tasks: list[tuple[Task, int]]
    whole: dict[str, set[int]]


def place(workflow: Workflow, nodes: int) -> Placed:
    """Tasks go where most bytes of their inputs are, evenly round if that is nowhere; a whole file is where it was written and, as a
    replica, wherever it was read. Files that no task writes are on shared storage and count for nobody."""
    holders: dict[str, set[int]] = {}
    tasks = []
    for turn, task in enumerate(workflow.tasks):
        there: Counter[int] = Counter()
        for name in task.inputs:
            for node in holders.get(name, ()):
                there[node] += workflow.sizes.get(name, 0)
        node = min(there, key=lambda n, turn=turn: (-there[n], (n - turn) % nodes)) if there else turn % nodes  # type: ignore[misc]
        for name in task.inputs:
            if name in holders:
                holders[name].add(node)
        for name in task.outputs:
            holders[name] = {node}
        tasks.append((task, node))
    return Placed(tasks, holders)


def whole_bytes(workflow: Workflow, placed: Placed, nodes: int) -> list[int]:
    """Bytes on each node when files are whole, replicas included."""
    found = [0] * nodes
    for name, holders in placed.whole.items():
        for node in holders:
            found[node] += workflow.sizes.get(name, 0)
    return found


def first_partition(ino: int, partitions: int) -> int:
    """Where stripe 0 of a file lies; stripe i lies i partitions further (csrc/metadata/fsmeta.h)."""
    return xxh64(ino.to_bytes(8, "little")) % partitions


def striped_bytes(workflow: Workflow, placed: Placed, table: PartitionTable, stripe: int = STRIPE) -> list[int]:
    """Bytes on each node, numbered from 0, when all files are in stripes: the same for all readers and writers."""
    owners, partitions = table.owners, len(table.owners)
    found = [0] * (max(owners) + 1)
    for serial, name in enumerate(placed.whole):
        ino = xxh64(name) % partitions << _SERIAL_BITS | serial + 1
        first = first_partition(ino, partitions)
        left = workflow.sizes.get(name, 0)
        index = 0
        while left > 0:
            found[owners[(first + index) % partitions]] += min(stripe, left)
            left -= stripe
            index += 1
    return found


def balance(counts: Sequence[int]) -> float:
    """The fullest node over the mean; 1 is even."""
    total = sum(counts)
    return max(counts) * len(counts) / total if total else 1.0
