"""Open files of the session's file system as Python's own file objects. Used by ``amfs.client.files``.

``RawFile`` is the unbuffered one: it reads ahead when it is read in order, and lets writes travel while the program goes on; an error of
such a write is raised by a later write, ``flush`` or ``close``. Positions and buffers are this process's own: two programs that append to
one file at the same time can overwrite each other.
"""

from __future__ import annotations

import errno
import io
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import IO, TYPE_CHECKING, TypeVar

from amfs.client.connection import Call, GatewayLost, NodeConnection, Pending, failure
from amfs.vocabulary import fs_requests as q
from amfs.vocabulary.attr import Attr

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

T = TypeVar("T")

CHUNK = 1 << 20  # bytes that one call carries
AHEAD = 4  # calls on their way when a file is read or written in order
BULK = 8  # the same when much is wanted at once
BUFFER = 256 << 10


def flags_of(mode: str) -> int:
    """The open flags that a mode of Python's ``open`` stands for, without ``b`` and ``t``. Raises ValueError."""
    kinds = set(mode) & set("rwax")
    if len(kinds) != 1 or len(set(mode)) != len(mode) or set(mode) - set("rwaxbt+") or {"b", "t"} <= set(mode):
        raise ValueError(f"invalid mode: {mode!r}")
    kind = kinds.pop()
    both = "+" in mode
    flags = os.O_RDWR if both else os.O_RDONLY if kind == "r" else os.O_WRONLY
    return flags | {"r": 0, "w": os.O_CREAT | os.O_TRUNC, "a": os.O_CREAT | os.O_APPEND, "x": os.O_CREAT | os.O_EXCL}[kind]


