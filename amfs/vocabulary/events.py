"""The inputs (events) and outputs (effects) of the pure cores. Imports only messages, requests and the table of partitions.

An event is either ``Received`` (a message from a peer) or one of the local happenings below. An effect is a value; only a shell
(``node`` or ``sim``) acts on it. File contents never pass through a core, except small ones inside ``Content``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import Struct

from amfs.vocabulary.fs_events import FsAwaited as FsAwaited
from amfs.vocabulary.fs_events import FsDamaged as FsDamaged
from amfs.vocabulary.fs_events import FsFull as FsFull
from amfs.vocabulary.fs_events import FsHandlesClosed as FsHandlesClosed
from amfs.vocabulary.fs_events import FsSpilled as FsSpilled
from amfs.vocabulary.fs_events import FsStriped as FsStriped
from amfs.vocabulary.messages import Message, Result, RunInfo, Status
from amfs.vocabulary.object_versions import ObjectVersion
from amfs.vocabulary.partition import PartitionTable
from amfs.vocabulary.room_events import GaveWay as GaveWay
from amfs.vocabulary.room_events import GiveWay as GiveWay
from amfs.vocabulary.room_events import RoomGiven as RoomGiven
from amfs.vocabulary.room_events import RoomWanted as RoomWanted

if TYPE_CHECKING:  # a process without a file system need not load them
    from amfs.vocabulary.fs_requests import Request
    from amfs.vocabulary.fs_works import WorkOrder

# ── events ─────────────────────────────────────────────────────────────────────────────────────────


class Received(Struct, frozen=True):
    """A message arrived from ``peer`` (already deduplicated and in order)."""

    peer: int
    message: Message


class TimerFired(Struct, frozen=True):
    """The timer ``key`` set by ``SetTimer`` is due."""

    key: object


class TasksExited(Struct, frozen=True):
    """Completions of the launcher, as the native tuples (see ``_native.pyi``: Launcher.completions), without what blind tasks have more."""

    completions: list[tuple]  # type: ignore[type-arg]
    traces: Mapping[int, tuple[tuple[str, ...], tuple[str, ...]]] = {}  # of blind tasks, by serial: paths missing, paths made


class AttemptEnded(Struct, frozen=True):
    """No process of an attempt at a blind task is left. ``completion`` as in ``TasksExited``; ``number``, ``made`` and ``missed`` as
    ``fs.vfs.attempts`` has them."""

    completion: tuple  # type: ignore[type-arg]
    number: int
    made: tuple[tuple[int, int, bytes, int], ...]
    missed: tuple[tuple[int, bytes], ...]


class Traces(Struct, frozen=True):
    """The traces of one attempt at a blind task, as paths."""

    missing: tuple[str, ...] = ()  # looked for in vain, if it failed; the last one last
    made: tuple[str, ...] = ()  # there now, if it ended well
    doubted: bool = False  # it ended well, and is taken to have failed: it should have had what is missing


class EndAttempt(Struct, frozen=True):
    """For the file system: publish what an attempt has made, or take it back; answered by the effect ``AttemptSettled``."""

    ended: AttemptEnded
    good: bool
    needs: Callable[[str], bool] | None = None  # is an attempt that ended well to be doubted if it looked for this path in vain?
    origin: bytes = b""  # as ``CopyOut`` has it


class MoveForTask(Struct, frozen=True):
    """For the file system: have the content of ``path`` in the store of a run as ``key`` (``inward``), or the other way round; answered by
    the effect ``MovedForTask`` with the same serial. ``origin``: as ``CopyOut`` has it."""

    serial: int
    inward: bool
    path: bytes
    key: str
    origin: bytes = b""


class ViewChanged(Struct, frozen=True):
    """For the file system: these nodes are in, and have these partitions, from now on."""

    owners: tuple[int, ...]
    version: int
    manager: int
    live: frozenset[int]


class ClientGone(Struct, frozen=True):
    """For the file system: a client has said that it goes."""

    client: int


class StoreFailed(Struct, frozen=True):
    """Small content could not be written into the store as ``name``."""

    name: str
    error: str  # for a person


class FileDamaged(Struct, frozen=True):
    """The file ``name`` of the store, in memory or in the spill directory, is not as it was written."""

    name: str


class JobDone(Struct, frozen=True):
    """A copy or a fetch ended. ``error`` is '' or a message for a person; ``size`` in bytes."""

    serial: int
    error: str
    size: int
    own: bool = False  # the fault is this node's (it is full), not that of the file's holder
    lost_of: str = ""  # of a file of the session: its content was lost, and a task of this run (``workflow.origin.run_mark``) had made it
    damaged: bool = False  # the file to copy is not as it was written
    directory: bool = False  # it is a directory with files in it; ``size`` is that of all of them


class RoomRead(Struct, frozen=True):
    """How much memory is free; how much of the limit other files take, and have ``spilled``; whether ``parts`` of ``amfs:/`` lie here."""

    free: int
    others: int
    spilled: int = 0
    parts: bool = False


class PeerDown(Struct, frozen=True):
    """The transport or membership gave up on a peer (closed for good)."""

    peer: int
    refused: bool = False  # it lives, and has given up on us


class Started(Struct, frozen=True):
    """Event: the node's process is ready to found its session, or to join it."""


