"""Findings of seeds, each as a small simulation of its own: the meaning of a seed may change, these stay."""

from __future__ import annotations

import planted
import pytest
from fuzz import seeds
from fuzz.seeds import PATIENCE_S, Finding, run_scenario

from amfs._native import Meta
from amfs.config import DispatcherLimits, MemoryLimits, SubmitterLimits, WorkerLimits
from amfs.net import wire
from amfs.net.link import Limits as LinkLimits
from amfs.sim.backups import BackupSender
from amfs.sim.cluster import Cluster
from amfs.sim.file_backend import Contents, SimFileBackend
from amfs.sim.process import Process
from amfs.sim.scenario import FaultEvent, Scenario, Settings, SimTask
from amfs.sim.settings import NEVER, Faults, FileLoad, Limits
from amfs.sim.workload import Workload
from amfs.sim.world import World
from amfs.workflow.workflow import Task


class LosesOneBatch(World):
    """A network that loses one batch from node 0 to node 1, and that again and again for ``patience_s``; all else arrives."""

    patience_s = 9.0
    lost = 0

    def carry(self, sender: int, to: int, frame: bytes, depart: float) -> None:
        if (sender, to) == (0, 1) and 3.0 < self.now < 3.0 + self.patience_s:
            seq = wire.decode(frame).seq
            self.lost = self.lost or seq
            if seq and seq == self.lost:
                return
        super().carry(sender, to, frame, depart)


def test_a_lost_batch_that_holds_up_heartbeats_splits_nothing() -> None:
    """Seed 7001323: loss alone. The manager's heartbeats waited behind a batch that was lost five times, and its heir took over."""
    world = LosesOneBatch(1, event_budget=50_000)
    workload = Workload([Task(f"t{i}", ("work",), node=i % 2) for i in range(40)], seconds=1.0)
    cluster = Cluster(world, workload, nodes=2, slots=1, links=LinkLimits())
    client = cluster.client()
    client.start()
    world.run(lambda: client.over is not None, 60.0)
    assert world.lost, "nothing was lost: the test proves nothing"
    assert world.now > 3.0 + world.patience_s
    assert client.over is not None and not client.over.reason
    assert client.submitter.finished == 40 and not client.submitter.course.lost
    assert client.submitter.epoch == 1, "nobody was taken for dead"


@pytest.mark.parametrize("gone_s", [7.0, 8.0, 9.0])
@pytest.mark.parametrize("way", ["stopped", "cut off"])
def test_a_manager_that_was_taken_for_dead_and_comes_back_does_not_take_the_submitter_with_it(gone_s: float, way: str) -> None:
    """It finds the others silent, and its view of itself alone had the epoch of theirs: the run went on with one node of four."""
    world = World(1, event_budget=100_000)
    workload = Workload([Task(f"t{i}", ("work",)) for i in range(16)], seconds=10.0)
    cluster = Cluster(world, workload, nodes=4, slots=1, links=LinkLimits())
    client = cluster.client()
    client.start()
    world.let_pass(2.0)
    if way == "stopped":
        cluster.nodes[0].stall(gone_s)
    else:
        world.cut = lambda a, b: (a == 0) != (b == 0)
        world.let_pass(gone_s)
        world.cut = None
    world.run(lambda: client.over is not None, 300.0)
    assert client.submitter.course.lost == {0} and client.submitter.finished == 16
    assert cluster.nodes[0].stopped == "the others took this node for dead"
    world.let_pass(1.0)
    assert [node.id for node in cluster.alive()] == [1, 2, 3]


@pytest.mark.parametrize(
    ("stopped", "minority", "goes_on"),
    [((1, 2), {1, 2}, True), ((2, 3), {2, 3}, True), ((0, 1), {0, 1, 2}, True), ((0, 2, 3), {1}, False)],
)
def test_nodes_that_were_stopped_for_long_found_no_session_of_their_own(
    stopped: tuple[int, ...], minority: set[int], goes_on: bool
) -> None:
    """Seed 303094: an heir that woke took the manager for dead and counted the others as its own; a submitter that came followed it. A
    node that hears nobody of the majority ends (and its submitter, which then hears nobody), and those go on when they wake. So may one of
    two that waited: that the manager has ended by then tells it nothing, since it had not heard it for so long."""
    world = World(1, event_budget=100_000)
    workload = Workload([Task(f"t{i}", ("work",)) for i in range(16)], seconds=10.0)
    cluster = Cluster(world, workload, nodes=4, slots=1, links=LinkLimits())
    client = cluster.client()
    client.start()
    world.let_pass(2.0)
    for node in stopped:
        cluster.nodes[node].stall(14.0 + node)
    world.run(lambda: client.over is not None, 300.0)
    lost = client.submitter.course.lost
    assert lost and lost <= minority
    assert client.submitter.finished == 16 if goes_on else client.over is not None and client.over.reason
    world.let_pass(1.0)
    assert {node.id for node in cluster.alive()} == {0, 1, 2, 3} - lost
    for node in lost:
        why = "the others took this node for dead" if node in stopped else "cut off from the majority of the session"
        assert cluster.nodes[node].stopped == why


