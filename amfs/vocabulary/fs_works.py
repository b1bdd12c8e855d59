"""Works that the file system has the I/O of its node do: one typed order for each. Pure vocabulary; ``node.file_backend`` does them.

``WorkOrder[T]`` ends with a T, or with an errno.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, NamedTuple, Self, TypeVar

import msgspec

from amfs.vocabulary.attr import Attr, Facts, Opened
from amfs.vocabulary.fs_requests import CheckedStore
from amfs.vocabulary.peer_requests import Usage
from amfs.vocabulary.url_moves import Secret, UrlEnd, UrlFile

T = TypeVar("T")


class WorkOrder(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """Base; T is what the work ends with."""

    @classmethod
    def by(cls, do: Callable[[Self], T]) -> WorkHandler:
        """An entry of a table of works."""
        return cls, do


WorkHandler = tuple[type[WorkOrder[Any]], Callable[[Any], Any]]


# ── parts of files ─────────────────────────────────────────────────────────────────────────────────


class MakePart(WorkOrder[None], frozen=True):
    """An empty part, if there is none; with these times of access and modification, else those of now."""

    ino: int
    times: tuple[int, int] | None = None


class LiveFacts(WorkOrder[Facts], frozen=True):
    """Of a file that is open for writing here. ENOENT: in stripes, and not written any more."""

    attr: Attr


class SetTimes(WorkOrder[int], frozen=True):
    """None: that one stays. When it was done, by the clock that stamps what is written; 0: in stripes, or gone."""

    ino: int
    atime: int | None
    mtime: int | None


class Drop(WorkOrder[None], frozen=True):
    """Everything of these that is here."""

    inodes: tuple[int, ...]


class DropWhole(WorkOrder[None], frozen=True):
    ino: int


class DropStripes(WorkOrder[None], frozen=True):
    ino: int


class ListEvictable(WorkOrder[list[tuple[int, int, float]]], frozen=True):
    """(inode, bytes, seconds since it was used) of the whole files that lie here and are not open through ``Io``, those first that were
    used last longest ago."""


class RunsGiveWay(WorkOrder[int], frozen=True):
    """Files of runs make room for ``wanted`` bytes: spare copies, and files that no task here reads and that were used last ``idle_s`` ago
    or earlier; if that is negative all that no task has. Bytes that are free now. The worker of this node does it."""

    wanted: int
    idle_s: float


class ListWhole(WorkOrder[list[tuple[int, int]]], frozen=True):
    """(inode, bytes) of all whole files that lie here, open or not."""


class DeferOpenings(WorkOrder[int], frozen=True):
    """From now on the mounts of this node have the machine decide each opening to write, for the node drains. How many files are open there
    and written to this node or to stripes, or are being made."""


class Spill(WorkOrder[int], frozen=True):
    """The whole content of a file that nobody here has open goes to the spill directory; bytes that are free now."""

    ino: int


class RoomMade(WorkOrder[None], frozen=True):
    """The answer to ``FsFull``."""

    serial: int
    freed: int


class End(WorkOrder[tuple[int, int] | None], frozen=True):
    """(size, mtime) of a striped file that was written here and whose record does not know it yet."""

    ino: int


class EndRecorded(WorkOrder[None], frozen=True):
    ino: int


class Truncate(WorkOrder[Facts | None], frozen=True):
    """Answers the facts afterwards; None: the node through which it was done knows."""

    ino: int
    opened: Opened
    size: int


class Fetch(WorkOrder[int], frozen=True):
    """The whole content from another node."""

    ino: int
    node: int
    size: int
    atime: int
    mtime: int


class Restripe(WorkOrder[int], frozen=True):
    ino: int
    stripe: int  # as ``Opened.stripe``


class Gather(WorkOrder[int], frozen=True):
    """A whole file of its stripes."""

    ino: int
    stripe: int
    size: int


class ListStripes(WorkOrder[list[tuple[int, int]]], frozen=True):
    """(inode, index) of every stripe that lies here, and nowhere else."""


class FetchStripe(WorkOrder[int], frozen=True):
    """``keep``: it stays there, as a copy; else it moves."""

    ino: int
    index: int
    node: int
    keep: bool = False


class ListCopied(WorkOrder[list[tuple[int, int, int]]], frozen=True):
    """(inode, index, size) of every stripe here that has copies, or is one; after changes that do not know the copies set last."""


class SetStripeCopies(WorkOrder[None], frozen=True):
    """Nodes that are told of changes of the stripes of partitions of this node, and are they in step? Of the others nothing is known."""

    partitions: int
    copies: dict[int, tuple[tuple[int, bool], ...]]


class MendStripe(WorkOrder[int], frozen=True):
    """A stripe of which this node is the owner, anew from its copy on ``node``. Nobody changes it meanwhile. EBADMSG: that is damaged,
    too."""

    ino: int
    index: int
    node: int


class PushStripe(WorkOrder[int], frozen=True):
    """All of a stripe to a node that keeps a copy of it. ENOENT: it is not here."""

    ino: int
    index: int
    node: int


class DropCopied(WorkOrder[None], frozen=True):
    """Stripes here of these partitions that have copies, or are some."""

    partitions: tuple[int, ...]


class MarkCopied(WorkOrder[None], frozen=True):
    """From now on the stripes of that file have copies."""

    ino: int


class PartPath(WorkOrder[str], frozen=True):
    ino: int


class ReportUsage(WorkOrder[Usage], frozen=True):
    """``files``: parts."""


class Keep(WorkOrder[bool], frozen=True):
    """Its last name is about to go: is it in use on this node, so that its closing will be told?"""

    ino: int


# ── handles ────────────────────────────────────────────────────────────────────────────────────────


class OpenHandle(WorkOrder[int], frozen=True):
    ino: int
    opened: Opened
    writing: bool
    create: bool


class Read(WorkOrder[bytes], frozen=True):
    handle: int
    offset: int
    count: int


class Seek(WorkOrder[int], frozen=True):
    """Where data begins, from ``offset`` on; the size if there is none."""

    handle: int
    offset: int


class Write(WorkOrder[int], frozen=True):
    handle: int
    offset: int
    data: bytes


class TruncateHandle(WorkOrder[None], frozen=True):
    handle: int
    size: int


class Flush(WorkOrder[None], frozen=True):
    handle: int


class CloseHandle(WorkOrder[Facts | None], frozen=True):
    """Answers the file's facts then; None: its part was put in the place of the handle's."""

    handle: int


# ── whole files, from outside and from the runs ────────────────────────────────────────────────────


class Scratch(WorkOrder[str], frozen=True):
    """The path of a new file from which ``Adopt`` takes."""


class DropScratch(WorkOrder[None], frozen=True):
    scratch: bytes


class Adopt(WorkOrder[None], frozen=True):
    """A scratch file becomes the part of ``ino``, which ``handle`` has open. 0: nobody has, and it was just made and has no part yet."""

    handle: int
    scratch: bytes
    ino: int


class Pour(WorkOrder[None], frozen=True):
    """The content of a scratch file is written through ``handle``."""

    handle: int
    scratch: bytes


class Digest(WorkOrder[tuple[bytes, int]], frozen=True):
    """(digest, size) of a file."""

    ino: int
    opened: Opened


class PartDigest(WorkOrder[bytes], frozen=True):
    """The mark by which a node knows the content here, as long as nobody could write it; b"": no such content lies here. EBUSY:
    somebody can write it, or has meanwhile."""

    ino: int


PART_DAMAGED = 2


class CheckedStripes(NamedTuple):
    stripes: int
    unknown: int  # those of which nobody can say
    size: int  # bytes
    bad: int  # one that is damaged, at which the look ended; -1: none
    next: int  # where to go on; -1: that was all


class CheckPart(WorkOrder[tuple[int, int]], frozen=True):
    """Is the whole content that lies here, or (``index``) the stripe, as it was written: 0: nobody can say, 1: yes, 2: it is damaged; and
    its size."""

    ino: int
    index: int = -1


class CheckStripes(WorkOrder[CheckedStripes], frozen=True):
    """Some stripes of a file that lie here, from that one on."""

    ino: int
    after: int


class CheckStore(WorkOrder[CheckedStore], frozen=True):
    """The same of files of runs, from that one on. The worker is told of each damaged file as well."""

    after: str


class DigestOutside(WorkOrder[tuple[bytes, int]], frozen=True):
    path: bytes


class SeenOutside(WorkOrder[tuple[int, int, int]], frozen=True):
    """(inode, size, modification time)"""

    path: bytes


class ImportFile(WorkOrder[Facts], frozen=True):
    """A local file into a scratch file, of which the answer tells."""

    source: bytes
    scratch: bytes


class ExportFile(WorkOrder[tuple[int, bytes]], frozen=True):
    ino: int
    opened: Opened
    target: bytes
    mode: int
    mtime: int


class OpenStorages(WorkOrder[None], frozen=True):
    """From now on URLs are reached as ``storage`` says, for this move."""

    move: str
    storage: Secret


class CloseStorages(WorkOrder[None], frozen=True):
    """Works under way are given up."""

    move: str


class CountMoved(WorkOrder[int], frozen=True):
    """Bytes so far."""

    move: str


class FetchedUrl(NamedTuple):
    end: UrlEnd
    scratch: bytes  # if it went well: the path of the file
    facts: Facts | None  # of that


class FetchUrl(WorkOrder[FetchedUrl], frozen=True):
    """An object into a new scratch file."""

    move: str
    file: UrlFile
    digest: bool  # take it, too


class ReadUrl(WorkOrder[UrlEnd], frozen=True):
    """The digest of an object."""

    move: str
    file: UrlFile


class StoreUrl(WorkOrder[UrlEnd], frozen=True):
    """A file becomes an object, if it has that digest: else EILSEQ. Without a digest: if it has the one that this node knows it by.
    ENODATA, EBUSY: that can be told only of a small file, which lies here as a whole and which nobody writes."""

    move: str
    file: UrlFile
    opened: Opened
    size: int
    digest: bytes


class ToStore(WorkOrder[int], frozen=True):
    """The content of a file into the store of a run; its size."""

    ino: int
    opened: Opened
    mode: int
    key: str


class OwnerOfStored(WorkOrder[tuple[int, int, int, int]], frozen=True):
    """(uid, gid, mode, mode of directories above) for a file that is made of a task's output."""

    key: str