class MembersChanged(Struct, frozen=True):
    """Event: there is a new view, and this follows from it for one node."""

    table: PartitionTable
    slots: Mapping[int, int]  # of every member; below 0: it drains, and takes no more tasks
    dead: Set[int]  # those that were members in the view before
    ring: Sequence[int] = ()  # the other nodes of its unit, the next first
    unit: Mapping[int, int] = {}  # slots of the nodes for which it is the dispatcher; empty: it is none
    draining: Set[int] = frozenset()
    manager: int = 0
    ends: Mapping[int, float] = {}  # when the jobs of nodes end, of which that is known
    new: bool = False  # this node was let in by this view: others had its partitions before
    in_order: Mapping[int, Set[int]] = {}  # of the dead, those that have left so: node -> runs of which all that it said is heard


class AddTasks(Struct, frozen=True):
    """Event: the workflow's task list has grown to ``total``. An earlier run has done ``skip`` of the new tasks. Of the files that
    they make it has left ``ready`` on shared storage, and ``unsaved`` in the store only."""

    total: int
    skip: tuple[int, ...] = ()
    ready: tuple[str, ...] = ()
    unsaved: tuple[str, ...] = ()


class RunSkipped(Struct, frozen=True):
    """Event: these tasks, which an earlier run has done, must run after all."""

    tids: tuple[int, ...]


class AdoptFiles(Struct, frozen=True):
    """Event: a run goes on with ``files`` (key, size, mtime_ns, retention) that an earlier life of this node left in the store."""

    run: int
    files: tuple[tuple[str, int, int, int], ...]


class Expanded(Struct, frozen=True):
    """Event: the document that is task ``tid`` was read; ``tids``: its tasks, which end the list now, each after those it waits for."""

    tid: int
    tids: Sequence[int]


class NotExpanded(Struct, frozen=True):
    """Event: nothing can be made of the document for which task ``tid`` stands; ``why`` is shown to people."""

    tid: int
    why: str


class FilesSeen(Struct, frozen=True):
    """Event: the answer to ``LookFor``: these of its names are there, and no task is still writing them."""

    serial: int
    names: Sequence[str]


class FilesLost(Struct, frozen=True):
    """Event: the answer to ``FindLost``: of these the content was lost, and tasks of this run had made it."""

    names: Sequence[str]


class ForgetFiles(Struct, frozen=True):
    """Event: tasks have made these files of an open list, all their readers have ended, and no more will be added."""

    names: tuple[str, ...]


class CloseList(Struct, frozen=True):
    """Event: no more tasks will be added. ``orphans``: files for which tasks wait in vain, as the checks have found."""

    orphans: tuple[str, ...] = ()


class StopRun(Struct, frozen=True):
    """Event: end it now; running tasks are killed. ``reason`` is shown to people."""

    reason: str


class FsRequested(Struct, frozen=True):
    """A mount asks for something; answered by the effect ``FsReplied`` with the same token."""

    token: object
    request: Request[Any]
    uid: int = 0
    gid: int = 0


class ClockRead(Struct, frozen=True):
    """The time by the wall clock when the events that follow had been collected, in nanoseconds since 1970."""

    wall_ns: int


class PeersHeard(Struct, frozen=True):
    """When anything last arrived from each process, whatever it was and in whatever order: a sender is alive.

    Told before every heartbeat. A message can be late although its sender is well: one that was lost holds up all that follow it.
    """

    at: dict[int, float]


class PeerGone(Struct, frozen=True):
    """The host of ``peer`` answers that no process listens any more where ``peer`` did: it has ended, and is not only silent."""

    peer: int


