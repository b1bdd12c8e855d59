"""Questions between the file systems of nodes: one typed request for each question or order. Pure vocabulary.

``PeerCall[T]`` is answered by a T. A node asks itself the same way. A shard answers META_NOT_MINE if the asker has an old table, META_BUSY
if the asker shall try again.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar, get_args

import msgspec

from amfs.vocabulary.attr import Attr, Entry, Facts, Names
from amfs.vocabulary.fs_requests import CheckedStore, Copied, Digested, by_tag
from amfs.vocabulary.partition_requests import BACKUP as BACKUP
from amfs.vocabulary.partition_requests import LEAVES as LEAVES
from amfs.vocabulary.partition_requests import STRIPES as STRIPES
from amfs.vocabulary.partition_requests import Arrive as Arrive
from amfs.vocabulary.partition_requests import ForgetBackup as ForgetBackup
from amfs.vocabulary.partition_requests import HandOver as HandOver
from amfs.vocabulary.partition_requests import Have as Have
from amfs.vocabulary.partition_requests import Losses as Losses
from amfs.vocabulary.partition_requests import SettleDirectories as SettleDirectories
from amfs.vocabulary.peer_calls import InodeCall as InodeCall
from amfs.vocabulary.peer_calls import NameCall as NameCall
from amfs.vocabulary.peer_calls import PeerCall as PeerCall
from amfs.vocabulary.peer_calls import PeerHandler as PeerHandler
from amfs.vocabulary.stripe_requests import CheckStripes as CheckStripes
from amfs.vocabulary.stripe_requests import CopyStripes as CopyStripes
from amfs.vocabulary.stripe_requests import DropCopies as DropCopies
from amfs.vocabulary.stripe_requests import ExpectCopies as ExpectCopies
from amfs.vocabulary.stripe_requests import KeepCopies as KeepCopies
from amfs.vocabulary.stripe_requests import Lose as Lose
from amfs.vocabulary.stripe_requests import SendStripe as SendStripe
from amfs.vocabulary.stripe_requests import StillComing as StillComing
from amfs.vocabulary.stripe_requests import StripesOf as StripesOf
from amfs.vocabulary.stripe_requests import StripesThere as StripesThere
from amfs.vocabulary.url_moves import MoveUrls as MoveUrls

T = TypeVar("T")


class OpenGrant(NamedTuple):
    """A shard's answer to a node that opens a file."""

    attr: Attr
    holders: tuple[int, ...]
    granted: bool  # it has become the writer by this; else, if it is, it was before
    lost: bool  # the content is
    losses: tuple[int, ...]  # of which the shard has heard: ``Members.losses``
    number: int  # of the last permission to write it: while that stays the same on the shard, the content of a finished file does


class Published(NamedTuple):
    there: list[int]  # for all, now
    elsewhere: list[int]  # with another node


class Usage(NamedTuple):
    used: int  # bytes
    limit: int
    files: int  # inodes of the shard; parts


# ── entries, at their shard ────────────────────────────────────────────────────────────────────────


class Lookup(NameCall[Entry], frozen=True):
    pass


class Create(NameCall[Attr], frozen=True):
    now: int
    target: bytes | None
    attr: Attr
    although_lost: bool = False  # names of the partition were lost, perhaps this one, and the asker replaces whatever it was


class Insert(NameCall[Entry], frozen=True):
    """Answers the entry that was there; number 0: none."""

    ino: int
    type: int
    replace: bool
    owner: int  # of the lock on the name; 0: nobody
    asker: int = -1  # the node that has this done, if it is not the one that sends it


class Remove(NameCall[Entry], frozen=True):
    ino: int
    owner: int
    asker: int = -1


class Unlink(NameCall[Attr], frozen=True):
    """Answers what is left."""

    now: int


class Moved(NamedTuple):
    ino: int
    replaced: int  # the inode that had the name; 0: none


class RenameFile(NameCall[Moved], frozen=True):
    """Neither name is that of a directory."""

    to_dir: int
    to_name: bytes
    flags: int
    now: int


class Lock(NameCall[Entry], frozen=True):
    """Answers the entry that is locked by this; number 0: there is none."""

    owner: int


class Unlock(NameCall[None], frozen=True):
    owner: int


class ReserveDirectory(NameCall[int], frozen=True):
    """Make the entry of a directory that is about to be made. Answers its number. ``again``: that may have been done; then it is the number
    of the entry that is there, unless there is such a directory."""

    again: bool = False


class Refuse(PeerCall[None], frozen=True):
    """Of the manager: nobody knows whether its questions up to this number, which went past the poll loops, were heard. They are not any
    more."""

    number: int