class FromStore(WorkOrder[int], frozen=True):
    """A task's output becomes the content of the file that ``handle`` has open; by a link if ``ino`` is given. The size."""

    handle: int
    key: str
    ino: int


# ── losses, partitions, peers, caches ──────────────────────────────────────────────────────────────


class Lose(WorkOrder[None], frozen=True):
    """``copies``: of files that have some; else of the others. ``losses_seen``: with this one."""

    partitions: tuple[int, ...]
    losses_seen: int
    copies: bool


class IsLost(WorkOrder[bool], frozen=True):
    """Was some of what was written here lost with a node, and its record does not know yet?"""

    ino: int


class SetTable(WorkOrder[None], frozen=True):
    """``moves``: as of ``SetMoving``; no other partition moves then."""

    owners: tuple[int, ...]
    moves: tuple[int, ...]


class SetMoving(WorkOrder[None], frozen=True):
    """Stripes of these partitions are on their way from or to here: nobody reads or writes them until they have arrived. (``FsAwaited``
    says for which somebody waits.) Or they are no more."""

    partitions: tuple[int, ...]
    moving: bool


class AwaitBackup(WorkOrder[None], frozen=True):
    """Ends when the backups know all changes up to this ticket."""

    ticket: int


class SpreadTo(WorkOrder[list[list[int] | None]], frozen=True):
    """Changes of directories (``directory_changes``), of spread ``number`` of this manager, at these nodes. Of each node the answers, or
    None: it has not said that it has made them."""

    nodes: tuple[int, ...]
    manager: int
    number: int
    changes: bytes