class RawFile(io.RawIOBase):
    """One open file at the gateway. ``behind``: writes that may be on their way unacknowledged; 0: each waits."""

    def __init__(
        self, connection: NodeConnection, path: bytes, name: str, mode: str, *, permissions: int, layout: int = -1, stripe: int = 0,
        rank: int = -1, behind: int = AHEAD,
    ) -> None:  # fmt: skip
        self._handle = -1
        self._connection = connection
        self._path = path
        self.name = name
        self.mode = mode
        flags = flags_of(mode)
        self._reads = flags & os.O_ACCMODE != os.O_WRONLY
        self._writes = flags & os.O_ACCMODE != os.O_RDONLY
        self._appends = bool(flags & os.O_APPEND)
        self._behind = behind
        self._at = 0
        self._ordered = 0  # where a reader in order would read next
        self._ahead: deque[tuple[int, Pending]] = deque()
        self._held: tuple[int, memoryview] = (0, memoryview(b""))
        self._short = False  # the last fetch ended with the file
        self._sent: deque[Pending] = deque()  # writes
        self._stray: list[Pending] = []  # reads that nobody wants any more
        self._open(flags, permissions, layout, stripe, rank)
        if self._appends:
            self._at = self.attr.size

    def _open(self, flags: int, permissions: int = 0, layout: int = -1, stripe: int = 0, rank: int = -1) -> None:
        call = Call(q.OpenPath(self._path, flags, permissions, layout, stripe, rank), (self.name,))
        answer = self._connection.wait(self._connection.submit(call))
        self._handle, self.attr = int(answer[0]), Attr(*answer[1])
        self._generation = self._connection.generation

    def _call(self, request: Callable[[int], q.Request[T]]) -> T:
        """A call on the handle. A reader whose gateway died goes on at another one, if the file is still the same."""
        while True:
            call = Call(request(self._handle), (self.name,))
            try:
                value: T = self._connection.wait(self._connection.submit(call, self._generation))
                return value
            except GatewayLost:
                if self._writes:
                    raise
                self._reopen()

    def _reopen(self) -> None:
        was = self.attr.ino
        self._drop_ahead()
        self._stray = []
        self._open(os.O_RDONLY)
        if self.attr.ino != was:
            raise failure(errno.ESTALE, (self.name,))

    # ── what kind it is ────────────────────────────────────────────────────────────────────────────

    def readable(self) -> bool:
        self._checkClosed()
        return self._reads

    def writable(self) -> bool:
        self._checkClosed()
        return self._writes

    def seekable(self) -> bool:
        self._checkClosed()
        return True

    def _checkClosed(self) -> None:
        if self.closed:
            raise ValueError("I/O operation on closed file")

    def _want(self, able: bool, what: str) -> None:
        self._checkClosed()
        if not able:
            raise io.UnsupportedOperation(f"not {what}")

    # ── reading ────────────────────────────────────────────────────────────────────────────────────

    def readinto(self, buffer: WriteableBuffer) -> int:
        self._want(self._reads, "readable")
        self._drain()
        view = memoryview(buffer).cast("B")
        got = 0
        if len(view) > CHUNK:
            for piece in self._pieces(self._at, len(view)):
                view[got : got + len(piece)] = piece
                got += len(piece)
            self._at += got
        else:
            while got < len(view):
                some = self._some(len(view) - got)
                view[got : got + len(some)] = some
                got += len(some)
                self._at += len(some)
                self._ordered = self._at
                if self._short or not len(some):
                    break
        self._ordered = self._at
        return got

    def readall(self) -> bytes:
        self._want(self._reads, "readable")
        self._drain()
        parts: list[bytes | memoryview] = []
        while len(self._held[1]) or self._ahead:
            known = self._some(CHUNK)
            if not len(known):
                break
            parts.append(known)
            self._at += len(known)
        wanted = max(0, self.attr.size - self._at) + 1  # one more than there should be: a short answer says that it was the end
        while wanted:
            got = 0
            for piece in self._pieces(self._at, wanted):
                parts.append(piece)
                got += len(piece)
                self._at += len(piece)
            wanted = CHUNK if got == wanted else 0
        self._ordered = self._at
        return b"".join(parts)

    def _some(self, count: int) -> bytes | memoryview:
        """Up to ``count`` bytes at the present position; none at the end."""
        start, held = self._held
        if not start <= self._at < start + len(held):
            if self._ahead and self._ahead[0][0] == self._at:
                held = self._next_ahead()
            elif self._at == self._ordered and count:
                self._drop_ahead()
                wanted = CHUNK if self._at else max(count, BUFFER)
                held = memoryview(self._call(lambda handle: q.Read(handle, self._at, wanted)))
                self._short = len(held) < wanted
                if not self._short:
                    self._look_ahead(self._at + len(held))
            else:
                self._drop_ahead()
                alone = bytes(self._call(lambda handle: q.Read(handle, self._at, count))) if count else b""
                self._short = len(alone) < count
                return alone
            start = self._at
            self._held = (start, held)
        offset = self._at - start
        piece = held[offset : offset + count]
        if offset + count >= len(held):
            self._held = (0, memoryview(b""))
        return piece

    def _look_ahead(self, offset: int) -> None:
        if self._ahead:
            offset = self._ahead[-1][0] + CHUNK
        while len(self._ahead) < AHEAD and offset < self.attr.size:
            call = Call(q.Read(self._handle, offset, CHUNK), (self.name,))
            self._ahead.append((offset, self._connection.submit(call, self._generation)))
            offset += CHUNK

    def _next_ahead(self) -> memoryview:
        offset, pending = self._ahead.popleft()
        try:
            held = memoryview(self._connection.wait(pending))
        except GatewayLost:
            self._drop_ahead()
            held = memoryview(self._call(lambda handle: q.Read(handle, offset, CHUNK)))
        self._short = len(held) < CHUNK
        if self._short:
            self._drop_ahead()  # the end; bytes after it would be of another time
        else:
            self._look_ahead(offset + CHUNK)
        return held

    def _drop_ahead(self) -> None:
        self._give_up(pending for _, pending in self._ahead)
        self._ahead.clear()
        self._held = (0, memoryview(b""))

    def _give_up(self, reads: Iterable[Pending]) -> None:
        self._stray = [pending for pending in self._stray if not pending.done]
        self._stray += [pending for pending in reads if not pending.done]

    def _pieces(self, offset: int, count: int) -> Iterator[bytes]:
        """The bytes from ``offset``, in order, several calls on their way; ends early at the end of the file."""
        self._drop_ahead()
        out: deque[tuple[int, int, Pending]] = deque()
        at, end = offset, offset + count
        try:
            while at < end or out:
                while at < end and len(out) < BULK:
                    size = min(CHUNK, end - at)
                    call = Call(q.Read(self._handle, at, size), (self.name,))
                    out.append((at, size, self._connection.submit(call, self._generation)))
                    at += size
                start, size, pending = out.popleft()
                try:
                    piece = self._connection.wait(pending)
                except GatewayLost:
                    piece = self._call(partial(q.Read, offset=start, count=size))
                yield piece
                if len(piece) < size:
                    return
        finally:
            self._give_up(pending for _, _, pending in out)

    # ── writing ────────────────────────────────────────────────────────────────────────────────────

    def write(self, data: ReadableBuffer) -> int:
        self._want(self._writes, "writable")
        self._drop_ahead()
        view = memoryview(data).cast("B")
        if self._appends and not self._sent:
            self._at = self._call(q.Stat).size
        for start in range(0, len(view), CHUNK):
            piece = bytes(view[start : start + CHUNK])
            call = Call(q.Write(self._handle, self._at, piece), (self.name,))
            self._sent.append(self._connection.submit(call, self._generation))
            self._at += len(piece)
            while len(self._sent) > BULK:
                self._arrived()
        while len(self._sent) > self._behind:
            self._arrived()
        return len(view)

    def _arrived(self) -> None:
        self._connection.wait(self._sent.popleft())

    def _drain(self) -> None:
        """Until what was written has arrived. Raises the first error; the writes after it may have arrived."""
        first: OSError | None = None
        while self._sent:
            try:
                self._arrived()
            except OSError as error:
                first = first or error
        if first is not None:
            raise first

    def flush(self) -> None:
        self._checkClosed()
        if self._sent:
            self._drain()

    def truncate(self, size: int | None = None) -> int:
        self._want(self._writes, "writable")
        self._drain()
        self._drop_ahead()
        size = self._at if size is None else size
        if size < 0:
            raise failure(errno.EINVAL, (self.name,))
        self._call(lambda handle: q.Truncate(handle, size))
        return size

    # ── the rest ───────────────────────────────────────────────────────────────────────────────────

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._checkClosed()
        self._drain()
        if whence == os.SEEK_CUR:
            offset += self._at
        elif whence == os.SEEK_END:
            offset += self._call(q.Stat).size
        elif whence != os.SEEK_SET:
            raise ValueError(f"invalid whence ({whence}, should be 0, 1 or 2)")
        if offset < 0:
            raise failure(errno.EINVAL, (self.name,))
        self._at = offset
        return offset

    def seek_data(self) -> int:
        """Where data begins from here on; the size if there is none. The position stays."""
        self._checkClosed()
        self._drain()
        return self._call(lambda handle: q.Seek(handle, self._at))

    def tell(self) -> int:
        self._checkClosed()
        return self._at

    def stat(self) -> Attr:
        """The file's attributes now."""
        self._checkClosed()
        self._drain()
        return self._call(q.Stat)

    def close(self) -> None:
        """Wait for the writes and give the handle back. Raises what they, or the closing, met."""
        if self.closed:
            return
        try:
            if self._handle >= 0 and not self._connection.closed and self._connection.pid == os.getpid():
                self._finish()
        finally:
            self._handle = -1
            super().close()

    def _finish(self) -> None:
        self._drop_ahead()
        try:
            self._drain()
        finally:
            if self._generation == self._connection.generation and self._connection.gateway >= 0:
                self._connection.settle(self._stray)
            if self._writes or (self._generation == self._connection.generation and self._connection.gateway >= 0):
                call = Call(q.Close(self._handle), (self.name,))
                if self._writes:
                    self._connection.wait(self._connection.submit(call, self._generation))
                else:
                    self._connection.discard([self._connection.submit(call, self._generation)])  # nothing can go wrong that matters

    def __repr__(self) -> str:
        return f"<amfs file {self.name!r} mode {self.mode!r}>"


def wrap(raw: RawFile, mode: str, buffering: int, encoding: str | None, errors: str | None, newline: str | None) -> IO[str] | IO[bytes]:
    """The file object that ``open`` gives for this mode and buffering."""
    if "b" in mode and (encoding is not None or errors is not None or newline is not None):
        raise ValueError("binary mode takes no encoding, errors or newline argument")
    if buffering == 0:
        if "b" not in mode:
            raise ValueError("can't have unbuffered text I/O")
        return raw  # type: ignore[return-value]
    size = buffering if buffering > 1 else BUFFER
    buffered: io.BufferedRandom | io.BufferedReader | io.BufferedWriter
    if "+" in mode:
        buffered = io.BufferedRandom(raw, size)
    elif "r" in mode:
        buffered = io.BufferedReader(raw, size)
    else:
        buffered = io.BufferedWriter(raw, max(size, CHUNK) if buffering <= 1 else size)
    if "b" in mode:
        return buffered
    text = io.TextIOWrapper(buffered, encoding, errors, newline, line_buffering=buffering == 1)
    text.mode = mode  # type: ignore[misc]
    return text
