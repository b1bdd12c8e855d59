"""Simulations in which tasks read and make files of the session (``amfs:/``), while nodes die: scenarios, and what must come of them.

The rest of a scenario is that of the same seed (``swarm``), without the faults that take the run itself along.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import msgspec

from amfs.sim.scenario import Scenario
from amfs.sim.session_files import content_of, look
from amfs.sim.settings import Faults, FileLoad
from amfs.sim.world import World
from amfs.vocabulary.attr import LOST
from amfs.vocabulary.paths import in_namespace
from amfs.vocabulary.states import FINISHED
from amfs.workflow.workflow import Task
from fuzz.swarm import draw

if TYPE_CHECKING:
    from amfs.sim.client import SimClient

DIRECTORY = "amfs:/t"


def draw_session(seed: int, *, quiet: bool) -> Scenario:
    """The scenario of a seed, with some of the files that tasks make in the session."""
    scenario = draw(seed, quiet=quiet)
    rng = random.Random(f"session {seed} {quiet}")
    share = rng.choice((0.2, 0.5, 0.9, 1.0))
    made = [name for one in scenario.tasks for name in one.task.outputs]
    names = {name: f"{DIRECTORY}/{name}" for name in made if rng.random() < share}
    tasks = tuple([msgspec.structs.replace(one, task=_renamed(one.task, names)) for one in scenario.tasks])
    old = scenario.settings.faults
    faults = Faults(
        loss=old.loss, duplication=old.duplication, jitter_s=old.jitter_s, crashes=old.crashes, restarts=old.restarts, joins=old.joins,
        broken_tasks=old.broken_tasks, flaky_tasks=old.flaky_tasks, transfer_errors=old.transfer_errors, black_hole=old.black_hole,
        drains=old.drains,
    )  # fmt: skip
    befalls = tuple([one for one in scenario.fault_events if one.what in ("crash", "drain", "join")])
    if faults.crashes and rng.random() < 0.5:  # when something is there to be lost
        befalls = tuple([msgspec.structs.replace(one, at=one.at + rng.uniform(0.0, 10.0)) for one in befalls])
    return msgspec.structs.replace(
        scenario, settings=msgspec.structs.replace(scenario.settings, faults=faults, fail_fast=False), tasks=tasks, fault_events=befalls,
        sizes={names.get(name, name): size for name, size in scenario.sizes.items()}, files=FileLoad(seed, 0, 0, 0.0), session=True,
    )  # fmt: skip


def _renamed(task: Task, names: dict[str, str]) -> Task:
    fields = {field: tuple([names.get(name, name) for name in getattr(task, field)]) for field in ("inputs", "outputs", "keep", "scratch")}
    kept = {names.get(name, name) for name in task.scratch}
    fields["scratch"] = tuple([name for name in fields["scratch"] if name in kept and not in_namespace(name)])
    return msgspec.structs.replace(task, **fields)


def check_session_files(world: World, client: SimClient, *, names_may_go: bool) -> None:
    """A run ended well: files that its tasks made in the session are there, unless a node died of which it could not know any more."""
    if client.over is None or client.over.reason or names_may_go:
        return
    if not client.knew_all_deaths:
        return
    for tid, task in enumerate(client.tasks):
        if client.submitter.state[tid] != FINISHED:
            continue
        for name in filter(in_namespace, task.outputs):
            attr, content = look(world, client.workload.plan.aliases.get(name, name))
            assert attr is not None, f"task {tid} finished, and {name} is not there"
            assert attr.finished == 1, f"task {tid} finished, and {name} is {'lost' if attr.finished == LOST else 'never finished'}: {attr}"
            assert content == content_of(name), f"task {tid} finished, and {name} contains {content[:60]!r}"