class ReserveAt(WorkOrder[int], frozen=True):
    """The entry of a directory that is about to be made, at a node that has it: the number. ECONNABORTED, of this and the next two: nobody
    knows whether it was done; any other error: it was not."""

    node: int
    number: int  # of this question among those of the manager; likewise of the next
    dir: int
    name: bytes


class StrikeAt(WorkOrder[None], frozen=True):
    """The entry of a directory that is about to go, likewise."""

    node: int
    number: int
    dir: int
    name: bytes
    ino: int


class Made(msgspec.Struct, frozen=True):
    error: int  # of the reserving
    ino: int
    answers: list[list[int] | None] | None  # of the spreading; None: it was not begun


class MakeAt(WorkOrder[Made], frozen=True):
    """The one, and if it is done the other, with the number of the directory."""

    reserve: ReserveAt
    add: SpreadTo


class Removed(msgspec.Struct, frozen=True):
    counts: list[list[int] | None]  # of the freezing
    struck: int | None  # the error; None: it was not begun
    answers: list[list[int] | None] | None  # likewise, of the dropping


class RemoveAt(WorkOrder[Removed], frozen=True):
    """The first; if all nodes have answered that the directory is empty the second, and if that is done the third."""

    freeze: SpreadTo
    strike: StrikeAt
    drop: SpreadTo


class TouchAt(WorkOrder[None], frozen=True):
    """Entries of a directory have changed, whose home is a node."""

    node: int
    dir: int
    now: int


class SendBackups(WorkOrder[None], frozen=True):
    """There may be something to tell the backups."""


class AddPeer(WorkOrder[None], frozen=True):
    """It is a member from now on."""

    node: int


class ForgetPeer(WorkOrder[None], frozen=True):
    node: int


class Invalidate(WorkOrder[None], frozen=True):
    """Have the kernels of this node's mounts forget these (inode 0: all), but not that of ``but`` (an endpoint); ends when they have.

    ``gone``: the names were those of this directory, which was removed. A kernel that does not know the directory has none of them."""

    inodes: tuple[int, ...]
    entries: tuple[tuple[int, bytes], ...] = ()
    but: object = None
    gone: int = 0


AnyWork = (
    MakePart | LiveFacts | SetTimes | Drop | DropWhole | DropStripes | ListEvictable | ListWhole | DeferOpenings | Spill | RoomMade
    | RunsGiveWay
    | End | EndRecorded | Truncate
    | Fetch | Restripe | Gather | ListStripes | FetchStripe | ListCopied | SetStripeCopies | PushStripe | MendStripe | DropCopied
    | MarkCopied
    | PartPath | ReportUsage | Keep
    | OpenHandle | Read | Seek | Write | TruncateHandle | Flush | CloseHandle
    | Scratch | DropScratch | Adopt | Pour | Digest | PartDigest | CheckPart | CheckStripes
    | CheckStore | DigestOutside | SeenOutside | ImportFile | ExportFile
    | OpenStorages | CloseStorages | CountMoved | FetchUrl | ReadUrl | StoreUrl
    | ToStore | OwnerOfStored | FromStore | Lose | IsLost | SetTable | SetMoving | AwaitBackup | SendBackups
    | SpreadTo | ReserveAt | StrikeAt | MakeAt | RemoveAt | TouchAt
    | AddPeer | ForgetPeer | Invalidate
)  # fmt: skip