class List(PeerCall[Names], frozen=True):
    """Entries of one shard. META_NOT_MINE: it has another table, or partitions are on their way."""

    dir: int
    cursor: int
    limit: int
    version: int


# ── records of inodes, at their shard ──────────────────────────────────────────────────────────────


class Getattr(InodeCall[Attr], frozen=True):
    pass


class Setattr(InodeCall[Attr], frozen=True):
    mask: int
    attr: Attr
    now: int


class Link(InodeCall[Attr], frozen=True):
    delta: int
    now: int
    asker: int = -1


class Open(InodeCall[OpenGrant], frozen=True):
    writing: bool


class OpenExclusively(InodeCall[OpenGrant | None], frozen=True):
    """For writing, wherever the file is pinned to. None: it is written already. EIO: its content is lost."""


class ResumeWriting(InodeCall[OpenGrant | None], frozen=True):
    """The asker is to be, or to stay, the node that a file is written through. None: it is another node, or was when the file was written
    last, or the content is lost."""


class AbortWriteOpen(InodeCall[None], frozen=True):
    """The asker has opened it to write, and has nothing of it: it is a reader only, and the file keeps its content."""


class Closed(InodeCall[Attr | None], frozen=True):
    """The asker has closed it. Answers the record if it was written."""

    facts: Facts | None  # of what it wrote; None: it did not write
    stripe: int  # it was laid in stripes of so many bytes meanwhile; 0: no; UNSTRIPED: made whole
    used: bool  # the asker still has it open
    losses: tuple[int, ...]  # of which the asker has heard; EAGAIN if the shard has heard of others
    lost: bool  # some of what it wrote was, by these
    same: bool = False  # nothing was written since the last ``Checkpoint``: its copies are whole
    origin: bytes = b""  # a task has made what was written, and this is to be kept of it (``workflow.origin``)


class Unused(InodeCall[None], frozen=True):
    pass


class Hold(InodeCall[Attr], frozen=True):
    """The asker has all of it now, as it was when it opened it (``OpenGrant.number``). EAGAIN: it has changed since."""

    grant: int


class Checkpoint(InodeCall[int], frozen=True):
    """The asker goes on writing it. Have other nodes copy what it has written so far, of which ``facts`` tell, and record that.
    Answers 0, or the errno because of which there are fewer copies than asked for. ``grown``: it lies in stripes, which have their copies
    by now, and is not finished: if the asker dies it is lost, and not what it contained before."""

    facts: Facts
    number: int  # the same when the asker asks again
    grown: bool = False


class Secure(InodeCall[int], frozen=True):
    """Have as many nodes hold a finished file as shall. Answers as ``Checkpoint``; 0 too if it is written again by now."""


class GiveUp(InodeCall[None], frozen=True):
    """The asker needs the room. EBUSY: not enough others have what it holds."""


class Damaged(InodeCall[bool], frozen=True):
    """The asker's copy is not what was written, and goes. True: the file is lost now. EAGAIN: it is being written, or had none there.
    ``stripe``: one of its stripes is damaged, and has no other copy."""

    stripe: bool = False


class Holders(InodeCall[tuple[int, ...]], frozen=True):
    pass


class Readlink(InodeCall[bytes], frozen=True):
    pass


class SetXattr(InodeCall[None], frozen=True):
    name: bytes
    value: bytes
    flags: int
    now: int


class GetXattr(InodeCall[bytes], frozen=True):
    name: bytes


class ListXattr(InodeCall[list[bytes]], frozen=True):
    pass


class RemoveXattr(InodeCall[None], frozen=True):
    name: bytes
    now: int


class SetPending(InodeCall[None], frozen=True):
    was: int
    pending: int


class Publish(PeerCall[Published], frozen=True):
    """The files of an attempt are everybody's from now on. ``origin``: as ``Closed`` has it."""

    pending: int
    inodes: tuple[int, ...]
    origin: bytes = b""


class Touch(PeerCall[None], frozen=True):
    """Entries of a directory whose home is there have changed."""

    dir: int
    now: int


# ── content, on any node ───────────────────────────────────────────────────────────────────────────


class Stale(PeerCall[None], frozen=True):
    """Cached facts of these are old."""

    inodes: tuple[int, ...]
    entries: tuple[tuple[int, bytes], ...]


class Drop(PeerCall[None], frozen=True):
    inodes: tuple[int, ...]


class DropWhole(PeerCall[None], frozen=True):
    ino: int


class DropStripes(PeerCall[None], frozen=True):
    ino: int


class Recall(PeerCall[bool], frozen=True):
    """Another node is about to open the file. The kernel of the node that is asked forgets its pages, and the node closes its own handles.
    Answers whether nobody writes the file there by now."""

    ino: int


