"""The spool of a session: tasks that were queued, as records in files of its private directory.

Owns the form of a record and the places of the files. ``encode`` and ``decode`` are pure; ``csrc/programs/queue.c`` and the shell functions
of ``amfs shell-init`` write the same form. Must not know: what the words of a record mean, who runs them.

A record is fields, each ended by NUL: an empty one, ``q1``, one ``=WORD`` for each word, ``.``. A word begins with ``=`` in its
field, so no word looks like the other fields, and a record that was torn anywhere is recognised: the next begins with ``q1`` before it
has ended.
The words are: the directory in which its writer stood, the mount that was meant, the name of its environment, then the words as they were
given. A record is acknowledged when its last field has been written.

::

    SESSION/spool/            0700
    ├── program               appended by AMFS_queue and ``amfs queue``, one write(2) for each record
    ├── PID-TIME.shell        appended by the functions of one shell: bash splits what it writes, so each has a file of its own
    └── env/NAME              an environment: K=V, each ended by NUL
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from xxhash import xxh64_intdigest

from amfs.errors import SessionError

BEGIN = b"q1"
END = b"."
SPOOL = "spool"
PROGRAM = "program"
SHELL_SUFFIX = ".shell"

#: Not part of an environment: where a task runs is said by its directory, and a shell sets these at each change.
LEFT_OUT = ("PWD", "OLDPWD", "_")


class Record(NamedTuple):
    """A task as it was queued. ``mount`` is empty when the writer knew of none."""

    directory: str
    mount: str
    env: str
    words: tuple[str, ...]


def encode(record: Record) -> bytes:
    """The record in its form. Raises ValueError if a word holds a NUL."""
    words = [os.fsencode(word) for word in (record.directory, record.mount, record.env, *record.words)]
    if any(b"\0" in word for word in words):
        raise ValueError("a word contains a NUL character")
    return b"\0" + BEGIN + b"\0" + b"".join([b"=" + word + b"\0" for word in words]) + END + b"\0"


def decode(data: bytes) -> tuple[list[Record], int]:
    """The whole records in ``data``, and where the last of them ends. The rest may be the beginning of one that is being written."""
    records: list[Record] = []
    words: list[bytes] | None = None  # of the record that is open
    at = used = 0
    for field in data.split(b"\0")[:-1]:
        at += len(field) + 1
        if field[:1] == b"=":
            if words is not None:
                words.append(field[1:])
        elif field == BEGIN:
            words = []
        elif field == END and words is not None and len(words) > 2:
            directory, mount, env, *rest = map(os.fsdecode, words)
            records.append(Record(directory, mount, env, tuple(rest)))
            words = None
            used = at
        else:
            words = None
    return records, used


def encode_environment(environ: Mapping[str, str]) -> bytes:
    """An environment as it is kept."""
    kept = [f"{name}={value}" for name, value in environ.items() if name not in LEFT_OUT]
    return b"".join([os.fsencode(entry) + b"\0" for entry in kept])


def decode_environment(data: bytes) -> dict[str, str]:
    entries = [os.fsdecode(entry).partition("=") for entry in data.split(b"\0")]
    return {name: value for name, equals, value in entries if name and equals and name not in LEFT_OUT}


# ── the files ──────────────────────────────────────────────────────────────────────────────────────


def make(session: Path) -> Path:
    """The spool in this directory of a session, made if need be. Raises SessionError."""
    spool = session / SPOOL
    try:
        spool.mkdir(mode=0o700, exist_ok=True)
        (spool / "env").mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise SessionError(f"the session's directory {session} cannot be used: {error.strerror}") from None
    return spool


def keep_environment(spool: Path, environ: Mapping[str, str]) -> str:
    """Keep an environment, once; its name."""
    data = encode_environment(environ)
    name = f"{xxh64_intdigest(data):016x}"
    path = spool / "env" / name
    if not path.exists():
        temporary = path.with_name(f".{name}-{os.getpid()}")
        temporary.write_bytes(data)
        temporary.rename(path)
    return name


def append(spool: Path, records: Iterable[Record]) -> None:
    """Add records, with one write. Raises OSError; if the space ran out on the way, records that were written whole count."""
    data = b"".join(map(encode, records))
    descriptor = os.open(spool / PROGRAM, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if os.write(descriptor, data) < len(data):
            raise OSError(28, "No space left on device")
    finally:
        os.close(descriptor)


def files(spool: Path) -> list[str]:
    """The names of the files with records, the oldest first."""
    names = [entry.name for entry in os.scandir(spool) if entry.name == PROGRAM or entry.name.endswith(SHELL_SUFFIX)]
    return sorted(names, key=lambda name: (name != PROGRAM, name.partition("-")[2], name))


def collect(spool: Path, before: Mapping[str, int]) -> tuple[list[Record], dict[str, int]]:
    """The records that were added since the files were as long as ``before``; how long they are now."""
    found: list[Record] = []
    now: dict[str, int] = {}
    for name in files(spool):
        start = before.get(name, 0)
        with open(spool / name, "rb") as stream:
            stream.seek(start)
            records, used = decode(stream.read())
        found += records
        now[name] = start + used
    return found, now


def writer_lives(name: str) -> bool:
    """May anybody still add to this file? To that of a shell only the shell itself."""
    return name == PROGRAM or os.path.exists(f"/proc/{name.partition('-')[0]}")


def environments(spool: Path, names: Sequence[str]) -> dict[str, dict[str, str]]:
    """The environments of these names; one that is not there is left out."""
    found = {}
    for name in dict.fromkeys(names):
        if "/" not in name and (path := spool / "env" / name).is_file():
            found[name] = decode_environment(path.read_bytes())
    return found