def test_a_manager_that_sleeps_while_the_session_shrinks_to_one_other_node_ends_when_it_wakes() -> None:
    """Seed 7206524 of those with blind tasks: it took the one that had left for dead, and went on as half of the other two."""
    world = World(1, event_budget=100_000)
    cluster = Cluster(world, Workload([Task("t", ("work",))], seconds=1.0), nodes=3, slots=1, links=LinkLimits())
    client = cluster.client()
    client.start()
    world.run(lambda: client.over is not None, 10.0)
    cluster.nodes[0].stall(13.0)
    world.let_pass(5.0)
    cluster.drain(1, 30.0)
    world.let_pass(12.0)
    assert (cluster.nodes[1].stopped, cluster.nodes[0].stopped) == (
        "SIGTERM: all that it had is on other nodes", "the others took this node for dead",
    )  # fmt: skip
    assert [node.id for node in cluster.alive()] == [2]


class LosesLastWords(World):
    """A network that loses the first packet to node 1 of a manager that has left."""

    lost = 0

    def carry(self, sender: int, to: int, frame: bytes, depart: float) -> None:
        if (sender, to) == (0, 1) and not self.lost and not self.processes[0].alive:
            self.lost += 1
        else:
            super().carry(sender, to, frame, depart)


def test_what_a_node_says_at_its_end_arrives_though_a_packet_is_lost() -> None:
    """Its ``Leave`` did not reach the one that was to take over, which waited three seconds, and programs were told EIO meanwhile."""
    world = LosesLastWords(1, event_budget=100_000)
    cluster = Cluster(world, Workload([Task("t", ("work",))], seconds=1.0), nodes=3, slots=1, links=LinkLimits())
    client = cluster.client()
    client.start()
    world.run(lambda: client.over is not None, 10.0)
    cluster.drain(0, 30.0)
    world.run(lambda: not cluster.nodes[0].alive, world.now + 2.0)
    world.let_pass(1.0)
    assert world.lost == 1
    assert {node.id: node.core.membership.nodes() for node in cluster.alive()} == {1: [1, 2], 2: [1, 2]}


def what_waits_takes_the_room() -> Scenario:
    """Three units of one node. Tasks go round: 0, 3, … to node 1, 1, 4, … to node 2, 2, 5, … to node 0, which dies. Node 2 has a long
    task and, in its dispatcher's queue, the one for which all tasks of node 0 wait that are given out again."""
    tasks = []
    for number in range(15):
        inputs = ("made",) if number % 3 == 2 and number > 2 else ()
        outputs = ("made",) if number == 4 else (f"f{number}",)
        tasks.append(SimTask(Task(f"t{number}", ("work",), inputs=inputs, outputs=outputs), 30.0 if number in (1, 2) else 0.01))
    limits = Limits(
        dispatcher=DispatcherLimits(window_min=1, window_per_slot=1, parked_max=1),
        submitter=SubmitterLimits(window=8, window_per_slot=0, parked_max=1, batch=1),
    )
    settings = Settings(
        1, False, 3, (1, 1, 1), 1, data_aware=False, stage_shared=False, keep_all=False, fail_fast=False, limits=limits,
        faults=Faults(crashes=1),
    )  # fmt: skip
    return Scenario(settings, tuple(tasks), {}, (FaultEvent("crash", at=5.0, node=0),))


