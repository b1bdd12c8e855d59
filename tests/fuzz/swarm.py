"""From a seed to a scenario.

Swarm testing (Groce et al., 2012): a simulation in which everything is varied a little seldom gets far into any one thing, because faults
undo each other and limits hide each other. So most seeds vary few things, and those strongly; the others vary everything a little.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import msgspec

from amfs.config import DispatcherLimits, MemberLimits, MemoryLimits, SubmitterLimits, WorkerLimits
from amfs.sim import faults as fault_plan
from amfs.sim.scenario import FaultEvent, Scenario, Settings
from amfs.sim.settings import Faults, Limits, draw_faults, draw_files
from fuzz.shapes import BLOCKS, Mix, random_tasks

Theme = Callable[[random.Random], dict[str, Any]]

#: Faults, each strongly. Fields of ``Faults``.
FAULTS: dict[str, Theme] = {
    "losses": lambda rng: {"loss": rng.uniform(0.03, 0.15)},
    "repetitions": lambda rng: {"duplication": rng.uniform(0.1, 0.5), "jitter_s": rng.choice((0.0, 0.001, 0.02))},
    "jitter": lambda rng: {"jitter_s": rng.choice((0.001, 0.01, 0.05, 0.2))},
    "clogs": lambda rng: {"clog": rng.uniform(0.002, 0.03), "clog_s": rng.uniform(0.2, 3.0)},
    "crash": lambda rng: {"crashes": 1, "restarts": rng.random() < 0.3},
    "crashes": lambda rng: {"crashes": rng.randint(1, 4), "restarts": rng.random() < 0.5},
    "joins": lambda rng: {"joins": rng.randint(1, 3)},
    "comings and goings": lambda rng: {"crashes": rng.randint(1, 3), "joins": rng.randint(1, 3), "restarts": rng.random() < 0.5},
    "stalls": lambda rng: {"stalls": rng.randint(1, 3), "stall_s": rng.choice((0.5, 4.0, 16.0))},
    "cut": lambda rng: {"partition_s": rng.choice((1.0, 8.0, 30.0)) * rng.random() + 0.1, "partition_for_good": rng.random() < 0.15},
    "broken tasks": lambda rng: {"broken_tasks": rng.uniform(0.05, 0.4)},
    "flaky tasks": lambda rng: {"flaky_tasks": rng.uniform(0.3, 1.0)},
    "storage": lambda rng: {"storage_errors": rng.uniform(0.05, 0.4)},
    "transfers": lambda rng: {"transfer_errors": rng.uniform(0.1, 0.6)},
    "submitter": lambda rng: {rng.choice(("client_dies", "client_stops")): True},
}
#: Those that seeds without faults have, too.
QUIET_FAULTS = ("broken tasks", "flaky tasks")

#: Limits and options, each strongly. Fields of ``Settings`` or of the limits, by their names.
LIMITS: dict[str, Theme] = {
    "tight workers": lambda rng: {"window_min": 1, "window_per_slot": 1, "parked_max": rng.choice((1, 3, 100_000)), "parked_step": 1},
    "tight submitter": lambda rng: {"window": rng.choice((1, 4, 8)), "lent": rng.choice((1, 3, 200_000)), "batch": rng.choice((1, 5, 256))},
    "late reports": lambda rng: {"parked_step": 32, "window_min": rng.choice((1, 4)), "window": rng.choice((4, 8))},
    "follow the data": lambda rng: {"data_aware": True, "forward_bytes_min": rng.choice((0, 1000))},
    "blind": lambda rng: {"data_aware": False},
    "units": lambda rng: {"unit_size": rng.choice((1, 1, 2, 3))},
    "staging": lambda rng: {"stage_shared": True},
    "keep all": lambda rng: {"keep_all": True},
    "fail fast": lambda rng: {"fail_fast": True},
    "backlog": lambda rng: {"backlog_s": 0.05},
}

#: Workflows, each strongly one thing. Fields of ``Mix``.
WORKFLOWS: dict[str, Theme] = {
    "one shape": lambda rng: {"blocks": (rng.choice(BLOCKS),), "blocks_max": 3, "size_max": 16},
    "two shapes": lambda rng: {"blocks": tuple(rng.sample(BLOCKS, 2)), "blocks_max": 4, "size_max": 12},
    "pins": lambda rng: {"pins": 0.6, "soft": rng.choice((0.0, 0.0, 0.5, 1.0))},
    "wide": lambda rng: {
        "blocks": ("independent", "fan out", "pairs"), "blocks_max": 2, "size_max": 24, "pins": rng.choice((0.0, 0.4)), "soft": 0.0,
    },
    "order": lambda rng: {"after": 0.7},
    "reductions": lambda rng: {"blocks": ("reduction", "reduction", "random"), "size_max": 14, "retries": (0, 1, 3)},
    "finals": lambda rng: {"keep": 0.5, "scratch": 0.2},
    "growing": lambda rng: {"grows": 1.0, "shuffled": 0.0},
    "retries": lambda rng: {"retries": (1, 2, 3)},
    "instant": lambda rng: {"seconds": (0.0005,)},
    "short": lambda rng: {"seconds": (0.02, 0.1)},
    "long": lambda rng: {"seconds": (3.0, 12.0)},
    "large files": lambda rng: {"sizes": (70_000, 5_000_000, 200_000_000)},
    "small files": lambda rng: {"sizes": (0, 10)},
    "plain": lambda rng: {"cores": 0.0, "priority": 0.0, "pins": 0.0, "after": 0.0, "given": 0.0, "keep": 0.0, "scratch": 0.0},
}

#: Stories in which several things must come together to get anywhere. Fields of ``Faults``, of limits and options, and of ``Mix``;
#: "on": events at which fault_events happen, "delays": how long after them.
PLOTS: dict[str, Theme] = {
    "a reduction falls apart": lambda rng: {
        "crashes": 2, "flaky_tasks": 0.8, "on": ("ReducePlan",), "delays": (1.0, 5.0, 9.0, 14.0),
        "seconds": (8.0,),  # so long that parts of it still run when it is noticed that a node has died
        "blocks": ("reduction",), "blocks_max": 4, "size_max": 8, "retries": (2, 3), "sizes": (1000, 70_000), "nodes": (3, 4, 5),
    },
    "death while settling": lambda rng: {
        "crashes": 1, "on": ("FinalizeFiles", "Flush", "Flushed"), "nodes": (2, 3, 4), "grows": 1.0, "shuffled": 0.0,
        "blocks": ("independent", "fan out"), "pins": 0.0, "seconds": (0.02, 0.5), "scratch": 0.0,
    },
    "what waits takes the room": lambda rng: {
        "crashes": rng.randint(1, 2), "window_min": 1, "window_per_slot": 1, "parked_max": 1, "parked_step": 32, "lent": 1,
        "window": rng.choice((4, 8)), "unit_size": rng.choice((1, 2)), "blocks": ("chain", "fan in", "random"), "after": 0.5,
        "nodes": (3, 4), "seconds": (0.5,),
    },
    "the source of a fetch dies": lambda rng: {
        "crashes": rng.randint(1, 3), "on": ("Content", "Fetch", "Replica", "Located"), "data_aware": False,
        "blocks": ("fan out", "random"), "size_max": 20, "sizes": (200_000_000, 5_000_000_000), "nodes": (4, 5, 7), "seconds": (0.02, 0.5),
    },
    "a thief dies": lambda rng: {
        "crashes": rng.randint(1, 2), "on": ("TaskMoved", "StealAsk"), "blocks": ("independent", "fan out"), "size_max": 24,
        "seconds": (0.5, 3.0), "nodes": (3, 4), "pins": 0.0, "cores": 0.0, "data_aware": False,
    },
    "copies that come late": lambda rng: {
        "broken_tasks": 0.3, "blocks": ("random",), "size_max": 12, "seconds": (0.5,), "sizes": (10, 5_000_000_000), "data_aware": False,
        "nodes": (3, 4, 5), "grows": 0.0, "keep": 0.0,
    },
    "manager and heir do not hear each other": lambda rng: {
        "partition_s": rng.uniform(5.0, 20.0), "cut": ("pair", (0, 1)), "jitter_s": rng.choice((0.0, 0.01)), "nodes": (3, 4, 5),
        "seconds": (0.5, 3.0),
    },
}

EVERYTHING = 0.2  # share of the seeds that vary everything a little
PLOTTED = 0.3  # share of the others that follow a plot
MIXED = 0.2  # share of those without a plot whose tasks are of very different lengths
BLACK_HOLES = 0.2  # share of the quiet seeds without other faults that have a node on which every task fails
LITTLE_MEMORY = 0.15  # share of the seeds in which the files do not fit in memory
DRAINS = 0.2  # share of the seeds with faults in which nodes are told to end
LENGTHS_S = (0.01, 0.01, 0.3, 2.0, 10.0)  # short ones whose files long ones go on reading when much has happened


def _pick(rng: random.Random, themes: dict[str, Theme], count: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in rng.sample(list(themes), count):
        found.update(themes[name](rng))
    return found


def _a_little(rng: random.Random) -> dict[str, Any]:
    """Limits of which each may be anything."""
    return {
        "backlog_s": rng.choice((0.0, 0.01)), "forward_bytes_min": rng.choice((0, 1000, 1 << 16)), "parked_step": rng.choice((1, 4, 32)),
        "window_min": rng.choice((1, 4, 128)), "window_per_slot": rng.choice((1, 8)), "parked_max": rng.choice((1, 100_000)),
        "window": rng.choice((1, 8, 4096)), "lent": rng.choice((1, 200_000)), "batch": rng.choice((1, 5, 256)),
        "unit_size": rng.choice((0, 0, 1, 2, 3)), "data_aware": rng.random() < 0.6, "stage_shared": rng.random() < 0.4,
        "keep_all": rng.random() < 0.1, "fail_fast": rng.random() < 0.1,
    }  # fmt: skip


def _fields(kind: type[Any], chosen: dict[str, Any]) -> Any:
    return kind(**{name: chosen[name] for name in kind.__struct_fields__ if name in chosen})


def limits_of(chosen: dict[str, Any]) -> Limits:
    """The machines' limits: their defaults but for what was chosen."""

    def some(kind: type[Any], **renamed: str) -> Any:
        fields = {name: chosen[renamed.get(name, name)] for name in kind.__struct_fields__ if renamed.get(name, name) in chosen}
        return kind(**fields)

    submitter = msgspec.structs.replace(some(SubmitterLimits, parked_max="lent"), window_per_slot=0 if "window" in chosen else 4)
    return Limits(some(WorkerLimits), some(DispatcherLimits), submitter, MemberLimits())


