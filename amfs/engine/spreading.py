"""The distribution plan of a load or dump (AMFS Shell §3.4): which node copies which files, in which orders. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

ORDER_FILES = 32
ORDER_BYTES = 128 << 20  # of one order, but of one file that is larger


class Job(NamedTuple):
    """A file to be copied. ``near``: nodes that have it, best first; empty: any may do it."""

    number: int
    size: int
    near: tuple[int, ...] = ()


def distribute(jobs: Iterable[Job], nodes: Iterable[int]) -> dict[int, list[Job]]:
    """A node for each job: one that has the file, else the one with the least bytes so far; the largest first."""
    bytes_of = dict.fromkeys(sorted(nodes), 0)
    plan: dict[int, list[Job]] = {node: [] for node in bytes_of}
    for job in sorted(jobs, key=lambda job: (-job.size, job.number)):
        near = [node for node in job.near if node in bytes_of]
        node = near[0] if near else min(bytes_of, key=lambda one: (bytes_of[one], len(plan[one]), one))
        plan[node].append(job)
        bytes_of[node] += job.size
    return {node: sorted(chosen) for node, chosen in plan.items() if chosen}


def orders(jobs: Sequence[Job]) -> Iterator[list[Job]]:
    """Portions that a node answers in a reasonable time."""
    portion: list[Job] = []
    size = 0
    for job in jobs:
        if portion and (len(portion) == ORDER_FILES or size + job.size > ORDER_BYTES):
            yield portion
            portion, size = [], 0
        portion.append(job)
        size += job.size
    if portion:
        yield portion
