"""The tasks of a shuffle (AMFS Shell §3.4): the lines of many files into parts, each key in exactly one of them. Pure.

Two kinds of tasks. A *partition* task stands where its input files lie and splits their lines into pieces, one for each part. A *join* task
stands on the node that is to hold its part, and puts the pieces of that part one after the other: those of its own node first, then those
of its neighbours in the ring of nodes. The engine brings the pieces, and does again what a lost node had done.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from amfs.vocabulary.paths import NAMESPACE
from amfs.workflow.workflow import Task, Workflow

PARTS_MAX = 4096  # csrc/data/line_partitioner.h
COLUMN_MAX = 1 << 30


class Input(NamedTuple):
    """A file whose lines are shuffled. ``path`` in the file system; ``nodes`` hold its first bytes."""

    path: bytes
    size: int
    nodes: tuple[int, ...]


class Rule(NamedTuple):
    """The place of a line's key, and the number of parts. ``delimiter`` None: columns are separated by blanks."""

    parts: int
    column: int = 1
    delimiter: bytes | None = None

    def fault(self) -> str:
        """The fault of it, for a person; "" if there is none."""
        if not 1 <= self.parts <= PARTS_MAX:
            return f"there can be 1 to {PARTS_MAX} parts, not {self.parts}"
        if not 1 <= self.column <= COLUMN_MAX:
            return f"columns are counted from 1; there is no column {self.column}"
        if self.delimiter is not None and (len(self.delimiter) != 1 or self.delimiter in b"\n\0"):
            return "a delimiter is one byte, and neither a newline nor a zero byte"
        return ""


def part_name(part: int) -> str:
    return f"part-{part:05d}"


def name_of(path: bytes) -> str:
    """The name by which a task calls a file of the file system."""
    return NAMESPACE[:-1] + path.decode(errors="surrogateescape")


def spread(inputs: Iterable[Input], slots: Mapping[int, int]) -> list[tuple[int, list[Input]]]:
    """Which files each partition task takes, and where: at most one task a slot, each on a node that holds its files, with about the same
    number of bytes. A file that no such node holds goes where there is least."""
    held: dict[int, list[Input]] = {node: [] for node in sorted(slots)}
    bytes_of = dict.fromkeys(held, 0)
    for each in sorted(inputs, key=lambda one: (-one.size, one.path)):
        near = [node for node in each.nodes if node in held] or list(held)
        node = min(near, key=lambda one: (bytes_of[one], one))
        held[node].append(each)
        bytes_of[node] += each.size
    groups: list[tuple[int, list[Input]]] = []
    for node, files in held.items():
        bins: list[list[Input]] = [[] for _ in range(min(max(1, slots[node]), len(files)))]
        filled = [0] * len(bins)
        for each in files:  # the largest first
            least = min(range(len(bins)), key=lambda at: (filled[at], at))
            bins[least].append(each)
            filled[least] += each.size + 1  # an empty file is opened, too
        groups += [(node, sorted(chosen)) for chosen in bins]
    return groups


def plan(inputs: Sequence[Input], source: bytes, target: bytes, slots: Mapping[int, int], rule: Rule, program: str) -> Workflow:
    """The workflow that shuffles ``inputs``, which lie at or below ``source``, into the directory ``target``. ``slots``: of every node;
    ``program``: where amfs-partition is. Raises ValueError."""
    if fault := rule.fault():
        raise ValueError(fault)
    if not slots:
        raise ValueError("there is no node to shuffle on")
    how = ["-k", str(rule.column), "-n", str(rule.parts)]
    if rule.delimiter is not None:
        how += ["-d", rule.delimiter.decode(errors="surrogateescape")]
    ring = sorted(slots)
    place = {node: at for at, node in enumerate(ring)}
    groups = spread(inputs, slots)
    tasks: list[Task] = []
    for number, (node, files) in enumerate(groups):
        prefix = f"piece.{number}."
        tasks.append(
            Task(
                f"partition-{number}",
                (program, *how, prefix, name_of(source)),
                inputs=tuple(name_of(each.path) for each in files),
                outputs=tuple(f"{prefix}{part}" for part in range(rule.parts)),
                label="partition",
                node=node,
                node_soft=True,
            )
        )
    for part in range(rule.parts):
        owner = part % len(ring)
        order = sorted(range(len(groups)), key=lambda at: ((owner - place[groups[at][0]]) % len(ring), at))
        pieces = tuple(f"piece.{at}.{part}" for at in order)
        output = name_of(target).rstrip("/") + "/" + part_name(part)
        tasks.append(
            Task(
                f"join-{part}",
                (program, "-j", output, *pieces),
                inputs=pieces,
                outputs=(output,),
                label="join",
                node=ring[owner],
                node_soft=True,
            )
        )
    return Workflow(tasks, name="shuffle")
