"""Requests of mounts and clients to the file system of their node: one typed request for each operation. Pure vocabulary.

``Request[T]`` is answered by a T. A mount's requests speak of numbers of directories and inodes, as the kernel does; those that end in
``Path``, and most others of clients, speak of paths, which are absolute in the namespace of the file system.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterable, Mapping
from functools import cache
from typing import Any, Generic, NamedTuple, Self, TypeVar, get_args

import msgspec

from amfs.vocabulary.attr import Attr, Listed, Opened
from amfs.vocabulary.url_moves import Secret, UrlFile, UrlsMoved

T = TypeVar("T")
S = TypeVar("S", bound=msgspec.Struct)


class Request(msgspec.Struct, Generic[T], frozen=True, array_like=True, gc=False, tag=True, tag_field="op"):
    """Base of the operations; T is the type of the answer."""

    @classmethod
    def by(cls, handler: Callable[[Any, Self], T | Generator[Any, Any, T]]) -> RequestHandler:
        """An entry of a table of handlers, which take the caller (``fs.vfs.caller``) and the request."""
        return cls, handler


RequestHandler = tuple[type[Request[Any]], Callable[[Any, Any], Any]]


@cache
def answer_type(kind: type[msgspec.Struct]) -> Any:
    """The T of a request's class, for ``msgspec.convert``."""
    return get_args(kind.__orig_bases__[0])[0]  # type: ignore[attr-defined]


def received(value: object, kinds: Mapping[str, type[S]]) -> S:
    """A struct that came over the wire, by its tag. Raises ``msgspec.ValidationError``."""
    if isinstance(value, msgspec.Struct):
        return value  # type: ignore[return-value]  # from a client in the process of its node
    kind = kinds.get(value[0]) if isinstance(value, list) and value and isinstance(value[0], str) else None
    if kind is None:
        raise msgspec.ValidationError("there is no such request")
    return msgspec.convert(value, kind)


def by_tag(kinds: Iterable[type[S]]) -> dict[str, type[S]]:
    return {kind.__name__: kind for kind in kinds}


class Looked(NamedTuple):
    """The attributes, and whether the kernel may keep them."""

    attr: Attr
    may_cache: bool


class Created(NamedTuple):
    """A file that was made and opened: its attributes, then ``Opened``."""

    attr: Attr
    kind: int
    node: int
    stripe: int
    size: int
    losses_seen: int


class Walked(NamedTuple):
    """The inode at the end of a path; ``target``: of a symbolic link."""

    attr: Attr
    target: bytes | None


class Page(NamedTuple):
    """A page of a directory, and where it goes on; 0: that was all. ``lost``: as ``attr.Names`` has it."""

    entries: list[tuple[bytes, Attr]]
    more: int
    lost: bool


class OpenedFile(NamedTuple):
    """A handle of the node that was asked."""

    handle: int
    attr: Attr


#: Of a copy: nobody can say (its digest is taken now); it is what was written; it was damaged, and others have the content; it was damaged,
#: and the last.
UNKNOWN, FINE, DROPPED, DAMAGED_LAST = range(4)
CHECKED_MAX = 1024  # files in one request
#: (node, UNKNOWN, …) of each copy of a file, or an errno.
Checked = list[tuple[int, int]] | int


class CheckedStore(NamedTuple):
    """Of some files of runs that one node has: how many, their bytes, those that were damaged, and where to go on ("": no more)."""

    files: int
    size: int
    unknown: int
    damaged: list[str]
    after: str


class Holding(NamedTuple):
    """Where the content of a finished file is."""

    size: int
    striped: bool
    holders: list[int]


#: The size of a file and the digest of its content; or an errno. EBUSY: it is being written.
Digested = tuple[int, bytes] | int
#: The size of a file that was copied, and whether it was there already; or an errno.
Copied = tuple[int, bool] | int
#: A node's look at a path outside: (inode, size, modification time), or an errno.
Seen = tuple[int, int, int] | int


# ── mounts ─────────────────────────────────────────────────────────────────────────────────────────


class Lookup(Request[Looked], frozen=True):
    dir: int
    name: bytes


class Getattr(Request[Looked], frozen=True):
    ino: int


class Readlink(Request[bytes], frozen=True):
    ino: int


class List(Request[list[Listed]], frozen=True):
    dir: int
    cursor: int
    limit: int


class Create(Request[Created], frozen=True):
    dir: int
    name: bytes
    mode: int
    flags: int
    pending: int = 0  # the mark of the blind attempt that makes it


class Mknod(Request[Looked], frozen=True):
    dir: int
    name: bytes
    mode: int
    rdev: int
    pending: int = 0


class Symlink(Request[Looked], frozen=True):
    dir: int
    name: bytes
    target: bytes
    pending: int = 0


class Mkdir(Request[Looked], frozen=True):
    dir: int
    name: bytes
    mode: int


