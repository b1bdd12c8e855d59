"""Blind tasks in simulations: scenarios with them, how they behave, and what must come of them.

A blind task looks for files by name in the session's file system when it has run for a while, and fails if one is not there; if all are, it
makes its own at its end, all at once. Files of the user may appear at any time. The rest of a scenario is that of the same seed without
blind tasks (``swarm``).
"""

from __future__ import annotations

import random
from collections.abc import Set
from typing import TYPE_CHECKING

import msgspec

from amfs.engine.dispatcher import EXCUSED_MAX
from amfs.sim.scenario import Scenario, SimTask
from amfs.sim.workload import BlindTask, Workload
from amfs.vocabulary.states import FAILED, FINISHED, Outcome
from amfs.workflow.workflow import Task
from fuzz.swarm import draw

if TYPE_CHECKING:
    from amfs.sim.client import SimClient


def draw_blind(seed: int, *, quiet: bool) -> Scenario:
    """The scenario of a seed, with blind tasks in place of its workflow, or (in a third of the seeds) besides."""
    scenario = draw(seed, quiet=quiet)
    rng = random.Random(f"blind {seed} {quiet}")
    count = rng.choice((3, 8, 8, 20, 40))
    names = [f"/f{index}" for index in range(count)]
    blind: list[SimTask] = []
    seconds = rng.choice((0.001, 0.05, 0.5, 3.0))
    for index in range(count):
        made = names[index : index + 1] if rng.random() < 0.9 else []
        if rng.random() < 0.1:
            made = [*made, f"{names[index]}.more"]
        reads = rng.sample(names[:index], min(index, rng.choice((0, 1, 1, 2, 3))))
        if rng.random() < 0.04:
            reads.append(rng.choice(("/never", *names[index:])))  # nobody makes it, or tasks that wait for each other
        if rng.random() < 0.1:
            reads.append("/given")
        if rng.random() < 0.03:
            reads.append("/late")
        noise = (f"/noise{rng.randint(0, 2)}",) if rng.random() < 0.2 else ()
        fails = -1 if rng.random() < scenario.settings.faults.broken_tasks else 0
        blind.append(SimTask(
            Task(f"b{index}", ("blind",), cwd="/", blind=True, cores=rng.choice((1, 1, 1, 2)), retries=rng.choice((0, 0, 1))),
            rng.expovariate(1 / seconds), fails, BlindTask(tuple(dict.fromkeys(reads)), tuple(made), noise, rng.random() < 0.15),
        ))  # fmt: skip
    order = rng.random()
    if order < 0.4:
        rng.shuffle(blind)
    elif order < 0.7:
        blind.reverse()
    besides = rng.random() < 0.33
    first = -1 if rng.random() < 0.8 else rng.randint(0, count)
    if besides:
        first = scenario.first
    appear = {"/given": 0.0, "/late": rng.choice((0.01, 0.3, 5.0, 60.0))}
    return msgspec.structs.replace(
        scenario, tasks=(*(scenario.tasks if besides else ()), *blind), first=first, appear=appear, sizes=scenario.sizes if besides else {},
    )  # fmt: skip


def can_be_made(workload: Workload, given: Set[str], *, lenient: bool = True) -> set[int]:
    """The blind tasks that can end well: everything that they read can be made, or they hide that it is missing (``lenient``)."""
    files = set(given)
    well: set[int] = set()
    while True:
        more = {
            tid for tid, task in workload.blind.items()
            if tid not in well and tid not in workload.broken and ((task.hides and lenient) or files.issuperset(task.reads))
        }  # fmt: skip
        if not more:
            return well
        well |= more
        files.update(name for tid in more for name in workload.blind[tid].makes)


def check_blind(workload: Workload, client: SimClient, *, quiet: bool) -> None:
    """Every task whose files can be made ended well, the others failed and name a file that is not there; none ran more than it had to."""
    if client.over is None or client.over.reason or not workload.blind:
        return
    state = client.submitter.state
    always = set(workload.appear) - {"/late"}
    surely, perhaps = can_be_made(workload, always), can_be_made(workload, set(workload.appear))
    possible = set(workload.appear).union(name for tid in perhaps for name in workload.blind[tid].makes)
    first = can_be_made(workload, always, lenient=False)  # before any task has to do without a file
    surely_made = always.union(name for tid in first for name in workload.blind[tid].makes)
    for tid, task in workload.blind.items():
        last = client.ended[tid][-1]
        if tid in surely:
            assert state[tid] == FINISHED, f"blind task {tid} can have all its files, and failed: {last}"
        elif tid not in perhaps:
            assert state[tid] == FAILED, f"blind task {tid} cannot have its files, or always fails, and finished"
        if state[tid] == FINISHED and task.hides:
            lacked = surely_made.intersection(workload.lacked.get(tid, ()))
            assert not lacked, f"blind task {tid} ended well without {lacked}, which another makes"
        if state[tid] == FAILED:
            assert last.outcome == Outcome.EXIT, f"blind task {tid} failed as {last}"
            if not task.hides and not possible.issuperset(task.reads):
                assert last.missing, f"blind task {tid} failed for want of a file, and its result names none: {last}"
        assert not (state[tid] == FINISHED and last.outcome), f"blind task {tid} finished, and its last result is {last}"
        if quiet:
            ran, well = workload.tries.get(tid, 0), workload.went_well.get(tid, 0)
            retries = max(0, workload.tasks[tid].retries) + EXCUSED_MAX if tid in workload.broken or task.hides else 0
            assert ran <= 1 + len(task.reads) + task.hides + retries, f"blind task {tid} ran {ran} times for {len(task.reads)} files"
            assert well <= 1, f"blind task {tid} ran {well} times after it had ended well"
