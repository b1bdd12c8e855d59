"""Nodes that are told to end hand over the files of runs that only they have, so that no task runs twice for want of them."""

from __future__ import annotations

import pytest
from fuzz.checker import check_memory

from amfs.config import MemoryLimits
from amfs.sim.cluster import Cluster
from amfs.sim.settings import Limits
from amfs.sim.workload import Workload
from amfs.sim.world import World
from amfs.workflow.workflow import Task

MIB = 1 << 20


def gated(makers: int, seconds: float) -> Workload:
    """Files that are read only after a task on node 0 has ended."""
    tasks = [Task("gate", ("x",), outputs=("gate",), node=0)]
    tasks += [Task(f"m{k}", ("x",), outputs=(f"a{k}",)) for k in range(makers)]
    tasks += [Task(f"s{k}", ("x",), inputs=(f"a{k}", "gate"), outputs=(f"b{k}",)) for k in range(makers)]
    workload = Workload(tasks, seconds=0.2, sizes={f"a{k}": 3 * MIB for k in range(makers)})
    workload.seconds[0] = seconds
    return workload


def run(workload: Workload, cluster: Cluster, world: World, *drains: tuple[int, float, float]) -> None:
    """``drains``: node, when it is told, how long it may take."""
    client = cluster.client()
    client.start()
    for node, at, limit_s in drains:
        world.at(at, cluster.drain, node, limit_s)
    world.run(lambda: client.over is not None, 200.0)
    assert client.over is not None and not client.over.reason
    assert client.submitter.finished == len(workload.tasks)


def test_no_task_runs_twice_when_nodes_leave_one_after_the_other() -> None:
    world, workload = World(1), gated(24, 40.0)
    cluster = Cluster(world, workload, nodes=4, slots=2)
    run(workload, cluster, world, (1, 8.0, 30.0), (2, 16.0, 30.0), (3, 24.0, 30.0))
    assert set(workload.tries.values()) == {1}, workload.tries
    assert not any(cluster.nodes[node].alive for node in (1, 2, 3))


def test_what_does_not_fit_is_spilled_there() -> None:
    limits = Limits(memory=MemoryLimits(limit=12 * MIB, spill="/spill"))
    world, workload = World(1), gated(6, 40.0)
    cluster = Cluster(world, workload, nodes=2, slots=1, limits=limits)
    run(workload, cluster, world, (1, 8.0, 30.0))
    assert set(workload.tries.values()) == {1}, workload.tries


def test_what_there_was_no_time_for_is_made_again() -> None:
    world, workload = World(1), gated(24, 40.0)
    cluster = Cluster(world, workload, nodes=2, slots=2)
    run(workload, cluster, world, (1, 8.0, 0.001))
    assert sum(workload.tries.values()) > len(workload.tasks)


@pytest.mark.parametrize("seed", range(3))
def test_the_taker_dies_and_what_it_took_is_made_again(seed: int) -> None:
    world, workload = World(seed), gated(24, 40.0)
    cluster = Cluster(world, workload, nodes=3, slots=2)
    world.at(14.0, cluster.crash, 2)
    run(workload, cluster, world, (1, 8.0, 30.0))


@pytest.mark.parametrize("joins", [False, True])
def test_after_a_node_has_left_in_order_what_nobody_reads_any_more_is_dropped(joins: bool) -> None:
    """It stayed in memory to the end of the run, as after a death."""
    world, workload = World(1), gated(24, 20.0)
    cluster = Cluster(world, workload, nodes=4, slots=2)
    client = cluster.client()
    client.hold_end(5.0, lambda: check_memory(cluster, workload, client))
    client.start()
    for node, at in ((3, 4.0), (2, 9.0)):
        world.at(at, cluster.drain, node, 30.0)
    if joins:
        world.at(14.0, cluster.add, 2)
    world.run(lambda: client.over is not None, 200.0)
    assert client.over is not None and not client.over.reason and client.before_end is None
    assert set(workload.tries.values()) == {1}, workload.tries
    assert not any(cluster.nodes[node].alive for node in (2, 3))
