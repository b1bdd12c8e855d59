"""The workflows of ``benchmarks elastic``: shapes, times and sizes of their stages, for any number of nodes. Pure.

Montage has the stages of the 8-degree mosaic in "Characterizing and profiling scientific workflows" (Juve et al., 2013), which counts tasks
and gives their mean times and sizes. The whole file is what the simulator and real sessions take alike; why it is made so is told in
docs/benchmarks.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from amfs.sim.workload import Workload
from amfs.workflow.workflow import Task

MIB = 1 << 20
MEMORY = 256 * MIB  # of a node
SLOTS = 4

#: Of 16 nodes: a mosaic of 2102 images in an eighth as many tasks, each eight times as long.
COARSER = 8
IMAGES = 2102 / COARSER / 16
#: Of an image, so that mAdd, with all images and all tiles, fills 65 % of the memory: as much as the paper's 1 TB on 64 nodes of 24 GB.
IMAGE_MIB = 5.9
TILE_MIB = 35.0
TILES = 2  # of each node


class Shape(NamedTuple):
    """``tasks`` have their recorded run times. ``time_scale``: of a run on a real session, where it is to take minutes."""

    name: str
    tasks: list[Task]
    sizes: dict[str, int]
    time_scale: float


class _Tasks:
    def __init__(self) -> None:
        self.tasks: list[Task] = []
        self.sizes: dict[str, int] = {}

    def add(self, name: str, seconds: float, inputs: Sequence[str], output: str, mib: float) -> None:
        self.sizes[output] = int(mib * MIB)
        label = name.rstrip("0123456789")
        self.tasks.append(Task(name, (label,), inputs=tuple(inputs), outputs=(output,), label=label, runtime=seconds))


def montage(nodes: int) -> Shape:
    """Images are projected, compared with their neighbours, corrected by a model of all differences, and added to tiles, which are
    shrunk to one picture. Two tasks in the middle run alone, for half of the time on all nodes."""
    made = _Tasks()
    count, tiles = max(4, round(IMAGES * nodes)), TILES * nodes
    row = max(2, round(count**0.5))
    small = 0.001
    for i in range(count):
        made.add(f"mProjectPP{i}", 1.73 * COARSER, (), f"p{i}", IMAGE_MIB)
    fits = []
    for i in range(count):
        for step in (1, row, row + 1):
            if i + step < count:
                fits.append(f"d{i}-{step}")
                made.add(f"mDiffFit{len(fits)}", 0.66 * COARSER, (f"p{i}", f"p{i + step}"), fits[-1], small)
    made.add("mConcatFit", 143.26, fits, "fits", 0.5)
    made.add("mBgModel", 384.49, ("fits",), "model", 0.1)
    for i in range(count):
        made.add(f"mBackground{i}", 1.72 * COARSER, (f"p{i}", "model"), f"c{i}", IMAGE_MIB)
    shrunk = []
    for tile in range(tiles):
        images = [f"c{i}" for i in range(count * tile // tiles, max(count * tile // tiles + 1, count * (tile + 1) // tiles))]
        made.add(f"mImgtbl{tile}", 2.78, images, f"t{tile}", small)
        made.add(f"mAdd{tile}", 282.37 * 16 / (TILES * 16), (f"t{tile}", *images), f"a{tile}", TILE_MIB)
        shrunk.append(f"s{tile}")
        made.add(f"mShrink{tile}", 66.10 * 16 / (TILES * 16), (f"a{tile}",), shrunk[-1], 0.5)
    made.add("mJPEG", 5.0, shrunk, "mosaic", 1)
    return Shape("Montage-like", made.tasks, made.sizes, 1 / 8)


def blast(nodes: int) -> Shape:
    """Parts of a database are formatted, each is searched for several batches of sequences, and the results are merged. Memory fills slowly
    with results; tasks of 15 to 25 s take all slots for most of the time."""
    made = _Tasks()
    parts, batches = 2 * nodes, 12
    for part in range(parts):
        made.add(f"formatdb{part}", 30.0, (), f"db{part}", 16)
    for part in range(parts):
        for batch in range(batches):
            number = part * batches + batch
            made.add(f"blastall{number}", 15.0 + 10.0 * (number * 5 % 7) / 7, (f"db{part}",), f"r{number}", 5)
    for part in range(parts):
        made.add(f"merge{part}", 30.0, [f"r{part * batches + batch}" for batch in range(batches)], f"m{part}", 4)
    made.add("found", 90.0, [f"m{part}" for part in range(parts)], "all", 16)
    return Shape("BLAST-like", made.tasks, made.sizes, 1 / 2)


SHAPES: dict[str, Callable[[int], Shape]] = {"montage": montage, "blast": blast}


def workload_of(shape: Shape, time_scale: float) -> Workload:
    """For the simulator."""
    workload = Workload(shape.tasks, sizes=shape.sizes, name=shape.name)
    workload.seconds = {number: (task.runtime or 0.0) * time_scale for number, task in enumerate(shape.tasks)}
    return workload


def text_of(shape: Shape) -> bytes:
    """JSON Lines, which ``amfs run --synthetic`` reads."""
    lines = [{"type": "file", "name": name, "size": size} for name, size in shape.sizes.items()]
    for task in shape.tasks:
        lines.append({
            "type": "task", "id": task.id, "argv": task.argv, "inputs": task.inputs, "outputs": task.outputs, "runtime": task.runtime,
        })  # fmt: skip
    return b"".join(msgspec.json.encode(line) + b"\n" for line in lines)
