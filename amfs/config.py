"""Limits and time-outs, in one place, the unit last in the name. Pure."""

from __future__ import annotations

import msgspec


class WorkerLimits(msgspec.Struct, frozen=True):
    """Bounds of a worker."""

    backlog_s: float = 0.01  # work queued at the launcher beyond its slots, as time
    backlog_max: int = 128  # the same, as tasks
    backlog_alone: int = 1  # the same at least, as tasks, on a node without neighbours whose tasks take
    alone_s: float = 1.0  # up to this, on average: behind longer ones nothing is to wait, as neighbours may come
    forward_bytes_min: int = 1 << 16  # data-aware: inputs smaller than this are fetched, not followed
    steal_first_s: float = 0.005
    steal_last_s: float = 0.1  # an idle node must not sleep through the start of a new stage
    parked_step: int = 32  # tell the dispatcher when the number of parked tasks has changed by this much


class MemoryLimits(msgspec.Struct, frozen=True):
    """The memory of a node for the files of runs, and the directory on a disk that takes what memory cannot hold."""

    limit: int = 0  # bytes; 0: as much as the store has room for, which is not accounted
    why_limit: str = "--store-limit"  # the source of the limit, in words
    sharing: int = 1  # nodes that were started together on this host, each of which is to take its part of what a cgroup has left
    firm: bool = False  # said by the user or a cgroup, and so for files of amfs:/ as well
    high_water: float = 0.8  # of the limit: above it files are spilled
    spill: str = ""  # the spill directory; "": there is none
    spill_limit: int = 0  # bytes; 0: as much as there is room for
    why_no_spill: str = "there is no spill directory"
    patience_s: float = 30.0  # for other nodes to take away what they read, before a task fails because there is no room
    retry_s: float = 1.0  # after which a spill directory that was full is tried again


class DispatcherLimits(msgspec.Struct, frozen=True):
    """Bounds of a dispatcher."""

    window_min: int = 128  # unfinished, not parked tasks a worker may have
    window_per_slot: int = 8
    parked_max: int = 100_000  # parked tasks a worker may have beyond its window
    backoff_first_s: float = 0.25
    backoff_last_s: float = 30.0
    failures_in_row: int = 5  # of a worker on which tasks ended well before: more of them, and they may be its own fault
    blamed_max: int = 3  # tasks that failed on a worker and ended well elsewhere: so many, and it gets no more tasks of the run
    deaths_max: int = 5  # nodes that were lost while they had one task: so many, and the task fails


class SubmitterLimits(msgspec.Struct, frozen=True):
    """Bounds of a submitter."""

    window: int = 4096  # unfinished, not parked tasks a dispatcher may have; at least this, and
    window_per_slot: int = 4  # this for each slot of its unit
    parked_max: int = 200_000
    batch: int = 256  # tasks in one Submit
    ready_s: float = 30.0  # how long nodes may take to end an earlier run with the same journal
    unreachable_s: float = 20.0  # a node that we cannot reach and that stays a member for so long ends the run
    heartbeat_s: float = 1.0  # between two signs of life to the manager and the dispatchers
    redo_max: int = 10  # how often one task is done again because its files were lost


class MemberLimits(msgspec.Struct, frozen=True):
    """Liveness."""

    heartbeat_s: float = 1.0
    suspect_s: float = 3.0
    dead_s: float = 6.0
    join_s: float = 0.001  # for each member, from letting nodes in to letting in the next ones
    probe_s: float = 1.5  # silent for so long: does its process still listen?
    cut_off_s: float = 12.0  # without the majority of the session for so long: this side ends
    balance_s: float = 10.0  # from a change of the members, or of the loads, to the next partitions that move to even out the loads
    client_dead_s: float = 15.0  # a submitter that is silent for so long is gone, its run is ended
