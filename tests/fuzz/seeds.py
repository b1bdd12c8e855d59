"""Random clusters with random workflows and random faults, one per seed. Every failure names the seed and the settings that replay it.

Two modes. With faults: real links over a network that loses, repeats, delays and cuts; nodes that die, stop and return; tasks that fail.
Quiet: nothing is lost, and no timer helps (no stealing, no heartbeats, no retransmission): everything must still finish, which shows that
no retry hides a wake-up that was forgotten.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import msgspec

from amfs.net.link import Limits as LinkLimits
from amfs.sim import faults as fault_plan
from amfs.sim.cluster import Cluster
from amfs.sim.node_io import DISK_BYTES_S
from amfs.sim.scenario import Scenario
from amfs.sim.settings import Limits
from amfs.sim.workload import Workload
from amfs.sim.world import World
from amfs.vocabulary import messages as m
from amfs.vocabulary.paths import scope_of
from amfs.workflow.workflow import Task
from fuzz import checker
from fuzz.blind import check_blind, draw_blind
from fuzz.files import ANSWER_S, SimFiles
from fuzz.session_seeds import check_session_files, draw_session
from fuzz.swarm import draw

EVENT_BUDGET = 400_000  # and for the time that the tasks take, as many more as idle nodes need
IDLE_EVENTS_S = 200  # of one idle node, a virtual second: it asks others for tasks, up to ten times; measured: some 150
PATIENCE_S = 300.0  # virtual; beyond what the tasks themselves, their files and their messages need
DELAYS_A_TASK = 40  # mean delays of a message that one task may take; measured: some thirty where it makes a file of the session
# When to look whether anything is left of the run; by the last there must be nothing. The last look but one may meet partitions that move,
# as the manager evens loads out every ten seconds.
CLEAN_UP_S = (4.0, 16.0, 40.0, 4.0)
END_HELD_S = 5.0  # how long the end of a run without faults is held back, to see what it has left in memory
CAPACITIES: tuple[tuple[int, ...], ...] = ((), (1 << 30, 3 << 30, 1 << 28), (), (5, 1, 1, 2, 9))  # of the nodes, by the seed


class Finding(AssertionError):
    """A seed failed. ``str`` says what, under which settings, and what happened last."""

    def __init__(self, scenario: Scenario, world: World, error: BaseException) -> None:
        super().__init__(str(error))
        self.scenario = scenario
        self.error = error
        story = "\n".join(f"  {when:.6f} {who} {kind} {what!r}"[:240] for when, who, kind, what in list(world.story)[-25:])
        tasks = "\n".join(
            f"  {tid}: {_brief(one.task)} {one.seconds:.4g} s{_fails(one.fails)}"[:200] for tid, one in enumerate(scenario.tasks[:60])
        )
        self.report = (
            f"seed {scenario.settings.seed} fails at {world.now:.6f} s, event {world.events}: {type(error).__name__}: {error}\n"
            f"{describe(scenario)}\nworkflow:\n{tasks}\nlast events:\n{story}"
        )


def _brief(task: Task) -> str:
    """The extraordinary about a task, on one line."""
    default = Task(task.id, task.argv)
    facts = [f"{name}={value!r}" for name in Task.__struct_fields__ if (value := getattr(task, name)) != getattr(default, name)]
    return " ".join([task.id, *facts])


def _fails(times: int) -> str:
    return "" if not times else " fails always" if times < 0 else f" fails {times} times"


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


def describe(scenario: Scenario) -> str:
    """Settings and fault_events for people, on a few lines; limits and faults only where they are not the usual ones."""
    lines = []
    for name in scenario.settings.__struct_fields__:
        value = getattr(scenario.settings, name)
        if name == "limits":
            value = {part: unusual(getattr(value, part)) for part in value.__struct_fields__}
        elif name == "faults":
            value = unusual(value)
        lines.append(f"  {name} = {value}")
    lines += [f"  fault = {unusual(one, 'what')}" for one in scenario.fault_events]
    if scenario.first >= 0:
        lines.append(f"  first = {scenario.first}")
    return "\n".join(lines)


def unusual(struct: msgspec.Struct, *always: str) -> dict[str, object]:
    """The fields of a struct that have not their default values."""
    found = {}
    for field in msgspec.structs.fields(struct):
        value = getattr(struct, field.name)
        if field.name in always or value != field.default:
            found[field.name] = value
    return found


#: How the scenario of a seed is drawn: with blind tasks, with files of the session that tasks make.
DRAWN = {"": draw, "blind": draw_blind, "session": draw_session}


def run_seed(seed: int, *, quiet: bool = False, kind: str = "", tell: Callable[[str], None] | None = None) -> Verdict:
    """Simulate one seed; ``kind``: of ``DRAWN``. Raises Finding."""
    return run_scenario(DRAWN[kind](seed, quiet=quiet), tell=tell)


def run_scenario(scenario: Scenario, *, tell: Callable[[str], None] | None = None) -> Verdict:
    """Simulate this. Raises Finding."""
    world = World(scenario.settings.seed, faults=scenario.settings.faults, event_budget=_event_budget(scenario))
    world.tell = tell
    try:
        return _run(scenario, world)
    except Exception as error:
        raise Finding(scenario, world, error) from error


def _event_budget(scenario: Scenario) -> int:
    """How many events a sound run may need: if its tasks run one after another, the other nodes are idle all that time."""
    settings = scenario.settings
    if settings.quiet:  # an idle node does nothing
        return EVENT_BUDGET
    tasks_s = sum(one.seconds * (1 + (one.fails if one.fails >= 0 else one.task.retries)) for one in scenario.tasks)
    return EVENT_BUDGET + int(tasks_s * IDLE_EVENTS_S * (settings.nodes + settings.faults.joins))


def _clean_up(world: World, check: Callable[[], None]) -> None:
    """Give the nodes time to forget the run: no more than they need, since a minute of nothing but heartbeats costs more than most runs."""
    for seconds in CLEAN_UP_S[:-1]:
        world.let_pass(seconds)
        try:
            check()
        except AssertionError:
            continue
        return
    world.let_pass(CLEAN_UP_S[-1])
    check()


def _carry_s(workload: Workload, world: World, limits: Limits) -> float:
    """Seconds to move the files one after another: with nodes that have died, one disk may have to take most of them."""
    made, read = workload.bytes_moved()
    carry_s = made / world.storage.bandwidth_bytes_s + read / world.costs.bandwidth_bytes_s
    if limits.memory.limit:  # a file made goes to a disk; for each reader it may go to the disk of another node, and comes back
        carry_s += (made + 2 * read) / DISK_BYTES_S
    return carry_s


def _run(scenario: Scenario, world: World) -> Verdict:
    settings = scenario.settings
    faults = settings.faults
    workload = scenario.workload()
    cluster = Cluster(
        world, workload, nodes=settings.nodes, slots=list(settings.slots), unit_size=settings.unit_size,
        limits=settings.limits, links=None if settings.quiet else LinkLimits(), files=scenario.files is not None,
        copies=scenario.files.copies if scenario.files is not None else 1, capacities=CAPACITIES[settings.seed % len(CAPACITIES)],
    )  # fmt: skip
    files: SimFiles | None = None
    if scenario.files is not None:
        cut = bool(faults.partition_s or faults.stalls or faults.clog)
        files = SimFiles(cluster, scenario.files, nodes_may_go=bool(faults.nodes_may_go or faults.clog), may_be_cut=cut)
        files.start()
    info = m.RunInfo(
        scope_of(1), workload.plan.base, ("A=b",), data_aware=settings.data_aware, stage_shared=settings.stage_shared,
        journal="journal" if faults.client_dies else "", life=1,
    )  # fmt: skip
    client = cluster.client(info=info, fail_fast=settings.fail_fast, keep_all=settings.keep_all)
    lossless = not (faults.loss or faults.clog or faults.nodes_may_go or faults.joins)
    if lossless and not faults.storage_errors and not faults.transfer_errors:
        client.hold_end(END_HELD_S, lambda: checker.check_memory(cluster, workload, client))
    for name, when in workload.appear.items():
        world.at(when, world.names.setdefault, name)
    client.start()
    schedule = fault_plan.Schedule(cluster, client, scenario.fault_events)
    work_s = sum(workload.seconds.values()) * 4
    late_s = len(scenario.tasks) * DELAYS_A_TASK * faults.jitter_s  # tasks may have to go one after another
    latest = PATIENCE_S + work_s + late_s + _carry_s(workload, world, settings.limits)
    world.run(lambda: client.over is not None or not client.alive, latest)
    if faults.client_returns and client.over is None:
        world.let_pass(random.Random(f"returns {settings.seed}").choice((0.0, 0.1, 2.0, 20.0)))
        client = cluster.client(
            info=msgspec.structs.replace(info, scope=scope_of(2), life=2), run=2, number=client.id + 1,
            fail_fast=settings.fail_fast, keep_all=settings.keep_all,
        )  # fmt: skip
        client.start()
        world.run(lambda: client.over is not None, world.now + latest)
    if client.over is not None:
        checker.check_nobody_was_suspected(cluster, client, faults)
        suspected = faults.nodes_may_go or not settings.quiet
        names_may_go = scenario.session and cluster.contents is not None and cluster.contents.names_may_go
        if not names_may_go:  # else files of tasks may be EIO
            checker.check_results(workload, client, faults, lost_nodes=schedule.lost | client.submitter.course.lost, suspected=suspected)
        if scenario.session:
            check_session_files(world, client, names_may_go=names_may_go)
        checker.check_finals(workload, client, world.shared, faults)
        check_blind(workload, client, quiet=settings.quiet)
        if settings.quiet:
            checker.check_tries(workload, client)
        world.let_pass(1.0)
        client.die()
    if files is not None:
        # In a network that stays cut each request of a user may wait for its whole time.
        cut_s = scenario.files.steps * ANSWER_S if scenario.files is not None and faults.partition_for_good else 0.0
        world.run(files.is_done, world.now + latest + cut_s)
        world.let_pass(1.0)
        files.inspect(world.now + latest)
        if not settings.quiet and not files.may_be_cut:
            files.lose_one_more(world.now + latest)
        files.end()
    world.cut = None
    _clean_up(world, lambda: checker.check_nothing_left(cluster, cut_off=bool(faults.partition_s)))
    if not faults.stalls:
        checker.check_drains_ended(cluster)
    if files is not None:
        files.check_nothing_left()
        files.check_copies()
    submitter = client.submitter
    return Verdict(
        settings.seed, world.digest, world.events, world.now, submitter.total, submitter.finished, submitter.failed,
        client.over.reason if client.over is not None else "the submitter died",
    )  # fmt: skip
