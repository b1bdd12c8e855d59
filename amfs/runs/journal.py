"""The journal of a run: the finished tasks, so that a second run does only the rest.

Append-only. A record is ``u32 length, u32 check, payload``, little-endian; ``check`` is the low half of the payload's XXH64 and the
payload is MessagePack. The first record is the header, the others are lists of (task key, sizes of outputs, derivation, times of outputs);
``workflow/derivation.py`` says what key and derivation are. A torn or damaged record ends the reading: the records before it count.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import threading
from collections.abc import Sequence
from pathlib import Path

import msgspec

from amfs._native import xxh64
from amfs.errors import AmfsError, UsageError
from amfs.host import folders

_HEAD = struct.Struct("<II")
FORMAT = 2  # 1 did not say what tasks had read
Done = tuple[int, tuple[int, ...], int, tuple[int, ...]]  # key, sizes of outputs, derivation, times of outputs in ns
SUFFIX = ".journal"  # a file named so is ours, whatever is in it


class Header(msgspec.Struct, array_like=True):
    """Whose journal it is. ``store``: where the files of an embedded run are, for adoption; ``mark`` and ``life``: by which the nodes of a
    session know the runs that have kept this journal, one after the other; ``complete`` needs no record: it is counted. ``file``: where the
    tasks were read from, absolute; '' if that was no file."""

    source: str
    base: str
    store: str = ""
    format: int = FORMAT
    mark: str = ""
    life: int = 1
    file: str = ""


class Past(msgspec.Struct):
    """Results of an earlier run: of each finished task, by its key, the sizes of its outputs, its derivation, and their times. Empty if the
    journal is of an older format, which did not say what tasks had read."""

    header: Header
    done: dict[int, tuple[tuple[int, ...], int, tuple[int, ...]]]

    @property
    def old(self) -> bool:
        return self.header.format < FORMAT


def default_path(source: str, base: str) -> Path:
    """Where the journal of a workflow is kept unless the user says otherwise: found again by source and directory."""
    mark = xxh64(f"{os.path.realpath(source)}\0{base}")
    return folders.state() / f"{os.path.basename(source)[:60]}-{mark:016x}{SUFFIX}"


def unwritable(path: Path) -> str:
    """Why no journal can be kept there, in words; '' if one can, its directories being made."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        return f"cannot make {path.parent}: {error.strerror}"
    return "" if os.access(path.parent, os.W_OK | os.X_OK) else f"cannot write in {path.parent}"


def aside(path: Path) -> Path:
    """Where an interrupted run puts the files between its tasks, beside its journal."""
    return path.with_name(path.name + ".files")


def read(path: Path) -> Past | None:
    """The content of the journal; None if there is none. Raises UsageError if it is no journal at all."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UsageError(f"cannot read the journal {path}: {error.strerror}") from None
    records = _records(data)
    if not records:
        if not data:
            return None
        raise UsageError(f"{path} is not a journal of amfs (or its first record is damaged)")
    try:
        header = msgspec.msgpack.decode(records[0], type=Header)
        done: dict[int, tuple[tuple[int, ...], int, tuple[int, ...]]] = {}
        decoder = msgspec.msgpack.Decoder(list[Done])
        for record in records[1:] if header.format == FORMAT else ():
            done.update((key, tuple(left)) for key, *left in decoder.decode(record))  # type: ignore[misc]
    except msgspec.DecodeError as error:
        raise UsageError(f"the journal {path} cannot be understood: {error}") from None
    if header.format > FORMAT:
        raise UsageError(f"the journal {path} has format {header.format}, this amfs reads {FORMAT}; start without --resume")
    return Past(header, done)


def is_kept(path: Path) -> bool:
    """Does a process that lives keep this journal?"""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # no locks here: nobody can tell
        pass
    finally:
        os.close(fd)
    return False


def next_life(path: Path, resume: bool) -> tuple[str, int]:
    """Mark and life of a run that is about to keep this journal. Raises UsageError if it is to resume a run that still goes on."""
    kept = is_kept(path)
    if kept and resume:
        raise UsageError(f"cannot resume: the run that keeps the journal {path} still goes on; wait for its end, or end it")
    with contextlib.suppress(UsageError):  # whatever it is, a new one takes its place
        past = None if kept else read(path)
        if past is not None and past.header.mark:
            return past.header.mark, past.header.life + 1
    return os.urandom(8).hex(), 1


def _records(data: bytes) -> list[bytes]:
    out: list[bytes] = []
    at = 0
    while at + _HEAD.size <= len(data):
        length, check = _HEAD.unpack_from(data, at)
        payload = data[at + _HEAD.size : at + _HEAD.size + length]
        if len(payload) < length or xxh64(payload) & 0xFFFFFFFF != check:
            break
        out.append(payload)
        at += _HEAD.size + length
    return out


class Journal:
    """An open journal. Written at every batch of results; brought to disk by a thread of its own every few seconds and at the end."""

    def __init__(self, path: Path, header: Header, past: Past | None = None) -> None:
        """Start anew; ``past`` (of the same file) is carried over. Raises UsageError if it cannot be written, or is something else."""
        self.path = path
        self._encoder = msgspec.msgpack.Encoder()
        self._stop = threading.Event()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.suffix != SUFFIX and path.is_file() and path.stat().st_size and not _records(path.read_bytes()):
                raise UsageError(f"{path} is there and is no journal of amfs: remove it, or name another file")
            temporary = path.with_name(f"{path.name}.{os.getpid()}.new")  # the same list may be run twice at a time
            self._fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_APPEND, 0o600)
            with contextlib.suppress(OSError):  # gone with this process, however that ends; see is_kept
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._record(header)
            if past is not None and past.done:
                self._record([(key, *left) for key, left in past.done.items()])
            os.rename(temporary, path)
        except OSError as error:
            raise UsageError(f"cannot write the journal {path}: {error.strerror}; name another place with --journal") from None
        self._thread = threading.Thread(target=self._sync, name="journal", daemon=True)
        self._thread.start()

    def _record(self, value: object) -> None:
        payload = self._encoder.encode(value)
        record = _HEAD.pack(len(payload), xxh64(payload) & 0xFFFFFFFF) + payload
        written = os.write(self._fd, record)
        if written < len(record):
            raise OSError(28, "No space left on device")

    def add(self, done: Sequence[Done]) -> None:
        """Tasks that finished. Raises AmfsError if the disk is full."""
        if done:
            try:
                self._record(done)
            except OSError as error:
                raise AmfsError(f"cannot write the journal {self.path}: {error.strerror}") from None

    def _sync(self) -> None:
        while not self._stop.wait(3.0):
            with contextlib.suppress(OSError):
                os.fdatasync(self._fd)

    def close(self) -> None:
        """Bring it to disk. Repeatable."""
        if not self._stop.is_set():
            self._stop.set()
            self._thread.join()
            with contextlib.suppress(OSError):
                os.fdatasync(self._fd)
            os.close(self._fd)
