"""Conditions that hold for every simulated run, whatever faults it had, seen from outside of the machines."""

from __future__ import annotations

from amfs.engine.dispatcher import EXCUSED_MAX
from amfs.engine.worker_records import TaskEntry
from amfs.node.core import NodeCore
from amfs.sim.client import SimClient
from amfs.sim.cluster import Cluster
from amfs.sim.settings import Faults
from amfs.sim.workload import Workload
from amfs.vocabulary.paths import in_namespace
from amfs.vocabulary.states import FAILED, FINISHED, PENDING, Outcome

#: Timers that a node may keep when no run is left.
LASTING_TIMERS = {("member", "beat"), ("worker", "steal")}


def check_results(workload: Workload, client: SimClient, faults: Faults, *, lost_nodes: set[int], suspected: bool) -> None:
    """Every task has ended once, as it should have. ``suspected``: a node may have been taken for dead, rightly or not."""
    submitter = client.submitter
    state = submitter.state
    submitter.check_invariants()
    assert client.over is not None
    stopped = bool(client.over.reason)
    for tid, results in client.ended.items():
        if not suspected:
            assert len(results) == 1, f"task {tid} ended {len(results)} times: {results}"
        last = results[-1]
        assert last.outcome == Outcome.OK or len([r for r in results if r.outcome]) == 1, f"task {tid} failed more than once: {results}"
        again = submitter.redone_times.get(tid, 0)
        assert sum(1 for r in results if not r.outcome) <= 1 + again, f"task {tid} finished more often than it was redone"
    if stopped:
        return
    assert not [tid for tid, s in enumerate(state) if s == PENDING], "the run ended well, and tasks are left"
    assert set(client.ended) == set(range(len(state)))
    may_fail = dict(workload.broken)
    if suspected:
        for tid, task in enumerate(workload.tasks):
            if task.node in lost_nodes and not task.node_soft:
                may_fail[tid] = None
    if faults.storage_errors or faults.disk_errors:
        for tid, task in enumerate(workload.tasks):
            if task.outputs or faults.disk_errors:
                may_fail[tid] = None
    downstream = workload.downstream(list(may_fail))
    must_fail = set(workload.broken) - downstream
    for tid, s in enumerate(state):
        if tid in workload.blind:
            continue
        outcome, detail = client.ended[tid][-1].outcome, client.ended[tid][-1].detail
        if tid in must_fail:
            assert s == FAILED, f"task {tid} always fails, and is said to have finished"
            away = suspected and workload.tasks[tid].node in lost_nodes
            # The result is that of the last attempt. A node whose disk has failed may have no room for an attempt, and never starts it.
            no_room = bool(faults.disk_errors) and outcome == Outcome.SETUP and "has no room for" in detail
            assert outcome == Outcome.EXIT or away or no_room, f"task {tid} fails by itself, and ended as {Outcome(outcome).name}"
        elif tid in downstream:
            if not faults.storage_errors and not faults.disk_errors and not suspected:
                assert s == FAILED, f"task {tid} reads what was never made, and finished"
            if tid in may_fail:
                continue
            assert s != FAILED or outcome == Outcome.UPSTREAM_FAILED, f"task {tid} ended as {Outcome(outcome).name} ({detail})"
        elif tid not in may_fail:
            assert s == FINISHED, f"task {tid} has no reason to fail: {client.ended[tid][-1]}"
    if not suspected and not faults.storage_errors and not faults.disk_errors:
        check_upstream(workload, client)


def check_upstream(workload: Workload, client: SimClient) -> None:
    """A task ended as upstream failed exactly if a task that it reads from did not finish."""
    state = client.submitter.state
    for tid, task in enumerate(workload.tasks):
        writers = [workload.plan.writers[name] for name in task.inputs if name in workload.plan.writers]
        writers += [workload.plan.after[name] for name in task.after]
        fed = all(state[writer] == FINISHED for writer in writers)
        upstream = client.ended[tid][-1].outcome == Outcome.UPSTREAM_FAILED
        assert upstream != fed, f"task {tid}: {'all its inputs were made, ' if fed else 'an input is missing, '}{client.ended[tid][-1]}"


def check_finals(workload: Workload, client: SimClient, shared: dict[str, int], faults: Faults) -> None:
    """Files that finished tasks made and nobody read are on shared storage, whole; also when nodes died: no finished result is lost."""
    errors = {name for name, _, error in client.flushed if error}
    plan = workload.plan
    if client.over is None or client.over.reason:
        return
    for tid, task in enumerate(client.tasks):
        if client.submitter.state[tid] != FINISHED:
            continue
        for name in task.outputs:
            if not in_namespace(name) and (name in task.keep or (name not in task.scratch and not plan.readers.get(name))):
                path = f"{plan.base}/{name}"
                assert path in shared or name in errors, f"task {tid} finished, and its final output {name} is not on shared storage"
                if path in shared:
                    assert shared[path] == workload.size_of(name)


