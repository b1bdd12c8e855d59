"""The state machines of files, tasks and peers, as tables. Pure.

The tables list every transition that exists. The machine that owns a file, task or peer decides what to do on a transition. For a pair that
is not listed, ``move`` raises an error. ``docs/states.md`` is generated from the tables.

States and events are ``IntEnum`` so that the hot paths can index ``NEXT`` lists with them.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import TypeVar

from amfs.errors import InvalidTransition
from amfs.vocabulary.job_states import JOB_TABLE, JobEvent, JobState

S = TypeVar("S", bound=IntEnum)
E = TypeVar("E", bound=IntEnum)


#: A task, as its submitter knows it; a byte each, so not an enum.
PENDING, FINISHED, FAILED, SKIPPED = range(4)


class Outcome(IntEnum):
    """How an attempt at a task ended. The first eight and INPUT_LOST come from the launcher."""

    OK = 0
    EXIT = 1
    SIGNAL = 2
    TIME_LIMIT = 3
    MISSING_OUTPUT = 4
    INPUT_CHANGED = 5
    SETUP = 6
    CANCELLED = 7
    UPSTREAM_FAILED = 8  # an input will never be made
    OUTPUT_LOST = 9  # the output could not be copied to shared storage
    INPUT_LOST = 10  # the spill directory lost an input while the task read it, which is not the task's fault


# ── a file, as its worker sees it (AME Fig. 4) ─────────────────────────────────────────────────────


class FileState(IntEnum):
    """INVALID: nobody has made it (that we know). LOCAL: in this node's store. REMOTE: in some other node's store.
    SHARED: on shared storage."""

    INVALID = 0
    LOCAL = 1
    REMOTE = 2
    SHARED = 3


class FileEvent(IntEnum):
    LOCATED = 0  # the FLS named a holder
    ON_SHARED = 1  # the FLS (or the task list) says it is on shared storage
    PRODUCED = 2  # a task of this node published it
    COPIED = 3  # the fetch ended well
    FLUSHED = 4  # the copy to shared storage ended well
    HOLDER_LOST = 5  # the fetch failed or its holder died
    DROPPED = 6  # no readers left, or a task spoiled it


FILE_TABLE: Mapping[tuple[FileState, FileEvent], FileState] = {
    (FileState.INVALID, FileEvent.LOCATED): FileState.REMOTE,
    (FileState.INVALID, FileEvent.ON_SHARED): FileState.SHARED,
    (FileState.INVALID, FileEvent.PRODUCED): FileState.LOCAL,
    (FileState.REMOTE, FileEvent.COPIED): FileState.LOCAL,
    (FileState.REMOTE, FileEvent.PRODUCED): FileState.LOCAL,  # a repeated attempt beat the fetch
    (FileState.REMOTE, FileEvent.HOLDER_LOST): FileState.INVALID,
    (FileState.REMOTE, FileEvent.ON_SHARED): FileState.SHARED,
    (FileState.LOCAL, FileEvent.PRODUCED): FileState.LOCAL,  # a repeated attempt
    (FileState.LOCAL, FileEvent.FLUSHED): FileState.SHARED,
    (FileState.LOCAL, FileEvent.DROPPED): FileState.INVALID,
    (FileState.REMOTE, FileEvent.DROPPED): FileState.INVALID,
    (FileState.SHARED, FileEvent.PRODUCED): FileState.LOCAL,  # rerun after the shared copy was asked for again
    (FileState.SHARED, FileEvent.FLUSHED): FileState.SHARED,
}

# ── the content of a file, as the node that has it sees it ─────────────────────────────────────────


class Place(IntEnum):
    """NOWHERE: not on this node, or not yet. HELD: in memory. SPILLING: in memory, and being copied to the spill directory. BOTH: in memory
    and in the spill directory. SPILLED: in the spill directory only. RETURNING: likewise, and being copied back into memory."""

    NOWHERE = 0
    HELD = 1
    SPILLING = 2
    BOTH = 3
    SPILLED = 4
    RETURNING = 5


class PlaceEvent(IntEnum):
    STORED = 0  # it came into memory: a task made it, or it was fetched
    STORED_ON_DISK = 1  # it was fetched into the spill directory, being too large for memory
    SPILL = 2
    COPIED = 3  # to the spill directory
    NOT_COPIED = 4
    EVICTED = 5  # nobody uses what is in memory, and its room is wanted
    RETURN = 6
    RETURNED = 7
    NOT_RETURNED = 8  # there was no room for it
    REMOVED = 9  # everywhere: dropped, or it could not be read back


PLACE_TABLE: Mapping[tuple[Place, PlaceEvent], Place] = {
    (Place.NOWHERE, PlaceEvent.STORED): Place.HELD,
    (Place.NOWHERE, PlaceEvent.STORED_ON_DISK): Place.SPILLED,
    (Place.NOWHERE, PlaceEvent.REMOVED): Place.NOWHERE,
    (Place.HELD, PlaceEvent.SPILL): Place.SPILLING,
    (Place.HELD, PlaceEvent.REMOVED): Place.NOWHERE,
    (Place.SPILLING, PlaceEvent.COPIED): Place.BOTH,
    (Place.SPILLING, PlaceEvent.NOT_COPIED): Place.HELD,
    (Place.SPILLING, PlaceEvent.REMOVED): Place.NOWHERE,
    (Place.BOTH, PlaceEvent.EVICTED): Place.SPILLED,
    (Place.BOTH, PlaceEvent.REMOVED): Place.NOWHERE,
    (Place.SPILLED, PlaceEvent.RETURN): Place.RETURNING,
    (Place.SPILLED, PlaceEvent.REMOVED): Place.NOWHERE,
    (Place.RETURNING, PlaceEvent.RETURNED): Place.BOTH,
    (Place.RETURNING, PlaceEvent.NOT_RETURNED): Place.SPILLED,
    (Place.RETURNING, PlaceEvent.REMOVED): Place.NOWHERE,
}

# ── a file, as its FLS shard sees it (AME Fig. 5; FAILED is ours) ──────────────────────────────────


class LookupState(IntEnum):
    """INVALID: not made yet, or lost. VALID: somebody holds it, or it is on shared storage. FAILED: nobody will ever make it."""

    INVALID = 0
    VALID = 1
    FAILED = 2


class LookupEvent(IntEnum):
    PUBLISHED = 0
    POISONED = 1
    LAST_HOLDER_LOST = 2
    DROPPED = 3


LOOKUP_TABLE: Mapping[tuple[LookupState, LookupEvent], LookupState] = {
    (LookupState.INVALID, LookupEvent.PUBLISHED): LookupState.VALID,
    (LookupState.INVALID, LookupEvent.POISONED): LookupState.FAILED,
    (LookupState.VALID, LookupEvent.PUBLISHED): LookupState.VALID,
    (LookupState.VALID, LookupEvent.LAST_HOLDER_LOST): LookupState.INVALID,
    (LookupState.VALID, LookupEvent.DROPPED): LookupState.INVALID,
    (LookupState.FAILED, LookupEvent.POISONED): LookupState.FAILED,
    (LookupState.FAILED, LookupEvent.PUBLISHED): LookupState.VALID,  # a node thought dead finished it after all
}

# ── a task, as its worker sees it (AME Fig. 2, with the run itself and failure) ────────────────────


class TaskState(IntEnum):
    """INVALID: waits for input. READY: could run. RUNNING: with the launcher. FLUSHING: done, its final outputs on their way to
    shared storage. FINISHED, FAILED: ended, reported. MOVED: another worker has it."""

    INVALID = 0
    READY = 1
    RUNNING = 2
    FLUSHING = 3
    FINISHED = 4
    FAILED = 5
    MOVED = 6


class TaskEvent(IntEnum):
    INPUTS_THERE = 0
    INPUT_GONE = 1  # an input was lost again before the task began
    INPUT_FAILED = 2
    LAUNCHED = 3
    WITHDRAWN = 4  # taken back from the launcher, not started
    SUCCEEDED = 5
    WROTE_FINALS = 6  # succeeded, final outputs to be copied out
    FLUSHED = 7
    WENT_WRONG = 8
    GIVEN_AWAY = 9  # stolen, forwarded or recalled
    NO_ROOM = 10  # the memory of its node is full, and no room can be made for what it makes


TASK_TABLE: Mapping[tuple[TaskState, TaskEvent], TaskState] = {
    (TaskState.INVALID, TaskEvent.INPUTS_THERE): TaskState.READY,
    (TaskState.INVALID, TaskEvent.INPUT_FAILED): TaskState.FAILED,
    (TaskState.INVALID, TaskEvent.GIVEN_AWAY): TaskState.MOVED,
    (TaskState.READY, TaskEvent.INPUT_GONE): TaskState.INVALID,
    (TaskState.READY, TaskEvent.LAUNCHED): TaskState.RUNNING,
    (TaskState.READY, TaskEvent.GIVEN_AWAY): TaskState.MOVED,
    (TaskState.READY, TaskEvent.NO_ROOM): TaskState.FAILED,
    (TaskState.RUNNING, TaskEvent.WITHDRAWN): TaskState.READY,
    (TaskState.RUNNING, TaskEvent.SUCCEEDED): TaskState.FINISHED,
    (TaskState.RUNNING, TaskEvent.WROTE_FINALS): TaskState.FLUSHING,
    (TaskState.RUNNING, TaskEvent.WENT_WRONG): TaskState.FAILED,
    (TaskState.FLUSHING, TaskEvent.FLUSHED): TaskState.FINISHED,
    (TaskState.FLUSHING, TaskEvent.WENT_WRONG): TaskState.FAILED,
}

# ── a task, as its dispatcher sees it ──────────────────────────────────────────────────────────────


class RecordState(IntEnum):
    """QUEUED: to be assigned. ASSIGNED: a worker has it. BACKING_OFF: failed, waits for its next attempt."""

    QUEUED = 0
    ASSIGNED = 1
    BACKING_OFF = 2
    ENDED = 3


class RecordEvent(IntEnum):
    ASSIGN = 0
    WORKER_LOST = 1
    RETRY = 2
    DUE = 3
    PLANNED = 4  # a reduction became a tree; this record is its root now
    END = 5


RECORD_TABLE: Mapping[tuple[RecordState, RecordEvent], RecordState] = {
    (RecordState.QUEUED, RecordEvent.ASSIGN): RecordState.ASSIGNED,
    (RecordState.QUEUED, RecordEvent.END): RecordState.ENDED,
    (RecordState.ASSIGNED, RecordEvent.WORKER_LOST): RecordState.QUEUED,
    (RecordState.ASSIGNED, RecordEvent.RETRY): RecordState.BACKING_OFF,
    (RecordState.ASSIGNED, RecordEvent.PLANNED): RecordState.QUEUED,
    (RecordState.ASSIGNED, RecordEvent.END): RecordState.ENDED,
    (RecordState.BACKING_OFF, RecordEvent.DUE): RecordState.QUEUED,
    (RecordState.BACKING_OFF, RecordEvent.END): RecordState.ENDED,
}

# ── a file of the session's file system, on a node that has it open ────────────────────────────────


class OpenState(IntEnum):
    """IDLE: this node has written nothing of it that its shard does not know; it may be open to be read, or about to be opened. FETCHING:
    this node may be its writer by now, and its content is perhaps not here: no other node is let in. WRITING: handles of this node may
    write it. PROXIED: it is held open because other nodes write through this one. UNREPORTED: a writing handle was closed, and the shard
    has not been told what was written; other handles may write still."""

    IDLE = 0
    FETCHING = 1
    WRITING = 2
    PROXIED = 3
    UNREPORTED = 4


class OpenEvent(IntEnum):
    BECOMES_WRITER = 0  # asks the shard to be its writer, which it has not been
    FETCH_ENDED = 1  # the content is here, or this node is not its writer; the event of its present use follows
    OPENED_TO_WRITE = 2
    PROXY_OPENED = 3
    PROXY_CLOSED = 4  # or found unused; the writes that went through it are to be reported
    WRITER_CLOSED = 5
    REPORTED = 6  # the report of what was written begins
    UNUSED = 7  # no handle of this node can write it any more, and nothing was written


OPEN_TABLE: Mapping[tuple[OpenState, OpenEvent], OpenState] = {
    (OpenState.IDLE, OpenEvent.BECOMES_WRITER): OpenState.FETCHING,
    (OpenState.IDLE, OpenEvent.OPENED_TO_WRITE): OpenState.WRITING,
    (OpenState.IDLE, OpenEvent.PROXY_OPENED): OpenState.PROXIED,
    (OpenState.IDLE, OpenEvent.WRITER_CLOSED): OpenState.UNREPORTED,  # a mount had opened it without asking
    (OpenState.FETCHING, OpenEvent.BECOMES_WRITER): OpenState.FETCHING,  # it has changed meanwhile: again
    (OpenState.FETCHING, OpenEvent.FETCH_ENDED): OpenState.IDLE,
    (OpenState.FETCHING, OpenEvent.OPENED_TO_WRITE): OpenState.FETCHING,
    (OpenState.FETCHING, OpenEvent.PROXY_OPENED): OpenState.FETCHING,
    (OpenState.FETCHING, OpenEvent.PROXY_CLOSED): OpenState.FETCHING,
    (OpenState.FETCHING, OpenEvent.WRITER_CLOSED): OpenState.FETCHING,
    (OpenState.FETCHING, OpenEvent.REPORTED): OpenState.FETCHING,
    (OpenState.WRITING, OpenEvent.BECOMES_WRITER): OpenState.FETCHING,  # its shard has taken the writing away, with a node that died
    (OpenState.WRITING, OpenEvent.OPENED_TO_WRITE): OpenState.WRITING,
    (OpenState.WRITING, OpenEvent.PROXY_OPENED): OpenState.PROXIED,
    (OpenState.WRITING, OpenEvent.WRITER_CLOSED): OpenState.UNREPORTED,
    (OpenState.WRITING, OpenEvent.UNUSED): OpenState.IDLE,
    (OpenState.PROXIED, OpenEvent.BECOMES_WRITER): OpenState.FETCHING,
    (OpenState.PROXIED, OpenEvent.OPENED_TO_WRITE): OpenState.PROXIED,
    (OpenState.PROXIED, OpenEvent.WRITER_CLOSED): OpenState.PROXIED,
    (OpenState.PROXIED, OpenEvent.PROXY_CLOSED): OpenState.UNREPORTED,
    (OpenState.UNREPORTED, OpenEvent.BECOMES_WRITER): OpenState.FETCHING,
    (OpenState.UNREPORTED, OpenEvent.OPENED_TO_WRITE): OpenState.UNREPORTED,
    (OpenState.UNREPORTED, OpenEvent.PROXY_OPENED): OpenState.PROXIED,
    (OpenState.UNREPORTED, OpenEvent.WRITER_CLOSED): OpenState.UNREPORTED,
    (OpenState.UNREPORTED, OpenEvent.REPORTED): OpenState.IDLE,
}

# ── a file of the session's file system, at the shard that has its record ──────────────────────────


class InodeState(IntEnum):
    """FINISHED: nobody writes it, and its content is whole. WRITTEN: one node writes it. LOST: some of its content went with a node; it can
    be written anew. GONE: it has no name, and nobody uses it. The moves are made by csrc/metadata, also for mounts and nodes that ask it
    directly; a test compares it with the table."""

    FINISHED = 0
    WRITTEN = 1
    LOST = 2
    GONE = 3


class InodeEvent(IntEnum):
    OPENED_TO_WRITE = 0
    CLOSED = 1  # the writer has said what it wrote
    CLOSED_WITH_LOSSES = 2  # and that some of that went with a node
    WRITER_GONE = 3  # without a word; a living node holds the content from before
    LOST_WITH_WRITER = 4  # likewise, and no living node holds that content
    HOLDERS_DIED = 5  # all that held the content, or a stripe of it
    REMOVED = 6  # its last name, and its last use


INODE_TABLE: Mapping[tuple[InodeState, InodeEvent], InodeState] = {
    (InodeState.FINISHED, InodeEvent.OPENED_TO_WRITE): InodeState.WRITTEN,
    (InodeState.FINISHED, InodeEvent.HOLDERS_DIED): InodeState.LOST,
    (InodeState.FINISHED, InodeEvent.REMOVED): InodeState.GONE,
    (InodeState.WRITTEN, InodeEvent.OPENED_TO_WRITE): InodeState.WRITTEN,  # through the same node
    (InodeState.WRITTEN, InodeEvent.CLOSED): InodeState.FINISHED,
    (InodeState.WRITTEN, InodeEvent.CLOSED_WITH_LOSSES): InodeState.LOST,
    (InodeState.WRITTEN, InodeEvent.WRITER_GONE): InodeState.FINISHED,
    (InodeState.WRITTEN, InodeEvent.LOST_WITH_WRITER): InodeState.LOST,
    (InodeState.LOST, InodeEvent.OPENED_TO_WRITE): InodeState.WRITTEN,
    (InodeState.LOST, InodeEvent.REMOVED): InodeState.GONE,
}

# ── a node that is told of the changes of a partition's names and records, as the owner sees it ────


class BackupState(IntEnum):
    """NONE: it is told nothing. WAITING: it is to be told everything, when its turn comes. SYNCING: that is under way; it is told of
    changes, too, and changes are answered when it knows them. IN_STEP: it has everything, and inherits the partition. RELEASING: another
    node has taken its place; until it has heard that, it believes to be in step, and changes wait for it."""

    NONE = 0
    WAITING = 1
    SYNCING = 2
    IN_STEP = 3
    RELEASING = 4


class BackupEvent(IntEnum):
    TOLD = 0  # everything is on its way
    ANSWERED = 1  # it has everything; or it has forgotten it
    REPLACED = 2  # by another that is in step; or it says that it is not in step
    INHERITED = 3  # it was a backup of the node that had the partition before, or that node itself
    CHOSEN = 4  # by the table


#: Kept by csrc/metadata/fsmeta_backup.c, for each partition and node; a test compares the two.
BACKUP_TABLE: Mapping[tuple[BackupState, BackupEvent], BackupState] = {
    (BackupState.NONE, BackupEvent.CHOSEN): BackupState.WAITING,
    (BackupState.NONE, BackupEvent.INHERITED): BackupState.IN_STEP,
    (BackupState.WAITING, BackupEvent.TOLD): BackupState.SYNCING,
    (BackupState.WAITING, BackupEvent.REPLACED): BackupState.NONE,
    (BackupState.SYNCING, BackupEvent.ANSWERED): BackupState.IN_STEP,
    (BackupState.SYNCING, BackupEvent.REPLACED): BackupState.RELEASING,
    (BackupState.IN_STEP, BackupEvent.REPLACED): BackupState.RELEASING,
    (BackupState.RELEASING, BackupEvent.ANSWERED): BackupState.NONE,
}

# ── a node that keeps copies of the stripes of a partition, as the owner of the partition sees it ──


class KeeperState(IntEnum):
    """All but NONE are told of every change. FILLING: it is to get all that there is. COMPLETE: it has got it, and need not know yet.
    IN_STEP: it has said that it knows. RELEASING: it has been told, or is to be told, to drop everything, and may have done so or not."""

    NONE = 0
    FILLING = 1
    COMPLETE = 2
    IN_STEP = 3
    RELEASING = 4


class KeeperEvent(IntEnum):
    CHOSEN = 0  # it is the backup by the table
    COPIED = 1  # it has everything
    ANSWERED = 2  # it knows that it is in step; or it has dropped everything
    REPLACED = 3  # by another that is in step; or it is not the backup any more, and was not in step yet
    NAMED = 4  # by the owner before this one, as in step
    DOUBTED = 5  # likewise, as one that may believe to be in step, and is not


KEEPER_TABLE: Mapping[tuple[KeeperState, KeeperEvent], KeeperState] = {
    (KeeperState.NONE, KeeperEvent.CHOSEN): KeeperState.FILLING,
    (KeeperState.NONE, KeeperEvent.NAMED): KeeperState.COMPLETE,
    (KeeperState.NONE, KeeperEvent.DOUBTED): KeeperState.RELEASING,
    (KeeperState.FILLING, KeeperEvent.COPIED): KeeperState.COMPLETE,
    (KeeperState.FILLING, KeeperEvent.REPLACED): KeeperState.RELEASING,
    (KeeperState.COMPLETE, KeeperEvent.ANSWERED): KeeperState.IN_STEP,
    (KeeperState.COMPLETE, KeeperEvent.REPLACED): KeeperState.RELEASING,
    (KeeperState.IN_STEP, KeeperEvent.REPLACED): KeeperState.RELEASING,
    (KeeperState.RELEASING, KeeperEvent.ANSWERED): KeeperState.NONE,
}

# ── a node, as the manager sees it ─────────────────────────────────────────────────────────────────


class PeerState(IntEnum):
    JOINING = 0
    ALIVE = 1
    SUSPECT = 2
    DEAD = 3
    LEFT = 4


class PeerEvent(IntEnum):
    ADMITTED = 0
    HEARD = 1
    SILENT = 2
    TIMED_OUT = 3
    GOODBYE = 4


PEER_TABLE: Mapping[tuple[PeerState, PeerEvent], PeerState] = {
    (PeerState.JOINING, PeerEvent.ADMITTED): PeerState.ALIVE,
    (PeerState.ALIVE, PeerEvent.HEARD): PeerState.ALIVE,
    (PeerState.ALIVE, PeerEvent.SILENT): PeerState.SUSPECT,
    (PeerState.ALIVE, PeerEvent.GOODBYE): PeerState.LEFT,
    (PeerState.SUSPECT, PeerEvent.HEARD): PeerState.ALIVE,
    (PeerState.SUSPECT, PeerEvent.SILENT): PeerState.SUSPECT,
    (PeerState.SUSPECT, PeerEvent.TIMED_OUT): PeerState.DEAD,
    (PeerState.ALIVE, PeerEvent.TIMED_OUT): PeerState.DEAD,  # its connection was refused: no need to suspect
    (PeerState.SUSPECT, PeerEvent.GOODBYE): PeerState.LEFT,
}

# ── a run, and a node of it, as its submitter sees them ────────────────────────────────────────────


class RunState(IntEnum):
    """WAITING: tasks of an earlier run with the same journal may still be about; nothing is submitted. GOING: tasks are submitted. ENDING:
    the nodes were told of its end. OVER: all have confirmed it, or are not waited for."""

    WAITING = 0
    GOING = 1
    ENDING = 2
    OVER = 3


class RunEvent(IntEnum):
    READY = 0  # no node has tasks of an earlier run
    END = 1  # everything is done, or something stops the run
    CONFIRMED = 2  # by all nodes; or none is left; or some have not answered in time


RUN_TABLE: Mapping[tuple[RunState, RunEvent], RunState] = {
    (RunState.WAITING, RunEvent.READY): RunState.GOING,
    (RunState.WAITING, RunEvent.END): RunState.ENDING,
    (RunState.WAITING, RunEvent.CONFIRMED): RunState.OVER,
    (RunState.GOING, RunEvent.END): RunState.ENDING,
    (RunState.GOING, RunEvent.CONFIRMED): RunState.OVER,
    (RunState.ENDING, RunEvent.CONFIRMED): RunState.OVER,
}


class RunNodeState(IntEnum):
    """NEW: the submitter has not told it of the run. UNREADY: it has, and the node may still have tasks of an earlier run with the same
    journal. BEGUN: it takes part. ENDING: the submitter waits for its answer to the end of the run. ENDED: it has answered, or is not
    waited for. LOST: it was a member of the session, and is none."""

    NEW = 0
    UNREADY = 1
    BEGUN = 2
    ENDING = 3
    ENDED = 4
    LOST = 5


class RunNodeEvent(IntEnum):
    TOLD = 0
    TOLD_TO_WAIT = 1  # told of the run, whose journal an earlier run may use
    READY = 2  # it has ended that run
    END = 3  # told of the end
    CONFIRMED = 4  # or it does not answer
    LEFT = 5  # the session
    RETURNED = 6  # with the other side of a cut network, which has won


RUN_NODE_TABLE: Mapping[tuple[RunNodeState, RunNodeEvent], RunNodeState] = {
    (RunNodeState.NEW, RunNodeEvent.TOLD): RunNodeState.BEGUN,
    (RunNodeState.NEW, RunNodeEvent.TOLD_TO_WAIT): RunNodeState.UNREADY,
    (RunNodeState.NEW, RunNodeEvent.LEFT): RunNodeState.LOST,
    (RunNodeState.UNREADY, RunNodeEvent.READY): RunNodeState.BEGUN,
    (RunNodeState.UNREADY, RunNodeEvent.END): RunNodeState.ENDING,
    (RunNodeState.UNREADY, RunNodeEvent.LEFT): RunNodeState.LOST,
    (RunNodeState.BEGUN, RunNodeEvent.END): RunNodeState.ENDING,
    (RunNodeState.BEGUN, RunNodeEvent.LEFT): RunNodeState.LOST,
    (RunNodeState.ENDING, RunNodeEvent.CONFIRMED): RunNodeState.ENDED,
    (RunNodeState.ENDING, RunNodeEvent.LEFT): RunNodeState.LOST,
    (RunNodeState.ENDED, RunNodeEvent.LEFT): RunNodeState.LOST,
    (RunNodeState.LOST, RunNodeEvent.RETURNED): RunNodeState.NEW,
}


# ── a node that is told to end ────────────────────────────────────────────────────────────────────


class DrainState(IntEnum):
    SERVING = 0
    ASKED = 1
    MOVING = 2
    PARTING = 3
    LEAVING = 4


class DrainEvent(IntEnum):
    ORDERED = 0
    WITHDRAWN = 1  # the view says that it drains
    CLEARED = 2  # no task runs, and nothing is here that others do not have
    MORE = 3  # something has come since
    HEARD = 4  # the others have heard all that it said of runs
    UNHEARD = 5  # they have not, or need not
    ALONE = 6  # no other node can take anything
    LATE = 7  # its time is over
    ORDERED_AGAIN = 8


DRAIN_TABLE: Mapping[tuple[DrainState, DrainEvent], DrainState] = {
    (DrainState.SERVING, DrainEvent.ORDERED): DrainState.ASKED,
    (DrainState.ASKED, DrainEvent.WITHDRAWN): DrainState.MOVING,
    (DrainState.ASKED, DrainEvent.ALONE): DrainState.LEAVING,
    (DrainState.ASKED, DrainEvent.LATE): DrainState.LEAVING,
    (DrainState.ASKED, DrainEvent.ORDERED_AGAIN): DrainState.LEAVING,
    (DrainState.MOVING, DrainEvent.CLEARED): DrainState.PARTING,
    (DrainState.PARTING, DrainEvent.MORE): DrainState.MOVING,
    (DrainState.PARTING, DrainEvent.HEARD): DrainState.LEAVING,
    (DrainState.PARTING, DrainEvent.UNHEARD): DrainState.LEAVING,
    (DrainState.PARTING, DrainEvent.ALONE): DrainState.LEAVING,
    (DrainState.PARTING, DrainEvent.LATE): DrainState.LEAVING,
    (DrainState.PARTING, DrainEvent.ORDERED_AGAIN): DrainState.LEAVING,
    (DrainState.MOVING, DrainEvent.ALONE): DrainState.LEAVING,
    (DrainState.MOVING, DrainEvent.LATE): DrainState.LEAVING,
    (DrainState.MOVING, DrainEvent.ORDERED_AGAIN): DrainState.LEAVING,
}

TABLES: dict[str, Mapping[tuple[IntEnum, IntEnum], IntEnum]] = {
    "A file on its worker": FILE_TABLE,  # type: ignore[dict-item]
    "The content of a file on its node": PLACE_TABLE,  # type: ignore[dict-item]
    "A file on its FLS shard": LOOKUP_TABLE,  # type: ignore[dict-item]
    "A task on its worker": TASK_TABLE,  # type: ignore[dict-item]
    "A task on its dispatcher": RECORD_TABLE,  # type: ignore[dict-item]
    "A file on a node that has it open": OPEN_TABLE,  # type: ignore[dict-item]
    "A file on its metadata shard": INODE_TABLE,  # type: ignore[dict-item]
    "A node on the owner of a partition, as its backup": BACKUP_TABLE,  # type: ignore[dict-item]
    "A node on the owner of a partition, as keeper of its stripes": KEEPER_TABLE,  # type: ignore[dict-item]
    "A node on the manager": PEER_TABLE,  # type: ignore[dict-item]
    "A run on its submitter": RUN_TABLE,  # type: ignore[dict-item]
    "A node on the submitter of a run": RUN_NODE_TABLE,  # type: ignore[dict-item]
    "A node that is told to end": DRAIN_TABLE,  # type: ignore[dict-item]
    "A job that is to become a node": JOB_TABLE,  # type: ignore[dict-item]
}


def compile_table(table: Mapping[tuple[S, E], S], states: type[S], events: type[E]) -> list[list[S | None]]:
    """``NEXT[state][event]``: the next state, or None where the table has no such move."""
    return [[table.get((state, event)) for event in events] for state in states]


FILE_NEXT = compile_table(FILE_TABLE, FileState, FileEvent)
PLACE_NEXT = compile_table(PLACE_TABLE, Place, PlaceEvent)
LOOKUP_NEXT = compile_table(LOOKUP_TABLE, LookupState, LookupEvent)
TASK_NEXT = compile_table(TASK_TABLE, TaskState, TaskEvent)
RECORD_NEXT = compile_table(RECORD_TABLE, RecordState, RecordEvent)
OPEN_NEXT = compile_table(OPEN_TABLE, OpenState, OpenEvent)
INODE_NEXT = compile_table(INODE_TABLE, InodeState, InodeEvent)
BACKUP_NEXT = compile_table(BACKUP_TABLE, BackupState, BackupEvent)
KEEPER_NEXT = compile_table(KEEPER_TABLE, KeeperState, KeeperEvent)
JOB_NEXT = compile_table(JOB_TABLE, JobState, JobEvent)
PEER_NEXT = compile_table(PEER_TABLE, PeerState, PeerEvent)
RUN_NEXT = compile_table(RUN_TABLE, RunState, RunEvent)
RUN_NODE_NEXT = compile_table(RUN_NODE_TABLE, RunNodeState, RunNodeEvent)
DRAIN_NEXT = compile_table(DRAIN_TABLE, DrainState, DrainEvent)


def illegal(machine: str, key: object, state: IntEnum, event: IntEnum) -> InvalidTransition:
    """The error for a move that no table lists; the machines raise it."""
    return InvalidTransition(machine, key, state.name, event.name)