class Leaving(Struct, frozen=True):
    """This node is told by its host to end; the session may go on."""

    reason: str
    runs: tuple[int, ...] = ()  # of which the others have heard all that it said


class DrainOrdered(Struct, frozen=True):
    """This node is told to end, and to hand over what only it has, within ``limit_s``. ``again``: if told so before, it ends at once."""

    reason: str
    limit_s: float
    again: bool = True


class Kept(NamedTuple):
    """Content that a node that drains still has and no other node."""

    what: str
    size: int
    why: str


class MoveAway(Struct, frozen=True):
    """Effect of a drain, event of the file system: have other nodes take what only this one has. ``last``: from now on nobody begins to
    write here; a program that would, waits until the node has left."""

    last: bool = False


class MovedAway(Struct, frozen=True):
    """The answer to a ``MoveAway``; ``kept``: content that no other node has yet. ``takers``: nodes that could take it. ``changed``: files
    were opened to write meanwhile, or came, and there is nothing else."""

    kept: tuple[Kept, ...]
    takers: int
    changed: bool = False


class FsWorked(Struct, frozen=True):
    """The work of a ``FsWork`` ended: ``error`` is an errno, 0: fine."""

    serial: int
    error: int
    value: object


# ── effects ────────────────────────────────────────────────────────────────────────────────────────


class Send(Struct, frozen=True):
    """Queue ``message`` for ``to``; all messages for one peer in one loop turn leave as one batch."""

    to: int
    message: Message


class SetTimer(Struct, frozen=True):
    """Fire ``TimerFired(key)`` at ``at`` (seconds, the loop's monotonic clock). Setting a key again replaces it."""

    key: object
    at: float


class CancelTimer(Struct, frozen=True):
    key: object


class Launch(Struct, frozen=True):
    """Give packed task records to the launcher (``vocabulary.records``)."""

    records: list[bytes]
    blind: bool = False  # some of them are blind tasks, which need the node's mount


class Kill(Struct, frozen=True):
    """Kill (or withdraw, if not started) these launcher serials; their completions follow."""

    serials: list[int]


class OpenRun(Struct, frozen=True):
    """A run begins on this node: give its base directory and environment to the launcher as context ``run``."""

    run: int
    info: RunInfo


class FetchData(Struct, frozen=True):
    """Get ``name``, of ``size`` bytes, from ``peer``'s store into ours. Ends as JobDone(serial)."""

    serial: int
    peer: int
    name: str
    size: int
    mode: int
    spill: bool = False  # into the spill directory, as ``serial``, not into the store
    mtime_ns: int = 0  # of the file there; 0: not known


class StoreInline(Struct, frozen=True):
    """Write small content into the store as ``name``, now."""

    name: str
    data: bytes
    mode: int
    mtime_ns: int = 0


class StageIn(Struct, frozen=True):
    """Copier: copy from shared storage (absolute ``path``) into the store as ``name``. Ends as JobDone(serial). ``listing``: it is a
    directory that a task of the run has made, with these names and sizes (``messages.Published``). ``version``: of an object, the only one
    that is wanted."""

    serial: int
    name: str
    path: str
    listing: int = 0
    version: ObjectVersion | None = None


class CopyOut(Struct, frozen=True):
    """Copier: copy ``name`` from the store to shared storage at ``path``, atomically. Ends as JobDone(serial). ``origin``: for the record
    of a file of the session's file system: the task that made it (``workflow.origin``)."""

    serial: int
    name: str
    path: str
    origin: bytes = b""


class ReadStore(Struct, frozen=True):
    """Answer a Fetch: the shell reads ``names`` from the store (inline if small, only the size if large) and sends Content to ``to``."""

    to: int
    run: int
    names: tuple[str, ...]


class SpillOut(Struct, frozen=True):
    """Copy ``name`` from the store into the spill directory, as ``serial``. Ends as JobDone(serial)."""

    serial: int
    name: str


class Evict(Struct, frozen=True):
    """``name`` is in the spill directory as ``copy``: give up what the store has of it, and have its name there lead to the copy."""

    name: str
    copy: int


class BringBack(Struct, frozen=True):
    """Copy ``copy`` from the spill directory into memory, for ``Restore`` as ``serial``. Ends as JobDone(serial)."""

    serial: int
    name: str
    copy: int


class Restore(Struct, frozen=True):
    """``back``, which was brought back, takes its place in the store as ``name``."""

    name: str
    back: int