class Proxy(PeerCall[bool], frozen=True):
    """Open a file there for writing, so that others write through that node; closed when the last of them has. False: another node writes
    it, or its content is still on its way there."""

    ino: int


class HasContent(PeerCall[bool], frozen=True):
    """The shard, to the writer's node: not if an opening there may still be fetching what the file contains, or may yet fail."""

    ino: int


class Keep(PeerCall[None], frozen=True):
    """The shard takes the node for a user, and hears when it is none: at once if it is not in use there."""

    ino: int


class Live(PeerCall[Facts], frozen=True):
    """The facts of a file, by its writer. ENOENT: it has just been closed."""

    attr: Attr


class SetTimes(PeerCall[int], frozen=True):
    """Of the part there. None: that one stays. Answers when it was done, by that node's clock; 0: nobody can say."""

    ino: int
    atime: int | None
    mtime: int | None


class ReportUsage(PeerCall[Usage], frozen=True):
    pass


class Restripe(PeerCall[bool], frozen=True):
    """Lay a whole file of that node in stripes. False: it is being written, or does not lie there any more."""

    ino: int
    stripe: int


class Take(PeerCall[None], frozen=True):
    """Become the only holder of a whole file. EBUSY: it is being written (EAGAIN would be ENOTSUP for a program that sets an attribute)."""

    ino: int


class Bring(PeerCall[list[int]], frozen=True):
    source: int
    inodes: tuple[int, ...]


class KeepCopy(PeerCall[None], frozen=True):
    """Fetch what ``source`` has written of a file so far. The asker records it."""

    ino: int
    source: int
    facts: Facts
    number: int  # the same when the asker asks again


class Flush(PeerCall[int], frozen=True):
    """The content written to a file through the asked node so far shall survive. Answers as ``Checkpoint``."""

    ino: int
    number: int  # the same when the asker asks again


class SpareCopies(PeerCall[int], frozen=True):
    inodes: tuple[int, ...]


class Digests(PeerCall[list[Digested]], frozen=True):
    inodes: tuple[int, ...]


class Check(PeerCall[list[int]], frozen=True):
    """Look at what lies there of these files, and drop what is damaged (``fs_requests.UNKNOWN`` and so on)."""

    inodes: tuple[int, ...]


class CheckStore(PeerCall[CheckedStore], frozen=True):
    """Look at files of runs there, from that one on."""

    after: str


class SeenOutside(PeerCall[tuple[int, int, int]], frozen=True):
    path: bytes


class Load(PeerCall[list[Copied]], frozen=True):
    files: tuple[tuple[bytes, bytes, int], ...]
    uid: int
    gid: int


class Dump(PeerCall[list[Copied]], frozen=True):
    files: tuple[tuple[int, bytes, int], ...]


# ── directories, at the manager ────────────────────────────────────────────────────────────────────


class Mkdir(PeerCall[Attr], frozen=True):
    dir: int
    name: bytes
    attr: Attr
    now: int


class Rmdir(PeerCall[None], frozen=True):
    dir: int
    name: bytes
    now: int


class Rename(PeerCall[None], frozen=True):
    """Where at least one of the two is a directory."""

    dir: int
    name: bytes
    to_dir: int
    to_name: bytes
    flags: int
    now: int


class Change(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=True, tag_field="op"):
    """Base of the changes of directories that every node applies."""


class AddDirectory(Change, frozen=True):
    ino: int
    dir: int
    name: bytes
    attr: Attr


class DropDirectory(Change, frozen=True):
    ino: int
    dir: int
    name: bytes
    keep_entry: bool
    now: int


class ForgetName(Change, frozen=True):
    dir: int
    name: bytes


class FreezeDirectory(Change, frozen=True):
    """Answered by how many entries each node has of it."""

    ino: int
    frozen: bool


class MoveDirectory(Change, frozen=True):
    ino: int
    to_dir: int
    to_name: bytes
    now: int


class ExchangeDirectories(Change, frozen=True):
    ino: int
    other: int
    now: int


class SetDirectoryAttr(Change, frozen=True):
    ino: int
    mask: int
    attr: Attr
    now: int


class SetDirectoryXattr(Change, frozen=True):
    ino: int
    name: bytes
    value: bytes
    flags: int
    now: int


class RemoveDirectoryXattr(Change, frozen=True):
    ino: int
    name: bytes
    now: int


class SetDirectoryCopies(Change, frozen=True):
    """Of what is made in it. 0: as the directory above."""

    ino: int
    copies: int


class SetDirectoryLayout(Change, frozen=True):
    ino: int
    layout: int
    stripe: int