def test_urgent_tasks_leave_the_room_to_what_they_wait_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seed 500566: after nodes were lost, tasks submitted again used up the room of the task for which they waited."""
    verdict = run_scenario(what_waits_takes_the_room())
    assert verdict.finished == 15
    planted.urgent_tasks_use_up_the_room(monkeypatch)
    with pytest.raises(Finding, match="not done by"):
        run_scenario(what_waits_takes_the_room())


def test_a_backup_that_refuses_to_begin_is_not_told_again_without_a_pause() -> None:
    """Seed 1682: two sessions had tables of one version; a node of the one refused 20,000 batches a second of nodes of the other."""
    world = World(1, event_budget=10_000)
    contents = Contents(world.rng, lambda: 0, lambda number, event: None, lambda a, b: True)
    nodes = [SimFileBackend(contents, number, Meta(number)) for number in range(2)]
    for node in nodes:
        node.meta.set_table([node.number] * 8, 3)
        node.meta.set_backups([1 - node.number] * 8, [1 - node.number])
    BackupSender(Process(world, 0, 1, links=None), contents, nodes[0]).look(frozenset((1,)))
    world.let_pass(10.0)
    assert world.events > 100, "nothing was told: the test proves nothing"
    for node in nodes:
        node.meta.set_table([0] * 8, 4)
        node.meta.set_backups([1 if node.number == 0 else -1] * 8, [1 - node.number])
    world.let_pass(1.0)
    assert nodes[0].meta.count_backups()[1] == 8


def test_a_node_that_was_never_let_in_does_not_take_away_the_files_of_the_one_that_has_its_number() -> None:
    """Seed 726259: a manager gave out a number and died, and its successor gave it to another node. When the first of the two ended, the
    content of the other was gone: whatever its owners told their backup there failed from then on, and they waited for ever."""
    world = World(1)
    contents = Contents(world.rng, lambda: 0, lambda number, event: None, lambda a, b: True)
    first, second = (SimFileBackend(contents, 3, Meta(3)) for _ in range(2))
    contents.leave(first)
    assert contents.nodes[3] is second and not contents.gone
    contents.leave(second)
    assert not contents.nodes and contents.gone == {3}
    contents.leave(second)


def test_tasks_one_after_another_in_a_slow_network_have_time_to_end() -> None:
    """Seed 803411: each message was late by 0.2 s on average, and the submitter had one task under way. Each task made a file of the
    session, which took some thirty such delays. The run went well, and the simulator gave it up two seconds before its end."""
    limits = Limits(
        worker=WorkerLimits(steal_first_s=NEVER, steal_last_s=NEVER),
        submitter=SubmitterLimits(window=1, window_per_slot=0, parked_max=1),
    )  # fmt: skip
    settings = Settings(1, False, 4, (1, 3, 3, 3), 0, True, False, False, False, limits, Faults(jitter_s=0.2))
    names = [f"amfs:/t/d{i % 4}/f{i}" for i in range(70)]
    tasks = tuple([SimTask(Task(f"t{i}", ("work",), outputs=(name,)), 0.001) for i, name in enumerate(names)])
    verdict = run_scenario(Scenario(settings, tasks, dict.fromkeys(names, 10), files=FileLoad(1, 0, 0, 0.0), session=True))
    assert verdict.virtual_s > PATIENCE_S, "the run was short: the test proves nothing"
    assert verdict.finished == len(tasks) and not verdict.reason


def a_retry_finds_no_room(*, disk_errors: float, spill: str) -> Scenario:
    """One node. The first task's output fills its memory, and stays until the last task has read it. The second task always fails; when
    it is to run again, there is no room for its output."""
    tasks = (
        SimTask(Task("make", ("work",), outputs=("f",)), 0.01),
        SimTask(Task("broken", ("work",), outputs=("g",), retries=1), 0.01, fails=-1),
        SimTask(Task("read", ("work",), inputs=("f", "g")), 0.01),
    )
    settings = Settings(
        1, False, 1, (1,), 0, data_aware=True, stage_shared=False, keep_all=False, fail_fast=False,
        limits=Limits(memory=MemoryLimits(limit=9, spill=spill)), faults=Faults(disk_errors=disk_errors),
    )  # fmt: skip
    return Scenario(settings, tasks, {"f": 10, "g": 10})


def test_a_task_that_always_fails_may_end_for_want_of_room_when_the_disk_fails() -> None:
    """Seed 705411: a task exited with its own code, and its retry waited for room that a node with a failed disk could not make. The run
    rightly told of the last attempt, and the simulator asked that such a task always ends by its own code."""
    events: list[str] = []
    verdict = run_scenario(a_retry_finds_no_room(disk_errors=1.0, spill="/disk"), tell=events.append)
    assert any("node 0 has no room for g" in event for event in events), "the retry found room: the test proves nothing"
    assert (verdict.finished, verdict.failed) == (1, 2)
    with pytest.raises(Finding, match="task 1 fails by itself, and ended as SETUP"):
        run_scenario(a_retry_finds_no_room(disk_errors=0.0, spill=""))  # no disk fails, so the simulator does not expect this


def test_a_task_that_two_full_nodes_have_no_room_for_fails() -> None:
    """Seed 721729: two nodes, full and with failed disks, took the same task from each other again and again. The run did not end."""
    tasks = (
        SimTask(Task("make 0", ("work",), outputs=("f0",), node=0), 0.01),
        SimTask(Task("make 1", ("work",), outputs=("f1",), node=1), 0.01),
        SimTask(Task("late", ("work",), outputs=("g",), after=("make 0", "make 1")), 0.01),
        SimTask(Task("read", ("work",), inputs=("f0", "f1", "g")), 0.01),
    )
    settings = Settings(
        1, False, 2, (1, 1), 0, data_aware=False, stage_shared=False, keep_all=False, fail_fast=False,
        limits=Limits(memory=MemoryLimits(limit=9, spill="/disk")), faults=Faults(disk_errors=1.0),
    )  # fmt: skip
    events: list[str] = []
    verdict = run_scenario(Scenario(settings, tasks, {"f0": 10, "f1": 10, "g": 10}), tell=events.append)
    assert any("has no room for g" in event for event in events), "there was room: the test proves nothing"
    assert (verdict.finished, verdict.failed) == (2, 2)


def test_large_files_have_time_to_go_to_a_disk() -> None:
    """Seed 725491: the files of a run, 250 GB, went to the disks of two nodes and back, and each disk took ten seconds for a file of 5 GB.
    Tasks ended all the time. The simulator gave the run up, since it had not counted what the disks need."""
    names = [f"f{i}" for i in range(40)]
    tasks = tuple([SimTask(Task(f"make {name}", ("work",), outputs=(name,)), 0.1) for name in names])
    read = SimTask(Task("read", ("work",), inputs=tuple(names)), 0.1)
    settings = Settings(
        1, False, 1, (1,), 0, data_aware=False, stage_shared=False, keep_all=False, fail_fast=False,
        limits=Limits(memory=MemoryLimits(limit=6 * 10**9, spill="/disk")), faults=Faults(),
    )  # fmt: skip
    verdict = run_scenario(Scenario(settings, (*tasks, read), dict.fromkeys(names, 5 * 10**9)))
    assert verdict.virtual_s > PATIENCE_S + 100, "the run was short: the test proves nothing"
    assert verdict.finished == len(tasks) + 1 and not verdict.reason


def test_a_reduction_whose_partial_result_a_disk_loses_counts_its_readers_anew() -> None:
    """Seed 9608138: no shard heard that the tree was planned anew and read its inputs once more, so what was made again was dropped.
    What the tree before had made stayed in memory to the end of the run."""
    names = [f"f{i}" for i in range(5)]
    tasks = [SimTask(Task(f"make {name}", ("work",), outputs=(name,)), 0.1) for name in names]
    tasks.append(SimTask(Task("reduce", ("cat", "{in}", "{out}"), inputs=tuple(names), outputs=("all",), reduce=2), 0.1))
    events: list[str] = []
    for seed in (107, 306, 650, 731, 830):  # of those whose disk fails while it has a partial result
        settings = Settings(
            seed, False, 1, (1,), 0, data_aware=True, stage_shared=False, keep_all=False, fail_fast=False,
            limits=Limits(memory=MemoryLimits(limit=39, spill="/disk")), faults=Faults(disk_errors=0.3),
        )  # fmt: skip
        run_scenario(Scenario(settings, tuple(tasks), dict.fromkeys([*names, "all"], 10)), tell=events.append)
    assert any("PartLost" in event for event in events), "no partial result was lost: the test proves nothing"


def test_a_long_run_with_idle_nodes_does_not_run_out_of_events(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seed 9507076: a client with a window of one task, and tasks of seven hundred seconds. Idle nodes asked others for tasks ten times a
    second. The simulator took that for a run that feeds on itself, and gave it up three tasks before its end."""
    monkeypatch.setattr(seeds, "EVENT_BUDGET", 10_000)
    tasks = tuple([SimTask(Task(f"t{i}", ("work",), outputs=(f"f{i}",), retries=1), 10.0, fails=1) for i in range(4)])
    settings = Settings(
        1, False, 4, (1, 1, 1, 1), 0, data_aware=False, stage_shared=False, keep_all=False, fail_fast=True,
        limits=Limits(submitter=SubmitterLimits(window=1, window_per_slot=0, batch=1)), faults=Faults(),
    )  # fmt: skip
    verdict = run_scenario(Scenario(settings, tasks, {f"f{i}": 10 for i in range(4)}))
    assert verdict.events > 2 * seeds.EVENT_BUDGET, "few events: the test proves nothing"
    assert verdict.finished == len(tasks) and not verdict.reason
