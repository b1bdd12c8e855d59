"""The parts and possible faults of a simulated cluster: costs, network, storage, faults. Pure values."""

from __future__ import annotations

import math
import random

import msgspec

from amfs.config import DispatcherLimits, MemberLimits, MemoryLimits, SubmitterLimits, WorkerLimits

NEVER = math.inf


class Costs(msgspec.Struct, frozen=True):
    """The costs of the engine and the machine; ``amfs bench costs`` measures all of it but ``batch_us`` (same names, same units).

    CPU times (``_us``) are microseconds. ``task_us_*``: of the loop's thread, over the whole life of a task in that machine (``fls``: for
    each task with files). ``message_us``: to encode and decode one task or result; ``batch_us``: of every batch besides, at either end.
    ``spawn_us``: of the launcher's thread, to start a process; ``file_us``: the same for each input linked or output published.
    ``bandwidth_bytes_s``: of one node's network interface, each way.
    """

    task_us_worker: float = 65.0
    task_us_dispatcher: float = 5.0
    task_us_submitter: float = 12.0
    task_us_fls: float = 5.0
    message_us: float = 2.5
    batch_us: float = 20.0
    latency_s: float = 75e-6
    bandwidth_bytes_s: float = 2.2e9
    spawn_us: float = 60.0
    file_us: float = 15.0


class Storage(msgspec.Struct, frozen=True):
    """Shared storage: all nodes together get ``bandwidth_bytes_s``; every access takes ``latency_s`` besides, and ``request_s`` of its
    server, which does one after the other."""

    bandwidth_bytes_s: float = 2e9
    latency_s: float = 1e-3
    request_s: float = 0.0


class Limits(msgspec.Struct, frozen=True):
    """The limits of the machines in a simulated cluster."""

    worker: WorkerLimits = WorkerLimits()
    dispatcher: DispatcherLimits = DispatcherLimits()
    submitter: SubmitterLimits = SubmitterLimits()
    member: MemberLimits = MemberLimits()
    memory: MemoryLimits = MemoryLimits()

    @classmethod
    def silent(cls, base: Limits | None = None) -> Limits:
        """Without stealing and without heartbeats: nothing happens by itself."""
        base = base or cls()
        replace = msgspec.structs.replace
        return cls(
            replace(base.worker, steal_first_s=NEVER, steal_last_s=NEVER),
            base.dispatcher,
            replace(base.submitter, heartbeat_s=NEVER),
            replace(base.member, heartbeat_s=NEVER),
            base.memory,
        )


class Faults(msgspec.Struct, frozen=True):
    """Faults, all drawn from the seed. Probabilities are per packet; times are virtual seconds."""

    loss: float = 0.0
    duplication: float = 0.0
    jitter_s: float = 0.0  # mean of an exponential delay beyond the latency; packets overtake each other
    clog: float = 0.0  # probability that a packet stops its path for ``clog_s``
    clog_s: float = 0.0
    crashes: int = 0  # nodes that die
    restarts: bool = False  # those that died come back as new incarnations
    drains: int = 0  # nodes that are told to end, and hand over what only they have
    joins: int = 0  # nodes that come in while the run goes on
    stalls: int = 0  # processes that stop for a while and go on as if nothing had been
    stall_s: float = 0.0  # how long at most
    partition_s: float = 0.0  # the network is cut, wholly or in part, for so long; 0: never
    partition_for_good: bool = False
    broken_tasks: float = 0.0  # share of tasks that always fail
    black_hole: bool = False  # the last node fails every task
    flaky_tasks: float = 0.0  # share of tasks that fail a few times, fewer than they have retries
    storage_errors: float = 0.0  # probability that a copy to shared storage fails
    transfer_errors: float = 0.0  # probability that a transfer between nodes fails although both live
    disk_full: float = 0.0  # probability that the disk with the spill directory of a node is full; it soon has room again
    disk_errors: float = 0.0  # probability that it fails
    client_dies: bool = False
    client_stops: bool = False  # Ctrl-C
    client_returns: bool = False  # when it has died, another one resumes its run

    @property
    def in_the_network(self) -> bool:
        """Whether any packet may be lost or late."""
        return bool(
            self.loss or self.duplication or self.jitter_s or self.clog or self.partition_s or self.crashes or self.joins or self.stalls
            or self.drains
        )

    @property
    def nodes_may_go(self) -> bool:
        """Whether a node may die, or be taken for dead."""
        return bool(self.crashes or self.partition_s or self.stalls)


def draw_faults(rng: random.Random) -> Faults:
    """A little of everything, in combinations that differ."""

    def maybe(chance: float, low: float, high: float) -> float:
        drawn = rng.uniform(low, high)
        return drawn if rng.random() < chance else 0.0

    return Faults(
        loss=maybe(0.4, 0.001, 0.15),
        duplication=maybe(0.4, 0.001, 0.2),
        jitter_s=maybe(0.5, 0.0001, 0.05),
        clog=maybe(0.15, 0.001, 0.01),
        clog_s=rng.uniform(0.1, 2.0),
        crashes=rng.choice((0, 0, 0, 1, 1, 2)),
        restarts=rng.random() < 0.5,
        partition_s=maybe(0.12, 0.2, 30.0),
        partition_for_good=rng.random() < 0.15,
        broken_tasks=maybe(0.4, 0.01, 0.2),
        flaky_tasks=maybe(0.4, 0.05, 0.5),
        storage_errors=maybe(0.1, 0.01, 0.2),
        transfer_errors=maybe(0.1, 0.01, 0.3),
        client_dies=rng.random() < 0.04,
        client_stops=rng.random() < 0.06,
    )


class FileLoad(msgspec.Struct, frozen=True, omit_defaults=True):
    """The steps of the users of a simulation."""

    seed: int
    users: int
    steps: int  # of each
    pause_s: float  # between two steps, at most
    striped: float = 0.0  # share of the files that are made in stripes
    growth: float = 0.0  # how likely a write makes a file outgrow its node
    copies: int = 1  # nodes that shall have each file
    fullness: float = 0.0  # how likely a write makes its node remove what can go, and, half as likely, a copy finds no room
    flips: float = 0.0  # how likely a bit flips in some copy when a file is opened or closed


def draw_files(seed: int) -> FileLoad | None:
    """None: nobody uses the file system."""
    rng = random.Random(f"files {seed}")
    if rng.random() < 0.6:
        return None
    growth = rng.choice((0.0, 0.0, 0.1))
    load = FileLoad(seed, rng.randint(1, 3), rng.choice((5, 15, 30)), rng.choice((0.0, 0.05, 0.5)), rng.choice((0.0, 0.3)), growth)
    rng = random.Random(f"flips {seed}")
    if rng.random() < 0.4:
        load = msgspec.structs.replace(load, flips=rng.choice((0.1, 0.5)))
    rng = random.Random(f"copies {seed}")
    copies = rng.choice((1, 1, 2, 2, 3))
    if copies == 1:
        return load
    # A file that outgrows its node is kept once, and its closing says so.
    return msgspec.structs.replace(load, copies=copies, growth=0.0, fullness=rng.choice((0.0, 0.2)))