class Link(Request[Looked], frozen=True):
    ino: int
    dir: int
    name: bytes


class Unlink(Request[None], frozen=True):
    dir: int
    name: bytes


class Rmdir(Request[None], frozen=True):
    dir: int
    name: bytes


class Rename(Request[None], frozen=True):
    dir: int
    name: bytes
    to_dir: int
    to_name: bytes
    flags: int


class Setattr(Request[Looked], frozen=True):
    ino: int
    mask: int
    attr: Attr


class SetXattr(Request[None], frozen=True):
    ino: int
    name: bytes
    value: bytes
    flags: int


class GetXattr(Request[bytes], frozen=True):
    ino: int
    name: bytes


class ListXattr(Request[bytes], frozen=True):
    ino: int


class RemoveXattr(Request[None], frozen=True):
    ino: int
    name: bytes


class Statfs(Request[tuple[int, int, int, int, int, int]], frozen=True):
    """Of all nodes together: block size, blocks, free, available, files, free files."""


class Open(Request[Opened], frozen=True):
    ino: int
    flags: int


class Ensure(Request[Opened], frozen=True):
    """Open it for a mount to which the kernel does not say who opens."""

    ino: int
    writing: bool


class Closed(Request[None], frozen=True):
    """A mount has closed its last writing handle (``wrote``), its last handle (``last``), or one that was both; ``attr``: of what it
    wrote."""

    ino: int
    wrote: bool
    last: bool
    attr: Attr | None


class Secure(Request[None], frozen=True):
    """A program has closed a descriptor through which it wrote: answered when as many nodes have what it wrote as shall."""

    ino: int


#: There is no new name yet; there is; nobody knows how far it went.
RENAMING_NOT_MADE, RENAMING_MADE, RENAMING_UNKNOWN = range(3)


class Renaming(Request[None], frozen=True):
    """A mount has begun to rename a file between shards: the old name is locked by ``owner``, and the record counts a link more."""

    dir: int
    name: bytes
    to_dir: int
    to_name: bytes
    flags: int
    ino: int
    owner: int
    old: int  # the file that the new name was of, which is to count a link less; 0: it was nobody's
    how_far: int  # RENAMING_...


class PerhapsMade(Request[None], frozen=True):
    """A mount had another node make a file, to be written here, and got no answer. Its caller was told so (EIO)."""

    dir: int
    name: bytes


class Unnamed(Request[None], frozen=True):
    """A mount has unlinked a name, or had another node do so; the record of the file, which is on another node than the name was, still
    counts it."""

    dir: int
    name: bytes
    ino: int


class Touched(Request[None], frozen=True):
    """A mount has changed entries of a directory."""

    dir: int


# ── clients: names ─────────────────────────────────────────────────────────────────────────────────


class Walk(Request[Walked], frozen=True):
    path: bytes
    follow: bool


class ListPath(Request[Page], frozen=True):
    path: bytes
    cursor: int
    limit: int


class MkdirPath(Request[Attr], frozen=True):
    path: bytes
    mode: int
    parents: bool


class RmdirPath(Request[None], frozen=True):
    path: bytes


class UnlinkPath(Request[None], frozen=True):
    path: bytes


class RenamePath(Request[None], frozen=True):
    path: bytes
    to: bytes
    flags: int


class LinkPath(Request[Attr], frozen=True):
    path: bytes
    to: bytes


class SymlinkPath(Request[Attr], frozen=True):
    target: bytes
    path: bytes


class ReadlinkPath(Request[bytes], frozen=True):
    path: bytes


class SetattrPath(Request[Attr], frozen=True):
    path: bytes
    mask: int
    attr: Attr
    follow: bool


class GetXattrPath(Request[bytes], frozen=True):
    path: bytes
    name: bytes


class SetXattrPath(Request[None], frozen=True):
    path: bytes
    name: bytes
    value: bytes
    flags: int


class ListXattrPath(Request[bytes], frozen=True):
    path: bytes


class RemoveXattrPath(Request[None], frozen=True):
    path: bytes
    name: bytes


class SetRank(Request[None], frozen=True):
    """Pin a file to a node (Hercules): one that does not exist is made, empty, and is written there, by any writer."""

    path: bytes
    node: int


class GetRank(Request[int], frozen=True):
    """The node where a file is, or will be."""

    path: bytes


class Locate(Request[list[tuple[int, int, list[int]]]], frozen=True):
    """Where the bytes are: (offset, length, nodes). Of many stripes only the first."""

    path: bytes


class Df(Request[list[tuple[int, int, int, int]]], frozen=True):
    """(node, capacity, used, files) of each."""


class Du(Request[list[tuple[bytes, int, int]]], frozen=True):
    """(path, bytes, files) of each directory at and below, with what is below it; a hard link counts once."""

    path: bytes