def draw(seed: int, *, quiet: bool) -> Scenario:
    """The scenario of a seed."""
    rng = random.Random(seed * 2 + quiet)
    plot: dict[str, Any] = {}
    if rng.random() < EVERYTHING:
        faults = draw_faults(rng)
        chosen, mix = _a_little(rng), Mix()
        if faults.flaky_tasks:
            mix = Mix(retries=(1, 2, 3))
    elif not quiet and rng.random() < PLOTTED:
        plot = chosen = _pick(rng, PLOTS, 1)
        faults, mix = _fields(Faults, plot), _fields(Mix, plot)
    else:
        known = {name: theme for name, theme in FAULTS.items() if not quiet or name in QUIET_FAULTS}
        count = rng.choice((0, 0, 1)) if quiet else rng.choice((1, 1, 1, 2, 2, 3))
        faults = Faults(**_pick(rng, known, count))
        chosen = _pick(rng, LIMITS, rng.choice((0, 1, 1, 2)))
        shape = _pick(rng, WORKFLOWS, rng.choice((1, 1, 2)))
        if faults.flaky_tasks:
            shape.setdefault("retries", (1, 2, 3))
        mix = Mix(**shape)
    nodes = rng.choice(plot.get("nodes", (1, 2, 2, 3, 3, 4, 5, 7)))
    if quiet:
        faults = Faults(broken_tasks=faults.broken_tasks, flaky_tasks=faults.flaky_tasks)
        if nodes > 1 and not (faults.broken_tasks or faults.flaky_tasks or chosen.get("unit_size")):
            faults = msgspec.structs.replace(faults, black_hole=random.Random(f"black hole {seed}").random() < BLACK_HOLES)
    elif nodes == 1:
        faults = msgspec.structs.replace(faults, crashes=0, partition_s=0.0)
    if faults.client_dies:
        faults = msgspec.structs.replace(faults, client_returns=random.Random(f"returns {seed}").random() < 0.5)
    drains: tuple[FaultEvent, ...] = ()
    told = random.Random(f"drain {seed}")  # of their own, that the other seeds stay as they were
    if not quiet and nodes > 1 and told.random() < DRAINS:
        drains = fault_plan.draw_drains(told, nodes, told.choice((0.05, 1.0, 10.0)))
        faults = msgspec.structs.replace(faults, drains=len(drains))
    tasks, sizes, first = random_tasks(rng, nodes, faults, mix)
    lengths = random.Random(f"lengths {seed}")
    if not plot and lengths.random() < MIXED:
        tasks = tuple([msgspec.structs.replace(one, seconds=lengths.choice(LENGTHS_S)) for one in tasks])
    limits = limits_of(chosen)
    memory = random.Random(f"little memory {seed}")
    if memory.random() < LITTLE_MEMORY:
        share = memory.choice((0.05, 0.2, 0.2, 0.5, 1.0))
        limits = msgspec.structs.replace(limits, memory=MemoryLimits(
            limit=max(1, int(sum(sizes.values()) * share)), high_water=memory.choice((0.5, 0.8, 0.8, 1.0)), spill="/disk",
        ))  # fmt: skip
        trouble = memory.random()
        if not quiet and trouble < 0.4:
            faults = msgspec.structs.replace(faults, **{"disk_full" if trouble < 0.2 else "disk_errors": memory.uniform(0.05, 0.6)})
    settings = Settings(
        seed=seed,
        quiet=quiet,
        nodes=nodes,
        slots=tuple(rng.randint(1, 3) for _ in range(nodes)),
        unit_size=chosen.get("unit_size", 0),
        data_aware=chosen.get("data_aware", rng.random() < 0.6),
        stage_shared=chosen.get("stage_shared", False),
        keep_all=chosen.get("keep_all", False),
        fail_fast=chosen.get("fail_fast", False),
        limits=Limits.silent(limits) if quiet else limits,
        faults=faults,
    )
    within_s = rng.choice((0.05, 1.0, 10.0))
    finer = {name: plot[name] for name in ("cut", "delays") if name in plot}
    befalls = fault_plan.draw(rng, faults, nodes, within_s, plot.get("on", fault_plan.EVENTS), **finer)
    return Scenario(settings, tasks, sizes, (*befalls, *drains), first, draw_files(seed))