def check_nobody_was_suspected(cluster: Cluster, client: SimClient, faults: Faults) -> None:
    """A network that only loses, repeats and delays makes nobody look dead. (One that clogs its paths may.)"""
    if faults.nodes_may_go or faults.clog:
        return
    lost = client.submitter.course.lost - cluster.draining.keys()
    assert not lost, f"nodes {lost} were taken for dead, and nothing had befallen them"
    for node in cluster.nodes.values():
        assert node.alive or node.id in cluster.draining, f"node {node.id} has left ({node.stopped}), and nothing had befallen it"


def check_drains_ended(cluster: Cluster) -> None:
    """A node that was told to end has done so when its time is over."""
    for number, until in cluster.draining.items():
        assert not cluster.nodes[number].alive or cluster.world.now <= until, f"node {number} was to leave by {until:.3f} s"


def check_tries(workload: Workload, client: SimClient) -> None:
    """Nothing went wrong but tasks that fail: no task ran more often than its failures and retries ask for, and no file was lost."""
    assert client.over is not None
    if client.over.reason:
        return
    again = sorted(client.submitter.redone_times)
    assert not again, f"tasks {again} were done again although nothing was lost"
    for tid, task in enumerate(workload.tasks):
        if task.reduce or tid in workload.blind:
            continue
        upstream = client.ended[tid][-1].outcome == Outcome.UPSTREAM_FAILED
        tries = 0 if upstream else 1 + (max(task.retries, 0) if tid in workload.broken else workload.flaky.get(tid, 0))
        ran = workload.tries.get(tid, 0)
        excused = EXCUSED_MAX if tries and tid in workload.broken else 0  # a failure may have been its worker's fault
        assert tries <= ran <= tries + excused, f"task {tid} was run {ran} times instead of {tries}"


def check_memory(cluster: Cluster, workload: Workload, client: SimClient) -> None:
    """All tasks of a run have ended, and it has not been closed yet: files without further readers are gone from the nodes' memory. After
    nodes have left that were told to end only if they left in order."""
    if workload.open_ended or (cluster.draining and any(node.core.fls.keeping for node in cluster.alive())):
        return
    for node in cluster.alive():
        for run, record in node.core.fls.records():
            assert record.released <= record.readers, f"{record.name} of run {run} was read {record.released} times, by {record.readers}"
        top = len(node.core.worker.store) + 1
        left = [path for path in (*node.node_io.files, *node.node_io.links) if "/given" not in path]
        assert not left, f"node {node.id} still has {[path[top:] for path in left[:5]]}, which nobody will read"


def check_nothing_left(cluster: Cluster, *, cut_off: bool) -> None:
    """Long after the run no node keeps anything of it."""
    for node in cluster.alive():
        core, node_io = node.core, node.node_io
        who = f"node {node.id} keeps "
        assert not core.worker.runs, who + f"runs {list(core.worker.runs)} at its worker"
        # A node that was cut off before it ever heard of the run cannot know that it ended.
        known = {run: list(records)[:5] for run, records in core.fls.runs.items() if run in core.fls.gone or not cut_off}
        assert not known, who + f"records {known}"
        assert not core.dispatcher.runs, who + f"runs {list(core.dispatcher.runs)} at its dispatcher"
        assert cut_off or not core.worker.state.early, who + f"messages that came early at its worker: {core.worker.state.early}"
        assert cut_off or not core.dispatcher.early, who + f"messages that came early at its dispatcher: {core.dispatcher.early}"
        assert not core.worker.inflight and not core.worker.jobs, who + "tasks or transfers"
        assert not len(core.worker.ready) or all(entry.run.closing for entry in _ready(core)), who + "tasks in its ready queue"
        assert not node_io.files and not node_io.links, who + f"files {[*node_io.files, *node_io.links][:5]}"
        assert not node_io.disk and not node_io.back, who + f"spilled files {[*node_io.disk, *node_io.back][:5]}"
        assert not node_io.contexts and not node_io.queue and not node_io.running and not node_io.jobs, who + "processes or contexts"
        left = set(node.timers) - LASTING_TIMERS
        assert not left, who + f"timers {left}"
        assert not core.worker.outbox.unsaid(), who + f"unsent news: {core.worker.outbox.unsaid()}"


def _ready(core: NodeCore) -> list[TaskEntry]:
    queue = core.worker.ready
    return [*queue._fifo, *[item[2] for item in queue._heap]]