class ReadRoom(Struct, frozen=True):
    """Effect: how much memory is free now? Answered by ``RoomRead``."""


class RoomTaken(Struct, frozen=True):
    """Effect: files of runs take so many bytes of this node's limits now: in memory, and ``spilled``; with those on their way there."""

    bytes: int
    spilled: int


class DropSpilled(Struct, frozen=True):
    """Remove these from the spill directory, or those that were brought back under these numbers."""

    copies: list[int]


class Delete(Struct, frozen=True):
    """Remove these from the store."""

    names: list[str]


class CloseRun(Struct, frozen=True):
    """Remove everything of a run from the store and the launcher."""

    run: int
    scope: str


class TellAtWork(Struct, frozen=True):
    """Effect: send ``to`` this ``status``, with those ``most`` of the ``tasks`` (by serial: run, number) that run longest."""

    to: int
    status: Status
    tasks: Mapping[int, tuple[int, int]]
    most: int


class Log(Struct, frozen=True):
    level: int
    text: str


class Probe(Struct, frozen=True):
    """Effect: does the process of ``peer``, which is silent, still listen? ``PeerGone`` if its host says that it does not."""

    peer: int


class Stop(Struct, frozen=True):
    """Leave the poll loop in good order. ``ended``: the whole session, by order of a person; else it may go on."""

    reason: str
    ended: bool = False


class Ended(Struct, frozen=True):
    """Effect: these tasks ended for good."""

    results: list[Result]


class FilesFlushed(Struct, frozen=True):
    """Effect: these files reached shared storage, or could not: (name, size, error)."""

    files: list[tuple[str, int, str]]


class Expand(Struct, frozen=True):
    """Effect: all that task ``tid`` waits for has finished: read the document for which it stands, add its tasks, and say ``Expanded``."""

    tid: int


class LookFor(Struct, frozen=True):
    """Effect: which of these paths are in the session's file system? Answered by ``FilesSeen``."""

    serial: int
    names: tuple[str, ...]


class FindLost(Struct, frozen=True):
    """Effect: of which of these files of the session was the content lost? Answered by ``FilesLost``."""

    names: tuple[str, ...]


class RunOver(Struct, frozen=True):
    """Effect: nothing of the run is left anywhere. ``reason`` '' if it ended by itself."""

    reason: str
    counters: dict[str, int]


class FsReplied(Struct, frozen=True):
    """Effect: the answer to a ``FsRequested``: an errno (0: fine) and the value."""

    token: object
    error: int
    value: object


class FsWork(Struct, frozen=True):
    """Effect: do it (``node.file_backend``); ends as ``FsWorked(serial)``, unheard if serial is 0."""

    serial: int
    order: WorkOrder[Any]


class AttemptSettled(Struct, frozen=True):
    """Effect: the files of an attempt are there for all, or gone; or ``error`` has happened."""

    ended: AttemptEnded
    error: OSError | None
    traces: Traces


class MovedForTask(Struct, frozen=True):
    """Effect: the answer to a ``MoveForTask``; ``size`` in bytes."""

    serial: int
    error: OSError | None
    size: int
    lost_of: str = ""  # as ``JobDone`` has it


Event = (
    Received | TimerFired | TasksExited | JobDone | StoreFailed | FileDamaged | RoomRead | PeerDown | AddTasks | RunSkipped | AdoptFiles
    | Expanded | NotExpanded | FilesSeen | FilesLost | ForgetFiles | CloseList | StopRun | Started | MembersChanged | PeersHeard | PeerGone
    | Leaving | DrainOrdered | MoveAway | MovedAway | FsRequested | FsWorked | FsStriped | FsHandlesClosed | FsAwaited | FsFull | FsDamaged
    | FsSpilled | GiveWay | RoomWanted | RoomGiven | AttemptEnded | ClockRead | EndAttempt | MoveForTask | ViewChanged | ClientGone
)  # fmt: skip
Effect = (
    Send | SetTimer | CancelTimer | Launch | Kill | FetchData | StoreInline | StageIn | CopyOut | ReadStore | TellAtWork | Delete | SpillOut
    | Evict | BringBack | Restore | DropSpilled | ReadRoom | RoomTaken | GaveWay | RoomWanted | RoomGiven | OpenRun | CloseRun | Log | Probe
    | Stop | Ended | FilesFlushed | Expand | LookFor | FindLost | RunOver | FsReplied | FsWork | AttemptSettled | MovedForTask | MoveAway
    | MovedAway | Leaving
)  # fmt: skip
