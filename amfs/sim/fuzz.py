"""Random clusters with random workflows and random faults, one per seed. Every failure names the seed and the settings that replay it.

Two modes. With faults: real links over a network that loses, repeats, delays and cuts; nodes that die and return; tasks that fail. Quiet:
nothing is lost, and no timer helps (no stealing, no heartbeats, no retransmission): everything must still finish, which shows that no
retry hides a wake-up that was forgotten.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import msgspec

from amfs.config import DispatcherLimits, MemberLimits, SubmitterLimits, WorkerLimits
from amfs.engine import messages as m
from amfs.engine.workflow import Task
from amfs.fs.paths import scope_of
from amfs.net.link import Limits as LinkLimits
from amfs.sim import calamities, checker
from amfs.sim.cluster import Cluster
from amfs.sim.settings import Faults, Limits, draw_faults
from amfs.sim.workload import Workload, mix_lengths, random_workload
from amfs.sim.world import World

EVENT_BUDGET = 400_000
PATIENCE_S = 600.0  # virtual; beyond what the tasks themselves need


class Settings(msgspec.Struct, frozen=True):
    """All that a seed decides beside the workflow."""

    seed: int
    quiet: bool
    nodes: int
    slots: tuple[int, ...]
    unit_size: int
    data_aware: bool
    stage_shared: bool
    keep_all: bool
    fail_fast: bool
    limits: Limits
    faults: Faults


class Finding(AssertionError):
    """A seed failed. ``str`` says what, under which settings, and what happened last."""

    def __init__(self, settings: Settings, world: World, error: BaseException, workload: Workload) -> None:
        super().__init__(str(error))
        self.settings = settings
        self.error = error
        story = "\n".join(f"  {when:.6f} {who} {kind} {what!r}"[:240] for when, who, kind, what in list(world.story)[-25:])
        tasks = "\n".join(f"  {tid}: {_brief(task)}"[:200] for tid, task in enumerate(workload.tasks[:60]))
        self.report = (
            f"seed {settings.seed} fails at {world.now:.6f} s, event {world.events}: {type(error).__name__}: {error}\n"
            f"{describe(settings)}\nworkflow:\n{tasks}\nlast events:\n{story}"
        )


def _brief(task: Task) -> str:
    """What is out of the ordinary about a task, on one line."""
    default = Task(task.id, task.argv)
    facts = [f"{name}={value!r}" for name in Task.__struct_fields__ if (value := getattr(task, name)) != getattr(default, name)]
    return " ".join([task.id, *facts])


class Verdict(msgspec.Struct, frozen=True):
    """A seed that went well."""

    seed: int
    digest: int
    events: int
    virtual_s: float
    tasks: int
    finished: int
    failed: int
    reason: str


def describe(settings: Settings) -> str:
    """Settings for people, on a few lines."""
    values = msgspec.to_builtins(settings)
    return "\n".join(f"  {name} = {value}" for name, value in values.items())


def draw_settings(seed: int, *, quiet: bool) -> tuple[Settings, random.Random]:
    """What the seed says; the generator goes on to make the workflow."""
    rng = random.Random(seed * 2 + quiet)
    nodes = rng.choice((1, 2, 2, 3, 3, 4, 5, 7))
    faults = draw_faults(rng)
    if faults.client_dies:
        faults = msgspec.structs.replace(faults, client_returns=random.Random(f"returns {seed}").random() < 0.5)
    if quiet:
        faults = Faults(broken_tasks=faults.broken_tasks, flaky_tasks=faults.flaky_tasks)
    elif nodes == 1:
        faults = msgspec.structs.replace(faults, crashes=0, partition_s=0.0)
    limits = Limits(
        WorkerLimits(
            backlog_s=rng.choice((0.0, 0.01)), forward_bytes_min=rng.choice((0, 1000, 1 << 16)), parked_step=rng.choice((1, 4, 32))
        ),
        DispatcherLimits(window_min=rng.choice((1, 4, 128)), window_per_slot=rng.choice((1, 8)), parked_max=rng.choice((1, 100_000))),
        SubmitterLimits(
            window=rng.choice((1, 8, 4096)), window_per_slot=0, parked_max=rng.choice((1, 200_000)), batch=rng.choice((1, 5, 256))
        ),
        MemberLimits(),
    )  # fmt: skip
    settings = Settings(
        seed=seed,
        quiet=quiet,
        nodes=nodes,
        slots=tuple(rng.randint(1, 3) for _ in range(nodes)),
        unit_size=rng.choice((0, 0, 1, 2, 3)),
        data_aware=rng.random() < 0.6,
        stage_shared=rng.random() < 0.4,
        keep_all=rng.random() < 0.1,
        fail_fast=rng.random() < 0.1,
        limits=Limits.silent(limits) if quiet else limits,
        faults=faults,
    )
    return settings, rng


def run_seed(seed: int, *, quiet: bool = False, tell: Callable[[str], None] | None = None) -> Verdict:
    """Simulate one seed. Raises Finding."""
    settings, rng = draw_settings(seed, quiet=quiet)
    faults = settings.faults
    workload = random_workload(rng, settings.nodes, faults)
    mix_lengths(workload, random.Random(f"lengths {seed}"))
    world = World(seed, faults=faults, event_budget=EVENT_BUDGET)
    world.tell = tell
    try:
        return _run(settings, rng, workload, world)
    except Exception as error:
        raise Finding(settings, world, error, workload) from error


def _run(settings: Settings, rng: random.Random, workload: Workload, world: World) -> Verdict:
    faults = settings.faults
    cluster = Cluster(
        world, workload, nodes=settings.nodes, slots=list(settings.slots), unit_size=settings.unit_size,
        limits=settings.limits, links=None if settings.quiet else LinkLimits(),
    )  # fmt: skip
    info = m.RunInfo(
        scope_of(1), workload.plan.base, ("A=b",), data_aware=settings.data_aware, stage_shared=settings.stage_shared,
        journal="journal" if faults.client_dies else "", life=1,
    )  # fmt: skip
    client = cluster.client(
        info=info, fail_fast=settings.fail_fast, keep_all=settings.keep_all, heartbeat_s=1.0 if not settings.quiet else float("inf")
    )
    client.start()
    lost = calamities.schedule(cluster, client, faults, rng, rng.choice((0.05, 1.0, 10.0)))
    work_s = sum(workload.seconds.values()) * 4
    latest = PATIENCE_S + work_s
    if faults.client_dies:
        world.run(lambda: not client.alive, latest)
    if faults.client_returns:
        world.let_pass(random.Random(f"returns {settings.seed}").choice((0.0, 0.1, 2.0, 20.0)))
        workload.succeeded.clear()
        client = cluster.client(
            info=msgspec.structs.replace(info, scope=scope_of(2), life=2), run=2, number=client.id + 1,
            fail_fast=settings.fail_fast, keep_all=settings.keep_all,
        )  # fmt: skip
        client.start()
    if not faults.client_dies or faults.client_returns:
        world.run(lambda: client.over is not None, world.now + latest)
        assert client.over is not None
        suspected = faults.nodes_may_go or not settings.quiet
        checker.check_results(workload, client, faults, lost_nodes=lost | client.submitter.lost, suspected=suspected)
        checker.check_finals(workload, client, world.shared, faults)
        world.let_pass(1.0)
        client.die()
    world.cut = None
    world.let_pass(60.0)
    checker.check_nothing_left(cluster, cut_off=bool(faults.partition_s))
    submitter = client.submitter
    return Verdict(
        settings.seed, world.digest, world.events, world.now, submitter.total, submitter.finished, submitter.failed,
        client.over.reason if client.over is not None else "the submitter died",
    )  # fmt: skip
