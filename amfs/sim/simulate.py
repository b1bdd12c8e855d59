"""Simulations for numbers: how long would this workflow take on so many nodes, and what would it move. No faults unless asked for.

Messages always arrive, all nodes are there from the beginning, heartbeats and stealing are as asked; so the machines of thousands of nodes
fit into one process. The result is deterministic.
"""

from __future__ import annotations

import gc
import random
import time

import msgspec

from amfs.config import MemoryLimits
from amfs.engine.policy import Policy
from amfs.net.link import Limits as LinkLimits
from amfs.sim import faults as fault_plan
from amfs.sim.cluster import Cluster
from amfs.sim.elastic import Decision, Elastic
from amfs.sim.settings import Costs, Faults, Limits, Storage
from amfs.sim.workload import Workload
from amfs.sim.world import World
from amfs.vocabulary import messages as m
from amfs.vocabulary.paths import scope_of


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The measures of a simulated run. Times are virtual seconds except ``simulated_in_s``; sizes are bytes."""

    workload: str
    tasks: int
    timed: int  # tasks simulated with their recorded run time
    finished: int
    failed: int
    stopped: str  # why the run ended before its end; "" if it did not
    nodes: int
    slots: int  # of all nodes together
    unit_size: int  # 0: all nodes in one unit
    makespan_s: float
    task_s: float  # of all tasks together, times the slots that they had
    dispatch_rate: float  # tasks a second
    utilisation: float  # task_s over what the slots had; AME's efficiency (formula 1)
    bytes_between_nodes: int  # files
    bytes_of_messages: int
    bytes_from_shared: int
    bytes_to_shared: int
    submitter_busy: float  # share of the makespan
    dispatcher_busy: float  # of the busiest node
    events: int
    simulated_in_s: float  # wall-clock seconds
    node_s: float = 0.0  # seconds that nodes were there, all together
    nodes_most: int = 0
    decisions: tuple[Decision, ...] = ()  # of a policy


def simulate(
    workload: Workload,
    *,
    nodes: int,
    slots: int,
    unit_size: int = 0,
    costs: Costs | None = None,
    storage: Storage | None = None,
    faults: Faults | None = None,
    seed: int = 0,
    data_aware: bool = True,
    stealing: bool = True,
    latest_s: float = 1e9,
    policy: Policy | None = None,
    memory: int = 0,
    comes_s: float = 0.0,
) -> Report:
    """Run ``workload``. ``policy``: says how many nodes there are after the beginning; a new one is there ``comes_s`` later.
    ``memory``: of each node, for files, which are spilled to a disk beyond it; 0: without a limit. Raises Stuck if it does not end by
    ``latest_s``. Faults happen in the first half of what the tasks need."""
    started = time.perf_counter()
    world = World(seed, costs=costs, storage=storage, faults=faults, watched=False)
    limits = Limits()
    if faults is None or not faults.in_the_network:
        silent = Limits.silent()
        limits = Limits(limits.worker if stealing else silent.worker, limits.dispatcher, silent.submitter, silent.member)
    if policy is not None:  # nodes that come and go find and miss each other by their heartbeats
        limits = msgspec.structs.replace(limits, submitter=Limits().submitter, member=Limits().member)
    if memory:
        limits = msgspec.structs.replace(limits, memory=MemoryLimits(limit=memory, spill="/spill"))
    links = LinkLimits() if faults is not None and faults.in_the_network else None
    collecting = gc.isenabled()
    gc.disable()  # nearly nothing here is cyclic, and looking for it takes a third of the time
    try:
        expected = policy.most if policy is not None else nodes
        cluster = Cluster(
            world, workload, nodes=nodes, expected=expected, slots=slots, unit_size=unit_size, limits=limits, links=links
        )  # fmt: skip
        elastic = Elastic(cluster, policy, slots, comes_s) if policy is not None else None
        info = m.RunInfo(scope_of(1), workload.plan.base, (), data_aware=data_aware)
        client = cluster.client(info=info)
        client.start()
        if faults is not None:
            ideal_s = workload.work_s(slots) / (nodes * slots)
            fault_plan.Schedule(cluster, client, fault_plan.draw(random.Random(seed), faults, nodes, ideal_s / 2))
        world.run(lambda: client.over is not None or not client.alive, latest_s)
    finally:
        if collecting:
            gc.enable()
    counters = client.over.counters if client.over is not None else {}
    submitter = client.submitter
    last = max((results[-1].end_us for results in client.ended.values()), default=0) * 1e-6
    makespan = max(last, client.ended_at)
    node_s, most = nodes * makespan, nodes
    if elastic is not None:
        elastic.count()
        node_s, most = elastic.node_s, elastic.most
    task_s = sum(node.node_io.task_s for node in cluster.nodes.values())
    busiest = max((node.busy_s for node in cluster.nodes.values()), default=0.0)
    transports = [process.transport for process in world.processes.values()]
    return Report(
        workload=workload.name,
        tasks=submitter.total,
        timed=len(workload.seconds),
        finished=submitter.finished,
        failed=submitter.failed,
        stopped=client.over.reason if client.over is not None else "the submitter died",
        nodes=nodes,
        slots=nodes * slots,
        unit_size=unit_size,
        makespan_s=makespan,
        task_s=task_s,
        dispatch_rate=submitter.finished / makespan if makespan else 0.0,
        utilisation=task_s / (node_s * slots) if node_s else 0.0,
        bytes_between_nodes=counters.get("fetched_bytes", 0),
        bytes_of_messages=sum(transport.bytes_sent for transport in transports),
        bytes_from_shared=world.bytes_from_shared,
        bytes_to_shared=world.bytes_to_shared,
        submitter_busy=client.busy_s / makespan if makespan else 0.0,
        dispatcher_busy=busiest / makespan if makespan else 0.0,
        events=world.events,
        simulated_in_s=time.perf_counter() - started,
        node_s=node_s,
        nodes_most=most,
        decisions=tuple(elastic.decisions) if elastic is not None else (),
    )