# ── clients: content ───────────────────────────────────────────────────────────────────────────────


class OpenPath(Request[OpenedFile], frozen=True):
    path: bytes
    flags: int
    mode: int
    layout: int
    stripe: int
    rank: int


class Read(Request[bytes], frozen=True):
    handle: int
    offset: int
    count: int


class Seek(Request[int], frozen=True):
    """Where data begins, from ``offset`` on; the size if there is none."""

    handle: int
    offset: int


class Write(Request[int], frozen=True):
    handle: int
    offset: int
    data: bytes


class Truncate(Request[None], frozen=True):
    handle: int
    size: int


class Flush(Request[None], frozen=True):
    handle: int


class Stat(Request[Attr], frozen=True):
    handle: int


class Close(Request[None], frozen=True):
    handle: int


class Export(Request[tuple[str, Attr]], frozen=True):
    """The file of this node's store that has the whole content, and the attributes."""

    path: bytes


class Scratch(Request[str], frozen=True):
    """The path of a new file in this node's store, for ``Adopt``."""


class Adopt(Request[Attr], frozen=True):
    """Make a scratch file of this node's store the content of ``path``."""

    scratch: bytes
    path: bytes
    mode: int
    exclusive: bool


# ── clients: many files ────────────────────────────────────────────────────────────────────────────


class Where(Request[tuple[list[int], list[Holding | int]]], frozen=True):
    """The live nodes, and of each file an errno or where it is. EBUSY: it is being written; EIO: its content is lost."""

    inodes: tuple[int, ...]


class Bring(Request[list[int]], frozen=True):
    """Have ``node`` fetch whole copies from ``source``; an errno for each, 0: it has it. Repeatable. An answer that takes longer than a
    question may is ETIMEDOUT: the node goes on meanwhile, and a client that asks again waits for that."""

    node: int
    source: int
    inodes: tuple[int, ...]


class Spare(Request[int], frozen=True):
    """Have ``node`` delete its copies, each only if others have it and nobody uses it there. Answers how many it has deleted."""

    node: int
    inodes: tuple[int, ...]


class Digests(Request[list[Digested]], frozen=True):
    inodes: tuple[int, ...]


class Check(Request[list[Checked]], frozen=True):
    """Each node that holds one of these compares its copy with the digest of the content as it was written, and drops a damaged copy."""

    inodes: tuple[int, ...]


class CheckStore(Request[CheckedStore], frozen=True):
    """Likewise ``node`` with files of runs, in memory and spilled, from that one on."""

    node: int
    after: str


class SeenOutside(Request[list[tuple[int, Seen]]], frozen=True):
    """Every node's look at a path outside."""

    path: bytes


class Load(Request[list[Copied]], frozen=True):
    """Have ``node`` copy files in: (path outside, path here, mode) each."""

    node: int
    files: tuple[tuple[bytes, bytes, int], ...]


class Dump(Request[list[Copied]], frozen=True):
    """Have ``node`` copy files out: (inode, path outside, mode) each."""

    node: int
    files: tuple[tuple[int, bytes, int], ...]


class MoveUrls(Request[UrlsMoved], frozen=True):
    """Have ``node`` begin with files, and tell what has ended (``url_moves.MoveUrls``). Repeatable."""

    node: int
    move: str
    what: int
    storage: Secret
    files: tuple[UrlFile, ...]
    heard: int
    over: bool = False


AnyRequest = (
    Lookup | Getattr | Readlink | List | Create | Mknod | Symlink | Mkdir | Link | Unlink | Rmdir | Rename | Setattr
    | SetXattr | GetXattr | ListXattr | RemoveXattr | Statfs | Open | Ensure | Closed | Secure | Renaming | PerhapsMade | Unnamed | Touched
    | Walk | ListPath | MkdirPath | RmdirPath | UnlinkPath | RenamePath | LinkPath | SymlinkPath | ReadlinkPath | SetattrPath
    | GetXattrPath | SetXattrPath | ListXattrPath | RemoveXattrPath | SetRank | GetRank | Locate | Df | Du
    | OpenPath | Read | Seek | Write | Truncate | Flush | Stat | Close | Export | Scratch | Adopt
    | Where | Bring | Spare | Digests | Check | CheckStore | SeenOutside | Load | Dump | MoveUrls
)  # fmt: skip


def name_of(request: Request[Any]) -> str:
    """For people, and as the C side of a mount says it."""
    return _snake(type(request))


def _snake(kind: type) -> str:
    return re.sub(r"(?<=[a-z])([A-Z])", r"_\1", kind.__name__).lower()


#: As the C side of a mount calls them.
BY_NAME: dict[str, type[Request[Any]]] = {_snake(kind): kind for kind in get_args(AnyRequest)}
BY_TAG: dict[str, type[Request[Any]]] = by_tag(get_args(AnyRequest))