AnyChange = (
    AddDirectory | DropDirectory | ForgetName | FreezeDirectory | MoveDirectory | ExchangeDirectories
    | SetDirectoryAttr | SetDirectoryXattr | RemoveDirectoryXattr | SetDirectoryLayout | SetDirectoryCopies
)  # fmt: skip


class ChangeDirectory(PeerCall[Attr], frozen=True):
    """Attributes, extended attributes and rules of a directory for what is made in it. Answers what its attributes are then."""

    change: SetDirectoryAttr | SetDirectoryXattr | RemoveDirectoryXattr | SetDirectoryLayout | SetDirectoryCopies


class Spread(PeerCall[list[list[int]]], frozen=True):
    """Apply some changes, and pass them on down the tree. The answers of all that are below: for each node and change the number of entries
    that a frozen directory has there; of one that is added or dropped 1 if that node has seen to the times of the one above; or minus the
    number of an error."""

    changes: tuple[AnyChange, ...]
    order: tuple[int, ...]  # the tree; the manager first
    place: int  # of the asked in it
    askers: tuple[int, ...]  # of each change the node that wants it
    number: int  # of this spread, there


class Directories(PeerCall[None], frozen=True):
    """All of them, for a new node."""

    data: bytes


class ReportDirectories(PeerCall[bytes | None], frozen=True):
    """All of them, for a manager that does not know them. None: neither does that node."""


AnyPeerCall = (
    Lookup | Create | Insert | Remove | Unlink | RenameFile | Lock | Unlock | ReserveDirectory | Refuse | List
    | Getattr | Setattr | Link | Open | OpenExclusively | ResumeWriting | AbortWriteOpen | Closed | Unused | Hold | GiveUp
    | Damaged | Holders | Checkpoint | Secure | Readlink | SetXattr | GetXattr | ListXattr | RemoveXattr | SetPending | Publish | Touch
    | Stale | Drop | DropWhole | DropStripes | Recall | Proxy | Keep | HasContent | Live | SetTimes | ReportUsage | Restripe | Take
    | Bring | KeepCopy | Flush | SpareCopies | Digests | Check | CheckStripes | SendStripe | CheckStore | SeenOutside | Load | Dump
    | MoveUrls | Mkdir | Rmdir | Rename | ChangeDirectory | Spread | Directories | ReportDirectories | StripesOf | Arrive | Have | Losses
    | SettleDirectories | HandOver | ForgetBackup | Lose | StillComing | DropCopies | KeepCopies | CopyStripes | ExpectCopies
)  # fmt: skip

BY_TAG: dict[str, type[PeerCall[Any]]] = by_tag(get_args(AnyPeerCall))
#: They change nothing: when the asked node dies they are asked again.
QUESTIONS = frozenset((Lookup, List, Getattr, Holders, Readlink, GetXattr, ListXattr))
#: They may take as long as copying a file does, and may be asked again: when no answer comes in time, and when the asked node dies.
#: A closing is one: the kernel has answered the program's ``close`` by then, and an heir that does not hear of it has an empty file.
LONG = frozenset((Checkpoint, Secure, KeepCopy, Flush, Bring, Closed))
#: Asked again when the asked node dies, for to do them twice is to do them once. (``Open`` says whether it has let the asker in to write.
#: The dead node may have done that: ``Opener`` does not go by it alone.)
REPEATABLE = QUESTIONS | LONG | frozenset((Open, Hold, AbortWriteOpen))
#: They change no record of the shard. (Calls about partitions wait for backups by themselves.)
CHANGES_NOTHING = QUESTIONS | frozenset((
    Lock, Unlock, MoveUrls, StripesOf, Arrive, Have, SettleDirectories, HandOver, ForgetBackup, Lose, Drop, DropWhole, ReportUsage, Stale,
    Keep, ReportDirectories, Refuse,
    KeepCopy, DropCopies, KeepCopies, CopyStripes, ExpectCopies, Check, CheckStripes, SendStripe, CheckStore, HasContent, StillComing,
))  # fmt: skip
#: When a node asks itself for one of these, the answer waits for the backups. (That it has opened or closed a file is void when it dies;
#: that a task has made one is to be known.)
CHANGES_NAMES = frozenset((
    Create, Insert, Remove, Unlink, ReserveDirectory, Setattr, Link, SetXattr, RemoveXattr, SetPending, Publish, Checkpoint, Secure,
    Damaged,
))  # fmt: skip
#: Calls that a node can do which does not know the directories yet.
WITHOUT_DIRECTORIES = frozenset((
    Spread, Directories, ReportDirectories, Arrive, StripesOf, Have, HandOver, ForgetBackup, Lose, Drop, DropWhole, ReportUsage,
    DropCopies, KeepCopies, CopyStripes, ExpectCopies,
))  # fmt: skip

